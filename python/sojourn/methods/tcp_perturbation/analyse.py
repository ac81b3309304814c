"""Method "tcp-perturbation": does the log of TCP's state change the behaviour of TCP?

In each round every cell is measured without the log, without it again, and with it, in a random order, over the same
path and from the same seed. The application reads TCP_INFO at fixed times; these readings give window, round-trip time,
delivery rate and throughput of each trial. The unit is the trial, because readings within one depend on each other.
Distributions are compared over flips of whole rounds (`statistics.permutation`), summaries by Hodges and Lehmann's
estimate over rounds with its exact interval. The control, twice without the log, is tested in the same way and shows
which differences the run can detect.

Of a run of several sessions a figure is the mean over rounds, with an interval and a p over sessions (Student's t, or
REML where sessions have unequal numbers of rounds): what the log changes may differ from bed to bed. Flips of whole
rounds test that it changes nothing at all on these beds, which is true of each round if it is true.

A change is significant where its q-value says so (signed-rank tests, false discovery rate over all changes of a
setting) and its interval, at the level for figures chosen that way, does not hold zero. Of a distribution that differs
without any such change the sentence says only that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding
from sojourn.analysis.rows import Row
from sojourn.analysis.samples import Sample
from sojourn.analysis.sessions import beds_counted, beds_in, by_session, figure_of, middle
from sojourn.analysis.study import Study
from sojourn.analysis.surroundings import contended
from sojourn.analysis.tcp_trials import Done, by_cell, interrupted, trials_of, unwrapped
from sojourn.analysis.wording import percent
from sojourn.records import read_table
from sojourn.records.events import LONG_FLOWS
from sojourn.records.shape import require
from sojourn.statistics.discovery import benjamini_hochberg, selected_level, signed_rank_p
from sojourn.statistics.interval import Interval, student_quantile
from sojourn.statistics.permutation import Apart, apart, holm, least_p, paired_p
from sojourn.statistics.signed_rank import hodges_lehmann
from sojourn.units import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

OFF, AGAIN, ON = "off", "off again", "on"
ALARM = 0.05
"""The probability that a run reports a difference with the log, or of the control, where there is none."""

POWER = 0.8
LEAST_ROUNDS = 4

OBSERVABLES = {
    "snd_cwnd": ("congestion window", "segments"),
    "srtt_us": ("smoothed round-trip time", "us"),
    "delivery_rate_bps": ("delivery rate", "bit/s"),
    "throughput_bps": ("throughput", "bit/s"),
    "retransmitted": ("retransmitted segments", "1/s"),
    "window_collapses": ("collapses of the congestion window", "1/s"),
}
"""What the application observes, with name and unit; the last three have one value for each trial."""

COLLAPSED = 2
"""The size in segments of a collapsed window: one after a retransmission timeout, two when that is acknowledged."""

CHANGES = 9
"""The number of figures of a cell: two statistics of each series, and one of each other observable."""

SERIES = ("snd_cwnd", "srtt_us", "delivery_rate_bps")
STATISTICS = ("median", "p95")
COLUMNS = ("block", "role", "why", "connection", "read_after_ns", "acked_bytes", "total_retrans", *SERIES)

CELL = {"cell": (pl.String, "The cell, in words.")}
OBSERVABLE = {"observable": (pl.String, f"What the application observes: {', '.join(OBSERVABLES)}.")}
SETTING = {"setting": (pl.String, "off, off again (without the log), on (with it).")}
EFFECTS = Sample(
    "A statistic of an observable in a cell: a setting against off.",
    {
        **CELL,
        "against": (pl.String, "The setting: on, or off again, the control."),
        **OBSERVABLE,
        "statistic": (pl.String, "Which statistic of a trial: median, p95."),
        "without": (pl.Float64, "Its median without the log."),
        "unit": (pl.String, "The unit of that."),
        "change": (pl.Float64, "The difference, relative to it."),
        "low": (pl.Float64, "The lower end of its interval."),
        "high": (pl.Float64, "The upper end of its interval."),
        "q": (pl.Float64, "Its q-value among all effects of this setting."),
        "smallest": (pl.Float64, "The smallest relative change that four of five such runs would detect."),
        "kolmogorov": (pl.Float64, "Kolmogorov's distance of the distributions; null for one value a trial."),
        "kolmogorov_p": (pl.Float64, "Its p over flips of whole rounds."),
        "energy": (pl.Float64, "The energy distance of the distributions, in `unit`."),
        "p": (pl.Float64, "The p of the energy distance, or of the difference of single values."),
        "p_adjusted": (pl.Float64, "That p, adjusted for the number of tests (Holm)."),
        "rounds": (pl.Int64, "Rounds with both settings."),
    },
)
DISTRIBUTIONS = Sample(
    "A point of the distribution of an observable: the mean of the trials' quantiles.",
    {
        **CELL,
        **SETTING,
        **OBSERVABLE,
        "share": (pl.Float64, "The share of values below."),
        "value": (pl.Float64, "The quantile, in the unit of the observable."),
    },
)
SUMMARIES = Sample(
    "An observable of a trial.",
    {
        **CELL,
        **SETTING,
        "round": (pl.Int64, "The round."),
        **OBSERVABLE,
        "value": (pl.Float64, "Its median, or its only value, in the unit of the observable."),
    },
)
SAMPLES = {"effects": EFFECTS, "distributions": DISTRIBUTIONS, "summaries": SUMMARIES}


@dataclass(frozen=True, slots=True)
class Seen:
    """The readings of one trial: series at fixed times after its start, and its totals."""

    series: dict[str, NDArray[np.float64]]
    single: dict[str, float]

    def summary(self, name: str, statistic: str) -> float:
        """Return one value for the trial."""
        if name in self.single:
            return self.single[name]
        return float(np.median(self.series[name]) if statistic == "median" else np.quantile(self.series[name], 0.95))


@dataclass
class Compared:
    """One observable of one cell under two settings, round by round."""

    cell: str
    name: str
    against: str
    """on, or off again: the setting that is compared with off."""
    rounds: int
    distance: Apart | None
    p: float
    effects: dict[str, Interval] = field(default_factory=dict)
    """The difference over rounds by statistic, relative to the median without the log."""
    level: dict[str, float] = field(default_factory=dict)
    """The median without the log, by statistic."""
    least: dict[str, float] = field(default_factory=dict)
    """The smallest relative change that would be detected in four of five such runs, by statistic."""
    differences: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The relative difference of each round, by statistic."""
    session: NDArray[np.int64] | None = None
    """The session of each round; None where the run has one bed."""
    adjusted: float = 1.0
    q_values: dict[str, float] = field(default_factory=dict)
    """The q-value of the effect among all effects of this pair of settings, by statistic."""
    chosen_level: float = 1 - ALARM
    """The level of the interval of an effect that is reported because it is significant."""

    @property
    def sessions(self) -> int | None:
        """The number of beds; None where the run has one."""
        return None if self.session is None else beds_counted(self.session)

    def over(self, statistic: str, level: float = 0.95) -> Interval:
        """Return the effect: the pseudomedian of one bed's rounds, or the mean over several beds; none is below -1."""
        values = self.differences[statistic]
        found = hodges_lehmann(values, level) if self.session is None else middle(values, self.session, level)
        is_beyond = found.low is not None and found.low < -1 <= found.estimate
        return replace(found, low=-1.0) if is_beyond else found

    def p_of(self, statistic: str) -> float:
        """Return the p-value of a zero effect; 1 where it is unknown."""
        values = self.differences[statistic]
        if self.session is None or self.sessions is None:
            return signed_rank_p(values)
        p = figure_of(values, self.session).p
        return 1.0 if p is None else p

    @property
    def differs(self) -> bool:
        """Whether the difference is significant, over all tests of this pair of settings together."""
        return self.adjusted < ALARM

    @property
    def changes(self) -> list[Change]:
        """The effects that are significant, with intervals that exclude zero."""
        found = [
            Change(
                self.cell,
                self.name,
                statistic,
                self.over(statistic, self.chosen_level),
                q,
                f" over {self.sessions} beds" if self.sessions else "",
            )
            for statistic, q in self.q_values.items()
            if q <= ALARM
        ]
        return [one for one in found if one.value.excludes(0)]


