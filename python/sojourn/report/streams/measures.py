"""Tables of streams: a row for each cell, device and receiver, a column for each quantity, all from result rows.

A limit is never shown as a value: a rate that the tester limited has the mark "≥", and a column of its own in files. A
percentile that is infinite because of lost packets is "∞". The clock error is shown beside one-way delays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.cells import cell_column, cell_entry
from sojourn.report.numbers import NOTHING, Shown, count, fixed, nominal, show
from sojourn.report.palette import ordered
from sojourn.report.table import Column, Entry, Table, interval, number, text
from sojourn.report.tables import shown_of

if TYPE_CHECKING:
    from sojourn.report.run import Cell, Run

AT_LEAST = "at_least"
INFINITE = "∞"
KEYS = ("reference", "against", "port", "node")
HEADINGS = {"reference": "minus", "against": "minus", "port": "Receiver", "node": "Node"}
SUFFIXES = {
    "µs": "_us", "µs/s": "_us_per_s", "%": "_percent", "1/s": "_per_s", "Mbit/s": "_mbit_per_s",
    "ns/byte": "_ns_per_byte",
}  # fmt: skip
Place = tuple[Any, ...]


@dataclass(frozen=True)
class Measure:
    """A column: a statistic of a quantity, with its interval unless that is switched off."""

    quantity: str
    statistic: str
    title: str
    group: str = ""
    interval: bool = True
    limit: bool = False
    """Whether a row may be a limit of the tester ("at_least") instead."""
    share: bool = False
    """Whether it is shown in percent."""
    unit: str = ""
    """The text under its heading instead of the unit, where the unit would mislead."""

    @property
    def key(self) -> str:
        """The column's machine-readable name, without its unit."""
        return f"{self.quantity}_{self.statistic}".replace(".", "_").replace("-", "_to_")

    def of(self, rows: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any] | None:
        """Return this measure's row among those of one place; a limit if it has no value and `limit` is set."""
        found = rows.get((self.quantity, self.statistic))
        return rows.get((self.quantity, AT_LEAST)) if found is None and self.limit else found


@dataclass(frozen=True)
class Ask:
    """The content of a table of measures, with its name and title."""

    name: str
    title: str
    measures: tuple[Measure, ...]
    note: str = ""
    where: pl.Expr | None = None
    without: tuple[str, ...] = ()
    """Cells that differ in these factors only share one row."""
    by_size: bool = False
    """Whether a row is of a frame size instead of a cell."""
    clock: bool = False
    """Whether the clock error is shown beside the figures, as it must be beside one-way delays."""
    counted: str = "Trials"
    """The unit of which each row has `n`."""


def measured(run: Run, ask: Ask) -> Table:
    """Return the table, with cells and devices in their order."""
    places = _places(run, ask)
    present = [one for one in ask.measures if any(one.of(rows) for rows in places.values())]
    keys = [key for i, key in enumerate(KEYS) if len({place[2 + i] for place in places}) > 1]
    columns = [cell_column(run), Column(("device",), "Device", numeric=False)]
    columns += [Column((key,), HEADINGS[key], numeric=False) for key in keys]
    columns += [column for one in present for column in _columns(one, places)]
    columns += [Column(("n", "level"), ask.counted)]
    if ask.clock:
        columns.append(Column(("clock_error95_us", "clock_bound_us"), "Clock error", "µs, 95 % (maximum)"))
    cells: dict[str, set[int | None]] = {}
    for place, found in places.items():
        cells.setdefault(place[0], set()).update(row["cell"] for row in found.values())
    names = {name: cell_entry(run, name, several) for name, several in cells.items()}
    rows = tuple((names[place[0]], *_row(place, found, present, keys, ask.clock)) for place, found in places.items())
    marks = [MARK] if any(one.limit for one in present) and _limited(places) else []
    marks += [SCATTERED] if any(entry.text == TOO_SCATTERED for row in rows for entry in row) else []
    note = " ".join([ask.note, *marks]).strip()
    wide = len(columns) > 7
    return Table(ask.name, ask.title, tuple(columns), rows if present else (), note, wide=wide, grouped=True)


