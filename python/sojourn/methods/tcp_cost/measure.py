"""Method "tcp-cost": runs iperf3 between the two hosts and switches the log of TCP's state on and off meanwhile.

A pair is two slices, one without the log and one with a setting of it, adjacent in time; the plan sets their order. All
slices have the same sequence: a command, a grace period, counters, the slice, counters. Programs are loaded once for
each iperf3; in a slice without the log they are not attached. Evaluates nothing, and does not know what the log writes.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sojourn.bed.hosts import END_HOSTS
from sojourn.conduct.asking import link_number
from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.facts import watch_neighbours
from sojourn.conduct.meter import Meter, Reading
from sojourn.conduct.slice_records import RowWriter
from sojourn.conduct.tcp_hosts import require_root, set_tcp, size_packets, start_log
from sojourn.instruments.iperf import Iperf, Traffic
from sojourn.methods.tcp_cost.ask import BOTH, PLACEBO, RECEIVER, SENDER, Setting, Slice
from sojourn.records import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.instruments.tcplog import LogInstrument, Mode
    from sojourn.methods.tcp_cost.ask import CostsPlan
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder

ENDS: dict[str, tuple[HostName, ...]] = {SENDER: ("a",), RECEIVER: ("b",), BOTH: END_HOSTS}
STATISTICS_BLOCKS = 1_000_000
"""Slices under the statistics of programs are numbered from this value."""

EVERYTHING_DECIMATED = 1_000_000_000
"""The sampling interval at which a slice has at most one record."""

LONGEST_SECONDS = 86_400.0
CALIBRATION_SECONDS = 0.1
TRIAL_TURNS = 200
"""Number of turns of the placebo's loop while the time per turn is measured."""

SKIPS = ("full", "broken", "no-socket", "no-state", "control", "unparsed", "no-room", "late")


@contextmanager
def open_bench(session: Session, clock: Clock) -> Iterator[Bench]:
    """Yield the bench with the logs of the ends that are logged, and the tables of slices."""
    require_root(session)
    site, part, asked = session.site, session.part, session.plan.costs
    with watch_neighbours(session), ExitStack() as stack:
        sysctls = set_tcp(site.bed, asked.send_buffer_bytes, asked.receive_buffer_bytes,
                          tcp_congestion_control=asked.congestion_control)  # fmt: skip
        version = site.bed.backend.run("a", ["iperf3", "--version"]).splitlines()[0]
        logged = {host for trial in part.owed for host in ENDS[trial.factors.setting.where]}
        logged |= {*ENDS[BOTH if takes_statistics(asked) else SENDER]}
        logs = {host: start_log(session, host, stack) for host in END_HOSTS if host in logged}
        session.log("tcp-conditions", sysctls=sysctls, iperf=version, mss_bytes=asked.mss_bytes)
        slices = stack.enter_context(RowWriter(part.folder, "tcp_slices", part.number))
        costs = stack.enter_context(RowWriter(part.folder, "tcp_costs", part.number))
        yield Costs(session, asked, clock, logs, slices, costs)


def takes_statistics(asked: CostsPlan) -> bool:
    """Return whether slices are measured under the kernel's statistics of programs."""
    return asked.statistics > 0 and asked.form == "slices"


@dataclass(frozen=True, slots=True)
class Running:
    """Connections that send as fast as they can, and the meter of their throughput."""

    number: int
    traffic: Iperf
    meter: Meter
    placebo_turns: int
    """Number of turns of the placebo's loop that takes as long as logging."""


