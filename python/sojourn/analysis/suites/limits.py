"""The limits of a device: loss over load, the longest burst and the implied buffer, addresses, forward pressure.

`suites` lists the quantities.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.analysis.rows import Row
from sojourn.analysis.suites.cells import bare, cell_of, over_repetitions, search_factors
from sojourn.analysis.suites.searches import Search, burst_bounds, lesson_bounds
from sojourn.statistics.interval import Interval
from sojourn.statistics.proportion import korn_graubard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.suites import Sought


def loss_rows(searches: list[Search], cells: dict[Factors, int]) -> Iterator[Row]:
    for one in loss_curve(searches):
        factors = replace(search_factors(one["engine"], one["frame_bytes"]), rate_pps=one["offered_pps"])
        value = Interval(one["loss_ratio"], one["ci_low"], one["ci_high"], 0.95, one["trials"])
        cell = cells[search_factors(one["engine"], one["frame_bytes"])]
        named = replace(factors, rate_share=one["rate_share"])
        yield Row(one["device"], "loss_ratio", "ratio", value, "1", None, named, cell, one["sent"])


def loss_curve(searches: list[Search]) -> Iterator[dict[str, Any]]:
    """Return the loss at each share of the highest rate, over beds or one bed's repetitions; below three no
    interval."""
    groups: dict[tuple[str, str, int, float], list[tuple[float, int, int, int]]] = {}
    several_beds = len({search.session for search in searches}) > 1
    for search in searches:
        used = search.used if search.test == "frame-loss" else []
        highest = max((one.load for one in used), default=0.0)
        for one in used:
            key = (search.device, search.engine, search.frame_bytes, round(one.load / highest, 4))
            groups.setdefault(key, []).append((one.load, one.lost, one.sent, search.session))
    for (device, engine, size, share), several in sorted(groups.items()):
        lost, sent = (np.array([one[at] for one in several], dtype=np.float64) for at in (1, 2))
        clusters = np.array([one[3] for one in several]) if several_beds else np.arange(len(several))
        value = korn_graubard(of_clusters(lost, clusters), of_clusters(sent, clusters))
        yield {
            "device": device,
            "engine": engine,
            "frame_bytes": size,
            "offered_pps": float(np.mean([load for load, *_ in several])),
            "rate_share": share,
            "loss_ratio": value.estimate,
            "ci_low": value.low,
            "ci_high": value.high,
            "trials": len(several),
            "sent": int(sent.sum()),
        }


def of_clusters(counts: NDArray[np.float64], clusters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sums of counts over each cluster."""
    return np.array([counts[clusters == one].sum() for one in np.unique(clusters)])


def burst_rows(searches: list[Search], sought: list[Sought], cells: dict[Factors, int]) -> Iterator[Row]:
    groups: dict[tuple[str, int], list[Search]] = {}
    for search in searches:
        if search.test == "back-to-back" and search.used:
            groups.setdefault((search.device, cell_of(search, cells)), []).append(search)
    for (device, cell), several in groups.items():
        yield from _bursts_of(device, cell, several, sought)


def _bursts_of(device: str, cell: int, several: list[Search], sought: list[Sought]) -> Iterator[Row]:
    """Return average, minimum, maximum and standard deviation over N whole searches (RFC 9004), and the buffer time.

    The buffer time is the duration of the burst, minus that of the frames forwarded meanwhile.
    """
    first = several[0]
    like = Row(device, "", "", bare(0.0), "1", None, search_factors(first.engine, first.frame_bytes), cell)
    known = [(lower or 0, upper, one) for one in several for lower, upper in [burst_bounds(one)] if lower or upper]
    if not known:
        return
    frames = np.array([float(lower) for lower, _, _ in known])
    beds = [one.session for _, _, one in known]
    like.quantity = "back_to_back_frames"
    if not all(upper for _, upper, _ in known):
        yield replace(like, statistic="at_least", value=bare(float(frames.mean()), len(frames)), findings=[])
        return
    value = over_repetitions(frames, beds)
    like.sessions = value.sessions
    yield replace(like, statistic="mean", value=value.mean, findings=[])
    several_searches = {"min": frames.min(), "max": frames.max(), "sd": frames.std(ddof=1)} if len(frames) > 1 else {}
    for statistic, figure in several_searches.items():
        yield replace(like, statistic=statistic, value=bare(float(figure), len(frames)), findings=[])
    pace = np.array([burst_pace(one, lower) for lower, _, one in known])
    served = next((one for one in sought if (one.quantity, one.device, one.cell) == ("ndr", device, cell)), None)
    if not np.all(pace > 0):
        return
    implied = frames / pace * 1e9
    like = replace(like, unit="ns", statistic="mean", findings=[])
    yield replace(like, quantity="buffer_time_implied", value=over_repetitions(implied, beds).mean)
    if served is None or not len(served.lowers) or served.is_tester_limited:
        return
    left = 1 - float(np.mean(served.lowers)) / pace
    source = "RFC 9004: minus the frames forwarded during the burst"
    if np.all(left > 0):
        value = over_repetitions(implied * left, beds)
        yield replace(like, quantity="buffer_time_corrected", value=value.mean, source=source)


