"""Plans whose sessions go on until the headline's interval is narrow, or until a time is used up.

Such a plan is given the most sessions that are allowed, each of the size that the plan gives a session. A plan has a
number of rounds and of sessions; with `study.until` or `study.budget` these determine the size of a session, and
`bed.most_sessions` the maximum. If a run ends earlier, its plan is written again with the actual sessions, and read as
it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sojourn.plan.section import HOUR_NS
from sojourn.plan.source import Given, refuse

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import Plan

MOST_SESSIONS = 100
"""The default of `bed.most_sessions`."""

MOST_NS = 1000 * HOUR_NS

MOST_ROUNDS = 100_000
"""The maximum of a plan."""


def with_all_sessions(plan: Plan, given: Lookup) -> Plan:
    """Return the plan with its maximum of sessions; unchanged without an interval or a budget."""
    until, budget, most_asked = plan.study.until, plan.study.budget_ns, plan.bed.most_sessions
    if until is None and budget is None:
        if most_asked is not None:
            expected = "study.until or study.budget beside it, which say when sessions end"
            raise refuse(given("bed.most_sessions", most_asked), "bed.most_sessions", expected)
        return plan
    check_sessions(plan, given("study.budget", budget))
    if until is not None:
        check_until(plan, given("study.until", until))
    most = plan.bed.most_sessions or MOST_SESSIONS
    if most == plan.bed.sessions:
        return plan
    if (rounds := rounds_each(plan) * most) > MOST_ROUNDS:
        name, key = rounds_key(plan)
        expected = f"at most {MOST_ROUNDS // rounds_each(plan)} with {rounds_each(plan)} {name}.{key} a session"
        raise refuse(given("bed.most_sessions", most), "bed.most_sessions", expected)
    return of_sessions(plan, most, rounds)


def check_sessions(plan: Plan, given: Given) -> None:
    """Refuse a budget for a method whose rounds cannot be divided over sessions."""
    if plan.study.until is None and not has_sessions(plan):
        own = "at_most of its own section" if plan.ask.limit is not None else "a number of trials"
        expected = f"none for {plan.study.method}, whose rounds are not divided over sessions: {own} limits it"
        raise refuse(given, "study.budget", expected)


def has_sessions(plan: Plan) -> bool:
    """Return whether a run's rounds are divided over its sessions."""
    limit = plan.ask.limit
    return bool(plan.ask.sessions) and limit is not None and limit.rounds is not None


def check_until(plan: Plan, given: Given) -> None:
    """Refuse `study.until` for a method without a single headline figure over sessions."""
    method = plan.study.method
    if not plan.ask.headline or not has_sessions(plan):
        raise refuse(given, "study.until", f"none for {method}, which has no one headline figure over sessions")


def rounds_each(plan: Plan) -> int:
    """Return the rounds of one session."""
    name, key = rounds_key(plan)
    rounds: int = getattr(plan.sections[name], key)
    return max(plan.ask.session_batches, round(rounds / plan.bed.sessions))


def of_sessions(plan: Plan, sessions: int, rounds: int) -> Plan:
    """Return the plan with these sessions and rounds, and a time limit in proportion."""
    name, key = rounds_key(plan)
    own = plan.sections[name]
    changed = {key: rounds}
    if (at_most := getattr(own, "at_most_ns", None)) is not None:
        changed["at_most_ns"] = min(MOST_NS, at_most * sessions // plan.bed.sessions)
    bed = replace(plan.bed, sessions=sessions, most_sessions=sessions)
    return replace(plan.with_section(name, replace(own, **changed)), bed=bed)


def rounds_key(plan: Plan) -> tuple[str, str]:
    """Return the section and the key of the number of rounds."""
    limit = plan.ask.limit
    assert limit is not None and limit.rounds is not None  # noqa: PT018 - `check_until` has seen to it
    return limit.section, limit.rounds
