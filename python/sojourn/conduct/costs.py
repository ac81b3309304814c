"""Method `tcp-cost`: iperf3 between the two hosts, and the log of TCP's state switched on and off beside it.

A pair is two slices, one without the log and one with a setting of it, adjacent in time; which comes first is the
plan's. Every slice is alike but for that: a command, a wait until it has settled, counters, time, counters. Programs
are loaded once for each iperf3; in a slice without the log they are attached nowhere. Does not judge, and does not know
what the log writes.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sojourn.conduct.archive import asked_in, rewrite
from sojourn.conduct.facts import tell_of_neighbours
from sojourn.conduct.meter import Meter, Reading
from sojourn.conduct.slice_records import RowWriter
from sojourn.errors import MachineError
from sojourn.instruments.iperf import Iperf, Traffic
from sojourn.instruments.tcplog import LogInstrument, log_argv
from sojourn.plan import effective_toml
from sojourn.plan.costs import BOTH, RECEIVER, SENDER, SHAM, Setting
from sojourn.plan.types import DIRECT
from sojourn.records import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.bed import Bed
    from sojourn.bed.model import HostName
    from sojourn.conduct.part import Sitting
    from sojourn.instruments.tcplog import Mode
    from sojourn.plan import CostsPlan, Plan
    from sojourn.plan.costs import Pair
    from sojourn.records import RunFolder

ENDS: dict[str, tuple[HostName, ...]] = {SENDER: ("a",), RECEIVER: ("b",), BOTH: ("a", "b")}
STATISTICS_BLOCKS = 1_000_000
"""Slices under the statistics of programs are numbered from here."""

EVERYTHING_DECIMATED = 1_000_000_000
"""So many packets per log that none of a slice has a record, or one."""

LONGEST_SECONDS = 86_400.0
LEAST_REPETITIONS = 2
"""Fewer than this say nothing, however little time there is."""

CALIBRATION_SECONDS = 0.1
TRIAL_TURNS = 200
"""How often the sham's loop turns while it is found out how long a turn takes."""

SKIPS = ("full", "broken", "no-socket", "no-state", "control", "unparsed", "no-room", "late")


def measure_all(sitting: Sitting) -> None:
    """Every pair that the part owes."""
    site, part = sitting.site, sitting.part
    if site.bed.unprivileged:
        raise MachineError("programs in the kernel are attached to cgroups of both hosts: run this study as root")
    before = sitting.site.bed.backend.usage()
    with ExitStack() as stack:
        conditions = prepare(site.bed, sitting.plan.costs)
        asked = BOTH if statistics(sitting) else SENDER
        ends = {host for pair in part.owed for host in ENDS[pair.setting.where]} | {*ENDS[asked]}
        logs = {host: start_log(sitting, host, stack) for host in ENDS[BOTH] if host in ends}
        sitting.log("tcp-conditions", **conditions)
        slices = stack.enter_context(RowWriter(part.folder, "tcp_slices", part.number))
        costs = stack.enter_context(RowWriter(part.folder, "tcp_costs", part.number))
        try:
            Costs(sitting, logs, slices, costs).measure(part.owed)
        finally:
            tell_of_neighbours(before, sitting.site, sitting.log)


def statistics(sitting: Sitting) -> bool:
    """Whether slices are taken under the kernel's statistics of programs."""
    return sitting.plan.costs.statistics > 0 and sitting.plan.costs.form == "slices"


def start_log(sitting: Sitting, host: HostName, stack: ExitStack) -> LogInstrument:
    """The log of one end, outside of every host: its own time is not the host's."""
    bed = sitting.site.bed
    log = LogInstrument(bed.beside, log_argv(sitting.instrument, bed.cgroup(host)))
    stack.callback(log.kill)
    stack.callback(log.finish)
    said = {name: value for name, value in log.ready.items() if name != "event"}
    sitting.log("ready", part=sitting.part.number, host=host, **said)
    return log


SYSCTLS = "/proc/sys/net/ipv4/"


