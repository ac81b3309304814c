"""The simulated line of a device, checked key by key before an instrument reads it.

Probes use a line in both directions; streams use a path in one. The meaning of the keys is defined by the instrument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sojourn.plan.source import Given, Table, refuse
from sojourn.plan.types import DRAWN, SWITCHED

Check = Callable[[Any], bool]


def number(value: Any) -> bool:
    """Return whether the value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def probability(value: Any) -> bool:
    """Return whether the value is a number from 0 to 1."""
    return number(value) and 0 <= value <= 1


def whole_number(value: Any) -> bool:
    """Return whether the value is a whole number, not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def table(fields: dict[str, Check]) -> Check:
    """Return a check for a table with exactly these fields."""
    return lambda value: (
        isinstance(value, dict) and value.keys() == fields.keys() and all(fields[key](value[key]) for key in fields)
    )


def some_of(fields: dict[str, Check], *needed: str) -> Check:
    """Return a check for a table with some of these fields; those in `needed` are required."""
    return lambda value: (
        isinstance(value, dict)
        and value.keys() <= fields.keys()
        and set(needed) <= value.keys()
        and all(fields[key](value[key]) for key in value)
    )


DELAYS: dict[str, Check] = {
    "constant_ns": number,
    "normal": table({"mean_ns": number, "sd_ns": number}),
    "gamma": table({"shape": number, "scale_ns": number, "shift_ns": number}),
    "pareto": table({"scale_ns": number, "shape": number}),
}


def delay(value: Any) -> bool:
    """Return whether the value is a distribution of the delay in one direction."""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    (kind, shape) = next(iter(value.items()))
    return kind in DELAYS and DELAYS[kind](shape)


BETWEEN_SESSIONS = "session_sd_ns"
"""The standard deviation of a line's delay between sessions; the conductor draws the delay."""

DRAWN_BY = "session_sd_of"
"""The drawn property of the bed (`bed.hold`) that it belongs to; if that is held, all sessions have the same delay."""

A_DELAY = "a delay such as { constant_ns = 5000 }, { normal = { mean_ns = 5000, sd_ns = 100 } }, a gamma or a pareto"
A_PROBABILITY = "a probability from 0 to 1"
FIELDS: dict[str, tuple[Check, str]] = {
    "forward": (delay, A_DELAY),
    "backward": (delay, A_DELAY),
    "per_byte_ns": (number, "a number of nanoseconds"),
    "loss": (probability, A_PROBABILITY),
    "loss_backward": (probability, A_PROBABILITY),
    "duplicate": (probability, A_PROBABILITY),
    "reorder": (probability, A_PROBABILITY),
    "reorder_ns": (number, "a number of nanoseconds"),
    "drift_ns_per_s": (number, "a number of nanoseconds per second"),
    "hold": (table({"every": whole_number, "for_ns": number}), "{ every = N, for_ns = N }"),
    "ramp": (
        some_of(
            {"every_ns": number, "for_ns": number, "to_ns": number, "nth": whole_number}, "every_ns", "for_ns", "to_ns"
        ),
        "{ every_ns = N, for_ns = N, to_ns = N, nth = N }",
    ),
    "stall": (table({"at_ns": number, "for_ns": number}), "{ at_ns = N, for_ns = N }"),
    "two_modes": (table({"probability": probability, "extra_ns": number}), "{ probability = P, extra_ns = N }"),
    "block_sd_ns": (number, "a number of nanoseconds"),
    "responder_ns": (number, "a number of nanoseconds"),
    BETWEEN_SESSIONS: (number, "a number of nanoseconds"),
    DRAWN_BY: (lambda value: value in (*DRAWN, *SWITCHED), f"one of {', '.join((*DRAWN, *SWITCHED))}"),
    "seed": (whole_number, "a whole number"),
    "clock_step": (table({"at_ns": number, "by_ns": number}), "{ at_ns = N, by_ns = N }"),
    "sender_late": (table({"probability": probability, "by_ns": number}), "{ probability = P, by_ns = N }"),
}


STEP = table({"at_ns": number, "by_ns": number})
LATE = table({"probability": probability, "by_ns": number})
CLOCK = some_of(
    {
        "offset_ns": number,
        "skew_ppm": number,
        "drift_ppm_per_s": number,
        "temperature": table({"amplitude_ppm": number, "period_s": number}),
        "step": STEP,
    }
)
SERIALISER = some_of({"rate_bps": number, "rate_pps": number, "queue_frames": whole_number}, "queue_frames")
PATH_FIELDS: dict[str, tuple[Check, str]] = {
    "delay": (delay, A_DELAY),
    "delay_backward": (delay, A_DELAY),
    "per_byte_ns": (number, "a number of nanoseconds"),
    "serialiser": (
        lambda value: SERIALISER(value) and len(value) == 2,
        "{ rate_bps = N, queue_frames = N } or { rate_pps = N, queue_frames = N }",
    ),
    "loss": (probability, A_PROBABILITY),
    "bursty_loss": (
        some_of(dict.fromkeys("prhk", probability), "p", "r"),
        "{ p = P, r = P, h = P, k = P }, probabilities of going bad, of going good again, and of passing in each",
    ),
    "duplicate": (probability, A_PROBABILITY),
    "reorder": (probability, A_PROBABILITY),
    "reorder_ns": (whole_number, "a whole number of nanoseconds"),
    "corrupt": (probability, A_PROBABILITY),
    "own_drop": (probability, A_PROBABILITY),
    "clocks": (
        some_of({"sender": CLOCK, "receiver": CLOCK, "shared": lambda value: isinstance(value, bool)}),
        "{ sender = { offset_ns = N, skew_ppm = N }, receiver = { … }, shared = false }",
    ),
    "send_ns": (whole_number, "a whole number of nanoseconds"),
    BETWEEN_SESSIONS: (number, "a number of nanoseconds"),
    "sender_late": (LATE, "{ probability = P, by_ns = N }"),
    "seed": (whole_number, "a whole number"),
}


def read_lines(given: Table, *, one_way: bool = False) -> dict[str, dict[str, Any]]:
    """Return the lines of all devices from the keys "bed.lines.<device>.<field>"; paths, if they are for streams."""
    fields, needed = (PATH_FIELDS, ("delay",)) if one_way else (FIELDS, ("forward", "backward"))
    lines: dict[str, dict[str, Any]] = {}
    for key, value in given.items():
        device, _, field = key.removeprefix("bed.lines.").partition(".")
        if field not in fields:
            raise refuse(value, key, one_among(fields))
        check, expected = fields[field]
        if not check(value.value):
            raise refuse(value, key, expected)
        lines.setdefault(device, {})[field] = value.value
    for device, line in lines.items():
        ways = [line[way] for way in (*needed, "delay_backward") if way in line]
        if BETWEEN_SESSIONS in line and any("pareto" in way for way in ways):
            key = f"bed.lines.{device}.{BETWEEN_SESSIONS}"
            raise refuse(given[key], key, "a line whose delays have a place: constant_ns, normal or gamma")
        for field in needed:
            if field not in line:
                raise refuse(first_of(given, device), f"bed.lines.{device}", f"a key {field}: {A_DELAY}")
    return lines


def first_of(given: Table, device: str) -> Given:
    """Return the first value of a device's line."""
    return next(value for key, value in given.items() if key.startswith(f"bed.lines.{device}."))


def one_among(names: Iterable[str]) -> str:
    """Return the text for a choice of keys."""
    return "one of the keys " + ", ".join(names)
