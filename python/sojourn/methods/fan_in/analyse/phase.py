"""The phase between two regular streams: how the delay of the first depends on the time since the second's departure.

The phase of a frame is its actual departure minus the last departure of the other stream before it, both from the
sender's records; a frame that leaves before the other stream's first, or more than its interval after its last, has
none. Delays are averaged over equal bins of the phase, from 0 to the other stream's interval, in each round. A round
counts if every bin has a frame, so that streams of equal intervals, whose phase is constant, have no rows.

On a path with a rated link that both streams share, a frame waits for the rest of the other's: with growing phase its
delay falls from the frame's time on that link to zero (phase-saw-tooth). ethernet-tests-2000 (section 4.1.4, figure
4.8) expects that the phase matters, and did not record it.

Between two clocks a difference of delays within a trial has at most the errors of both: the phase grows with the time
of the trial, so that an error of the clocks' rates does not cancel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.host_clock import IMPRECISE
from sojourn.analysis.hypotheses import Outcome, inconclusive
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.rows import Row
from sojourn.analysis.samples import Sample, shared
from sojourn.analysis.sessions import beds_in, middle
from sojourn.analysis.streams import L1_OVERHEAD, in_order, worst_of
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import micro, percent
from sojourn.statistics.line import Deviations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run
    from sojourn.statistics.interval import Interval

BINS = 20
MARGIN = 0.05
LEVEL = 1 - 0.05 / BINS
BOUND, ERROR95 = "clock_bound_ns", "clock_error95_ns"
DELAY_BY_PHASE = Sample(
    "A bin of the phase: the time of a frame's departure since the other sender's last.",
    {
        **shared("device cell"),
        "phase": (pl.Float64, "The middle of the bin, as a share of the interval."),
        "phase_ns": (pl.Float64, "The same as a time."),
        "delay_ns": (pl.Float64, "The mean delay one way."),
        **shared("ci_low_ns ci_high_ns"),
        "frames": (pl.Int64, "Frames in the bin."),
        "expected_ns": (
            pl.Float64,
            "The expected wait on a rated link plus the mean delay of frames that do not wait; null without one.",
        ),
    },
    with_factors=True,
)


def _one_clock() -> NDArray[np.float64]:
    return np.zeros((1, BINS))


@dataclass(frozen=True, slots=True)
class Phases:
    """The frames of one path and cell that have a phase, and their mean delays by round and bin."""

    device: str
    cell: int
    frames: pl.DataFrame
    """unit (the round), block, session, departure_ns, phase_ns, bin, delay_ns, clock_bound_ns, clock_error95_ns."""
    sessions: NDArray[np.int64]
    """The session of each round."""
    delays: NDArray[np.float64]
    """Mean delays by round (rows) and bin (columns)."""
    interval_ns: float
    """The interval of the other stream."""
    bounds: NDArray[np.float64] = field(default_factory=_one_clock)
    """The maximum error of the clocks, as `delays`."""
    errors95: NDArray[np.float64] = field(default_factory=_one_clock)
    """Their 95 % error, as `delays`."""

    def means(self, values: pl.Series) -> NDArray[np.float64]:
        """Return means by round and bin of a number of each frame in `frames`."""
        return _table(self.frames.with_columns(values.alias("value")))

    def over(self, values: NDArray[np.float64], level: float = 0.95) -> Interval:
        """Return the location of a number of each round."""
        return middle(values, self.sessions, level)

    def deviations(self, table: NDArray[np.float64]) -> Deviations:
        """Return the deviation of each bin from the mean of all, with simultaneous intervals."""
        apart = table - table.mean(axis=1, keepdims=True)
        errors = (self.errors95 + self.errors95.mean(axis=1, keepdims=True)).max(axis=0)
        each = (self.over(apart[:, place], LEVEL) for place in range(BINS))
        return Deviations([_widened(one, error) for one, error in zip(each, errors.tolist(), strict=True)], None)

    def behind(self) -> NDArray[np.float64]:
        """Return for each round the delay right behind the other's frames minus that from half an interval later on.

        The bins are fixed: with the slowest minus the fastest bin, noise alone would give a positive difference.
        """
        return np.asarray(self.delays[:, 0] - self.delays[:, BINS // 2 :].mean(axis=1), dtype=np.float64)

    def error_behind(self, errors: NDArray[np.float64]) -> float:
        """Return the largest error of `behind` in any round, from those of the delays."""
        return float((errors[:, 0] + errors[:, BINS // 2 :].mean(axis=1)).max())


def _widened(value: Interval, error95: float) -> Interval:
    """Return the interval with the clocks' error; with one clock as it is, to the last digit."""
    return value.widened(error95) if error95 else value