@dataclass(frozen=True, slots=True)
class Change:
    """A significant effect; the level of its interval is adjusted because the figure was selected as significant."""

    cell: str
    name: str
    statistic: str
    value: Interval
    q: float
    beds: str = ""
    """A phrase with the number of beds, for the sentence."""


def study(run: Run) -> Study:
    """Return every observable of every cell, with the log and in its control."""
    several = trials_of(run, "perturbation")
    for one in several:
        require(one.connections, LONG_FLOWS, f"{run.folder.log}: connections of trial {one.block}")
    readings = read_table(run.folder.records, "tcp_readings", {one.block for one in several}, COLUMNS).frame
    readings = unwrapped(readings)
    skip_ns = float(nanoseconds(run.plan.get("perturbation", {}).get("skip", "0s")) or 0)
    seen = {one.block: found for one in several if (found := seen_of(readings, one, skip_ns)) is not None}
    cells = by_cell(several)
    compared = [one for cell in cells for one in compare(cell, seen, len(cells) * CHANGES)]
    adjust(compared)
    rows = [row for one in compared for row in rows_of(one)]
    samples = {"effects": _effects(compared), **_drawn(several, seen)}
    doubts = [*interrupted(run), *contended(run), *_findings(compared)]
    return Study(rows, doubts, sentence(compared), samples=samples)


