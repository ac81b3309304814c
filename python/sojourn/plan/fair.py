"""The flows of a verification that test a scheduler's fairness: their DSCP, and a rate at which all of them queue.

A flow is identified by its DSCP, and by the source port of its socket. Runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FLOWS = 4
"""The number of flows if each flow has a sub-queue of its own."""


@dataclass(frozen=True, slots=True)
class Flows:
    """The concurrent flows of a verification, all at the same rate."""

    marks: tuple[int, ...] = ()
    """The DSCP of each flow; if empty, one flow is enough."""
    crowding: float = 1.0
    """The load relative to the link's rate that makes each flow exceed its share."""
    reasons: tuple[str, ...] = ()


def flows_for(config: dict[str, Any], pipes: list[dict[str, Any]]) -> Flows:
    """Return flows into every class of the first pipe with a scheduler of several classes."""
    for pipe in pipes:
        queue = pipe.get("queue") or {}
        if is_fair(queue.get("scheduler")) and (pipe.get("link") or {}).get("rate_bps"):
            classes = queue.get("classes") or []
            return into_classes(config, pipe, classes) if classes else into_flows()
    return Flows()


def is_fair(scheduler: object) -> bool:
    """Return whether it divides the link among classes or sub-queues: WF2Q+, DRR, FQ-CoDel."""
    name = scheduler if isinstance(scheduler, str) else next(iter(scheduler), "") if isinstance(scheduler, dict) else ""
    return name in ("wf2q", "drr", "fq-codel")


def into_flows() -> Flows:
    """Return flows with a sub-queue each: equal shares."""
    return Flows(tuple(range(FLOWS)), reasons=(f"{FLOWS} UDP flows at once, each in a sub-queue of its own",))


def into_classes(config: dict[str, Any], pipe: dict[str, Any], classes: list[dict[str, Any]]) -> Flows:
    """Return a flow for each class that a rule selects by DSCP, or that gets the packets of no other rule."""
    weights = {str(one["name"]): int(one.get("weight") or 1) for one in classes}
    marks = marks_of(config, pipe, list(weights))
    if missing := [name for name in weights if name not in marks]:
        some = "class" if len(missing) == 1 else "classes"
        why = (
            f"fairness is not tested: no test flow gets into the {some} {', '.join(missing)}; a rule with a DSCP "
            "would send one there"
        )
        return Flows(reasons=(why,))
    crowding = len(weights) * max(weights.values()) / sum(weights.values())
    shares = ", ".join(f"{name} (DSCP {marks[name]}, weight {weight})" for name, weight in weights.items())
    why = f"a flow of UDP at once into each class: {shares}"
    return Flows(tuple(marks[name] for name in weights), crowding, (why,))


def marks_of(config: dict[str, Any], pipe: dict[str, Any], names: list[str]) -> dict[str, int]:
    """Return the DSCP, by class, whose packets the rules send into it."""
    rules = sorted(config.get("rules") or [], key=lambda rule: int(rule["number"]))
    rules = [rule for rule in rules if rule.get("action") != "count"]
    asked = {int(dscp) for rule in rules if (dscp := (rule.get("on") or {}).get("dscp")) is not None}
    spare = next((mark for mark in range(64) if mark not in asked), None)
    found: dict[str, int] = {}
    for mark in [*sorted(asked), *([] if spare is None else [spare])]:
        rule = next((rule for rule in rules if takes(rule.get("on") or {}, mark)), None)
        action = rule.get("action") if rule else None
        to = action.get("pipe") if isinstance(action, dict) else None
        if to and to.get("pipe") == pipe.get("name"):
            found.setdefault(to.get("class") or names[0], mark)
    return found


ANY = ("direction", "dscp", "ethertype", "protocol")
"""The conditions of a rule that our UDP packets may meet."""

IPV4, UDP = 0x0800, 17


def takes(on: dict[str, Any], mark: int) -> bool:
    """Return whether a rule matches every packet of ours with this DSCP."""
    wanted = {"direction": ("forward",), "dscp": (mark,), "ethertype": (IPV4,), "protocol": (UDP,)}
    others = (value for key, value in on.items() if key not in ANY)
    return not any(others) and all(on.get(key) is None or on[key] in wanted[key] for key in ANY)