def phases_of(run: Run, packets: pl.DataFrame) -> list[Phases]:
    """Return the phases of every path and cell with two regular senders, in the order of the tables."""
    cells = [cell for cell, one in run.cells.items() if one.senders == 2 and one.schedule == "regular"]
    here = packets.filter(pl.col("cell").is_in(cells) & (pl.col("port") == 0)).drop_nulls("delay_ns")
    if here.is_empty():
        return []
    sent = run.sends.filter(pl.col("block").is_in(here["block"].unique().to_list())).drop_nulls("departure_ns")
    sends = sent.partition_by("block", as_dict=True)
    placed = [found for (block,), rows in here.partition_by("block", as_dict=True).items()
              if (found := _of_trial(rows, sends.get((block,)))) is not None]  # fmt: skip
    if not placed:
        return []
    groups = pl.concat(placed).partition_by("device", "cell", as_dict=True)
    order = in_order(run, [(str(device), int(str(cell))) for device, cell in groups])
    return [one for at in order if (one := _of_cell(*at, groups[at])) is not None]


def _of_trial(rows: pl.DataFrame, sent: pl.DataFrame | None) -> pl.DataFrame | None:
    """Return the first sender's frames of a trial with their phases; None where the other sent fewer than two."""
    first, last = rows["flow"].min(), None if sent is None else sent["flow"].max()
    if sent is None or first == last:
        return None
    other = np.sort(sent.filter(pl.col("flow") == last)["departure_ns"].to_numpy())
    if len(other) < 2:
        return None
    mine = rows.filter(pl.col("flow") == first)
    departed = mine["departure_ns"].to_numpy()
    place = np.searchsorted(other, departed, side="right") - 1
    interval = float(np.median(np.diff(other)))
    phase = np.where(place >= 0, departed - other[np.maximum(place, 0)], -1).astype(np.float64)
    return mine.with_columns(
        phase_ns=phase, other_ns=pl.lit(interval), bin=np.floor(phase / interval * BINS).astype(np.int64)
    ).filter(pl.col("bin").is_between(0, BINS - 1))


def _of_cell(device: str, cell: int, rows: pl.DataFrame) -> Phases | None:
    at = ("session", "round")
    full = rows.group_by(at).agg(pl.col("bin").n_unique()).filter(pl.col("bin") == BINS)
    units = full.select(at).sort(at).with_row_index("unit")
    frames = rows.join(units, on=at, how="inner")
    if frames.is_empty():
        return None
    delays, bounds, errors95 = (
        _table(frames.with_columns(value=pl.col(name))) for name in ("delay_ns", BOUND, ERROR95)
    )
    interval = float(np.median(frames["other_ns"].to_numpy()))
    sessions = units["session"].to_numpy().astype(np.int64)
    return Phases(device, cell, frames, sessions, delays, interval, bounds, errors95)


def _table(frames: pl.DataFrame) -> NDArray[np.float64]:
    means = frames.group_by("unit", "bin").agg(pl.col("value").mean()).sort("unit", "bin")
    return means["value"].to_numpy().astype(np.float64).reshape(-1, BINS)