def adjust(compared: Sequence[Compared]) -> None:
    """Adjust each setting's tests for multiplicity: distributions by Holm, effects by their false discovery rate."""
    for against in (ON, AGAIN):
        own = [one for one in compared if one.against == against]
        for one, chance in zip(own, holm([one.p for one in own]), strict=True):
            one.adjusted = chance
        effects = [(one, statistic) for one in own for statistic in one.effects]
        if not effects:
            continue
        q = benjamini_hochberg(np.array([one.p_of(statistic) for one, statistic in effects]))
        for (one, statistic), value in zip(effects, q, strict=True):
            one.q_values[statistic], one.chosen_level = float(value), selected_level(q, ALARM)


def seen_of(readings: pl.DataFrame, one: Done, skip_ns: float) -> Seen | None:
    """Return the application's readings of one trial, after its beginning; None where there are too few."""
    own = readings.filter((pl.col("block") == one.block) & (pl.col("role") == "send") & (pl.col("why") == "time"))
    start = one.connections[0]["started_ns"]
    own = own.filter(pl.col("part") == pl.col("part").max()) if own.height else own
    own = own.filter(pl.col("read_after_ns") >= start + skip_ns).sort("read_after_ns")
    own = own.filter(pl.col("read_after_ns") <= start + _sending_ns(one))
    if own.height < 10:
        return None
    took_s = (own["read_after_ns"][-1] - own["read_after_ns"][0]) / 1e9
    bits = 8.0 * (own["acked_bytes"][-1] - own["acked_bytes"][0])
    again = own["total_retrans"][-1] - own["total_retrans"][0]
    series = {name: own[name].drop_nulls().cast(pl.Float64).to_numpy() for name in SERIES}
    fallen = collapses(series["snd_cwnd"])
    single = {"throughput_bps": bits, "retransmitted": float(again), "window_collapses": float(fallen)}
    return Seen(series, {name: value / took_s for name, value in single.items()})


def collapses(windows: NDArray[np.float64]) -> int:
    """Return how often the window fell to COLLAPSED segments or fewer; consecutive such readings count once."""
    small = windows <= COLLAPSED
    return int(np.count_nonzero(small[1:] & ~small[:-1]))


def _sending_ns(one: Done) -> int:
    """Return how long the trial sent; after that it only waits for the last acknowledgements."""
    connection = one.connections[0]
    return int(connection["ended_ns"] - connection["started_ns"])


def compare(cell: Sequence[Done], seen: dict[int, Seen], questions: int = 1) -> list[Compared]:
    """Return the comparisons of "on" and of "off again" with "off"; each is one of `questions` tests."""
    turns: dict[tuple[int, int], dict[str, Seen]] = {}
    for one in cell:
        if one.block in seen:
            turns.setdefault((one.session, one.round), {})[one.setting] = seen[one.block]
    found = []
    for against in (ON, AGAIN):
        rounds = {at: turn for at, turn in sorted(turns.items()) if OFF in turn and against in turn}
        if len(rounds) >= LEAST_ROUNDS:
            pairs = [(turn[OFF], turn[against]) for turn in rounds.values()]
            session = np.array([at for at, _ in rounds], dtype=np.int64)
            own = session if beds_in(session) else None
            found += [_compared(cell[0].label, name, against, pairs, questions, own) for name in OBSERVABLES]
    return found


