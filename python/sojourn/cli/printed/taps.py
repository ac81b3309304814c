"""`capture …` and `match`: what taps counted, `capture serve`'s protocol, packets between two taps."""

from __future__ import annotations

from sojourn.cli.printed.shared import CLOCK_FINDING, FINDING, READY, REFUSED, SOURCES, VERSION
from sojourn.cli.printed.terms import (
    Printed,
    by_name,
    each,
    either,
    event,
    joined,
    one_of,
    or_null,
    record,
    said,
)

KEY = one_of("bridge", "router", "nat", "vlan", "tunnel")

OPTIONS = record(
    filter=said("Empty: none was asked for, or it would tell addresses.", "string"),
    snap=said("Octets that are kept of a frame; 0: all.", "integer"),
    headers="boolean",
    rotate_size=said("Octets.", "integer?"),
    rotate_time=said("ns", "integer?"),
    compress="boolean",
    direction=one_of("in", "out", "both"),
    format=one_of("pcapng", "records", "both"),
    key=KEY,
    source=one_of("best", "hardware", "kernel"),
    tap=said("What copies frames.", one_of("ring", "bpf")),
    ring=said("Octets that were asked for.", "integer"),
    no_promiscuous="boolean",
)

ACCOUNT = record(
    seen="integer",
    accepted="integer",
    dropped=said("By this capture.", "integer"),
    full="integer",
    skipped="integer",
    unread="integer",
    interface=said("What the interface counted; null: not known.", "integer?"),
    difference=said("By how many that is more than passed the tap.", "integer?"),
    conserved="boolean",
)

TAP = record(
    name="string",
    interface="string",
    frames_in="integer",
    frames_out="integer",
    octets_in="integer",
    octets_out="integer",
    fragments="integer",
    super_frames=said("Frames that stand for several on the wire (GRO, GSO).", "integer"),
    cut="integer",
    without_key="integer",
    sources=SOURCES,
    first_ns="integer?",
    last_ns="integer?",
    account=ACCOUNT,
    ring_bytes="integer",
    options=OPTIONS,
)

CAPTURED = record(
    capture=said("The version of this form.", {"const": 1}),
    instrument=VERSION,
    why=one_of("time", "count", "budget", "asked", "gone", "unwritten"),
    started_ns="integer",
    ended_ns="integer",
    processor_time_ns="integer",
    files=each("string"),
    removed=said("How many of the oldest files were removed, as was asked.", "integer"),
    taps=each(TAP),
    findings=each(FINDING),
)

ATTACHED = record(name="string", interface="string", source="string", ring_bytes="integer", options=OPTIONS)

OF_TAPS = either(
    joined(READY, record(filters=said("Whether this machine has libpcap's filters.", "boolean"))),
    event("started", block="integer?", taps=each(ATTACHED)),
    event("counts", block="integer?", seen="integer"),
    joined(event("stopped", block="integer?"), CAPTURED),
    REFUSED,
)

MATCHED_TAP = record(
    name="string",
    interface="string?",
    host="string?",
    packets="integer",
    with_digest="integer",
    without_key="integer",
    too_short="integer",
    truncated="integer",
    fragments="integer",
    super_packets="integer",
    of_other_interfaces="integer",
    stepped_back="integer",
    dropped_by_capture=said("null: nobody counted.", "integer?"),
    skipped=record(untimed="integer", of_other_links="integer", malformed="integer"),
    resolution_ns="integer",
    ended_early=said("Why, where the file ends before its end.", "string?"),
)

COUNTS = record(
    seen_first="integer",
    seen_second="integer",
    matched="integer",
    matched_early="integer",
    matched_at_end="integer",
    ambiguous="integer",
    reordered="integer",
    reordering_extent_max="integer",
    lost="integer",
    lost_at_end="integer",
    evicted="integer",
    pending="integer",
    duplicated="integer",
    judged_early="integer",
    unexpected="integer",
    unexpected_at_start="integer",
)
"""seen_first = matched + lost + pending; seen_second = matched + duplicated + unexpected."""

QUANTILE = record(value="integer", low="integer?", high="integer?")
"""With its 95 % interval of order statistics; null where that has no such end."""

