"""What several commands of the instrument print alike: versions, where they run, findings, clocks' lines, summaries."""

from __future__ import annotations

from sojourn.cli.printed.terms import both, each, either, event, joined, kind_of, one_of, record, said
from sojourn.records import FINDINGS

FINDING_NAME = one_of(*FINDINGS)

FINDING = record(name=FINDING_NAME, severity=one_of("note", "doubtful", "invalid"), sentence="string")

VERSION = record(version="string", profile=one_of("release", "debug"))
"""The version of the instrument that measured."""

WAITING = one_of("spin", "sleep-then-spin", "sleep")

PLACE = record(
    wait=WAITING,
    fifo=said("Whether it runs under SCHED_FIFO.", "boolean"),
    nice="integer",
    cpu=said("The CPU that it is pinned to.", "integer?"),
    memory_locked="boolean",
)
"""Where and how a program runs."""

READY = joined(event("ready"), VERSION)
"""The first line of every program that takes requests or is waited for."""

REFUSED = event("error", block="integer?", status=kind_of("integer") | {"enum": [2, 3, 4]}, message="string")
"""The answer to a request that failed; `status` is the exit status that a command would have had."""

SOURCES = {
    "type": "object",
    "propertyNames": {"enum": ["hardware", "kernel", "user", "simulated", "bpf"]},
    "additionalProperties": {"type": "integer"},
    "description": "How many times were stamped by what.",
}

INTERVAL = both("number")

SUMMARY = record(
    n="integer",
    min_ns="integer",
    mean_ns="number",
    p50_ns="integer",
    p90_ns="integer",
    p99_ns=said("The maximum in samples below 100.", "integer"),
    p99_9_ns=said("null in samples below 1,000.", "integer?"),
    p99_99_ns=said("null in samples below 10,000.", "integer?"),
    max_ns="integer",
    sd_ns="number",
)
"""A summary of an exact sample; quantiles by nearest rank."""

CLASSES = said(
    "Middles of classes, ascending, each with how many values it has; a middle is at most 1/64 of a value from it.",
    each(both("integer")),
)

DELAY = either(
    record(constant_ns="integer"),
    record(normal=record(mean_ns="number", sd_ns="number")),
    record(gamma=record(shape="number", scale_ns="number", shift_ns="number")),
    record(pareto=record(scale_ns="number", shape="number")),
)
"""The delay of a simulated line, by its distribution."""

STEP_AT = record(at_ns="integer", by_ns="integer")

CLOCK_FINDING = record(
    finding=one_of("clock_unsynchronised", "clock_stepped", "clock_slewed", "clock_asymmetric"), sentence="string"
)

LINE = record(
    **{"from": said("From when it holds, in ns of the other clock.", "integer")},
    to=said("Until when.", "integer"),
    reference=said("When the offset is as said.", "integer"),
    offset_ns=said("By how much the other clock is ahead.", "number"),
    skew_ppb="number",
    bound_ns=said("The greatest error that can be.", "number"),
    error95_ns="number",
    skew95_ppb="number",
    skew_bound_ppb="number",
    exchanges="integer",
)
"""The straight line of one clock against another."""

STEP = record(
    after=said("Of the exchanges on both sides of a step the last before, in ns of the other clock.", "integer"),
    before=said("And the first behind.", "integer"),
    by_ns="number",
)

KNOWN = record(
    flow="integer",
    peer="string",
    clock_id="integer",
    shared=said("Whether both ends read one clock.", "boolean"),
    exchanges="integer",
    round_trip_min_ns="integer",
    lines=each(LINE),
    steps=each(STEP),
    findings=each(CLOCK_FINDING),
)
"""The knowledge about a receiver's clock."""

UNKNOWN = record(flow="integer", peer="string", problem="string")
"""Why there is no knowledge."""
