"""Methods `tcp-truth` and `tcp-perturbation`: connections over an emulated path, with the log at the sender or without.

One trial is connections from host A to host B, whose application at A reads TCP_INFO as it sends; beside it stand the
log, attached to A alone, and, where the log itself is in question, a capture at A's port. Does not judge.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sojourn.conduct.archive import asked_in, rewrite
from sojourn.conduct.costs import MOST_SEGMENTS, OFFLOADS, SYSCTLS, start_log
from sojourn.conduct.facts import tell_of_neighbours
from sojourn.conduct.slice_records import RowWriter
from sojourn.errors import DoubtfulError, MachineError
from sojourn.instruments.tcp import TcpInstrument, tcp_argv
from sojourn.instruments.tcp_capture import TcpCapture
from sojourn.plan import effective_toml
from sojourn.plan.tcp import ON, trial_ns
from sojourn.plan.types import DIRECT
from sojourn.records import read_table
from sojourn.records.log import read_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.bed.model import HostName
    from sojourn.conduct.part import Sitting
    from sojourn.instruments.tcplog import LogInstrument
    from sojourn.plan import Plan
    from sojourn.plan.tcp import Connections
    from sojourn.records import RunFolder

ENDS: tuple[HostName, ...] = ("a", "b")
FIRST_PORT = 20_000
PORTS = 10_000
LEAST_ROUNDS = 2
"""Fewer than this say nothing, however little time there is."""

BULK_BYTES = 65_536
SETTLING_SECONDS = 300.0
"""Until all that a trial logged has become records."""


def measure_all(sitting: Sitting) -> None:
    """Every trial that the part owes."""
    if sitting.site.bed.unprivileged:
        raise MachineError("programs in the kernel are attached to a host's cgroup: run this study as root")
    before, part = sitting.site.bed.backend.usage(), sitting.part
    with ExitStack() as stack:
        conditions = prepare(sitting)
        log = start_log(sitting, "a", stack)
        ends = {host: start_end(sitting, host, stack) for host in ENDS}
        sitting.log("tcp-conditions", **conditions, cores=sitting.cores._asdict())
        captures = stack.enter_context(RowWriter(part.folder, "tcp_captures", part.number))
        try:
            Trials(sitting, log, ends, captures).measure(part.owed)
        finally:
            tell_of_neighbours(before, sitting.site, sitting.log)


def start_end(sitting: Sitting, host: HostName, stack: ExitStack) -> TcpInstrument:
    """The application of one host."""
    cpu = sitting.cores.prober if host == "a" else sitting.cores.responder
    argv = tcp_argv(sitting.instrument, sitting.records(host), sitting.part.number, host, cpu)
    end = TcpInstrument(sitting.site.start(host), argv)
    stack.callback(end.kill)
    stack.callback(end.finish)
    return end


def prepare(sitting: Sitting) -> dict[str, Any]:
    """Set what connections begin with, on our two hosts alone; gives what is in force."""
    bed, plan = sitting.site.bed, sitting.plan
    asked = plan.truth if plan.study.method == "tcp-truth" else plan.perturbation
    wanted = {
        "tcp_no_metrics_save": "1",
        "tcp_moderate_rcvbuf": "0",
        "tcp_wmem": f"4096 {asked.send_buffer_bytes} {asked.send_buffer_bytes}",
        "tcp_rmem": f"4096 {asked.receive_buffer_bytes} {asked.receive_buffer_bytes}",
    }
    for host in ENDS:
        for name, value in wanted.items():
            bed.put(host, SYSCTLS + name, value)
    lay_paths(sitting)
    found = {host: {name: bed.get(host, SYSCTLS + name).split() for name in wanted} for host in ENDS}
    return {"sysctls": found, "mss_bytes": asked.mss_bytes}


def lay_paths(sitting: Sitting) -> None:
    """Let packets over the emulated path be of one segment each, over the empty one as large as the kernel makes them.

    Else large ones would be cut between the log and the capture, and lost segment by segment.
    """
    bed = sitting.site.bed
    for name, link in bed.topology.arms.items():
        path = "gso" if name == DIRECT else "mtu"
        for port in (link.a_port, link.b_port):
            bed.run(
                port.host, ["ethtool", "-K", port.dev, *OFFLOADS[path].split(), "tx", "on" if path == "gso" else "off"]
            )
            bed.run(port.host, ["ip", "link", "set", "dev", port.dev, "gso_max_segs", str(MOST_SEGMENTS[path])])


@dataclass(frozen=True, slots=True)
class Trials:
    """All of a part."""

    sitting: Sitting
    log: LogInstrument
    ends: dict[HostName, TcpInstrument]
    captures: RowWriter

    @property
    def plan(self) -> Plan:
        """What is asked."""
        return self.sitting.plan

    def measure(self, owed: Sequence[Connections]) -> None:
        """Every trial, unless the plan's time is up before; then what is left of the plan is taken back."""
        screen, perturbing = self.sitting.screen, self.plan.study.method == "tcp-perturbation"
        at_most = self.plan.perturbation.at_most_ns if perturbing else None
        end = float("inf") if at_most is None else time.monotonic() + at_most / 1e9
        pause_ns = self.plan.perturbation.pause_ns if perturbing else self.plan.truth.pause_ns
        screen.begin(len(owed))
        for trial, before in zip(owed, (None, *owed), strict=False):
            if time.monotonic() > end and before and trial.round != before.round and trial.round >= LEAST_ROUNDS:
                self._take_back(trial.round)
                break
            self._measure(trial)
            screen.step()
            time.sleep(pause_ns / 1e9)
        screen.end()

    def _measure(self, trial: Connections) -> None:
        """One trial: the path, the witnesses, the log, the connections, and all of it taken away in turn."""
        emulators = self.sitting.emulators
        if trial.kind == "perturbation":
            emulators.start_anew(trial.arm)
        with ExitStack() as stack:
            stack.enter_context(emulators.during(trial.arm, trial.block, trial.pipe))
            capture = self._capture(trial, stack)
            if trial.setting == ON:
                # A process writes no file twice: each block has a name of its own.
                who = f"a{trial.block}x{self.sitting.part.number}"
                self.log.begin(
                    trial.block,
                    "on",
                    records=self.sitting.records("a"),
                    who=who,
                    options=self._options(trial),
                    keep=trial.kind != "perturbation",
                )
            came = self._connect(trial)
            account = self.log.end(SETTLING_SECONDS) if trial.setting == ON else None
            told: dict[str, Any] = {}
            if capture is not None:
                rows, dropped = capture.stop(trial.block)
                self.captures.write(rows)
                told = {"captured": len(rows), "capture_dropped": dropped}
        self._tell(trial, came, account, told)

    def _connect(self, trial: Connections) -> dict[str, Any]:
        """The connections, from the first packet to the last acknowledgement."""
        near, far = self.ends["a"], self.ends["b"]
        link = self.sitting.site.bed.topology.arms[trial.arm]
        asked, port = traffic(self.plan, trial), FIRST_PORT + trial.block % PORTS
        settings = {"congestion": trial.congestion, "mss_bytes": self._mss}
        far.listen(trial.block, port, asked["connections"], {"mss_bytes": self._mss})
        request = {"block": trial.block, "to": f"{link.b_ip4}:{port}", "settings": settings | asked.pop("own", {})}
        sent = near.send(request | asked, trial_ns(self.plan, trial) / 1e9, lambda: None)
        received = far.finish_listening(trial.block)
        broken = [one["problem"] for one in (*sent["connections"], *received["connections"]) if one["problem"]]
        if broken:
            raise DoubtfulError(f"a connection of trial {trial.block} broke: {broken[0]}")
        return sent

    @property
    def _mss(self) -> int:
        truth = self.plan.study.method == "tcp-truth"
        return self.plan.truth.mss_bytes if truth else self.plan.perturbation.mss_bytes

    def _options(self, trial: Connections) -> dict[str, Any]:
        """What the log is asked for."""
        if trial.kind == "perturbation":
            return {"ppl": self.plan.perturbation.packets_per_log}
        private = self.plan.truth.private_every if trial.kind == "law" else "off"
        return {"ppl": 1, "sample": "both", "private": private}

    def _capture(self, trial: Connections, stack: ExitStack) -> TcpCapture | None:
        """The witness, but where the log is held against its own absence."""
        if trial.kind == "perturbation":
            return None
        site, folder = self.sitting.site, self.sitting.part.folder
        dev, port = site.bed.topology.arms[trial.arm].a_dev, FIRST_PORT + trial.block % PORTS
        capture = TcpCapture(site.start("a"), dev, port, folder.records / "capture.pcap", self.sitting.cores.responder)
        stack.callback(capture.kill)
        return capture

    def _tell(
        self, trial: Connections, came: dict[str, Any], account: dict[str, Any] | None, told: dict[str, Any]
    ) -> None:
        """What was done, for whoever looks at the records."""
        logged = {key: account.get(key) for key in ("account", "records", "logger_cpu_s")} if account else None
        self.sitting.log(
            "tcp-trial",
            block=trial.block,
            kind=trial.kind,
            cell=trial.cell,
            congestion=trial.congestion,
            pipe=trial.pipe,
            arm=trial.arm,
            round=trial.round,
            setting=trial.setting,
            connections=came["connections"],
            logged=logged,
            **told,
        )

    def _take_back(self, rounds: int) -> None:
        """Let the effective plan ask for what there was time for, and say what was asked before."""
        plan, path = self.plan, self.sitting.part.folder.plan
        said = (
            f"perturbation.rounds = {plan.perturbation.rounds}; the time of perturbation.at_most was up after {rounds}"
        )
        asked = (*asked_in(path), said)
        rewrite(
            path, effective_toml(replace(plan, perturbation=replace(plan.perturbation, rounds=rounds), asked=asked))
        )
        self.sitting.log("time-is-up", rounds=rounds, asked=plan.perturbation.rounds)


