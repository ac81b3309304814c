"""The link and its queue, configured against measured: departure times, rate, occupancy, fairness.

Departure times: a packet leaves at max(its arrival, the departure before it) + its bits / rate, whatever the order of
service; checked in the log to the nanosecond. Rate: of packets that follow each other without a pause, by the logged
actual departures and by the stream's arrivals, over each whole busy period and in windows of 1, 10 and 100 ms; a window
may be off by one packet, because packets are whole. Fairness: what classes get while all of them wait, against their
weights.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from sojourn.analysis.checks import Asked
from sojourn.analysis.sessions import beds_in, figure_of
from sojourn.analysis.streams import over_trials
from sojourn.records.shape import MOST_INT64
from sojourn.statistics.fairness import BOUNDS, all_backlogged, shortfalls
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.quantile import allowed
from sojourn.statistics.service import busy_rows, misses, rate_in_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.methods.emulator.analyse.pipe import Scheduler
    from sojourn.methods.emulator.analyse.seen import Seen

WINDOWS_NS = (1e6, 10e6, 100e6)
ROUNDING_NS = 1.5
"""Departures are whole nanoseconds; the remainder is carried."""

OVERLOADED = 1.02
"""A regular stream that offers this many times the rate keeps the link busy from its first packets on."""

PARTS = 7
"""A busy period is cut into this many parts, so that three trials give an interval."""

FCS_BYTES = 4
LEAST_BUSY = 50
COARSEST = 0.3
"""Windows in which one packet is more than this share of the traffic are too short to judge the rate."""


def asked(seen: Seen, limits: dict[str, float]) -> list[Asked]:
    """Return all checks of one pipe's link and queue."""
    if not seen.pipe.rate_bps:
        return []
    plain = [*_law(seen), *_rates(seen, limits)] if seen.pipe.is_plain_link else []
    return [*plain, *_queue(seen), *_fairness(seen)]


def served(seen: Seen) -> list[pl.DataFrame]:
    """Return the packets that a link served, in the order of departure, for each trial and dynamic pipe."""
    rows = seen.log.filter(pl.col("link_left_ns").is_not_null()).sort("block", "flow", "link_left_ns", "number")
    return rows.partition_by("block", "flow", maintain_order=True)


