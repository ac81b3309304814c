"""The plan of `emulate verify`: how many packets each check of an emulator needs, and at which rates they are sent.

From a pipe as the emulator parsed it to a plan like any other, which a run folder keeps. Sizes are computed from the
configuration: a share to a stated relative precision, a distribution to a stated band, a 99.9th percentile from the
packets beyond it, a rate from the time for which the link is kept busy. Runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from statistics import NormalDist
from typing import Any

import tomlkit

from sojourn.errors import RequestError
from sojourn.plan.fair import Flows, flows_for
from sojourn.units import as_duration

NANOS = 1_000_000_000
CHECKS = 25
"""The approximate number of checks of one verification: each has its part of the probability of a false alarm."""

ALARM = 0.01
VISITS = 6
"""Trials over each path: fewer have no interval."""

TAIL_PACKETS = 10
"""Packets needed beyond a percentile."""

BAND = 0.02
"""The precision of a distribution: the half-width of its band."""

PRECISION = {False: 0.05, True: 0.1}
"""The relative precision of a share; the second with --quick."""

LONGEST_NS = {False: 600 * NANOS, True: 30 * NANOS}
"""The longest total measurement; a check that would need longer is less precise, and the verdict says so."""

SMALL, FULL = 102, 1518
CALM_PPS, FAST_PPS = 1_000, 10_000
"""Rates of packets: so far apart that they do not affect each other, and high enough for rare losses."""

CALM_LOAD, OVERLOAD = 0.4, 1.25
"""Shares of a link's rate: a queue that hardly ever fills, and one that is never empty."""

LEAST_PPS, MOST_PPS = 1.0, 500_000.0
"""With fewer packets nothing can be shown within minutes; no sender here reaches more than the second."""

LONGEST_STAY_NS = 60 * NANOS
"""The longest delay that a trial waits for: packets delayed longer would count as lost."""

BUSY_NS = 1 * NANOS
"""How long a link is kept busy in a trial: a timing error of 100 us is then a ten-thousandth of it."""

WIRE_OVER_FRAME = 4
"""Configured overheads are in addition to the frame without its FCS."""


@dataclass(frozen=True, slots=True)
class Need:
    """A number of packets, and its reason."""

    packets: int
    why: str


@dataclass(frozen=True, slots=True)
class Verification:
    """A request for verification."""

    config: dict[str, Any]
    """The configuration as the emulator parsed it."""
    words: str | None
    """The configuration string of every pipe; None where a file has it."""
    file: str | None
    seed: int
    quick: bool
    limits: dict[str, Any]
    frame_bytes: int | None = None
    compensate: str | None = None
    engine: str | None = None


def needs(config: dict[str, Any], *, quick: bool, pps: float) -> list[Need]:
    """Return the packets needed for every configured property of the pipes, the most demanding first."""
    found = [Need(ceil(TAIL_PACKETS / 0.001), "the 99.9th percentile of a delay needs 10 packets beyond it")]
    for pipe in forward_pipes(config):
        found += distribution_needs(pipe, pps)
        for name, share, burst in shares(pipe):
            found.append(share_need(name, share, burst, quick=quick))
    return sorted(found, key=lambda need: -need.packets)


