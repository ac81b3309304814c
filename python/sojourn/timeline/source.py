"""The records of one flow: the logs of its sender and its receiver, the emulators' packets, and the files of each.

A flow is named by its number in the log that RUN is or holds. Its other end is looked for in that log, in the other
logs of the run, and in the folders named besides it. This module judges nothing. All records must have one clock: that
of one machine.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.errors import RequestError
from sojourn.export.log import Chosen, TcpLog
from sojourn.records import read_table
from sojourn.timeline.frames import with_segments
from sojourn.timeline.taps import Tapped, captured, no_captures
from sojourn.timeline.writes import no_writes, writes_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENDS = ("local_address", "local_port", "remote_address", "remote_port")
SAME_ENDS = ("remote_address", "remote_port", "local_address", "local_port")
OF_FRAMES = (
    *("block", "number", "copy_of", "direction", "pipe", "frame_bytes", "head", "arrival_ns", "entered_ns"),
    *("disposition", "cause", "link_left_ns", "intended_ns", "departure_ns", "marked", "flipped", "queue_slots"),
    "queue_bytes",
)
OF_LINK = ("emulator", "direction", "number", "frame_bytes", "entered_ns", "link_left_ns")
OF_STATE = (
    *("state", "ca_state", "snd_cwnd", "snd_ssthresh", "mss_bytes", "snd_wnd_bytes", "rcv_wnd_bytes", "srtt_us"),
    *("rtt_last_us", "sndbuf_bytes", "snd_queued_bytes", "rcv_queued_bytes", "in_flight_bytes", "flags", "snd_una"),
    *("snd_nxt", "pacing_rate_bps", "limited_by", "rcv_ooopack", "sent_bytes"),
)
"""The fields of TCP's state that a timeline shows or that its rules use."""

MOST_WAIT_NS = 10_000_000_000
"""The longest time before a flow's first sample and after its last one at which an emulator may have had its
packets."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a flow: its log, its number there, and its samples in the order of time."""

    log: TcpLog
    flow: int
    samples: pl.DataFrame
    ends: dict[str, Any]

    @property
    def record(self) -> str:
        """The files of the samples."""
        name = f"tcp_samples-{self.log.chosen.who or '*'}-*.arrow"
        files = sorted(self.log.records.glob(name))
        return str(files[0] if len(files) == 1 else self.log.records / name)

    @property
    def flag_names(self) -> list[str]:
        """The names of the bits of `flags`."""
        return list(self.log.header.get("tcp_flag_names") or [])

    @property
    def title(self) -> str:
        """Both endpoints, as address and port."""
        local, remote = (
            with_port(self.ends[f"{one}_address"], self.ends[f"{one}_port"]) for one in ("local", "remote")
        )
        return f"{local} → {remote}"


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow: the sender of its data, the receiver where its log exists, and the emulators' packets."""

    asked: int
    sender: End
    receiver: End | None
    packets: pl.DataFrame
    """Packets of both directions, with the columns of `frames.FOUND`; `emulator` names each one's log."""

    emulated: tuple[str, ...]
    """The files of `packets`."""

    cut: tuple[str, ...] = ()
    """The files that are truncated."""

    tapped: pl.DataFrame = field(default_factory=lambda: no_captures().with_columns(at_ns="utc_ns"))
    """Packets that taps saw, of both directions, with the columns of `frames.FOUND`; `at_ns` is on the records'
    clock."""

    taps: Tapped = field(default_factory=lambda: Tapped(no_captures(), {}, {}))
    """The captures of `tapped`, with the packets of all flows."""

    writes: pl.DataFrame = field(default_factory=no_writes)
    """The calls in which the sender's application wrote the data, if recorded."""

    shared: pl.DataFrame | None = None
    """TCP packets of all flows at the emulators, with the columns of OF_LINK; None: this flow alone."""

    @property
    def on_links(self) -> pl.DataFrame:
        """The packets of all flows on the links of this flow's data, in its direction."""
        local = digits(self.sender.ends["local_address"])
        own = self.packets.filter(pl.col("source") == local, pl.col("sport") == self.sender.ends["local_port"])
        every = self.packets.select(OF_LINK) if self.shared is None else self.shared
        return every.join(own.select("emulator", "direction").unique(), on=["emulator", "direction"], how="semi")

    @property
    def begin_ns(self) -> int:
        """The time of the first sample, which `--at` counts from."""
        return int(self.sender.samples["time_ns"][0])


@dataclass(frozen=True, slots=True)
class Emulated:
    """The TCP segments in emulators' logs, their files, the truncated ones, and the segments in captures."""

    packets: pl.DataFrame
    files: tuple[str, ...]
    cut: tuple[str, ...]
    tapped: Tapped


