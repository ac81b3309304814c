"""Write the path of each segment as a Chrome trace (JSON) for Perfetto: tracks per host, flow and queue.

A process is a host or an emulator. A segment is an asynchronous slice from when TCP built it to its acknowledgement or
its loss, with one inner slice per stage. Windows and queues are counters; losses and retransmissions are instants.
Times are microseconds after the first event, exact to the nanosecond; `otherData.begin_tai_ns` is the time of that
event. Source: Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

import polars as pl

from sojourn.timeline.source import digits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.timeline.segments import Account
    from sojourn.timeline.source import End, Flow

    Row = dict[str, Any]
    Joined = tuple[Flow, pl.DataFrame, Account]

STAGES = {
    "tap_before_ns": "to the first tap",
    "arrival_ns": "to the emulator",
    "link_left_ns": "queue and link",
    "departure_ns": "delay line",
    "tap_after_ns": "to the last tap",
    "received_ns": "to the receiver",
}
"""The points of the path after the sender's TCP, and the stage that ends at each."""

WINDOWS = {"congestion window": "cwnd_bytes", "in flight": "in_flight_bytes", "receiver's window": "snd_wnd_bytes"}
UNREAD = {"unread": "rcv_queued_bytes", "window offered": "rcv_wnd_bytes"}


class Tracks:
    """Hosts and emulators as processes, flows and queues as threads, each with its number."""

    def __init__(self) -> None:
        self.processes: dict[str, int] = {}
        self.threads: dict[tuple[int, str], int] = {}

    def of(self, process: str, thread: str) -> Row:
        """Return `pid` and `tid` of a track."""
        pid = self.processes.setdefault(process, len(self.processes) + 1)
        tid = self.threads.setdefault((pid, thread), len(self.threads) + 1)
        return {"pid": pid, "tid": tid}

    def names(self) -> Iterator[Row]:
        """Return the metadata events that name the tracks."""
        for process, pid in self.processes.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": process}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "ts": 0, "args": {"sort_index": pid}}
        for (pid, thread), tid in self.threads.items():
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": thread}}


def write_trace(joined: Sequence[Joined], file: BinaryIO) -> int:
    """Write the trace of these flows; return the number of segments."""
    begins = [int(at) for _, segments, _ in joined for at in (segments["sent_ns"].min(), segments["write_ns"].min())
              if isinstance(at, int)]  # fmt: skip
    samples = [one.begin_ns for one, _, _ in joined if one.sender.samples.height]
    begin = min([*begins, *samples])
    tracks, count, first = Tracks(), 0, True
    file.write(b'{"traceEvents":[\n')
    for flow, segments, _ in joined:
        for event in _events(flow, segments, tracks, begin, count):
            file.write(b"" if first else b",\n")
            file.write(json.dumps(event, separators=(",", ":")).encode())
            first = False
        count += segments.height
    for event in tracks.names():
        file.write(b",\n" + json.dumps(event, separators=(",", ":")).encode())
    accounts = {str(flow.sender.flow): account.as_dict() for flow, _, account in joined}
    other = {"begin_tai_ns": str(begin), "account": accounts}
    file.write(f'\n],"displayTimeUnit":"ns","otherData":{json.dumps(other)}}}\n'.encode())
    return count


def _events(flow: Flow, segments: pl.DataFrame, tracks: Tracks, begin: int, before: int) -> Iterator[Row]:
    host, there = (str(flow.sender.ends[f"{side}_address"]) for side in ("local", "remote"))
    title = f"flow {flow.sender.flow}: {flow.sender.title}"
    mine = tracks.of(f"host {host}", title)
    yield from _segments(segments, mine, begin, before, flow.sender.flow)
    yield from _counters(_windows(flow.sender), WINDOWS, f"{title}: windows (bytes)", mine, begin)
    trips = flow.sender.samples.drop_nulls("rtt_last_us").with_columns(last=pl.col("rtt_last_us") / 1000)
    yield from _counters(trips, {"round trip": "last"}, f"{title}: round trip (ms)", mine, begin)
    if flow.receiver is not None:
        other = tracks.of(f"host {there}", title)
        yield from _counters(flow.receiver.samples, UNREAD, f"{title}: receive buffer (bytes)", other, begin)
    yield from _queues(flow, tracks, begin)
    yield from _between(segments, title, tracks, begin)


def _segments(segments: pl.DataFrame, track: Row, begin: int, before: int, flow: int) -> Iterator[Row]:
    """Return one slice per segment with its stages; retransmissions and losses are marked."""
    for place, row in enumerate(segments.iter_rows(named=True), start=before + 1):
        is_lost = row["disposition"] == "lost" or row["lost_where"] is not None
        end = lost_at(row) if is_lost else (row["acked_ns"] or row["received_ns"] or row["departure_ns"])
        known = {name: row[name] for name in ("seq", "payload_bytes", "ip_id", "snd_cwnd", "limited_by", "cause",
                                            "lost_where")}  # fmt: skip
        known |= {"sample": f"cpu {row['sent_cpu']} number {row['sent_number']}", "packet": row["emulator_number"]}
        common = {**track, "cat": f"flow {flow}", "id": f"0x{place:x}"}
        sent = _us(row["sent_ns"], begin)
        starts = _us(row["write_ns"], begin) if written_first(row) else sent
        stages = stages_of(row)
        ends = max([row["sent_ns"] if end is None else end, *(at for _, _, at in stages)])
        yield common | {"ph": "b", "name": "segment", "ts": starts, "args": _told(known)}
        yield from _stages(stages, common, begin)
        yield common | {"ph": "e", "name": "segment", "ts": _us(ends, begin)}
        if row["again"]:
            yield {**track, "ph": "i", "s": "t", "name": "retransmission", "ts": sent, "args": {"seq": row["seq"]}}
        if is_lost:
            told = _told({"seq": row["seq"], "cause": row["cause"], "lost_where": row["lost_where"]})
            yield {**track, "ph": "i", "s": "t", "name": "lost", "ts": _us(lost_at(row), begin), "args": told}