def _behind(rows: dict[tuple[str, str], dict[str, Any]], measures: list[Measure]) -> Entry:
    """The number of trials or pairs behind a row's first interval, and its level if it is not 95 %."""
    known = [row for one in measures if (row := one.of(rows))]
    row = next((one for one in known if one["ci_low"] is not None), known[0] if known else None)
    if row is None:
        return Entry(NOTHING)
    level = "" if row["ci_low"] is None else nominal(row["level"])
    return Entry(f"{count(row['n'])}{f', at {level}' if level not in ('', '95 %') else ''}", (row["n"], row["level"]))


TOO_SCATTERED = "too scattered"
SCATTERED = "“Too scattered”: the trials differ so much that the interval of a time would include negative values."
DURATIONS = (
    "rtt", "one_way_delay", "response_latency", "peak", "peak_spacing", "inter_frame_time", "inter_arrival",
    "latency_typical", "latency_worst", "latency_store_and_forward", "latency_bit_forwarding", "pdv", "pdv_test",
    "buffer_time_implied", "buffer_time_corrected",
)  # fmt: skip
"""Times that cannot be negative, although a difference of two of them can."""

MARK = "≥ marks a rate that the tester limited: the device can do at least that."


def _places(run: Run, ask: Ask) -> dict[Place, dict[tuple[str, str], dict[str, Any]]]:
    """Return the rows of each place (cell's name, device, and KEYS), in the order of the table."""
    wanted = {(one.quantity, name) for one in ask.measures for name in (one.statistic, AT_LEAST)}
    found = run.results.filter(pl.col("quantity").is_in([one.quantity for one in ask.measures]))
    found = found if ask.where is None else found.filter(ask.where)
    if not found["port"].max():
        found = found.with_columns(port=pl.lit(None, dtype=pl.Int64))  # one receiver needs no column
    labels = {cell.number: _label(cell, ask.without) for cell in run.cells}
    places: dict[Place, dict[tuple[str, str], dict[str, Any]]] = {}
    for row in found.iter_rows(named=True):
        kind = (row["quantity"], row["statistic"])
        if kind in wanted:
            label = f"{row['frame_bytes']} B" if ask.by_size and row["frame_bytes"] else labels.get(row["cell"], "all")
            place = (label, row["device"], *(row[key] for key in KEYS))
            places.setdefault(place, {})[kind] = row
    order = list(dict.fromkeys(["all", *labels.values(), *(str(place[0]) for place in places)]))
    devices = ordered([place[1] for place in places])

    def rank(place: Place) -> tuple[Any, ...]:
        numbers = ((one is not None, one or 0) for one in place[4:])
        return (order.index(place[0]), devices.index(place[1]), *numbers, str(place[2]), str(place[3]))

    return {place: places[place] for place in sorted(places, key=rank)}


def _label(cell: Cell, without: tuple[str, ...]) -> str:
    return (cell.without(without) or "all") if without else cell.short


def _columns(measure: Measure, places: dict[Place, dict[tuple[str, str], dict[str, Any]]]) -> list[Column]:
    first = next(row for rows in places.values() if (row := measure.of(rows)))
    unit = _shown(measure, first).unit
    key, suffix = measure.key, SUFFIXES.get(unit, "")
    limit = (f"{key}_limit",) if measure.limit else ()
    unit = measure.unit or unit
    columns = [Column((f"{key}{suffix}", *limit), measure.title, unit, group=measure.group)]
    if measure.interval:
        ends = (f"{key}_low{suffix}", f"{key}_high{suffix}")
        columns.append(Column(ends, "95 % CI", unit, group=measure.group))
    return columns


