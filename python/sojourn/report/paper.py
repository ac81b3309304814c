"""A narrow table for a paper: one quantity of a run, with the requested columns and unit, as LaTeX.

The interval, its level and n are always included: a missing column is added. Rows that the columns do not distinguish
are refused; what all rows have in common is in the caption. It computes nothing but the unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.errors import RequestError, did_you_mean
from sojourn.records.results import COLUMNS
from sojourn.report.numbers import NOTHING, Shown, count, duration, percent, show
from sojourn.report.page import machine_of, measured_on
from sojourn.report.run import Run
from sojourn.report.table import Column, Entry, Table, number, text, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sojourn.records import RunFolder

Row = dict[str, Any]

UNITS = {
    "ns": {"ns": 1.0, "us": 1e-3, "ms": 1e-6, "s": 1e-9},
    "bit/s": {"bit/s": 1.0, "kbit/s": 1e-3, "Mbit/s": 1e-6, "Gbit/s": 1e-9},
    "1": {"1": 1.0, "%": 100.0},
    "ratio": {"1": 1.0, "%": 100.0},
}
"""For each unit of results, the units that may be requested, each with its factor."""

WRITTEN = {"us": "µs", "1": ""}
OWN = ("estimate", "ci", "n", "level")
"""Columns that are not factors."""

NOT_FACTORS = {
    *OWN, "ci_low", "ci_high", "unit", "probes", "q_value", "clock", "source", "findings", "clock_bound_ns",
    "clock_error95_ns", "quantity", "cell", "rate_pps", "response_frame_bytes",
}  # fmt: skip
PREFERRED = {"mean": 0, "pooled": 1, "p50": 2, "rate": 3, "typical": 4, "ratio": 5}
"""The preference among statistics where none is requested."""

FIRST = ("device", "reference", "frame_bytes")
"""The factors that are preferred as columns over others that distinguish the same rows."""

NAMED = {
    "device": "Device", "reference": "Over", "frame_bytes": "Frame (B)", "icmp_bytes": "ICMP (B)",
    "payload_bytes": "Payload (B)", "response_payload_bytes": "Answer (B)", "interval_ns": "Interval",
    "statistic": "Statistic", "n": "n", "sessions": "Beds",
}  # fmt: skip

ABBREVIATIONS = {word.lower(): word for word in ("RTT", "NDR", "PDR", "TCP", "UDP", "ICMP", "CPU", "ECN", "MSS", "AQM")}


@dataclass(frozen=True)
class Asked:
    """The requested content of a table; an empty field takes the run's default."""

    columns: tuple[str, ...] = ()
    units: str | None = None
    quantity: str | None = None
    where: tuple[str, ...] = ()


def paper_table(folder: RunFolder, asked: Asked) -> str:
    """Return the table as LaTeX; raises RequestError where the run has no such figures."""
    return table(Run.read(folder.path), asked).latex()


def table(run: Run, asked: Asked) -> Table:
    """Return the table of a run."""
    quantity, columns = _quantity(run, asked)
    rows = _chosen([row for row in run.entries if row["quantity"] == quantity], asked.where)
    _refuse_unknown(columns, rows)
    columns = _completed(columns, rows)
    factors = [name for name in columns if name not in OWN]
    _refuse_alike(rows, factors)
    shown = [_shown(row, asked.units) for row in rows]
    level = _common(rows, "level") if all(_has_interval(row) for row in rows) else _DIFFERS
    level = None if level is _DIFFERS else level
    if level is None and "level" not in columns and "ci" in columns:
        columns.append("level")
    made = [part for name in columns for part in _part(name, rows, shown, level)]
    entries = zip(*(entries for _, entries in made), strict=True)
    title = _caption(run, quantity, rows, factors, level)
    return Table(quantity, title, tuple(column for column, _ in made), tuple(entries))


def _quantity(run: Run, asked: Asked) -> tuple[str, list[str]]:
    """Return the quantity, and the columns; its name, `value`, or `latency` where that fits, becomes `estimate`."""
    known = list(dict.fromkeys(row["quantity"] for row in run.entries))
    if not known:
        raise RequestError(f"{run.folder} has no figures")
    named = [name for name in asked.columns if name in known and name not in COLUMNS]
    quantity = asked.quantity or (named[0] if named else _leading(run, known))
    if quantity not in known:
        raise RequestError(f"the run has no {quantity}{did_you_mean(quantity, known)}: it has {', '.join(known)}")
    if len(named) > 1 or (named and named[0] != quantity):
        raise RequestError(f"{', '.join({quantity: 0, **dict.fromkeys(named)})}: a table has one quantity")
    short = {quantity, "value", "latency" if "latency" in quantity else quantity}
    columns = ["estimate" if name in short else name for name in asked.columns]
    return quantity, list(dict.fromkeys(columns))


