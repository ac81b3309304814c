"""The bench's table, on a terminal and as Markdown: target, measured, interval, met or not."""

from __future__ import annotations

from itertools import groupby
from math import isnan
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.compare import Row
    from bench.contest import Contest

BEFORE = "2026-11-26"
HEAD_OF_GOALS = ("figure", BEFORE, "goal", "measured", "interval", "")
HEAD = ("figure", "ours", "peer's", "measured", "interval", "target", "")
WIDTHS = (36, 9, 9, 9, 22, 14, 8)
STYLES = {"met": "green", "not met": "red"}
KEY = (
    "measured: ours divided by the peer's (×), or ours alone. interval: of 95 %, Hodges-Lehmann over the repetitions; "
    "Student's over beds of what studies measure (the log of TCP, throughput); from the lowest to the highest of what "
    "is repeated in turns, converted or read. "
    "?: the interval holds the limit too. RTTs are between the peer's own timestamp points, at its resolution; "
    "departures are judged by tcpdump at the far end."
)


def show(rows: list[Row], contests: list[Contest], facts: Mapping[str, object], goals: Sequence[Sequence[str]]) -> None:
    """Print the contests, the rows and what is beside the goals; wide enough for the rows, even if no terminal."""
    console = Console()
    console = Console(width=max(console.width, sum(WIDTHS) + 2 * len(WIDTHS)), highlight=False)
    console.print(f"[bold]{title(facts)}[/]")
    for contest in contests:
        console.print(f"\n[bold]{contest.task}[/], medians of {len(next(iter(contest.samples.values()), []))}")
        shown = Table("", *(column.name for column in contest.columns), box=None, header_style="dim", pad_edge=False)
        for name, values in contest.matrix():
            shown.add_row(name, *matrix_cells(contest, values))
        console.print(shown)
    for number, ((task, peer), lines) in enumerate(grouped(rows)):
        console.print(f"\n[bold]{task}[/], beside [bold]{peer}[/]")
        shown = Table(box=None, show_header=number == 0, header_style="dim", pad_edge=False)
        for head, width in zip(HEAD, WIDTHS, strict=True):
            shown.add_column(head, width=width)
        for row in lines:
            *most, answer = cells(row)
            shown.add_row(*most, f"[{STYLES.get(answer, 'yellow')}]{answer}[/]" if answer else "")
        console.print(shown)
    if goals:
        shown = Table(*HEAD_OF_GOALS, box=None, header_style="dim", pad_edge=False)
        for line in goals:
            shown.add_row(*line)
        console.print("\n[bold]beside the goals[/]", shown, sep="\n")
    console.print(f"\n{KEY}\nbuild/bench.json and build/bench.md hold it all.")


def grouped(rows: list[Row]) -> Iterator[tuple[tuple[str, str], Iterator[Row]]]:
    """The rows by task and peer, in their order."""
    return groupby(rows, key=lambda row: (row.task, row.peer))


def matrix_cells(contest: Contest, values: list[float]) -> list[str]:
    """Return one contestant's medians as text; a dash for a missing one."""
    return [
        "–" if isnan(one) else quantity(one, unit) for one, (_, _, unit) in zip(values, contest.columns, strict=True)
    ]


def markdown(
    rows: list[Row], contests: list[Contest], facts: Mapping[str, object], goals: Sequence[Sequence[str]]
) -> str:
    """Return the same as Markdown."""
    lines = [f"# {title(facts)}", "", *(f"- {key}: {value}" for key, value in facts.items()), ""]
    for contest in contests:
        heads = ["", *(column.name for column in contest.columns)]
        lines += [f"## {contest.task}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        lines += [f"| {' | '.join([name, *matrix_cells(contest, values)])} |" for name, values in contest.matrix()] + [
            ""
        ]
    for (task, peer), group in grouped(rows):
        lines += [f"## {task}: beside `{peer}`", "", f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
        lines += [*(f"| {' | '.join(cells(row))} |" for row in group), ""]
    if goals:
        lines += ["## beside the goals", "", f"| {' | '.join(HEAD_OF_GOALS)} |", f"|{'---|' * len(HEAD_OF_GOALS)}"]
        lines += [*(f"| {' | '.join(line)} |" for line in goals), ""]
    return "\n".join([*lines, KEY]) + "\n"


def title(facts: Mapping[str, object]) -> str:
    """The table's headline."""
    return f"Sojourn beside its peers, through '{facts['device']}', {facts['repetitions']} interleaved repetitions"


ALIKE, NARROW = 1e-6, 0.015
"""Widths of intervals of ratios: with two digits, a narrow one would be one number twice."""

WHOLE = {"1/s": "/s", "MiB": " MiB", "B": " B"}
"""Units of whole numbers, as they are written."""


def cells(row: Row) -> tuple[str, ...]:
    """One row as text."""

    interval, digits = "none", 2

    def shown(value: float) -> str:
        return f"{value:.{digits}f}×" if row.is_ratio and not isnan(value) else quantity(value, row.unit)

    if row.ci_low is not None and row.ci_high is not None:
        if ALIKE < row.ci_high - row.ci_low < NARROW:
            digits = 4
        interval = f"{shown(row.ci_low)} … {shown(row.ci_high)}"
    target = ""
    if row.target is not None:
        limit = f"{row.target.limit:.2f}×" if row.is_ratio else quantity(row.target.limit, row.unit)
        target = f"{row.target.side} {limit}"
    figures = (quantity(row.ours, row.unit), quantity(row.theirs, row.unit))
    return (row.name, *figures, shown(row.measured), interval, target, row.answer)


def time_of(value_ns: float) -> str:
    """Return a time, as text."""
    if abs(value_ns) >= 1e6:
        return f"{value_ns / 1e6:.1f} ms"
    return f"{value_ns / 1e3:.2f} µs" if abs(value_ns) >= 1e3 else f"{value_ns:.3g} ns"


def quantity(value: float, unit: str) -> str:
    """Return a value with its unit, as text; a dash where nothing was measured."""
    return "–" if isnan(value) else measure(value, unit)


def measure(value: float, unit: str) -> str:
    """Return a number with its unit, as text."""
    if unit == "ns":
        return time_of(value)
    if unit == "share":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return f"{value:.3g} s"
    if unit == "bit/s":
        return f"{value / 1e6:.4g} Mbit/s"
    if unit in WHOLE:
        return f"{value:,.0f}{WHOLE[unit]}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
