"""`probe …` and `stamp …`: a block of probes, responders' first and last lines, and the protocol of `probe blocks`."""

from __future__ import annotations

from sojourn.cli.printed.shared import (
    CLASSES,
    DELAY,
    FINDING,
    INTERVAL,
    PLACE,
    READY,
    REFUSED,
    SOURCES,
    STEP_AT,
    SUMMARY,
    VERSION,
    WAITING,
)
from sojourn.cli.printed.terms import Printed, each, either, event, joined, one_of, or_null, record, said

RESPONDS = "sojourn probe respond --json, an object a line"
REFLECTS = "sojourn stamp reflect --json, an object a line"
BLOCKS = "sojourn probe blocks, an object a line"

COUNTS = record(
    sent="integer",
    received="integer",
    lost="integer",
    late=said("Answered after the timeout.", "integer"),
    duplicated="integer",
    reordered="integer",
    unexpected=said("Frames that answer none of these probes.", "integer"),
    local_drops=said("Frames that this machine dropped.", "integer"),
)

SIMULATED_LINE = record(
    forward=DELAY,
    backward=DELAY,
    per_byte_ns="number",
    loss="number",
    loss_backward="number",
    duplicate="number",
    reorder="number",
    reorder_ns="integer",
    drift_ns_per_s="number",
    hold=or_null(record(every="integer", for_ns="integer")),
    ramp=or_null(record(every_ns="integer", for_ns="integer", to_ns="integer", nth="integer")),
    stall=or_null(record(at_ns="integer", for_ns="integer")),
    two_modes=or_null(record(probability="number", extra_ns="integer")),
    block_sd_ns="number",
    responder_ns="integer",
    seed="integer",
    clock_step=or_null(STEP_AT),
    sender_late=or_null(record(probability="number", by_ns="integer")),
)

TARGET = either(
    record(via={"const": "icmp"}, address="string", dev="string?"),
    record(via={"const": "udp"}, address="string", port="integer", dev="string?"),
    record(via={"const": "packet"}, dev="string", mac="string", qdisc_bypass="boolean"),
    record(as_=one_of("icmp", "icmp6", "udp", "udp6", "packet"), via={"const": "sim"}, line=SIMULATED_LINE),
)

DEPARTED = record(a2="number", critical="number", p="number", n="integer", source="string")

REFLECTOR = record(synchronised="boolean", clock_error_ns="integer", ttl_min="integer", ttl_max="integer")

ONE_WAY = record(
    there=SUMMARY,
    back=SUMMARY,
    clock_error_ns=said("By how much both may be wrong, one up and the other down.", "integer"),
    clocks=one_of("shared", "synchronised"),
)

LOSS_BY_DIRECTION = record(there="integer", back="integer", unknown=said("After the last answer.", "integer"))

PROBED = joined(
    PLACE,
    record(
        wait={"enum": [*WAITING["enum"], "simulated"]},
        instrument=VERSION,
        target=TARGET,
        kind=one_of("icmp", "request-response", "ping-pong", "stamp"),
        schedule=one_of("regular", "poisson", "closed-loop"),
        interval_ns="integer",
        timeout_ns="integer",
        count="integer",
        warmup=said("How many of the first are in no figure.", "integer"),
        seed="integer",
        request_payload_bytes="integer",
        response_payload_bytes="integer",
        request_frame_bytes="integer",
        response_frame_bytes="integer",
        clock=one_of("simulated", "TAI"),
        started_ns="integer",
        ended_ns="integer",
        elapsed_ns="integer",
    ),
    COUNTS,
    record(
        loss_ratio_ci95=said("The 95 % interval; null where nothing was sent.", or_null(INTERVAL)),
        rtt=said("From departure to arrival.", or_null(SUMMARY)),
        rtt_intended=said("From the intended departure.", or_null(SUMMARY)),
        rtt_user=said("As the program sees it.", or_null(SUMMARY)),
        pacing_error=said("Departure less intended departure.", or_null(SUMMARY)),
        departure_sources=SOURCES,
        arrival_sources=SOURCES,
        findings=each(FINDING),
        anderson_darling_=said("Of a Poisson schedule: the test of its gaps; null: it could not be made.",
                               or_null(DEPARTED)),
        reflector_=said("Of STAMP alone, as are the next two.", REFLECTOR),
        one_way_=or_null(ONE_WAY),
        loss_by_direction_=or_null(LOSS_BY_DIRECTION),
    ),
)  # fmt: skip

REFUSALS = (
    *("to_group", "source_address", "source_port", "not_allowed", "unexpected", "unauthenticated", "replayed"),
    *("reflected", "sessions", "too_long", "peer_rate", "rate"),
)

POLICY = record(
    allowed=each("string"),
    amplified=each("string"),
    peer_rate=said("Requests a second of each peer; 0: no limit.", "integer"),
    rate="integer",
    authenticated="boolean",
)

PRETENDED = record(offset_ns="integer", skew_ppm="number", since_ns="integer")

RESPONDER = record(
    udp=each("string"),
    raw=each("string"),
    clock=said("The number of this host's clock, as replies carry it.", "integer"),
    pretended_clock=or_null(PRETENDED),
    findings=each(record(finding={"const": "pretended_clock"}, sentence="string")),
)

ENDED = event("end", answered="integer", refused="integer", local_drops="integer", **dict.fromkeys(REFUSALS, "integer"))
"""Each request is in one count: answered, refused by the kernel, or not answered for a reason."""

BLOCK = joined(
    event("block", block="integer"),
    COUNTS,
    record(
        rtt=or_null(SUMMARY),
        rtt_classes=CLASSES,
        elapsed_ns="integer",
        first_arrival_ns=said("Of the first answer, warm-up included; null where none came.", "integer?"),
        last_arrival_ns=said("Of the last one.", "integer?"),
    ),
)

PRINTED: Printed = {
    "probe": ("sojourn probe icmp, probe udp, probe raw, probe sim, stamp send --json", PROBED),
    "probe-respond": (RESPONDS, either(joined(READY, PLACE, RESPONDER, POLICY), ENDED)),
    "stamp-reflect": (
        REFLECTS,
        either(
            joined(READY, PLACE, record(udp=each("string"), numbering=one_of("stateless", "stateful")), POLICY), ENDED
        ),
    ),
    "probe-blocks": (BLOCKS, either(joined(READY, PLACE), BLOCK, REFUSED)),
}