def phase_rows(run: Run, several: list[Phases]) -> list[Row]:
    """Return the mean delay in each bin, the cost of being right behind, and the height expected from a rated link."""
    rows = []
    for one in several:
        bins = {f"at_{centre:.3f}": one.over(one.delays[:, place]) for place, centre in enumerate(centres())}
        for name, value in bins.items():
            rows.append(_row(run, one, "delay_by_phase", name, value))
            rows[-1].between_clocks(*(worst_of(one.frames, name) for name in (BOUND, ERROR95)))
        behind = _row(run, one, "phase_effect", "behind", one.over(one.behind()))
        rows.append(_with_errors(behind, one, (one.error_behind(one.bounds), one.error_behind(one.errors95))))
        if (service := service_ns(run, one)) is not None:
            fitted = _row(run, one, "phase_height", "fit", height(one, service))
            bound, error95 = (error_of_height(one, service, name) for name in (BOUND, ERROR95))
            rows.append(_with_errors(fitted, one, (bound, error95)))
    return rows


def _with_errors(row: Row, one: Phases, errors: tuple[float, float]) -> Row:
    """Set the clocks' errors of a difference of delays, where the ends have two clocks."""
    if one.bounds.any():
        row.between_clocks(*errors)
    return row


def centres() -> list[float]:
    """Return the middles of the bins, as shares of the interval."""
    return [(place + 0.5) / BINS for place in range(BINS)]


def _row(run: Run, one: Phases, quantity: str, statistic: str, value: Interval) -> Row:
    row = Row(one.device, quantity, statistic, value, "ns", None, run.cells[one.cell], one.cell, one.frames.height)
    row.port, row.sessions = 0, beds_in(one.sessions)
    return row


def findings(run: Run, several: list[Phases]) -> Iterator[Finding]:
    """Return a finding for delays that depend on the phase: a bin deviates significantly from the mean of all bins."""
    found = {}
    for one in several:
        apart = [deviation for deviation in one.deviations(one.delays).each if deviation.excludes(0)]
        if apart:
            found[Place(one.device, one.cell)] = float(np.ptp(one.delays.mean(axis=0)))
    if found:
        places, worst = worst_first(found)
        sentence = (
            f"the delay of one regular stream depends on its phase to the other: bins of the phase differ by up to "
            f"{micro(worst)}"
        )
        yield Finding("phase_dependent", sentence, worst, places)
    yield from _imprecise(several)


def _imprecise(several: list[Phases]) -> Iterator[Finding]:
    """Yield a finding for clocks that are not known well over the time of a trial, in which the phase is walked."""
    found, shares = {}, {}
    for one in several:
        lasts = one.frames.group_by("block").agg(pl.col("departure_ns").max() - pl.col("departure_ns").min())
        shortest, worst = lasts["departure_ns"].to_numpy().min(), worst_of(one.frames, BOUND) or 0.0
        if worst > IMPRECISE * shortest:
            place = Place(one.device, one.cell)
            found[place], shares[place] = worst, worst / float(shortest)
    if found:
        places, worst = worst_first(found)
        sentence = (
            f"times of host B may be wrong by {micro(worst)} on host A's clock, {percent(shares[places[0]])} of a "
            "trial, in which the phase takes every value"
        )
        yield Finding("clock_imprecise", sentence, worst, places)


def service_ns(run: Run, one: Phases) -> float | None:
    """Return a frame's time on the slowest rated link that both streams share; None where none is known."""
    cables = cables_of(run).get(one.device)
    shared = [] if cables is None else [rate for rate in cables.rates[1:] if rate is not None]
    size = run.cells[one.cell].frame_bytes
    return (size + L1_OVERHEAD) * 8e9 / min(shared) if shared and size else None


def _waits(one: Phases, service: float) -> pl.Series:
    """Return each frame's expected wait for the rest of the other's, by its phase."""
    return one.frames.select((service - pl.col("phase_ns")).clip(lower_bound=0.0)).to_series()


def height(one: Phases, service: float) -> Interval:
    """Return the fitted height: each round's slope of delays over the expected waits, times the service time."""
    frames = one.frames.with_columns(wait=_waits(one, service))
    centred = frames.select(
        "unit", *((pl.col(name) - pl.col(name).mean().over("unit")).alias(name) for name in ("wait", "delay_ns"))
    )
    sums = centred.group_by("unit").agg(
        (pl.col("wait") * pl.col("delay_ns")).sum().alias("both"), pl.col("wait").pow(2).sum().alias("square")
    )
    slopes = sums.sort("unit").select(pl.col("both") / pl.col("square")).to_series().to_numpy()
    return one.over(service * slopes)


