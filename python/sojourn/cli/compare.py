"""Two runs side by side: what differed between their machines and plans, and their figures where both have them.

Reads run folders only. Whether a difference of figures is more than chance is told by their intervals, which are shown.
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

from sojourn.bed.facts import Change
from sojourn.bed.facts import compare as bed_changes
from sojourn.errors import RequestError
from sojourn.records import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

CELL = ("probe", "schedule", "payload_bytes", "response_payload_bytes", "interval_ns")
FACTORS = ("device", "reference", *CELL, "quantity", "statistic")
LINK = re.compile(r"hosts\.\w+\.links\.[^.]+")
SHOWN_STATISTICS = ("mean", "pooled", "p50", "fit")
SHOWN = ("device_latency", "latency_intercept", "latency_slope", "resolution", "rtt")


def compare_runs(first: Path, second: Path) -> dict[str, Any]:
    """Differences of bed and plan by dotted key, and the figures that both runs have."""
    one, two = RunFolder(first), RunFolder(second)
    return {
        "runs": [str(first), str(second)],
        "verdicts": [read_json(folder.verdict)["verdict"] for folder in (one, two)],
        "bed": [bed_change(change) for change in bed_changes(read_json(one.bed), read_json(two.bed))],
        "plan": differences(read_plan(one.plan), read_plan(two.plan)),
        "results": shared_results(read_json(one.results), read_json(two.results)),
    }


def bed_change(change: Change) -> dict[str, Any]:
    """A change of the bed in the shape of every difference here."""
    return {"key": change.fact, "values": [change.before, change.after]}


def read_json(path: Path) -> Any:
    """A JSON file of a run folder."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        folder = path.parent if path.name == "bed.json" else path.parent.parent
        raise RequestError(
            f"{path} cannot be read: is {folder} a run? `sojourn report {folder}` makes it again"
        ) from error


def read_plan(path: Path) -> Any:
    """The effective plan."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"{path} cannot be read: is {path.parent} a run folder?") from error


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


def shared_results(one: list[dict[str, Any]], two: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The figures under the same factors, with their intervals."""
    others = {key_of(row): row for row in two}
    found = []
    for row in one:
        if other := others.get(key_of(row)):
            sides = [{key: side.get(key) for key in ("estimate", "ci_low", "ci_high")} for side in (row, other)]
            found.append({factor: row.get(factor) for factor in FACTORS} | {"unit": row.get("unit"), "runs": sides})
    return found


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What makes two rows the same figure."""
    return tuple(row.get(factor) for factor in FACTORS)


def print_comparison(compared: dict[str, Any]) -> None:
    """The same for a person: differences first, then the leading figures."""
    console = Console(highlight=False)
    first, second = compared["runs"]
    for name in ("bed", "plan"):
        table = folding_table(name, first, second)
        for row in whole_links(compared[name]):
            table.add_row(row["key"], *(clipped(value) for value in row["values"]))
        console.print(table if compared[name] else f"{name}: no difference")
        console.print()
    table = folding_table("figure", first, second)
    table.add_row("verdict", *compared["verdicts"])
    shared = [row for row in compared["results"] if row["quantity"] in SHOWN and row["statistic"] in SHOWN_STATISTICS]
    for row in shared:
        table.add_row(label(row), *(interval(side, row["unit"]) for side in row["runs"]))
    console.print(table)
    if not shared:
        console.print("\nNo figure is in both: they measured other devices, probes, sizes or intervals.")


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
    """A figure's factors in words."""
    parts = [row["quantity"], row["statistic"], row["device"]]
    parts += [f"- {row['reference']}"] if row["reference"] else []
    parts += [row["probe"]] if row["probe"] else []
    parts += [sizes(row)] if row["payload_bytes"] is not None else []
    parts += [f"every {row['interval_ns'] / 1e6:g} ms"] if row["interval_ns"] else []
    return " ".join(str(part) for part in parts)


def sizes(row: dict[str, Any]) -> str:
    """User data asked with, and answered with where that differs."""
    there, back = row["payload_bytes"], row["response_payload_bytes"]
    return f"{there} B" if back in {None, there} else f"{there} B for {back} B"


def interval(side: dict[str, Any], unit: str | None) -> str:
    """An estimate with its interval; times in microseconds, as everywhere that a person reads."""
    if side["estimate"] is None:
        return "-"
    scale, shown = (1e3, "µs") if unit == "ns" else (1, unit or "")
    bounds = "" if side["ci_low"] is None else f" [{side['ci_low'] / scale:.4g}, {side['ci_high'] / scale:.4g}]"
    return f"{side['estimate'] / scale:.4g}{bounds} {shown}".strip()