def prepare(bed: Bed, asked: CostsPlan) -> dict[str, Any]:
    """Set what connections begin with, on our two hosts alone; gives what is in force."""
    wanted = {
        "tcp_no_metrics_save": "1",
        "tcp_congestion_control": asked.congestion_control,
        "tcp_moderate_rcvbuf": "0",
        "tcp_wmem": f"4096 {asked.send_buffer_bytes} {asked.send_buffer_bytes}",
        "tcp_rmem": f"4096 {asked.receive_buffer_bytes} {asked.receive_buffer_bytes}",
    }
    for host in ENDS[BOTH]:
        for name, value in wanted.items():
            bed.put(host, SYSCTLS + name, value)
    found = {host: {name: bed.get(host, SYSCTLS + name).split() for name in wanted} for host in ENDS[BOTH]}
    version = bed.run("a", ["iperf3", "--version"]).splitlines()[0]
    return {"sysctls": found, "iperf": version, "mss_bytes": asked.mss_bytes}


OFFLOADS = {
    "gso": "tx on tso on gso on gro off",
    "mtu": "tx on tso off gso off gro off",
}
"""Large packets cross a veth whole. Its receive offload would only put a ring of 256 before them, which overflows."""

MOST_SEGMENTS = {"gso": 65_535, "mtu": 1}
"""Of a packet. Switching offloads off is not enough: TCP builds large packets all the same, and they are cut below."""


def lay_path(bed: Bed, path: str) -> None:
    """Let packets be as large as the kernel makes them, or of one segment each, at both ends."""
    for port in (bed.topology.arms[DIRECT].a_port, bed.topology.arms[DIRECT].b_port):
        bed.run(port.host, ["ethtool", "-K", port.dev, *OFFLOADS[path].split()])
        bed.run(port.host, ["ip", "link", "set", "dev", port.dev, "gso_max_segs", str(MOST_SEGMENTS[path])])


@dataclass(frozen=True, slots=True)
class Slice:
    """What one slice is to be."""

    block: int
    setting: Setting
    mode: Mode
    statistics: bool = False

    @property
    def hosts(self) -> tuple[HostName, ...]:
        """Whose logs are in force."""
        return () if self.mode == "off" else ENDS[self.setting.where]


@dataclass(frozen=True, slots=True)
class Session:
    """Connections that carry what they can, and where to read how much."""

    number: int
    traffic: Iperf
    meter: Meter
    sham_turns: int
    """How often the sham's loop turns, to take as long as logging does."""


