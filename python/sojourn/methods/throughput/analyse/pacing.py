"""minimum-frame-time: frames of a flood follow each other as fast as the slowest link serialises them, and no faster.

This time is 8 (frame + 20) / R: 67.2 us for a frame of 64 bytes at 10 Mbit/s, so 14,881 per second. The mean over a
trial, from its first frame to its last, may deviate by 1 %. The paper's calculated times (ethernet-tests-2000 table
4.1) are similar, but include its tester's PCI bus, which is why some of its frames arrived faster than calculated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.hypotheses import Outcome, against, inconclusive
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.rates import is_testers
from sojourn.analysis.run import DIRECT
from sojourn.analysis.stream_rows import mean_of, per_path, trial_row
from sojourn.analysis.streams import over_column
from sojourn.analysis.wording import fixed, micro, percent
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.links.cables import Cables
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run

MARGIN = 0.01
GAP = 1e9 / pl.col("received_pps")


def evaluate(name: str, run: Run, trials: pl.DataFrame) -> list[Outcome]:
    """Return the outcomes for every flood over a path with rated links."""
    found = [_evaluate(name, run, here, cables) for here, cables in _floods(run, trials)]
    return found or [inconclusive(name, "no path with rated links was flooded")]


def least_rows(run: Run, trials: pl.DataFrame) -> list[Row]:
    """Return the minimum time between frames, measured ("saturated") and calculated, as in method "one-way"."""
    rows = []
    for here, cables in _floods(run, trials):
        shown, least = _gap(here), cables.least_ns(int(here["frame_bytes"][0]))
        if shown.n:
            rows.append(mean_of(trial_row(run, here, "min_frame_interval", "saturated", shown, "ns"), here, GAP))
            calculated = Interval(least, None, None, 0.95, 0)
            rows.append(trial_row(run, here, "min_frame_interval", "calculated", calculated, "ns"))
            rows[-1].source = "the rate of the slowest link, in bits on the wire"
    return rows


def _floods(run: Run, trials: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, Cables]]:
    cables = cables_of(run)
    for (device, cell), _, here in per_path(run, trials):
        one = run.cells[cell]
        if device in cables and one.schedule == "flood" and one.senders in (None, 1):
            yield here, cables[device]


def _gap(trials: pl.DataFrame) -> Interval:
    return over_column(trials, GAP)


def _evaluate(name: str, run: Run, trials: pl.DataFrame, cables: Cables) -> Outcome:
    device, size = str(trials["device"][0]), int(trials["frame_bytes"][0])
    shown, expected = _gap(trials), cables.least_ns(size)
    if not shown.n:
        return inconclusive(name, f"no frames of {size} B arrived over {device}", device)
    margin, rate = MARGIN * expected, over_column(trials, "received_pps")
    said = (
        f"frames of {size} B over {device} arrive every {micro(shown.estimate)} ({fixed(1e9 / shown.estimate, 0)}/s); "
        f"the link needs {micro(expected)} for each ({fixed(1e9 / expected, 0)}/s, ± {percent(MARGIN)})"
    )
    outcome = against(shown, expected, margin)
    # # Where the direct link has a rate too, the rate over it is limited by the link, not by the tester.
    limited = DIRECT not in cables_of(run) and is_testers(run, trials, rate)
    offered = float(np.nanmedian(trials["offered_pps"].to_numpy().astype(np.float64)))
    if offered < (1 + MARGIN) * 1e9 / expected or limited:
        outcome, said = "inconclusive", f"{said}; the tester itself was the limit"
    return Outcome(name, outcome, said, device, None, None, margin, shown, "ns", expected)
