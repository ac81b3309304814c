"""Switch factors on or off for a bed, so that a study of variance can estimate their effect.

`idle`: idle processors poll, or sleep as usual. `rps`: every port distributes its packets by flow to all usable cores
(receive packet steering), or handles them where they arrive. `frequency`: the processors are held at their highest
frequency, or not. A switch that is not possible here is left out, and the reason is reported; but a frequency that
cannot be set is refused before anything starts. The bed's ports go with it, the kernel ends the request for polling
with the process that made it, and `bed.frequency` restores the frequency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.bed.cores import cpu_mask
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from sojourn.bed.backend import Backend
    from sojourn.bed.model import BedSpec, Topology

NO_STEERING = "packet steering (rps_cpus) needs root and a kernel with CONFIG_RPS"
REAL_PORTS = "packet steering of real hosts is left as it is"


def switch(backend: Backend, topology: Topology, spec: BedSpec) -> dict[str, str]:
    """Set the switches of the spec; return by name why others are not possible.

    Simulated beds have nothing to switch.
    """
    left_out: dict[str, str] = {}
    if backend.simulated:
        return left_out
    if "idle" in spec.switches and (why := backend.keep_awake(polling=spec.switches["idle"])) is not None:
        left_out["idle"] = why
    if "rps" in spec.switches and (why := _steer(backend, topology, spec)) is not None:
        left_out["rps"] = why
    if "frequency" in spec.switches:
        backend.keep_frequency(highest=spec.switches["frequency"])
    return left_out


def _steer(backend: Backend, topology: Topology, spec: BedSpec) -> str | None:
    if spec.hosts:
        return REAL_PORTS
    mask = cpu_mask(*backend.cores()) if spec.switches["rps"] else cpu_mask()
    try:
        for host in topology.hosts:
            for port in topology.ports(host.name):
                backend.put(host.name, f"/sys/class/net/{port.dev}/queues/rx-0/rps_cpus", mask)
    except MachineError:
        return NO_STEERING
    return None