@dataclass(frozen=True, slots=True)
class Costs:
    """All of a part."""

    sitting: Sitting
    logs: dict[HostName, LogInstrument]
    slices: RowWriter
    costs: RowWriter

    @property
    def plan(self) -> Plan:
        """What is asked."""
        return self.sitting.plan

    def measure(self, owed: Sequence[Pair]) -> None:
        """Every pair, unless the plan's time is up before; then what is left of the plan is taken back."""
        screen = self.sitting.screen
        screen.begin(len(owed))
        at_most = self.plan.costs.at_most_ns
        end = float("inf") if at_most is None else time.monotonic() + at_most / 1e9
        for several in sessions(owed):
            if time.monotonic() > end and several[0].repetition >= LEAST_REPETITIONS:
                self._take_back(several[0].repetition)
                break
            lay_path(self.sitting.site.bed, several[0].setting.path)
            self._measure_session(several, end)
            time.sleep(self.plan.costs.pause_ns / 1e9)
        screen.end()

    def _measure_session(self, several: Sequence[Pair], end: float) -> None:
        if self.plan.costs.form == "runs":
            for pair in several:
                self._measure_pair(pair, None)
                self.sitting.screen.step()
            return
        with self._session(several[0].session, several[0].setting) as session:
            for pair in several:
                self._measure_pair(pair, session)
                self.sitting.screen.step()
            if statistics(self.sitting) and time.monotonic() < end:
                self._measure_statistics(session, several[0].setting)

    @contextmanager
    def _session(self, number: int, setting: Setting) -> Iterator[Session]:
        site, asked, cores = self.sitting.site, self.plan.costs, self.plan.host
        link = site.bed.topology.arms[DIRECT]
        traffic = Traffic(link.b_ip4, setting.flows, LONGEST_SECONDS, asked.mss_bytes, asked.congestion_control,
                          cores.prober_cpu, cores.responder_cpu)  # fmt: skip
        with Iperf(site.bed, traffic) as running:
            loggers = [log.pid for log in self.logs.values()]
            time.sleep(asked.ramp_ns / 1e9)
            meter = Meter(site.bed, link.b_dev, loggers)
            for host, log in self.logs.items():
                log.begin(number, "off", records=self.sitting.records(host), who=host, options=options_of(), keep=False)
            yield Session(number, running, meter, self._sham_turns(setting))
            for log in self.logs.values():
                log.end()

    def _sham_turns(self, setting: Setting) -> int:
        """Let the sham burn as much as a record takes, as the kernel's statistics tell it under this very traffic."""
        if not (setting.mode == SHAM or (self.plan.costs.form == "slices" and SHAM in self.plan.costs.controls)):
            return 0
        log = next(iter(self.logs.values()))
        asked = (("on", options_of()), (SHAM, options_of(turns=TRIAL_TURNS)), ("empty", options_of()))
        took = {mode: self._calibrated(log, mode, options) for mode, options in asked}  # type: ignore[arg-type]
        turn_ns = (took[SHAM] - took["empty"]) / TRIAL_TURNS
        turns = max(0, round((took["on"] - took["empty"]) / turn_ns)) if turn_ns > 0 else 0
        self.sitting.log("sham", path=setting.path, flows=setting.flows, turns=turns, turn_ns=turn_ns, took_ns=took)
        return turns

    def _calibrated(self, log: LogInstrument, mode: Mode, options: dict[str, Any]) -> float:
        """Nanoseconds that a run of the programs takes in a mode."""
        log.be(mode, options)
        log.take_statistics(on=True)
        before = log.costs()
        time.sleep(CALIBRATION_SECONDS)
        ran = rows_of_costs(0, "", before, log.costs())
        log.take_statistics(on=False)
        log.be("off")
        packets = [one for one in ran if one["direction"] is not None]
        spent, runs = (sum(int(one[name]) for one in packets) for name in ("cpu_time_ns", "runs"))
        return spent / max(1, runs)

    def _measure_pair(self, pair: Pair, session: Session | None) -> None:
        """Both slices, in the plan's order; without a session, each has an iperf3 of its own."""
        modes: list[Mode] = ["off", pair.setting.mode]  # type: ignore[list-item]
        rows = []
        for visit, mode in enumerate(reversed(modes) if pair.first else modes):
            one = Slice(2 * pair.number + visit, pair.setting, mode)
            own = {"pair": pair.number, "repetition": pair.repetition, "cell": pair.cell, "visit": visit}
            if session is not None:
                rows.append(self._take(one, session) | own)
                continue
            with self._session(pair.number, pair.setting) as alone:
                rows.append(self._take(one, alone) | own)
            time.sleep(self.plan.costs.pause_ns / 1e9)
        self.slices.write(rows)

    def _measure_statistics(self, session: Session, setting: Setting) -> None:
        """Slices while the kernel takes the time of programs, at both ends; of no pair, for that takes time itself."""
        settings = [("on", 1), ("on", EVERYTHING_DECIMATED), ("empty", None), ("disabled", None)]
        settings += [(SHAM, None)] if SHAM in self.plan.costs.controls else []
        of = STATISTICS_BLOCKS + len(settings) * self.plan.costs.statistics * session.number
        for turn in range(self.plan.costs.statistics):
            for place, (mode, each) in enumerate(settings):
                asked = replace(setting, where=BOTH, mode=mode, packets_per_log=each)
                one = Slice(of + len(settings) * turn + place, asked, mode, statistics=True)  # type: ignore[arg-type]
                row = self._take(one, session)
                self.slices.write([row | {"pair": -1, "repetition": turn, "cell": -1, "visit": 0}])

    def _take(self, one: Slice, session: Session) -> dict[str, Any]:
        """One slice as a row, but for its place in the plan."""
        logs = {host: self.logs[host] for host in one.hosts}
        for log in logs.values():
            log.be(one.mode, options_of(one.setting.packets_per_log, session.sham_turns))
            if one.statistics:
                log.take_statistics(on=True)
        time.sleep(self.plan.costs.settle_ns / 1e9)
        programs = {host: log.costs() for host, log in logs.items()} if one.statistics else {}
        accounts, began = [log.totals() for log in logs.values()], time.monotonic()
        before = session.meter.read()
        time.sleep(self.plan.costs.slice_ns / 1e9)
        after = session.meter.read()
        in_force, later = time.monotonic() - began, [log.totals() for log in logs.values()]
        for host, ran in programs.items():
            self.costs.write(rows_of_costs(one.block, host, ran, logs[host].costs()))
            logs[host].take_statistics(on=False)
        for log in logs.values():
            log.be("off")
        session.traffic.require_alive()
        counted = counts_of(accounts, later) | {"in_force_s": in_force} if one.mode == "on" else NOTHING
        return row_of(one, session.number, before, after) | counted

    def _take_back(self, repetitions: int) -> None:
        """Let the effective plan ask for what there was time for, and say what was asked before."""
        plan, path = self.plan, self.sitting.part.folder.plan
        said = f"costs.repetitions = {plan.costs.repetitions}; the time of costs.at_most was up after {repetitions}"
        shorter = replace(plan, costs=replace(plan.costs, repetitions=repetitions), asked=(*asked_in(path), said))
        rewrite(path, effective_toml(shorter))
        self.sitting.log("time-is-up", rounds=repetitions, asked=plan.costs.repetitions)