def _row(
    place: Place, rows: dict[tuple[str, str], dict[str, Any]], measures: list[Measure], keys: list[str], clock: bool
) -> tuple[Entry, ...]:
    entries = [text(place[1], place[1])]
    entries += [_named(key, place[2 + KEYS.index(key)]) for key in keys]
    for one in measures:
        entries += entries_of(one, one.of(rows))
    return (*entries, _behind(rows, measures), *([clock_entry(rows.values())] if clock else []))


def _named(key: str, value: Any) -> Entry:
    if value is None:
        return Entry(NOTHING)
    if key == "port":
        return Entry(str(value + 1), (value + 1,))
    if key == "against":
        return Entry(against(str(value)), (str(value),))
    return Entry(str(value), (value,))


def against(cell: str) -> str:
    """Return the cell that was subtracted, in words: "no load", "unicast"."""
    return AGAINST.get(cell, cell.replace("=", " "))


AGAINST = {
    "load=0.0": "no load",
    "load_via=beside": "the same load, bypassing the device",
    "to=unicast": "unicast",
    "receivers=0": "no further receiver",
    "senders=1": "one sender",
}


def _shown(measure: Measure, row: dict[str, Any]) -> Shown:
    if measure.share:
        return show(row["estimate"], row["ci_low"], row["ci_high"], "ratio")
    return shown_of(row)


def entries_of(measure: Measure, row: dict[str, Any] | None) -> list[Entry]:
    """Return the value as text, and its interval if one is wanted."""
    shown = _shown(measure, row) if row else show(None, None, None, "")
    value = number(shown)
    if row and row["statistic"] == AT_LEAST:
        value = Entry(f"≥ {fixed(shown.value, 0)}", (shown.value, AT_LEAST))
        shown = Shown(None, None, None, shown.unit)
    elif row and row["estimate"] is None and _is_percentile(row["statistic"]) and row["unit"] == "ns":
        value = Entry(INFINITE, ("inf",))
    if row and is_scattered(row):
        return [value, Entry(TOO_SCATTERED, (shown.low, shown.high))] if measure.interval else [value]
    return [value, interval(shown)] if measure.interval else [value]


ROUND_TRIPS = ("rtt", "response_latency")
"""Quantities that one host measures with its own clock only."""


def is_scattered(row: dict[str, Any]) -> bool:
    """Return whether a duration's interval reaches below zero; one-way delays with a clock error do not count."""
    alone = row["reference"] is None and row["against"] is None and not row["clock_bound_ns"]
    low = row["ci_low"]
    is_time = row["quantity"].removeprefix("broadcast_") in DURATIONS
    return alone and is_time and low is not None and low < 0 <= (row["estimate"] or 0)


def _is_percentile(statistic: str) -> bool:
    """Return whether lost frames can make it infinite; "median" is the median of a percentile over trials."""
    return statistic.startswith("p") or statistic in ("median", "max")


def clock_entry(rows: Any) -> Entry:
    """Return the largest clock error of these rows, at 95 % and at most; or that both ends have one clock."""
    rows = list(rows)
    known = [row for row in rows if row["clock_bound_ns"] is not None]
    if not known and rows and all(str(row["quantity"]).startswith(ROUND_TRIPS) for row in rows):
        return Entry("one clock", (0.0, 0.0))
    if not known:
        return Entry("not known")
    error = max(float(row["clock_error95_ns"] or 0.0) for row in known)
    bound = max(float(row["clock_bound_ns"]) for row in known)
    if bound == 0:
        return Entry("one clock", (0.0, 0.0))
    return Entry(f"{error / 1e3:.3g} ({bound / 1e3:.3g})", (error / 1e3, bound / 1e3))


def _limited(places: dict[Place, dict[tuple[str, str], dict[str, Any]]]) -> bool:
    return any(statistic == AT_LEAST for rows in places.values() for _, statistic in rows)
