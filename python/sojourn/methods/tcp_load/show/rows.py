"""What the tables of "tcp-load" have in common: the cells with their figures, and how a figure is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.methods.tcp_load.analyse.naming import short_names
from sojourn.report.numbers import NOTHING, Shown, show
from sojourn.report.table import Column, Entry, interval, number, text, whole

if TYPE_CHECKING:
    from sojourn.report.run import Run

Figures = dict[tuple[str, str], dict[str, Any]]
"""The rows of one cell by quantity and statistic."""

WAYS = ("down", "up")
ESTIMATE = ("estimate", "ci_low", "ci_high")
MILLION = 1e6

FACTORS = (
    Column(("device",), "Path", numeric=False),
    Column(("flows",), "Flows"),
    Column(("direction",), "Direction", numeric=False),
    Column(("congestion",), "Congestion control", numeric=False),
    Column(("pipe",), "Pipe", numeric=False),
    Column(("round_trips",), "Round trips", numeric=False),
    Column(("scenario",), "Scenario", numeric=False),
    Column(("background",), "Background", numeric=False),
)


def factors_of(row: dict[str, Any]) -> tuple[Entry, ...]:
    device, further = str(row["device"]), ("pipe", "round_trips", "scenario", "background")
    return (text(device, device), whole(row["flows"]), text(row["direction"]), text(row["congestion"]),
            *(text(row.get(name) or NOTHING) for name in further))  # fmt: skip


def load_of(row: dict[str, Any]) -> str:
    """The flows of a row and what is beside them, as figures and cards name them; the scenario where it has one."""
    beside = f" beside {row['background']}" if row.get("background") else ""
    mix = f", {row['round_trips']}" if row.get("round_trips") else ""
    return str(row.get("scenario") or f"{row['flows']} × {row['congestion']}{beside}") + mix


def cells_of(run: Run, *, further: bool = False) -> list[tuple[dict[str, Any], Figures]]:
    """Every cell over every device: its factors, and its figures; with those of `further` probes."""
    found: dict[tuple[str, int], Figures] = {}
    for row in run.entries:
        if row["cell"] is not None and row["quantity"] != "latency_under_load" and (further or not row.get("dscp")):
            found.setdefault((row["device"], row["cell"]), {})[row["quantity"], row["statistic"]] = row
    return [(next(iter(of.values())), of) for of in found.values()]


def in_ms(row: dict[str, Any], names: tuple[str, str, str]) -> Shown:
    """A time in ns and the ends of its interval, under these names."""
    value, low, high = (None if row.get(name) is None else row[name] / MILLION for name in names)
    return show(value, low, high, "ms")


def in_s(row: dict[str, Any] | None) -> Shown:
    value, low, high = (None if row is None or row[name] is None else row[name] / 1e9 for name in ESTIMATE)
    return show(value, low, high, "s")


def shown_of(row: dict[str, Any] | None, unit: str) -> Shown:
    return show(None, None, None, unit) if row is None else show(row["estimate"], row["ci_low"], row["ci_high"], unit)


def names_of(run: Run) -> dict[int, str]:
    """Every cell by what its flows are."""
    cells = cells_of(run, further=True)
    several = any(row.get("dscp") for row, _ in cells)
    return {
        row["cell"]: ", ".join(
            [
                f"{load_of(row)} {row['direction']}",
                *([row["pipe"]] if row["pipe"] else []),
                *([probe_of(row)] if several else []),
            ]
        )
        for row, _ in cells
    }


def probe_of(row: dict[str, Any]) -> str:
    """The probes of a row, with their DSCP where they ran beside others: "udp/ping-pong, EF"."""
    return f"{row['probe']}, {row['dscp']}" if row.get("dscp") else str(row["probe"])


def queue_of(run: Run, row: dict[str, Any]) -> str:
    """The queue of a figure's row as cards and figures name it; the device besides, where several have queues."""
    pipes = short_names([str(of["pipe"]) for of, _ in cells_of(run) if of["pipe"]])
    name = pipes.get(str(row["pipe"]), NOTHING)
    return name if len({of["device"] for of, _ in cells_of(run)}) < 2 else f"{row['device']}: {name}"


def with_interval(row: dict[str, Any] | None, unit: str) -> tuple[Entry, Entry]:
    """A figure, and its interval."""
    shown = shown_of(row, unit)
    return number(shown), interval(shown)


def measured(name: str, title: str, unit: str = "", group: str = "") -> tuple[Column, Column]:
    """The columns of a figure and of its interval."""
    return (Column((name,), title, unit, group=group),
            Column((f"{name}_low", f"{name}_high"), "95 % CI", unit, group=group))  # fmt: skip