def _leading(run: Run, known: Sequence[str]) -> str:
    """Return the default quantity: `device_latency` if the headline is one of pairs, else the first in the results."""
    pairs = run.verdict.get("pairs") or {}
    return "device_latency" if pairs.get("estimate") is not None and "device_latency" in known else known[0]


def _chosen(rows: list[Row], where: Iterable[str]) -> list[Row]:
    """Return the rows with these values; where no statistic is requested, those of the most preferred one."""
    asked = list(where)
    for one in asked:
        name, is_pair, value = one.partition("=")
        if not is_pair or not any(name in row for row in rows):
            known = sorted({name for row in rows for name in row} - {"estimate", "ci_low", "ci_high"})
            raise RequestError(f"--where {one}: expected COLUMN=VALUE{did_you_mean(name, known)}")
        there = list(dict.fromkeys(_word(row.get(name)) for row in rows))
        rows = [row for row in rows if _word(row.get(name)) == value]
        if not rows:
            raise RequestError(f"--where {one}: no figure; {name} is {' or '.join(there)}")
    if not any(one.startswith("statistic=") for one in asked):
        best = min((row["statistic"] for row in rows), key=lambda one: PREFERRED.get(one, len(PREFERRED)))
        rows = [row for row in rows if row["statistic"] == best]
    return rows


def _refuse_unknown(columns: Iterable[str], rows: Sequence[Row]) -> None:
    of_rows = dict.fromkeys(name for row in rows for name in row if name not in OWN and row[name] is not None)
    known = [*OWN, *of_rows]
    for name in columns:
        if name not in known:
            raise RequestError(f"--columns: no column {name}{did_you_mean(name, known)}: there are {', '.join(known)}")


def _completed(columns: list[str], rows: Sequence[Row]) -> list[str]:
    """Return the columns, completed by the estimate, its interval if there is one, and n."""
    if not columns:
        columns = _distinguishing(rows)
    needed = ("estimate", *(["ci"] if any(map(_has_interval, rows)) else []), "n")
    return columns + [name for name in needed if name not in columns]


def _distinguishing(rows: Sequence[Row]) -> list[str]:
    """Return the factors that distinguish the figures: the device, and each that splits what earlier ones do not."""
    names = sorted((name for name in rows[0] if name not in NOT_FACTORS), key=lambda one: one not in FIRST)
    chosen = ["device"]
    for name in names:
        if len(_keys(rows, [*chosen, name])) > len(_keys(rows, chosen)):
            chosen.append(name)
    return chosen


def _keys(rows: Sequence[Row], names: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(_word(row.get(name)) for name in names) for row in rows}


def _refuse_alike(rows: Sequence[Row], factors: Sequence[str]) -> None:
    """Raise RequestError for two rows that no factor among the columns distinguishes."""
    by_key: dict[tuple[str, ...], Row] = {}
    for row in rows:
        first = by_key.setdefault(tuple(_word(row.get(name)) for name in factors), row)
        if first is not row:
            names = [name for name in row if name not in {*OWN, "ci_low", "ci_high", "q_value", "probes", "findings"}]
            apart = [name for name in names if first.get(name) != row.get(name)] or ["nothing"]
            raise RequestError(
                f"rows differ in {', '.join(apart)}, which is no column: name it in --columns, "
                f"or choose by --where {apart[0]}={_word(row.get(apart[0]))}"
            )


def _shown(row: Row, units: str | None) -> Shown:
    """Return a row's number in the requested unit; by default in its display unit."""
    unit = str(row["unit"])
    if units is None:
        return show(row["estimate"], row["ci_low"], row["ci_high"], "ratio" if row["statistic"] == "ratio" else unit)
    known = UNITS.get(unit, {unit: 1.0})
    if units not in known:
        raise RequestError(f"--units {units}: {row['quantity']} is in {unit}: expected {' or '.join(known)}")
    scaled = [None if row[key] is None else row[key] * known[units] for key in ("estimate", "ci_low", "ci_high")]
    return Shown(scaled[0], scaled[1], scaled[2], WRITTEN.get(units, units))


