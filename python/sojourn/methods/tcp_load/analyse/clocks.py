"""Converts the times of host B in a run of flows to host A's clock.

Probes have timestamps of A alone. B's times are those of the flows that B sends (TCP_INFO readings, log entries), and
of UDP packets the arrivals at B and the departures from B. Figures on the clock of the device's host, which no clock
trial reaches, are left out (`least_of`). Judges nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.analysis.host_clock import Trials, on_one_clock
from sojourn.analysis.samples import Sample, shared
from sojourn.methods.tcp_load.analyse.conserved import BLOCK
from sojourn.methods.tcp_load.analyse.shares import begun_ns, joined_ns
from sojourn.methods.tcp_load.analyse.trials import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sojourn.analysis.host_clock import OneClock, Reader
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.tcp_load.analyse.trials import Done

READINGS = ("intended_ns", "read_before_ns", "read_after_ns", "sent_ns")
RECEIVED, SENT = ("arrival_ns", "receive_call_ns"), ("intended_ns", "sent_ns")
"""Of packets: what the receiver stamped, and what the sender wrote into them."""

FLOWS, CHANNELS = ("started_ns",), ("started_ns", "ended_ns")
"""What is read of flows in the log, and of what is beside them, if it is there."""

CROSSING = ("convergence", "background_delay")
"""Figures that may be the difference of a time of A and one of B."""

CLOCKS = Sample(
    "A trial with times of host B, and how wrong they may be on host A's clock.",
    {
        **shared("device cell"),
        "block": BLOCK,
        "bound_ns": (pl.Float64, "By how much at most."),
        "error95_ns": (pl.Float64, "By how much in all but one case of 20."),
    },
)


def on_clock_of_a(run: Run) -> OneClock:
    """Return the run on A's clock."""
    lasts_ns = sum(parts_of(run))
    trials = Trials("load-trial", _has_far, _entry, lambda one: (begun_ns(one), joined_ns(one) + lasts_ns))
    return on_one_clock(run, trials, {"tcp_readings": (READINGS, ()), "arrivals": (RECEIVED, SENT)})


def state(joined: OneClock, rows: Iterable[Row], several: Sequence[Done]) -> None:
    """Tell the clocks' errors of the figures that may be between both clocks."""
    for row in rows:
        if row.quantity in CROSSING:
            joined.state(row, (one.block for one in several if (one.device, one.cell) == (row.device, row.cell)))


def frame_of(joined: OneClock, several: Iterable[Done]) -> pl.DataFrame:
    """Return the errors in each trial that has times of B."""
    rows = [(one.device, one.cell, one.block, error.bound_ns, error.error95_ns)
            for one in several if (error := joined.errors.get(one.block)) is not None]  # fmt: skip
    return pl.DataFrame(rows, schema=CLOCKS.own, orient="row")


def _has_far(entry: dict[str, Any]) -> bool:
    """Return whether figures are of times of B: of what it sent, or of packets over UDP that it received."""
    channels = entry.get("background") or ()
    return any(one["direction"] == "down" for one in (*entry["flows"], *channels)) or any(
        one["kind"] == "udp" for one in channels
    )


def _entry(entry: dict[str, Any], read: Reader) -> dict[str, Any]:
    """Return a trial with the times of its flows and its background on A's clock."""
    channels = [_channel(one, read) for one in entry.get("background") or ()]
    flows = [_times(one, FLOWS, read) if one["direction"] == "down" else one for one in entry["flows"]]
    return entry | {"flows": flows} | ({"background": channels} if channels else {})


def _channel(channel: dict[str, Any], read: Reader) -> dict[str, Any]:
    """Return a part of a background; of UDP, its packets are of one clock now, too."""
    found = channel | ({"one_clock": True} if channel["kind"] == "udp" else {})
    if channel["direction"] != "down":
        return found
    own = [_times(one, CHANNELS, read) for one in channel.get("flows") or ()]
    return _times(found, CHANNELS, read) | ({"flows": own} if own else {})


def _times(told: dict[str, Any], names: Sequence[str], read: Reader) -> dict[str, Any]:
    """Return what has times of B, with these on A's clock."""
    there = [name for name in names if told.get(name) is not None]
    return told | dict(zip(there, read([told[name] for name in there]), strict=True))
