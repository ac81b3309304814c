"""Method "tcp-load": flows of TCP between both hosts while a prober measures round trips over the same path."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from sojourn.bed.hosts import END_HOSTS
from sojourn.conduct.backgrounds import Backgrounds, is_recorded
from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.blocks import open_prober, probed_blocks, request
from sojourn.conduct.connections import connections_read, port_of, start_anywhere
from sojourn.conduct.flow_taps import open_flow_taps
from sojourn.conduct.part import without_event
from sojourn.conduct.tcp_hosts import (
    NOT_SENT_BYTES,
    begin_log,
    end_log,
    prepare_links,
    require_root,
    start_log,
)
from sojourn.errors import DoubtfulError, MachineError
from sojourn.instruments import BlocksInstrument
from sojourn.instruments.blocks import blocks_argv, longest_seconds
from sojourn.instruments.conversation import NoAnswerError, place_options
from sojourn.instruments.tcp import DRAIN_SECONDS
from sojourn.methods.tcp_load.ask import lasts_ns, logs_some, pipe_of
from sojourn.plan.besides import beside_of, trial_of
from sojourn.plan.dscp import name_of
from sojourn.plan.round_trips import ports, spans
from sojourn.plan.trial import LOG
from sojourn.records import read_table
from sojourn.records.log import read_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.bench import Clock
    from sojourn.conduct.flow_taps import FlowTaps
    from sojourn.conduct.part import Session
    from sojourn.instruments.tcp import TcpInstrument
    from sojourn.instruments.tcplog import LogInstrument
    from sojourn.methods.tcp_load.ask import Loaded, LoadPlan
    from sojourn.plan import Plan
    from sojourn.plan.besides import Beside
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder

WAYS: dict[str, tuple[tuple[HostName, HostName], ...]] = {
    "up": (("a", "b"),),
    "down": (("b", "a"),),
    "both": (("a", "b"), ("b", "a")),
}
"""By direction: who sends to whom."""

UP = ("a", "b")
TICK_SECONDS = 1.0
ECN_ASKED = "1"
"""Of net.ipv4.tcp_ecn: connections ask for ECN (RFC 3168); a host accepts it by default."""

REFLECTED = "1"
"""Of net.ipv4.tcp_reflect_tos: who accepts a connection marks its acknowledgements as the sender marks its data."""

BOTH = "ab"
"""Whose log it is, in its name."""

NOT_OVER = (
    "trials with it (load.logged) are only for hosts in namespaces of this machine, whose kernel has the TCP of both; "
    "the hosts of this bed ({backend}) have kernels of their own"
)
"""Why trials with the log are left out on other beds."""


@dataclass(frozen=True, slots=True)
class Loads(Bench):
    """Flows, with probes before and beside them."""

    session: Session
    asked: LoadPlan
    prober: BlocksInstrument
    ends: dict[tuple[HostName, int], TcpInstrument]
    """The applications of each host, one for each algorithm beside others; the first listens, too."""
    log: LogInstrument | None
    """Of both hosts, for the trials that have it."""
    taps: FlowTaps | None
    """At both hosts' ports, for the same trials."""
    besides: list[tuple[Beside, BlocksInstrument]]
    """The further probes of each trial, each with who sends them."""
    planned: tuple[int, int]
    """How many trials and cells the plan has."""
    backgrounds: Backgrounds

    def measure(self, trial: Trial[Any]) -> None:
        """Measure one trial: probes alone, then with the flows; with the log where that is its purpose."""
        session = self.session
        factors: Loaded = trial.factors
        probes = request(session.plan, session.site, trial)
        log = self.log if trial.purpose == LOG else None
        pipe = pipe_of(session.plan, trial.device, factors)
        with session.emulators.during(trial.path, trial.block, pipe, keep=trial.purpose == LOG):
            if log is not None and not self._begins(log, trial.block):
                log = None
            taps = None if log is None else self.taps
            if taps is not None:
                taps.begin(trial.path, trial.block)
            self.prober.ask(probes)
            further = [self._ask(one, of, turn, trial) for turn, (of, one) in enumerate(self.besides, start=1)]
            self._rest(self.asked.idle_ns / 1e9)
            flows, background = self._load(trial, pipe)
            answer = self.prober.answer(longest_seconds(probes), session.screen.tick)
            answers = [one.answer(longest_seconds(probes), session.screen.tick) for _, one in self.besides]
            tapped = [] if taps is None else taps.end(trial.path, trial.block)
            logged = None if log is None else end_log(log)
        session.log("block", device=trial.device, **without_event(answer))
        for each in answers:
            session.log("beside-block", device=trial.device, **without_event(each))
        session.log(
            "load-trial",
            block=trial.block,
            cell=trial.cell,
            device=trial.device,
            round=trial.round,
            purpose=trial.purpose,
            factors=asdict(factors),
            flows=flows,
            background=background,
            probes=further,
            logged=logged,
            **({"tapped": tapped} if tapped else {}),
        )
        time.sleep(self.asked.pause_ns / 1e9)

    def _ask(self, prober: BlocksInstrument, own: Beside, turn: int, trial: Trial[Any]) -> dict[str, Any]:
        """Begin a further series of probes; gives what it is, for the log."""
        plan, site = self.session.plan, self.session.site
        block = trial_of(trial, own, turn, self.planned, plan.bed.mtu)
        asked = request(plan, site, block)
        prober.ask(asked | {"to": asked["to"] | {"dscp": own.dscp}})
        return {"block": block.block, "cell": block.cell, "probe": own.probe, "dscp": name_of(own.dscp)}

    def _begins(self, log: LogInstrument, block: int) -> bool:
        """Whether the trial is logged from now on; a kernel that refuses the programs does so now.

        A log that was killed or stopped ends the run, as any other program does: the trial can be measured again.
        """
        try:
            begin_log(self.session, log, block, {"ppl": 1}, BOTH, keep=True)
        except NoAnswerError:
            raise
        except MachineError as error:
            tell_unlogged(self.session, error)
            return False
        return True

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, TICK_SECONDS))
            self.session.screen.tick()

    def _load(self, trial: Trial[Any], pipe: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Send in every direction of the trial; gives what came of each flow, by its direction and algorithm's turn.

        And what came of the background, which begins with the first flows.
        """
        factors: Loaded = trial.factors
        ways, settings = WAYS[factors.direction], {"mss_bytes": self.asked.mss_bytes}
        for _, receiver in ways:
            count = factors.flows * len(factors.algorithms)
            self.ends[receiver, 0].listen(trial.block, port_of(trial), count, settings)
        lasts = lasts_ns(self.session.plan, factors) - self.asked.idle_ns
        channels = []
        for turn in range(len(factors.algorithms)):
            if turn == 1:
                self._rest(self.asked.join_ns / 1e9)
            for way in ways:
                self._send(trial, way, turn, lasts - (self.asked.join_ns if turn else 0))
            if turn == 0:
                channels = self.backgrounds.begin(trial, pipe, lasts, factors.flows * len(factors.algorithms))
        flows: list[dict[str, Any]] = []
        for way, turn in product(ways, range(len(factors.algorithms))):
            sent = self.ends[way[0], turn].answer(lasts / 1e9 + DRAIN_SECONDS, self.session.screen.tick)
            told = {"direction": "up" if way == UP else "down", "turn": turn}
            flows += [told | self._marked(one) | self._pathed(factors, one) for one in sent["connections"]]
        received = [self.ends[receiver, 0].finish_listening(trial.block)["connections"] for _, receiver in ways]
        broken = [one["problem"] for one in (*flows, *(one for each in received for one in each)) if one["problem"]]
        if broken:
            raise DoubtfulError(f"a flow of trial {trial.block} broke: {broken[0]}")
        return flows, self.backgrounds.end(trial, pipe, channels, lasts)

    def _marked(self, flow: dict[str, Any]) -> dict[str, Any]:
        """What came of a flow, with its DSCP where it has one."""
        marks = self.asked.dscp
        return flow | ({"dscp": name_of(marks[flow["connection"] % len(marks)])} if marks else {})

    def _pathed(self, factors: Loaded, flow: dict[str, Any]) -> dict[str, Any]:
        """Which of the round trips a flow was given, and how long that is, where flows have their own."""
        several = spans(factors.round_trips)
        group = flow["connection"] % max(1, len(several))
        return {"group": group, "round_trip_ns": several[group]} if several else {}

    def _send(self, trial: Trial[Any], way: tuple[HostName, HostName], turn: int, lasts_ns: int) -> None:
        """Let the flows of one algorithm begin; they are answered when they have ended."""
        link, own, factors = self.session.site.bed.topology.paths[trial.path], self.asked, trial.factors
        to = f"{link.a_ip4 if way[1] == 'a' else link.b_ip4}:{port_of(trial)}"
        wanted = {"connections": factors.flows, "duration_ns": lasts_ns, "read_every_ns": own.read_every_ns,
                  "dscp": list(own.dscp)}  # fmt: skip
        if several := spans(factors.round_trips):
            wanted["from_ports"] = ports(factors.flows, turn, len(factors.algorithms), len(several))
        settings = {"mss_bytes": own.mss_bytes, "congestion": factors.algorithms[turn]}
        request = {"do": "send", "block": trial.block, "to": to, "settings": settings}
        request["read_before_send"] = trial.purpose == LOG  # the timeline has each call that wrote data
        self.ends[way[0], turn].ask(request | wanted)


@contextmanager
def open_loads(session: Session, clock: Clock) -> Iterator[Bench]:
    """The applications of both hosts, and the prober."""
    del clock
    asked = session.plan.load
    more = {"tcp_ecn": ECN_ASKED} if asked.ecn else {}
    more |= {"tcp_reflect_tos": REFLECTED} if asked.dscp else {}
    prepare_links(session, asked, tcp_notsent_lowat=str(NOT_SENT_BYTES), **more)
    with ExitStack() as stack:
        turns = max(len(trial.factors.algorithms) for trial in session.part.owed)
        ends = {
            (host, turn): start_anywhere(session, host, stack, f"{host}{turn or ''}")
            for host in END_HOSTS
            for turn in range(turns)
        }
        log = start_log_of_both(session, stack)
        taps = open_flow_taps(session, stack) if asked.taps and log is not None else None
        several = [one for words in asked.beside if (one := beside_of(words))]
        prober = stack.enter_context(open_prober(session, [one.probe for one in several]))
        besides = [(of, start_beside(session, stack, f"abeside{turn}")) for turn, of in enumerate(several, start=1)]
        each = session.plan.expand()
        planned = len(each), 1 + max(trial.cell for trial in each)
        sockets = {"mss_bytes": asked.mss_bytes}
        backgrounds = Backgrounds(session, stack, 1 + len(several), len(each), sockets, asked.read_every_ns)
        yield Loads(session, asked, prober, ends, log, taps, besides, planned, backgrounds)


def start_beside(session: Session, stack: ExitStack, name: str) -> BlocksInstrument:
    """A further prober: it sleeps until its departures, and runs where there is room."""
    options = ["--name", name, *place_options(None, "sleep", fifo=False)]
    argv = blocks_argv(session.instrument, session.records("a"), session.part.number, options)
    prober = BlocksInstrument(session.site.start("a"), argv)
    stack.callback(prober.kill)
    stack.enter_context(_finished(prober))
    return prober


@contextmanager
def _finished(prober: BlocksInstrument) -> Iterator[None]:
    """End a prober behind the block of code; at once where that was interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        prober.finish(at_once=True)
        raise
    prober.finish()


def start_log_of_both(session: Session, stack: ExitStack) -> LogInstrument | None:
    """The log of both hosts where this part has trials for it; None where it has none, or this machine has no log.

    No figure needs the log: a study goes on without it, and says why.
    """
    if session.plan.load.logged and not logs_some(session.plan):
        tell_unlogged(session, NOT_OVER.format(backend=session.plan.bed.backend))
        return None
    if not any(trial.purpose == LOG for trial in session.part.owed):
        return None
    try:
        require_root(session)
        return start_log(session, None, stack)
    except NoAnswerError:
        raise
    except MachineError as error:
        tell_unlogged(session, error)
        return None


def tell_unlogged(session: Session, why: MachineError | str) -> None:
    """Tell the log and the screen that there is no log of TCP's state."""
    session.log("unlogged", part=session.part.number, why=str(why))
    session.screen.note(f"no log of TCP's state: {why}")


def whole_trials(folder: RunFolder, plan: Plan) -> set[int]:
    """The trials whose flows ended, with readings of every flow by both of its ends, and with every probe."""
    del plan
    ends = connections_read(folder)
    trials = [entry for entry in read_log(folder.log) if entry.get("event") == "load-trial"]
    streams = set(read_table(folder.records, "streams", columns=["block"]).frame["block"])
    probed = probed_blocks(folder)
    return {
        entry["block"]
        for entry in trials
        if _has_both_ends(entry, ends)
        and is_recorded(entry, ends, streams)
        and {entry["block"], *(one["block"] for one in entry.get("probes") or ())} <= probed
    }


def _has_both_ends(trial: dict[str, Any], ends: Mapping[tuple[int, str, str], int]) -> bool:
    """Whether as many connections as a trial had in each direction are read by who sent, and by who received."""
    flows = Counter(one["direction"] for one in trial["flows"])
    return bool(flows) and all(
        min(ends.get((trial["block"], sender, "send"), 0), ends.get((trial["block"], receiver, "receive"), 0)) >= count
        for direction, count in flows.items()
        for sender, receiver in WAYS[direction]
    )


MEASURE = Measure(open_loads, whole_trials)
