"""What the commands of Python print under `--json`; what is printed from a type has that type's fields."""

from __future__ import annotations

from sojourn.analysis.comparison import FACTORS, SIDE, Margin
from sojourn.bed.clean import Cleaning
from sojourn.bed.doctor import Check
from sojourn.bed.host_bridge import HostBridge
from sojourn.cli.printed.terms import (
    Printed,
    Schema,
    by_name,
    each,
    joined,
    kind_of,
    of_type,
    one_of,
    or_null,
    record,
    said,
)
from sojourn.export.output import Told
from sojourn.records.results import RESULTS

COLUMNS = {"String": "string", "Int64": "integer", "Float64": "number"}


def columns(*names: str) -> dict[str, Schema]:
    """Return columns of results.json, with their meanings; each may be null."""
    found = {}
    for name in names:
        kind, meaning = RESULTS[name]
        shape = kind_of(f"{COLUMNS[str(kind)]}?") if str(kind) in COLUMNS else each("string")
        found[name] = shape | {"description": meaning}
    return found


VERDICT = one_of("trusted", "doubtful", "invalid")
ANSWER = one_of("worse", "better", "differs", "equivalent", "inconclusive")

RESULT = record(**columns(*RESULTS))
RESULT["additionalProperties"] = {"type": ["string", "number", "integer", "null"]}
"""Figures of the log of TCP's state have further factors beside the columns."""

ENDED = record(
    run="string",
    verdict=VERDICT,
    simulated="boolean",
    sentence="string",
    checks_=each("object"),
    results=each(RESULT),
)

PLANNED = record(study="string", question="string?", backend="string", measuring_ns="integer", total_ns="integer")
PLANNED["additionalProperties"] = True
"""Each method adds what it would measure."""

PUBLISHED = record(
    studies={"type": "object", "additionalProperties": {"type": "integer"}},
    refused={"type": "object", "additionalProperties": {"type": "string"}},
    total_ns="integer",
)

OURS = record(value="number?", low="number?", high="number?", unit="string")

ANSWERED = record(
    paper="string",
    items=each("string"),
    about="string",
    theirs="string",
    study="string?",
    ours=said("What our studies found, in the unit it is shown in; null: nothing.", or_null(OURS)),
    words="string",
    verdict=VERDICT | {"enum": [*VERDICT["enum"], None]},
)
"""The result for a published experiment."""

EXPLAINED = record(
    flow="integer",
    sender_flow="integer",
    at_s="number",
    at_ns="integer",
    limit="string",
    cause="string",
    shares={"type": "object", "additionalProperties": {"type": "number"}},
    in_flight="object",
    sentences=each(record(text="string", records=each(record(file="string", rows="string")))),
    account="object",
)

CHANGED = each(record(key="string", values=each("")))
"""A difference: the value of both runs, of any kind, null if a run has none."""

COMPARED_FIGURE = record(
    name="string",
    **columns(*(name for name in FACTORS if name in RESULTS), "unit"),
    **{name: kind_of("") for name in FACTORS if name not in RESULTS},
    leading="boolean",
    runs=each(record(**columns(*SIDE))),
    difference="number?",
    ci_low="number?",
    ci_high="number?",
    p="number?",
    between_boots=record(sd="number", occasions="integer") | {"type": ["object", "null"]},
    between_runs=record(sd="number", degrees="integer") | {"type": ["object", "null"]},
    covers=one_of("one bed", "rebuilt beds", "boots and days"),
    q_value="number?",
    margin="number?",
    answer=ANSWER,
)

LIMIT_ANSWER = one_of("fails", "holds", "inconclusive")
LIMIT = record(
    limit="string",
    answer=LIMIT_ANSWER,
    figures=each(
        record(
            name="string",
            of=one_of("difference", "second"),
            unit="string",
            bound="number",
            value="number?",
            ci_low="number?",
            ci_high="number?",
            answer=LIMIT_ANSWER,
        )
    ),
)

COMPARED = record(
    runs=each("string"),
    answer={"enum": [*ANSWER["enum"], "nothing in common"]},
    margin=of_type(Margin),
    limits=each(LIMIT),
    verdicts=each(VERDICT),
    reasons=each(each("string")),
    bed=CHANGED,
    plan=CHANGED,
    results=each(COMPARED_FIGURE),
)

STUDY_OF_HISTORY = record(study="string", runs="integer", last="string")