def open_flow(path: Path, flow: int, chosen: Chosen, more: Sequence[Path] = (), passed: Emulated | None = None) -> Flow:
    """Return all records of a flow; RequestError where the log or the flow does not exist, or the records do not
    suffice.

    `passed` is the result of `emulated` for the same folders, for several flows.
    """
    mine = _end(path, Chosen(frozenset({flow}), who=chosen.who, block=chosen.block), flow)
    others = _other_ends(mine, [path, *more])
    if len(others) > 1:
        raise RequestError(f"flow {flow} has several logs of its other end: leave out all but one ({others[0][0]})")
    peer = _end(others[0][0], others[0][1], others[0][2]) if others else None
    for one in [peer] if peer else []:
        refuse_other_clock(mine, one)
    sender, receiver = (peer, mine) if peer is not None and _sent(peer) > _sent(mine) else (mine, peer)
    passed = passed or emulated([path, *more], chosen.block)
    first, last = int(mine.samples["time_ns"][0]) - MOST_WAIT_NS, int(mine.samples["time_ns"][-1]) + MOST_WAIT_NS
    meanwhile = passed.packets.filter(pl.col("arrival_ns").is_between(first, last))
    packets = of_flow(meanwhile, mine.ends)
    at_ns = pl.col("utc_ns") + sender.log.minus_utc_ns
    seen = passed.tapped.packets.with_columns(at_ns.alias("at_ns")).filter(pl.col("at_ns").is_between(first, last))
    taps = replace(passed.tapped, packets=seen)
    writes = writes_of([records_of(one) for one in dict.fromkeys([path, *more])], sender.ends, chosen.block)
    cuts = [str(one.log.records / name) for one in (sender, receiver) if one is not None for name in one.log.cut]
    cut = tuple(dict.fromkeys([*cuts, *passed.cut]))
    shared = passed.packets.select(OF_LINK)
    return Flow(flow, sender, receiver, packets, passed.files, cut, of_flow(seen, mine.ends), taps, writes, shared)


def only_flow(path: Path, chosen: Chosen) -> int:
    """Return the number of the log's only flow; RequestError naming the choice where there are several."""
    log = opened(path, chosen)
    flows = log.logged_flows["flow"].to_list()
    if len(flows) == 1:
        return int(flows[0])
    pairs = connections(log.logged_flows)
    if len(pairs) == 1:
        return int(pairs[0])
    raise RequestError(f"{path} has {len(flows)} flows: name one with --flow (`sojourn tcplog summary {path}`)")


def connections(flows: pl.DataFrame) -> list[int]:
    """Return one flow of each connection: where both ends are logged, the one with the lower number."""
    seen: dict[frozenset[tuple[str, int]], int] = {}
    for flow, *ends in flows.select("flow", *ENDS).sort("flow").iter_rows():
        seen.setdefault(frozenset({(ends[0], ends[1]), (ends[2], ends[3])}), flow)
    return list(seen.values())


def first_trial(path: Path, chosen: Chosen) -> tuple[Chosen, str]:
    """Choose the first of a run folder's logged trials where none is named; the sentence says so, and is empty where
    there are no others."""
    if chosen.block is not None:
        return chosen, ""
    flows = read_table(records_of(path), "tcp_flows", columns=("block",)).frame
    of_host = flows if chosen.who is None else flows.filter(pl.col("who") == chosen.who)
    blocks = of_host["block"].unique().sort().to_list()
    if len(blocks) < 2:
        return chosen, ""
    first = int(blocks[0])
    others = ", ".join(map(str, blocks[1:7])) + (", …" if len(blocks) > 7 else "")
    return replace(chosen, block=first), f"this is trial {first}, the first; --block names another: {others}"


def opened(path: Path, chosen: Chosen) -> TcpLog:
    """Open the log of a folder; RequestError for a TCP study that only reads TCP_INFO."""
    there = records_of(path)
    if any(there.glob("tcp_readings-*.arrow")) and not any(there.glob("tcp_samples-*.arrow")):
        raise RequestError(
            f"{path} has readings of TCP_INFO and no log of TCP's state: run the study as root with "
            "load.logged above 0, `sojourn tcplog run` beside it, or a study that logs (tcplog-truth, tcplog-cost, "
            "tcplog-perturbation)"
        )
    return TcpLog.open(path, chosen)


def _end(path: Path, chosen: Chosen, flow: int) -> End:
    log = opened(path, chosen)
    # Of a run folder, read and name only the file that has the flow.
    log = TcpLog.open(path, replace(chosen, who=str(log.flows["who"][0])))
    log.require(OF_STATE, "a timeline")
    parts = list(log.in_order())
    if not parts:
        raise RequestError(f"{path} has no sample of flow {flow}: `sojourn tcplog summary {path}` lists what it has")
    [ends] = log.flows.select(*ENDS, "algorithm", "command", "socket_cookie").head(1).iter_rows(named=True)
    return End(log, flow, pl.concat(parts), ends)


