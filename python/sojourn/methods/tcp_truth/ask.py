"""Method "tcp-truth": the plan of a comparison of the log of TCP's state with TCP_INFO, a capture and known formulas.

There are three kinds of trials: separate messages, before each of which the application reads TCP_INFO; transfers at
full rate over a path that loses packets, for the response functions of congestion control; and a bulk transfer over the
direct path.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask
from sojourn.plan.estimate import estimated
from sojourn.plan.section import HOUR_NS, key, section
from sojourn.plan.tcp import BUFFER, CONGESTION, MSS, TRIAL, TRIAL_NS, Connections, check_path, describe_connections
from sojourn.plan.trial import Trial
from sojourn.plan.types import DIRECT
from sojourn.plan.values import duration, list_of, text, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.ask import Estimate
    from sojourn.plan.types import Plan

MESSAGES, LAW, BULK = "messages", "law", "direct"
DIRECT_BPS = 2e9
"""The assumed rate of a bulk transfer over the direct path, used only for the time estimate."""


@section
class TruthPlan:
    """The trials and their paths; with an empty pipe a law has no trials."""

    congestion: tuple[str, ...] = key(CONGESTION, ("reno", "cubic"), "congestion controls of the messages")
    messages_pipe: tuple[str, ...] = key(
        list_of(text()), ("delay 2ms", "delay 2ms loss 2%"), "the path of the messages"
    )
    messages_duration_ns: int = key(TRIAL, 20_000_000_000, "of one trial of messages")
    message_bytes: int = key(whole(1, 1_000_000), 4_000, "of one message")
    message_interval_ns: int = key(TRIAL, 20_000_000, "between two messages: far more than a round trip")
    reno_pipe: str = key(
        text(),
        "delay 10ms loss 0.3%",
        "the path on which the window's growth under Reno is checked; none: not checked",
    )
    cubic_pipe: str = key(
        text(), "delay 100ms loss 0.1%", ("the path on which the window's growth under CUBIC is checked")
    )
    law_duration_ns: int = key(TRIAL, 60_000_000_000, "of one trial of these")
    law_connections: int = key(whole(1, 64), 5, "connections at the same time in it")
    direct_bytes: int = key(
        whole(0, 1 << 40), 200_000_000, ("size of a bulk transfer with large packets over the direct link; 0: none")
    )
    repetitions: int = key(whole(1, 10_000), 2, "of every trial")
    read_every_ns: int = key(TRIAL, 100_000_000, "how often the application reads TCP_INFO in the trials of growth")
    private_every: int = key(whole(1, 100_000), 5, "private state with each n-th sample of a flow's direction")
    mss_bytes: int = key(MSS, 1460, "maximum segment size, options included, as TCP_MAXSEG takes it")
    send_buffer_bytes: int = key(BUFFER, 4_194_304, "of each connection; the kernel doubles it")
    receive_buffer_bytes: int = key(BUFFER, 4_194_304, "of each connection; the kernel doubles it")
    pause_ns: int = key(duration(1_000, HOUR_NS), 100_000_000, "between two trials")
    seed: int = key(whole(0, 2**62), 1, "of every random order")


def cells(plan: Plan) -> list[tuple[str, Connections, int]]:
    """Return all cells: path, connections, and how long they send in nanoseconds."""
    asked, device = plan.truth, plan.bed.devices[0]
    found = [
        (device, Connections(MESSAGES, name, pipe), asked.messages_duration_ns)
        for name in asked.congestion
        for pipe in asked.messages_pipe
    ]
    laws = (("reno", asked.reno_pipe), ("cubic", asked.cubic_pipe))
    found += [(device, Connections(LAW, name, pipe), asked.law_duration_ns) for name, pipe in laws if pipe]
    if asked.direct_bytes:
        found.append((DIRECT, Connections(BULK, asked.congestion[0], ""), round(asked.direct_bytes * 8e9 / DIRECT_BPS)))
    return found


def expand(plan: Plan) -> list[Trial[Connections]]:
    """Return every trial, in order: rounds of shuffled cells."""
    order = random.Random(plan.truth.seed)
    numbered = list(enumerate(cells(plan)))
    trials: list[Trial[Connections]] = []
    for turn in range(plan.truth.repetitions):
        for cell, (path, of, lasts) in order.sample(numbered, len(numbered)):
            trials.append(Trial(len(trials), path, turn, 0, cell, of, duration_ns=lasts, batch=turn))
    return trials


def estimate(plan: Plan, trials: Sequence[Trial[Connections]]) -> Estimate:
    """Return the estimated time of the measurement."""
    beside = plan.truth.pause_ns + TRIAL_NS
    return estimated(plan, trials, 0, sum(trial.duration_ns + beside for trial in trials))


def describe(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows."""
    trials = expand(plan)
    return describe_connections(trials, estimate(plan, trials))


def pipes(plan: Plan) -> tuple[str, ...]:
    """Return every pipe that is set before a trial."""
    return tuple(dict.fromkeys(of.pipe for _, of, _ in cells(plan) if of.pipe))


ASK = Ask(
    sections={"truth": TruthPlan},
    expand=expand,
    estimate=estimate,
    check=check_path,
    describe=describe,
    words={"rounds": "truth.repetitions"},
    pipes=pipes,
    pipe_key="a pipe of [truth]",
    one_bed="compares each packet with another account of the same packet, which no other bed changes",
    cgroups=True,
    one_clock=False,
    not_simulated="it needs a real kernel",
)
