"""The bench's table, on a terminal and as Markdown: target, measured, interval, met or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from bench.compare import Row

HEAD = ("what", "peer", "ours", "peer's", "measured", "interval", "target", "")


def show(rows: list[Row], facts: Mapping[str, object], console: Console) -> None:
    """Print it."""
    shown = Table(*HEAD, title=title(facts))
    for row in rows:
        style = {"met": "green", "not met": "red"}.get(row.answer, "yellow" if row.answer else "")
        *most, answer = cells(row)
        shown.add_row(*most, f"[{style}]{answer}[/]" if style else answer)
    console.print(shown)
    console.print("build/bench.json and build/bench.md hold it all.")


def markdown(rows: list[Row], facts: Mapping[str, object]) -> str:
    """The same for a file."""
    lines = [f"# {title(facts)}", "", *(f"- {key}: {value}" for key, value in facts.items()), ""]
    lines += [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    lines += [
        "",
        "`measured` is ours divided by the peer's (×), or ours alone; the interval is Hodges-Lehmann over repetitions.",
        "RTTs are compared between the peer's own timestamp points and at the peer's resolution.",
    ]
    return "\n".join(lines) + "\n"


def title(facts: Mapping[str, object]) -> str:
    """The table's headline."""
    return f"Sojourn beside its peers, through '{facts['device']}', {facts['repetitions']} interleaved repetitions"


def cells(row: Row) -> tuple[str, ...]:
    """One row as text."""

    def shown(value: float) -> str:
        return f"{value:.2f}×" if row.is_ratio else quantity(value, row.unit)

    interval = "none: too few repetitions"
    if row.ci_low is not None and row.ci_high is not None:
        interval = f"{shown(row.ci_low)} … {shown(row.ci_high)} ({row.level:.1%})"
    target = ""
    if row.target is not None:
        target = f"{row.target.side} {shown(row.target.limit)}"
    figures = (quantity(row.ours, row.unit), quantity(row.theirs, row.unit))
    return (row.name, row.peer, *figures, shown(row.measured), interval, target, row.answer)


def quantity(value: float, unit: str) -> str:
    """A value with its unit, as a person writes it."""
    if unit == "ns":
        return f"{value / 1e6:.1f} ms" if value >= 1e6 else f"{value / 1e3:.2f} µs"
    if unit == "1/s":
        return f"{value:,.0f}/s"
    return f"{value:.3g}"
