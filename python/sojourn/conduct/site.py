"""The bed of a run, real or simulated, in the form that the orchestrator uses.

Returns how a path is reached and how programs start there. Builds nothing itself (bed does).
"""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn import devices
from sojourn.bed import Bed, BedSpec, BoxSpec, LinkSpec, build_bed
from sojourn.bed.hosts import END_HOSTS
from sojourn.conduct.draw import FIXED
from sojourn.conduct.real_hosts import real_hosts, real_paths, require_clock
from sojourn.errors import MachineError
from sojourn.instruments.conversation import DEATH, ENDED_HERE, called
from sojourn.plan.line import BETWEEN_SESSIONS, DRAWN_BY
from sojourn.plan.settings import switched
from sojourn.plan.sizes import KINDS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.cores import Cores
    from sojourn.conduct.draw import Draw
    from sojourn.instruments import Start
    from sojourn.plan import Plan
    from sojourn.plan.probes import Probing
    from sojourn.plan.trial import Trial

UDP_PORT = 7707


CARRIES: dict[tuple[str, int | None], str] = {
    ("icmp", 4): "icmp",
    ("icmp", 6): "icmp6",
    ("udp", 4): "udp",
    ("udp", 6): "udp6",
    ("packet", None): "packet",
}


@dataclass(frozen=True)
class Program:
    """A program that the orchestrator started on a host."""

    called: str
    host: HostName
    process: subprocess.Popen[Any]


