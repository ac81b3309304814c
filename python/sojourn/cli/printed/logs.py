"""`tcplog …`: the account of a log that runs or has ended, flows, the protocol of `tcplog serve`, summaries."""

from __future__ import annotations

import json
from importlib import resources

from sojourn.cli.printed.shared import READY, REFUSED
from sojourn.cli.printed.terms import (
    Printed,
    Schema,
    by_name,
    each,
    either,
    event,
    joined,
    kind_of,
    one_of,
    or_null,
    record,
    said,
)
from sojourn.export.summary import COUNTERS, LIMITS
from sojourn.export.summary_pairs import ENDS
from sojourn.export.summary_samples import KINDS

DISPOSITIONS = (
    *("seen", "logged", "decimated", "unchanged", "early", "filtered", "full", "no-socket", "no-state", "control"),
    *("unparsed", "no-room", "late", "forgotten", "broken"),
)

BY_DISPOSITION = by_name("integer", *DISPOSITIONS)

TOTALS = record(
    **{"in": BY_DISPOSITION}, out=BY_DISPOSITION, segments=record(**{"in": BY_DISPOSITION}, out=BY_DISPOSITION)
)
"""Packets by direction and by disposition: `seen` is the sum of the others."""

OPTIONS = record(
    enabled="boolean",
    ppl=said("One of so many is logged.", "integer"),
    ppl_by="string",
    sample="string",
    on_change=each("string"),
    min_interval_ns="integer",
    private=said("Every so many samples, private state; 0: never.", "integer"),
    fields=said("What is logged of TCP's state, as --fields takes it.", each("string")),
    port=each("integer"),
    prefix=each("string"),
    cgroup="string?",
    netns="string?",
    process="integer?",
    congestion="string?",
    one_in=said("One of so many flows.", "integer"),
)

INTERRUPTION = or_null(record(why="string", after_ns="integer", before_ns="integer"))

NOT_RUN = said("Programs that the kernel left out, and how often.", by_name("integer"))

TRIGGERS = said("How often a flight recorder wrote, by why; null: there is none.",
                {"type": ["object", "null"], "additionalProperties": {"type": "integer"}})  # fmt: skip

CAREFUL = said("Why the fallback programs run; null: the fast ones do.", "string?")

STATUS = record(
    enabled="boolean",
    options=OPTIONS,
    totals=TOTALS,
    events=said("Samples beside packets.", "integer"),
    events_full="integer",
    records="integer",
    privates="integer",
    missing="integer",
    flows="integer",
    flows_open="integer",
    flows_removed=said("Of which nothing is left: they were in parts that were removed.", "integer"),
    parts=said("Files of the log that were begun; null: nothing is written.", "integer?"),
    parts_removed=said("Of them, those that --remove-oldest removed.", "integer?"),
    not_run=NOT_RUN,
    flight_triggers=TRIGGERS,
    careful=CAREFUL,
    failed=said("Why the log can be written no more.", "string?"),
    interruption=INTERRUPTION,
)

COUNTED = record(
    totals=TOTALS,
    gaps="integer",
    flows="integer",
    flow_list=said("As SIFTR names flows: address;port-address;port.", each("string")),
)

ENDED_AT = record(
    ended="string",
    disable_time_secs="integer",
    disable_time_usecs="integer",
    why="string",
    records="integer",
    duration_s="number",
    conserved=said("Whether every packet is in one number.", "boolean"),
)

IN_PARTS = record(
    parts=said("Files of the log that were begun.", "integer"),
    parts_removed=said("Of them, those that --remove-oldest removed.", "integer"),
    flows_removed=said("Flows of which nothing is left: they were in parts that were removed.", "integer"),
)

UNREAD = said("Files that could not be read and stay as spool-NNN.unread.", "integer")