PERCENTILES = record(
    p1_ns_=QUANTILE, p50_ns_=QUANTILE, p90_ns_=QUANTILE, p99_ns_=QUANTILE, p99_9_ns_=QUANTILE, p99_99_ns_=QUANTILE
)
"""The percentiles with enough delays."""

DELAYS = joined(
    record(n="integer", min_ns="integer", mean_ns="number", max_ns="integer", negative="integer"), PERCENTILES
)

SAMPLED = said("Whether percentiles are of a random sample.", "boolean")

SLOPE = record(ns_per_octet="number", low="number?", high="number?", packets="integer")

DIRECTION = one_of("forward", "backward")

MIXED = said("Of the matches: their taps took the time from different sources.", "integer")

WAY = record(
    direction=DIRECTION,
    counts=COUNTS,
    had_window="integer",
    loss_runs="integer",
    lost_fragments="integer",
    lost_super_packets="integer",
    pending_fragments="integer",
    pending_super_packets="integer",
    unexpected_fragments="integer",
    unexpected_super_packets="integer",
    mixed_timestamps=MIXED,
    delay_=joined(DELAYS, record(of=one_of("all", "above the least"), sampled=SAMPLED)),
    delay_unambiguous_=DELAYS,
    slope_=or_null(SLOPE),
)

CLOCKS = either(
    record(relation=one_of("one", "unknown")),
    record(
        relation={"const": "estimated"},
        offset_ns="number?",
        skew_ppb="number?",
        maximum_error_ns="number",
        error95_ns="number",
        exchanges="integer",
        lines="integer",
        steps="integer",
        findings=each(CLOCK_FINDING),
    ),
)

RULE = one_of("all forward", "all backward", "as the taps say", "by who answers whom")

PAIR = record(
    first="string",
    second="string",
    direction_rule=RULE,
    direction_assumed=said("Of how many packets nothing says which way they go.", "integer"),
    aligned_by_ns=said("By how much clocks were brought together; null: not known.", "integer?"),
    clocks=CLOCKS,
    directions=each(WAY),
)

LIVE = joined(
    CAPTURED,
    record(
        outside=said("Packets that passed while taps were attached or detached.", "integer"),
        late=said("Packets shown so late that others were matched before them.", "integer"),
    ),
)

MATCHED = event(
    "matched",
    key=KEY,
    window_ns="integer",
    subtracted_serialisation_bps="integer?",
    taps=each(MATCHED_TAP),
    pairs=each(PAIR),
    live_=said("With --live: what the taps counted.", LIVE),
)

MATCHING = event(
    "matching",
    elapsed_ns="integer",
    taps=each(record(name="string", packets="integer", dropped_by_capture="integer")),
    directions=each(
        record(
            **{"from": "string"},
            direction=DIRECTION,
            to="string",
            matched="integer",
            lost="integer",
            reordered="integer",
            ambiguous="integer",
            unexpected="integer",
            p50_ns="integer?",
            p99_ns="integer?",
        )
    ),
)

ON_SPARK = event(
    "matched",
    engine=record(name={"const": "spark"}, slices="integer", memory_bytes_of_a_slice="integer"),
    key=KEY,
    window_ns="integer",
    taps=each(joined(record(name="string", packets="integer", dropped_by_capture="integer?")) | by_name("integer?")),
    pairs=each(
        joined(
            PAIR,
            record(
                clocks=record(relation=one_of("one", "not_estimated")),
                directions=each(
                    record(
                        direction=DIRECTION,
                        counts=COUNTS,
                        had_window="integer",
                        loss_runs="integer",
                        mixed_timestamps=MIXED,
                        delay_=joined(DELAYS, record(of=one_of("all", "as stamped"), sampled=SAMPLED)),
                    )
                ),
            ),
        )
    ),
)
"""Two taps of a data set; each tap also has the counts of its packets that are not 0."""

PRINTED: Printed = {
    "capture": ("sojourn capture --json", CAPTURED),
    "capture-serve": ("sojourn capture serve, an object a line", OF_TAPS),
    "match": ("sojourn match --json", MATCHED),
    "match-live": ("sojourn match --live --json, an object a line each second on standard error", MATCHING),
    "match-spark": ("sojourn match --engine spark --json", ON_SPARK),
}
