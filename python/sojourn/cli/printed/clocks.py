"""`clock`, `clock sim`: this host's clocks, what is known of peers' at each look and at the end, simulated ones."""

from __future__ import annotations

from sojourn.cli.printed.shared import CLOCK_FINDING, DELAY, KNOWN, LINE, STEP, STEP_AT, UNKNOWN
from sojourn.cli.printed.terms import Printed, by_name, each, either, event, joined, or_null, record, said

LOCAL = record(
    clock=said("This host's number, as replies carry it.", "integer"),
    clock_source="string?",
    kernel=said(
        "What adjtimex(2) says.",
        or_null(
            record(
                synchronised="boolean",
                status="integer",
                max_error_us="integer",
                estimated_error_us="integer",
                frequency_ppm="number",
                tai_offset_s="integer",
            )
        ),
    ),
    hardware_clocks=each(record(name="string", driver="string?", readable="boolean")),
    daemons=said("Programs that run and steer clocks.", each("string")),
)

NOW = record(
    at_ns="integer",
    offset_ns="number",
    error95_ns="number",
    bound_ns="number",
    skew_ppm="number",
    skew95_ppm="number",
    skew_bound_ppm="number",
)

COUNTED = event("update", peer="string", exchanges="integer", lost="integer", unexpected="integer")

ESTIMATED = record(shared="boolean", round_trip_min_ns="integer", steps="integer", findings=each(CLOCK_FINDING))

AT_THE_END = record(
    lost="integer",
    unexpected=said("Frames that were no replies to requests of ours.", "integer"),
    now=or_null(NOW),
    problem_=said("Why exchanges ended early.", "string"),
)

FORGOTTEN = record(
    exchanges="integer",
    steps="integer",
    largest_step_ns="number",
    findings=each(CLOCK_FINDING["properties"]["finding"]),
)


def without_flow(known: dict[str, dict[str, object]]) -> dict[str, object]:
    """Return the knowledge about a peer, without the number of a flow."""
    members = {name: kind for name, kind in known["properties"].items() if name != "flow"}
    return {**known, "properties": members, "required": list(members)}


PEERS = either(
    joined(
        without_flow(KNOWN),
        AT_THE_END,
        record(forgotten_=said("Of exchanges that are held no more: lines, steps and findings are of the others.",
                               FORGOTTEN)),
    ),
    joined(without_flow(UNKNOWN), AT_THE_END, record(problem="string", exchanges_="integer",
                                                     round_trip_min_ns_="integer?", forgotten_=FORGOTTEN)),
)  # fmt: skip

TRUTH = record(
    offset_ns="number",
    skew_ppm="number",
    drift_ppm_per_s="number",
    temperature=or_null(record(amplitude_ppm="number", period_s="number")),
    slew=or_null(record(at_ns="integer", for_ns="integer", ppm="number", returns="boolean")),
    step=or_null(STEP_AT),
    forward=DELAY,
    backward=DELAY,
    load_grows="number",
    longer=or_null(STEP_AT),
    responder_ns="integer",
    interval_ns="integer",
    count="integer",
    seed="integer",
)

ESTIMATE = record(
    is_shared="boolean",
    lines=each(LINE),
    steps=each(STEP),
    findings=each(CLOCK_FINDING),
    exchanges="integer",
    round_trip_min=said("ns", "integer"),
    limits=record(skew_ppm="number", drift_ppm_per_s="number", slew_ppm="number", asymmetry_share="number"),
)

POINT = record(
    share=said("Where in the time of all exchanges, from 0 to 1.", "number"),
    truth_ns="number",
    offset_ns="number",
    error_ns="number",
    error95_ns="number",
    bound_ns="number",
    within_error95="boolean",
    within_bound="boolean",
)

PRINTED: Printed = {
    "clock": (
        "sojourn clock --json, an object a line",
        either(
            event("local", local=LOCAL),
            COUNTED,
            joined(COUNTED, NOW, ESTIMATED),
            event("summary", peers=each(PEERS)),
        ),
    ),
    "clock-sim": (
        "sojourn clock sim --json",
        either(
            event("simulated", truth=TRUTH, estimate=ESTIMATE, points=each(POINT)),
            event(
                "repeated",
                estimates="integer",
                points="integer",
                beyond_bound="integer",
                within_error95=said("The share of points; null: there were none.", "number?"),
                mean_error_ns="number?",
                findings=by_name("integer"),
            ),
        ),
    ),
}