def sessions(owed: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs that follow each other with the same traffic."""
    found: list[list[Pair]] = []
    for pair in owed:
        if not found or found[-1][-1].session != pair.session:
            found.append([])
        found[-1].append(pair)
    return found


def options_of(packets_per_log: int | None = None, turns: int = 0) -> dict[str, Any]:
    """What the log is asked for."""
    return {"ppl": packets_per_log or 1, "ppl_by": "packet", "sham_loops": turns}


def row_of(one: Slice, session: int, before: Reading, after: Reading) -> dict[str, Any]:
    """What was asked, and what the kernel's counters say."""
    setting = one.setting
    return {
        "block": one.block,
        "session": session,
        "path": setting.path,
        "flows": setting.flows,
        "where": setting.where,
        "setting": setting.mode,
        "mode": one.mode,
        "packets_per_log": setting.packets_per_log,
        "statistics": one.statistics,
        "started_ns": before.at_ns,
        "ended_ns": after.at_ns,
        **after.since(before),
    }


COUNTED = ("packets_in", "packets_out", "segments_in", "segments_out", "logged", "decimated", "skipped")
NOTHING = dict.fromkeys(("in_force_s", *COUNTED, *(f"skipped_{why.replace('-', '_')}" for why in SKIPS)))
"""Of a slice in which the log counts nothing."""


def counts_of(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> dict[str, int]:
    """What the logs of all ends counted between two looks, together."""

    def came_to(way: str, fate: str) -> int:
        return sum(int(one[way].get(fate, 0)) for one in after) - sum(int(one[way].get(fate, 0)) for one in before)

    def segments(way: str) -> int:
        then, now = (sum(int(one["segments"][way].get("seen", 0)) for one in looks) for looks in (before, after))
        return now - then

    def fate(name: str) -> int:
        return came_to("in", name) + came_to("out", name)

    skips = {f"skipped_{why.replace('-', '_')}": fate(why) for why in SKIPS}
    return {
        "packets_in": came_to("in", "seen"),
        "packets_out": came_to("out", "seen"),
        "segments_in": segments("in"),
        "segments_out": segments("out"),
        "logged": fate("logged"),
        "decimated": fate("decimated"),
        "skipped": sum(skips.values()),
        **skips,
    }


def rows_of_costs(
    block: int, host: str, before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What each program ran between two looks."""
    ran = {one["name"]: one for one in before}
    return [
        {
            "block": block,
            "host": host,
            "program": one["name"],
            "direction": direction_of(one["name"]),
            "runs": one["runs"] - ran.get(one["name"], {}).get("runs", 0),
            "cpu_time_ns": one["run_ns"] - ran.get(one["name"], {}).get("run_ns", 0),
        }
        for one in after
    ]


def direction_of(program: str) -> str | None:
    """Whose packets run it, by its name."""
    words = program.split("_")
    return next((way for way in ("in", "out") if way in words or f"{way}gress" in words), None)


def whole_pairs(folder: RunFolder, plan: Plan) -> set[int]:
    """The pairs of which both slices are recorded."""
    del plan
    rows = read_table(folder.records, "tcp_slices").frame
    blocks = set(rows["block"].to_list())
    return {block // 2 for block in blocks if block < STATISTICS_BLOCKS and block ^ 1 in blocks}
