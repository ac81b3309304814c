"""Method "tcp-windows": what TCP gets from a path by its window, and the metrics of RFC 6349.

A trial gives one value of each figure, and a figure is the mean over trials, with Student's interval over sessions
(over rounds, where the run has one bed). The baseline is that of the trial's round.

Quantities (mean; unit); flows, direction, congestion and window (as asked, over the product) are columns of their own:

- baseline_rtt (mean round trip of the idle path) [ns]
- bottleneck_rate (bits of frames a second at which a train above it came back) [bit/s]
- bandwidth_delay_product (their product, in bytes) [byte]
- throughput (user data that reached the receiver after the start-up) [bit/s]
- predicted (the lesser of window over baseline RTT, and of the rate less headers) [bit/s]
- throughput_ratio (throughput over predicted) [1]
- window_bytes (that the receivers offered, of all connections) [byte]
- window_limited (part of the time in which that window limited the senders) [1]
- transfer_time_ratio (time of the whole transfer over the time that its data take at the rate less headers) [1]
- efficiency (bytes sent without those retransmitted, over bytes sent) [1]
- buffer_delay (mean RTT during the transfer less the baseline's, over the baseline's) [1]
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.hypotheses import MARGIN, Outcome, against, inconclusive
from sojourn.analysis.rows import Row, WindowSetting, over_beds
from sojourn.analysis.sessions import figure_of
from sojourn.analysis.study import Study
from sojourn.analysis.tester import incomplete, probing_findings, stamp_sources, truncated
from sojourn.analysis.wording import counted, fixed, percent
from sojourn.methods.tcp_load.analyse.trials import Span, changes, frame_bytes_of, links_of, of_flows
from sojourn.records.lost import in_parts, lost_blocks
from sojourn.units import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sojourn.analysis.run import Run
    from sojourn.statistics.interval import Interval

HYPOTHESIS = "window-or-rate"
UNITS = {
    "baseline_rtt": "ns", "bottleneck_rate": "bit/s", "bandwidth_delay_product": "byte", "throughput": "bit/s",
    "predicted": "bit/s", "throughput_ratio": "1", "window_bytes": "byte", "window_limited": "1",
    "transfer_time_ratio": "1", "efficiency": "1", "buffer_delay": "1",
}  # fmt: skip
OF_PROBES = ("baseline_rtt", "bottleneck_rate", "bandwidth_delay_product", "buffer_delay")
FCS_BYTES = 4
KEPT = 0.99
"""A train that returned at this share of its sending rate did not fill the path: the bottleneck's rate may be higher. A
train that filled the path lost packets in the queue, or returned more slowly."""

Key = tuple[str, str, int, int]
"""A device, the configuration of its pipe, a round, and the part of the run that measured it."""

Told = dict[int, dict[str, Any]]
"""The log's entry of each trial, by block, with its part."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A path before the transfers of a round."""

    block: int
    cell: int
    rtt_ns: float
    rate_bps: float
    kept: float
    """The ratio of the train's packet rate on return to its sending rate."""

    @property
    def product_bytes(self) -> float:
        """The bandwidth-delay product."""
        return self.rtt_ns * self.rate_bps / 8e9


@dataclass(frozen=True, slots=True)
class Done:
    """A transfer; `values` are its figures by quantity."""

    block: int
    device: str
    cell: int
    factors: dict[str, Any]
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Seen:
    """The records of all trials, by block."""

    run: Run
    probes: Mapping[int, pl.DataFrame]
    readings: Mapping[int, pl.DataFrame]
    """The readings of the senders."""
    overhead_bytes: Mapping[int, float]
    """The overhead of each frame in an emulator's rate, beyond its bytes without FCS."""


def study(run: Run) -> Study:
    """Return the figures of all paths and windows, and whether throughput is what window and rate allow."""
    told = told_of(run)
    seen = seen_of(run)
    bases = baselines(seen, told)
    several = [done for block in sorted(told) if (done := transfer(seen, told[block], bases)) is not None]
    rows = [*baseline_rows(run, bases), *transfer_rows(run, several)]
    quiet = without_trains(run, told)
    stamp_sources(quiet, rows)
    cells = {(one.device, one.cell) for one in several}
    missing = max(0, int(run.plan.get("windows", {}).get("rounds", 0)) * len(cells) - len(several))
    findings = [*probing_findings(quiet), *truncated(run, missing),
                *incomplete(run, missing, nothing=not several), *unfilled(bases)]  # fmt: skip
    head = headline(rows)
    outcomes = [one for name in run.hypotheses for one in tested(name, rows)]
    return Study(rows, findings, sentence(rows, head), outcomes, headline=head)