def forward_pipes(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pipes that a stream from A to B may pass."""
    pipes: list[dict[str, Any]] = config.get("pipes") or []
    return [pipe for pipe in pipes if pipe.get("name") != "backward"] or pipes


def z() -> float:
    """Return the normal quantile of a single check of a run."""
    return NormalDist().inv_cdf(1 - ALARM / CHECKS / 2)


def share_need(name: str, share: float, burst: float, *, quick: bool) -> Need:
    """Return the packets for a share to a relative precision; bursts carry less information than single losses."""
    precision = PRECISION[quick]
    packets = z() ** 2 * (1 - share) / (share * precision**2) * (2 * burst - 1)
    return Need(ceil(packets), f"{name} of {share * 100:g} % to within {precision * 100:g} % of itself")


def distribution_needs(pipe: dict[str, Any], pps: float) -> list[Need]:
    """Return the packets for a distribution within a band; correlation in time requires more."""
    delay = pipe.get("delay") or {}
    if not delay.get("jitter"):
        return []
    packets = log(2 * CHECKS / ALARM) / (2 * BAND**2)
    half_life = delay.get("half_life")
    if half_life:
        rho = 2 ** (-NANOS / pps / half_life)
        packets *= (1 + rho) / (1 - rho)
    return [Need(ceil(packets), f"the distribution of the jitter to within {BAND * 100:g} %")]


def shares(pipe: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return every configured share of the pipe, with its mean burst length."""
    found: list[tuple[str, float, float]] = []
    for place in (pipe.get("before") or {}, pipe.get("after") or {}):
        found += [("a loss", *known) for loss in place.get("loss") or [] if (known := loss_share(loss))]
        if place.get("duplication"):
            found.append(("a duplication", place["duplication"], 1.0))
        corruption = place.get("corruption") or {}
        if "one-bit" in corruption:
            found.append(("a corruption", corruption["one-bit"], 1.0))
        if "bit-error-rate" in corruption:
            found.append(("a corruption", 1 - (1 - corruption["bit-error-rate"]) ** (8 * SMALL), 1.0))
    reorder = (pipe.get("delay") or {}).get("reorder")
    if reorder:
        between = max(1, reorder.get("gap") or 1) - 1  # this many are not eligible after a chosen packet
        found.append(("a reordering", 1 / (between + 1 / max(reorder["probability"], 1e-12)), 1.0))
    return [(name, share, burst) for name, share, burst in found if 0 < share < 1]


def loss_share(loss: dict[str, Any]) -> tuple[float, float] | None:
    """Return the share and the mean burst of a random loss; None where it is not random."""
    (kind, of), *_ = loss.items()
    match kind:
        case "independent":
            return of["probability"], 1.0
        case "gilbert-elliott":
            bad = of["p"] / (of["p"] + of["r"]) if of["p"] + of["r"] else 0.0
            return bad * (1 - of["h"]) + (1 - bad) * (1 - of["k"]), max(1.0, 1 / of["r"] if of["r"] else 1.0)
        case "dwell":
            return of["bad"] / (of["good"] + of["bad"]), max(1.0, of["bad"] * FAST_PPS / NANOS)
        case "four-state":
            return four_states(of)
    return None


def four_states(of: dict[str, float]) -> tuple[float, float]:
    """Return the stationary shares of the states 3 and 4 of Salsano's model, and the mean burst of state 3."""
    p13, p31, p23, p32, p14 = (of[name] for name in ("p13", "p31", "p23", "p32", "p14"))
    burst = 1 / (p31 + p32) if p31 + p32 else 1.0
    in_burst = p13 / p31 if p31 else 1.0  # packets in state 3 per packet in state 1
    received = in_burst * p32 / p23 if p23 else 0.0
    total = 1 + in_burst + received + p14
    return (in_burst + p14) / total, max(1.0, burst)


def verify_plan(asked: Verification) -> tuple[str, list[str]]:
    """Return the plan as a file, and the reasons for its values, one sentence each."""
    refuse_long_stays(asked.config)
    flows = flows_for(asked.config, forward_pipes(asked.config))
    rates, why = paces(asked, flows)
    needed = needs(asked.config, quick=asked.quick, pps=rates[0])
    packets = needed[0].packets
    duration = max(packets / VISITS / rates[0] * NANOS, BUSY_NS if len(rates) > 1 else 0)
    affordable = LONGEST_NS[asked.quick] / (2 * VISITS * len(rates))
    reasons = [*why, *flows.reasons, *(f"{need.packets:,} packets: {need.why}" for need in needed)]
    if duration > affordable:
        duration = affordable
        reasons.append(
            f"{packets:,} packets do not fit into {as_seconds(LONGEST_NS[asked.quick])}: "
            f"{int(affordable * VISITS / NANOS * rates[0]):,} are sent, and the output says which checks they cannot "
            "decide"
        )
    return tomlkit.dumps(document(asked, flows, rates, int(duration / 1_000_000) * 1_000_000 + 1_000_000)), reasons


def refuse_long_stays(config: dict[str, Any]) -> None:
    """Refuse a delay beyond a trial's waiting time: its packets would count as lost."""
    for pipe in forward_pipes(config):
        constant = (pipe.get("delay") or {}).get("constant") or 0
        if constant >= LONGEST_STAY_NS:
            longest = as_seconds(LONGEST_STAY_NS)
            raise RequestError(
                f"pipe {pipe.get('name', '')}: a delay of {as_duration(constant)}, where a trial waits {longest} at "
                "most: verify a shorter delay; the emulator treats longer ones in the same way"
            )


def paces(asked: Verification, flows: Flows) -> tuple[list[float], list[str]]:
    """Return the packets per second of each stream: one that leaves the queue empty, and one that keeps a link busy."""
    rare = any(need.packets > 20 * CALM_PPS for need in needs(asked.config, quick=asked.quick, pps=CALM_PPS))
    calm: float = FAST_PPS if rare else CALM_PPS
    links = [
        link["rate_bps"] for pipe in forward_pipes(asked.config) if (link := pipe.get("link") or {}).get("rate_bps")
    ]
    if not links:
        return [calm], [f"{calm:,.0f} packets a second, at random times"]
    full = min(links) / (8 * (frame_bytes(asked) - WIRE_OVER_FRAME + overhead(asked.config)))
    slowest = min(calm, CALM_LOAD * full)
    if slowest < LEAST_PPS:
        raise RequestError(
            f"a frame of {frame_bytes(asked)} bytes takes {1 / full:,.3g} s on a link of {min(links)} bit/s: "
            "too few pass for any check; give shorter ones with --frame-bytes, or a faster link"
        )
    overload = OVERLOAD * flows.crowding
    if overload * full > MOST_PPS:
        why = (
            f"{slowest:,.0f} packets a second; {overload * full:,.0f} to keep the link busy are more than are sent here"
        )
        return [slowest], [f"{why}: the rate itself is not judged, but with longer frames or a slower link it would be"]
    rates = [slowest, overload * full]
    why = (
        f"{rates[0]:,.0f} packets a second, which leave the queue alone, and {rates[1]:,.0f}, which keep the link busy"
    )
    return rates, [why]


def overhead(config: dict[str, Any]) -> int:
    """Return the overhead bytes that the links add to a frame."""
    return max((pipe.get("link") or {}).get("overhead_bytes") or 0 for pipe in forward_pipes(config))


def frame_bytes(asked: Verification) -> int:
    """Return the frame size: full-sized frames for rated links, as senders are limited in packets; else small ones."""
    if asked.frame_bytes is not None:
        return asked.frame_bytes
    return FULL if any((pipe.get("link") or {}).get("rate_bps") for pipe in forward_pipes(asked.config)) else SMALL


def document(asked: Verification, flows: Flows, rates: list[float], duration_ns: int) -> tomlkit.TOMLDocument:
    """Return the plan."""
    emulate = {"seed": asked.seed} | ({"config": asked.file} if asked.file else {})
    emulate |= {"compensate": asked.compensate} if asked.compensate else {}
    stream: dict[str, Any] = {
        "engine": [asked.engine or ("udp" if flows.marks else engine(asked.config))],
        "frame_bytes": [frame_bytes(asked)],
        "schedule": ["poisson"],
        "rate": [f"{rate:.3f}pps" for rate in rates],
    }
    if flows.marks:
        stream |= {"senders": [len(flows.marks)], "marks": list(flows.marks)}
    if asked.words is not None:
        stream["pipe"] = [asked.words]
    sections: dict[str, dict[str, Any]] = {
        "study": {
            "name": "emulate-verify",
            "title": "An emulator against its configuration",
            "question": f"Does the emulator do what is configured on this machine: {asked.words or asked.file}?",
            "paper": "",
            "method": "emulator",
        },
        "bed": {"backend": "netns", "devices": ["emulate"], "device_cpu": "own"},
        "emulate": emulate,
        "stream": stream,
        "trials": {
            "rounds": VISITS // 2,
            "duration": as_duration(duration_ns),
            "grace": "20ms",
            "at_most": as_duration(LONGEST_NS[asked.quick] * 11 // 10),
            "keep": "packets",
            "seed": asked.seed,
        },
        "limits": {key: value for key, value in asked.limits.items() if value is not None},
    }
    found = tomlkit.document()
    for name, values in sections.items():
        if values:
            found.add(name, tomlkit.item(values))
    return found


def engine(config: dict[str, Any]) -> str:
    """Return UDP if rules match on its fields; else raw frames, which cost least."""
    rules: list[dict[str, Any]] = config.get("rules") or []
    on = [rule.get("on") or {} for rule in rules]
    wants = any(
        match.get("protocol") is not None
        or match.get("source")
        or match.get("destination")
        or match.get("destination_ports")
        or match.get("source_ports")
        for match in on
    )
    return "udp" if wants else "auto"


def as_seconds(nanos: int) -> str:
    """Return a time limit for a person."""
    return f"{nanos // NANOS} s" if nanos < 120 * NANOS else f"{nanos // (60 * NANOS)} min"