VALUE = record(
    run="string",
    began="string",
    verdict=VERDICT,
    boot="string?",
    version="string?",
    **columns("estimate", "ci_low", "ci_high", "level", "n", "sessions"),
    outside="boolean?",
)
SERIES = record(
    runs=each(VALUE),
    limits=record(mean="number", low="number", high="number") | {"type": ["object", "null"]},
    occasions="integer",
    between_boots=record(sd="number", ci_low="number?", ci_high="number?", replicated="boolean")
    | {"type": ["object", "null"]},
) | {"additionalProperties": True}
"""Beside the figure's own factors, as in results.json."""

HISTORY = record(
    study="string",
    beds=each(record(bed="string", kernel="string?", simulated="boolean", runs="integer", figures=each(SERIES))),
)

EXAMINED = record(status={"enum": [0, 3]}, sentence="string", checks=each(of_type(Check)))

INSTRUMENT = record(
    version="string",
    profile=one_of("release", "debug"),
    checks=each(
        record(
            name="string",
            status=one_of("ok", "limited", "missing"),
            found="string",
            fix_="string",
            values_=said("What was measured, by name.", by_name("")),
        )
    ),
)

MACHINE = joined(EXAMINED, record(instrument_=said("What it says of itself; null: it is not there.",
                                                  or_null(INSTRUMENT))))  # fmt: skip

FIRST_BED = record(
    hosts=by_name(record(address="string", user_="string", config_="string", jump_="string")),
    paths=by_name(record(a="string", left_="string", right_="string", b="string")),
)
"""The content of a first bed.toml; one written by a person may have more."""

DRAWN = record(
    nodes=each(record(id="string", label="string", kind="string", path="string?")),
    links=each(
        record(**{"path": "string", "from": "string", "to": "string", "from_port": "string", "to_port": "string"})
    ),
    text="string",
)
DRAWN["properties"]["links"]["items"]["properties"]["label"] = kind_of("string")

TRANSLATED = record(
    pipes=each(record(name="string", words="string")),
    command="string",
    lines=each("string"),
    without=each(record(words="string", why="string")),
)

PORT_NOW = record(
    port="string", state="string", carrier_="string?", received_="integer?", sent_="integer?", dropped_="integer"
)
BRIDGE_NOW = record(**of_type(HostBridge)["properties"], there="boolean", now=each(PORT_NOW))

PRINTED: Printed = {
    "run": ("sojourn run, report, emulate verify --json", ENDED),
    "run-dry-run": ("sojourn run, emulate verify --dry-run --json", PLANNED),
    "run-published-dry-run": ("sojourn run published --dry-run --json", PUBLISHED),
    "run-published": ("sojourn run published --json", each(ANSWERED)),
    "compare": ("sojourn compare --json", COMPARED),
    "history": ("sojourn history --json", each(STUDY_OF_HISTORY)),
    "history-study": ("sojourn history STUDY --json", HISTORY),
    "list": ("sojourn list --json", each(record(name="string", question="string"))),
    "doctor": ("sojourn doctor --json", MACHINE),
    "bed-new": (
        "sojourn bed new --json",
        record(bed=FIRST_BED, file=said("The same as the text of bed.toml, with its comments.", "string")),
    ),
    "export": ("sojourn export --json", record(file="string", format="string", lines="integer")),
    "bed-check": ("sojourn bed check --json", EXAMINED),
    "bed-show": ("sojourn bed show --json", DRAWN),
    "bed-clean": ("sojourn bed clean --json", of_type(Cleaning)),
    "bridge-up": ("sojourn bridge up --json", of_type(HostBridge)),
    "bridge-status": ("sojourn bridge status --json", each(BRIDGE_NOW)),
    "bridge-down": ("sojourn bridge down --json", record(done=each("string"))),
    "emulate-explain-from": ("sojourn emulate explain --from --json", TRANSLATED),
    "dataset": ("sojourn dataset --json", each(record(tap="string", folder="string", packets="integer"))),
    "why": ("sojourn why --json", EXPLAINED),
    "timeline": ("sojourn timeline --json", of_type(Told)),
    "new": ("sojourn new --json", record(folder="string", files=each("string"))),
    "watch": ("sojourn watch --json", record(address="string", notes=each("string"))),
    "tcplog-plot": ("sojourn tcplog plot --json", record(file="string")),
    "tcplog-convert": ("sojourn tcplog convert --json", of_type(Told)),
}
