"""Two runs side by side: which figures differ, why each is doubtful, and what differed of their plans and machines.

Reads run folders only; which figures differ, and by how much, is worked out in `analysis.comparison`.
"""

from __future__ import annotations

import json
import re
import tomllib
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sojourn.analysis.comparison import DIFFER, OPEN, shared_results
from sojourn.analysis.wording import counted, percent
from sojourn.bed.facts import Change
from sojourn.bed.facts import compare as bed_changes
from sojourn.errors import RequestError
from sojourn.records import RunFolder, earlier
from sojourn.records.findings import label as finding_label
from sojourn.records.folder import open_folder

if TYPE_CHECKING:
    from pathlib import Path

LINK = re.compile(r"hosts\.\w+\.links\.[^.]+")
SHOWN = {
    ("device_latency", "pooled"): "latency, all cells",
    ("device_latency", "mean"): "latency",
    ("latency_intercept", "fit"): "latency at 0 bytes",
    ("latency_slope", "fit"): "latency per byte",
    ("resolution", "pooled"): "what the bed can resolve",
    ("rtt", "mean"): "mean round trip",
    ("one_way_delay", "p50"): "median one-way delay",
    ("throughput_pps", "mean"): "throughput",
    ("throughput_pps", "at_least"): "throughput, at least",
    ("loss_ratio", "ratio"): "loss",
    ("min_frame_interval", "sustained"): "least time between frames",
}
"""The leading figures, in the order in which they stand, and what a person calls them."""

MOST_SHOWN = 40
STYLES = {DIFFER: "bold", OPEN: "dim"}


def compare_runs(first: Path, second: Path) -> dict[str, Any]:
    """Differences of bed and plan by dotted key, and the figures that both runs have."""
    one, two = open_folder(first), open_folder(second)
    return {
        "runs": [str(first), str(second)],
        "verdicts": [read_json(folder.verdict)["verdict"] for folder in (one, two)],
        "reasons": [reasons(read_json(folder.verdict)) for folder in (one, two)],
        "bed": [bed_change(change) for change in bed_changes(read_json(one.bed), read_json(two.bed))],
        "plan": differences(read_plan(one.plan), read_plan(two.plan)),
        "results": shared_results(*(read_results(folder) for folder in (one, two))),
    }


def bed_change(change: Change) -> dict[str, Any]:
    """A change of the bed in the shape of every difference here."""
    return {"key": change.fact, "values": [change.before, change.after]}


