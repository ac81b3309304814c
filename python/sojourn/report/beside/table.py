"""The table with figures of other tools beside ours of the same kind: theirs as reported, ours with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.report.beside.figure import JITTER, LOSS, ONE_WAY, RATE, ROUND_TRIP, UNITS, Ours, Theirs, ToolResult
from sojourn.report.contents import parts_of
from sojourn.report.numbers import NOTHING, duration, percent
from sojourn.report.table import Column, Entry, Table, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sojourn.report.run import Run

NAME = "beside"
OURS = {
    ROUND_TRIP: ("rtt",),
    ONE_WAY: ("one_way_delay",),
    JITTER: ("ipdv", "pdv"),
    RATE: ("throughput", "goodput", "rate"),
    LOSS: ("loss", "loss_ratio"),
}
"""Our quantities of each kind, over whole paths."""

STATISTICS = ("min", "mean", "p50", "p99", "max")
NOTE = (
    "“Theirs” is as the tools reported it, in our units; “ours” is from this run, with its intervals. Our intervals do "
    "not cover the difference: the tools ran at other times, sent other packets, and measured between other points."
)


def beside_table(run: Run, several: Sequence[ToolResult]) -> Table:
    """Return the table of every figure in the files, and of our figures of the same kinds."""
    columns = (
        Column(("kind",), "What", numeric=False),
        Column(("source",), "Measured by", numeric=False),
        Column(("of",), "Of", numeric=False),
        Column(("statistic",), "Statistic", numeric=False),
        Column(("value", "unit"), "Value"),
        Column(("ci_low", "ci_high"), "Interval"),
        Column(("n",), "n"),
    )
    ours = list((parts_of(run).beside or whole_paths)(run))
    rows: list[tuple[Entry, ...]] = []
    for kind in UNITS:
        theirs = [(one, figure) for one in several for figure in one.figures if figure.kind == kind]
        if theirs:
            rows += (_theirs(one, figure) for one, figure in theirs)
            rows += (_ours(one) for one in ours if one.kind == kind)
    return Table(NAME, "Comparison with other tools", columns, tuple(rows), NOTE, wide=True, grouped=True)


def _theirs(one: ToolResult, figure: Theirs) -> tuple[Entry, ...]:
    return (
        text(figure.kind),
        text(f"{one.tool} ({one.name})"),
        text(figure.of),
        text(figure.statistic),
        _value(figure.value, figure.kind),
        Entry(NOTHING, (None, None)),
        Entry(NOTHING if figure.n is None else f"{figure.n}", (figure.n,)),
    )


def whole_paths(run: Run) -> Iterator[Ours]:
    """Return the figures over whole paths, of any method that does not name its own."""
    kinds = {quantity: kind for kind, several in OURS.items() for quantity in several}
    for row in run.results.iter_rows(named=True):
        kind = kinds.get(row["quantity"])
        if kind and row["statistic"] in STATISTICS and row["unit"] in (UNITS[kind], "ratio"):
            cell = run.cell_of(row)
            where = f"{row['device']}, {cell.label}" if cell is not None else str(row["device"])
            yield Ours(kind, where, str(row["statistic"]), row)


def _ours(one: Ours) -> tuple[Entry, ...]:
    return (
        text(one.kind),
        text("Sojourn (this run)"),
        text(one.of, str(one.row["device"])),
        text(one.statistic),
        _value(one.row["estimate"], one.kind),
        _interval(one.row, one.kind),
        Entry(f"{one.row['n']}", (one.row["n"],)),
    )


def _interval(row: Mapping[str, Any], kind: str) -> Entry:
    low, high = row["ci_low"], row["ci_high"]
    if low is None or high is None:
        return Entry(NOTHING, (low, high))
    return Entry(f"{_words(low, kind)} to {_words(high, kind)}", (low, high))


def _value(value: float | None, kind: str) -> Entry:
    return Entry(_words(value, kind), (value, UNITS[kind]))


def _words(value: float | None, kind: str) -> str:
    if value is None:
        return NOTHING
    if UNITS[kind] == "ns":
        return duration(value)
    return percent(float(f"{value:.4g}")) if UNITS[kind] == "1" else f"{value / 1e6:.4g} Mbit/s"