def told_of(run: Run) -> Told:
    """Return the log's entry of each trial that was not lost; the last one of a repeated trial."""
    lost = lost_blocks(run.log)
    return {
        int(entry["block"]): entry | {"part": part}
        for part, entry in in_parts(run.log, "window-trial")
        if (entry["block"], part) not in lost
    }


def seen_of(run: Run) -> Seen:
    """Return the records of a run, by block; those of the last part for a repeated block."""
    sent = run.table("tcp_readings").frame.filter(pl.col("role") == "send")
    sent = sent.filter(pl.col("part") == pl.col("part").max().over("block"))
    links = {block: of["up"].overhead_bytes for block, of in links_of(run).items() if "up" in of}
    return Seen(run, by_block(run.measured), by_block(sent), links)


def by_block(frame: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Return the rows of each block."""
    return {int(block): own for (block,), own in frame.partition_by("block", as_dict=True).items()}


def baselines(seen: Seen, told: Told) -> dict[Key, Baseline]:
    """Return the baseline of each path in each round that has both of its trials."""
    bytes_of = dict(seen.run.blocks.select("block", "response_frame_bytes").iter_rows())
    blocks: dict[Key, dict[str, int]] = defaultdict(dict)
    for block, entry in told.items():
        if entry["factors"]["what"] != "transfer" and block in seen.probes:
            blocks[key_of(entry)][str(entry["factors"]["what"])] = block
    found = {}
    for key, own in sorted(blocks.items()):
        if not {"rtt", "rate"} <= own.keys():
            continue
        idle, train = seen.probes[own["rtt"]], seen.probes[own["rate"]]
        frame = float(bytes_of[own["rate"]] - FCS_BYTES) + seen.overhead_bytes.get(own["rate"], 0.0)
        rate = rate_of(train, frame)
        rtt = idle["rtt"].drop_nulls().cast(pl.Float64).to_numpy()
        if rate is not None and len(rtt):
            left = rate_of(train, frame, "departure_ns")
            kept = 1.0 if left is None else rate / left
            found[key] = Baseline(own["rtt"], int(told[own["rtt"]]["cell"]), float(rtt.mean()), rate, kept)
    return found


def key_of(entry: dict[str, Any]) -> Key:
    """Return the path, round and part of a trial: a bed that continues a round has its own baseline."""
    return str(entry["device"]), str(entry["factors"]["pipe"]), int(entry["round"]), int(entry["part"])


def rate_of(train: pl.DataFrame, frame_bytes: float, when: str = "arrival_ns") -> float | None:
    """Return the frame bits per second from the first to the last answer of a train; the bottleneck is never idle."""
    times = train[when].drop_nulls().cast(pl.Float64).to_numpy()
    if len(times) < 2 or times.max() <= times.min():
        return None
    return float((len(times) - 1) * frame_bytes * 8e9 / (times.max() - times.min()))


def without_trains(run: Run, told: Told) -> Run:
    """Return the run without its trains: they overload the path on purpose, and their departure times are
    irrelevant."""
    kept = ~pl.col("block").is_in([block for block, entry in told.items() if entry["factors"]["what"] == "rate"])
    return replace(run, blocks=run.blocks.filter(kept), probes=run.probes.filter(kept))


def transfer(seen: Seen, entry: dict[str, Any], bases: Mapping[Key, Baseline]) -> Done | None:
    """Return the figures of a transfer; None if it has no baseline, or a connection has fewer than two readings."""
    base, block, connections = bases.get(key_of(entry)), int(entry["block"]), entry.get("connections") or ()
    if base is None or not connections or block not in seen.readings:
        return None
    local = {str(one["local"]) for one in connections}
    own = of_flows(seen.readings[block], local).sort("read_after_ns")
    span = working(seen.run, connections)
    inside = own.filter(span.holds("read_after_ns"))
    flows = [flow for one in inside.partition_by("local") if (flow := changes(one)) is not None]
    if len(flows) < len(connections):
        return None
    segment = float(own["mss_bytes"].drop_nulls()[-1])
    frame_bytes = frame_bytes_of(inside.row(-1, named=True)) + seen.overhead_bytes.get(block, 0.0)
    achievable = base.rate_bps * segment / frame_bytes
    window = window_of(inside) or float(entry.get("window_bytes") or 0) * len(connections)
    values = {"throughput": sum(flow.goodput_bps for flow in flows), "window_bytes": window}
    values["predicted"] = min(achievable, 8e9 * window / base.rtt_ns)
    values["throughput_ratio"] = values["throughput"] / values["predicted"]
    values |= metrics(connections, own, achievable) | limited(inside)
    if (probes := seen.probes.get(block)) is not None:
        during = probes.filter(span.holds("departure_ns"))["rtt"].drop_nulls().cast(pl.Float64).to_numpy()
        values |= {"buffer_delay": (float(during.mean()) - base.rtt_ns) / base.rtt_ns} if len(during) else {}
    return Done(block, str(entry["device"]), int(entry["cell"]), dict(entry["factors"]), values)


def working(run: Run, connections: Sequence[dict[str, Any]]) -> Span:
    """Return the span of a transfer after its start-up."""
    asked = run.plan.get("windows", {})
    start_up, lasts = (float(nanoseconds(asked.get(name, "0s")) or 0) for name in ("start_up", "duration"))
    begun = max(float(one["started_ns"]) for one in connections) + start_up
    return Span(begun, begun + lasts)


def window_of(readings: pl.DataFrame) -> float | None:
    """Return the window offered by the receivers, as the sum of the connections' means; None where it is unknown."""
    each = readings.drop_nulls("snd_wnd_bytes").group_by("local").agg(pl.col("snd_wnd_bytes").mean())
    return float(each["snd_wnd_bytes"].sum()) if each.height == readings["local"].n_unique() else None


def limited(readings: pl.DataFrame) -> dict[str, float]:
    """Return the share of time in which the receivers' windows limited the senders, according to their kernel."""
    each = readings.drop_nulls("receiver_limited_us").group_by("local").agg(
        (pl.col("receiver_limited_us").last() - pl.col("receiver_limited_us").first()).alias("limited"),
        ((pl.col("read_after_ns").last() - pl.col("read_after_ns").first()) / 1000).alias("span"),
    )  # fmt: skip
    return {"window_limited": float((each["limited"] / each["span"]).to_numpy().mean())} if each.height else {}


def metrics(connections: Sequence[dict[str, Any]], readings: pl.DataFrame, achievable_bps: float) -> dict[str, float]:
    """Return transfer time ratio and efficiency of a whole transfer, including its start-up (RFC 6349)."""
    began, ended = min(one["started_ns"] for one in connections), max(one["ended_ns"] for one in connections)
    moved = sum(int(one["moved_bytes"]) for one in connections)
    last = readings.group_by("local").agg(pl.col("sent_bytes", "retransmitted_bytes").last()).drop_nulls()
    found = {"transfer_time_ratio": (ended - began) / (8e9 * moved / achievable_bps)} if moved else {}
    if last.height == len(connections) and (sent := float(last["sent_bytes"].sum())):
        found["efficiency"] = (sent - float(last["retransmitted_bytes"].sum())) / sent
    return found


def baseline_rows(run: Run, bases: Mapping[Key, Baseline]) -> Iterator[Row]:
    """Yield the rows of each path's baseline."""
    paths: dict[tuple[str, str], list[Baseline]] = defaultdict(list)
    for (device, pipe, _, _), base in bases.items():
        paths[device, pipe].append(base)
    for (device, pipe), own in paths.items():
        blocks = np.array([one.block for one in own], dtype=np.int64)
        for quantity, values in (
            ("baseline_rtt", [one.rtt_ns for one in own]),
            ("bottleneck_rate", [one.rate_bps for one in own]),
            ("bandwidth_delay_product", [one.product_bytes for one in own]),
        ):
            yield row_of(run, (device, own[0].cell, pipe), quantity, (np.array(values), blocks), None)


def transfer_rows(run: Run, several: Sequence[Done]) -> Iterator[Row]:
    """Yield the rows of every window over each path."""
    places: dict[tuple[int, str], list[Done]] = defaultdict(list)
    for one in several:
        places[one.cell, one.device].append(one)
    congestion = str(run.plan.get("windows", {}).get("congestion", ""))
    for (cell, device), own in sorted(places.items()):
        first = own[0].factors
        setting = WindowSetting(int(first["connections"]), "up", congestion, float(first["window"]))
        blocks = np.array([one.block for one in own], dtype=np.int64)
        for quantity in UNITS:
            values = np.array([one.values.get(quantity, np.nan) for one in own])
            if not np.isnan(values).all():
                yield row_of(run, (device, cell, str(first["pipe"])), quantity, (values, blocks), setting)


def row_of(
    run: Run,
    place: tuple[str, int, str],
    quantity: str,
    of: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    setting: WindowSetting | None,
) -> Row:
    """Return the row of one figure: the mean over trials."""
    device, cell, pipe = place
    found = figure_of(of[0], run.sessions_of(of[1]))
    return Row(
        device, quantity, "mean", found.mean, UNITS[quantity], factors=replace(run.cells[cell], pipe=pipe or None),
        cell=cell, probes=len(of[0]), clock="TAI", source="" if quantity in OF_PROBES else "user", setting=setting,
        sessions=found.sessions,
    )  # fmt: skip


def unfilled(bases: Mapping[Key, Baseline]) -> Iterator[Finding]:
    """Yield a finding if trains returned at their sending rate: the path's rate may be higher than the train's."""
    found: dict[Place, float] = {}
    for (device, *_), base in bases.items():
        if base.kept >= KEPT:
            found[Place(device, None)] = max(found.get(Place(device, None), 0.0), base.kept)
    if found:
        places, kept = worst_first(found)
        said = f"a train of full packets came back at {percent(kept)} of its rate: the bottleneck's may be higher"
        yield Finding("path_not_filled", said, kept, places)


def headline(rows: Sequence[Row]) -> Row | None:
    """Return the throughput of the fewest connections with the window nearest to the product."""
    known = [(row, row.setting) for row in rows if row.quantity == "throughput"]
    several = [(row, of) for row, of in known if isinstance(of, WindowSetting)]
    return min(several, key=lambda one: (one[1].flows, abs(np.log(one[1].window))), default=(None, None))[0]


def sentence(rows: Sequence[Row], head: Row | None) -> str:
    """Return the baseline of the headline's path, its throughput, and the three metrics of its window."""
    if head is None:
        return "No transfer was measured with a baseline"
    of = head.setting
    assert isinstance(of, WindowSetting)
    base = {row.quantity: row.value.estimate for row in rows
            if row.setting is None and (row.device, row.factors.pipe) == (head.device, head.factors.pipe)}  # fmt: skip
    own = {row.quantity: row.value for row in rows if row.setting == of and row.device == head.device
           and row.cell == head.cell}  # fmt: skip
    told = (
        f"Over {head.device}, whose bandwidth-delay product (BDP) is "
        f"{fixed(base['bandwidth_delay_product'] / 1e3, 1)} kB ({fixed(base['bottleneck_rate'] / 1e6, 1)} Mbit/s times "
        f"{fixed(base['baseline_rtt'] / 1e6, 1)} ms), {counted(of.flows, 'connection')} with a window of "
        f"{of.window:g} BDP {'get' if of.flows > 1 else 'gets'} "
        f"{fixed(head.value.estimate / 1e6, 1)} Mbit/s{ends(head.value)}{over_beds(head)}"
    )
    more = [f"{said} {shown(own[name].estimate)}" for name, said, shown in METRICS if name in own]
    return f"{told}; {', '.join(more)}" if more else told


METRICS = (
    ("transfer_time_ratio", "transfer time ratio", lambda value: fixed(value, 2)),
    ("efficiency", "TCP efficiency", percent),
    ("buffer_delay", "buffer delay", percent),
)


def ends(value: Interval) -> str:
    """Return the interval of a rate."""
    if value.low is None or value.high is None:
        return ""
    return f" (95 % CI {fixed(value.low / 1e6, 1)} to {fixed(value.high / 1e6, 1)})"


def tested(name: str, rows: Sequence[Row]) -> list[Outcome]:
    """Test for each device and all windows whether throughput is the lesser of window over RTT and rate, to
    within 5 %."""
    if name != HYPOTHESIS:
        return [inconclusive(name, "not tested: no such hypothesis is known")]
    devices: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.quantity == "throughput_ratio":
            devices[row.device].append(row)
    if not devices:
        return [inconclusive(name, "not tested: no transfer was measured with a baseline")]
    return [judged(name, device, own) for device, own in devices.items()]


def judged(name: str, device: str, own: Sequence[Row]) -> Outcome:
    """Return the outcome for one device, decided by the window that rejects it, or the one that deviates most."""
    each = [(against(row.value, 1.0, MARGIN), row) for row in own]
    deciding = [one for one in each if one[0] == "rejected"] or [one for one in each if one[0] != "supported"]
    outcome, row = max(deciding or each, key=lambda one: abs(one[1].value.estimate - 1))
    of = row.setting
    assert isinstance(of, WindowSetting)
    alike = sum(one[0] == outcome for one in each)
    said = (
        f"{counted(of.flows, 'connection')} with a window of {of.window:g} of the product: throughput is "
        f"{fixed(row.value.estimate, 3)} times the lesser of window over baseline RTT and rate less headers; "
        f"{alike} of {counted(len(each), 'cell')} {'are' if alike > 1 else 'is'} {outcome}, this deviates most"
    )
    return Outcome(name, outcome, said, device, margin=MARGIN, shown=row.value, unit="1", expected=1.0)
