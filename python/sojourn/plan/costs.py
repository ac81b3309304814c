"""Method `tcp-cost`: what the log of TCP's state costs, setting by setting, each beside a slice without it.

[costs] has the factors. A pair is two slices of traffic, one after the other: one without the log, and one with a
setting of it; which comes first is drawn, and turned about in the next repetition. Pairs come in rounds, a session of
iperf3 for each path and number of flows in a random order, so that a drift of the machine is nobody's effect. The same
plan gives the same pairs. Does not know how traffic is made.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sojourn.plan.key import HOUR_NS, Key
from sojourn.plan.source import Given, refuse
from sojourn.plan.types import CostsPlan
from sojourn.plan.values import as_duration, duration, flag, list_of, matching, one_of, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sojourn.plan.types import Plan

SENDER, RECEIVER, BOTH = "sender", "receiver", "both"
SHAM = "sham"
CONTROLS = ("disabled", "empty", SHAM)
MOST_FLOWS = 128
"""More streams than that iperf3 does not take."""

COST_KEYS: dict[str, Key] = {
    "costs.packets_per_log": Key(list_of(whole(1, 1_000_000)), (1, 2, 5, 10, 50, 100), "1 logs every packet"),
    "costs.flows": Key(list_of(whole(1, MOST_FLOWS)), (1, 2, 5, 10, 50, 100), "connections of one iperf3"),
    "costs.where": Key(
        list_of(one_of(SENDER, RECEIVER, BOTH)), (SENDER, RECEIVER, BOTH), "whose packets are logged; the first always"
    ),
    "costs.where_flows": Key(
        list_of(whole(1, MOST_FLOWS)), (1,), "numbers of flows at which the others of `where` are tried too"
    ),
    "costs.controls": Key(
        list_of(one_of(*CONTROLS), may_be_empty=True),
        CONTROLS,
        "attached but disabled; programs that do nothing; programs that only burn as much time",
    ),
    "costs.path": Key(
        list_of(one_of("gso", "mtu")), ("gso",), "packets as large as the kernel makes them, or of one segment each"
    ),
    "costs.form": Key(
        one_of("slices", "runs"),
        "slices",
        "slices of one long iperf3, or an iperf3 for each with a pause, as published",
    ),
    "costs.slice": Key(duration(10_000_000, HOUR_NS), 250_000_000, "what is measured at once"),
    "costs.settle": Key(duration(1_000_000, HOUR_NS), 50_000_000, "wait between a change and the slice behind it"),
    "costs.ramp": Key(duration(1_000_000, HOUR_NS), 1_000_000_000, "wait until the connections of an iperf3 are up"),
    "costs.repetitions": Key(whole(1, 100_000), 12, "pairs of each cell"),
    "costs.at_once": Key(whole(1, 100_000), 4, "of them in one iperf3, where it is cut into slices"),
    "costs.pause": Key(duration(1_000, HOUR_NS), 100_000_000, "between one iperf3 and the next"),
    "costs.statistics": Key(
        whole(0, 1000), 2, "slices of each setting under the kernel's own statistics of programs, in each session"
    ),
    "costs.congestion_control": Key(matching(r"[a-z][a-z0-9_]*", 'a name such as "cubic"'), "cubic", "of both ends"),
    "costs.mss_bytes": Key(whole(536, 65_000), 1460, "largest segment, options included, as TCP_MAXSEG takes it"),
    "costs.send_buffer_bytes": Key(whole(4096, 1 << 30), 1_048_576, "of each connection; it does not grow"),
    "costs.receive_buffer_bytes": Key(whole(4096, 1 << 30), 2_097_152, "of each connection; it does not grow"),
    "costs.at_most": Key(duration(1_000_000, 1000 * HOUR_NS), None, "measuring ends with a whole round in this time"),
    "costs.seed": Key(whole(0, 2**62), 1, "of every random order"),
    "costs.a_a": Key(flag(), default=True, meaning="slices without it beside slices without it"),
}

COST_LAWS = ("detail-costs", "disabled-is-free", "nothing-skipped", "sham-explains")
"""What siftr-2007 found, or explained its findings by."""

UNREAD = frozenset(
    f"bed.{name}"
    for name in (
        *("devices", "device_cpu", "offloads", "near", "far", "decoy", "shaper", "rate", "burst_bytes"),
        *("queue_bytes", "link_rate", "link_delay"),
    )
)
"""Keys of a bed that mean nothing where both ends are joined by one cable."""

TIMES = ("slice", "settle", "ramp", "pause", "at_most")


def read_costs(values: dict[str, Any]) -> CostsPlan:
    """[costs], from values already read."""
    own = {key.split(".")[1]: value for key, value in values.items() if key.startswith("costs.")}
    return CostsPlan(**{f"{name}_ns" if name in TIMES else name: value for name, value in own.items()})


def cost_values(costs: CostsPlan) -> dict[str, Any]:
    """[costs] as a plan file has it."""
    found: dict[str, Any] = {}
    for name, value in asdict(costs).items():
        if name.endswith("_ns"):
            found[f"costs.{name.removesuffix('_ns')}"] = None if value is None else as_duration(value)
        else:
            found[f"costs.{name}"] = list(value) if isinstance(value, tuple) else value
    return found


def check_costs(plan: Plan, given: Callable[[str, object], Given]) -> None:
    """What can be known before anything is built."""
    if plan.bed.backend == "sim":
        raise refuse(given("bed.backend", "sim"), "bed.backend", '"netns" for tcp-cost: it needs a real kernel')
    if plan.costs.form == "runs" and plan.costs.slice_ns < 1_000_000_000:
        value = as_duration(plan.costs.slice_ns)
        raise refuse(given("costs.slice", value), "costs.slice", 'at least "1s" with costs.form = "runs"')


@dataclass(frozen=True, slots=True)
class Setting:
    """A cell: under which traffic, and what is logged where."""

    path: str
    flows: int
    where: str
    mode: str
    """on, off (the control of the pairs themselves), disabled, empty, sham."""
    packets_per_log: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two slices: one without the log, one with a setting."""

    number: int
    repetition: int
    session: int
    cell: int
    setting: Setting
    first: bool
    """Whether the slice with the setting comes first."""


