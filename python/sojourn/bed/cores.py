"""The core that handles the device's packets, as a factor of the experiment.

`shared`: nothing is set; a veth pair delivers each packet in the sender's own context. `own`: receive packet steering
(RPS) hands packets that enter a device to a core of its own, and those that enter A and B to the prober's and the
responder's core, on every path alike. `loaded:NN%`: the same, with a calibrated load on the device's core.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.bed.bounded import line_of
from sojourn.bed.device_cpu import DeviceCpu
from sojourn.errors import MachineError, RequestError
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from sojourn.bed.backend import Backend
    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import BedSpec, Topology

_LOAD = Path(__file__).with_name("load.py")
_ANSWER_SECONDS = 1.0

_NO_STEERING = (
    "The device cannot have a core of its own: packet steering (rps_cpus) needs root and a kernel with CONFIG_RPS; "
    "its packets are handled on the sender's core."
)


class DeviceCores:
    """The device's core, and the load on it, if any."""

    def __init__(self, backend: Backend, topology: Topology, spec: BedSpec) -> None:
        self.asked = DeviceCpu.parse(spec.device_cpu)
        self.core: int | None = None
        self.steered: dict[str, int] = {}
        self._load: subprocess.Popen[Any] | None = None
        if self.asked.kind == "shared" or backend.simulated:
            return
        self.core = _a_core_for_the_device(spec, backend)
        self._steer(backend, topology, spec)
        if self.asked.kind == "loaded":
            self._load = self._start_load(backend, spec)

    def facts(self) -> dict[str, Any]:
        """Return the request and its result."""
        return {
            "asked": self.asked.kind,
            "core": self.core,
            "steered": self.steered,
            "asked_load_share": self.asked.load if self.asked.kind == "loaded" else None,
        }

    def load(self) -> dict[str, Any] | None:
        """Return the achieved load so far; None if there is no load, or it does not answer."""
        if self._load is None or self._load.stdin is None or self._load.stdout is None:
            return None
        with suppress(BrokenPipeError, TimeoutError, EOFError, ValueError):
            self._load.stdin.write("\n")
            self._load.stdin.flush()
            achieved = json_value(line_of(self._load.stdout.fileno(), _ANSWER_SECONDS))
            return achieved if isinstance(achieved, dict) else None
        return None

    def _steer(self, backend: Backend, topology: Topology, spec: BedSpec) -> None:
        cores: dict[HostName, int | None] = {"a": spec.prober_cpu, "b": spec.responder_cpu}
        cores |= dict.fromkeys(topology.device_hosts, self.core)
        ports = [(port, core) for host, core in cores.items() if core is not None for port in topology.ports(host)]
        try:
            for port, core in ports:
                backend.put(port.host, f"/sys/class/net/{port.dev}/queues/rx-0/rps_cpus", cpu_mask(core))
                self.steered[port.dev] = core
        except MachineError:
            backend.missing.append(_NO_STEERING)
            self.core = None

    def _start_load(self, backend: Backend, spec: BedSpec) -> subprocess.Popen[Any]:
        core = next(core for core in (self.core, spec.prober_cpu, backend.cores(spec.hosts)[0]) if core is not None)
        argv = [*program(backend, "d", _LOAD), str(core), str(self.asked.load)]
        return backend.start("d", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def program(backend: Backend, host: HostName, file: Path) -> list[str]:
    """Return the command that runs a file of ours, which needs Python's standard library only, on a host."""
    python = backend.find("python3")
    if python is None:
        raise MachineError("there is no python3 on the hosts of the bed: apt-get install python3")
    return [python, "-I", "-S", str(backend.lend(host, file))]


def require_usable_cores(spec: BedSpec, usable: list[int]) -> None:
    """Refuse a spec that names a core which may not be used."""
    for name, core in (("prober_cpu", spec.prober_cpu), ("responder_cpu", spec.responder_cpu)):
        if core is not None and core not in usable:
            raise RequestError(f"{name} = {core}: the cores that may be used here are {', '.join(map(str, usable))}")


def cpu_mask(*cores: int) -> str:
    """Return a set of cores as the kernel writes it: hexadecimal, in groups of 32 bits with commas between."""
    bits = sum(1 << core for core in cores)
    last = max(cores, default=0) // 32
    return ",".join(f"{bits >> 32 * group & 0xFFFF_FFFF:08x}" for group in range(last, -1, -1))


def _a_core_for_the_device(spec: BedSpec, backend: Backend) -> int | None:
    """Return the highest core that neither end uses, else one that the prober does not use."""
    cores, missing = backend.cores(spec.hosts)[::-1], backend.missing
    for taken in ({spec.prober_cpu, spec.responder_cpu}, {spec.prober_cpu}):
        free = [core for core in cores if core not in taken]
        if free and len(cores) > 1:
            if free[0] == spec.responder_cpu:
                missing.append(
                    f"The device shares core {free[0]} with the responder: this machine has {len(cores)} cores."
                )
            return free[0]
    missing.append("The device cannot have a core of its own: there is only one core here.")
    return None
