"""LaTeX of a table: booktabs, S columns of siunitx for numbers, its ranges for intervals, its macros for units.

A column whose entries are not all numbers stays text. Nothing is rounded here: the digits are those of the table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sojourn.report.numbers import MINUS, NOTHING

if TYPE_CHECKING:
    from sojourn.report.table import Column, Table

HEAD = r"% needs \usepackage{booktabs} and \usepackage{siunitx}, version 3"
UNITS = {
    "ns": r"\nano\second", "µs": r"\micro\second", "ms": r"\milli\second", "s": r"\second",
    "bit/s": r"\bit\per\second", "kbit/s": r"\kilo\bit\per\second", "Mbit/s": r"\mega\bit\per\second",
    "Gbit/s": r"\giga\bit\per\second", "%": r"\percent", "B": r"\byte", "1/s": r"\per\second",
    "ns/byte": r"\nano\second\per\byte", "µs²": r"\micro\second\squared", "µs/s": r"\micro\second\per\second",
}  # fmt: skip
NUMBER = re.compile(r"-?\d+(\.\d+)?")
RANGE = re.compile(r"(-?\d+(?:\.\d+)?)(?: to |–)(-?\d+(?:\.\d+)?)")

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    "→": r"$\rightarrow$",
    "↔": r"$\leftrightarrow$",
    "√": r"$\surd$",
    "ν": r"$\nu$",
    "Δ": r"$\Delta$",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "µ": r"\textmu{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
    MINUS: r"$-$",
    "\u2013": "--",
    "\u202f": r"\,",
    "·": r"$\cdot$",
    "…": r"\dots{}",
    **{raised: rf"\textsuperscript{{{plain}}}" for raised, plain in zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)},
    "⁻": r"\textsuperscript{$-$}",
}


def latex(table: Table) -> str:
    """Return the table as LaTeX."""
    texts = [[row[place].text for row in table.rows] for place in range(len(table.columns))]
    shapes = [shape(column, words) for column, words in zip(table.columns, texts, strict=True)]
    heads = " & ".join(heading(column, one) for column, one in zip(table.columns, shapes, strict=True))
    lines = [
        HEAD,
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escaped(table.title)}}}",
        rf"  \label{{tab:{table.name}}}",
        rf"  \begin{{tabular}}{{{''.join(shapes)}}}",
        r"    \toprule",
        *_groups(table),
        rf"    {heads} \\",
        r"    \midrule",
        *(rf"    {' & '.join(map(entry, row, shapes))} \\" for row in zip(*texts, strict=True)),
        r"    \bottomrule",
        r"  \end{tabular}",
        *([rf"  \par\smallskip\footnotesize {escaped(table.note)}"] if table.note else []),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def shape(column: Column, texts: list[str]) -> str:
    """Return the column's type: S with its digits if all entries are numbers or missing, else r for figures and l."""
    numbers = [bare(one) for one in texts if one not in ("", NOTHING)]
    if not column.numeric or not numbers or not all(NUMBER.fullmatch(one) for one in numbers):
        return "r" if column.numeric else "l"
    whole = max(len(one.lstrip("-").partition(".")[0]) for one in numbers)
    places = max(len(one.partition(".")[2]) for one in numbers)
    sign = "-" if any(one.startswith("-") for one in numbers) else ""
    return f"S[table-format={sign}{whole}{f'.{places}' if places else ''}]"


def entry(text: str, shape: str) -> str:
    """Return an entry in the form that its column type requires."""
    plain = bare(text)
    if shape.startswith("S"):
        return plain if NUMBER.fullmatch(plain) else f"{{{escaped(text)}}}"
    if both := RANGE.fullmatch(plain):
        return rf"\numrange{{{both[1]}}}{{{both[2]}}}"
    return escaped(text)


def bare(text: str) -> str:
    """Return a number with an ASCII minus sign and without thin spaces."""
    return text.replace("\u202f", "").replace(MINUS, "-")


def heading(column: Column, shape: str) -> str:
    """Return a column's heading with its unit; an S column requires braces around it."""
    title = escaped(column.title)
    if column.unit:
        title += f" ({unit(column.unit)})"
    return f"{{{title}}}" if shape.startswith("S") else title


def unit(name: str) -> str:
    """Return a unit as a macro of siunitx; an unknown unit as text."""
    return rf"\unit{{{UNITS[name]}}}" if name in UNITS else escaped(name)


def escaped(value: str) -> str:
    """Return the text with LaTeX's special characters escaped."""
    return "".join(LATEX.get(letter, letter) for letter in value.replace("\n", " "))


def _groups(table: Table) -> list[str]:
    """Return the spanning headings with a rule under each."""
    if not table.groups:
        return []
    heads, rules, first = [], [], 1
    for name, width in table.groups:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escaped(name)}}}")
        rules += [rf"\cmidrule(lr){{{first}-{first + width - 1}}}"] if name else []
        first += width
    return [rf"    {' & '.join(heads)} \\", "    " + " ".join(rules)]