def lost_at(row: Row) -> int:
    """Return when a packet was lost: at its departure (damaged), behind the link or at arrival; else when last seen."""
    seen = ("departure_ns", "link_left_ns", "arrival_ns", "tap_after_ns", "tap_before_ns", "sent_ns")
    at: int = next(row[name] for name in seen if row.get(name))
    return at


def _stages(stages: list[tuple[str, int, int]], common: Row, begin: int) -> Iterator[Row]:
    """Return the stages as consecutive slices, from each known point to the next."""
    for name, start, end in stages:
        yield common | {"ph": "b", "name": name, "ts": _us(start, begin)}
        yield common | {"ph": "e", "name": name, "ts": _us(end, begin)}


def stages_of(row: Row) -> list[tuple[str, int, int]]:
    """Return the stages of a segment's path with begin and end in ns, where both are known.

    A departure may be timestamped after the next host, on another processor, has the packet. A tap that lies elsewhere
    than expected (before the first emulator, behind the last) has no stage.
    """
    found = [("send buffer", row["write_ns"], row["sent_ns"])] if written_first(row) else []
    known = {name: row[name] for name in STAGES}
    ends = [at for at in (known["tap_after_ns"], known["received_ns"]) if at is not None]
    if known["departure_ns"] is not None:
        known["departure_ns"] = min([known["departure_ns"], *ends])
    last = row["sent_ns"]
    for name, stage in STAGES.items():
        at = known[name]
        if at is None or at < last:
            continue
        found.append((stage, last, at))
        last = at
    if row["received_ns"] is not None and row["acked_ns"] is not None:
        begins = max(row["received_ns"], last)  # a tap's timestamp may be later than that of TCP behind it
        if row["acked_ns"] >= begins:
            found.append(("acknowledgement", begins, row["acked_ns"]))
    return found


def written_first(row: Row) -> bool:
    """Return whether the time of its write is known and this is its first transmission."""
    return row["write_ns"] is not None and not row["again"] and row["write_ns"] <= row["sent_ns"]


def _windows(sender: End) -> pl.DataFrame:
    cwnd = pl.col("snd_cwnd") * pl.col("mss_bytes")
    return sender.samples.with_columns(cwnd_bytes=cwnd)


def _counters(samples: pl.DataFrame, series: dict[str, str], name: str, track: Row, begin: int) -> Iterator[Row]:
    """Return a point for each change of any of the series."""
    rows = samples.select("time_ns", *series.values()).drop_nulls().filter(pl.col("time_ns") >= begin)
    changed = pl.any_horizontal(pl.col(one) != pl.col(one).shift(1) for one in series.values()).fill_null(value=True)
    for at, *values in rows.filter(changed).iter_rows():
        told = dict(zip(series, values, strict=True))
        yield {"pid": track["pid"], "tid": 0, "ph": "C", "name": name, "ts": _us(at, begin), "args": told}


def _queues(flow: Flow, tracks: Tracks, begin: int) -> Iterator[Row]:
    """Return what each of the flow's packets, acknowledgements included, found in the emulator's queue."""
    mine = digits(flow.sender.ends["local_address"])
    packets = flow.packets.filter(pl.col("arrival_ns") >= begin).sort("arrival_ns")
    for row in packets.iter_rows(named=True):
        queue = f"queue {row['pipe'] or row['direction']}"
        track = tracks.of(f"emulator {row['emulator']}", queue)
        at = _us(row["arrival_ns"], begin)
        found = {"bytes": row["queue_bytes"], "packets": row["queue_slots"]}
        yield {"pid": track["pid"], "tid": 0, "ph": "C", "name": f"{queue}: found in it", "ts": at, "args": found}
        if row["disposition"] == "lost":
            who = "data" if row["source"] == mine else "acknowledgement"
            told = {"seq": row["seq"], "cause": row["cause"], "of": who, "number": row["number"]}
            yield {**track, "ph": "i", "s": "t", "name": f"lost: {row['cause']}", "ts": _us(lost_at(row), begin),
                   "args": told}  # fmt: skip


def _between(segments: pl.DataFrame, title: str, tracks: Tracks, begin: int) -> Iterator[Row]:
    """Return each segment's delay between two taps, at the time it passed the first, and the losses there."""
    passed = segments.drop_nulls("tap_before_ns").sort("tap_before_ns")
    names = passed.select("tap_before", "tap_after").drop_nulls()[:1]
    for before, after in names.iter_rows():
        track = tracks.of(f"device between {before} and {after}", title)
        rows = passed.select("tap_before_ns", "tap_after_ns", "lost_where", "seq")
        for at, then, where, seq in rows.iter_rows():
            common = {**track, "ts": _us(at, begin)}
            if then is not None:
                yield common | {
                    "tid": 0,
                    "ph": "C",
                    "name": f"{title}: delay (ms)",
                    "args": {"delay": (then - at) / 1e6},
                }
            elif where == "device":
                yield common | {"ph": "i", "s": "t", "name": "lost between the taps", "args": {"seq": seq}}


def _us(at_ns: int, begin: int) -> float:
    """Return microseconds after the beginning, exact to a nanosecond for days."""
    return (at_ns - begin) / 1000


def _told(values: Row) -> Row:
    return {name: value for name, value in values.items() if value not in {None, ""}}