def _compared(
    cell: str,
    name: str,
    against: str,
    pairs: Sequence[tuple[Seen, Seen]],
    questions: int,
    session: NDArray[np.int64] | None = None,
) -> Compared:
    distance = None
    if name in SERIES:
        distance = apart([other.series[name] for _, other in pairs], [plain.series[name] for plain, _ in pairs])
    means = np.array([[one.summary(name, "median") for one in pair] for pair in pairs])
    p = distance.energy_p if distance is not None else paired_p(means[:, 1] - means[:, 0])
    found = Compared(cell, name, against, len(pairs), distance, p, session=session)
    for statistic in STATISTICS if name in SERIES else ("median",):
        values = np.array([[one.summary(name, statistic) for one in pair] for pair in pairs])
        level = float(np.median(values[:, 0])) or usual(values[:, 0], session)
        differences = (values[:, 1] - values[:, 0]) / (abs(level) or 1.0)
        found.differences[statistic] = differences
        found.effects[statistic] = found.over(statistic)
        found.level[statistic] = level
        units = differences if session is None else by_session(differences, session)
        found.least[statistic] = smallest(units, questions)
    return found


def usual(values: NDArray[np.float64], session: NDArray[np.int64] | None) -> float:
    """Return the mean of values that are zero in most trials: each bed counts once, as in an effect."""
    return float(np.mean(values if session is None else by_session(values, session)))


def smallest(differences: NDArray[np.float64], questions: int = 1) -> float:
    """Return the effect that four of five such runs would detect, as one of `questions` tests (Holm's first step)."""
    n = len(differences)
    reach = student_quantile(n - 1, 1 - ALARM / questions) + student_quantile(n - 1, 2 * POWER - 1)
    return float(reach * np.std(differences, ddof=1) / n**0.5)


def rows_of(one: Compared) -> list[Row]:
    """Return effects with their intervals, and distances with their adjusted p-values."""
    reference = OFF
    rows = [
        Row(one.against, f"{one.name}_change", statistic, value, "ratio", reference=reference, against=one.cell,
            clock="TAI", source="user", q_value=one.q_values.get(statistic), sessions=one.sessions)
        for statistic, value in one.effects.items()
    ]  # fmt: skip
    if one.distance is not None:
        distances = (("kolmogorov", one.distance.kolmogorov, "1"),
                     ("energy", one.distance.energy, OBSERVABLES[one.name][1]))  # fmt: skip
        rows += [
            Row(one.against, f"{one.name}_distance", name, Interval(value, None, None, 0.95, one.rounds), unit,
                reference=reference, against=one.cell, clock="TAI", source="user", q_value=one.adjusted)
            for name, value, unit in distances
        ]  # fmt: skip
    return rows


def _effects(compared: Sequence[Compared]) -> pl.DataFrame:
    """Return all comparisons as a table."""
    rows = [
        {
            "cell": one.cell,
            "against": one.against,
            "observable": one.name,
            "statistic": statistic,
            "without": one.level[statistic],
            "unit": OBSERVABLES[one.name][1],
            "change": value.estimate,
            "low": value.low,
            "high": value.high,
            "q": one.q_values.get(statistic),
            "smallest": one.least[statistic],
            "kolmogorov": one.distance.kolmogorov if one.distance else None,
            "kolmogorov_p": one.distance.kolmogorov_p if one.distance else None,
            "energy": one.distance.energy if one.distance else None,
            "p": one.p,
            "p_adjusted": one.adjusted,
            "rounds": one.rounds,
        }
        for one in compared
        for statistic, value in one.effects.items()
    ]
    return pl.DataFrame(rows, schema=EFFECTS.own)


POINTS = 101


