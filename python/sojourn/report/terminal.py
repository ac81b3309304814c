"""The report in the terminal: the verdict first; then latencies, line and resolution of probes, or the key numbers.

Hypotheses and findings follow. It prints the results of analysis/ and the path of the page, which it does not make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sojourn.report.budgets import in_a_line, read_budgets
from sojourn.report.checks import SOURCES, named
from sojourn.report.checks import shown_of as check_numbers
from sojourn.report.contents import parts_of
from sojourn.report.glossary import hypothesis_name
from sojourn.report.numbers import NOTHING, Shown, percent
from sojourn.report.run import Run, every
from sojourn.report.suites import deviations_told
from sojourn.report.tables import fitted_lines, in_order, pairs_of, shown_of, tool

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

STYLES = {
    "trusted": "bold green",
    "doubtful": "bold yellow",
    "invalid": "bold red",
    "note": "dim",
    "pass": "green",
    "fail": "bold red",
    "supported": "green",
    "rejected": "bold red",
    "inconclusive": "yellow",
}
MOST_CELLS = 24
MOST_CHECKS = 40
HIGH_LEVEL = 0.98  # an interval above this level shows its level


def render(folder: Path, console: Console) -> None:
    """Print the summary of a run folder."""
    run = Run.read(folder)
    _print_verdict(run, console)
    if parts_of(run).has_round_trips:
        _print_latencies(run, console)
        _print_lines(run, console)
        _print_pacing(run, console)
    else:
        _print_keys(run, console)
    _print_budgets(run, console)
    _print_checks(run, console)
    _print_hypotheses(run, console)
    _print_findings(run, console)
    _print_paths(run, console)


def _print_verdict(run: Run, console: Console) -> None:
    verdict = str(run.verdict["verdict"])
    console.print(Text(str(run.verdict["sentence"]), style="bold"))
    of = " (of a simulation)" if run.verdict.get("simulated") else ""
    console.print(Text.assemble("Verdict: ", (verdict, STYLES.get(verdict, "")), of))
    if told := deviations_told(run):
        console.print(Text(f"{told}, listed in the report."))


def _print_keys(run: Run, console: Console) -> None:
    """Print the key numbers of the page, each with its interval and conditions."""
    keys = parts_of(run).keys(run)
    table = _columns(("",), ("value", ""), ("95 % CI, conditions",))
    for key in keys:
        table.add_row(escape(key.what), key.value, key.unit, escape("; ".join(line for line in key.lines if line)))
    if keys:
        console.print(Padding(table, (1, 0, 0, 0)))


def _print_budgets(run: Run, console: Console) -> None:
    """Print each headline figure with its expanded uncertainty; the components are in the report."""
    several = read_budgets(run)
    if several:
        console.print()
    for one in several:
        console.print(Text(in_a_line(one)))


def _print_checks(run: Run, console: Console) -> None:
    """Print configured against measured values of an emulator: every check; of many, only those that failed."""
    found = named(run)
    if not found:
        return
    shown = found if len(found) <= MOST_CHECKS else [one for one in found if one["verdict"] == "fail"]
    several = len({one["pipe"] for one in found if one["pipe"]}) > 1
    table = _columns(("check",), ("configured", "measured", "95 % CI or p", "limit"), ("verdict",))
    table.columns[0].min_width, table.columns[-1].min_width = 20, 11
    for one in shown[:MOST_CHECKS]:
        table.add_row(*_check(one, several))
    if shown:
        console.print(Padding(table, (1, 0, 0, 0)))
    tally = {name: sum(one["verdict"] == name for one in found) for name in ("pass", "fail", "inconclusive")}
    said = (
        f"Of {len(found)} checks {tally['pass']} passed, {tally['fail']} failed, {tally['inconclusive']} inconclusive."
    )
    console.print(said + ("" if shown is found else " All of them are in the report."), style="dim")


def _check(one: dict[str, Any], several: bool) -> tuple[str | Text, ...]:
    measured, configured, limit = check_numbers(one)
    unit = measured.unit or (str(one["unit"]) if one["unit"] not in ("1", "packets") else "")
    where = [SOURCES.get(str(one["of"]), str(one["of"])), *([str(one["pipe"])] if several and one["pipe"] else [])]
    name = f"{one['check']} ({', '.join(where)})"
    bounds = measured.interval if one["p"] is None or measured.low is not None else f"p {one['p']:.2g}"
    verdict = str(one["verdict"])
    values = (configured, f"{measured.text} {unit}".strip(), bounds, limit)
    return (escape(name), *values, Text(verdict, STYLES[verdict]))


def _print_latencies(run: Run, console: Console) -> None:
    pooled = run.rows("device_latency", "pooled")
    cells = run.rows("device_latency", "mean")
    if pooled.is_empty() and cells.is_empty():
        return
    table = _columns(("device", "over", "cell"), ("mean latency", "95 % CI", "pairs"))
    for row in in_order(pooled):
        table.add_row(*_latency(run, row), style="bold")
    if cells.height <= MOST_CELLS:
        for row in in_order(cells):
            table.add_row(*_latency(run, row))
    console.print(Padding(table, (1, 0, 0, 0)))
    if cells.height > MOST_CELLS:
        console.print(
            f"Mean latencies in µs, one way; {len(run.cells)} cells one by one, and medians, in the report.",
            style="dim",
        )
    else:
        console.print("Mean latencies in µs, one way; medians are in the report.", style="dim")


def _latency(run: Run, row: dict[str, Any]) -> tuple[str, ...]:
    shown, cell = shown_of(row), run.cell_of(row)
    words = (row["device"], row["reference"] or "", cell.short if cell else "pooled")
    level = f" ({percent(round(row['level'], 3))})" if cell is None and row["level"] > HIGH_LEVEL else ""
    return (*map(escape, words), shown.text, shown.interval + level, pairs_of(row).text)


def _print_lines(run: Run, console: Console) -> None:
    found = [(a, b) for a, b in fitted_lines(run) if a["reference"] == "direct"]
    several = len({a["probe"] for a, _ in found}) > 1
    if found:
        first = ("device", "probe") if several else ("device",)
        table = _columns(first, ("a, µs (95 % CI)", "b, ns per byte (95 % CI)"))
        for a, b in found:
            names = (a["device"], a["probe"]) if several else (a["device"],)
            table.add_row(*map(escape, names), *(_with_interval(shown_of(row)) for row in (a, b)))
        console.print(Padding(table, (1, 0, 0, 0)))
        console.print("Latency over direct = a + b × frame bytes, one way.", style="dim")
    for row in run.rows("resolution").head(1).iter_rows(named=True):
        console.print(f"\nThe bed can resolve {row['estimate'] / 1e3:.2g} µs.", highlight=False)


def _with_interval(shown: Shown) -> str:
    return f"{shown.text} ({shown.interval})"


def _columns(words: tuple[str, ...], numbers: tuple[str, ...], rest: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in words:
        table.add_column(title, overflow="fold")
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    for title in rest:
        table.add_column(title, overflow="fold")
    return table


def _print_pacing(run: Run, console: Console) -> None:
    rows = run.rows("pacing_within_10us", "ratio")
    if not run.by_tool or rows.is_empty():
        return
    table = _columns(("tool", "asked"), ("interval, µs", "within ± 10 µs, %", "95 % CI"))
    means = {_trial(row): shown_of(row) for row in run.rows("departure_interval", "mean").iter_rows(named=True)}
    for row in rows.sort("probe", "icmp_bytes", "interval_ns", descending=[False, False, True]).iter_rows(named=True):
        mean, shown = means.get(_trial(row)), shown_of(row)
        asked = f"{row['icmp_bytes']} B, {every(row['schedule'], row['interval_ns'])}"
        table.add_row(escape(tool(row).text), asked, mean.text if mean else NOTHING, shown.text, shown.interval)
    console.print(Padding(table, (1, 0, 0, 0)))


def _trial(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["probe"], row["icmp_bytes"], row["interval_ns"])


def _print_hypotheses(run: Run, console: Console) -> None:
    hypotheses = run.verdict.get("hypotheses", [])
    if hypotheses:
        console.print()
    for hypothesis in hypotheses:
        outcome = str(hypothesis["outcome"])
        words = (
            f"{hypothesis_name(hypothesis['hypothesis'])}: ",
            (outcome, STYLES.get(outcome, "")),
            f"  {hypothesis.get('sentence') or ''}",
        )
        console.print(Text.assemble(*words))


def _print_findings(run: Run, console: Console) -> None:
    found = run.findings()
    if found:
        console.print()
    for one in found:
        where = f" ({one['where']})" if one.get("where") else ""
        mark = (one["severity"], STYLES.get(one["severity"], ""))
        console.print(Text.assemble(mark, f": {one['name'].replace('_', ' ')}{where}: {one['sentence']}"))


def _print_paths(run: Run, console: Console) -> None:
    console.print()
    page = run.folder / "report" / "index.html"
    if page.is_file():
        console.print(Text(f"Report: {page}"), soft_wrap=True)
    console.print(Text(f"Run folder: {run.folder}"), soft_wrap=True)
