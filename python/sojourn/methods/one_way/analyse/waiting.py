"""md1: frames at random times before a rated link wait as in an M/D/1 queue; regular ones do not wait.

Three figures are tested at each load below one. Regular frames do not wait: their median delay minus the links' own
time and the direct link's median. Each frame waits for those before it: among the frames that wait for at least half a
frame's time, the median ratio of the observed waits to those of Lindley's recursion over the actual departures, which
neither stalls of the machine nor the random draw affects. The mean is Pollaczek and Khinchine's, rho S / (2 (1 - rho)):
its interval includes the random draw, and it is not tested for trials too short for a queue that begins empty to reach
equilibrium. A wait is a frame's delay minus that of the regular stream of the same load (the median of its trials'
medians). ethernet-tests-2000 tested its switches so, section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.hypotheses import Outcome, against, inconclusive
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.sessions import beds_in, figure_of
from sojourn.analysis.streams import of_trials, over_column
from sojourn.analysis.wording import micro, percent
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.queue import waits

if TYPE_CHECKING:
    from sojourn.analysis.factors import Factors
    from sojourn.analysis.links.cables import Cables
    from sojourn.analysis.run import Run

IDLE = 0.05
"""Regular frames may wait for this share of a frame's time: bridges need some time too."""

RECURSION = 0.03
MEAN = 0.1
LEAST_WAITING = 20
"""With fewer waiting frames in a trial there is no median."""

RESTS = 20.0
"""The least duration of a trial, in relaxation times of the queue."""


@dataclass(frozen=True, slots=True)
class Load:
    """The cells of one path with one load: one with regular frames, one with random ones."""

    device: str
    regular: int
    poisson: int
    factors: Factors
    cables: Cables

    @property
    def service_ns(self) -> float:
        """S: the time of a frame on the slowest link."""
        return self.cables.least_ns(self.factors.frame_bytes or 0)

    @property
    def rho(self) -> float:
        """The utilisation of the slowest link."""
        return self.service_ns / (self.factors.interval_ns or 1)

    @property
    def mean_ns(self) -> float:
        """Pollaczek and Khinchine's mean wait."""
        return self.rho * self.service_ns / (2 * (1 - self.rho))

    @property
    def rest_ns(self) -> float:
        """The queue's relaxation time: how long its initial state has influence."""
        return float(self.service_ns / (1 - self.rho**0.5) ** 2)

    @property
    def words(self) -> str:
        """The frames, the path and the load, in words."""
        return f"{self.factors.frame_bytes} B over {self.device} at a load of {percent(self.rho)}"


def evaluate(name: str, run: Run, packets: pl.DataFrame) -> list[Outcome]:
    """Return the outcomes for every load below one on every path with rated links."""
    found = loads(run)
    if not found:
        return [inconclusive(name, "no path with rated links has regular and random frames of one load below 1")]
    return [outcome for one in found for outcome in _of_load(name, run, packets, one)]


def loads(run: Run) -> list[Load]:
    """Return the testable loads: single senders' cells that differ only in their schedule."""
    groups: dict[tuple[object, ...], dict[str, int]] = {}
    for cell, one in run.cells.items():
        if one.interval_ns and one.senders in (None, 1) and not one.load:
            groups.setdefault((one.engine, one.frame_bytes, one.interval_ns), {})[str(one.schedule)] = cell
    pairs = [both for both in groups.values() if {"regular", "poisson"} <= both.keys()]
    several = [
        Load(device, both["regular"], both["poisson"], run.cells[both["poisson"]], cables)
        for device, cables in cables_of(run).items()
        if device != A_A
        for both in pairs
    ]
    return [one for one in several if one.rho < 1]


def _of_load(name: str, run: Run, packets: pl.DataFrame, load: Load) -> list[Outcome]:
    here = packets.filter((pl.col("device") == load.device) & (pl.col("port") == 0)).drop_nulls("delay_ns")
    medians = _medians(here.filter(cell=load.regular))
    random = here.filter(cell=load.poisson)
    if not len(medians) or not random.height:
        return [inconclusive(name, f"{load.words}: nothing was measured", load.device)]
    base = float(np.median(medians))
    empty = _empty_ns(run, packets, load)
    trials = _trials(run, random, load, base)
    return [
        _regular(name, load, here.filter(cell=load.regular), empty),
        _recursion(name, load, trials),
        _mean(name, load, trials),
    ]


def _medians(packets: pl.DataFrame) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return packets.group_by("block", maintain_order=True).agg(pl.col("delay_ns").median())["delay_ns"].to_numpy()