def _drawn(several: Sequence[Done], seen: dict[int, Seen]) -> dict[str, pl.DataFrame]:
    """Return distributions of each cell and setting, as averages of trials' quantiles, and the values of each trial."""
    shares = np.linspace(0, 1, POINTS)
    curves, trials = [], []
    for cell in by_cell(several):
        for setting in (OFF, AGAIN, ON):
            own = [seen[one.block] for one in cell if one.setting == setting and one.block in seen]
            for name in SERIES if own else ():
                mean = np.mean([np.quantile(one.series[name], shares) for one in own], axis=0)
                curves += [
                    {"cell": cell[0].label, "setting": setting, "observable": name, "share": share, "value": value}
                    for share, value in zip(shares.tolist(), mean.tolist(), strict=True)
                ]
        trials += [
            {"cell": one.label, "setting": one.setting, "round": one.round, "observable": name,
             "value": seen[one.block].summary(name, "median")}
            for one in cell if one.block in seen for name in OBSERVABLES
        ]  # fmt: skip
    return {
        "distributions": pl.DataFrame(curves, schema=DISTRIBUTIONS.own),
        "summaries": pl.DataFrame(trials, schema=SUMMARIES.own),
    }


def _findings(compared: Sequence[Compared]) -> list[Finding]:
    """Return findings: the control differs, or there are too few rounds to detect anything."""
    found = []
    wrong = [one for one in compared if one.against == AGAIN and one.differs]
    if wrong:
        what = OBSERVABLES[wrong[0].name][0]
        said = (
            f"the control differs significantly: the {what} of connections without the log differs between two "
            f"measurements (p {wrong[0].adjusted:.2g})"
        )
        found.append(Finding("a_a_nonzero", said, wrong[0].adjusted))
    rounds = min((one.rounds for one in compared), default=0)
    asked = sum(len(one.effects) for one in compared if one.against == ON)
    if not compared or least_p(rounds) * asked > ALARM:
        said = f"{rounds} rounds are too few to detect any difference with {asked} tests"
        found.append(Finding("too_few_pairs", said, float(rounds)))
    return found


def sentence(compared: Sequence[Compared]) -> str:
    """Return whether TCP behaves differently with the log, and how small a difference would be detected."""
    own = [one for one in compared if one.against == ON]
    if not own:
        return "Too little was measured to test whether the log changes the behaviour of TCP"
    control = [one for one in compared if one.against == AGAIN]
    checked = ""
    if control:
        does = (
            "differs too"
            if any(one.differs for one in control)
            else "does not differ (p adjusted for the number of tests)"
        )
        checked = f"; the control (two measurements without the log) {does}"
    changes = sorted((change for one in own for change in one.changes), key=lambda one: one.q)
    if changes:
        said = f"With the log TCP behaves differently: its {_changed(changes[0])}"
        several = sum(len(one.effects) for one in own)
        said += f" (and {len(changes) - 1} more of {several} figures)" if len(changes) > 1 else ""
        return said + checked
    return f"With the log {_unchanged(own)}: {_limits(own)}{checked}"


def _changed(one: Change) -> str:
    what = OBSERVABLES[one.name][0] + ("" if one.statistic == "median" or one.name not in SERIES else " (p95)")
    low, high = (percent(end or 0.0) for end in (one.value.low, one.value.high))
    between = (
        f"{percent(one.value.level)} CI {low} to {high}{one.beds}, adjusted because this figure was selected as "
        "significant"
    )
    return f"{what} changes by {percent(one.value.estimate)} ({one.cell}; q {one.q:.2g}, {between})"


def _unchanged(own: Sequence[Compared]) -> str:
    """Return a phrase for no significant change of a figure; a distribution may differ nevertheless."""
    differ = sorted((one for one in own if one.differs), key=lambda one: one.adjusted)
    if not differ:
        return "no change is detected"
    what = f"the distribution of the {OBSERVABLES[differ[0].name][0]} differs ({differ[0].cell}; adjusted p "
    return f"no change of a figure is significant, though {what}{differ[0].adjusted:.2g})"


def _limits(own: Sequence[Compared]) -> str:
    """Return the change, its interval and the smallest detectable change of the three most important observables."""
    parts = []
    for name in ("throughput_bps", "snd_cwnd", "srtt_us"):
        several = [one for one in own if one.name == name]
        if several:
            worst = max(several, key=lambda one: one.least["median"])
            effect = worst.effects["median"]
            change = f"{percent(effect.estimate)}"
            if effect.low is not None and effect.high is not None:
                change += f" ({percent(effect.low)} to {percent(effect.high)})"
            seen = percent(worst.least["median"])
            parts.append(f"{OBSERVABLES[name][0]} {change}, where changes below {seen} would not be detected")
    return "; ".join(parts)
