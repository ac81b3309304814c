"""The samples that the figures of suites draw."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.samples import Columns, Sample, shared
from sojourn.analysis.suites.effects import effects_of
from sojourn.analysis.suites.latency import WORST, Timed
from sojourn.analysis.suites.limits import loss_curve
from sojourn.analysis.suites.searches import Search, Terms, bounds_of, unverified

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.suites import Sought
    from sojourn.analysis.suites.deviations import Deviation

SEARCHED = ("throughput", "broadcast-forwarding")

OF_TRIAL = {
    **shared("device engine frame_bytes"),
    "test": (pl.String, "The test: throughput, frame-loss, back-to-back, ..."),
    "repetition": (pl.Int64, "The repetition of the search."),
    "block": (pl.Int64, "The number of the trial, as in records/."),
    "search": (pl.Int64, "The number of the search."),
    "algorithm": (pl.String, "How loads were chosen: binary, mlrsearch."),
    "goal": (pl.Float64, "The largest loss ratio that passes."),
    "session": (pl.Int64, "The part of the run, and so the bed."),
    "sent": (pl.Int64, "Frames sent."),
    "lost": (pl.Int64, "Frames lost."),
    "frames": (pl.Int64, "Frames sent."),
    "loss_ratio": (pl.Float64, "Lost and damaged frames over frames sent."),
}


def _of_trial(names: str) -> Columns:
    return {name: OF_TRIAL[name] for name in names.split()}


RATES = Sample(
    "A rate: what was searched for over a device at a size, with one goal, by one algorithm.",
    {
        **shared("device engine frame_bytes quantity"),
        **_of_trial("goal algorithm"),
        "pps": (pl.Float64, "The rate: the mean of the lower bounds."),
        "ci_low_pps": (pl.Float64, "The interval's lower end; null without one."),
        "ci_high_pps": (pl.Float64, "The interval's upper end; null without one."),
        "upper_pps": (pl.Float64, "The lowest load that failed; null where the tester was the limit."),
        "conditional_pps": (pl.Float64, "The conditional throughput (MLRsearch); null without one."),
        "bps": (pl.Float64, "The rate in bits of frames with FCS a second."),
        "tester_pps": (pl.Float64, "The tester zero-loss rate; null where it was not qualified."),
        "tester_limited": (pl.Boolean, "Whether the tester was the limit."),
        "below": (pl.Boolean, "Whether every load of every repetition lost too much."),
        "repetitions": (pl.Int64, "How many searches there were."),
        "sessions": (pl.Int64, "Over how many beds the figure is; null: of one."),
        "trials": (pl.Int64, "Trials that decided the lower bound, of the repetition with the fewest."),
        "frames": (pl.Int64, "Frames of those trials, likewise."),
        "seconds": (pl.Float64, "Duration of those trials in s, likewise."),
        "offered_off": (pl.Float64, "The largest relative deviation of their offered rate from the nominal one."),
        "resolution_pps": (pl.Float64, "Standard uncertainty: the true rate lies between the bounds."),
        "offered_pps": (pl.Float64, "Standard uncertainty: the tolerance of the offered rate."),
        "finite_trial_pps": (pl.Float64, "A bias: the excess due to the trial's duration; null: buffer not measured."),
        "unseen_loss": (pl.Float64, "The largest loss ratio that passes with a probability of 5 %, for a goal of 0."),
        "unseen_events": (pl.Float64, "The same for events of loss, in 1/s."),
    },
)
SEARCHES = Sample(
    "A search and a goal; rates are in frames a second.",
    {
        **_of_trial("search test algorithm device engine frame_bytes repetition session goal"),
        "lower": (pl.Float64, "The highest load that kept the goal; null: none."),
        "upper": (pl.Float64, "The lowest load that failed; null: none."),
        "conditional": (pl.Float64, "The conditional throughput; null without one."),
        "claimed_lower": (pl.Float64, "The lower bound that the search itself recorded."),
        "claimed_upper": (pl.Float64, "The upper bound that the search itself recorded."),
        "steps": (pl.Int64, "Its trials."),
        "used": (pl.Int64, "Trials that count."),
        "unverified": (pl.Int64, "Trials whose loss did not recur when the load was repeated."),
    },
)
STEPS = Sample(
    "A trial of a search, in order.",
    {
        **_of_trial("search test device frame_bytes repetition"),
        "step": (pl.Int64, "Its place in the search, from 0."),
        **_of_trial("block"),
        "load": (pl.Float64, "The load in frames a second, or the length of a burst in frames."),
        "duration_s": (pl.Float64, "Its duration."),
        **_of_trial("sent lost"),
        "local_drops": (pl.Int64, "Frames that the receiver's own socket, ring or queue dropped."),
        **_of_trial("loss_ratio"),
        "verdict": (pl.String, "used, missed (its load), repeated (and so not judged), alive (an aliveness check)."),
    },
)
LOSS = Sample(
    "The loss ratio at a share of the highest rate.",
    {
        **shared("device engine frame_bytes"),
        "offered_pps": (pl.Float64, "The offered rate."),
        "rate_share": (pl.Float64, "That rate over the highest."),
        **_of_trial("loss_ratio"),
        **shared("ci_low ci_high trials"),
    },
)
LATENCY = Sample(
    "A trial of latency.",
    {
        **_of_trial("device engine frame_bytes test repetition block frames lost"),
        "min_ns": (pl.Float64, "The least delay."),
        "mean_ns": (pl.Float64, "The mean of the delays."),
        "p50_ns": (pl.Float64, "The median of the delays."),
        "p99_ns": (pl.Float64, "Their 99th percentile; null: infinite, since so many frames were lost."),
        "p99_9_ns": (pl.Float64, "Their 99.9th percentile, likewise."),
        "pdv_ns": (pl.Float64, "Their variation: the 99.9th percentile less the least (RFC 8219)."),
    },
)
BURSTS = Sample(
    "A burst of the back-to-back test.",
    {
        **_of_trial("device frame_bytes repetition frames lost"),
        "pace_pps": (pl.Float64, "The packet rate within the burst."),
    },
)
LESSONS = Sample(
    "A trial of address learning or caching.",
    {
        **_of_trial("test device repetition"),
        "addresses": (pl.Int64, "Addresses that were taught."),
        "sent_pps": (pl.Float64, "The rate at which they were taught."),
        "learned": (pl.Int64, "Addresses that the device had learned."),
    },
)
MISSING = Sample(
    "A search without a result, or with a limit only.",
    {**_of_trial("test device frame_bytes goal"), "why": (pl.String, "The reason, as a sentence.")},
)
DEVIATIONS = Sample(
    "A deviation of the run from its RFC.",
    {
        "rfc": (pl.String, "The RFC."),
        "section": (pl.String, "Its section."),
        "sentence": (pl.String, "What deviates."),
    },
)
SUITE = {
    "suite_rates": RATES,
    "searches": SEARCHES,
    "search_steps": STEPS,
    "loss_curve": LOSS,
    "latency_trials": LATENCY,
    "bursts": BURSTS,
    "lessons": LESSONS,
    "not_measured": MISSING,
    "deviations": DEVIATIONS,
}


def suite_samples(
    searches: list[Search], terms: Terms, sought: list[Sought], timed: list[Timed], cells: dict[int, Factors]
) -> dict[str, pl.DataFrame]:
    return {
        "suite_rates": _frame(
            [_rate_sample(one, cells) | _effects(one, searches, terms, cells) for one in sought], RATES
        ),
        "searches": _frame(list(_search_samples(searches, terms)), SEARCHES),
        "search_steps": _frame(list(_step_samples(searches)), STEPS),
        "loss_curve": _frame(list(loss_curve(searches)), LOSS),
        "latency_trials": _frame([_latency_sample(one) for one in timed], LATENCY),
        "bursts": _frame(list(_burst_samples(searches)), BURSTS),
        "lessons": _frame(list(_lesson_samples(searches)), LESSONS),
        "not_measured": _frame(list(_missing_samples(searches)), MISSING),
    }


def deviation_samples(found: list[Deviation]) -> dict[str, pl.DataFrame]:
    """Return the sample of the run's deviations from its RFC."""
    return {"deviations": _frame([asdict(one) for one in found], DEVIATIONS)}