@dataclass(frozen=True)
class Site:
    """A bed, and the properties of its simulated lines."""

    bed: Bed
    lines: Mapping[str, Mapping[str, Any]]
    draw: Draw | None = None
    """The draw of this session, if the run has several sessions."""
    _waiting: list[Callable[[], None]] = field(default_factory=list)
    _started: list[Program] = field(default_factory=list)

    def when_gathered(self, told: Callable[[], None]) -> None:
        """Register a call for when all present records have been fetched; it is dropped if their host is lost."""
        self._waiting.append(told)

    def gather(self) -> None:
        """Fetch the records, and make the registered calls."""
        self.bed.backend.gather()
        while self._waiting:
            self._waiting.pop(0)()

    @property
    def simulated(self) -> bool:
        """Whether there are no frames: the instrument's engine runs over lines of known behaviour in simulated time."""
        return self.bed.backend.simulated

    def start(self, host: HostName) -> Start:
        """Return the function that starts programs on a host."""
        return partial(self._start, host)

    def _start(self, host: HostName, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        command = argv
        if self.draw is not None and not self.simulated:
            command, popen = self.draw.command(argv), {"env": self.draw.environment(), **popen}
        process = self.bed.backend.start(host, command, **popen)
        self._started.append(Program(called(argv), host, process))
        return process

    def running(self) -> list[Program]:
        """Return the programs that were started and have not ended."""
        self._started[:] = [one for one in self._started if one.process.poll() is None]
        return list(self._started)

    @staticmethod
    def killed(among: Iterable[Program]) -> list[str]:
        """Return those that another program has killed, each as part of a sentence; of other hosts nothing is known."""
        ended = [(one, one.process.poll()) for one in among if one.process not in ENDED_HERE]
        return [
            f"{one.called} on host {one.host.upper()} {DEATH} {signal.Signals(-status).name}"
            for one, status in ended
            if status is not None and status < 0
        ]

    def require_fixed_addresses(self) -> None:
        """Refuse hosts on which no program can start with a fixed address space.

        This is checked on the first bed for all of them: the bed that needs it may be the last.
        """
        for host in () if self.simulated else END_HOSTS:
            try:
                self.bed.backend.run(host, [*FIXED, "true"])
            except MachineError as error:
                fix = "install util-linux where setarch is missing, or take it out of bed.hold or variance.factors"
                raise MachineError(f'"aslr" cannot be held on host {host.upper()} ({error}): {fix}') from error

    def to(self, trial: Trial[Probing]) -> dict[str, Any]:
        """Return how the instrument reaches the trial's peer: by the path's addresses, bound to its interface."""
        kind = KINDS[trial.factors.probe]
        if self.simulated:
            return {"via": "sim", "line": self.line(trial.path), "as": CARRIES[kind.via, kind.ip_version]}
        link = self.bed.topology.paths[trial.path]
        if kind.via == "packet":
            return {"via": "packet", "dev": link.a_dev, "mac": link.b_mac, "qdisc_bypass": True}
        address = link.b_ip4 if kind.ip_version == 4 else link.b_ip6
        peer = {"via": kind.via, "address": address, "dev": link.a_dev}
        return peer | ({"port": UDP_PORT} if kind.via == "udp" else {})

    def line(self, path: str) -> dict[str, Any]:
        """Return the behaviour of a path's line; a twin has that of its fellow, with an offset of its own."""
        line = dict(self.lines.get(path) or self.lines[devices.fellow_of(path)])
        sd_ns, of = line.pop(BETWEEN_SESSIONS, 0), line.pop(DRAWN_BY, "")
        if self.draw is None or not sd_ns:
            return line
        return slower(line, self.draw.offset_ns(f"{path}/{line.get('seed', 0)}", sd_ns, of))

    def facts(self) -> dict[str, Any]:
        """Return the facts of the machines, and of a simulated bed those of its lines."""
        lines = {device: dict(line) for device, line in self.lines.items()}
        return self.bed.facts() | ({"lines": lines} if self.simulated else {})


@contextmanager
def open_site(
    plan: Plan, cores: Cores, run_id: str, draw: Draw | None = None, logs: Path | None = None
) -> Iterator[Site]:
    """Build the plan's bed for the time of a block; the user's boxes write to a folder of logs."""
    with build_bed(bed_spec(plan, cores, draw), run_id, logs) as bed:
        require_clock(plan, bed.backend)
        site = Site(bed, plan.bed.lines, draw)
        try:
            yield site
        except BaseException:
            with suppress(MachineError):  # what a lost host did not deliver is measured again
                site.gather()
            raise
        site.gather()


WAYS = ("forward", "backward", "delay", "delay_backward")


def slower(line: dict[str, Any], by_ns: float) -> dict[str, Any]:
    """Return the line with a longer delay, each way."""
    changed = {way: shifted(line[way], by_ns) for way in WAYS if way in line}
    return line | changed


def shifted(delay: dict[str, Any], by_ns: float) -> dict[str, Any]:
    """Return the distribution shifted by a delay."""
    if "constant_ns" in delay:
        return {"constant_ns": round(delay["constant_ns"] + by_ns)}
    (kind, shape) = next(iter(delay.items()))
    place = {"normal": "mean_ns", "gamma": "shift_ns"}[kind]
    return {kind: shape | {place: shape[place] + by_ns}}


def bed_spec(plan: Plan, cores: Cores, draw: Draw | None = None) -> BedSpec:
    """Return the bed that the plan requests."""
    return BedSpec(
        backend=plan.bed.backend,
        devices=tuple(device for device in plan.bed.devices if not plan.bed.simulated or devices.known(device)),
        device_cpu=plan.bed.device_cpu,
        mtu=plan.bed.mtu,
        offloads=plan.bed.offloads,
        prober_cpu=cores.prober,
        responder_cpu=cores.responder,
        near=plan.bed.near,
        far=plan.bed.far,
        bypass=plan.bed.bypass,
        shaper=plan.bed.shaper,
        rate_bps=plan.bed.rate_bps,
        burst_bytes=plan.bed.burst_bytes,
        queue_bytes=plan.bed.queue_bytes,
        cgroups=plan.ask.cgroups or plan.ask.logs_some(plan),
        twins=plan.twins,
        layout=None if draw is None else draw.layout,
        addresses=None if draw is None else draw.addresses,
        switches={} if draw is None else draw.switches,
        hosts=real_hosts(plan),
        paths=real_paths(plan),
        settings=switched(plan.settings, {} if draw is None else draw.switches),
        boxes={device: BoxSpec(box.up, box.down, box.within_ns, box.routed) for device, box in plan.bed.boxes.items()},
        links={
            path: LinkSpec(link.rates_bps, link.delays_ns, plan.bed.queue_bytes)
            for path, link in plan.bed.links.items()
        },
    )
