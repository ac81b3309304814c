"""Method "tcp-cost": the plan of a measurement of what the log of TCP's state costs, one setting at a time.

[costs] contains the factors. A pair is two slices of traffic in succession: one without the log and one with a setting
of it. The order within a pair is random, and is reversed in the next repetition. Pairs come in rounds, one batch for
each path and number of flows in random order, so that drift of the machine is attributed to no setting. Where the bed
has two direct links, every other traffic uses the second one, and in the next round the others do; both slices of a
pair use the same link. Does not know how traffic is generated.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.estimate import estimated
from sojourn.plan.second_links import Spread
from sojourn.plan.section import HOUR_NS, key, section
from sojourn.plan.source import refuse
from sojourn.plan.trial import Trial
from sojourn.plan.types import DIRECT
from sojourn.plan.values import duration, flag, list_of, matching, one_of, whole
from sojourn.units import as_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.plan.ask import Estimate, Lookup
    from sojourn.plan.types import Plan

SENDER, RECEIVER, BOTH = "sender", "receiver", "both"
PLACEBO = "placebo"
CONTROLS = ("disabled", "empty", PLACEBO)
MOST_FLOWS = 128
"""The maximum number of parallel streams of iperf3."""


@section
class CostsPlan:
    """The traffic under which the log is switched on and off, and how."""

    packets_per_log: tuple[int, ...] = key(
        list_of(whole(1, 1_000_000)),
        (1, 2, 5, 10, 50, 100),
        "1 logs every packet",
    )
    fields: tuple[str, ...] = key(
        list_of(matching(r"[a-z][a-z0-9_]*", 'all, siftr, or columns such as "snd_cwnd"')),
        ("all",),
        "what is logged of TCP's state, as `tcplog run --fields` takes it",
        quiet=True,
    )
    flows: tuple[int, ...] = key(list_of(whole(1, MOST_FLOWS)), (1, 2, 5, 10, 50, 100), "connections of one iperf3")
    where: tuple[str, ...] = key(
        list_of(one_of(SENDER, RECEIVER, BOTH)),
        (SENDER, RECEIVER, BOTH),
        ("whose packets are logged: the first at every number of flows"),
    )
    where_flows: tuple[int, ...] = key(
        list_of(whole(1, MOST_FLOWS)), (1,), "numbers of flows at which the others of `where` are measured as well"
    )
    controls: tuple[str, ...] = key(
        list_of(one_of(*CONTROLS), may_be_empty=True),
        CONTROLS,
        "the log attached but disabled; programs that do nothing (empty); programs that only take as much time "
        "(placebo)",
    )
    path: tuple[str, ...] = key(
        list_of(one_of("gso", "mtu")), ("gso",), "packets as large as the kernel makes them, or of one segment each"
    )
    form: str = key(
        one_of("slices", "runs"),
        "slices",
        "slices of one long iperf3 run, or an iperf3 run for each measurement with a pause between, as published",
    )
    slice_ns: int = key(duration(10_000_000, HOUR_NS), 250_000_000, "duration of a slice, or of a run")
    grace_ns: int = key(
        duration(1_000_000, HOUR_NS), 50_000_000, "grace period between a change of the setting and its slice"
    )
    ramp_ns: int = key(
        duration(1_000_000, HOUR_NS),
        1_000_000_000,
        "wait until the connections of an iperf3 run are established",
    )
    repetitions: int = key(whole(1, 100_000), 12, "pairs of each cell")
    at_once: int = key(whole(1, 100_000), 4, "pairs in one iperf3 run, where it is cut into slices")
    pause_ns: int = key(duration(1_000, HOUR_NS), 100_000_000, "between one iperf3 and the next")
    statistics: int = key(
        whole(0, 1000), 2, "slices of each setting under the kernel's own statistics of programs, for each iperf3"
    )
    congestion_control: str = key(matching(r"[a-z][a-z0-9_]*", 'a name such as "cubic"'), "cubic", "of both ends")
    mss_bytes: int = key(whole(536, 65_000), 1460, "maximum segment size, options included, as TCP_MAXSEG takes it")
    send_buffer_bytes: int = key(whole(4096, 1 << 30), 1_048_576, "of each connection; it does not grow")
    receive_buffer_bytes: int = key(whole(4096, 1 << 30), 2_097_152, "of each connection; it does not grow")
    at_most_ns: int | None = key(
        duration(1_000_000, 1000 * HOUR_NS), None, "time limit: measuring ends after the last whole round within it"
    )
    seed: int = key(whole(0, 2**62), 1, "of every random order")
    a_a: bool = key(flag(), True, "the control: pairs of slices that are both without the log")  # noqa: FBT003


UNREAD = frozenset(
    f"bed.{name}"
    for name in (
        *("devices", "device_cpu", "offloads", "near", "far", "bypass", "shaper", "rate", "burst_bytes"),
        *("queue_bytes", "link_rate", "link_delay"),
    )
)
"""Keys of a bed that have no effect where both ends are joined by one cable."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A cell: the traffic, and what is logged at which end."""

    path: str
    flows: int
    where: str
    mode: str
    """on, off (the control, in which neither slice has the log), disabled, empty or placebo."""
    packets_per_log: int | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice of traffic: the slice of a pair with the setting, or the slice without the log."""

    setting: Setting
    mode: str
    """The mode of the setting, or off."""


def settings(plan: Plan) -> list[Setting]:
    """Return all cells in order."""
    return [one for path in plan.costs.path for flows in plan.costs.flows for one in _settings(plan.costs, path, flows)]


def expand(plan: Plan) -> list[Trial[Slice]]:
    """Return all slices in the order of measurement; the two of a pair follow each other."""
    costs, order = plan.costs, random.Random(plan.costs.seed)
    numbers = {setting: cell for cell, setting in enumerate(settings(plan))}
    ahead: dict[Setting, bool] = {}
    trials: list[Trial[Slice]] = []
    batch = 0
    traffic = [(path, flows) for path in costs.path for flows in costs.flows]
    seconds = Spread.of(plan, costs.seed).over([DIRECT], range(costs.repetitions + len(traffic)))[DIRECT]
    for transfer, first in enumerate(range(0, costs.repetitions, costs.at_once)):
        repetitions = range(first, min(costs.repetitions, first + costs.at_once))
        for path, flows in order.sample(traffic, len(traffic)):
            cells = _settings(costs, path, flows)
            for repetition in repetitions:
                for setting in order.sample(cells, len(cells)):
                    drawn = order.random() < 0.5
                    ahead[setting] = drawn if repetition % 2 == 0 else not ahead[setting]
                    modes = (setting.mode, "off") if ahead[setting] else ("off", setting.mode)
                    trials += [
                        Trial(len(trials) + visit, DIRECT, repetition, visit, numbers[setting], Slice(setting, mode),
                              duration_ns=costs.slice_ns, batch=batch,
                              second=transfer + traffic.index((path, flows)) in seconds)
                        for visit, mode in enumerate(modes)
                    ]  # fmt: skip
            batch += 1
    return trials


def estimate(plan: Plan, trials: Sequence[Trial[Slice]]) -> Estimate:
    """Return the estimated time of the measurement."""
    costs, batches = plan.costs, len({trial.batch for trial in trials})
    if costs.form == "runs":
        measuring = len(trials) * (costs.slice_ns + costs.ramp_ns + costs.pause_ns)
    else:
        of_statistics = (4 + (PLACEBO in costs.controls)) * costs.statistics * batches
        slices = len(trials) + of_statistics
        measuring = slices * (costs.slice_ns + costs.grace_ns + COMMAND_NS)
        measuring += batches * (costs.ramp_ns + costs.pause_ns + LOADING_NS)
    return estimated(plan, trials, 0, measuring)._replace(blocks=len(trials) // 2)


def resolve(plan: Plan) -> Plan:
    """Limit the number of beds so that each has at least two pairs of each cell."""
    most = max(1, plan.costs.repetitions // max(2, plan.costs.at_once))
    return replace(plan, bed=replace(plan.bed, sessions=min(plan.bed.sessions, most)))


def describe(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows: cells with their factors, pairs and times."""
    trials = expand(plan)
    cost = estimate(plan, trials)
    return {
        "pairs": len(trials) // 2,
        "repetitions": plan.costs.repetitions,
        "transfers": len({trial.batch for trial in trials}),
        "form": plan.costs.form,
        "slice_ns": plan.costs.slice_ns,
        "measuring_ns": cost.measuring_ns,
        "total_ns": cost.total_ns,
        "cells": [{"cell": cell, **asdict(setting)} for cell, setting in enumerate(settings(plan))],
    }