@dataclass
class Costs(Bench):
    """All slices of a part; slices of one batch share an iperf3 where it is divided into slices."""

    session: Session
    asked: CostsPlan
    clock: Clock
    logs: dict[HostName, LogInstrument]
    slices: RowWriter
    costs: RowWriter
    _running: Running | None = field(default=None, init=False)

    def batch(self, trials: Sequence[Trial[Slice]]) -> AbstractContextManager[None]:
        """Run one iperf3 for the whole batch; do nothing where each slice has its own."""
        setting = trials[0].factors.setting
        bed = self.session.site.bed
        size_packets(bed, bed.topology.paths[trials[0].path], setting.path, checksums=True)
        return nullcontext() if self.asked.form == "runs" else self._shared(trials[0].batch, trials[0])

    @contextmanager
    def _shared(self, number: int, trial: Trial[Slice]) -> Iterator[None]:
        setting = trial.factors.setting
        with self._traffic(number, trial) as self._running:
            yield
            if takes_statistics(self.asked) and not self.clock.is_up:
                self._measure_statistics(self._running, setting)
        self._running = None
        time.sleep(self.asked.pause_ns / 1e9)

    def measure(self, trial: Trial[Slice]) -> None:
        """Measure one slice."""
        own = {"pair": trial.block // 2, "repetition": trial.round, "cell": trial.cell, "visit": trial.visit}
        if self._running is not None:
            self.slices.write([self._take(trial.block, trial.factors, self._running) | own])
            return
        with self._traffic(trial.block // 2, trial) as alone:
            self.slices.write([self._take(trial.block, trial.factors, alone) | own])
        time.sleep(self.asked.pause_ns / 1e9)

    @contextmanager
    def _traffic(self, number: int, trial: Trial[Slice]) -> Iterator[Running]:
        site, asked, cores = self.session.site, self.asked, self.session.plan.host
        link, setting = site.bed.topology.paths[trial.path], trial.factors.setting
        self.session.log("transfer", transfer=number, link=link_number(trial))
        traffic = Traffic(link.b_ip4, setting.flows, LONGEST_SECONDS, asked.mss_bytes, asked.congestion_control,
                          cores.prober_cpu, cores.responder_cpu)  # fmt: skip
        with Iperf(site.bed, traffic) as running:
            loggers = {host: log.pid for host, log in self.logs.items()}
            time.sleep(asked.ramp_ns / 1e9)
            meter = Meter.of(site.bed, loggers)
            begun = options_of() | {"fields": list(asked.fields)}
            for host, log in self.logs.items():
                log.begin(number, "off", records=self.session.records(host), who=host, options=begun, keep=False)
            yield Running(number, running, meter, self._placebo_turns(setting))
            for host, log in self.logs.items():
                gap = log.end().get("interruption")
                if gap is not None:
                    self.session.log("log-interrupted", transfer=number, host=host, **gap)

    def _placebo_turns(self, setting: Setting) -> int:
        """Return the number of turns with which the placebo takes as long as a record, from kernel statistics in this
        traffic."""
        if not (setting.mode == PLACEBO or (self.asked.form == "slices" and PLACEBO in self.asked.controls)):
            return 0
        log = next(iter(self.logs.values()))
        asked = (("on", options_of()), (PLACEBO, options_of(turns=TRIAL_TURNS)), ("empty", options_of()))
        took = {mode: self._calibrated(log, mode, options) for mode, options in asked}  # type: ignore[arg-type]
        turn_ns = (took[PLACEBO] - took["empty"]) / TRIAL_TURNS
        turns = max(0, round((took["on"] - took["empty"]) / turn_ns)) if turn_ns > 0 else 0
        self.session.log("placebo", path=setting.path, flows=setting.flows, turns=turns, turn_ns=turn_ns, took_ns=took)
        return turns

    def _calibrated(self, log: LogInstrument, mode: Mode, options: dict[str, Any]) -> float:
        """Return the nanoseconds per run of the programs in a mode."""
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

    def _measure_statistics(self, running: Running, setting: Setting) -> None:
        """Measure slices with the kernel's statistics at both ends; they belong to no pair, as statistics take time
        too."""
        settings = [("on", 1), ("on", EVERYTHING_DECIMATED), ("empty", None), ("disabled", None)]
        settings += [(PLACEBO, None)] if PLACEBO in self.asked.controls else []
        of = STATISTICS_BLOCKS + len(settings) * self.asked.statistics * running.number
        for turn in range(self.asked.statistics):
            for place, (mode, each) in enumerate(settings):
                asked = replace(setting, where=BOTH, mode=mode, packets_per_log=each)
                row = self._take(of + len(settings) * turn + place, Slice(asked, mode), running, statistics=True)
                self.slices.write([row | {"pair": -1, "repetition": turn, "cell": -1, "visit": 0}])

    def _take(self, block: int, one: Slice, running: Running, *, statistics: bool = False) -> dict[str, Any]:
        """Return one slice as a row, without its place in the plan."""
        mode: Mode = one.mode  # type: ignore[assignment]
        logs = {host: self.logs[host] for host in (() if mode == "off" else ENDS[one.setting.where])}
        for log in logs.values():
            log.be(mode, options_of(one.setting.packets_per_log, running.placebo_turns))
            if statistics:
                log.take_statistics(on=True)
        time.sleep(self.asked.grace_ns / 1e9)
        programs = {host: log.costs() for host, log in logs.items()} if statistics else {}
        accounts, began = _totals(logs.values())
        before = running.meter.read()
        time.sleep(self.asked.slice_ns / 1e9)
        after = running.meter.read()
        later, ended = _totals(logs.values())
        for host, ran in programs.items():
            self.costs.write(rows_of_costs(block, host, ran, logs[host].costs()))
            logs[host].take_statistics(on=False)
        for log in logs.values():
            log.be("off")
        running.traffic.require_alive()
        counted = counts_of(accounts, later) | {"in_force_s": ended - began} if mode == "on" else NOTHING
        return row_of(block, one, running.number, before, after, statistics=statistics) | counted


def _totals(logs: Iterable[LogInstrument]) -> tuple[list[dict[str, Any]], float]:
    """Return the totals of some logs, and when these were read, in seconds: a request over SSH takes milliseconds."""
    asked = time.monotonic()
    totals = [log.totals() for log in logs]
    return totals, (asked + time.monotonic()) / 2


def options_of(packets_per_log: int | None = None, turns: int = 0) -> dict[str, Any]:
    """Return the options of the log."""
    return {"ppl": packets_per_log or 1, "ppl_by": "packet", "placebo_loops": turns}


def row_of(
    block: int, one: Slice, batch: int, before: Reading, after: Reading, *, statistics: bool = False
) -> dict[str, Any]:
    """Return the row of a slice: its setting and the kernel's counters."""
    setting = one.setting
    return {
        "block": block,
        "transfer": batch,
        "path": setting.path,
        "flows": setting.flows,
        "where": setting.where,
        "setting": setting.mode,
        "mode": one.mode,
        "packets_per_log": setting.packets_per_log,
        "statistics": statistics,
        "started_ns": before.at_ns,
        "ended_ns": after.at_ns,
        **after.since(before),
    }


COUNTED = ("packets_in", "packets_out", "segments_in", "segments_out", "logged", "decimated", "skipped")
NOTHING = dict.fromkeys(("in_force_s", *COUNTED, *(f"skipped_{why.replace('-', '_')}" for why in SKIPS)))
"""The counts of a slice in which the log counts nothing."""


def counts_of(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return what the logs of all ends together counted between two readings."""

    def came_to(way: str, disposition: str) -> int:
        return sum(int(one[way].get(disposition, 0)) for one in after) - sum(
            int(one[way].get(disposition, 0)) for one in before
        )

    def segments(way: str) -> int:
        then, now = (sum(int(one["segments"][way].get("seen", 0)) for one in looks) for looks in (before, after))
        return now - then

    def disposition(name: str) -> int:
        return came_to("in", name) + came_to("out", name)

    skips = {f"skipped_{why.replace('-', '_')}": disposition(why) for why in SKIPS}
    return {
        "packets_in": came_to("in", "seen"),
        "packets_out": came_to("out", "seen"),
        "segments_in": segments("in"),
        "segments_out": segments("out"),
        "logged": disposition("logged"),
        "decimated": disposition("decimated"),
        "skipped": sum(skips.values()),
        **skips,
    }


def rows_of_costs(
    block: int, host: str, before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the runs and CPU time of each program between two readings."""
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
    """Return the direction of the packets that run a program, from its name."""
    words = program.split("_")
    return next((way for way in ("in", "out") if way in words or f"{way}gress" in words), None)


def whole(folder: RunFolder, plan: Plan) -> set[int]:
    """Return the recorded slices whose pair is complete."""
    del plan
    blocks = set(read_table(folder.records, "tcp_slices").frame["block"].to_list())
    return {block for block in blocks if block < STATISTICS_BLOCKS and block ^ 1 in blocks}


MEASURE = Measure(open_bench, whole)
