"""Test whether departures with a Poisson schedule were a Poisson process: Anderson and Darling's test of their gaps.

Senders test each trial of a stream; each block of probes is tested here, for exponential times of any mean. All methods
have one rule, also for a single stream by hand: tests at MISFIT_LEVEL, with a cell failing if so many tests fail that
the probability is at most MISFIT_LEVEL divided by the number of the run's cells (Bonferroni). For a single test this is
p < MISFIT_LEVEL. The instrument has the same rule for one and for several streams by hand
(`crates/stream/src/goodness.rs`). Failures are counted, instead of using the smallest p, because the formulas of p are
accurate only near usual levels; so a cell of a single trial besides other cells cannot fail. The rate is not tested:
`load_missed` covers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from scipy import special

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.rows import Row
from sojourn.analysis.streams import LOAD_FLOWS, kept_blocks
from sojourn.analysis.wording import counted, percent
from sojourn.statistics.anderson import exponential
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

MISFIT_LEVEL = 0.01
"""The level of each test, and of the run: a correct run has the finding with this probability at most."""

QUANTITY = "poisson_fit"
TESTED = {"device": pl.String, "cell": pl.Int32, "a2": pl.Float64, "p": pl.Float64}


@dataclass(frozen=True, slots=True)
class Fitted:
    """The tests of a path and cell."""

    place: Place
    trials: int
    failed: int
    """Trials with a p below MISFIT_LEVEL."""
    greatest: float
    """The greatest A squared of a trial."""
    least_p: float

    @property
    def chance(self) -> float:
        """The probability that at least as many trials of a true Poisson process fail."""
        return float(special.bdtrc(self.failed - 1, self.trials, MISFIT_LEVEL)) if self.failed else 1.0


def poisson(run: Run) -> tuple[list[Row], list[Finding]]:
    """Return the tests of every path and cell with a Poisson schedule as rows, and the finding where the run fails
    them."""
    tests = tests_of(run)
    chances = [min(1.0, one.chance * len(tests)) for one in tests]
    rows = [row for one, chance in zip(tests, chances, strict=True) for row in _rows(run, one, chance)]
    return rows, _misfit([one for one, chance in zip(tests, chances, strict=True) if chance <= _just_above()])


def tests_of(run: Run) -> list[Fitted]:
    """Return the tests, by path and cell."""
    tested = pl.concat([_of_streams(run), _of_probes(run)])
    return [
        Fitted(
            Place(str(device), int(str(cell))), rows.height, int((rows["p"] < MISFIT_LEVEL).sum()),
            float(rows["a2"].to_numpy().max()), float(rows["p"].to_numpy().min()),
        )
        for (device, cell), rows in sorted(tested.partition_by("device", "cell", as_dict=True).items(), key=str)
    ]  # fmt: skip


def _just_above() -> float:
    """Return the level with a margin for rounding."""
    return MISFIT_LEVEL * (1 + 1e-9)


def _of_streams(run: Run) -> pl.DataFrame:
    """Return the senders' tests, one row per trial and flow."""
    if "anderson_darling_p" not in run.streams.columns:
        return pl.DataFrame(schema=TESTED)
    sent = run.streams.filter(
        (pl.col("role") == "send") & (pl.col("schedule") == "poisson") & (pl.col("purpose") == "measure")
        & (pl.col("flow") < LOAD_FLOWS) & pl.col("block").is_in(sorted(kept_blocks(run)))
    )  # fmt: skip
    known = sent.drop_nulls("anderson_darling_p").unique(["block", "flow"])
    found = known.select(
        "device", "cell", pl.col("anderson_darling").alias("a2"), pl.col("anderson_darling_p").alias("p")
    )
    return found.cast(TESTED)  # type: ignore[arg-type]


def _of_probes(run: Run) -> pl.DataFrame:
    """Return the tests of blocks of probes, from all their departures; a block with missing probes is not tested.

    Missing timestamps and refused probes depend on the gaps between departures: what remains of a Poisson process is
    not one.
    """
    sent = run.measured.filter(pl.col("schedule") == "poisson")
    # Dropped replies leave all departures known.
    refused = (pl.col("local_drops") > 0) & (pl.col("sent") < pl.col("count"))
    lacking = set(run.blocks.filter(refused)["block"].to_list())
    found = []
    for rows in sent.partition_by("block", maintain_order=True):
        one = rows.sort("seq")
        is_whole = one["block"][0] not in lacking and bool((np.diff(one["seq"].to_numpy().astype(np.int64)) == 1).all())
        fit = exponential(np.diff(_departures(one)).astype(np.float64)) if is_whole else None
        if fit is not None:
            found.append((one["device"][0], one["cell"][0], fit.statistic, fit.p))
    return pl.DataFrame(found, schema=TESTED, orient="row")


def _departures(probes: pl.DataFrame) -> NDArray[np.int64]:
    """Return the departures of probes or, without timestamps of one source for all, the calls to send."""
    is_alike = probes["departure_source"].n_unique() == 1 and not probes["departure_ns"].null_count()
    return np.asarray(probes["departure_ns" if is_alike else "send_call_ns"].to_numpy(), dtype=np.int64)


def _rows(run: Run, one: Fitted, chance: float) -> list[Row]:
    figures = {"failed": one.failed / one.trials, "a2": one.greatest, "least_p": one.least_p, "p": chance}
    return [
        Row(
            str(one.place.device), QUANTITY, statistic, Interval(value, None, None, 0.95, one.trials), "1", None,
            run.cells[one.place.cell or 0], one.place.cell,
        )
        for statistic, value in figures.items()
    ]  # fmt: skip


def _misfit(failing: list[Fitted]) -> list[Finding]:
    if not failing:
        return []
    places, worst = worst_first({one.place: one.failed / one.trials for one in failing})
    of = next(one for one in failing if one.place == places[0])
    sentence = (
        f"in {percent(worst)} of a cell's {counted(of.trials, 'trial')} the times between departures are not "
        f"exponentially distributed (Anderson and Darling's test, p < {MISFIT_LEVEL:g}): the departures are not a "
        "Poisson process"
    )
    return [Finding("poisson_misfit", sentence, worst, places)]
