"""The sessions one by one: the round-trip times of each path, and the state of the machine meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.cells import cell_column, cell_entry
from sojourn.report.numbers import NOTHING
from sojourn.report.table import Column, Entry, Table, rounded, text, whole

if TYPE_CHECKING:
    from sojourn.report.run import Run


def session_paths(run: Run) -> Table:
    """Each path's median round trip and its shares of modes in every session; only for a run of several."""
    found = run.samples("session_paths")
    several = found is not None and found["session"].n_unique() > 1
    most = int(found["mode"].max()) if found is not None and several else 1  # type: ignore[arg-type]
    columns = (
        Column(("session",), "Session"),
        cell_column(run),
        Column(("device",), "Device", numeric=False),
        Column(("rtt_median_us",), "Median round trip", "µs"),
        *(
            Column((f"mode_{mode}_percent", f"mode_{mode}_us"), f"In mode {mode}", "%", group="Modes")
            for mode in range(1, most + 1)
        ),
        Column(("probes",), "Probes"),
    )
    rows = _path_rows(run, found, most) if found is not None and several else []
    note = (
        "Modes are found in a path's round trips of all sessions together, the fastest first; each round trip counts "
        "for the nearest mode. Before that, the sessions are aligned at the beginning of their fastest mode, so a "
        "session that is slower as a whole differs only in its median."
    )
    return Table("session_paths", "Round trips by session", columns, tuple(rows), note, wide=True, grouped=True)


def session_machine(run: Run) -> Table:
    """The machine's state and activity in every session."""
    found = run.samples("session_machine")
    rows = [] if found is None else list(found.iter_rows(named=True))
    counted = any(row["cycles"] is not None for row in rows)
    columns = (
        Column(("session",), "Session"),
        Column(("bed",), "Bed"),
        Column(("seconds",), "Lasts", "s"),
        Column(("others_cores",), "Others", "cores", group="Processor time"),
        Column(("steal_percent",), "Steal", "%", group="Processor time"),
        *(Column((f"{name}_per_s",), title, "1/s", group="All processors") for name, title in RATES.items()),
        *(Column((name,), title, group="All processors") for name, title in COUNTED.items() if counted),
    )
    entries = [
        (
            whole(row["session"] + 1),
            whole(row["bed"] + 1),
            rounded(row["seconds"], 1),
            rounded(row["others_cores"], 2),
            rounded(_times(row["steal_share"], 100), 2),
            *(_rate(row[name], row["seconds"]) for name in RATES),
            *(_with_prefix(row[name]) for name in COUNTED if counted),
        )
        for row in rows
    ]
    note = (
        "From the machine's own counters before and after each session, for all that runs on it: interrupts of every "
        "kind, those of the timer among them; soft interrupts for received packets; context switches. Steal is "
        "processor time that the hypervisor gave to other virtual machines."
    )
    missing = next((row["no_counters"] for row in rows if row["no_counters"]), None)
    if missing is not None:
        note += f" Cycles, instructions and cache misses: {missing}."
    return Table("session_machine", "The machine by session", columns, tuple(entries), note, wide=True)


RATES = {
    "interrupts": "Interrupts",
    "timer_interrupts": "Of the timer",
    "net_rx_softirqs": "Receive softirqs",
    "context_switches": "Context switches",
}
COUNTED = {"cycles": "Cycles", "instructions": "Instructions", "cache_misses": "Cache misses"}


def _path_rows(run: Run, found: pl.DataFrame, most: int) -> list[tuple[Entry, ...]]:
    rows = []
    cells = {cell.number: cell for cell in run.cells}
    shown = found.filter(pl.col("cell").is_in(list(cells)))
    for (session, cell, device), own in shown.partition_by(
        "session", "cell", "device", as_dict=True, maintain_order=True
    ).items():
        first = own.row(0, named=True)
        modes = {row["mode"]: row for row in own.iter_rows(named=True)}
        number = int(str(cell))
        rows.append((
            whole(int(str(session)) + 1),
            cell_entry(run, cells[number].short, [number]),
            text(str(device), str(device)),
            rounded(first["median_ns"] / 1e3, 3),
            *(_share(modes.get(mode)) for mode in range(1, most + 1)),
            whole(first["probes"]),
        ))  # fmt: skip
    return rows


def _share(row: dict[str, Any] | None) -> Entry:
    """Return the share of probes in a mode, and the mode's location."""
    if row is None:
        return Entry(NOTHING)
    return Entry(f"{100 * row['share']:.1f}", (100 * row["share"], row["mode_ns"] / 1e3))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _rate(count: int | None, seconds: float | None) -> Entry:
    return whole(count / seconds) if count is not None and seconds else Entry(NOTHING)


def _with_prefix(value: int | None) -> Entry:
    """Return a large count with three digits and an exponent that is a multiple of 3: 12.3e9."""
    if value is None:
        return Entry(NOTHING)
    power = max(0, (len(str(value)) - 1) // 3 * 3)
    return Entry(f"{value / 10**power:.3g}e{power}", (value,))