def _sent(end: End) -> int:
    """Return the bytes that this end sent: by the kernel's counter, also where not all packets were logged, and by
    samples."""
    counter = end.samples["sent_bytes"]
    ever = int(counter[-1] or 0) - int(counter[0] or 0)
    return ever + int(end.samples.filter(point="out")["payload_bytes"].sum())


def _other_ends(mine: End, paths: Sequence[Path]) -> list[tuple[Path, Chosen, int]]:
    """Return the logs of the flow with its ends exchanged, within the same time."""
    first, last = int(mine.samples["time_ns"][0]), int(mine.samples["time_ns"][-1])
    ends = [mine.ends[name] for name in SAME_ENDS]
    found = []
    for path in paths:
        records = records_of(path)
        flows = read_table(records, "tcp_flows").frame
        same = [pl.col(name) == value for name, value in zip(ENDS, ends, strict=True)]
        at_once = (pl.col("first_ns") <= last) & (pl.col("last_ns") >= first)
        if mine.log.chosen.block is not None:
            at_once &= pl.col("block") == mine.log.chosen.block
        for row in flows.filter(*same, at_once).iter_rows(named=True):
            chosen = Chosen(frozenset({row["flow"]}), who=row["who"], block=row["block"])
            found.append((path, chosen, int(row["flow"])))
    return found


def refuse_other_clock(one: End, other: End) -> None:
    """Refuse two ends whose hosts have different clocks: the offset is unknown."""
    told = [(end.log.header.get("hostname"), end.log.header.get("clock", "TAI")) for end in (one, other)]
    boots = {end.log.header.get("boot_id") for end in (one, other)} - {None, ""}
    if len(boots) > 1 or (told[0] != told[1] and all(host is not None for host, _ in told)):
        how = " in two boots" if len(boots) > 1 else ""
        raise RequestError(
            f"the two ends were logged on {told[0][0]} ({told[0][1]}) and {told[1][0]} ({told[1][1]}){how}: their "
            "clocks are not one, and a timeline of both would be wrong"
        )


def emulated(paths: Sequence[Path], block: int | None) -> Emulated:
    """Return the emulators' packets in these folders, with the fields of their headers, and the captures."""
    blocks = None if block is None else {block}
    tables = [read_table(records_of(path), "packets", blocks, OF_FRAMES) for path in paths]
    parts = [with_segments(table.frame.rename({"who": "emulator"})).drop("head") for table in tables]
    return Emulated(
        pl.concat(parts).sort("arrival_ns", "number"),
        tuple(str(part.path) for table in tables for part in table.parts),
        tuple(str(part.path) for table in tables for part in table.truncated),
        captured(paths, block),
    )


def between(flow: Flow, since_ns: int, until_ns: int) -> Flow:
    """Return the flow restricted to the records of a span."""

    def within(frame: pl.DataFrame, column: str) -> pl.DataFrame:
        return frame.filter(pl.col(column) >= since_ns, pl.col(column) < until_ns)

    def narrowed(end: End) -> End:
        return replace(end, samples=within(end.samples, "time_ns"))

    receiver = None if flow.receiver is None else narrowed(flow.receiver)
    packets = within(flow.packets, "arrival_ns")
    return replace(flow, sender=narrowed(flow.sender), receiver=receiver, packets=packets)


def of_flow(packets: pl.DataFrame, ends: dict[str, Any]) -> pl.DataFrame:
    """Return the packets between two endpoints, in both directions."""
    local, remote = digits(ends["local_address"]), digits(ends["remote_address"])
    there = (local, ends["local_port"], remote, ends["remote_port"])
    back = (remote, ends["remote_port"], local, ends["local_port"])
    names = ("source", "sport", "destination", "dport")
    either = [
        pl.all_horizontal(pl.col(name) == value for name, value in zip(names, one, strict=True))
        for one in (there, back)
    ]
    return packets.filter(either[0] | either[1])


def records_of(path: Path) -> Path:
    """Return the folder with the records of a log, a run folder, or a folder of records."""
    if not path.is_dir():
        raise RequestError(f"{path} is no folder: expected a run folder, a log of `sojourn tcplog run`, or records")
    return path / "records" if (path / "records").is_dir() else path


def digits(address: str) -> str:
    """Return an address as its octets in hexadecimal digits, which is unique; nothing for one that is not known."""
    return ipaddress.ip_address(address).packed.hex() if address else ""


def with_port(address: str, port: int) -> str:
    """Return address and port as text, IPv6 in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
