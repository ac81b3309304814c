"""Flows of one path with different round-trip times, by their ports. Pure.

The emulator delays packets of a port by its `port-delay`, after the queue and the link that the flows share. Each
direction has half of a round-trip time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices import emulator_label
from sojourn.plan.emulators import EVERY
from sojourn.plan.source import refuse
from sojourn.plan.values import Reader, list_of
from sojourn.units import as_duration, nanoseconds

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import EmulatorPlan, Plan

FIRST_PORT = 2_000
"""The first port of the senders: outside the kernel's ephemeral ports, and no port that a trial receives on."""

LONGEST_NS = 2_000_000_000
"""The longest round-trip time: beyond it a handshake is given up."""

MOST = 4
"""The most different round-trip times in a mix."""

WAYS = 2


def spans(mix: str) -> list[int]:
    """Return the round-trip times of a mix such as "20ms+80ms", in ns; empty for an empty mix."""
    return [int(nanoseconds(each) or 0) for each in mix.split("+")] if mix else []


def _read(value: object) -> str | None:
    """Return a mix in its shortest notation; each round-trip time is a whole, even number of ns above 0."""
    if not isinstance(value, str):
        return None
    found = [nanoseconds(each) for each in value.split("+")]
    good = [int(one) for one in found if one is not None and 0 < one <= LONGEST_NS and one % WAYS == 0]
    fits = len(good) == len(found) and 2 <= len(good) <= MOST and len(set(good)) in {1, len(good)}
    return "+".join(map(as_duration, good)) if fits else None


ROUND_TRIPS = list_of(
    Reader(
        _read,
        f'two to {MOST} times of flows in turn, all different or all alike, above 0 and 2 s at most: "20ms+80ms"',
    ),
    may_be_empty=True,
)


def each_group(flows: int, groups: int) -> int:
    """Return the most flows of an algorithm with one round-trip time; flows get them in turn."""
    return -(-flows // groups)


def ports(flows: int, turn: int, turns: int, groups: int) -> list[int]:
    """Return the sending ports of an algorithm's flows: those of one round-trip time are contiguous."""
    own = each_group(flows, groups)
    return [FIRST_PORT + (number % groups) * turns * own + turn * own + number // groups for number in range(flows)]


def with_round_trips(words: str, mix: str, flows: int, turns: int) -> str:
    """Return the configuration string of a pipe whose flows have these round-trip times."""
    own, found = turns * each_group(flows, max(1, len(spans(mix)))), [words]
    for group, span in enumerate(spans(mix)):
        first = FIRST_PORT + group * own
        found.append(f"port-delay {first}-{first + own - 1} {as_duration(span // WAYS)}")
    return " ".join(found).strip()


def words_of(plan: Plan, device: str) -> str:
    """Return the configuration string of an emulator that no factor sets."""
    return _emulator(plan, device).forward or ""


def _emulator(plan: Plan, device: str) -> EmulatorPlan:
    return plan.emulators.get(emulator_label(device) or EVERY, plan.emulators[EVERY])


def check_round_trips(plan: Plan, given: Lookup, fewest: int) -> None:
    """Refuse round-trip times without emulators, or more of them than flows; `fewest`: the flows of an algorithm."""
    own = plan.load
    if not own.round_trips:
        return
    asked = given("load.round_trips", list(own.round_trips))
    if any(emulator_label(device) is None for device in plan.bed.devices):
        raise refuse(asked, "load.round_trips", 'none but where bed.devices has emulators alone: ["emulate"]')
    for device in plan.bed.devices:
        emulator = _emulator(plan, device)
        if emulator.config is not None:
            raise refuse(asked, "load.round_trips", "none beside emulate.config: its pipes are set before each trial")
        if emulator.forward != emulator.backward and not own.pipe:
            raise refuse(asked, "load.round_trips", "none beside emulate.forward and emulate.backward: give words")
    most = max(len(spans(mix)) for mix in own.round_trips)
    if fewest < most:
        name = "load.scenario" if own.scenario else "load.flows"
        asked = given(name, list(own.scenario or own.flows))
        raise refuse(asked, name, f"{most} flows or more: those of an algorithm have the round trips in turn")