def burst_pace(search: Search, frames: int) -> float:
    """Return the rate of the frames in the longest bursts; the conductor's value where the records have none."""
    paces = [one.pace_pps for one in search.used if one.load >= frames / 2 and one.pace_pps > 0]
    return float(np.median(paces)) if paces else float(search.extra.get("burst_pps") or 0.0)


def address_rows(searches: list[Search], cells: dict[Factors, int]) -> Iterator[Row]:
    named = {
        "address-capacity": ("address_capacity", "count", "1"),
        "learning-rate": ("learning_rate", "sent_pps", "1/s"),
    }
    groups: dict[tuple[str, str, int], list[Search]] = {}
    for search in searches:
        if search.test in named and search.extra.get("lessons"):
            groups.setdefault((search.test, search.device, cell_of(search, cells)), []).append(search)
    for (test, device, cell), several in groups.items():
        quantity, load, unit = named[test]
        first = several[0]
        like = Row(device, quantity, "", bare(0.0), unit, None, search_factors(first.engine, first.frame_bytes), cell)
        bounds = [(*lesson_bounds(one.extra["lessons"], load), one.session) for one in several]
        yield from _bound_rows(like, bounds)
    yield from _pressure_rows(searches, cells)


def _bound_rows(like: Row, bounds: list[tuple[float | None, float | None, int]]) -> Iterator[Row]:
    both = [(lower, upper, bed) for lower, upper, bed in bounds if lower is not None and upper is not None]
    if both:
        lowers, uppers = (np.array([one[at] for one in both], dtype=np.float64) for at in (0, 1))
        rate = over_repetitions(lowers, [bed for *_, bed in both])
        like.sessions = rate.sessions
        yield replace(like, statistic="rate", value=rate.mean, findings=[])
        yield replace(like, statistic="upper", value=bare(float(uppers.mean()), len(uppers)), findings=[])
    elif any(lower is not None for lower, *_ in bounds):
        most = max(lower for lower, *_ in bounds if lower is not None)
        source = "the most, or the fastest, that the tester tried"
        yield replace(like, statistic="at_least", value=bare(most, len(bounds)), source=source, findings=[])


def _pressure_rows(searches: list[Search], cells: dict[Factors, int]) -> Iterator[Row]:
    """Return received over allowed rate when more than the link's rate is offered: above one is forward pressure."""
    groups: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for search in searches:
        if search.test == "forward-pressure" and search.extra.get("allowed_pps") and search.used:
            last = search.used[-1]
            allowed = float(search.extra["allowed_pps"])
            ratio = last.pace_pps * (1 - last.loss_ratio) / allowed
            groups.setdefault((search.device, cell_of(search, cells)), []).append((ratio, search.session))
    by_cell = {number: factors for factors, number in cells.items()}
    for (device, cell), ratios in groups.items():
        value = over_repetitions(np.array([ratio for ratio, _ in ratios]), [bed for _, bed in ratios])
        row = Row(device, "forward_pressure", "ratio", value.mean, "1", None, by_cell[cell], cell)
        row.sessions = value.sessions
        yield row
