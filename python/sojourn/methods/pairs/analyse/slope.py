"""slope-is-sum-of-rates: a frame's latency grows by 8/R for each of its bytes on every link with rate R.

Tested on whole paths, not on their differences, in which an error on both sides would cancel. Each block is represented
by half the round trip of its fastest probe: a busy machine only adds delay, and adds more the longer a frame is under
way, so means (the lines over size elsewhere) and even medians are steeper than the links. The margin is 5 %: bridges
and virtual links also copy frames, as the switches of ethernet-tests-2000 had backplanes (0.161 where two links of 100
Mbit/s make 0.160 us per byte, section 3.2; 0.105 where two links make 0.088, section 3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.hypotheses import Hypothesis, Outcome, against, inconclusive
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.run import A_A
from sojourn.analysis.sizes import lies_on_line
from sojourn.statistics.interval import student_t
from sojourn.statistics.line import fit
from sojourn.statistics.signed_rank import hodges_lehmann

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.links.cables import Cables
    from sojourn.analysis.pairs import Rounds
    from sojourn.analysis.run import Run

MARGIN = 0.05


def evaluate(name: str, run: Run, _rounds: Rounds, _bed_ns: float) -> list[Outcome]:
    """Return the outcomes for every path with rated links and every probe with at least two sizes."""
    cables, fastest = cables_of(run), _fastest(run)
    found = [
        outcome
        for device in run.devices
        if device in cables and device != A_A
        for probe in sorted({str(one.probe) for one in run.cells.values()})
        if (outcome := _evaluate(name, run, fastest.filter(device=device), device, probe, cables[device])) is not None
    ]
    return found or [inconclusive(name, "no path with rated links was measured at several sizes")]


def _fastest(run: Run) -> pl.DataFrame:
    """Return device, cell, round: half the fastest round trip of each block, the mean of the round's visits.

    Of a run of several sessions, a session replaces its rounds.
    """
    half = pl.col("rtt").cast(pl.Float64) / 2
    unit = "part" if run.sessions > 1 else "round"
    visits = ("device", "cell", "round", "part", "visit", "instance")
    of_paths = run.path_by_path(*visits, "rtt")
    blocks = pl.concat(probes.drop_nulls("rtt").group_by(visits).agg(half.min()) for probes in of_paths)
    by_unit = blocks.group_by("device", "cell", unit).agg(pl.col("rtt").mean())
    return by_unit.rename({unit: "round"})


def _evaluate(name: str, run: Run, fastest: pl.DataFrame, device: str, probe: str, cables: Cables) -> Outcome | None:
    sizes = {cell: one.mean_frame_bytes for cell, one in run.cells.items() if lies_on_line(run, cell, probe)}
    if len(set(sizes.values())) < 2:
        return None
    x, y = _by_round(fastest, sizes)
    if not len(y):
        return inconclusive(name, "no round has every size", device, probe)
    over = student_t if run.sessions > 1 else hodges_lehmann
    shown, expected = fit(x, y, over=over).slope, cables.per_byte_ns
    margin = MARGIN * expected
    said = (
        f"over {device}, {len(cables.known)} rated link{'s' if len(cables.known) > 1 else ''}, the fastest {probe} "
        f"takes {shown.estimate:.1f} ns longer for each byte, and the sum of 8/R is {expected:.1f} "
        f"(± {margin:.1f} is allowed)"
    )
    outcome = against(shown, expected, margin)
    return Outcome(name, outcome, said, device, probe, None, margin, shown, "ns/byte", expected)


def _by_round(fastest: pl.DataFrame, sizes: dict[int, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sizes, and rounds by sizes; cells that differ otherwise are averaged, incomplete rounds left out."""
    told = pl.DataFrame({"cell": list(sizes), "size": list(sizes.values())}, schema_overrides={"cell": pl.Int32})
    here = fastest.with_columns(pl.col("cell").cast(pl.Int32)).join(told, on="cell")
    here = here.filter(pl.len().over("round") == len(sizes)).group_by("round", "size").agg(pl.col("rtt").mean())
    x = np.unique(np.array(list(sizes.values()), dtype=np.float64))
    wide = here.sort("round", "size")["rtt"].to_numpy().reshape(-1, len(x))
    return x, np.asarray(wide, dtype=np.float64)


HYPOTHESES: dict[str, Hypothesis] = {"slope-is-sum-of-rates": evaluate}
