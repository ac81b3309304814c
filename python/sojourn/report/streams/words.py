"""The description of a measurement with streams: unit, clocks, engines, the tester zero-loss rate, lost frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.records.clock_trials import CLOCK_TRIAL
from sojourn.report.numbers import count
from sojourn.report.paths import path_words
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.streams.measures import clock_entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.report.run import Run

ENGINES = {
    "packet": "AF_PACKET (raw frames)",
    "udp": "UDP sockets (IPv4)",
    "udp6": "UDP sockets (IPv6)",
    "tcp": "messages over TCP (IPv4), Nagle's algorithm off, one write a message",
    "xdp": "AF_XDP (raw frames that bypass the kernel's network stack)",
    "live": "XDP programs in the kernel (live frames at the sender, counters at the receiver)",
    "sim": "simulation",
}
AUTO = "the fastest engine that this machine has for raw frames"
"""The meaning of the name `auto`, which a plan may give in place of an engine."""

CROSSING = ("one_way_delay", "stage_total", "latency_typical", "latency_store_and_forward")
"""Quantities measured from the clock of one end to that of the other."""

UNIT = (
    "The unit is the trial, never the packet: one stream sent once over one path. Paths and cells follow each other "
    "in random and then mirrored order. Intervals are over trials. From six trials on, an estimate over trials is "
    "Hodges and Lehmann's, the middle of the trials' values and not their average, with the exact signed-rank "
    "interval, at the lowest level of 95 % or more that the number of trials allows; with three to five trials it is "
    "their average with Student's interval; with fewer there is no interval. What a device adds is estimated in the "
    "same way, from the differences between trials of one round with and without it."
)
OVER_BEDS = (
    "The unit is the trial, never the packet: one stream sent once over one path. Paths and cells follow each other in "
    "random and then mirrored order. The run was divided over {beds} beds, each set up anew with other addresses, "
    "interface indexes, order of links, processes and cores. Intervals are over beds: of means, rates, and differences "
    "between trials of one round by Student's t over the means of beds, or by REML with Hartung and Knapp's where beds "
    "have unequal numbers of trials, either reaching further towards a long tail (by Hall's transformed t); of shares "
    "after Korn and Graubard, and of percentiles after Woodruff, with the bed as the cluster. Percentiles have an "
    "interval from four beds on, other figures from three."
)
LOST = (
    "Every frame sent is counted once: as received, lost, corrupted, or dropped by the receiver's own socket or ring. "
    "A lost frame counts in the distribution of delays as an infinite delay, so percentiles include it."
)
LIMIT = (
    "A device's rate within 10 % of the zero-loss rate is limited by the tester: it is marked ≥, and the device can "
    "do at least that. The direct link's own rates are the tester's, and are not marked."
)


def words(run: Run, own: str, *, delays: bool = True, unit: str = UNIT) -> list[str]:
    """Return the lines; `own` is the line of the method."""
    beds = run.sessions
    lines = [
        OVER_BEDS.format(beds=beds) if beds > 1 and unit is UNIT else unit,
        own,
        *path_words(run),
        *(clock_words(run) if delays else ()),
        *engine_words(run),
        *tester_words(run),
        LOST,
    ]
    return [line for line in lines if line]


def estimates(run: Run) -> str:
    """Return the kind of the estimates over trials."""
    return "means over beds" if run.sessions > 1 else "Hodges and Lehmann's"


def clock_words(run: Run) -> list[str]:
    """Return the lines on the clock of each end, and the error of their difference."""
    clock, stamps = clock_and_stamps(run, *CROSSING)
    # Differences of two delays have both errors; this line is about the error of one.
    crossing = run.results.filter(pl.col("quantity").is_in(CROSSING)).drop_nulls("clock_bound_ns")
    said = clock_entry(crossing.iter_rows(named=True)).text
    if said == "one clock":
        told = "Sender and receiver read one clock, so that a one-way delay carries no clock error"
    elif said == "not known":
        return []
    else:
        error, _, bound = said.partition(" (")
        told = (
            f"The receiver's clock was compared with the sender's {_compared(run)}. The error of a "
            f"converted time is at most {bound.rstrip(')')} µs; if the shortest delays of both directions are equal, "
            f"it is below {error} µs with 95 % probability (values of the worst trial)"
        )
    stamped = f"; departures and arrivals were stamped by {stamps}" if stamps else ""
    return [f"{told}. Times are of {clock}{stamped}."]


def _compared(run: Run) -> str:
    """Return when the clocks were compared."""
    if any(event.get("event") == CLOCK_TRIAL for event in run.log):
        return "by clock trials, short streams over the direct path between the trials"
    return "before, during and after each trial"


def engine_words(run: Run) -> list[str]:
    """Return the engines that sent and received, from the run's log."""
    told = run.verdict.get("engines") or {}
    sent = _listed(told.get("send") or _engines(run, "send"))
    # In older runs the receiver's engine has the name of its send method.
    received = _listed(name.split(" sendmmsg")[0] for name in told.get("receive") or _engines(run, "receive"))
    if not sent:
        return []
    own = sorted(set(run.results["engine"].drop_nulls().to_list()) & {"auto", *ENGINES})
    meant = ", ".join(f"{one} is {AUTO if one == 'auto' else ENGINES[one]}" for one in own)
    named = f" In the names of cells and findings, {meant}." if meant else ""
    return [f"Sending: {sent}." + (f" Receiving: {received}." if received else "") + named]


def _engines(run: Run, end: str) -> list[str]:
    kept = (event for event in run.log if event.get("event") == "stream-trial" and event.get("kept"))
    judged = (event for event in kept if event.get("purpose") in ("measure", "search"))
    names = sorted({str((event.get("engines") or {}).get(end) or "") for event in judged} - {""})
    return [ENGINES.get(name, name) for name in names]


def tester_words(run: Run) -> list[str]:
    """The tester zero-loss rate and the tester's own delay on the direct link, by frame size."""
    events = [event for event in run.log if event.get("event") == "qualified"]
    if not events:
        return []
    before = "Before the run"
    if run.sessions > 1:
        before = "On each bed (figures: the last bed),"
        events = list({(event.get("send_engine"), event.get("frame_bytes")): event for event in events}.values())
    parts = [part for event in events if (part := _qualified(event))]
    return [f"{before} the tester was measured on the direct link: {'; '.join(parts)}. {LIMIT}"]


def _qualified(event: dict[str, Any]) -> str:
    delay = (event.get("floor_ns") or {}).get("p50")
    zero_loss, flood = event.get("clean_pps"), event.get("flood_pps")
    said = [f"median delay from send call to arrival {delay / 1e3:.3g} µs" if delay else ""]
    said.append(f"zero-loss rate {count(zero_loss)} frames/s" if zero_loss else "no zero-loss rate was found")
    said.append(f"maximum rate {count(flood)} frames/s" if flood and flood > (zero_loss or 0) else "")
    return f"{event.get('frame_bytes')} B: " + ", ".join(one for one in said if one)


def _listed(names: Iterable[str]) -> str:
    several = [str(one) for one in names]
    return several[0] if len(several) == 1 else f"{', '.join(several[:-1])} and {several[-1]}" if several else ""


def has(run: Run, quantity: str) -> bool:
    """Whether there are rows of a quantity."""
    return bool(run.results.filter(pl.col("quantity") == quantity).height)