def settings(plan: Plan) -> list[Setting]:
    """All cells, in their order."""
    return [one for path in plan.costs.path for flows in plan.costs.flows for one in _settings(plan.costs, path, flows)]


def expand_costs(plan: Plan) -> list[Pair]:
    """All pairs, in the order in which they are measured."""
    costs, order = plan.costs, random.Random(plan.costs.seed)
    numbers = {setting: cell for cell, setting in enumerate(settings(plan))}
    ahead: dict[Setting, bool] = {}
    pairs: list[Pair] = []
    session = 0
    for first in range(0, costs.repetitions, costs.at_once):
        repetitions = range(first, min(costs.repetitions, first + costs.at_once))
        traffic = [(path, flows) for path in costs.path for flows in costs.flows]
        for path, flows in order.sample(traffic, len(traffic)):
            cells = _settings(costs, path, flows)
            for repetition in repetitions:
                for setting in order.sample(cells, len(cells)):
                    drawn = order.random() < 0.5
                    ahead[setting] = drawn if repetition % 2 == 0 else not ahead[setting]
                    pairs.append(Pair(len(pairs), repetition, session, numbers[setting], setting, ahead[setting]))
            session += 1
    return pairs


def costs_ns(plan: Plan) -> int:
    """What measuring takes."""
    costs, pairs = plan.costs, expand_costs(plan)
    sessions = len({pair.session for pair in pairs})
    if costs.form == "runs":
        measuring = 2 * len(pairs) * (costs.slice_ns + costs.ramp_ns + costs.pause_ns)
    else:
        of_statistics = (4 + (SHAM in costs.controls)) * costs.statistics * sessions
        slices = 2 * len(pairs) + of_statistics
        measuring = slices * (costs.slice_ns + costs.settle_ns + COMMAND_NS)
        measuring += sessions * (costs.ramp_ns + costs.pause_ns + LOADING_NS)
    return measuring if costs.at_most_ns is None else min(measuring, costs.at_most_ns)


COMMAND_NS = 25_000_000
"""What a change of setting takes, about."""

LOADING_NS = 1_200_000_000
"""What loading programs, and finding out how long the sham is to burn, take at the beginning of an iperf3."""


def _settings(costs: CostsPlan, path: str, flows: int) -> list[Setting]:
    """The cells of one traffic."""
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
