"""Two runs compared: which figures are better or worse, why a run is doubtful, what differs in plan and bed.

Reads run folders only; the differences of figures are computed in `analysis.comparison`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from sojourn.analysis.comparison import (
    BEDS,
    BETTER,
    BOOTS,
    DIFFERS,
    EQUIVALENT,
    NOTHING_KNOWN,
    NOTHING_SHARED,
    ONE_BED,
    OPEN,
    USUAL_MARGIN,
    WORSE,
    Known,
    Margin,
    over_all,
    shared_results,
)
from sojourn.analysis.leading import place_of
from sojourn.analysis.limits import FAILS, HOLDS, judge
from sojourn.analysis.wording import counted, percent
from sojourn.bed.facts import Change
from sojourn.bed.facts import compare as bed_changes
from sojourn.cli.figures import (
    SHARES,
    Scale,
    clipped,
    columns,
    conditions,
    folded,
    in_groups,
    label,
    shared_conditions,
    title,
)
from sojourn.errors import DoubtfulError, RequestError, SojournError, did_you_mean
from sojourn.records import RunFolder, earlier, results
from sojourn.records import bed as bed_of_run
from sojourn.records.decode import text_of
from sojourn.records.findings import label as finding_label
from sojourn.records.folder import open_folder
from sojourn.records.results import read_verdict
from sojourn.units import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.analysis.limits import Limit

LINK = re.compile(r"hosts\.\w+\.links\.[^.]+")
MOST_SHOWN = 40
MOST_COLUMNS = 100
STYLES = {FAILS: "bold red", WORSE: "bold red", BETTER: "bold green", DIFFERS: "bold", OPEN: "dim", EQUIVALENT: "green"}
FAIL_ON = {
    "worse": (WORSE,),
    "difference": (WORSE, BETTER, DIFFERS),
    "inconclusive": (WORSE, OPEN),
    "never": (),
}
"""The overall answers that end with status 1, for each word of --fail-on."""

ONE_BED_NOTE = (
    "* Another bed is not covered: the interval holds for the beds that were measured, as they were set up then. Set "
    "up again, the same machine gives figures that differ by more than their intervals, so a small difference may come "
    "from the runs and not from what was changed between them. Repeat both, or measure in sessions "
    "(--set bed.sessions=8)."
)
BEDS_NOTE = "Without *, an interval holds for other beds, set up anew. Reboots and other days are not covered."
BOOTS_NOTE = (
    "Between boots and days: the intervals contain the differences between {occasions} of them in the history, so "
    "other boots and days are covered."
)
RUNS_NOTE = "Within a boot and a day: what the history knows of other runs there is in the intervals."
NO_FIGURE = "The runs have no figure in common: their devices, probes, sizes or intervals differ."

NO_LEADING = "The runs have no leading figure in common: the limits alone are judged."


def compare_runs(
    first: Path, second: Path, margin: Margin = USUAL_MARGIN, *, history: bool = True, limits: Sequence[Limit] = ()
) -> dict[str, Any]:
    """Return the overall answer, the figures that both runs have, and differences of bed and plan by dotted key."""
    one, two = open_folder(first), open_folder(second)
    rows = read_results(one), read_results(two)
    verdicts = read_verdict(one.verdict), read_verdict(two.verdict)
    shared = shared_results(*rows, margin, known_of(one, two) if history else NOTHING_KNOWN)
    return {
        "runs": [str(first), str(second)],
        "answer": over_all(shared),
        "margin": asdict(margin),
        "limits": judge(limits, shared) if shared else [],
        "verdicts": [verdict["verdict"] for verdict in verdicts],
        "reasons": [reasons(verdict) for verdict in verdicts],
        "bed": [bed_change(change) for change in bed_changes(read_bed(one.bed), read_bed(two.bed))],
        "plan": differences(read_plan(one.plan), read_plan(two.plan)),
        "results": shared,
    }


def known_of(one: RunFolder, two: RunFolder) -> Known:
    """Return what the history knows of both runs' beds; if it cannot be read, nothing, with a sentence."""
    try:
        from sojourn.history import components_of, entry_of, find_history, occasion, repeats_of

        first, second = entry_of(one), entry_of(two)
        history = find_history()
        read = [history.read(entry.study) for entry in (first, second)]
    except SojournError as error:
        print(f"sojourn: compared without the history: {error}", file=sys.stderr)
        return NOTHING_KNOWN
    # The two runs differ in this, so it is no part of their usual variation.
    own = {(entry.run, entry.began_ns) for entry in (first, second)}
    others = [[entry for entry in entries if (entry.run, entry.began_ns) not in own] for entries in read]
    same = first.boot is not None and occasion(first) == occasion(second)
    beds = first.bed, second.bed
    return Known(
        (components_of(others[0], beds[0]), components_of(others[1], beds[1])),
        same,
        (repeats_of(others[0], beds[0]), repeats_of(others[1], beds[1])),
    )