def read_json(path: Path) -> Any:
    """A JSON file of a run folder."""
    try:
        return earlier.read_json(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        folder = path.parent if path.name == "bed.json" else path.parent.parent
        raise RequestError(f"{path} cannot be read: `sojourn report {folder}` makes it again") from error


def read_results(folder: RunFolder) -> list[dict[str, Any]]:
    """The figures of a run; names of an earlier version would not be found among those of this one."""
    rows: list[dict[str, Any]] = read_json(folder.results)
    if any(earlier.FIGURES & {str(value) for value in row.values()} for row in rows):
        raise RequestError(f"{folder.results} was made by an earlier version: run `sojourn report {folder.path}` first")
    return rows


def read_plan(path: Path) -> Any:
    """The effective plan."""
    try:
        return earlier.read_toml(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"{path} cannot be read: {error}") from error


def differences(one: Any, two: Any) -> list[dict[str, Any]]:
    """Every dotted key whose value differs; None where a side has none."""
    left, right = flat(one), flat(two)
    keys = [*left, *(key for key in right if key not in left)]
    return [{"key": key, "values": [left.get(key), right.get(key)]} for key in keys if left.get(key) != right.get(key)]


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """A tree as one table of dotted keys; lists stay whole."""
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return found


def reasons(verdict: dict[str, Any]) -> list[str]:
    """Why a run is doubtful or invalid: its grave findings, the gravest first."""
    grave = [one for one in verdict.get("findings", []) if one["severity"] in ("doubtful", "invalid")]
    ranked = sorted(grave, key=lambda one: one["severity"] != "invalid")
    return [f"{finding_label(one['name'])} ({one['where']}): {one['sentence']}" for one in ranked]


def print_comparison(compared: dict[str, Any]) -> None:
    """The same for a person: the answer first, then the leading figures, then what differed between plans and beds."""
    console = Console(highlight=False)
    shared = [row for row in compared["results"] if (row["quantity"], row["statistic"]) in SHOWN]
    console.print(Text(answer(shared), style="bold"))
    for run, verdict, why in zip(compared["runs"], compared["verdicts"], compared["reasons"], strict=True):
        console.print(Text(f"{run}: {verdict}" + "".join(f"\n  {one}" for one in why)))
    if shown := [row for row in shared if len(shared) <= MOST_SHOWN or row["answer"] == DIFFER]:
        console.print()
        console.print(figures(shown[:MOST_SHOWN]))
        console.print(Text(NOTE, style="dim"))
    for name in ("plan", "bed"):
        console.print()
        print_changes(console, name, compared)


NOTE = (
    "Difference: second run minus first, with its 95 % CI. Each interval holds for one bed at one time. Two runs on "
    "one machine differ by more than their intervals, so a small difference may come from the runs and not from what "
    "was changed between them. Repeat both."
)


def answer(shared: list[dict[str, Any]]) -> str:
    """How many of the leading figures differ, and which most, measured by its interval."""
    judged = [row for row in shared if row["answer"] != OPEN]
    differ = [row for row in judged if row["answer"] == DIFFER]
    if not shared:
        return "The runs have no figure in common: their devices, probes, sizes or intervals differ."
    if not differ:
        return f"None of the {len(judged)} leading figures that both runs have differs beyond its interval."
    most = max(differ, key=lambda row: abs(row["difference"]) / (row["ci_high"] - row["ci_low"] or 1))
    said = f"{len(differ)} of {len(judged)} leading figures that both runs have differ beyond their intervals"
    by_chance = round(0.05 * len(judged))
    chance = f" (by chance about {by_chance} would)" if by_chance else ""
    return f"{said}{chance}; clearest: {label(most)}, by {signed(most)}."


def figures(shown: list[dict[str, Any]]) -> Table:
    """The leading figures; of very many, those that differ."""
    table = folding_table("figure", "first", "second", "difference", "")
    for row in sorted(shown, key=lambda row: list(SHOWN).index((row["quantity"], row["statistic"]))):
        sides = (interval(side, row["unit"]) for side in row["runs"])
        table.add_row(label(row), *sides, signed(row), Text(row["answer"], style=STYLES.get(row["answer"], "")))
    return table


def print_changes(console: Console, name: str, compared: dict[str, Any]) -> None:
    """What differs of the plan, or of the bed; single settings of links and neighbours are counted only."""
    changes = whole_links(compared[name])
    single = [row for row in changes if name == "bed" and row["key"].startswith("hosts.")]
    shown = [row for row in changes if row not in single]
    if not changes:
        console.print(f"{name}: no difference")
        return
    console.print(f"{name}: {counted(len(shown), 'key')} differ{'s' if len(shown) == 1 else ''}")
    if single:
        console.print(f"  and {counted(len(single), 'setting')} of hosts and links (addresses, neighbours): see --json")
    if shown:
        table = folding_table("", "first", "second")
        for row in shown:
            table.add_row(row["key"], *(clipped(value) for value in row["values"]))
        console.print(table)


def folding_table(*columns: str) -> Table:
    """A table in which nothing is cut off, however narrow the terminal is."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    return table


def whole_links(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, with one row for a link that only one of the runs had in place of one for each of its settings."""
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
    """The link that a changed fact belongs to, as hosts.d.links.d-wire-1l."""
    found = LINK.match(change["key"])
    return found[0] if found else None


def clipped(value: Any) -> str:
    """A value short enough for a column."""
    words = "-" if value is None else value if isinstance(value, str) else json.dumps(value)
    return words if len(words) <= 60 else words[:57] + "..."


def label(row: dict[str, Any]) -> str:
    """A figure in words: "bridge over direct: latency, icmp, 64 B, every 1 ms"."""
    over = f" over {row['reference']}" if row["reference"] else ""
    parts = [SHOWN.get((row["quantity"], row["statistic"]), f"{row['quantity']} {row['statistic']}")]
    parts += [str(row["probe"])] if row["probe"] else []
    parts += [sizes(row)] if row["payload_bytes"] is not None or row["frame_bytes"] is not None else []
    parts += [pace(row)] if row["interval_ns"] else [beat(row)] if row["schedule"] else []
    parts += [f"to {row['to']}"] if row["to"] else []
    parts += [f"{row['senders']} senders"] if (row["senders"] or 1) > 1 else []
    parts += [f"{row['receivers']} other receivers"] if row["receivers"] else []
    parts += [f"load {row['load'] * 100:g} % {row['load_via'] or ''}".strip()] if row["load"] else []
    parts += [str(row["pipe"])] if row["pipe"] else []
    parts += [f"less {row['against']}"] if row["against"] else []
    parts += [f"{name} {row[name]}" for name in ("port", "node") if row[name] is not None]
    return f"{row['device']}{over}: {', '.join(parts)}"


def pace(row: dict[str, Any]) -> str:
    """How often packets left: "every 1 ms", "Poisson, 0.5 ms on average"."""
    ms = f"{row['interval_ns'] / 1e6:g} ms"
    return f"Poisson, {ms} on average" if row["schedule"] == "poisson" else f"every {ms}"


def beat(row: dict[str, Any]) -> str:
    """The schedule of what has no interval of its own: "poisson at 50 % of the throughput", "flood"."""
    share = row["rate_share"]
    return str(row["schedule"]).replace("-", " ") + ("" if share is None else f" at {percent(share)} of the throughput")


def signed(row: dict[str, Any]) -> str:
    """The difference with its interval, its sign always said."""
    side = {"estimate": row["difference"], "ci_low": row["ci_low"], "ci_high": row["ci_high"]}
    words = interval(side, row["unit"])
    return f"+{words}" if row["difference"] and row["difference"] > 0 else words


def sizes(row: dict[str, Any]) -> str:
    """The frame of a stream; of probes user data asked with, and answered with where that differs."""
    if row.get("engine") and row.get("frame_bytes"):
        return f"frames of {row['frame_bytes']} B"
    there, back = row["payload_bytes"], row["response_payload_bytes"]
    return f"{there} B" if back in {None, there} else f"{there} B for {back} B"


def interval(side: dict[str, Any], unit: str | None) -> str:
    """An estimate with its interval; times in microseconds, as everywhere that a person reads."""
    if side["estimate"] is None:
        return "-"
    scale, shown = (1e3, "µs") if unit == "ns" else (1, unit or "")
    bounds = "" if side["ci_low"] is None else f" [{side['ci_low'] / scale:.4g}, {side['ci_high'] / scale:.4g}]"
    return f"{side['estimate'] / scale:.4g}{bounds} {shown}".strip()
