"""Where a run takes place: a bed of namespaces, or simulated lines. The two have one shape for the orchestrator.

Says how an arm is reached and how programs start there. Builds nothing itself (bed does).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sojourn import devices
from sojourn.bed import Bed, BedSpec, LinkSpec, build_bed
from sojourn.plan.sizes import KINDS
from sojourn.plan.types import TCP_METHODS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from sojourn.bed.model import HostName
    from sojourn.conduct.cores import Cores
    from sojourn.instruments import Start
    from sojourn.plan import Block, Plan

UDP_PORT = 7707


class Site(Protocol):
    """A place to measure."""

    simulated: bool
    unprivileged: bool
    missing: list[str]

    def to(self, block: Block) -> dict[str, Any]:
        """How the instrument reaches the block's peer."""

    bed: Bed

    def start(self, host: HostName) -> Start:
        """How programs start on a host."""

    def facts(self) -> dict[str, Any]:
        """What the machines are."""

    def moment(self) -> dict[str, Any]:
        """Load, interrupts and counters as they are now."""


@contextmanager
def open_site(plan: Plan, cores: Cores, run_id: str) -> Iterator[Site]:
    """The place that the plan asks, for the time of a block of code."""
    with build_bed(bed_spec(plan, cores), run_id) as bed:
        yield Simulation(bed, plan) if plan.bed.backend == "sim" else Namespaces(bed)


def bed_spec(plan: Plan, cores: Cores) -> BedSpec:
    """What the plan asks of a bed."""
    return BedSpec(
        backend=plan.bed.backend,
        devices=tuple(device for device in plan.bed.devices if plan.bed.backend != "sim" or devices.known(device)),
        device_cpu=plan.bed.device_cpu,
        mtu=plan.bed.mtu,
        offloads=plan.bed.offloads,
        prober_cpu=cores.prober,
        responder_cpu=cores.responder,
        near=plan.bed.near,
        far=plan.bed.far,
        decoy=plan.bed.decoy,
        shaper=plan.bed.shaper,
        rate_bps=plan.bed.rate_bps,
        burst_bytes=plan.bed.burst_bytes,
        queue_bytes=plan.bed.queue_bytes,
        cgroups=plan.study.method in TCP_METHODS,
        links={
            arm: LinkSpec(link.rates_bps, link.delays_ns, plan.bed.queue_bytes) for arm, link in plan.bed.links.items()
        },
    )


class Namespaces:
    """Real frames on this machine."""

    simulated = False

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.unprivileged = bed.unprivileged
        self.missing = bed.missing

    def to(self, block: Block) -> dict[str, Any]:
        """The arm's own addresses, bound to its interface."""
        link = self.bed.topology.arms[block.arm]
        kind = KINDS[block.cell.probe]
        if kind.via == "packet":
            return {"via": "packet", "dev": link.a_dev, "mac": link.b_mac, "qdisc_bypass": True}
        address = link.b_ip4 if kind.ip_version == 4 else link.b_ip6
        peer = {"via": kind.via, "address": address, "dev": link.a_dev}
        return peer | ({"port": UDP_PORT} if kind.via == "udp" else {})

    def start(self, host: HostName) -> Start:
        """Start on a host of the bed."""

        def start(argv: list[str], **popen: Any) -> subprocess.Popen[Any]:
            return self.bed.start(host, argv, **popen)

        return start

    def facts(self) -> dict[str, Any]:
        """The bed's own."""
        return self.bed.facts()

    def moment(self) -> dict[str, Any]:
        """The bed's own."""
        return self.bed.moment()


CARRIES: dict[tuple[str, int | None], str] = {
    ("icmp", 4): "icmp",
    ("icmp", 6): "icmp6",
    ("udp", 4): "udp",
    ("udp", 6): "udp6",
    ("packet", None): "packet",
}


class Simulation:
    """Simulated lines: the instrument's engine over a line of known behaviour, in simulated time."""

    simulated = True

    def __init__(self, bed: Bed, plan: Plan) -> None:
        self.bed = bed
        self.unprivileged = bed.unprivileged
        self.missing = bed.missing
        self._lines = plan.bed.lines

    def to(self, block: Block) -> dict[str, Any]:
        """The line of the block's arm."""
        kind = KINDS[block.cell.probe]
        return {"via": "sim", "line": dict(self._lines[block.arm]), "as": CARRIES[kind.via, kind.ip_version]}

    def path(self, arm: str) -> dict[str, Any]:
        """What the line of an arm does to streams."""
        return dict(self._lines[arm])

    def start(self, host: HostName) -> Start:
        """Start right here, whichever host it is."""
        del host

        def start(argv: list[str], **popen: Any) -> subprocess.Popen[Any]:
            return self.bed.start("a", argv, **popen)

        return start

    def facts(self) -> dict[str, Any]:
        """The machine's, and the lines, which alone matter."""
        return self.bed.facts() | {"lines": {device: dict(line) for device, line in self._lines.items()}}

    def moment(self) -> dict[str, Any]:
        """The machine's."""
        return self.bed.moment()