def _empty_ns(run: Run, packets: pl.DataFrame, load: Load) -> float:
    """Return the direct link's delay of the same frames in excess of its own links; 0 without a direct link."""
    medians = _medians(packets.filter(device=DIRECT, cell=load.regular).drop_nulls("delay_ns"))
    own = cables_of(run).get(DIRECT)
    known = len(medians) and load.device != DIRECT
    return float(np.median(medians)) - (own.time_ns(load.factors.frame_bytes or 0) if own else 0.0) if known else 0.0


def _trials(run: Run, packets: pl.DataFrame, load: Load, base: float) -> pl.DataFrame:
    """Return for each trial: mean wait, median ratio of waits to computed ones, computed mean, and duration."""
    found = []
    sends = run.sends.select("block", "flow", "seq", "departure_ns").drop_nulls()
    for (block,), rows in packets.partition_by("block", as_dict=True, maintain_order=True).items():
        left = sends.filter(pl.col("block") == block).unique(["flow", "seq"]).sort("departure_ns")
        since = (left["departure_ns"] - left["departure_ns"].min()).cast(pl.Float64).to_numpy()
        computed = waits(since, np.full(len(since), load.service_ns))
        both = rows.join(left.select("flow", "seq", computed=pl.Series(computed)), on=["flow", "seq"])
        both = both.with_columns(waited=pl.col("delay_ns") - base)
        waiting = both.filter(pl.col("computed") >= load.service_ns / 2)
        ratio = (waiting["waited"] / waiting["computed"]).median() if waiting.height >= LEAST_WAITING else None
        lasted = float(since[-1]) if len(since) else 0.0
        found.append((both["waited"].mean(), ratio, both["computed"].mean(), lasted, rows["session"][0]))
    columns = ("mean", "ratio", "computed", "lasted")
    schema = dict.fromkeys(columns, pl.Float64) | {"session": pl.Int32}
    return pl.DataFrame(found, schema=schema, orient="row")


def _regular(name: str, load: Load, packets: pl.DataFrame, empty: float) -> Outcome:
    trials = packets.group_by("block", maintain_order=True).agg(pl.col("delay_ns").median(), pl.col("session").first())
    shown = over_column(trials, pl.col("delay_ns") - empty - load.cables.time_ns(load.factors.frame_bytes or 0))
    margin = IDLE * load.service_ns
    said = f"regular frames of {load.words} wait {micro(shown.estimate)} in the median, where the model expects no wait"
    return _outcome(name, load, said, shown, 0.0, margin)


def _recursion(name: str, load: Load, trials: pl.DataFrame) -> Outcome:
    shown = over_column(trials, "ratio")
    if not shown.n:
        return inconclusive(name, f"random frames of {load.words}: too few frames had to wait", load.device)
    said = (
        f"random frames of {load.words}: each frame's wait is {percent(shown.estimate)} of that computed from the "
        "actual departures before it"
    )
    outcome = against(shown, 1.0, RECURSION)
    said += f" (± {percent(RECURSION)} is allowed)"
    return Outcome(name, outcome, said, load.device, None, None, RECURSION, shown, "1", 1.0)


def _mean(name: str, load: Load, trials: pl.DataFrame) -> Outcome:
    values, session = of_trials(trials, "mean")
    shown = figure_of(values, session).mean if beds_in(session) else student_t(values)
    margin = MEAN * load.mean_ns
    drawn = float(np.mean(trials["computed"].to_numpy()))
    said = (
        f"random frames of {load.words} wait {micro(shown.estimate)} on average; M/D/1 predicts {micro(load.mean_ns)}, "
        f"and {micro(drawn)} for the actual departures"
    )
    lasted = float(np.median(trials["lasted"].to_numpy()))
    if lasted < RESTS * load.rest_ns:
        said += (
            f"; trials of {lasted / 1e9:.1f} s are too short to reach the mean of M/D/1, because they begin with an "
            "empty queue"
        )
        return Outcome(name, "inconclusive", said, load.device, None, None, margin, shown, "ns", load.mean_ns)
    return _outcome(name, load, said, shown, load.mean_ns, margin)


def _outcome(name: str, load: Load, said: str, shown: Interval, expected: float, margin: float) -> Outcome:
    outcome = against(shown, expected, margin)
    said += f" (± {micro(margin)} is allowed)"
    return Outcome(name, outcome, said, load.device, None, None, margin, shown, "ns", expected)
