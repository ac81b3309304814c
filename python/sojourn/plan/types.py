"""The frozen types of a plan, one per section of its TOML; units ride in the names. Holds no rule and reads no file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.plan.rates import Rate

DIRECT = "direct"
"""The arm without a device: the papers' "no bridge"."""

A_A = "a/a"
"""The direct link measured again as if it were a device: what it seems to add is what the bed cannot resolve."""

FLOOD_NS = 0
"""The interval of `ping -f`: as fast as answers come."""

PAIR_METHODS = ("pairs", "departures")
"""Probes that are answered, block by block."""

STREAM_METHODS = ("one-way", "stages", "model", "background", "fan-in", "throughput", "loss", "multicast", "emulator")
"""Streams in a fixed matrix of trials."""

SEARCH_METHODS = ("rfc2544", "rfc8219", "rfc2889")
"""Streams whose load is searched for: each trial depends on the one before."""

TCP_METHODS = ("tcp-cost", "tcp-truth", "tcp-perturbation")
"""Connections of TCP, and the log of their state."""

METHODS = (*PAIR_METHODS, *STREAM_METHODS, *SEARCH_METHODS, *TCP_METHODS)


@dataclass(frozen=True, slots=True)
class Study:
    """What is asked and where the question comes from."""

    name: str
    title: str
    question: str
    paper: str
    method: str
    """One of METHODS."""
    laws: tuple[str, ...]
    published: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """What the cables of one arm are held to, from A to B; a list of one holds for every cable."""

    rates_bps: tuple[int | None, ...]
    """Bits per second on the wire, each way; None: as it comes."""
    delays_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EmulatorPlan:
    """How an emulator among the devices is started."""

    forward: str | None
    """The pipe from A to B, in words; "" is an idle one, None is none."""
    backward: str | None
    config: str | None
    """A file of pipes and rules, in the place of both."""
    seed: int
    engine: str
    cpu: int | None
    """None: the device's own core where it has one, else one that the prober does not use."""
    spin: bool | None
    """Whether it polls without a pause; None: where its core is nobody else's."""
    fifo: bool | None
    budget_ns: int | None
    memory: str | None
    path_cost_ns: int
    """Taken off each departure: what the path takes beside the emulator."""
    log: bool


@dataclass(frozen=True, slots=True)
class BedPlan:
    """The machines and the devices between them."""

    backend: str
    """One of plan/backends.py."""
    devices: tuple[str, ...]
    device_cpu: str
    mtu: int
    offloads: bool
    near: int
    """Ports of each bridge towards host A; more than one where there are several senders, or a load through it."""
    far: int
    """Ports of each bridge towards host B."""
    decoy: bool
    """Whether each arm has a twin beside it, to be loaded in its place."""
    shaper: Literal["tbf", "htb"]
    rate_bps: int | None
    """Bits of frames with their FCS per second that a device lets out at its far side; None: as it comes."""
    burst_bytes: int
    queue_bytes: int
    links: Mapping[str, LinkPlan]
    """By arm: cables in whose place our own emulator's link stands."""
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
class StreamPlan:
    """Methods with streams: the factors, each a list of which every combination is a cell."""

    kind: tuple[str, ...]
    """one-way, ping-pong, request-response, answers (a request to many, each answering in unicast)."""
    engine: tuple[str, ...]
    size_key: Literal["payload_bytes", "frame_bytes"]
    sizes: tuple[int, ...]
    schedule: tuple[str, ...]
    """regular, poisson, burst:N, ramp:FROM-TO, flood."""
    rates: tuple[Rate, ...]
    """Mean rates of all senders together; given as intervals, as rates or as shares of the arm's throughput."""
    rate_key: Literal["interval", "rate"]
    to: tuple[str, ...]
    """unicast, broadcast, multicast, unknown (an address that nobody has)."""
    senders: tuple[int, ...]
    marks: tuple[int, ...]
    """DSCPs of senders that share one port, a flow each; none: every sender has a port of its own."""
    receivers: tuple[int, ...]
    """Other subscribers beside the receiver that is measured."""
    load: tuple[float, ...]
    """Shares of the device's throughput that other pairs take up meanwhile."""
    load_via: tuple[str, ...]
    """through the device, or beside it, through its decoy."""
    load_frame_bytes: int
    load_schedule: str
    request_payload_bytes: int
    """The fixed request of request-response and of answers."""
    vlan: int | None
    pcp: int | None
    """None with a tag too: then its priority is 0. Without a tag there is none, or the frame would get one."""
    dscp: int
    late_after_ns: int
    pipe: tuple[str, ...]
    """What the emulators of an arm are set to before a trial, in words; "" leaves them as they are."""


