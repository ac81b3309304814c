"""`stream …`: what was sent and what arrived, of streams by hand, simulated, and asked for line by line."""

from __future__ import annotations

from sojourn.cli.printed.shared import (
    CLASSES,
    FINDING,
    INTERVAL,
    KNOWN,
    PLACE,
    READY,
    REFUSED,
    SOURCES,
    UNKNOWN,
    VERSION,
)
from sojourn.cli.printed.terms import Printed, each, either, event, joined, one_of, or_null, record, said

UNEXPECTED = record(
    foreign="integer", packets="integer", exchanges="integer", ends="integer", greetings="integer", to_group="integer"
)

CLOCKS = each(either(KNOWN, UNKNOWN))

QUANTILES = record(
    n="integer",
    min_ns="integer",
    mean_ns="number",
    max_ns="integer",
    p50_ns_=said("A quantile that falls among lost packets is null.", "integer?"),
    p90_ns_=said("Of ten values at least.", "integer?"),
    p99_ns_=said("Of 100.", "integer?"),
    p99_9_ns_=said("Of 1,000.", "integer?"),
)

SENT = record(
    flow="integer",
    asked="integer",
    sent="integer",
    next=said("The number after the highest that was given.", "integer"),
    refused=said("By this machine.", "integer"),
    unsent="integer",
    asked_pps=said("0: a flood.", "number"),
    intended_pps="number",
    achieved_pps="number",
    pacing_error_ns=record(p50="integer?", p99="integer?", max="integer?", min="integer?"),
    departures_by=one_of("stamps", "calls"),
    within_1us=said("The share of departures; null: live frames, whose errors nobody sees one by one.", "number?"),
    within_10us="number?",
    anderson_darling=or_null(record(a2="number", p="number", n="integer")),
    first_ns="integer?",
    last_ns="integer?",
)

RECEIVED = record(
    flow="integer",
    port="integer",
    node=said("Whose answers these are; 0: the stream itself.", "integer"),
    first=said("Packets that arrived whole, each once.", "integer"),
    duplicated="integer",
    reordered="integer",
    late="integer",
    corrupted="integer",
    unexpected="integer",
    local_drops="integer",
    lost="integer",
    excess=said("More than the sender says it sent: 0 unless one of the two is wrong.", "integer"),
    achieved_pps="number",
    throughput_bps="number",
    first_ns="integer?",
    last_ns="integer?",
)

ARRIVED = joined(
    RECEIVED,
    record(
        delay_ns=said(
            "By two clocks, without their error; a quantile that falls among lost packets is null.",
            or_null(record(min="integer", p50="integer?", p99="integer?", max="integer", mean="number")),
        ),
        delay_classes=CLASSES,
    ),
)

ONE_WAY = record(
    clock=record(
        source=one_of("shared", "exchanges"),
        bound_ns="number",
        error95_ns="number",
        offset_ns="number",
        skew_ppb="number",
    ),
    from_send_call=QUANTILES,
    from_intended=or_null(QUANTILES),
    pdv=QUANTILES,
    negative=said("How many arrived before they left.", "integer"),
    from_departure=said("By the sender's kernel timestamps.", or_null(record(mean_ns="number"))),
    sent_early=record(n="integer", most_ns="integer"),
)

TIMES = record(
    one_way_delay=said("null: the clocks are not known, or nothing arrived.", or_null(ONE_WAY)),
    ipdv=or_null(QUANTILES),
    inter_arrival=or_null(QUANTILES),
    loss_ratio_ci95=or_null(INTERVAL),
)

RUNS = each(record(least="integer", most="integer", count="integer"))

PORT = record(
    port="integer",
    frames="integer",
    unexpected="integer",
    unexpected_of=UNEXPECTED,
    local_drops="integer",
    control="integer",
    unanswered=said(
        "Packets that --answer left out: from another address than the sender's, shorter than the answer, or too many.",
        "integer",
    ),
)

BY_HAND_SENT = joined(
    SENT,
    record(
        to="string",
        engine="string",
        schedule="string",
        frame_bytes="integer",
        payload_bytes="integer",
        pacing_error=or_null(QUANTILES),
        inter_departure=or_null(QUANTILES),
    ),
)

BY_HAND_RECEIVED = joined(
    RECEIVED,
    TIMES,
    record(
        dev="string?",
        **{"from": said("Where the sender greeted from.", "string?")},
        sent=said("As the sender says; null: it did not say that it was done.", "integer?"),
        frame_bytes="integer",
        payload_bytes="integer",
        loss_runs=RUNS,
        gap_runs=RUNS,
        loss_ratio="number?",
    ),
)

SPAN = record(started_ns="integer", ended_ns="integer", processor_time_ns="integer")

SEND = joined(
    record(instrument=VERSION, flows=each(BY_HAND_SENT), receiver_heard_the_end="boolean", clock=CLOCKS),
    SPAN,
    record(departure_sources=SOURCES, unexpected="integer", unexpected_of=UNEXPECTED, findings=each(FINDING)),
    PLACE,
)

RECEIVE = joined(
    record(
        instrument=VERSION,
        engines=each("string"),
        flows=each(BY_HAND_RECEIVED),
        ports=each(PORT),
        not_kept=said("Frames that are counted, and for whose rows there was no room.", "integer"),
    ),
    SPAN,
    record(arrival_sources=SOURCES, findings=each(FINDING)),
    PLACE,
)

SIMULATE = record(
    instrument=VERSION,
    frame_bytes="integer",
    sent=each(SENT),
    received=each(joined(RECEIVED, TIMES)),
    clock=CLOCKS,
    findings=each(FINDING),
)

ANSWERS = either(
    joined(READY, PLACE),
    event(
        "receiving",
        block="integer",
        ports=each(record(port="integer", engine="string", dev="string?", via="string")),
    ),
    event("counted", block="integer", arrived="integer"),
    event("received", block="integer", flows=each(ARRIVED), ports=each(PORT), not_kept="integer", stepped="boolean"),
    event(
        "sent",
        block="integer",
        flows=each(SENT),
        not_kept="integer",
        unexpected="integer",
        unexpected_of=UNEXPECTED,
        clock=or_null(CLOCKS),
        answers_=each(ARRIVED),
    ),
    event(
        "simulated",
        block="integer",
        sent=each(SENT),
        received=each(ARRIVED),
        clock=or_null(CLOCKS),
        stepped="boolean",
    ),
    REFUSED,
)

PRINTED: Printed = {
    "stream-send": ("sojourn stream send --json", SEND),
    "stream-recv": ("sojourn stream recv --json", RECEIVE),
    "stream-sim": ("sojourn stream sim --json", SIMULATE),
    "stream-serve": ("sojourn stream serve, an object a line", ANSWERS),
}
