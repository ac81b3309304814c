"""Build a bed, and remove it at the end of the block, however that ends.

It calls the parts in order; each part does its own work. SIGTERM and SIGHUP, unless the program handles them itself,
leave the block as exceptions do. After SIGKILL the backend's holder cleans up.
"""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from sojourn.backends import load
from sojourn.bed.boxes import Boxes
from sojourn.bed.cores import DeviceCores, require_usable_cores
from sojourn.bed.facts import broken, counters, facts, moment, notes, objects, qdisc_dropped
from sojourn.bed.hosts import ports_of
from sojourn.bed.joined import require_joined
from sojourn.bed.model import BedSpec, Topology, checked
from sojourn.bed.negotiated import delaying
from sojourn.bed.switches import switch
from sojourn.bed.turns import Turns
from sojourn.bed.wiring import await_links, flush_fdb, prepare_live, silence, take_down, wire_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sojourn.bed.backend import Backend


class Bed:
    """A built bed: hosts `a` (sends probes), `b` (answers) and those that hold devices, and the links between them.

    Programs and files of its hosts are reached through its backend.
    """

    def __init__(self, spec: BedSpec, topology: Topology, backend: Backend, cores: DeviceCores, turns: Turns) -> None:
        self.spec = spec
        self.topology = topology
        self.backend = backend
        self._cores = cores
        self.turns = turns
        self.left_out: dict[str, str] = {}
        """The switches that cannot be set here, with the reason."""
        self.delaying: list[str] = []
        """What delays frames at its ports and hosts, a sentence each."""

    @property
    def device_core(self) -> int | None:
        """The core that handles the device's packets, if it has one of its own."""
        return self._cores.core

    def put_in_place(self, path: str) -> None:
        """Connect a path to the ports that it shares with others, unless it is already, and check that B answers."""
        if not self.turns.is_in_place(path):
            self.turns.put(path, self.await_links, self._has_lost_links)
            self.turns.require_answer(path, self.backend)

    def await_links(self) -> None:
        """Wait until every link has a carrier, and every device forwards."""
        await_links(self.backend, self.topology, self.spec)

    def require_joined(self) -> None:
        """Wait until each device that Sojourn does not build joins its ports: a switch may block them for a while."""
        for link in self.topology.links:
            if link.loose:
                require_joined(self, link)

    def _has_lost_links(self) -> bool:
        self.backend.require_hosts()
        return bool(self.backend.lost_links())

    def counters(self, *paths: str) -> dict[str, dict[str, int]]:
        """Return the counters of every interface of these paths (ends, device's ports, bridges); without names, of all.

        Ports with a shaper have `qdisc_dropped` too: the drops of its queue. The difference of two readings locates
        lost frames: each port's `tx_packets` is its neighbour's `rx_packets`, less what that one dropped.
        """
        links = [self.topology.link(path) for path in paths] or list(self.topology.links)
        wanted = {port.dev for link in links for port in link.ports}
        wanted |= {station.name for link in links for station in link.stations if station.name}
        found = {
            dev: counted
            for host in self.topology.hosts
            for dev, counted in counters(self.backend, host.name).items()
            if dev in wanted
        }
        if self.spec.rate_bps is not None:
            for host in self.topology.device_hosts:
                for dev, dropped in qdisc_dropped(self.backend, host).items():
                    if dev in found:
                        found[dev]["qdisc_dropped"] = dropped
        return found

    def flush_fdb(self, path: str) -> None:
        """Flushes the FDB of the path's switches: the next frame to any address is flooded."""
        flush_fdb(self.backend, self.topology.link(path))

    def prepare_live(self, path: str) -> None:
        """Let the path's ports accept frames that an XDP program redirects to their peers.

        Every frame that they receive then passes a ring of 256 entries first, which can overflow: prepare all paths
        that are to be compared, before any of them is measured. In `facts` this is generic-receive-offload.
        """
        prepare_live(self.backend, self.topology.link(path))

    def facts(self) -> dict[str, Any]:
        """Return the content of `bed.json`: the facts of the machines, and a hash over those that should not change."""
        return facts(self.backend, self.topology, self.spec, self._cores)

    def objects(self) -> dict[str, Any]:
        """Return the kernel objects of each device, as the tools show them now, by path."""
        return objects(self.backend, self.topology)

    def notes(self) -> dict[str, list[str]]:
        """Return the notes on each device in its present state, by path."""
        return notes(self.backend, self.topology)

    def broken(self) -> dict[str, list[str]]:
        """Return what is broken of each device, by path."""
        return broken(self.backend, self.topology)

    def moment(self) -> dict[str, Any]:
        """Return load, interrupts and counters now; their difference to those in `facts` is the load beside a run."""
        return moment(self.backend, self.topology, self.spec, self._cores)


@contextmanager
def build_bed(spec: BedSpec, run_id: str, logs: Path | None = None) -> Iterator[Bed]:
    """Build the bed of a spec, and remove all of it at the end of the block.

    The output of each box's program goes to a file in the folder `logs`, if one is named.
    """
    topology = Topology.of_spec(checked(spec))
    turns = Turns(topology, spec)
    told: list[str] = []
    backend: Backend = load(spec.backend)(run_id)
    require_usable_cores(spec, backend.cores(spec.hosts))
    with _signals_as_exceptions(), ExitStack() as undo:
        undo.callback(backend.close)
        backend.open(topology, spec)
        if not backend.simulated:
            silence(backend, topology)
            backend.lay(topology.cables, spec.mtu)
            undo.callback(take_down, backend, topology)
            turns.begin()
            wire_up(backend, topology, spec)
            if spec.settings:
                backend.tune(topology, spec.settings)
                await_links(backend, topology, spec)
            told = delaying(backend, topology, ports_of(topology, spec.paths) if spec.hosts else {})
            if spec.hosts:
                backend.missing.extend(told)
            boxes = Boxes(backend, topology, spec, logs)
            undo.callback(boxes.down)
            topology = boxes.up()
        bed = Bed(spec, topology, backend, DeviceCores(backend, topology, spec), turns)
        for several in turns.groups:
            turns.require_answer(several[0], backend)
        if not spec.every_port:  # a check of the bed does so path by path
            bed.require_joined()
        bed.delaying = told
        bed.left_out = switch(backend, topology, spec)
        yield bed


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Raise SystemExit within the block on a signal that would end the program at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    ours = [number for number, handler in kept.items() if handler is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
