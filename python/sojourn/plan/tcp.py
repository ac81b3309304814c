"""Methods `tcp-truth` and `tcp-perturbation`: TCP over an emulated path, and the log of its state at the sender.

[truth] has three kinds of trials: messages far apart, before each of which the application reads TCP_INFO; as much as
goes over a path that loses packets, for the laws of congestion control; and a bulk of large packets over the empty one.
[perturbation] has one kind, measured without the log, without it again, and with it, in a random order in each round.
The same plan gives the same trials. Does not know how they are run.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from sojourn.devices import emulator_label
from sojourn.plan.key import HOUR_NS, Key
from sojourn.plan.source import Given, refuse
from sojourn.plan.types import DIRECT, PerturbationPlan, TruthPlan
from sojourn.plan.values import as_duration, duration, list_of, matching, text, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.plan.types import Plan

CONGESTION = list_of(matching(r"[a-z][a-z0-9_]*", 'names such as "reno"'))
TRIAL = duration(10_000_000, HOUR_NS)
BUFFER = whole(4096, 1 << 30)
MSS = whole(536, 65_000)

OFF, AGAIN, ON = "off", "off again", "on"
ARMS = (OFF, AGAIN, ON)
"""Of a perturbation: without the log, the same as a control, and with it."""

TRUTH_KEYS: dict[str, Key] = {
    "truth.congestion": Key(CONGESTION, ("reno", "cubic"), "congestion controls of the messages"),
    "truth.messages_pipe": Key(list_of(text()), ("delay 2ms", "delay 2ms loss 2%"), "the path of the messages"),
    "truth.messages_duration": Key(TRIAL, 20_000_000_000, "of one trial of messages"),
    "truth.message_bytes": Key(whole(1, 1_000_000), 4_000, "of one message"),
    "truth.message_interval": Key(TRIAL, 20_000_000, "between two: far more than a round trip"),
    "truth.reno_pipe": Key(
        text(), "delay 10ms loss 0.3%", "the path on which Reno's law is looked for; none: it is not"
    ),
    "truth.cubic_pipe": Key(text(), "delay 100ms loss 0.1%", "the path on which CUBIC's law is looked for"),
    "truth.law_duration": Key(TRIAL, 60_000_000_000, "of one trial of a law"),
    "truth.law_connections": Key(whole(1, 64), 5, "beside each other in it"),
    "truth.direct_bytes": Key(whole(0, 1 << 40), 200_000_000, "bulk of large packets over the empty path; 0: none"),
    "truth.repetitions": Key(whole(1, 10_000), 2, "of every trial"),
    "truth.read_every": Key(TRIAL, 100_000_000, "how often the application reads TCP_INFO beside"),
    "truth.private_every": Key(whole(1, 100_000), 5, "private state with each n-th sample of a flow's direction"),
    "truth.mss_bytes": Key(MSS, 1460, "largest segment, options included, as TCP_MAXSEG takes it"),
    "truth.send_buffer_bytes": Key(BUFFER, 4_194_304, "of each connection; the kernel doubles it"),
    "truth.receive_buffer_bytes": Key(BUFFER, 4_194_304, "of each connection; the kernel doubles it"),
    "truth.pause": Key(duration(1_000, HOUR_NS), 100_000_000, "between two trials"),
    "truth.seed": Key(whole(0, 2**62), 1, "of every random order"),
}

PERTURBATION_KEYS: dict[str, Key] = {
    "perturbation.congestion": Key(CONGESTION, ("cubic", "reno"), "congestion controls"),
    "perturbation.pipe": Key(
        list_of(text()), ("delay 5ms loss 0.2%", "delay 5ms rate 20Mbit/s queue 60kB"), "the emulated path"
    ),
    "perturbation.duration": Key(TRIAL, 10_000_000_000, "of one trial"),
    "perturbation.skip": Key(duration(0, HOUR_NS), 1_000_000_000, "its beginning, which is not looked at"),
    "perturbation.read_every": Key(
        duration(1_000_000, HOUR_NS), 10_000_000, "how often the application reads TCP_INFO"
    ),
    "perturbation.packets_per_log": Key(whole(1, 1_000_000), 1, "1 logs every packet"),
    "perturbation.rounds": Key(whole(2, 100_000), 24, "each with every arm of each cell"),
    "perturbation.mss_bytes": Key(MSS, 1460, "largest segment, options included, as TCP_MAXSEG takes it"),
    "perturbation.send_buffer_bytes": Key(BUFFER, 4_194_304, "of the connection; the kernel doubles it"),
    "perturbation.receive_buffer_bytes": Key(BUFFER, 4_194_304, "of the connection; the kernel doubles it"),
    "perturbation.pause": Key(duration(1_000, HOUR_NS), 100_000_000, "between two trials"),
    "perturbation.at_most": Key(
        duration(1_000_000, 1000 * HOUR_NS), None, "measuring ends with a whole round in this time"
    ),
    "perturbation.seed": Key(whole(0, 2**62), 1, "of every random order"),
}

TCP_KEYS = TRUTH_KEYS | PERTURBATION_KEYS
TCP_SECTIONS = {
    "tcp-truth": ("study", "bed", "emulate", "truth", "host"),
    "tcp-perturbation": ("study", "bed", "emulate", "perturbation", "host"),
}
PARTS: dict[str, type[TruthPlan | PerturbationPlan]] = {"truth": TruthPlan, "perturbation": PerturbationPlan}

TRIAL_NS = 700_000_000
"""What a trial takes beside its traffic: the log begun and settled, connections, the last acknowledgements."""

DIRECT_BPS = 2e9
"""What a bulk over the empty path is taken to reach, for the estimate of the time alone."""


@dataclass(frozen=True, slots=True)
class Connections:
    """A trial: connections over one path, with the log or without."""

    block: int
    kind: str
    """messages, law, direct, perturbation."""
    cell: int
    congestion: str
    pipe: str
    arm: str
    """The link that it takes."""
    round: int
    setting: str = ON
    """One of ARMS."""


def read_tcp(values: dict[str, Any], section: str) -> Any:
    """[truth] or [perturbation], from values already read."""
    own = {key.split(".")[1]: value for key, value in values.items() if key.startswith(f"{section}.")}
    names = {field.name for field in fields(PARTS[section])}
    return PARTS[section](**{name if name in names else f"{name}_ns": value for name, value in own.items()})


def tcp_values(plan: Plan) -> dict[str, Any]:
    """[truth] and [perturbation] as a plan file has them."""
    found: dict[str, Any] = {}
    for section, part in (("truth", plan.truth), ("perturbation", plan.perturbation)):
        for name, value in asdict(part).items():
            if name.endswith("_ns"):
                found[f"{section}.{name.removesuffix('_ns')}"] = None if value is None else as_duration(value)
            else:
                found[f"{section}.{name}"] = list(value) if isinstance(value, tuple) else value
    return found


def check_tcp(plan: Plan, given: Callable[[str, object], Given]) -> None:
    """What can be known before anything is built."""
    method = plan.study.method
    if plan.bed.backend == "sim":
        raise refuse(given("bed.backend", "sim"), "bed.backend", f'"netns" for {method}: it needs a real kernel')
    emulators = [device for device in plan.bed.devices if emulator_label(device) is not None]
    if len(plan.bed.devices) != 1 or not emulators:
        devices = given("bed.devices", list(plan.bed.devices))
        raise refuse(devices, "bed.devices", f'["emulate"] for {method}: its pipes are the path')
    asked = plan.perturbation
    if method == "tcp-perturbation" and asked.skip_ns >= asked.duration_ns:
        skip = given("perturbation.skip", as_duration(asked.skip_ns))
        raise refuse(skip, "perturbation.skip", "less than perturbation.duration")


def pipes_of(plan: Plan) -> tuple[str, ...]:
    """Every pipe that trials over TCP set; none for other methods."""
    if plan.study.method == "tcp-truth":
        laws = [pipe for pipe in (plan.truth.reno_pipe, plan.truth.cubic_pipe) if pipe]
        return tuple(dict.fromkeys([*plan.truth.messages_pipe, *laws]))
    return plan.perturbation.pipe if plan.study.method == "tcp-perturbation" else ()


def tcp_cells(plan: Plan) -> list[tuple[str, str, str, str]]:
    """Every cell: kind, congestion control, pipe, arm."""
    device = plan.bed.devices[0]
    if plan.study.method == "tcp-perturbation":
        asked = plan.perturbation
        return [("perturbation", name, pipe, device) for name in asked.congestion for pipe in asked.pipe]
    truth = plan.truth
    found = [("messages", name, pipe, device) for name in truth.congestion for pipe in truth.messages_pipe]
    found += [
        ("law", name, pipe, device) for name, pipe in (("reno", truth.reno_pipe), ("cubic", truth.cubic_pipe)) if pipe
    ]
    return found + ([("direct", truth.congestion[0], "", DIRECT)] if truth.direct_bytes else [])


def expand_tcp(plan: Plan) -> list[Connections]:
    """All trials, in the order in which they are measured."""
    cells = list(enumerate(tcp_cells(plan)))
    perturbing = plan.study.method == "tcp-perturbation"
    seed, rounds = (
        (plan.perturbation.seed, plan.perturbation.rounds) if perturbing else (plan.truth.seed, plan.truth.repetitions)
    )
    order = random.Random(seed)
    found: list[Connections] = []
    for turn in range(rounds):
        for cell, (kind, congestion, pipe, arm) in order.sample(cells, len(cells)):
            for setting in order.sample(ARMS, len(ARMS)) if perturbing else (ON,):
                found.append(Connections(len(found), kind, cell, congestion, pipe, arm, turn, setting))
    return found


def trial_ns(plan: Plan, trial: Connections) -> int:
    """What one trial takes."""
    truth = plan.truth
    traffic = {
        "messages": truth.messages_duration_ns,
        "law": truth.law_duration_ns,
        "direct": round(truth.direct_bytes * 8e9 / DIRECT_BPS),
        "perturbation": plan.perturbation.duration_ns,
    }[trial.kind]
    pause = plan.perturbation.pause_ns if trial.kind == "perturbation" else truth.pause_ns
    return traffic + pause + TRIAL_NS


def tcp_ns(plan: Plan) -> int:
    """What measuring takes."""
    measuring = sum(trial_ns(plan, trial) for trial in expand_tcp(plan))
    at_most = plan.perturbation.at_most_ns if plan.study.method == "tcp-perturbation" else None
    return measuring if at_most is None else min(measuring, at_most)
