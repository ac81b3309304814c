"""The samples that the figures of suites draw. The schemas here are their columns."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

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

RATES_SCHEMA: dict[str, Any] = {
    "device": pl.String,
    "engine": pl.String,
    "frame_bytes": pl.Int64,
    "quantity": pl.String,
    "goal": pl.Float64,
    "algorithm": pl.String,
    "pps": pl.Float64,
    "ci_low_pps": pl.Float64,
    "ci_high_pps": pl.Float64,
    "upper_pps": pl.Float64,
    "conditional_pps": pl.Float64,
    "bps": pl.Float64,
    "tester_pps": pl.Float64,
    "tester_limited": pl.Boolean,
    "below": pl.Boolean,
    "repetitions": pl.Int64,
    "sessions": pl.Int64,
    "trials": pl.Int64,
    "frames": pl.Int64,
    "seconds": pl.Float64,
    "offered_off": pl.Float64,
    "resolution_pps": pl.Float64,
    "offered_pps": pl.Float64,
    "finite_trial_pps": pl.Float64,
    "unseen_loss": pl.Float64,
    "unseen_events": pl.Float64,
}
"""`pps` is the lower bound, `upper_pps` the lowest load that failed. `trials`, `frames` and `seconds` are those that
decided the lower bound, of the repetition with the fewest; `offered_off` is the largest relative deviation of their
offered rate from the nominal one. The remaining columns are those of `effects`.
"""
SEARCHES_SCHEMA: dict[str, Any] = {
    "search": pl.Int64,
    "test": pl.String,
    "algorithm": pl.String,
    "device": pl.String,
    "engine": pl.String,
    "frame_bytes": pl.Int64,
    "repetition": pl.Int64,
    "session": pl.Int64,
    "goal": pl.Float64,
    "lower": pl.Float64,
    "upper": pl.Float64,
    "conditional": pl.Float64,
    "claimed_lower": pl.Float64,
    "claimed_upper": pl.Float64,
    "steps": pl.Int64,
    "used": pl.Int64,
    "unverified": pl.Int64,
}
STEPS_SCHEMA: dict[str, Any] = {
    "search": pl.Int64,
    "test": pl.String,
    "device": pl.String,
    "frame_bytes": pl.Int64,
    "repetition": pl.Int64,
    "step": pl.Int64,
    "block": pl.Int64,
    "load": pl.Float64,
    "duration_s": pl.Float64,
    "sent": pl.Int64,
    "lost": pl.Int64,
    "local_drops": pl.Int64,
    "loss_ratio": pl.Float64,
    "verdict": pl.String,
}
LOSS_SCHEMA: dict[str, Any] = {
    "device": pl.String,
    "engine": pl.String,
    "frame_bytes": pl.Int64,
    "offered_pps": pl.Float64,
    "rate_share": pl.Float64,
    "loss_ratio": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "trials": pl.Int64,
}
LATENCY_SCHEMA: dict[str, Any] = {
    "device": pl.String,
    "engine": pl.String,
    "frame_bytes": pl.Int64,
    "test": pl.String,
    "repetition": pl.Int64,
    "block": pl.Int64,
    "frames": pl.Int64,
    "lost": pl.Int64,
    "min_ns": pl.Float64,
    "mean_ns": pl.Float64,
    "p50_ns": pl.Float64,
    "p99_ns": pl.Float64,
    "p99_9_ns": pl.Float64,
    "pdv_ns": pl.Float64,
}
BURSTS_SCHEMA: dict[str, Any] = {
    "device": pl.String,
    "frame_bytes": pl.Int64,
    "repetition": pl.Int64,
    "frames": pl.Int64,
    "lost": pl.Int64,
    "pace_pps": pl.Float64,
}
LESSONS_SCHEMA: dict[str, Any] = {
    "test": pl.String,
    "device": pl.String,
    "repetition": pl.Int64,
    "addresses": pl.Int64,
    "sent_pps": pl.Float64,
    "learned": pl.Int64,
}
MISSING_SCHEMA: dict[str, Any] = {
    "test": pl.String,
    "device": pl.String,
    "frame_bytes": pl.Int64,
    "goal": pl.Float64,
    "why": pl.String,
}


DEVIATIONS_SCHEMA: dict[str, Any] = {"rfc": pl.String, "section": pl.String, "sentence": pl.String}


def suite_samples(
    searches: list[Search], terms: Terms, sought: list[Sought], timed: list[Timed], cells: dict[int, Factors]
) -> dict[str, pl.DataFrame]:
    return {
        "suite_rates": _frame(
            [_rate_sample(one, cells) | _effects(one, searches, terms, cells) for one in sought], RATES_SCHEMA
        ),
        "searches": _frame(list(_search_samples(searches, terms)), SEARCHES_SCHEMA),
        "search_steps": _frame(list(_step_samples(searches)), STEPS_SCHEMA),
        "loss_curve": _frame(list(loss_curve(searches)), LOSS_SCHEMA),
        "latency_trials": _frame([_latency_sample(one) for one in timed], LATENCY_SCHEMA),
        "bursts": _frame(list(_burst_samples(searches)), BURSTS_SCHEMA),
        "lessons": _frame(list(_lesson_samples(searches)), LESSONS_SCHEMA),
        "not_measured": _frame(list(_missing_samples(searches)), MISSING_SCHEMA),
    }


def deviation_samples(found: list[Deviation]) -> dict[str, pl.DataFrame]:
    """Return the sample of the run's deviations from its RFC."""
    return {"deviations": _frame([asdict(one) for one in found], DEVIATIONS_SCHEMA)}


def _frame(rows: list[dict[str, Any]], schema: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


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
