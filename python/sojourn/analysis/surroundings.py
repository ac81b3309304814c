"""The state of the machine during a run, from bed.json and the log: other work, stolen time, offloads, device reports.

Reads facts that other modules recorded; missing facts give no finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.samples import Sample
from sojourn.analysis.wording import percent
from sojourn.devices import TWIN
from sojourn.records.lost import lost_trials, named, still_lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.run import Run

STOLEN = 0.01
"""The least share of our time that a hypervisor gives to others for a finding."""

HEAVY = 0.5
"""Of all processors' time: from this share on a frame finds its core busy more often than idle, and the median of what
is measured is that of a busy machine."""

JOINING = (
    "tx-checksumming",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
)
"""Offloads that merge or split frames, or leave their checksums unfinished."""


def contended(run: Run) -> Iterator[Finding]:
    """Return findings about other work on the machine, as watched, else by its load; none for simulated time."""
    said = sorted((event for event in run.log if event.get("event") == "contended"), key=_cores_of_others)
    processors = _at(run.bed, "stable", "machine", "cpu", "online")
    for event in said[-1:]:
        sentence, cores = str(event.get("sentence", "other work ran on this machine")), _cores_of_others(event)
        heavily = isinstance(processors, int) and cores >= HEAVY * processors
        yield Finding("contended_heavily" if heavily else "contended", sentence, cores)
    watched = sum(event.get("event") == "undisturbed" for event in run.log)
    if said or run.simulated or watched >= max(1, len(_parts(run))):
        return
    load = _load(run)
    if load is not None and isinstance(processors, int) and load > processors:
        sentence = f"other work ran on this machine: a load of {load:.1f} on {processors} processors as the run began"
        yield Finding("contended", sentence, load)
        return
    stolen = max((_stolen(part) for part in _parts(run)), default=0.0)
    if stolen > STOLEN:
        name = "contended_heavily" if stolen >= HEAVY else "contended"
        yield Finding(name, f"the hypervisor gave {percent(stolen)} of the processors' time to others", stolen)


def offloads(run: Run) -> Iterator[Finding]:
    """Return a finding for offloads that were requested, or were on at a link of the bed."""
    if run.plan.get("bed", {}).get("offloads") is True:
        yield Finding("offload_on", "bed.offloads is enabled: frames may be joined, split or checksummed late")
        return
    hosts = _at(run.bed, "stable", "hosts")
    on = [
        f"{name} of {dev}"
        for host in (hosts if isinstance(hosts, dict) else {}).values()
        for dev, link in (_at(host, "links") or {}).items()
        if _at(link, "kind") != "bridge"  # the bridge's own interface: frames do not pass it
        for name, state in (_at(link, "offloads") or {}).items()
        if name in JOINING and str(state).startswith("on")
    ]
    if on:
        more = f" and {len(on) - 1} more" if len(on) > 1 else ""
        yield Finding("offload_on", f"offloads were on ({on[0]}{more}): frames may be joined or split", float(len(on)))


def disturbed(run: Run) -> Iterator[Finding]:
    """Return the emulators' reports during the run (a port went down, a clock was set), and parts of devices that
    broke."""
    ends = [event for event in run.log if event.get("event") == "emulator-ended"]
    told = [(end, said) for end in ends for said in _at(end, "report", "said") or []]
    for end, said in told[:1]:
        more = f" ({len(told) - 1} more sentences in log.jsonl)" if len(told) > 1 else ""
        sentence = f"during the measurement, the device's emulator {end.get('emulator')} reported: {said}{more}"
        yield Finding("device_disturbed", sentence, float(len(told)), (Place(str(end.get("device"))),))
    sessions: dict[tuple[str, str], list[str]] = {}
    for event in run.log:
        if event.get("event") == "device-broken":
            said = str(event.get("device")), str(event.get("sentence"))
            sessions.setdefault(said, []).append(str(event.get("session")))
    for (device, said), which in sessions.items():
        sentence = f"in session {', '.join(dict.fromkeys(which))}, {said}"
        yield Finding("device_disturbed", sentence, float(len(set(which))), (Place(device),))


def lost(run: Run) -> Iterator[Finding]:
    """Return what the run lost to a host, a link or its own end; blocks that were measured again raise no doubt."""
    missing = still_lost(run.log)
    again = [one for one in lost_trials(run.log) if one.again]
    several = missing or again
    if several:
        counts_cells = "search" not in run.plan  # searches have numbers of their own, and rows those of their streams
        each = ((one.path.removesuffix(TWIN), one.cell if counts_cells else None) for one in [*missing, *again])
        places = tuple(Place(*one) for one in dict.fromkeys(each))
        ends = "they are missing: sojourn run --resume measures them" if missing else "they were measured again"
        sentence = f"{named(several)} ({several[0].why}); {ends}"
        yield Finding("blocks_lost", sentence, float(len(several)), places, "doubtful" if missing else None)


SESSION_MACHINE = Sample(
    "A part of the run, and what its machine did meanwhile. Null: unknown.",
    {
        "session": (pl.Int64, "The part, from 0."),
        "bed": (pl.Int64, "Its bed."),
        "seconds": (pl.Float64, "Its duration in s."),
        "others_cores": (pl.Float64, "The cores that other programs used."),
        "steal_share": (pl.Float64, "The share of the processors' time that a hypervisor took."),
        "interrupts": (pl.Int64, "Interrupts of all processors, as all counts here."),
        "timer_interrupts": (pl.Int64, "Those of the timer."),
        "net_rx_softirqs": (pl.Int64, "Soft interrupts for received packets."),
        "context_switches": (pl.Int64, "Switches from one task to another."),
        "cycles": (pl.Int64, "Processor cycles."),
        "instructions": (pl.Int64, "Instructions."),
        "cache_misses": (pl.Int64, "Cache misses."),
        "no_counters": (pl.String, "Why there are no cycles, instructions and cache misses."),
    },
)

TIMERS = ("LOC", "arch_timer")


def session_machine(run: Run) -> pl.DataFrame:
    """Return the machine's state in each session; empty for simulated time."""
    beds: dict[int, int] = {}
    others: dict[int, float] = {}
    part = 0
    for event in run.log:
        if event.get("event") == "started":
            part = int(event.get("part", 0))
            beds[part] = int(event.get("bed", part))
        elif event.get("event") in ("contended", "undisturbed"):
            others[part] = _cores_of_others(event)
    rows = [] if run.simulated else [_machine_row(one, beds, others) for one in _parts(run) if _at(one, "after")]
    return pl.DataFrame(rows, schema=SESSION_MACHINE.own, orient="row")


