"""The frozen types of a plan, one per section of its TOML; units ride in the names. Holds no rule and reads no file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECT = "direct"
"""The arm without a device: the papers' "no bridge"."""

A_A = "a/a"
"""The direct link measured again as if it were a device: what it seems to add is what the bed cannot resolve."""

FLOOD_NS = 0
"""The interval of `ping -f`: as fast as answers come."""


@dataclass(frozen=True, slots=True)
class Study:
    """What is asked and where the question comes from."""

    name: str
    title: str
    question: str
    paper: str
    method: Literal["pairs", "departures"]
    laws: tuple[str, ...]
    published: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BedPlan:
    """The machines and the devices between them."""

    backend: Literal["netns", "sim"]
    devices: tuple[str, ...]
    device_cpu: str
    mtu: int
    offloads: bool
    lines: Mapping[str, Mapping[str, Any]]
    """Sim only: what each device does to frames, as the instrument reads it."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """The probes: their kinds, sizes and schedules."""

    probe: tuple[str, ...]
    size_key: Literal["icmp_bytes", "payload_bytes", "frame_bytes"]
    sizes: tuple[int, ...]
    request_payload_bytes: int
    """The fixed request of request-response; every other probe sends and answers the same size."""
    intervals_ns: tuple[int, ...]
    schedule: tuple[str, ...]
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class PairsPlan:
    """How often, in what blocks, in what order."""

    rounds: int
    probes_per_block: int
    warmup_probes: int
    block_at_most_ns: int | None
    at_most_ns: int | None
    """Measuring stops after the last whole round within this time."""
    seed: int
    a_a: bool


@dataclass(frozen=True, slots=True)
class DeparturesPlan:
    """Method `departures` alone: whose sender is judged, and over how many departures."""

    tools: tuple[str, ...]
    count: int
    at_most_ns: int
    """No trial lasts longer: slow intervals get fewer departures."""
    flood_count: int


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Where the two ends run."""

    prober_cpu: int | None
    responder_cpu: int | None
    fifo: bool | None
    wait: str | None
    """None anywhere here is "auto": chosen on the machine, and recorded."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run does, and no default left open."""

    study: Study
    bed: BedPlan
    probe: ProbePlan
    pairs: PairsPlan
    departures: DeparturesPlan
    host: HostPlan
    asked: tuple[str, ...]
    """What was asked beyond the file, as typed: "--quick", "--set rounds=8"."""