def read_margin(text: str) -> Margin:
    """Parse the margin in an option: "5%", "100ns", "0.1pp", or several separated by commas."""
    found: dict[str, float] = {}
    for part in (one.strip() for one in text.split(",")):
        number = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|pp)", part)
        nanos = nanoseconds(part)
        if number:
            found["relative" if number[2] == "%" else "share"] = float(number[1]) / 100
        elif nanos is not None:
            found["time_ns"] = float(nanos)
        else:
            raise RequestError(f"--margin {text}: {part!r} is none of 5%, 100ns, 0.1pp (percentage points)")
    return Margin(**found)


def status_of(compared: dict[str, Any], fail_on: str) -> int:
    """Return the exit status: 1 if --fail-on has the answer; higher without an answer or with an unusable run.

    An invalid run must not be used, whatever its figures are; runs without a common leading figure can be compared only
    by limits on other figures.
    """
    if compared["answer"] == NOTHING_SHARED and not compared["limits"]:
        return RequestError.status
    if "invalid" in compared["verdicts"]:
        return DoubtfulError.status
    limits = {one["answer"] for one in compared["limits"]}
    return int(
        compared["answer"] in FAIL_ON[fail_on] or FAILS in limits or (OPEN in limits and OPEN in FAIL_ON[fail_on])
    )


def read_fail_on(word: str | None, *, limited: bool) -> str:
    """Return the word of --fail-on; without one, limits alone decide if there are any."""
    if word is not None and word not in FAIL_ON:
        raise RequestError(f"--fail-on {word}: expected {', '.join(FAIL_ON)}{did_you_mean(word, FAIL_ON)}")
    return word or ("never" if limited else "worse")


def bed_change(change: Change) -> dict[str, Any]:
    """Return a change of the bed in the form of every difference here."""
    return {"key": change.fact, "values": [change.before, change.after]}


def read_bed(path: Path) -> dict[str, Any]:
    """Return the facts of a run's machines."""
    if not path.exists():
        raise RequestError(f"{path} cannot be read: it is not there")
    return bed_of_run.read_bed(path)