@dataclass(frozen=True, slots=True)
class TrialsPlan:
    """How often and how long each cell is tried, and in what order."""

    rounds: int
    duration_ns: int
    count_at_most: int | None
    """Frames of one sender in one trial."""
    probes: int
    """Probes of a trial whose kind is ping-pong or request-response: a closed loop has no duration."""
    settle_ns: int
    """Wait for frames still on their way before a trial is closed."""
    at_most_ns: int | None
    """Measuring stops after the last whole round within this time."""
    seed: int
    a_a: bool
    qualify: bool
    """Whether the tester is measured on the empty path first."""
    keep: Literal["auto", "packets", "histograms"]


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """Method `model` alone: what is fitted and what is held out."""

    train: tuple[int, ...]
    """Numbers of cells; empty where the analysis is to choose."""


@dataclass(frozen=True, slots=True)
class LimitsPlan:
    """Method `emulator` alone: what a verdict asks of a pipe; None leaves it to the analysis."""

    offset_ns: int | None
    p50_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    rate: float | None
    cdf: float | None


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Searches: what is sought, how, and how it ends."""

    tests: tuple[str, ...]
    algorithm: tuple[str, ...]
    goals: tuple[float, ...]
    """Loss ratios: 0 asks for the zero-loss rate (NDR), 0.005 for the partial one (PDR)."""
    width: float
    """Relative width of the interval at which a search ends."""
    initial_duration_ns: int
    duration_ns: int
    duration_sum_ns: int
    exceed_ratio: float
    max_rate: Rate | None
    """None: the clean rate of the tester."""
    repetitions: int
    verify_loss: bool
    latency_duration_ns: int
    latency_repetitions: int
    loss_step: float
    burst_ns: int
    """Longest burst that is tried."""
    burst_repetitions: int
    most_addresses: int
    at_most_ns: int | None


@dataclass(frozen=True, slots=True)
class CostsPlan:
    """Method `tcp-cost` alone: under what traffic the log is switched on and off, and how."""

    packets_per_log: tuple[int, ...]
    flows: tuple[int, ...]
    where: tuple[str, ...]
    """sender, receiver, both."""
    where_flows: tuple[int, ...]
    controls: tuple[str, ...]
    """disabled, empty, sham."""
    path: tuple[str, ...]
    """gso, mtu."""
    form: Literal["slices", "runs"]
    slice_ns: int
    settle_ns: int
    ramp_ns: int
    repetitions: int
    at_once: int
    pause_ns: int
    statistics: int
    congestion_control: str
    mss_bytes: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    at_most_ns: int | None
    """Measuring stops after the last whole round of repetitions within this time."""
    seed: int
    a_a: bool


@dataclass(frozen=True, slots=True)
class TruthPlan:
    """Method `tcp-truth` alone: over which paths the log is held against TCP_INFO, a capture and the laws."""

    congestion: tuple[str, ...]
    messages_pipe: tuple[str, ...]
    messages_duration_ns: int
    message_bytes: int
    message_interval_ns: int
    reno_pipe: str
    cubic_pipe: str
    """Empty: no trials of that law."""
    law_duration_ns: int
    law_connections: int
    direct_bytes: int
    repetitions: int
    read_every_ns: int
    private_every: int
    mss_bytes: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    pause_ns: int
    seed: int


@dataclass(frozen=True, slots=True)
class PerturbationPlan:
    """Method `tcp-perturbation` alone: what is sent over which path, with the log and without."""

    congestion: tuple[str, ...]
    pipe: tuple[str, ...]
    duration_ns: int
    skip_ns: int
    read_every_ns: int
    packets_per_log: int
    rounds: int
    mss_bytes: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    pause_ns: int
    at_most_ns: int | None
    """Measuring stops after the last whole round within this time."""
    seed: int


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
    stream: StreamPlan
    trials: TrialsPlan
    model: ModelPlan
    limits: LimitsPlan
    search: SearchPlan
    costs: CostsPlan
    truth: TruthPlan
    perturbation: PerturbationPlan
    emulators: Mapping[str, EmulatorPlan]
    """By label; "" is what a label without a section of its own has."""
    host: HostPlan
    asked: tuple[str, ...]
    """What was asked beyond the file, as typed: "--quick", "--set rounds=8"."""