def error_of_height(one: Phases, service: float, name: str) -> float:
    """Return the largest error of `height` in any round: each frame's error has the weight of its delay."""
    frames = one.frames.with_columns(wait=_waits(one, service))
    off = (pl.col("wait") - pl.col("wait").mean()).abs()
    each = frames.group_by("unit").agg(error=(off * pl.col(name)).sum() / off.pow(2).sum())
    return service * float(each["error"].to_numpy().max())


def evaluate(name: str, run: Run, several: list[Phases]) -> list[Outcome]:
    """Return the outcomes for every path with a rated link that both streams share."""
    found = [_evaluate(name, one, service) for one in several if (service := service_ns(run, one)) is not None]
    return found or [inconclusive(name, "no phase between two streams over a shared link with a rate was measured")]


def _evaluate(name: str, one: Phases, service: float) -> Outcome:
    shown, margin = _widened(height(one, service), error_of_height(one, service, ERROR95)), MARGIN * service
    left = one.deviations(one.means(one.frames["delay_ns"] - _waits(one, service)))
    outcome = "inconclusive"
    known = "" if shown.low is None or shown.high is None else f" (95 % CI {micro(shown.low)} to {micro(shown.high)})"
    said = (
        f"over {amid(one.device)} the delay falls with the phase in the shape of a saw tooth, by "
        f"{micro(shown.estimate)}{known}; a frame takes {micro(service)} on the link"
    )
    if 2 * service >= one.interval_ns:
        said += "; not tested: the frames of both streams are so close that one waits for more than one other"
    elif left.lie_within(margin):
        outcome = "supported"
        said += f"; no bin of the phase deviates by more than {micro(margin)} ({percent(MARGIN)})"
    elif beyond := left.beyond(margin):
        outcome = "rejected"
        said += f"; a bin of the phase deviates by {micro(beyond.estimate)}, beyond {micro(margin)} ({percent(MARGIN)})"
    else:
        said += f"; deviations of the bins are not known to within {micro(margin)} ({percent(MARGIN)})"
    return Outcome(name, outcome, said, one.device, None, left, margin, shown, "ns", service)


def samples(run: Run, several: list[Phases]) -> pl.DataFrame:
    """Return the bins of all paths and cells."""
    rows = [row for one in several for row in _points(run, one)]
    return pl.DataFrame(rows, schema=DELAY_BY_PHASE.own, orient="row")


def _points(run: Run, one: Phases) -> Iterator[tuple[object, ...]]:
    counts = dict(one.frames.group_by("bin").len().iter_rows())
    service, expected = service_ns(run, one), None
    if service is not None:
        waits = one.means(_waits(one, service))
        expected = waits.mean(axis=0) + (one.delays - waits).mean()
    for place, centre in enumerate(centres()):
        value = one.over(one.delays[:, place])
        yield (
            one.device, one.cell, centre, centre * one.interval_ns, value.estimate, value.low, value.high,
            counts[place], None if expected is None else float(expected[place]),
        )  # fmt: skip


def sentence(rows: list[Row], device: str) -> str:
    """Return how much the delay depends on the phase; empty where no phase was measured."""
    found = [row for row in rows if (row.device, row.quantity) == (device, "phase_effect")]
    if not found:
        return ""
    value = max(found, key=lambda row: row.value.estimate).value
    frame = f"Over {amid(device)} a frame of a regular stream that leaves just after a frame of another stream"
    than = "than a frame that leaves half an interval or more after it"
    if value.low is None or value.high is None:
        return f"{frame} takes {micro(value.estimate)} longer {than} (too few rounds for an interval)"
    known = f"95 % CI {micro(value.low)} to {micro(value.high)}"
    if not value.excludes(0):
        return f"{frame} does not take significantly longer {than} ({known})"
    return f"{frame} takes {micro(value.estimate)} ({known}) longer {than}"
