"""Method "tcp-load": which flows of TCP load a path, in which direction, and which probes run all the while.

A trial is one series of probes. The path is idle at first; then flows begin, and send to the trial's end.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.backgrounds import BACKGROUND, NONE, sources_of
from sojourn.plan.besides import BESIDE, beside_of
from sojourn.plan.dscp import code_point
from sojourn.plan.estimate import estimated
from sojourn.plan.probes import FLOOD_NS, ProbePlan, Probing, check_size, combine
from sojourn.plan.round_trips import ROUND_TRIPS, check_round_trips, with_round_trips, words_of
from sojourn.plan.scenarios import SCENARIO, scenario_of
from sojourn.plan.section import HOUR_NS, key, section
from sojourn.plan.sizes import KINDS
from sojourn.plan.source import Given, refuse
from sojourn.plan.tcp import BUFFER, MSS, TRIAL, TRIAL_NS, over_devices
from sojourn.plan.trial import LOG, Trial
from sojourn.plan.values import duration, flag, list_of, matching, one_of, text, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.ask import Estimate, Lookup
    from sojourn.plan.types import Plan

MIXES = list_of(
    matching(r"[a-z][a-z0-9_]*(\+[a-z][a-z0-9_]*){0,3}", 'names such as "reno", or up to four that share: "cubic+reno"')
)
DIRECTIONS = ("down", "up", "both")
ALONE = {"flows": (1,), "congestion": ("cubic",), "background": (NONE,)}
"""Keys that a scenario stands in the place of, with what they are where nobody sets them."""

LOG_NS = 1_000_000_000
"""What the log of a trial takes beside it: its programs are loaded, and its records written."""

LEAST_PROBES = 20
"""Of the idle part and of the working one: fewer show no percentile but the median."""


@section
class LoadPlan:
    """The flows, and the parts of a trial."""

    flows: tuple[int, ...] = key(list_of(whole(1, 1000)), (1,), "TCP connections of each algorithm in each direction")
    direction: tuple[str, ...] = key(
        list_of(one_of(*DIRECTIONS)), ("down", "up"), "down: from B to A, the probing host; up: from A to B; both"
    )
    congestion: tuple[str, ...] = key(
        MIXES, ("cubic",), 'congestion controls of the senders; "cubic+reno": flows of both beside each other'
    )
    background: tuple[str, ...] = key(
        list_of(BACKGROUND),
        (NONE,),
        'traffic beside the flows, which is in none of their figures: "udp 10Mbit/s", "tcp 4 cubic", '
        '"web 10 x 100kB every 1s"; several parts with " + " between them',
    )
    scenario: tuple[str, ...] = key(
        list_of(SCENARIO, may_be_empty=True),
        (),
        'named cells in place of flows, congestion and background: "unresponsive: 4 reno beside udp 10Mbit/s"',
    )
    join_ns: int = key(duration(0, HOUR_NS), 0, "how long after the first algorithm's flows those of the others begin")
    pipe: tuple[str, ...] = key(
        list_of(text(), may_be_empty=True), (), "configurations of the emulators; empty: that of [emulate]"
    )
    round_trips: tuple[str, ...] = key(
        ROUND_TRIPS,
        (),
        "round trips of the path without its queue, which the flows of each algorithm and direction have in turn: "
        '"20ms+80ms"; empty: all have that of the pipe',
        quiet=True,
    )
    dscp: tuple[int, ...] = key(
        list_of(code_point(), may_be_empty=True),
        (),
        'DSCPs of the flows of each direction in turn: "BE", "EF"; empty: unmarked',
    )
    beside: tuple[str, ...] = key(
        list_of(BESIDE, may_be_empty=True),
        (),
        'further probes that run all the while, each a kind and its DSCP: "udp/ping-pong EF"',
    )
    idle_ns: int = key(TRIAL, 3_000_000_000, "probes before the flows begin")
    start_up_ns: int = key(TRIAL, 3_000_000_000, "beginning of the flows, which no figure includes")
    duration_ns: int = key(
        TRIAL, 10_000_000_000, ("duration of the working conditions, after the start-up; figures are of these")
    )
    read_every_ns: int = key(TRIAL, 100_000_000, "how often each sender reads TCP_INFO")
    rounds: int = key(whole(1, 100_000), 12, "trials of each cell over each device")
    logged: int = key(
        whole(0, 100),
        1,
        "further trials of each cell, in no figure, with the log of TCP's state and the emulators' packets",
    )
    taps: bool = key(
        flag(),
        True,  # noqa: FBT003
        "whether logged trials have a tap at each host's port, too: what lies between them is accounted for",
        quiet=True,
    )
    mss_bytes: int = key(MSS, 1460, "maximum segment size, options included, as TCP_MAXSEG takes it")
    ecn: bool = key(flag(), False, "whether the hosts ask for ECN: a queue may then mark packets")  # noqa: FBT003
    send_buffer_bytes: int = key(BUFFER, 4_194_304, "of each connection")
    receive_buffer_bytes: int = key(BUFFER, 8_388_608, "of each connection")
    pause_ns: int = key(duration(1_000, HOUR_NS), 200_000_000, "between two trials")
    at_most_ns: int | None = key(
        duration(1_000_000, 1000 * HOUR_NS), None, "time limit: measuring ends after the last whole round within it"
    )
    seed: int = key(whole(0, 2**62), 1, "of every random order")


@dataclass(frozen=True, slots=True)
class Loaded(Probing):
    """One combination of factors: the probes, and the flows beside them."""

    flows: int = 1
    direction: str = "down"
    congestion: str = "cubic"
    pipe: str = ""
    round_trips: str = ""
    """Empty: all flows have that of the pipe."""
    background: str = ""
    """Empty: none."""
    scenario: str = ""
    """Its name; empty where the plan has none."""

    @property
    def algorithms(self) -> list[str]:
        """The congestion controls beside each other, in their turns."""
        return self.congestion.split("+")


def cells(plan: Plan) -> list[tuple[int, str, Loaded]]:
    """The number, device and factors of every cell over every device; only emulators have pipes."""
    own = plan.load
    several = [
        Loaded(**asdict(probing), **load, direction=direction, pipe=pipe, round_trips=mix)
        for pipe, mix, load, direction, probing in product(
            ("", *own.pipe), own.round_trips or ("",), loads(own), own.direction, combine(plan)
        )
    ]
    return over_devices(plan, several, lambda factors: factors.pipe)


def pipe_of(plan: Plan, device: str, factors: Loaded) -> str:
    """What the emulators of a path are set to before a trial; "" where that is an idle pipe, or where none is set."""
    if not factors.round_trips:
        return factors.pipe
    words = factors.pipe or words_of(plan, device)
    return with_round_trips(words, factors.round_trips, factors.flows, len(factors.algorithms))


def pipes(plan: Plan) -> tuple[str, ...]:
    """All that emulators are set to."""
    own: tuple[str, ...] = plan.load.pipe
    if not plan.load.round_trips:
        return own
    return tuple(dict.fromkeys(pipe_of(plan, device, factors) for _, device, factors in cells(plan)))


def loads(own: LoadPlan) -> list[dict[str, Any]]:
    """The flows and what is beside them: the scenarios, or each number with each algorithm and background."""
    named = [one for words in own.scenario if (one := scenario_of(words))]
    if named:
        return [
            {"flows": one.flows, "congestion": one.congestion, "background": background_of(one.background),
             "scenario": one.name}
            for one in named
        ]  # fmt: skip
    return [
        {"flows": flows, "congestion": congestion, "background": background_of(background)}
        for background, congestion, flows in product(own.background, own.congestion, own.flows)
    ]


def background_of(words: str) -> str:
    """A background as factors have it: empty where there is none."""
    return "" if words == NONE else words


def expand(plan: Plan) -> list[Trial[Loaded]]:
    """Every trial, in order: rounds of shuffled cells; behind the first round trials with the log, in no figure."""
    own, order = plan.load, random.Random(plan.load.seed)
    each = cells(plan)
    trials: list[Trial[Loaded]] = []
    for turn in range(own.rounds):
        trials += _round(plan, order, order.sample(each, len(each)), turn, len(trials))
        if turn == 0 and logs_some(plan):
            apart = random.Random(f"log {own.seed}")
            for visit in range(1, own.logged + 1):
                trials += _round(plan, apart, each, turn, len(trials), visit)
    return trials


def _round(
    plan: Plan, order: random.Random, each: Sequence[tuple[int, str, Loaded]], turn: int, first: int, visit: int = 0
) -> list[Trial[Loaded]]:
    """A trial of each of these cells; of any visit but the first, with the log."""
    return [
        Trial(first + place, device, turn, visit, cell, factors, order.getrandbits(62),
              lasts_ns(plan, factors) // factors.interval_ns, duration_ns=lasts_ns(plan, factors), batch=turn,
              purpose=LOG if visit else "measure")
        for place, (cell, device, factors) in enumerate(each)
    ]  # fmt: skip


def lasts_ns(plan: Plan, factors: Loaded) -> int:
    """How long a trial probes: until the end of sending."""
    own = plan.load
    joining = own.join_ns if len(factors.algorithms) > 1 else 0
    return int(own.idle_ns + joining + own.start_up_ns + own.duration_ns)


def logs_some(plan: Plan) -> bool:
    """Whether there are trials with the log: programs in the kernel see hosts of this machine alone.

    Where some are asked for and there are none, the run says so (`measure.start_log_of_both`).
    """
    return plan.load.logged > 0 and plan.bed.backend == "netns"


def estimate(plan: Plan, trials: Sequence[Trial[Loaded]]) -> Estimate:
    """What measuring takes."""
    beside = plan.load.pause_ns + TRIAL_NS
    probes = (1 + len(plan.load.beside)) * sum(trial.count or 0 for trial in trials)
    logging = LOG_NS * sum(trial.purpose == LOG for trial in trials)
    return estimated(plan, trials, probes, sum(trial.duration_ns + beside for trial in trials) + logging)


def describe(plan: Plan) -> dict[str, Any]:
    """What `--dry-run` shows: cells with their factors, trials and times."""
    trials = expand(plan)
    cost = estimate(plan, trials)
    return {
        "connections": len(trials),
        "rounds": plan.load.rounds,
        "probes": cost.probes,
        "measuring_ns": cost.measuring_ns,
        "total_ns": cost.total_ns,
        "cells": [
            {"cell": cell, "kind": f"{of.flows} x {of.direction}", "congestion": of.congestion, "pipe": of.pipe,
             "path": device, "probe": of.probe} | named(of)
            for cell, device, of in cells(plan)
        ],
    }  # fmt: skip


def named(of: Loaded) -> dict[str, str]:
    """The round trips, the scenario and the background of a cell, where it has them."""
    return {name: value for name in ("round_trips", "scenario", "background") if (value := getattr(of, name))}


def check(plan: Plan, given: Lookup) -> None:
    """A device to load, and probes at known times: enough of them before the flows, and while they work."""
    if not plan.bed.devices:
        raise refuse(given("bed.devices", []), "bed.devices", "at least one device")
    if plan.load.ecn and plan.bed.backend != "netns":
        raise refuse(
            given("load.ecn", plan.load.ecn),
            "load.ecn",
            "false: only hosts in namespaces of this machine are set to ask for ECN",
        )
    if "closed-loop" in plan.probe.schedule or FLOOD_NS in plan.probe.intervals_ns:
        asked = given("probe.schedule", list(plan.probe.schedule))
        raise refuse(asked, "probe.schedule", '"regular" or "poisson", and no interval "flood"')
    slowest = max(plan.probe.intervals_ns)
    for name, span in (("idle", plan.load.idle_ns), ("duration", plan.load.duration_ns)):
        if span < LEAST_PROBES * slowest:
            value = given(f"load.{name}", span)
            raise refuse(value, f"load.{name}", f"{LEAST_PROBES} times probe.interval or more")
    check_round_trips(plan, given, min(one["flows"] for one in loads(plan.load)))
    for words in plan.load.beside:
        check_beside(plan, given, words)
    check_loads(plan, given)
    for probe in plan.probe.probe:
        for size in plan.probe.sizes:
            where = given(f"probe.{plan.probe.size_key}", size).where
            check_size(plan, probe, size, Given(size, where), f"probe.{plan.probe.size_key}")


def check_loads(plan: Plan, given: Lookup) -> None:
    """Names of scenarios differ, and no background has more than its receiver takes, or more than is recorded."""
    own = plan.load
    if own.scenario and any(getattr(own, name) != value for name, value in ALONE.items()):
        told = "[] where load.flows, load.congestion or load.background is set: a scenario has its own"
        raise refuse(given("load.scenario", list(own.scenario)), "load.scenario", told)
    names = [one.name for words in own.scenario if (one := scenario_of(words))]
    if len(set(names)) < len(names):
        raise refuse(given("load.scenario", list(own.scenario)), "load.scenario", "names that differ")
    where = "load.scenario" if names else "load.background"
    for _, _, factors in cells(plan):
        lasts = lasts_ns(plan, factors) - own.idle_ns
        for part in sources_of(factors.background) or ():
            if (amount := part.amount(lasts, plan.bed.mtu)) > part.most:
                what = {"udp": "packets", "web": "transfers", "tcp": "flows"}[part.kind]
                told = f'at most {part.most} {what} of a part in a trial: "{part.name}" comes to {amount}'
                raise refuse(given(where, factors.background), where, told)


def check_beside(plan: Plan, given: Lookup, words: str) -> None:
    """The payload of the main probes must suit the further ones, too."""
    own = beside_of(words)
    assert own is not None
    kind = KINDS[own.probe]
    for probing in combine(plan):
        if not kind.least_payload <= probing.request_payload_bytes <= plan.bed.mtu - kind.headers:
            most = plan.bed.mtu - kind.headers
            size = f"{probing.request_payload_bytes} bytes of user data, as the other probes have: {own.probe} has"
            raise refuse(
                given("load.beside", words), "load.beside", f"a kind with {size} {kind.least_payload} to {most}"
            )


ASK = Ask(
    sections={"probe": ProbePlan, "load": LoadPlan},
    expand=expand,
    estimate=estimate,
    check=check,
    describe=describe,
    limit=Limit("load", "rounds", 2),
    hypotheses=("full-at-one-product", "mathis", "cubic-region", "bbr-share-falls", "reno-share-by-rtt"),
    words={"rounds": "load.rounds", "device": "bed.devices", "stream.pipe": "load.pipe"},
    logs_some=logs_some,
    pipes=pipes,
    pipe_key="load.pipe",
    sessions=True,
    headline=True,
    clock_trials=True,
    not_simulated="it needs a kernel's TCP",
)