CLOSED = joined(
    COUNTED,
    ENDED_AT,
    IN_PARTS,
    record(
        events="integer",
        privates="integer",
        events_full="integer",
        missing="integer",
        not_run=NOT_RUN,
        fields=said("What was asked of TCP's state, as --fields takes it.", each("string")),
        flight_triggers=TRIGGERS,
        logger_cpu_s="number",
        command_status="integer?",
        interruption=INTERRUPTION,
        flows_unrecorded_=said("Flows that ended when nothing could be written any more.", "integer"),
        parts_unread_=UNREAD,
    ),
)

WARNING = said("What a person ought to know; null: nothing.", "string?")

EXPORT = said(
    "Of a log that was also sent to another host: every record was sent or skipped.",
    record(
        to="string",
        sent=said("Records; where there is a problem, at most so many arrived.", "integer"),
        skipped="integer",
        skipped_full=said("Of them, those that the connection could not take.", "integer"),
        skipped_lost=said("And those after it was lost.", "integer"),
        problem=said("Why the receiver's log is not whole; null: it is.", "string?"),
    ),
)

FOOTER = joined(CLOSED, record(warning=WARNING, export_=EXPORT))

OF_A_SPOOL = record(
    fields=said("What was asked of TCP's state; null: an older version logged.",
                {"type": ["array", "null"], "items": {"type": "string"}}),
    parts_unread=UNREAD,
)  # fmt: skip

OF_A_KILLED_LOG = joined(
    COUNTED, ENDED_AT, IN_PARTS, OF_A_SPOOL, record(why={"const": "killed"}, problems=each("string"))
)

RECEIVED = record(
    problem=said("Why the log is not whole; null: it is.", "string?"),
    problems=each("string"),
    warning=WARNING,
)

OF_A_RECEIVED_LOG = either(
    joined(CLOSED, RECEIVED, record(skipped_on_the_way=said("Records that the sender skipped.", "integer"))),
    joined(COUNTED, ENDED_AT, IN_PARTS, OF_A_SPOOL, RECEIVED),
)

MODE = one_of("on", "disabled", "off", "empty", "placebo")

KINDS_OF_COLUMNS = {"bool": "boolean", "utf8": "string", "utf8-dictionary": "string", "float64": "number"}


def sample() -> Schema:
    """Return a sample under the names of its columns in tcp_samples, without those that have no value."""
    declared = json.loads(resources.files("sojourn.records").joinpath("schema.json").read_text(encoding="utf-8"))
    columns = declared["tables"]["tcp_samples"]["fields"]
    return record(**{f"{one['name']}_": KINDS_OF_COLUMNS.get(one["type"], "integer") for one in columns})


FLOW = record(
    flow=said("Its number in the log; null: it has none yet.", "integer?"),
    cookie="integer",
    netns="integer",
    cgroup="integer",
    process="integer?",
    command="string",
    algorithm="string",
    local_address="string",
    local_port="integer",
    remote_address="string",
    remote_port="integer",
    first_ns="integer",
    last_ns="integer",
    ended="boolean",
    wanted=said("Whether the filters let it through.", "boolean"),
    packets_in="integer",
    packets_out="integer",
    segments_in="integer",
    segments_out="integer",
    logged_in="integer",
    logged_out="integer",
    skipped="integer",
    dispositions=record(**{"in": BY_DISPOSITION}, out=BY_DISPOSITION),
    sample=said("Its latest; null: none.", or_null(sample())),
)

FLOWS = event(
    "flows",
    time_ns="integer",
    enabled="boolean",
    totals=TOTALS,
    events="integer",
    events_full="integer",
    flows=each(FLOW),
)

HEADER = record(
    tcplog={"const": 1},
    started="string",
    enable_time_secs="integer",
    enable_time_usecs="integer",
    kernel="string",
    machine="string",
    hostname="string",
    boot_id=said("Of the kernel: logs with different ones have different clocks.", "string"),
    hz="integer",
    simulated="boolean",
    clock="string",
    tai_minus_utc_s="integer",
    tai_minus_monotonic_ns="integer",
    fields=each("string"),
    absent=each("string"),
    unasked=said("Of `absent`, what the kernel has and nobody asked for.", each("string")),
    tcp_flag_names=each("string"),
    options=OPTIONS,
    attach="string",
    programs=each("string"),
    careful=CAREFUL,
    instrument="string",
    profile=one_of("release", "debug"),
    command={"type": ["array", "null"], "items": {"type": "string"}},
)

