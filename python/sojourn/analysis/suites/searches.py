"""The searches of a run: every step with its counts from the records, and the bounds computed from them.

A search is one test on one device at one frame size. The log has the trials of each search, the records what each trial
sent and received. Bounds are recomputed from these (`statistics.bounds`); the conductor's result is only compared.
Counted but not judged: trials whose sender missed its load, aliveness checks of a few frames, and in a binary search a
loss that its verification did not repeat. Local drops are not losses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.errors import RequestError
from sojourn.statistics.bounds import SAME_LOAD, Bounds, Goal, Trial, loose_bounds, relevant_bounds, verified
from sojourn.units import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.analysis.run import Run

MISSED = 0.005
"""A trial whose load deviates by more than this share is not judged."""

ALIVE_FRAMES = 100
"""A step of at most this many frames only checks that the path is alive."""

Judged = tuple[Trial, "Step"]
"""A judged trial, and its step."""


@dataclass(frozen=True, slots=True)
class Step:
    """One trial of a search. `load` is in frames per second, or the length of a burst in frames."""

    block: int
    load: float
    duration_s: float
    sent: int
    lost: int
    local_drops: int
    pace_pps: float
    asked: float
    """The configured load, where the sender fell evenly short of it; else equal to `load`."""
    verdict: str
    """used, missed (its load), repeated (and so not judged), alive (an aliveness check)."""

    @property
    def loss_ratio(self) -> float:
        """Lost and damaged frames over frames sent; 1 where none was sent."""
        return self.lost / self.sent if self.sent else 1.0


@dataclass(frozen=True, slots=True)
class Search:
    """One search: its test, its steps in order, and the conductor's conclusion for each goal."""

    number: int
    test: str
    algorithm: str
    device: str
    engine: str
    frame_bytes: int
    repetition: int
    steps: list[Step]
    results: list[dict[str, Any]]
    session: int = 0
    """The part of the run, and so the bed, of the search."""
    link: int = 1
    """The link of the device's kind that it used: 1 or 2."""

    @property
    def used(self) -> list[Step]:
        """The steps that count."""
        return [one for one in self.steps if one.verdict == "used"]

    @property
    def extra(self) -> dict[str, Any]:
        """What the conductor recorded besides its bounds."""
        return dict(self.results[-1].get("extra") or {}) if self.results else {}

    @property
    def sentence(self) -> str | None:
        """The reason why there is no result, or what limits it."""
        return next((str(one["sentence"]) for one in self.results if one.get("sentence")), None)

    def cut_short(self, goal: float) -> bool:
        """Return whether the time was up before the search for a goal was done."""
        return bool((self.claimed(goal) or {}).get("cut_short"))

    def claimed(self, goal: float) -> dict[str, Any] | None:
        """Return the conductor's result for a goal."""
        return next((one for one in self.results if one.get("goal") == goal), None)


@dataclass(frozen=True, slots=True)
class Terms:
    """The search settings of the plan."""

    goals: tuple[float, ...]
    final_s: float
    duration_sum_s: float
    exceed_ratio: float
    verify_loss: bool

    def goal(self, loss_ratio: float, algorithm: str) -> Goal:
        """Return a goal as its algorithm judges it: with a goal of 0, or in a binary search, no trial may miss it."""
        allowed = 0.0 if loss_ratio == 0 or algorithm == "binary" else self.exceed_ratio
        return Goal(loss_ratio, self.final_s, self.duration_sum_s, allowed)


def terms_of(run: Run) -> Terms:
    """Return the plan's [search] settings, with defaults."""
    asked = run.plan.get("search", {})
    final = seconds_of(asked.get("duration", "60s"))
    return Terms(
        tuple(float(one) for one in asked.get("goals", (0.0, 0.005))),
        final,
        seconds_of(asked["duration_sum"]) if "duration_sum" in asked else final,
        float(asked.get("exceed_ratio", 0.5)),
        bool(asked.get("verify_loss", True)),
    )


def seconds_of(duration: str) -> float:
    """Return a duration of a plan in seconds: "1500us", "60s"."""
    nanos = nanoseconds(duration)
    if nanos is None:
        raise RequestError(f"[search] of the run's plan: {duration} is no time with a unit, such as 60s")
    return float(nanos) / 1e9