def _frame(rows: list[dict[str, Any]], sample: Sample) -> pl.DataFrame:
    return pl.DataFrame([{name: row.get(name) for name in sample.own} for row in rows], schema=sample.own)


def _head(search: Search) -> dict[str, Any]:
    names = ("test", "algorithm", "device", "engine", "frame_bytes", "repetition", "session")
    return {"search": search.number, **{name: getattr(search, name) for name in names}}


def _rate_sample(sought: Sought, cells: dict[int, Factors]) -> dict[str, Any]:
    factors = cells[sought.cell]
    limited, below = sought.is_tester_limited, sought.is_below
    found = sought.rate() if len(sought.lowers) and not limited and not below else None
    rate = None if found is None else found.mean
    pps = sought.highest_lower if rate is None else rate.estimate
    conditional, decisions = sought.conditionals, sought.decisions
    return {
        "device": sought.device,
        "engine": factors.engine,
        "frame_bytes": factors.frame_bytes,
        "quantity": sought.quantity,
        "goal": sought.goal,
        "algorithm": sought.algorithm,
        "pps": pps,
        "ci_low_pps": None if rate is None else rate.low,
        "ci_high_pps": None if rate is None else rate.high,
        "upper_pps": float(np.mean(sought.uppers)) if len(sought.uppers) and not limited else None,
        "conditional_pps": None if rate is None or not len(conditional) else float(np.mean(conditional)),
        "bps": None if pps is None else pps * 8 * (factors.frame_bytes or 0),
        "tester_pps": sought.tester_pps,
        "tester_limited": limited,
        "below": below,
        "repetitions": len(sought.bounds),
        "sessions": None if found is None else found.sessions,
        "trials": sought.trials,
        "frames": min((one.frames for one in decisions), default=0),
        "seconds": min((one.seconds for one in decisions), default=0.0),
        "offered_off": max((one.offered_off for one in decisions), default=None),
    }