def _machine_row(part: Any, beds: dict[int, int], others: dict[int, float]) -> dict[str, Any]:
    before, after = _at(part, "before"), _at(part, "after")
    number = int(part.get("part", 0))
    began, ended = (_at(one, "taken_tai_ns") for one in (before, after))
    taken = {name: (_at(before, "interrupts", name), _at(after, "interrupts", name)) for name in TIMERS}
    timer = next((name for name, (_, last) in taken.items() if last is not None), None)
    return {
        "session": number,
        "bed": beds.get(number, number),
        "seconds": (ended - began) / 1e9 if began is not None and ended is not None else None,
        "others_cores": others.get(number),
        "steal_share": _stolen(part) if _at(after, "cpu_ticks") else None,
        "interrupts": _more(_total(before), _total(after)),
        "timer_interrupts": None if timer is None else _more(*taken[timer]),
        "net_rx_softirqs": _more(_at(before, "softirqs", "NET_RX"), _at(after, "softirqs", "NET_RX")),
        "context_switches": _more(_at(before, "context_switches"), _at(after, "context_switches")),
        **{
            name: _more(_at(before, "counters", name), _at(after, "counters", name))
            for name in ("cycles", "instructions", "cache_misses")
        },
        "no_counters": _at(after, "counters", "missing"),
    }


def _total(moment: Any) -> int | None:
    found = _at(moment, "interrupts")
    return sum(found.values()) if isinstance(found, dict) else None


def _more(before: int | None, after: int | None) -> int | None:
    """Return the increase of a count."""
    return None if before is None or after is None else after - before


def _cores_of_others(event: dict[str, Any]) -> float:
    value = event.get("value")
    return float(value) if isinstance(value, int | float) else 0.0


def _load(run: Run) -> float | None:
    loads = [_at(part, "before", "load_average") for part in _parts(run)] or [_at(run.bed, "moment", "load_average")]
    known = [float(one[0]) for one in loads if isinstance(one, list) and one]
    return max(known, default=None)


def _parts(run: Run) -> list[Any]:
    parts = run.bed.get("parts")
    return parts if isinstance(parts, list) else []


def _stolen(part: Any) -> float:
    before, after = _at(part, "before", "cpu_ticks"), _at(part, "after", "cpu_ticks")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return 0.0
    spent = {name: after[name] - before.get(name, 0) for name in after}
    return float(spent.get("steal", 0) / max(1, sum(spent.values())))


def _at(facts: Any, *path: str) -> Any:
    """Return a fact by its path, or None where the path does not exist."""
    for name in path:
        if not isinstance(facts, dict):
            return None
        facts = facts.get(name)
    return facts