def _times(seen: Seen, rows: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    entered, left = (rows[name].to_numpy().astype(np.int64) for name in ("entered_ns", "link_left_ns"))
    return entered, left, seen.pipe.bits(rows["frame_bytes"].to_numpy().astype(np.int64))


def _law(seen: Seen) -> list[Asked]:
    """Check the departure time of every packet, computed from the packet before it."""
    rate = int(seen.pipe.rate_bps or 0)
    wrong = n = 0
    for rows in served(seen):
        found = misses(*_times(seen, rows), rate)
        wrong += int((np.abs(found) > ROUNDING_NS).sum())
        n += len(found)
    what = "departures from the link that are not at max(arrival, departure before) + bits / rate"
    return [Asked("link, departure times", "log", 0.0, "packets", what, exact=wrong, n=n)] if n else []


def busy(seen: Seen) -> list[pl.DataFrame]:
    """Return the served packets that left, in busy periods: those in which the link was never idle."""
    found = []
    for rows in served(seen):
        sent = rows.filter(pl.col("disposition") == "sent").drop_nulls("departure_ns")
        if sent.height == rows.height:
            entered, left, _ = _times(seen, sent)
            several = [part for part in busy_rows(entered, left) if part.stop - part.start >= LEAST_BUSY]
            found += [sent[part] for part in several]
    return found


class Busy(NamedTuple):
    """A busy period: times since its first packet, bits of each packet, and its session."""

    times: NDArray[np.float64]
    bits: NDArray[np.float64]
    session: int = 0


def departures(seen: Seen, stretches: list[pl.DataFrame]) -> list[Busy]:
    """Return times and bits of the actual departures of busy periods, where the delay behind the link is constant."""
    if seen.pipe.jitter is not None or seen.pipe.reorder:
        return []
    several = [
        Busy(_since(one["departure_ns"]), _times(seen, one)[2].astype(np.float64), _session_of(one))
        for one in stretches
    ]
    return [one for one in several if np.all(np.diff(one.times) >= 0)]


def _session_of(rows: pl.DataFrame) -> int:
    return int(rows["session"][0]) if "session" in rows.columns else 0


def arrivals(seen: Seen, stretches: list[pl.DataFrame]) -> list[Busy]:
    """Return the same by the stream's arrivals; without a log, for a regular stream that offered more than the rate."""
    if seen.pipe.jitter is not None or seen.pipe.reorder:
        return []
    if stretches:
        return [busy for one in stretches if (busy := _arrived(seen, one)) is not None]
    size = seen.trials["frame_bytes"].max()
    regular = (seen.trials["schedule"] == "regular").all()
    if not isinstance(size, int) or not seen.interval_ns or not regular:
        return []
    bits = float(seen.pipe.bits(np.array([size]))[0])
    if bits * 1e9 / seen.interval_ns < OVERLOADED * float(seen.pipe.rate_bps or 0):
        return []
    trials = seen.packets.sort("block", "arrival_ns").partition_by("block", maintain_order=True)
    several = [(_since(one["arrival_ns"])[one.height // 10 :], _session_of(one)) for one in trials]
    return [Busy(times, np.full(len(times), bits), at) for times, at in several if len(times) >= LEAST_BUSY]


def _arrived(seen: Seen, stretch: pl.DataFrame) -> Busy | None:
    """Return a busy period by the receiver's timestamps; None where some of its packets did not arrive."""
    own = stretch.select("block", pl.col("flow_of_stream").alias("flow"), "seq", "frame_bytes").drop_nulls()
    came = own.join(seen.packets.select("block", "flow", "seq", "arrival_ns"), on=["block", "flow", "seq"], how="inner")
    if came.height < stretch.height:
        return None
    rows = came.sort("arrival_ns")
    bits = seen.pipe.bits(rows["frame_bytes"].to_numpy().astype(np.int64)).astype(np.float64)
    return Busy(_since(rows["arrival_ns"]), bits, _session_of(stretch))


def _since(times: pl.Series) -> NDArray[np.float64]:
    """Return times since the first of them."""
    whole = times.to_numpy().astype(np.int64)
    return np.asarray(whole - whole[0], dtype=np.float64)


def _rates(seen: Seen, limits: dict[str, float]) -> list[Asked]:
    found, stretches = [], busy(seen)
    for of, rows in (("log", departures(seen, stretches)), ("streams", arrivals(seen, stretches))):
        if rows:
            found += [_whole(seen, of, rows, limits), *_in_windows(seen, of, rows, limits)]
    return found


def _whole(seen: Seen, of: str, rows: list[Busy], limits: dict[str, float]) -> Asked:
    rate, limit = float(seen.pipe.rate_bps or 0), limits["rate"]
    each = [(part, one.session) for one in rows for part in part_rates(one.times, one.bits)]
    parts, session = np.array([part for part, _ in each]), np.array([at for _, at in each], dtype=np.int64)

    def reading(alpha: float) -> Interval:
        if beds_in(session):
            return figure_of(parts, session, 1 - alpha).mean
        few = len(parts) < 6
        return student_t(parts, 1 - alpha) if few or alpha < 0.05 else over_trials(parts)

    zone = (rate * (1 - limit), rate * (1 + limit))
    what = "bits that left the link per second, while it was busy"
    return Asked("rate", of, rate, "bit/s", what, reading, zone, limit * rate, n=sum(len(one.times) for one in rows))


def part_rates(times: NDArray[np.float64], bits: NDArray[np.float64]) -> list[float]:
    """Return the rate of each of a few parts of a busy period: the bits after its first packet over their duration."""
    several = max(1, min(PARTS, len(times) // LEAST_BUSY))
    edges = np.linspace(0, len(times) - 1, several + 1).astype(np.int64)
    total = np.cumsum(bits)
    spans = [(int(a), int(b)) for a, b in itertools.pairwise(edges)]
    return [float((total[b] - total[a]) * 1e9 / (times[b] - times[a])) for a, b in spans if times[b] > times[a]]


def _in_windows(seen: Seen, of: str, rows: list[Busy], limits: dict[str, float]) -> list[Asked]:
    """Check the rate in windows. The limit allows for whole packets, and at both ends for departures as late as p99's
    limit.

    Judged by the highest percentile with at least ten windows beyond it, so that a single stall of the machine does not
    count.
    """
    found = []
    for window in WINDOWS_NS:
        told = rate_in_windows(
            [one.times for one in rows], [one.bits for one in rows], float(seen.pipe.rate_bps or 0), window
        )
        if told is None or told.packet > COARSEST:
            continue
        limit = told.packet + limits["rate"] + 2 * limits["p99"] / window
        n = len(told.off)
        share = next((one for one in (0.99, 0.9, 0.5) if allowed(one, n)), None)
        if share is None:
            continue
        worst = float(np.quantile(np.abs(told.off), share))
        what = f"deviation from the rate that {share * 100:g} % of {n:,} windows of {window / 1e6:g} ms do not exceed"
        found.append(_deviation(f"rate in {window / 1e6:g} ms", of, what, worst, limit, n))
    return found


def _deviation(name: str, of: str, what: str, worst: float, limit: float, n: int) -> Asked:
    """Return a check of a largest deviation, which is an observation without an interval."""
    return Asked(name, of, 0.0, "ratio", what, None, (0.0, limit), limit, measured=worst, n=n)


def _queue(seen: Seen) -> list[Asked]:
    """Check that the queue never exceeds its limit, and drops no packet while there is room."""
    told = seen.pipe.queue.get("limit") or {}
    rows = seen.log.filter(~pl.col("cause").is_in(["before", "rule", "memory"]))
    found: list[Asked] = []
    own = (seen.pipe.queue.get("drop") or "tail") == "tail" and (seen.pipe.queue.get("scheduler") or "fifo") == "fifo"
    if not rows.height or not own:
        return found
    taken = rows.filter(pl.col("cause") != "full")
    for name, column, more in (
        ("slots", "queue_slots", pl.lit(1)),
        ("bytes", "queue_bytes", pl.col("frame_bytes") - 4),
    ):
        limit = told.get(name)
        if limit is not None:
            most = taken.select((pl.col(column).cast(pl.Int64) + more).max()).item() or 0
            unit = "packets" if name == "slots" else "bytes"
            what = f"largest occupancy of the queue, in {name}"
            found.append(_most(f"queue, {name}", what, float(most), float(limit), unit, taken.height))
    if told.get("slots") is not None or told.get("bytes") is not None:
        room = pl.lit(value=True)
        if told.get("slots") is not None:
            room &= pl.col("queue_slots") + 1 <= min(int(told["slots"]), MOST_INT64)
        if told.get("bytes") is not None:
            room &= pl.col("queue_bytes") + pl.col("frame_bytes") - 4 <= min(int(told["bytes"]), MOST_INT64)
        lost = rows.filter(pl.col("cause") == "full")
        what = "packets dropped as if the queue were full while there was room"
        found.append(Asked("queue, lost only when full", "log", 0.0, "packets", what,
                           exact=lost.filter(room).height, n=rows.height))  # fmt: skip
    return found


def _most(name: str, what: str, most: float, limit: float, unit: str, n: int) -> Asked:
    return Asked(name, "log", limit, unit, what, None, (0.0, limit), limit, measured=most, n=n)


def _fairness(seen: Seen) -> list[Asked]:
    """Check a fair scheduler: the lag of any class behind its share while all of them wait, against the bound.

    Judged by the order of departures from the link in the log, and by that of arrivals of the stream's packets.
    """
    scheduler = seen.pipe.scheduler
    if scheduler.name not in BOUNDS or not seen.pipe.is_plain_link or not _is_overloaded(seen):
        return []
    told = [one for rows in served(seen) if (one := Contest.of(seen, rows)) is not None]
    if not told:
        return []
    found = [_fair("log", [lag for one in told for lag in one.lags(scheduler)])]
    orders = [(one, order) for one in told if (order := one.arrived(seen)) is not None]
    if orders and seen.pipe.jitter is None and not seen.pipe.reorder:
        found.append(_fair("streams", [lag for one, order in orders for lag in one.lags(scheduler, order)]))
    return found


def _is_overloaded(seen: Seen) -> bool:
    """Return whether more than the link's rate was offered, so that classes wait at all."""
    size = seen.trials["frame_bytes"].max()
    if not isinstance(size, int) or not seen.interval_ns:
        return False
    return float(seen.pipe.bits(np.array([size]))[0]) * 1e9 / seen.interval_ns > float(seen.pipe.rate_bps or 0)


def _fair(of: str, lags: list[Lag]) -> Asked:
    """Return the check of the worst period; if all are too short to detect an unfair class, only a failure counts."""
    worst = max((lag.worst for lag in lags), default=float("nan"))
    if worst <= 1 and not any(lag.is_telling for lag in lags):
        worst = float("nan")
    what = "largest lag of a class behind generalised processor sharing, as a share of its scheduler's bound"
    return _deviation("fairness", of, what, worst, 1.0, sum(lag.n for lag in lags))


SHORT = 0.2
"""A check that would not detect a class that gets this much less than its share is inconclusive."""


@dataclass(frozen=True)
class Lag:
    """One busy period: the largest lag of a class as a share of its bound, and the number of packets served."""

    worst: float
    n: int
    is_telling: bool
    """Whether each class would have exceeded its bound with a fifth less than its share."""


@dataclass(frozen=True)
class Contest:
    """Packets that a link served, in order, with the class and bytes of each, and the periods in which all waited."""

    rows: pl.DataFrame
    classes_of: NDArray[np.int64]
    sizes: NDArray[np.float64]
    weights: list[float]
    together: list[slice]

    @classmethod
    def of(cls, seen: Seen, rows: pl.DataFrame) -> Contest | None:
        """Build it; None where the stream's packets are not of several classes."""
        own = rows.filter(pl.col("flow_of_stream").is_not_null())["class"].unique().sort().to_list()
        if len(own) < 2:
            return None
        place = {name: number for number, name in enumerate(own)}
        classes_of = np.array([place.get(name, -1) for name in rows["class"].to_list()], dtype=np.int64)
        entered, left, _ = _times(seen, rows)
        classes = seen.pipe.queue.get("classes") or []
        told = [classes[name] if name < len(classes) else {} for name in own]
        weights = [float(one.get("weight") or 1) for one in told]
        sizes = (rows["frame_bytes"].to_numpy() - FCS_BYTES).astype(np.float64)
        return cls(rows, classes_of, sizes, weights, all_backlogged(entered, left, classes_of, len(own)))

    def lags(self, scheduler: Scheduler, order: NDArray[np.int64] | None = None) -> list[Lag]:
        """Return the lag of each period."""
        found, weights = [], np.array(self.weights)
        largest = np.array([self.sizes[self.classes_of == name].max() for name in range(len(weights))])
        bounds = BOUNDS[scheduler.name](weights, largest, scheduler.quantum)
        for stretch in self.together:
            rows = np.arange(stretch.start, stretch.stop)
            if order is not None:
                rows = rows[np.argsort(order[rows], kind="stable")]
            classes_of, sizes = self.classes_of[rows], self.sizes[rows]
            lags = shortfalls(classes_of, sizes, self.weights)
            shown = SHORT * weights / weights.sum() * sizes.sum() / bounds
            found.append(Lag(round(float((lags / bounds).max()), 9), len(rows), bool(shown.min() > 1)))
        return found

    def arrived(self, seen: Seen) -> NDArray[np.int64] | None:
        """Return when each packet was received; None where one in a period was not."""
        if not seen.packets.height:
            return None
        keys = ["block", "flow", "seq"]
        came = seen.packets.select(*keys, "arrival_ns").unique(keys)
        own = self.rows.select("block", pl.col("flow_of_stream").alias("flow"), "seq")
        times = own.join(came, on=keys, how="left", maintain_order="left")["arrival_ns"]
        if any(times[stretch].null_count() for stretch in self.together):
            return None
        return times.fill_null(0).to_numpy().astype(np.int64)
