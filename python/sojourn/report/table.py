"""A table in four forms: HTML for the page, CSV for machines, Markdown for a README, LaTeX for a paper.

CSV contains the unrounded values; the other forms contain the rounded text. It does not know runs.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field

from sojourn.report.numbers import MINUS, NOTHING, Shown, count
from sojourn.report.siunitx import latex

Value = str | float | int | None


@dataclass(frozen=True)
class Entry:
    """One entry of a table: its text for people, and its values for machines."""

    text: str
    values: tuple[Value, ...] = (None,)
    device: str | None = None


@dataclass(frozen=True)
class Column:
    """A column: its machine names (units as suffixes; an interval has two), its heading, unit and kind."""

    keys: tuple[str, ...]
    title: str
    unit: str = ""
    numeric: bool = True
    group: str = ""

    def __post_init__(self) -> None:
        """Refuse a column without a heading: a page that is read aloud would have nothing to say of it."""
        if not self.title:
            raise ValueError(f"column {self.keys} has no heading")


@dataclass(frozen=True)
class Table:
    """A table of the report."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    note: str = ""
    strong: frozenset[int] = field(default_factory=frozenset)
    wide: bool = False
    grouped: bool = False
    """Whether equal neighbours in the first column form one group, named once."""

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The spanning headings above the columns, each with its width; empty when no column has one."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans if any(name for name, _ in spans) else []

    @property
    def has_units(self) -> bool:
        """Whether any column shows a unit under its heading."""
        return any(column.unit for column in self.columns)

    def padded(self, row: int, column: int) -> str:
        """Return an entry's text, padded so that the decimal points in a column of numbers are aligned."""
        words = self.rows[row][column].text
        if not self.columns[column].numeric or not _is_number(words):
            return words
        wanted = max(_decimals(line[column].text) for line in self.rows if _is_number(line[column].text))
        missing = wanted - _decimals(words)
        point = POINT_SPACE if wanted and not _decimals(words) else ""
        return words + point + FIGURE_SPACE * missing

    def opens_group(self, row: int) -> bool:
        """Whether a row's first entry differs from the one above it."""
        return not self.grouped or row == 0 or self.rows[row][0].text != self.rows[row - 1][0].text

    def csv(self) -> str:
        """Return the table as CSV."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([key for column in self.columns for key in column.keys])
        for row in self.rows:
            pairs = zip(self.columns, row, strict=True)
            writer.writerow([value for column, entry in pairs for value in _padded(entry.values, len(column.keys))])
        return out.getvalue()

    def markdown(self) -> str:
        """Return the table as Markdown."""
        heads = [_markdown(_heading(column)) for column in self.columns]
        marks = ["---:" if column.numeric else ":---" for column in self.columns]
        body = [[_markdown(entry.text) for entry in row] for row in self.rows]
        lines = [f"| {' | '.join(line)} |" for line in (heads, marks, *body)]
        return "\n".join([f"**{_markdown(self.title)}**", "", *lines, *(["", self.note] if self.note else [])]) + "\n"

    def latex(self) -> str:
        """Return the table as LaTeX, with booktabs and number columns of siunitx."""
        return latex(self)


FIGURE_SPACE, POINT_SPACE = "\u2007", "\u2008"


def _is_number(words: str) -> bool:
    return words.replace(MINUS, "").replace("\u202f", "").replace(".", "", 1).isdigit()


def _decimals(words: str) -> int:
    return len(words.partition(".")[2])


def text(value: str, device: str | None = None) -> Entry:
    """Return an entry of words."""
    return Entry(value, (value,), device)


def number(shown: Shown) -> Entry:
    """Return an entry of one number, without its interval."""
    return Entry(shown.text, (shown.value,))


def interval(shown: Shown) -> Entry:
    """Return an entry of the number's interval."""
    return Entry(shown.interval, (shown.low, shown.high))


def printed(value: str) -> Entry:
    """Return an entry of a published figure, with its digits as printed."""
    return Entry(value or NOTHING, (value or None,))


def rounded(value: float | None, places: int) -> Entry:
    """Return an entry of a value without an interval, with `places` decimals."""
    return Entry(NOTHING) if value is None else Entry(f"{value:.{places}f}", (value,))


def whole(value: float | None) -> Entry:
    """Return an entry of a count."""
    return Entry(count(value), (value,))


def _padded(values: tuple[Value, ...], width: int) -> list[Value]:
    filled = (*values, *([None] * (width - len(values))))
    # Twelve digits are more than any of our values has, and too few to show binary rounding.
    return ["" if value is None else float(f"{value:.12g}") if isinstance(value, float) else value for value in filled]


def _heading(column: Column) -> str:
    title = f"{column.group}: {column.title}" if column.group else column.title
    return f"{title} ({column.unit})" if column.unit else title


def _markdown(value: str) -> str:
    return value.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("<", "\\<").replace("\n", " ")
