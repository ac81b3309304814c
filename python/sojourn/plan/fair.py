"""The flows that show whether a scheduler is fair: which a verification sends, and how fast, so that all of them wait.

A flow is identified by its DSCP, and by the source port that its socket has. Runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FLOWS = 4
"""So many where every flow has a sub-queue of its own."""


@dataclass(frozen=True, slots=True)
class Flows:
    """What a verification sends at once, each flow at the same rate."""

    marks: tuple[int, ...] = ()
    """The DSCP of each; none: one flow is enough."""
    crowding: float = 1.0
    """So much more than the link carries they must send for each to have more than its share."""
    reasons: tuple[str, ...] = ()


def flows_for(config: dict[str, Any], pipes: list[dict[str, Any]]) -> Flows:
    """Flows into every class of the first pipe, of those that packets may meet, whose scheduler has several."""
    for pipe in pipes:
        queue = pipe.get("queue") or {}
        if is_fair(queue.get("scheduler")) and (pipe.get("link") or {}).get("rate_bps"):
            classes = queue.get("classes") or []
            return into_classes(config, pipe, classes) if classes else into_flows()
    return Flows()


def is_fair(scheduler: object) -> bool:
    """Whether it divides the link among classes or sub-queues: WF2Q+, DRR, FQ-CoDel."""
    name = scheduler if isinstance(scheduler, str) else next(iter(scheduler), "") if isinstance(scheduler, dict) else ""
    return name in ("wf2q", "drr", "fq-codel")


def into_flows() -> Flows:
    """A sub-queue for each flow: equal shares."""
    return Flows(tuple(range(FLOWS)), reasons=(f"{FLOWS} UDP flows at once, each in a sub-queue of its own",))


def into_classes(config: dict[str, Any], pipe: dict[str, Any], classes: list[dict[str, Any]]) -> Flows:
    """A flow for each class that rules give packets to by their DSCP, or that gets what no other rule takes."""
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
    """By class, the DSCP whose packets the rules send into it."""
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
"""What a rule may ask for beside which our packets of UDP are taken, if it asks for them as they are."""

IPV4, UDP = 0x0800, 17


def takes(on: dict[str, Any], mark: int) -> bool:
    """Whether a rule takes every packet of ours that carries this DSCP."""
    wanted = {"direction": ("forward",), "dscp": (mark,), "ethertype": (IPV4,), "protocol": (UDP,)}
    others = (value for key, value in on.items() if key not in ANY)
    return not any(others) and all(on.get(key) is None or on[key] in wanted[key] for key in ANY)
