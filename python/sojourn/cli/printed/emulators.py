"""`emulate …`: first and last lines, how it is going, what passed offline, what a replay found."""

from __future__ import annotations

from sojourn.cli.printed.pipes import CONFIG
from sojourn.cli.printed.shared import PLACE, READY, WAITING
from sojourn.cli.printed.terms import Printed, both, each, either, event, joined, kind_of, one_of, or_null, record, said

CAUSES = ("before", "full", "managed", "after", "profile", "rule", "memory", "port", "ended")

COUNTS = record(
    arrived="integer",
    arrived_bytes="integer",
    duplicated="integer",
    sent="integer",
    sent_bytes="integer",
    lost=record(**dict.fromkeys(CAUSES, "integer")),
    marked=said("With congestion experienced.", "integer"),
    corrupted="integer",
    flipped_bits="integer",
    reordered="integer",
    clipped=said("Delays that were below 0 and count as 0.", "integer"),
    most_slots="integer",
    most_bytes="integer",
    most_delayed="integer",
    over_flow_limit="integer",
)

ACCURACY = record(
    count="integer",
    late="integer",
    mean_ns="number",
    min_ns="integer",
    p50_ns="integer",
    p90_ns="integer",
    p99_ns="integer",
    p999_ns="integer",
    max_ns="integer",
)

QUEUEING = record(count="integer", mean_ns="number", p50_ns="integer", p99_ns="integer", max_ns="integer")

LEAST = said(
    "The least time in the queue of any packet that the link took, window by window; null: it took none.",
    record(window_ns="integer", from_ns="integer", least_ns=each(or_null(kind_of("integer")))),
)

SINCE = record(
    at_ns="integer",
    arrived="integer",
    sent="integer",
    sent_bytes="integer",
    lost="integer",
    queueing_delay=QUEUEING,
)

PIPE_REPORT = joined(
    record(name="string"),
    COUNTS,
    record(
        held="integer",
        flows="integer",
        accuracy=said("Departure less intended departure.", ACCURACY),
        queueing_delay=QUEUEING,
        least_waits=or_null(LEAST),
        since_change=or_null(SINCE),
    ),
)

REPORT = record(
    pipes=each(PIPE_REPORT),
    rules=each(record(number="integer", packets="integer", bytes="integer")),
    unmatched=record(forward="integer", backward="integer"),
    lost_by_rules="integer",
    memory=record(
        limit_bytes="integer", taken_bytes="integer", held_bytes="integer", most_bytes="integer", held_frames="integer"
    ),
    budget_ns="integer",
)
"""The engine's report, which knows neither ports nor clocks."""

LOG = record(
    written="integer",
    not_kept=said("Packets that were not to be logged.", "integer"),
    skipped=said("Packets that came too fast for it.", "integer"),
    unwritten="integer",
    stopped=said("Why it ended before its emulator; null: it did not.", "string?"),
)

COMPENSATED = record(path_delay_ns="integer", frames="integer?")

RUNNING = joined(
    record(start_ns="integer", now_ns="integer", tai_ahead_ns="integer"),
    REPORT,
    record(
        ports=each(
            record(
                name="string",
                engine="string",
                received="integer",
                sent="integer",
                refused="integer",
                local_drops="integer",
            )
        ),
        calibration=record(cost_ns="integer", compensation_ns="integer", guard_ns="integer", wait=WAITING),
        said=each("string"),
        urgency=record(fifo="boolean", demotions="integer", idle=one_of("poll", "sleep")),
        compensated=COMPENSATED,
        log_=LOG,
    ),
)

WORDS = each(record(name="string", words="string"))
EXPLAINED = each(record(name="string", words="string", stages=each(record(stage="string", words="string"))))

BEGUN = joined(
    READY,
    PLACE,
    record(
        left="string",
        right="string",
        engine=both("string"),
        wait=WAITING,
        compensated=COMPENSATED,
        control=said("The socket that `emulate set` and `show` ask at.", "string?"),
        log="string?",
        seed="integer",
        pipes=WORDS,
        said=each("string"),
    ),
)

ENDED = event(
    "ended",
    report=RUNNING,
    marks=said("What makes departures doubtful, a sentence each.", each("string")),
    config=CONFIG,
)

KERNEL = {"const": "kernel"}

REPLAYED = event(
    "replayed",
    name="string",
    part="integer",
    identical="boolean",
    is_cut="boolean",
    packets="integer",
    unfinished="integer",
    dispositions=said("How many have another one.", "integer"),
    drawn=said("How many have another delay.", "integer"),
    intended=said("How many have another intended departure.", "integer"),
    first=said("The first packet that differs.", "integer?"),
    departures="integer",
    error_p50_ns="integer",
    error_p99_ns="integer",
    error_p999_ns="integer",
    error_max_ns="integer",
    sentence="string",
)

PRINTED: Printed = {
    "emulate-run": (
        "sojourn emulate run --json, an object a line",
        either(
            BEGUN,
            ENDED,
            joined(READY, record(backend=KERNEL, left="string", right="string", commands=each(each("string")))),
            event("ended", backend=KERNEL),
        ),
    ),
    "emulate-show": ("sojourn emulate show --json", record(ok={"const": True}, report=RUNNING, config=CONFIG)),
    "emulate-set": (
        "sojourn emulate set --json",
        record(
            ports=each("string"),
            at_ns=said("When, on the emulator's clock.", "integer"),
            pipes=said("Those that were changed, as they are now.", WORDS),
        ),
    ),
    "emulate-recover": (
        "sojourn emulate recover --json, an object a line",
        event(
            "recovered",
            name="string",
            part="integer",
            packets=said("Written to the new folder; null: the log ended well, and nothing was written.", "integer?"),
        ),
    ),
    "emulate-kernel": (
        "sojourn emulate kernel --json",
        record(commands=each(each("string")), undo=said("What ends it.", each(each("string")))),
    ),
    "emulate-replay": ("sojourn emulate replay --json, an object a line", REPLAYED),
    "emulate-offline": (
        "sojourn emulate offline --json",
        event(
            "passed",
            frames="integer",
            cut=said("Frames that the capture had not kept whole.", "integer"),
            report=REPORT,
            config=CONFIG,
        ),
    ),
    "emulate-explain": (
        "sojourn emulate explain --json",
        event("config", config=CONFIG, pipes=EXPLAINED, rules=each("string")),
    ),
}