def _part(name: str, rows: Sequence[Row], shown: Sequence[Shown], level: Any) -> list[tuple[Column, list[Entry]]]:
    """Return a requested column with its entries; the interval has two, one for each end."""
    unit = shown[0].unit
    if name == "estimate":
        return [(Column(("estimate",), heading_of(str(rows[0]["quantity"])), unit), [number(one) for one in shown])]
    if name == "ci":
        group = f"{percent(round(level, 3))} CI" if level else "CI"
        return [
            (Column((f"ci_{end}",), end.capitalize(), unit, group=group), [_end(one, end) for one in shown])
            for end in ("low", "high")
        ]
    if name == "level":
        return [(Column(("level",), "Level", "%"), [_level(row) for row in rows])]
    if name == "n":
        return [(Column(("n",), "n"), [whole(row["n"]) for row in rows])]
    return [_factor(name, [row.get(name) for row in rows])]


def _end(shown: Shown, end: str) -> Entry:
    """Return one end of an interval, rounded as its estimate."""
    value = shown.low if end == "low" else shown.high
    if value is None:
        return Entry(("−∞" if end == "low" else "∞") if (shown.low, shown.high) != (None, None) else NOTHING)
    return Entry(Shown(value, shown.low, shown.high, shown.unit).text, (value,))


def _level(row: Row) -> Entry:
    return Entry(f"{100 * row['level']:.3g}" if _has_interval(row) and row["level"] else NOTHING, (row["level"],))


def _factor(name: str, values: Sequence[Any]) -> tuple[Column, list[Entry]]:
    title = NAMED.get(name, heading_of(name))
    if name == "interval_ns":
        return Column((name,), title, numeric=False), [text(duration(one)) for one in values]
    if all(one is None or (isinstance(one, int | float) and not isinstance(one, bool)) for one in values):
        return Column((name,), title), [Entry(NOTHING if one is None else f"{one:.6g}", (one,)) for one in values]
    return Column((name,), title, numeric=False), [text(_word(one)) for one in values]


def _caption(run: Run, quantity: str, rows: Sequence[Row], factors: Sequence[str], level: Any) -> str:
    """Return the caption: the quantity, what all figures have in common, the level of the intervals, the origin."""
    fixed = [name for name in rows[0] if name not in NOT_FACTORS and name not in factors]
    common = [_told(name, rows[0][name]) for name in fixed if _is_told(rows, name)]
    simulated = "Simulated, not measured: " if run.verdict.get("simulated") else ""
    what = f"{simulated}{heading_of(quantity)}"
    parts = [f"{what} ({', '.join(common)})." if common else f"{what}."]
    if any(_has_interval(row) for row in rows):
        by = f"{percent(round(level, 3))} confidence" if level else "confidence intervals, their level in the table"
        parts.append(f"CI: {by}; n: pairs, rounds or trials that an interval is over, never packets.")
    else:
        parts.append("No figure has an interval.")
    return " ".join([*parts, _origin(run)])


def _origin(run: Run) -> str:
    """Return day, version, machine and verdict of the run."""
    doubts = [one["name"].replace("_", " ") for one in run.findings("invalid", "doubtful")]
    said = f": {', '.join(dict.fromkeys(doubts))}" if doubts else ""
    machine = "".join(f", {one}" for one in machine_of(run))
    return f"{measured_on(run)}{machine}, verdict {run.verdict['verdict']}{said}."


def heading_of(quantity: str) -> str:
    """Return the name of a quantity or a factor as a heading."""
    said = " ".join(ABBREVIATIONS.get(word, word) for word in quantity.split("_"))
    return said[:1].upper() + said[1:]


def _called(name: str) -> str:
    return NAMED.get(name, name.replace("_", " ")).removesuffix(" (B)").lower()


def _told(name: str, value: Any) -> str:
    """Return a factor that all figures have in common, for the caption."""
    if name == "sessions":
        return f"{value} beds"
    if name == "interval_ns":
        return f"{_called(name)} {duration(value)}"
    return f"{_called(name)} {count(value)} B" if name.endswith("_bytes") else f"{_called(name)} {_word(value)}"


def _is_told(rows: Sequence[Row], name: str) -> bool:
    value = _common(rows, name)
    return value is not _DIFFERS and value is not None and not isinstance(value, list | dict)


_DIFFERS = object()


def _common(rows: Sequence[Row], name: str) -> Any:
    """Return the value that all rows have; _DIFFERS if they have several."""
    first = rows[0].get(name)
    return first if all(row.get(name) == first for row in rows) else _DIFFERS


def _has_interval(row: Row) -> bool:
    return row["ci_low"] is not None or row["ci_high"] is not None


def _word(value: Any) -> str:
    """Return a value as text for people."""
    if value is None:
        return NOTHING
    return f"{value:.6g}" if isinstance(value, float) else str(value)
