"""A run of flows between hosts with two clocks, as if they had one: every time of host B is read on host A's.

Probes are stamped at A alone. Of B's times are the readings and the log of flows that it sent, and of packets over UDP
when those that it received arrived, or those that it sent left. Figures of the device's own clock, which no clock trial
reaches, are not made here either (`least_of`). Judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.finding import Place
from sojourn.analysis.host_clock import Errors, FarClock, far_clock, has_two_clocks
from sojourn.methods.tcp_load.analyse.shares import begun_ns, joined_ns
from sojourn.methods.tcp_load.analyse.trials import parts_of
from sojourn.records.lost import in_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.tcp_load.analyse.trials import Done

READINGS = ("intended_ns", "read_before_ns", "read_after_ns", "sent_ns")
RECEIVED, SENT = ("arrival_ns", "receive_call_ns"), ("intended_ns", "sent_ns")
"""Of packets: what the receiver stamped, and what the sender wrote into them."""

TIMES = ("started_ns", "ended_ns", "first_moved_ns", "last_moved_ns")
"""Of flows in the log, where they are; all else there are durations."""

CROSSING = ("convergence", "background_delay")
"""Figures that may be the difference of a time of A and one of B."""


@dataclass(frozen=True, slots=True)
class OneClock:
    """A run on A's clock, and how wrong the times of B may be in it."""

    run: Run
    is_joined: bool = False
    """Whether there were two clocks."""
    errors: Mapping[int, Errors] = field(default_factory=dict)
    """By block, of each trial that has times of B."""
    unknown: tuple[Place, ...] = ()
    """The place of each trial that has times of B which cannot be read: the log of `run` has it no longer."""

    def worst(self, blocks: Iterable[int]) -> Errors | None:
        """The largest errors of these trials; None where none has times of B."""
        several = [self.errors[block] for block in blocks if block in self.errors]
        if not several:
            return None
        return Errors(max(one.bound_ns for one in several), max(one.error95_ns for one in several))

    def frame(self, several: Iterable[Done]) -> pl.DataFrame:
        """The errors in each trial that has times of B: device, cell, block, bound_ns, error95_ns."""
        kinds = {"device": pl.String, "cell": pl.Int32, "block": pl.Int64, "bound_ns": pl.Float64,
                 "error95_ns": pl.Float64}  # fmt: skip
        rows = [(one.device, one.cell, one.block, error.bound_ns, error.error95_ns)
                for one in several if (error := self.errors.get(one.block)) is not None]  # fmt: skip
        return pl.DataFrame(rows, schema=kinds, orient="row")

    def state(self, row: Row, blocks: Iterable[int]) -> None:
        """Tell the clocks' errors of a figure over these trials, where it may be between both."""
        if self.is_joined and row.quantity in CROSSING:
            worst = self.worst(blocks) or Errors(0.0, 0.0)
            row.between_clocks(worst.bound_ns, worst.error95_ns)


def on_one_clock(run: Run) -> OneClock:
    """The run, all of whose times are of A's clock; the same where its hosts have one."""
    if not has_two_clocks(run):
        return OneClock(run)
    clock = far_clock(run)
    log, errors, unknown = _log(run, clock)
    tables = dict(run.tables)
    for name, far, near in (("tcp_readings", READINGS, ()), ("arrivals", RECEIVED, SENT)):
        table = run.table(name)
        tables[name] = replace(table, frame=clock.table(table.frame, far, near)) if table.frame.height else table
    return OneClock(replace(run, log=log, tables=tables), is_joined=True, errors=errors, unknown=unknown)


def _log(run: Run, clock: FarClock) -> tuple[list[dict[str, Any]], dict[int, Errors], tuple[Place, ...]]:
    """The log without the trials that cannot be read, and with times of A's clock in those that can."""
    part_of = {id(entry): part for part, entry in in_parts(run.log, "load-trial")}
    lasts_ns, log, errors, unknown = sum(parts_of(run)), [], {}, []
    for entry in run.log:
        part = part_of.get(id(entry))
        if part is None or not _has_far(entry):
            log.append(entry)
        elif part in clock.parts:
            log.append(own := _entry(entry, part, clock))
            errors[int(own["block"])] = clock.errors(part, begun_ns(own), joined_ns(own) + lasts_ns)
        else:
            unknown.append(Place(str(entry["device"]), int(entry["cell"])))
    return log, errors, tuple(unknown)


def _has_far(entry: dict[str, Any]) -> bool:
    """Whether a trial has times of B that figures are of: of what it sent, or of packets over UDP that it received."""
    channels = entry.get("background") or ()
    return any(one["direction"] == "down" for one in (*entry["flows"], *channels)) or any(
        one["kind"] == "udp" for one in channels
    )


def _entry(entry: dict[str, Any], part: int, clock: FarClock) -> dict[str, Any]:
    """A trial with the times of its flows and its background on A's clock."""
    channels = [_channel(one, part, clock) for one in entry.get("background") or ()]
    flows = [_flow(one, part, clock) if one["direction"] == "down" else one for one in entry["flows"]]
    return entry | {"flows": flows} | ({"background": channels} if channels else {})


def _channel(channel: dict[str, Any], part: int, clock: FarClock) -> dict[str, Any]:
    """A part of a background; of UDP, its packets are of one clock now, too."""
    found = channel | ({"one_clock": True} if channel["kind"] == "udp" else {})
    if channel["direction"] != "down":
        return found
    own = [_flow(one, part, clock) for one in channel.get("flows") or ()]
    return _flow(found, part, clock) | ({"flows": own} if own else {})


def _flow(told: dict[str, Any], part: int, clock: FarClock) -> dict[str, Any]:
    """What has times of B, with these on A's clock."""
    names = [name for name in TIMES if told.get(name) is not None]
    times = clock.read(part, np.array([told[name] for name in names], dtype=np.int64))
    return told if times is None else told | dict(zip(names, times.tolist(), strict=True))
