"""The width of the headline's interval after each number of sessions, and the finding of a run that ended by it.

Earlier checks are in the run's log. `statistics.stopping` has the rule; `look` is the program that runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.analysis.finding import Finding
from sojourn.analysis.wording import counted, micro, percent
from sojourn.statistics.stopping import FURTHER, LEAST, Look, first_narrow, is_enough, sessions_needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.units import Width

LOOKED, STOPPED = "looked", "stopped"
"""Events of the log: after a session, and where the run ends before all of its sessions are measured."""

NS = "ns"


def earlier(run: Run) -> list[Look]:
    """Return the checks after earlier sessions."""
    events = (one for one in run.log if one.get("event") == LOOKED and one.get("half") is not None)
    return [Look(int(one["sessions"]), float(one["half"]), float(one["target"])) for one in events]


def judged(head: Row | None, asked: Width, before: list[Look]) -> dict[str, Any]:
    """Return the state of the headline's interval, given the earlier checks; a problem where it has none over
    sessions."""
    if head is None:
        return {"problem": "the study has no headline figure so far"}
    if asked.nanos is not None and head.unit != NS:
        return {"refused": f"study.until is a time, but the headline is in {head.unit}: give a share, such as ±5%"}
    value = head.value
    if head.sessions is None or value.longer is None:
        return {"problem": "the headline has no interval over sessions so far"}
    look = Look(head.sessions, value.longer, asked.of(value.estimate))
    looks = [*(one for one in before if one.sessions < look.sessions), look]
    return {
        **look._asdict(),
        "estimate": value.estimate,
        "low": value.low,
        "high": value.high,
        "level": value.level,
        "unit": head.unit,
        "enough": is_enough(looks),
        "needed": sessions_needed(looks, value.level),
        "sentence": f"{in_words(value.estimate, head.unit)} ± {in_words(look.half, head.unit)} "
        f"({percent(value.level)} interval); requested ± {in_words(look.target, head.unit)}",
    }


def in_words(value: float, unit: str) -> str:
    """Return a figure with its unit."""
    return micro(value) if unit == NS else f"{value:.3g} {unit}"


def ended(run: Run) -> Iterator[Finding]:
    """Return a finding if the run ended by its interval, or before its interval was as narrow as requested.

    A run that was only given a time has no finding.
    """
    if not run.study.get("until"):
        return
    stopped = [one for one in run.log if one.get("event") == STOPPED][-1:]
    for event in stopped:
        looks, until = earlier(run), run.study.get("until", "")
        sessions = int(event["sessions"])
        if event.get("by") == "interval":
            first = first_narrow(looks)
            yield Finding(
                "stopped_by_interval",
                f"the run ended after {counted(sessions, 'session')}, because its headline's interval is at most "
                f"{until}: it was checked from {LEAST} sessions on, was narrow enough first after {first}, and again "
                f"after at least {FURTHER} more",
                float(sessions),
            )
            continue
        said = f"; {short_of(looks[-1], until)}" if looks and looks[-1].target else ""
        reason = "no time was left" if event.get("by") == "budget" else "no more sessions were allowed"
        yield Finding(
            "target_not_reached",
            f"the run ended after {counted(sessions, 'session')}, for {reason}{said}",
            float(sessions),
        )


def short_of(last: Look, until: str) -> str:
    """Return what the last interval lacks of one that ends a run."""
    ratio = last.half / last.target
    said = f"the headline's interval is {ratio:.2g} times as wide as requested ({until})"
    if ratio > 1:
        return said
    return (
        f"{said}, but only one after {LEAST} sessions or more counts, and after {FURTHER} more the run would have ended"
    )
