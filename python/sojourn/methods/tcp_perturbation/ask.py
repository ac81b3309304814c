"""Method "tcp-perturbation": the plan of connections over a path without the log, without it again, and with it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.estimate import estimated
from sojourn.plan.section import HOUR_NS, key, section
from sojourn.plan.source import refuse
from sojourn.plan.tcp import (
    AGAIN,
    BUFFER,
    CONGESTION,
    MSS,
    OFF,
    ON,
    TRIAL,
    TRIAL_NS,
    Connections,
    check_path,
    describe_connections,
)
from sojourn.plan.trial import Trial
from sojourn.plan.values import duration, list_of, text, whole
from sojourn.units import as_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.ask import Estimate, Lookup
    from sojourn.plan.types import Plan

SETTINGS = (OFF, AGAIN, ON)


@section
class PerturbationPlan:
    """What is sent over which path and how often, and which readings are used."""

    congestion: tuple[str, ...] = key(CONGESTION, ("cubic", "reno"), "congestion controls")
    pipe: tuple[str, ...] = key(
        list_of(text()), ("delay 5ms loss 0.2%", "delay 5ms rate 20Mbit/s queue 60kB"), "the emulated path"
    )
    duration_ns: int = key(TRIAL, 10_000_000_000, "of one trial")
    skip_ns: int = key(duration(0, HOUR_NS), 1_000_000_000, "beginning of a trial that is left out")
    read_every_ns: int = key(duration(1_000_000, HOUR_NS), 10_000_000, "how often the application reads TCP_INFO")
    packets_per_log: int = key(whole(1, 1_000_000), 1, "1 logs every packet")
    rounds: int = key(whole(2, 100_000), 24, "each with every path of each cell")
    mss_bytes: int = key(MSS, 1460, "maximum segment size, options included, as TCP_MAXSEG takes it")
    send_buffer_bytes: int = key(BUFFER, 4_194_304, "of the connection; the kernel doubles it")
    receive_buffer_bytes: int = key(BUFFER, 4_194_304, "of the connection; the kernel doubles it")
    pause_ns: int = key(duration(1_000, HOUR_NS), 100_000_000, "between two trials")
    at_most_ns: int | None = key(
        duration(1_000_000, 1000 * HOUR_NS), None, "time limit: measuring ends after the last whole round within it"
    )
    seed: int = key(whole(0, 2**62), 1, "of every random order")


def expand(plan: Plan) -> list[Trial[Connections]]:
    """Return every trial, in order: rounds of shuffled cells, each with every setting in a random order."""
    asked = plan.perturbation
    order = random.Random(asked.seed)
    cells = list(enumerate((name, pipe) for name in asked.congestion for pipe in asked.pipe))
    trials: list[Trial[Connections]] = []
    for turn in range(asked.rounds):
        for cell, (congestion, pipe) in order.sample(cells, len(cells)):
            for visit, setting in enumerate(order.sample(SETTINGS, len(SETTINGS))):
                of = Connections("perturbation", congestion, pipe, setting)
                trials.append(
                    Trial(len(trials), plan.bed.devices[0], turn, visit, cell, of, duration_ns=asked.duration_ns,
                          batch=turn)
                )  # fmt: skip
    return trials


def estimate(plan: Plan, trials: Sequence[Trial[Connections]]) -> Estimate:
    """Return the estimated time of the measurement."""
    beside = plan.perturbation.pause_ns + TRIAL_NS
    return estimated(plan, trials, 0, sum(trial.duration_ns + beside for trial in trials))


def describe(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows."""
    trials = expand(plan)
    return describe_connections(trials, estimate(plan, trials))


def check(plan: Plan, given: Lookup) -> None:
    """Refuse trials without any readings after the skipped beginning."""
    check_path(plan, given)
    asked = plan.perturbation
    if asked.skip_ns >= asked.duration_ns:
        skip = given("perturbation.skip", as_duration(asked.skip_ns))
        raise refuse(skip, "perturbation.skip", "less than perturbation.duration")


ASK = Ask(
    sections={"perturbation": PerturbationPlan},
    expand=expand,
    estimate=estimate,
    check=check,
    describe=describe,
    limit=Limit("perturbation", "rounds", 2),
    words={"rounds": "perturbation.rounds"},
    pipes=lambda plan: plan.perturbation.pipe,
    pipe_key="perturbation.pipe",
    sessions=True,
    cgroups=True,
    one_clock=False,
    not_simulated="it needs a real kernel",
)