SAID = said("What is odd without being wrong.", each("string"))

DUMPED = event("dumped", records="integer")

ANSWERS = either(
    joined(
        READY,
        record(
            attach="string",
            clock="string",
            fields=each("string"),
            absent=each("string"),
            programs=each("string"),
            careful=CAREFUL,
        ),
    ),
    event("begun", block="integer", mode=MODE, header=HEADER, said=SAID),
    event("mode", mode=MODE),
    event("set", said=SAID),
    event("cost", programs=each(record(name="string", runs="integer", run_ns="integer", missed="integer"))),
    joined(event("status"), STATUS),
    FLOWS,
    DUMPED,
    event("statistics", on="boolean"),
    joined(event("ended", block="integer"), CLOSED, record(account=TOTALS)),
    REFUSED,
)

SECONDS = [f"limited_by_{name}_s" for name in LIMITS]

OF_A_FLOW: dict[str, str] = {
    "flow": "integer",
    **{name: "integer" if name.endswith("port") else "string" for name in ENDS},
    "algorithm": "string?",
    "state_name": "string?",
    "samples": "integer",
    "first_ns": "integer",
    "span_s": "number",
    **{name: "integer?" for name in COUNTERS if name != "data_segs_in"},
    **{f"retransmitted_{kind}_segments": "integer?" for kind in KINDS},
    **dict.fromkeys(("rtt_min_us", "rtt_p50_us", "rtt_p95_us", "rtt_max_us", "kernel_rtt_min_us"), "integer?"),
    **dict.fromkeys(SECONDS, "number"),
    **dict.fromkeys(("goodput_out_bps", "goodput_in_bps"), "number?"),
    **dict.fromkeys(("packets_seen", "packets_logged", "packets_full"), "integer?"),
    **dict.fromkeys(("gaps", "gap_records"), "integer"),
}

NO_FIGURES = {*ENDS, "flow", "algorithm", "state_name", "first_ns"}


def pair() -> Schema:
    """Return both rows of a pair, null without a counterpart; of each figure the difference and the ratio."""
    nullable = {name: kind if kind.endswith("?") else f"{kind}?" for name, kind in OF_A_FLOW.items()}
    figures = [name for name in OF_A_FLOW if name not in NO_FIGURES]
    return record(
        paired_by=or_null(one_of("addresses and ports", "order of beginning")),
        **{f"{which}_{name}": kind for which in "ab" for name, kind in nullable.items()},
        **{f"difference_{name}": nullable[name] for name in figures},
        **{f"ratio_{name}": kind_of("number?") for name in figures},
    )


PRINTED: Printed = {
    "tcplog-run": ("sojourn tcplog run --json", FOOTER),
    "tcplog-status": (
        "sojourn tcplog status --json",
        either(
            joined(STATUS, record(ok={"const": True}, logger_cpu_s="number")),
            FOOTER,
            OF_A_KILLED_LOG,
            OF_A_RECEIVED_LOG,
        ),
    ),
    "tcplog-set": ("sojourn tcplog set --json", either(OPTIONS, DUMPED)),
    "tcplog-receive": ("sojourn tcplog receive --json", OF_A_RECEIVED_LOG),
    "tcplog-recover": ("sojourn tcplog recover --json", either(OF_A_KILLED_LOG, FOOTER)),
    "tcplog-watch": ("sojourn tcplog watch, an object a line", FLOWS),
    "tcplog-serve": ("sojourn tcplog serve, an object a line", ANSWERS),
    "tcplog-summary": ("sojourn tcplog summary --json, an object a line", record(**OF_A_FLOW)),
    "tcplog-summary-pairs": ("sojourn tcplog summary OUT OUT2 --json, an object a line", pair()),
}
