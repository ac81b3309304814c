"""The ratio of throughput with a setting to throughput without it in each cell, with skipped packets and CPU time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from sojourn.analysis.samples import Columns, Sample, shared
from sojourn.analysis.sessions import LEAST_PAIRS, NO_SESSION, beds_counted, beds_in, beside, figure_of, middle
from sojourn.methods.tcp_cost.analyse.seen import CELL, TRAFFIC
from sojourn.records.results import SETTINGS
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from sojourn.methods.tcp_cost.analyse.seen import Seen

PUBLISHED_SECONDS = 60.0
"""The duration of the published runs in which skipped packets were counted."""


def with_ends(**meanings: str) -> Columns:
    """Return the columns of intervals, by the meanings of the figures."""
    ends = {"": "", "_low": ": the lower end of its interval", "_high": ": the upper end of its interval"}
    return {
        f"{name}{end}": (pl.Float64, f"{doc}{said}.") for name, doc in meanings.items() for end, said in ends.items()
    }


SETTING = (pl.String, "on (the log), off (the control), disabled, empty or placebo.")
RATIOS = Sample(
    "A setting with one kind of traffic, from pairs of slices with it and without it.",
    {
        **shared("path flows where"),
        "mode": SETTING,
        **shared("packets_per_log"),
        "pairs": (pl.Int64, "Pairs of slices."),
        **with_ends(
            ratio="The throughput with the setting over that without it",
            bps="The throughput with it",
            off_bps="The throughput without it",
            cpu_ratio="The processors' time per bit with it over that without it",
        ),
        "cpu_s_per_gbit": (pl.Float64, "The processors' time per Gbit with the setting, in s."),
        "logger_cores": (pl.Float64, "The cores that the log's own process took."),
        "logged": (pl.Int64, "Packets logged."),
        "skipped": (pl.Int64, "Packets skipped."),
        "packets": (pl.Int64, "Packets in and out."),
        "skipped_per_mbps": (pl.Float64, "Packets skipped a minute, for each Mbit/s."),
        "logged_per_s": (pl.Float64, "Packets logged a second."),
    },
)
TRAFFICS = Sample(
    "A kind of traffic without the log.",
    {
        **shared("path flows"),
        "slices": (pl.Int64, "Slices without the log."),
        **with_ends(off_bps="Their throughput", a_a="The ratio of two of them, the A/A control"),
        "resolved": (pl.Float64, "The smallest effect that would be detected: how far that interval reaches from 1."),
        "retransmitted_per_s": (pl.Float64, "Segments retransmitted a second."),
        "frame_bytes": (pl.Float64, "The mean bytes of a frame."),
    },
)
_IN_RECORDS: Columns = {
    **shared("path flows where packets_per_log"),
    **{name: (pl.Int32, SETTINGS[name][1]) for name in ("flows", "packets_per_log")},
    "mode": (pl.String, "What was in force in the slice: on, off, disabled, empty, placebo."),
    "setting": SETTING,
}
SKIPS = Sample(
    "A reason to skip packets, in a cell that has any.",
    {
        **{name: _IN_RECORDS[name] for name in CELL},
        "reason": (pl.String, "The reason."),
        "packets": (pl.Int64, "Packets skipped for it."),
    },
)
SLICES = Sample(
    "A slice.",
    {
        **{name: _IN_RECORDS[name] for name in (*TRAFFIC, "where", "mode", "packets_per_log")},
        "elapsed_s": (pl.Float64, "Seconds since the first slice began."),
        "ratio": (pl.Float64, "Its throughput over the median of its traffic without the log."),
    },
)


class Bed(NamedTuple):
    """The pairs of one bed: the mean of their logarithms, its standard error from their scatter, and their number."""

    mean: float
    error: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The results of the pairs of one setting with one traffic."""

    path: str
    flows: int
    where: str
    mode: str
    packets_per_log: int | None
    pairs: int
    ratio: Interval
    bps: Interval
    off_bps: Interval
    cpu_ratio: Interval
    cpu_s_per_gbit: float
    logger_cores: float
    logged: int | None
    skipped: int | None
    packets: int | None
    skipped_per_mbps: float | None
    logged_per_s: float | None
    sessions: int | None = None
    """The number of beds; None where the run has one."""
    by_session: Mapping[int, Bed] = field(default_factory=dict)
    """The logarithms of the ratio on each bed that has enough pairs to be included."""
    beside: Sequence[tuple[str, Interval]] = ()
    """The ratio within a bed, in another run, and the relative difference between beds."""

    @property
    def is_control(self) -> bool:
        """Whether this is the A/A control: both slices of a pair are without the log."""
        return self.mode == "off"

    @property
    def traffic(self) -> tuple[str, int]:
        """Path and flows."""
        return self.path, self.flows


