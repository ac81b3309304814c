"""What `compare` says, for continuous integration: a test case for each run, limit and leading figure.

As JUnit's XML, and as annotations of a GitHub workflow. A case fails exactly where it makes the exit status 1, and is
an error where that is 2 or 4. One that could not be decided is skipped in JUnit's words and a warning in GitHub's.
Decides nothing itself; text that others wrote can neither end a line nor an element.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from sojourn.analysis.comparison import NOTHING_SHARED, OPEN
from sojourn.analysis.limits import FAILS
from sojourn.cli.compare import FAIL_ON, NO_FIGURE, answer, judged_in_words, signed
from sojourn.cli.figures import label
from sojourn.errors import RequestError, spelled
from sojourn.records.whole_file import leads_to_a_stream, write_for_all

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Outcome(Enum):
    """The outcome of a case: its element in JUnit's XML, and its command in a GitHub workflow."""

    PASSED = ("", "")
    NOTED = ("system-out", "notice")
    DOUBTFUL = ("system-out", "warning")
    OPEN = ("skipped", "warning")
    FAILED = ("failure", "error")
    ERROR = ("error", "error")


@dataclass(frozen=True, slots=True)
class Case:
    """A test case; `told` is the text for one that did not simply pass."""

    group: str
    name: str
    outcome: Outcome
    told: str = ""
    is_annotated: bool = True


def cases_of(compared: dict[str, Any], fail_on: str) -> list[Case]:
    """Return every case: the overall answer, runs, limits, leading figures; a workflow shows the first ones."""
    shared = compared["answer"] != NOTHING_SHARED or bool(compared["limits"])
    first = Case("comparison", "answer", Outcome.NOTED, answer(compared)) if shared else (
        Case("comparison", "answer", Outcome.ERROR, NO_FIGURE)
    )  # fmt: skip
    return [first, *runs(compared), *limits(compared, fail_on), *figures(compared, fail_on)]


def runs(compared: dict[str, Any]) -> list[Case]:
    """Return a case for each run: whether its verdict allows its use."""
    outcomes = {"invalid": Outcome.ERROR, "doubtful": Outcome.DOUBTFUL}
    return [
        Case("runs", run, outcomes.get(verdict, Outcome.PASSED), f"{run} is {verdict}. {' '.join(why)}".strip())
        for run, verdict, why in zip(compared["runs"], compared["verdicts"], compared["reasons"], strict=True)
    ]


def limits(compared: dict[str, Any], fail_on: str) -> list[Case]:
    """Return a case for each figure with each limit."""
    rows = {row["name"]: row for row in compared["results"]}
    of_answer = {FAILS: Outcome.FAILED, OPEN: Outcome.FAILED if OPEN in FAIL_ON[fail_on] else Outcome.OPEN}
    return [
        Case(
            "limits",
            f"{limit['limit']}: {label(rows[one['name']])}",
            of_answer.get(one["answer"], Outcome.PASSED),
            f"{one['answer']}: {judged_in_words(one, rows[one['name']])}",
        )
        for limit in compared["limits"]
        for one in limit["figures"]
    ]


def figures(compared: dict[str, Any], fail_on: str) -> list[Case]:
    """Return a case for each leading figure; inconclusive ones are not annotated, but the overall answer is."""
    failing = FAIL_ON[fail_on] if compared["answer"] in FAIL_ON[fail_on] else ()
    found = []
    for row in compared["results"]:
        if row["leading"]:
            is_open = row["answer"] == OPEN
            outcome = Outcome.FAILED if row["answer"] in failing else Outcome.OPEN if is_open else Outcome.PASSED
            by = f", by {signed(row)}" if row["p"] is not None else ", without an interval"
            told = f"{row['answer']}: {label(row)}{by}"
            found.append(Case("figures", label(row), outcome, told, is_annotated=outcome is Outcome.FAILED))
    return found


def write_junit(cases: Sequence[Case], path: Path) -> None:
    """Write the cases as JUnit's XML."""
    counts = {
        "tests": len(cases),
        "failures": sum(case.outcome is Outcome.FAILED for case in cases),
        "errors": sum(case.outcome is Outcome.ERROR for case in cases),
        "skipped": sum(case.outcome is Outcome.OPEN for case in cases),
    }
    written = {name: str(count) for name, count in counts.items()}
    root = ET.Element("testsuites", written)
    suite = ET.SubElement(root, "testsuite", {"name": "sojourn compare"} | written)
    for case in cases:
        named = {"classname": f"sojourn.{case.group}", "name": printable(case.name)}
        one = ET.SubElement(suite, "testcase", named)
        kind = case.outcome.value[0]
        if kind == "system-out":
            ET.SubElement(one, kind).text = printable(case.told)
        elif kind:
            ET.SubElement(one, kind, {"message": printable(case.told)})
    ET.indent(root)
    try:
        _write(path, ET.tostring(root, encoding="utf-8", xml_declaration=True))
    except OSError as error:
        raise RequestError(f"--junit {path}: {error.strerror}") from error


def _write(path: Path, content: bytes) -> None:
    """Write a file for other programs: whole, of the mode that new files have. A pipe or a device is written to."""
    if leads_to_a_stream(path):
        path.write_bytes(content)
        return
    write_for_all(path, content)


def print_annotations(cases: Sequence[Case]) -> None:
    """Print the cases as commands of a GitHub workflow, which shows ten of each kind: errors of limits first."""
    for case in cases:
        command = case.outcome.value[1]
        if command and case.is_annotated:
            title = property_of(f"sojourn compare: {case.group}")
            print(f"::{command} title={title}::{escaped(printable(case.told))}")


def escaped(text: str) -> str:
    """Return a message escaped for a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_of(text: str) -> str:
    """Return a property escaped for a workflow command, in which a comma or a colon ends it."""
    return escaped(text).replace(":", "%3A").replace(",", "%2C")


def printable(text: str) -> str:
    """Return the text with control characters, which XML cannot contain, spelled out."""
    return "".join(spelled(one) for one in text)