def read_results(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the figures of a run; refuse names of an earlier version, which would not match present ones."""
    rows = results.read_results(folder.results)
    if any(earlier.FIGURES & {str(value) for value in row.values()} for row in rows):
        raise RequestError(f"{folder.results} was made by an earlier version: run `sojourn report {folder.path}` first")
    return rows


def read_plan(path: Path) -> Any:
    """Return the effective plan."""
    try:
        return earlier.read_toml(text_of(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"{path} cannot be read: {error}") from error


def differences(one: Any, two: Any) -> list[dict[str, Any]]:
    """Return every dotted key whose value differs; None for a missing value."""
    left, right = flat(one), flat(two)
    keys = [*left, *(key for key in right if key not in left)]
    return [{"key": key, "values": [left.get(key), right.get(key)]} for key in keys if left.get(key) != right.get(key)]


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return a tree as one table of dotted keys; lists stay whole."""
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return found


def reasons(verdict: dict[str, Any]) -> list[str]:
    """Return why a run is doubtful or invalid: its severe findings, the most severe first."""
    grave = [one for one in verdict.get("findings", []) if one["severity"] in ("doubtful", "invalid")]
    ranked = sorted(grave, key=lambda one: one["severity"] != "invalid")
    return [f"{finding_label(one['name'])} ({one['where']}): {one['sentence']}" for one in ranked]


def print_comparison(compared: dict[str, Any]) -> None:
    """Print the comparison: the answer first, then the leading figures, then differences of plans and beds."""
    console = Console(highlight=False, emoji=False)
    width = min(console.width, MOST_COLUMNS)
    say(console, answer(compared), width, "bold")
    for run, verdict, why in zip(compared["runs"], compared["verdicts"], compared["reasons"], strict=True):
        say(console, f"{run}: {verdict}", width)
        for one in why:
            say(console, f"  {one}", width)
    for line in limits_in_words(compared):
        say(console, line, width, STYLES.get(line.split(":")[0], ""))
    if compared["answer"] != NOTHING_SHARED:
        print_figures(console, compared, width)
    for name in ("plan", "bed"):
        console.print()
        print_changes(console, name, compared, width)


def say(console: Console, text: str, width: int, style: str = "") -> None:
    """Print a sentence in lines that fit."""
    for line in folded(text, width):
        console.print(Text(line, style=style), soft_wrap=True)


def answer(compared: dict[str, Any]) -> str:
    """Return the overall answer, the beds that it covers, and its composition."""
    judged = [row for row in compared["results"] if row["leading"] and row["p"] is not None]
    if compared["answer"] == NOTHING_SHARED:
        return NO_LEADING if compared["limits"] else NO_FIGURE
    counts = [(one, sum(row["answer"] == one for row in judged)) for one in (WORSE, BETTER, DIFFERS, EQUIVALENT, OPEN)]
    several = ", ".join(f"{count} {one}" for one, count in counts if count) or "none can be judged"
    figures = counted(len(judged), "leading figure")
    said = f"{compared['answer'].capitalize()} ({reach_of(judged)}): of {figures} {several}"
    told = [row for row in judged if row["answer"] in (WORSE, BETTER, DIFFERS)]
    if not told:
        return f"{said}."
    most = max(told, key=lambda row: abs(row["difference"]) / (row["ci_high"] - row["ci_low"] or 1))
    return f"{said}; clearest: {label(most)}, by {signed(most)}."


def reach_of(judged: Sequence[dict[str, Any]]) -> str:
    """Return what the answer does not cover."""
    covers = {row["covers"] for row in judged}
    if ONE_BED in covers:
        return "another bed is not covered" + (" for figures with *" if len(covers) > 1 else "")
    return "reboots and other days are not covered" if BEDS in covers else "other boots and days are covered"


def signed(row: dict[str, Any]) -> str:
    """Return the difference with its interval, always with a sign."""
    scale = Scale.of(row["unit"], [row["difference"]], share=row["quantity"] in SHARES)
    places = scale.places(row["ci_low"], row["ci_high"], row["difference"])
    interval = scale.interval(row["ci_low"], row["ci_high"], places)
    return f"{scale.signed(row['difference'], places)} {scale.unit}".strip() + f" ({interval})"


def limits_in_words(compared: dict[str, Any]) -> list[str]:
    """Return each limit with its answer, and below it its figures: those that violate it, or the only one."""
    rows = {row["name"]: row for row in compared["results"]}
    lines = []
    for limit in compared["limits"]:
        lines.append(f"{limit['answer']}: {limit['limit']}")
        shown = [one for one in limit["figures"] if one["answer"] != HOLDS] or limit["figures"][:1]
        lines += [f"  {one['answer']}: {judged_in_words(one, rows[one['name']])}" for one in shown]
    return lines


def judged_in_words(figure: dict[str, Any], row: dict[str, Any]) -> str:
    """Return a figure compared with a limit: "bridge: latency: difference +0.50 µs (0.48 to 0.52), limit +0.07 µs"."""
    scale = Scale.of(figure["unit"], [figure["value"], figure["bound"]], share=row["quantity"] in SHARES)
    places = scale.places(figure["ci_low"], figure["ci_high"], figure["value"])
    write = scale.signed if figure["of"] == "difference" else scale.number
    interval = scale.interval(figure["ci_low"], figure["ci_high"], places)
    bound = write(figure["bound"], max(places, scale.places(None, None, figure["bound"])))
    value = f"{figure['of']} {write(figure['value'], places)}"
    unit = f" {scale.unit}" if scale.unit else ""
    return f"{label(row)}: {value}{unit} ({interval}), limit {bound}{unit}"


def print_figures(console: Console, compared: dict[str, Any], width: int) -> None:
    """Print the leading figures, and the notes on the table."""
    leading = [row for row in compared["results"] if row["leading"]]
    shown = [row for group in in_groups(chosen(leading), lambda row: row) for row in group]
    common = shared_conditions(shown)
    console.print()
    if common:
        say(console, f"All figures: {', '.join(common)}.", width, "dim")
    for line in table(shown, common, width):
        last = line.rsplit(" ", 1)[-1].rstrip("*")
        console.print(Text(line, style=STYLES.get(last, "")), soft_wrap=True)
    if len(shown) < len(leading):
        say(console, f"{len(leading) - len(shown)} more leading figures: see --json", width, "dim")
    console.print()
    for note in notes(leading, Margin(**compared["margin"])):
        say(console, note, width, "dim")


def chosen(leading: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all leading figures; of very many only those that are better, worse or differ, if any."""
    if len(leading) <= MOST_SHOWN:
        return leading
    told = [row for row in leading if row["answer"] not in (OPEN, EQUIVALENT)]
    return (told or sorted(leading, key=place_of))[:MOST_SHOWN]


def table(shown: Sequence[dict[str, Any]], common: Sequence[str], width: int) -> list[str]:
    """Return a heading for each device and quantity, and below it a line for each cell."""
    rows: list[Sequence[str] | str] = []
    for inside in in_groups(shown, lambda row: row):
        values = [side["estimate"] for row in inside for side in row["runs"]]
        scale = Scale.of(inside[0]["unit"], values, share=inside[0]["quantity"] in SHARES)
        rows.append(scale.headed(title(inside[0])))
        rows += [figure(row, scale, common) for row in inside]
    return columns(("", "first", "second", "difference", "95 % CI", "answer"), rows, width)


def figure(row: dict[str, Any], scale: Scale, common: Sequence[str]) -> tuple[str, ...]:
    """Return one line: both runs, difference with interval, answer; * if another bed is not covered."""
    name = ", ".join(one for one in conditions(row) if one not in common)
    places = scale.places(row["ci_low"], row["ci_high"], row["runs"][0]["estimate"])
    sides = [scale.number(side["estimate"], places) for side in row["runs"]]
    interval = scale.interval(row["ci_low"], row["ci_high"], places)
    limited = "*" if row["covers"] == ONE_BED and row["p"] is not None else ""
    return (f"  {name}", *sides, scale.signed(row["difference"], places), interval, f"{row['answer']}{limited}")


def notes(leading: Sequence[dict[str, Any]], margin: Margin) -> list[str]:
    """Return the notes on the table, and the beds that it covers."""
    said = (
        "Difference: second run minus first. Of those called better, worse or different on average at most 5 % are so "
        f"by chance. Equivalent: the whole interval lies within {margin_in_words(margin)}. Inconclusive: no "
        "difference was shown, and the interval is too wide to exclude one; more rounds or beds make it narrower, and "
        "--margin allows more."
    )
    covers = {row["covers"] for row in leading if row["p"] is not None}
    occasions = [row["between_boots"]["occasions"] for row in leading if row["between_boots"]]
    of_reach = {
        ONE_BED: ONE_BED_NOTE,
        BEDS: BEDS_NOTE,
        BOOTS: BOOTS_NOTE.format(occasions=min(occasions, default=0)),
    }
    among_runs = [RUNS_NOTE] if any(row["between_runs"] and row["between_runs"]["sd"] for row in leading) else []
    return [said, *(note for reach, note in of_reach.items() if reach in covers), *among_runs]


def margin_in_words(margin: Margin) -> str:
    """Return the margin in words: "5 % of the first run's figure, for times 50 ns if that is more"."""
    parts = [] if margin.relative is None else [f"{percent(margin.relative)} of the first run's figure"]
    parts += [] if margin.time_ns is None else [f"{margin.time_ns:g} ns for times"]
    parts += [] if margin.share is None else [f"{margin.share * 100:g} percentage points for ratios"]
    return ", or ".join(parts) + (", whichever is more" if len(parts) > 1 else "")


def print_changes(console: Console, name: str, compared: dict[str, Any], width: int) -> None:
    """Print the differences of plan or bed; single settings of links and neighbours are only counted."""
    changes = whole_links(compared[name])
    single = [row for row in changes if name == "bed" and row["key"].startswith("hosts.")]
    shown = [row for row in changes if row not in single]
    if not changes:
        console.print(f"{name}: no difference")
        return
    console.print(f"{name}: {counted(len(shown), 'key')} differ{'s' if len(shown) == 1 else ''}")
    if single:
        say(
            console,
            f"  and {counted(len(single), 'setting')} of hosts and links (addresses, neighbours): see --json",
            width,
        )
    for row in shown:
        for line in change(row, width):
            console.print(Text(line), soft_wrap=True)


def change(row: dict[str, Any], width: int) -> list[str]:
    """Return a key with both values, on one line if they fit."""
    first, second = (written(value) for value in row["values"])
    whole = f"  {row['key']}: {first} → {second}"
    if len(whole) <= width:
        return [whole]
    return [clipped(f"  {row['key']}:", width), *(clipped(f"    {one}", width) for one in (first, f"→ {second}"))]


def whole_links(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes with one row for a link that only one run had, instead of one for each of its settings."""
    rows: list[dict[str, Any]] = []
    for link, group in groupby(changes, link_of):
        inside = list(group)
        present = [any(change["values"][side] is not None for change in inside) for side in (0, 1)]
        if link is None or all(present):
            rows += inside
        else:
            rows.append({"key": link, "values": ["there" if one else None for one in present]})
    return rows


def link_of(change: dict[str, Any]) -> str | None:
    """Return the link of a changed fact, such as hosts.d.links.d-wire-1l."""
    found = LINK.match(change["key"])
    return found[0] if found else None


def written(value: Any) -> str:
    """Return a value of a plan or a bed as text."""
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)