def searches_of(run: Run) -> list[Search]:
    """Return every search in the run's log, in order."""
    counts = {int(row["block"]): row for row in _counts(run).iter_rows(named=True)}
    found = told_of(run.log)
    return [_search(run, number, found[number], counts) for number in sorted(found)]


@dataclass(slots=True)
class Told:
    """The log's events of one search, of the last part that made it: an interrupted search starts again."""

    part: int
    steps: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


def told_of(log: Iterable[dict[str, Any]]) -> dict[int, Told]:
    """Return the events of every search, by its number."""
    found: dict[int, Told] = {}
    part = 0
    for event in log:
        kind = event.get("event")
        if kind == "started":
            part = int(event.get("part") or 0)
        elif kind in ("search-step", "search-result"):
            one = found.setdefault(int(event["search"]), Told(part))
            if one.part != part:
                one = found[int(event["search"])] = Told(part)
            (one.steps if kind == "search-step" else one.results).append(event)
    return found


def _search(run: Run, number: int, of: Told, counts: dict[int, dict[str, Any]]) -> Search:
    told, results = of.steps, of.results
    head = (told or results)[0]
    steps = [_step(run, event, counts.get(int(event["block"]))) for event in told]
    algorithm = str(head.get("algorithm") or "mlrsearch")
    first = run.trial_events.get(int(told[0]["block"]), {}) if told else {}
    engine = str((first.get("engines") or {}).get("send") or first.get("factors", {}).get("engine") or "auto")
    return Search(
        number,
        str(head["test"]),
        algorithm,
        str(head["device"]),
        engine,
        int(head["frame_bytes"]),
        int(head.get("repetition", 0)),
        steps,
        results,
        of.part,
        int((results or told)[0].get("link", 1)),
    )


def _step(run: Run, event: dict[str, Any], counted: dict[str, Any] | None) -> Step:
    """Return a step with its counts from the records; where they have none, from the log."""
    load = float(event.get("frames") or event.get("rate_pps") or 0.0)
    sent, first = int(event.get("sent") or 0), int(event.get("received") or 0)
    local_drops, pace, off = 0, float(event.get("rate_pps") or 0.0), 0.0
    if counted is not None:
        sent, first, local_drops = (int(counted[name] or 0) for name in ("sent", "first", "local_drops"))
        pace = float(counted["achieved_pps"] or 0.0)
        asked = float(event.get("rate_pps") or 0.0)
        off = abs(pace / asked - 1) if asked and pace else 0.0
    trial = run.trial_events.get(int(event["block"]), {})
    verdict = "used"
    if not trial.get("kept", True):
        verdict = "repeated"
    elif event.get("missed") or off > MISSED:
        verdict = "missed"
    elif "frames" not in event and load * float(event.get("duration_s") or 0.0) <= ALIVE_FRAMES + 0.5:
        verdict = "alive"
    duration = float(event.get("duration_s") or 0.0)
    return Step(
        int(event["block"]),
        load,
        duration,
        sent,
        max(0, sent - first - local_drops),
        local_drops,
        pace,
        max(load, float(event.get("asked_pps") or 0.0)),
        verdict,
    )


def _trial(step: Step, goal: float) -> Trial:
    """Return the trial of a step: a sender that fell short offered `load` if the goal was kept, else count `asked`.

    Fast senders do not report the course of a short trial: it may have run at the configured rate for a part of it.
    """
    return Trial(step.load if step.loss_ratio <= goal else step.asked, step.duration_s, step.loss_ratio)


def _counts(run: Run) -> pl.DataFrame:
    """Return frames sent, and received at the measured port, of every block that is not background."""
    schema = {
        "block": pl.Int32,
        "sent": pl.Int64,
        "achieved_pps": pl.Float64,
        "first": pl.Int64,
        "local_drops": pl.Int64,
    }
    if "purpose" not in run.streams.columns:
        return pl.DataFrame(schema=schema)
    own = run.streams.filter(pl.col("purpose") != "load")
    sent = own.filter(pl.col("role") == "send").group_by("block").agg(pl.col("sent", "achieved_pps").sum())
    received = (
        own.filter(pl.col("role") == "receive", pl.col("port") == 0)
        .group_by("block")
        .agg(pl.col("first", "local_drops").sum())
    )
    return sent.join(received, on="block", how="inner").select(list(schema))