def traffic(plan: Plan, trial: Connections) -> dict[str, Any]:
    """What is sent in a trial, in the instrument's words."""
    truth = plan.truth
    if trial.kind == "messages":
        own = {"message_bytes": truth.message_bytes, "interval_ns": truth.message_interval_ns, "read_before_send": True}
        return own | {"duration_ns": truth.messages_duration_ns, "connections": 1, "own": {"is_nodelay": True}}
    if trial.kind == "law":
        count = truth.law_connections
        return {"duration_ns": truth.law_duration_ns, "connections": count, "read_every_ns": truth.read_every_ns}
    if trial.kind == "direct":
        own = {"message_bytes": BULK_BYTES, "read_before_send": True}
        return own | {"bytes": truth.direct_bytes, "connections": 1}
    asked = plan.perturbation
    return {"duration_ns": asked.duration_ns, "connections": 1, "read_every_ns": asked.read_every_ns}


def whole_trials(folder: RunFolder, plan: Plan) -> set[int]:
    """The trials that ended, and whose readings are recorded."""
    del plan
    recorded = set(read_table(folder.records, "tcp_readings", columns=["block"]).frame["block"].to_list())
    told = (entry for entry in read_log(folder.log) if entry.get("event") == "tcp-trial")
    return {entry["block"] for entry in told} & recorded