@dataclass(frozen=True, slots=True)
class Traffic:
    """The throughput without the log, and the A/A control."""

    path: str
    flows: int
    slices: int
    off_bps: Interval
    a_a: Interval | None
    resolved: float | None
    retransmitted_per_s: float
    frame_bytes: float
    sessions: int | None = None


def cells_of(seen: Seen) -> list[Cell]:
    """Return all cells, ordered by traffic, the control first."""
    several = seen.pairs.partition_by(CELL, maintain_order=True)
    return sorted((_cell(rows) for rows in several), key=_rank)


def traffic_of(seen: Seen) -> list[Traffic]:
    """Return every kind of traffic."""
    controls = {cell.traffic: cell for cell in cells_of(seen) if cell.is_control}
    off = seen.slices.filter(pl.col("mode") == "off").partition_by(TRAFFIC, maintain_order=True)
    return sorted((_traffic(rows, controls) for rows in off), key=lambda one: (one.path, one.flows))


def pooled(pairs: pl.DataFrame, level: float = 0.95) -> Interval:
    """Return the ratio of all these pairs together."""
    return _ratio((pairs["bps"] / pairs["off_bps"]).to_numpy(), _sessions(pairs), level)


def resolved(ratio: Interval) -> float | None:
    """Return the smallest effect that would be detected: how far the interval of the A/A control extends from 1."""
    return None if ratio.low is None or ratio.high is None else max(abs(ratio.low - 1), abs(ratio.high - 1))


def _cell(rows: pl.DataFrame) -> Cell:
    first = rows.row(0, named=True)
    counted = rows.drop_nulls("in_force_s")
    bps, session = _middle(rows, "bps"), _sessions(rows)
    logs, kept = _logs((rows["bps"] / rows["off_bps"]).to_numpy(), session)
    bits, off_bits = _reals(rows["bps"] * rows["seconds"]), _reals(rows["off_bps"] * rows["off_seconds"])
    per_bit = _reals(rows["cpu_s"]) / bits * off_bits / _reals(rows["off_cpu_s"])
    in_force, skipped, logged = (_sum(counted[name]) for name in ("in_force_s", "skipped", "logged"))
    mbps = bps.estimate / 1e6
    told = counted.height > 0
    return Cell(
        path=first["path"],
        flows=first["flows"],
        where=first["where"],
        mode=first["setting"],
        packets_per_log=first["packets_per_log"],
        pairs=rows.height,
        ratio=pooled(rows),
        bps=bps,
        off_bps=_middle(rows, "off_bps"),
        cpu_ratio=_ratio(per_bit, session),
        cpu_s_per_gbit=_sum(rows["cpu_s"]) / float(bits.sum()) * 1e9,
        logger_cores=_sum(rows["logger_cpu_s"]) / _sum(rows["seconds"]),
        logged=int(logged) if told else None,
        skipped=int(skipped) if told else None,
        packets=int(_sum(counted["packets_in"]) + _sum(counted["packets_out"])) if told else None,
        skipped_per_mbps=skipped / in_force * PUBLISHED_SECONDS / mbps if told else None,
        logged_per_s=logged / in_force if told else None,
        sessions=beds_counted(kept),
        by_session=dict(_by_session(logs, kept)),
        beside=tuple(_beside(logs, kept)),
    )


def _by_session(logs: NDArray[np.float64], session: NDArray[np.int64]) -> Iterator[tuple[int, Bed]]:
    for one in np.unique(session[session != NO_SESSION]).tolist():
        here = logs[session == one]
        if len(here) >= LEAST_PAIRS:
            yield one, Bed(float(here.mean()), float(here.std(ddof=1)) / len(here) ** 0.5, len(here))