def bounds_of(search: Search, terms: Terms, loss_ratio: float) -> Bounds:
    """Return the bounds of a goal from the steps that count; for a search that was cut short, from single steps."""
    judged, _ = _judged(search, terms, loss_ratio)
    trials, goal = [trial for trial, _ in judged], terms.goal(loss_ratio, search.algorithm)
    bounds = relevant_bounds(trials, goal)
    if not search.cut_short(loss_ratio):
        return bounds
    if bounds.lower is None:
        return loose_bounds(trials, goal)
    missed = (one.load for one in trials if one.loss_ratio > loss_ratio and one.load > (bounds.lower or 0.0))
    return bounds if bounds.upper is not None else replace(bounds, upper=min(missed, default=None))


@dataclass(frozen=True, slots=True)
class Decision:
    """The trials that a lower bound rests on."""

    trials: int
    """The number of trials of the plan's final duration."""
    frames: int
    """Frames sent in all of them."""
    seconds: float
    offered_off: float
    """The largest relative deviation of the offered rate from the nominal one."""


def decision_of(search: Search, terms: Terms, loss_ratio: float, lower: float) -> Decision:
    """Return the trials at the lower bound's load that count for a goal."""
    judged, _ = _judged(search, terms, loss_ratio)
    at = [step for trial, step in judged if abs(trial.load - lower) <= SAME_LOAD * lower]
    long = [step for step in at if step.duration_s >= terms.final_s - 1e-9]
    several = long or at
    return Decision(
        len(long),
        sum(step.sent for step in several),
        sum(step.duration_s for step in several),
        max((abs(step.pace_pps / step.load - 1) for step in several if step.pace_pps and step.load), default=0.0),
    )


def unverified(search: Search, terms: Terms) -> list[Step]:
    """Return the steps whose loss exceeds the strictest goal, but did not recur when the load was repeated."""
    _, aside = _judged(search, terms, min(terms.goals, default=0.0))
    return [step for _, step in aside]


def _judged(search: Search, terms: Terms, loss_ratio: float) -> tuple[list[Judged], list[Judged]]:
    """Return the steps that count for a goal, and those that do not; MLRsearch has its exceed ratio instead."""
    pairs = [(_trial(one, loss_ratio), one) for one in search.used]
    if search.algorithm != "binary":
        return pairs, []
    pairs = _halving_of(pairs, terms.goals, loss_ratio)
    if not terms.verify_loss:
        return pairs, []
    kept, _ = verified([trial for trial, _ in pairs], loss_ratio)
    counts = {id(one) for one in kept}
    return [one for one in pairs if id(one[0]) in counts], [one for one in pairs if id(one[0]) not in counts]


def _halving_of(pairs: list[Judged], goals: tuple[float, ...], loss_ratio: float) -> list[Judged]:
    """Return the steps of one goal: a binary search takes one goal after the other, each from the highest load. All, if
    unclear."""
    if not pairs or loss_ratio not in goals:
        return pairs
    highest = pairs[0][0].load
    loads = [trial.load for trial, _ in pairs]
    begins = [i for i, load in enumerate(loads) if load == highest and (i == 0 or loads[i - 1] != highest)]
    if len(begins) != len(goals):
        return pairs
    place = goals.index(loss_ratio)
    return pairs[begins[place] : [*begins, len(pairs)][place + 1]]


def burst_bounds(search: Search) -> tuple[int | None, int | None]:
    """Return the longest burst that at least half the trials passed without loss, below the shortest that fewer
    passed."""
    lengths: dict[int, list[bool]] = {}
    for one in search.used:
        lengths.setdefault(int(one.load), []).append(one.lost == 0)
    holds = {frames: sum(whole) * 2 >= len(whole) for frames, whole in lengths.items()}
    upper = min((frames for frames, held in holds.items() if not held), default=None)
    below = [frames for frames, held in holds.items() if held and (upper is None or frames < upper)]
    return max(below, default=None), upper


def lesson_bounds(lessons: Iterable[dict[str, Any]], load: str) -> tuple[float | None, float | None]:
    """Return the largest number or rate at which all addresses were learned, below the smallest at which some
    were not."""
    told = [(float(one[load]), int(one["learned"]) >= int(one["count"])) for one in lessons if one.get(load)]
    upper = min((at for at, learned in told if not learned), default=None)
    below = [at for at, learned in told if learned and (upper is None or at < upper)]
    return max(below, default=None), upper
