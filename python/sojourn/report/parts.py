"""What a method's report consists of: its tables, figures, key numbers, and how it was measured, in words."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

METHODS = {
    "departures": "senders",
    "one-way": "streams.one_way",
    "stages": "streams.stages",
    "model": "streams.model",
    "emulator": "streams.emulator",
    "background": "streams.background",
    "fan-in": "streams.fan_in",
    "throughput": "streams.throughput",
    "loss": "streams.loss",
    "multicast": "streams.multicast",
    "tcp-cost": "costs",
    "tcp-truth": "tcp.truth",
    "tcp-perturbation": "tcp.perturbation",
    "rfc2544": "streams.suites",
    "rfc8219": "streams.suites",
    "rfc2889": "streams.suites",
}
"""The module of this package whose PARTS are a method's report; of all other methods it is `pairs`."""


@dataclass(frozen=True)
class Key:
    """A number that stands large under the verdict."""

    what: str
    value: str
    unit: str
    lines: tuple[str, ...]
    device: str | None = None


@dataclass(frozen=True)
class Parts:
    """The report of a method; tables and figures without rows are left out."""

    tables: tuple[Callable[[Run], Table], ...]
    figures: tuple[Callable[[Run], Figure | None], ...]
    keys: Callable[[Run], list[Key]]
    words: Callable[[Run], list[str]]
    results: tuple[str, ...]
    """Names of the tables that stand under "Results", before the figures."""


def parts_of(run: Run) -> Parts:
    """What the report of this run consists of."""
    parts: Parts = import_module(f"sojourn.report.{METHODS.get(run.method, 'pairs')}").PARTS
    return parts