def _effects(sought: Sought, searches: list[Search], terms: Terms, cells: dict[int, Factors]) -> dict[str, Any]:
    found = effects_of(sought, searches, terms, {factors: number for number, factors in cells.items()})
    return {} if found is None else asdict(found)


def _search_samples(searches: list[Search], terms: Terms) -> Iterator[dict[str, Any]]:
    for search in searches:
        counts = {"steps": len(search.steps), "used": len(search.used), "unverified": len(unverified(search, terms))}
        for goal in terms.goals if search.test in SEARCHED else ():
            bounds, claimed = bounds_of(search, terms, goal), search.claimed(goal) or {}
            found = {"lower": bounds.lower, "upper": bounds.upper, "conditional": bounds.conditional}
            told = {"claimed_lower": claimed.get("lower_pps"), "claimed_upper": claimed.get("upper_pps")}
            yield {**_head(search), "goal": goal, **found, **told, **counts}


def _step_samples(searches: list[Search]) -> Iterator[dict[str, Any]]:
    names = ("block", "load", "duration_s", "sent", "lost", "local_drops", "loss_ratio", "verdict")
    for search in searches:
        for number, step in enumerate(search.steps):
            yield {**_head(search), "step": number, **{name: getattr(step, name) for name in names}}


def _latency_sample(timed: Timed) -> dict[str, Any]:
    quantiles = {"p50_ns": 0.5, "p99_ns": 0.99, "p99_9_ns": WORST}
    found = {name: _finite(timed.quantile(q)) for name, q in quantiles.items()}
    least = float(timed.values[0])
    times = {"min_ns": least, "mean_ns": timed.mean, **found, "pdv_ns": _finite(timed.pdv)}
    return {**_head(timed.search), "block": timed.block, "frames": timed.frames, "lost": timed.lost, **times}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _burst_samples(searches: list[Search]) -> Iterator[dict[str, Any]]:
    for search in searches:
        for step in search.used if search.test == "back-to-back" else ():
            yield {**_head(search), "frames": int(step.load), "lost": step.lost, "pace_pps": step.pace_pps}


def _lesson_samples(searches: list[Search]) -> Iterator[dict[str, Any]]:
    for search in searches:
        for one in search.extra.get("lessons") or ():
            told = {"addresses": one.get("count"), "sent_pps": one.get("sent_pps"), "learned": one.get("learned")}
            yield {**_head(search), **told}


def _missing_samples(searches: list[Search]) -> Iterator[dict[str, Any]]:
    """Return the searches without a result, or with a limit only, and the reasons."""
    for search in searches:
        for one in search.results:
            if one.get("sentence"):
                yield {**_head(search), "goal": one.get("goal"), "why": str(one["sentence"])}