def check(plan: Plan, given: Lookup) -> None:
    """Refuse runs that are too short for an iperf3 of their own."""
    if plan.costs.form == "runs" and plan.costs.slice_ns < 1_000_000_000:
        value = as_duration(plan.costs.slice_ns)
        raise refuse(given("costs.slice", value), "costs.slice", 'at least "1s" with costs.form = "runs"')


COMMAND_NS = 25_000_000
"""Approximate duration of a change of setting."""

LOADING_NS = 1_200_000_000
"""Approximate duration of loading the programs and calibrating the placebo when an iperf3 starts."""


def _settings(costs: CostsPlan, path: str, flows: int) -> list[Setting]:
    """Return the cells of one kind of traffic."""
    return [*_controls(costs, path, flows), *_logs(costs, path, flows)]


def _controls(costs: CostsPlan, path: str, flows: int) -> Iterator[Setting]:
    if costs.a_a:
        yield Setting(path, flows, costs.where[0], "off")
    for control in costs.controls:
        yield Setting(path, flows, costs.where[0], control)


def _logs(costs: CostsPlan, path: str, flows: int) -> Iterator[Setting]:
    for place, where in enumerate(costs.where):
        if place == 0 or flows in costs.where_flows:
            for each in costs.packets_per_log:
                yield Setting(path, flows, where, "on", each)


ASK = Ask(
    sections={"costs": CostsPlan},
    expand=expand,
    estimate=estimate,
    check=check,
    describe=describe,
    limit=Limit("costs", "repetitions", 2),
    hypotheses=("detail-costs", "disabled-is-free", "nothing-skipped", "placebo-explains"),
    unread=UNREAD,
    words={"ppl": "costs.packets_per_log", "rounds": "costs.repetitions"},
    emulates=False,
    resolve=resolve,
    sessions=True,
    twins="spread",
    cgroups=True,
    one_clock=False,
    not_simulated="it needs a real kernel",
)
"""The hypotheses are findings of siftr-2007, or its explanations of them."""
