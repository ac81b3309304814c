"""The output of `--dry-run` for plans with streams: the factors of each cell and its paths, or the searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from sojourn.units import as_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console


def print_trials(shown: dict[str, Any], console: Console) -> None:
    """Print the cells; a factor without any value is left out."""
    cells = shown["cells"]
    table = Table(box=None, pad_edge=False)
    unasked = "interval" if shown["asked_by"] == "rate" else "rate"
    columns = {name: tell for name, tell in COLUMNS.items() if name != unasked and any(tell(cell) for cell in cells)}
    for name in columns:
        table.add_column(name, overflow="fold")
    for cell in cells:
        table.add_row(*(tell(cell) for tell in columns.values()))
    console.print(table)
    console.print()
    rounds = f"{shown['rounds']} round{'s' if shown['rounds'] != 1 else ''} of every cell"
    console.print(f"{rounds}, each on its paths in a random order and its mirror.", markup=False)
    first = f", after {shown['qualifying_trials']} that qualify the tester" if shown["qualifying_trials"] else ""
    console.print(f"{shown['trials']} trials{first}; about {shown['frames']} frames in all.", markup=False)


def print_searches(shown: dict[str, Any], console: Console) -> None:
    """Print one row for each search, whatever its repetitions."""
    table = Table(box=None, pad_edge=False)
    for column in ("test", "device", "frame", "by", "loss ratios", "about"):
        table.add_column(column, overflow="fold")
    first = [search for search in shown["searches"] if search["repetition"] == 0]
    for search in sorted(first, key=lambda search: (search["device"], search["frame_bytes"])):
        goals = ", ".join(f"{goal:g}" for goal in search["goals"])
        how = search["algorithm"] if search["goals"] else "its own procedure"
        about = as_words(search["expected_ns"])
        table.add_row(search["test"], search["device"], f"{search['frame_bytes']} B", how, goals, about)
    console.print(table)
    console.print()
    times = f", {shown['repetitions']} times" if shown["repetitions"] > 1 else ""
    console.print(f"{len(first)} searches{times}; how many trials each takes, the device decides.", markup=False)


def rate_of(cell: dict[str, Any]) -> str:
    """Return a mean rate, if known before the run."""
    if cell["rate_share"] is not None:
        return f"{cell['rate_share'] * 100:g} %"
    return f"{cell['rate_pps']:,.0f} pps" if cell["rate_pps"] else ""


def load_of(cell: dict[str, Any]) -> str:
    """Return the load of a stream."""
    return f"{cell['load'] * 100:g} % {cell['load_via']}" if cell["load"] else ""


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "kind": lambda cell: str(cell["kind"]),
    "engine": lambda cell: "" if cell["engine"] == "auto" else str(cell["engine"]),
    "frame": lambda cell: f"{cell['frame_bytes']} B",
    "schedule": lambda cell: str(cell["schedule"]),
    "rate": rate_of,
    "interval": lambda cell: as_duration(cell["interval_ns"]) if cell["interval_ns"] else "",
    "to": lambda cell: "" if cell["to"] == "unicast" else str(cell["to"]),
    "senders": lambda cell: "" if cell["senders"] == 1 else str(cell["senders"]),
    "others": lambda cell: str(cell["receivers"] or ""),
    "load": load_of,
    "paths": lambda cell: ", ".join(cell["paths"]),
    "takes": lambda cell: "" if cell["kind"] in ("ping-pong", "request-response") else as_words(cell["duration_ns"]),
    "frames": lambda cell: str(cell["count"] or ""),
}
"""The columns of the cells, each empty if it has no value."""


def as_words(nanos: int) -> str:
    """Return a time in a suitable unit."""
    seconds = nanos / 1e9
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.0f} min"