def _beside(logs: NDArray[np.float64], session: NDArray[np.int64]) -> Iterator[tuple[str, Interval]]:
    if beds_in(session) is not None:
        for _, statistic, value, _ in beside("throughput_ratio", figure_of(logs, session), "1"):
            yield statistic, value if statistic == "between_beds" else _exponential(value)


def _traffic(rows: pl.DataFrame, controls: Mapping[tuple[str, int], Cell]) -> Traffic:
    first = rows.row(0, named=True)
    control = controls.get((first["path"], first["flows"]))
    a_a = None if control is None else control.ratio
    return Traffic(
        path=first["path"],
        flows=first["flows"],
        slices=rows.height,
        off_bps=_middle(rows, "bps"),
        a_a=a_a,
        resolved=None if a_a is None else resolved(a_a),
        retransmitted_per_s=_sum(rows["retransmitted"]) / _sum(rows["seconds"]),
        frame_bytes=_sum(rows["received_bytes"]) / max(1.0, _sum(rows["frames"])),
        sessions=beds_counted(_sessions(rows)),
    )


def _ratio(values: NDArray[np.float64], session: NDArray[np.int64], level: float = 0.95) -> Interval:
    """Return the typical ratio, estimated from logarithms, in which half and twice are equally far from 1."""
    return _exponential(middle(*_logs(values, session), level))


def _logs(values: NDArray[np.float64], session: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the logarithms of the positive finite ratios, and their sessions."""
    good = np.isfinite(values) & (values > 0)
    return np.log(values[good]), session[good]


def _exponential(logs: Interval) -> Interval:
    low, high = (None if one is None else float(np.exp(one)) for one in (logs.low, logs.high))
    return Interval(float(np.exp(logs.estimate)), low, high, logs.level, logs.n)


def _sum(values: pl.Series) -> float:
    return float(values.sum())


def _reals(values: pl.Series) -> NDArray[np.float64]:
    return values.to_numpy().astype(np.float64)


def _middle(rows: pl.DataFrame, column: str) -> Interval:
    return middle(rows[column].to_numpy(), _sessions(rows))


def _sessions(rows: pl.DataFrame) -> NDArray[np.int64]:
    return rows["session"].to_numpy().astype(np.int64)


def _rank(cell: Cell) -> tuple[Any, ...]:
    modes = ("off", "disabled", "empty", "placebo", "on")
    wheres = ("sender", "receiver", "both")
    return (*cell.traffic, wheres.index(cell.where), modes.index(cell.mode), cell.packets_per_log or 0)


def skips(seen: Seen) -> pl.DataFrame:
    """Return skipped packets by reason and cell, where there are any."""
    names = [one for one in seen.slices.columns if one.startswith("skipped_")]
    by = seen.slices.filter(pl.col("mode") == "on").group_by(CELL, maintain_order=True).agg(pl.col(names).sum())
    long = by.unpivot(on=names, index=list(CELL), variable_name="reason", value_name="packets")
    named = pl.col("reason").str.strip_prefix("skipped_").str.replace_all("_", " ")
    return SKIPS.of(long.filter(pl.col("packets") > 0).with_columns(named))


def over_time(seen: Seen) -> pl.DataFrame:
    """Return every slice: its time, and its throughput over the median of its traffic without the log."""
    if seen.slices.is_empty():
        return pl.DataFrame(schema=SLICES.own)
    typical = seen.slices.filter(pl.col("mode") == "off").group_by(TRAFFIC).agg(typical=pl.col("bps").median())
    return (
        seen.slices.join(typical, on=TRAFFIC)
        .sort("started_ns")
        .with_columns(
            elapsed_s=(pl.col("started_ns") - pl.col("started_ns").min()) / 1e9,
            ratio=pl.col("bps") / pl.col("typical"),
        )
        .pipe(SLICES.of)
    )


INTERVALS = ("ratio", "bps", "off_bps", "cpu_ratio", "a_a", "ns")


def frame(several: Iterable[Any], sample: Sample) -> pl.DataFrame:
    """Return dataclasses as a table; an interval has three columns."""
    rows = [_flat(asdict(one)) for one in several]
    return pl.DataFrame([{name: row.get(name) for name in sample.own} for row in rows], schema=sample.own)


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if name not in INTERVALS:
            flat[name] = value
        elif value is not None:
            flat |= {name: value["estimate"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
    return flat
