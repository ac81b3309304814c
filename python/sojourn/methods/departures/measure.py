"""Method "departures": trials of a sender, with an independent capture at the B side.

Keeps the time of each trial, and writes the captured frames of each as records at the end. Does not judge.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.blocks import Blocks, open_prober, probed_blocks
from sojourn.errors import MachineError
from sojourn.instruments import ping_argv
from sojourn.instruments.capture import Capture, Window, write_captures
from sojourn.instruments.ping import find_ping
from sojourn.plan import DIRECT
from sojourn.records import read_table
from sojourn.records.log import read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.conduct.site import Site
    from sojourn.plan import Plan
    from sojourn.plan.probes import Probing
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder

TICK_SECONDS = 1.0
SLOWEST = 3
"""A trial may take this many times its configured time, plus a minute, before its sender counts as stuck."""
STRAY_NS = 2_000_000
"""Added to a trial's time for frames in flight: far longer than their delay, far shorter than the pause between
trials."""


class Witness:
    """The capture of a part and the windows of its trials."""

    def __init__(self, folder: RunFolder, part: int, site: Site, cpu: int) -> None:
        self._records = folder.records / f"captures-{part:03}.arrow"
        dev = site.bed.topology.paths[DIRECT].b_dev
        self._capture = Capture(site.bed, "b", dev, folder.records / f"captures-{part:03}.pcap", cpu)
        self._backend = site.bed.backend
        self._windows: list[Window] = []

    def now_ns(self) -> int:
        """Return host B's time, asked now: it is before what comes afterwards, and after what came before."""
        return self._backend.tai_ns("b")

    def window(self, trial: Trial[Probing], began_ns: int) -> None:
        """Add a trial that ran from `began_ns` of host B's clock until now."""
        self._windows.append(Window(trial.block, began_ns, self.now_ns() + STRAY_NS))
        time.sleep(2 * STRAY_NS / 1e9)  # so that no frame falls into two windows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._capture.stop()
        write_captures(self._records, self._capture.frames(), self._windows)
        self._capture.file.unlink()


def ping_trial(site: Site, trial: Trial[Probing], cpu: int, tick: Callable[[], None]) -> int | None:
    """Run the system's ping for one trial; return its ICMP identifier, where it could be chosen."""
    argv, identifier = ping_argv(site.bed, trial, site.bed.topology.paths[trial.path].b_ip4, cpu)
    process = site.start("a")(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60 + SLOWEST * (trial.count or 0) * trial.factors.interval_ns / 1e9
    try:
        while True:
            try:
                _, said = process.communicate(timeout=TICK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                tick()
                if time.monotonic() > deadline:
                    raise MachineError(f"ping is stuck in block {trial.block}") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode not in (0, 1):  # status 1: some probes were not answered, which is a result
        words = str(said).strip().splitlines()
        raise MachineError(f"ping failed: {words[-1] if words else f'status {process.returncode}'}")
    return identifier


@dataclass
class Departures(Blocks):
    """Trials of both senders, during a capture."""

    witness: Witness

    def measure(self, trial: Trial[Probing]) -> None:
        """Measure one trial, and log what the analysis of the capture needs."""
        site, identifier = self.session.site, None
        began = self.witness.now_ns()
        if trial.factors.tool == "ping":
            identifier = ping_trial(site, trial, self.session.cores.prober, self.session.screen.tick)
        else:
            super().measure(trial)
        self.witness.window(trial, began)
        self.session.log("trial", **told(trial, identifier))


def told(trial: Trial[Probing], identifier: int | None) -> dict[str, Any]:
    """Return what the analysis of the B side's capture needs."""
    factors = trial.factors
    return {
        "block": trial.block,
        "tool": factors.tool,
        "interval_ns": factors.interval_ns,
        "icmp_bytes": factors.request_payload_bytes + 8,
        "count": trial.count,
        "icmp_id": identifier,
    }


@contextmanager
def open_departures(session: Session, clock: Clock) -> Iterator[Bench]:
    """Open the prober, and the independent capture."""
    del clock
    if any(trial.factors.tool == "ping" for trial in session.part.owed):
        find_ping(session.site.bed)  # not first in the middle of a round
    with (
        open_prober(session) as prober,
        Witness(session.part.folder, session.part.number, session.site, session.cores.responder) as witness,
    ):
        yield Departures(session, prober, witness)


def whole(folder: RunFolder, plan: Plan) -> set[int]:
    """Return the trials that were completed, and whose capture is recorded."""
    del plan
    pinged = {one["block"] for one in read_log(folder.log) if one.get("event") == "trial" and one["tool"] == "ping"}
    captured = set(read_table(folder.records, "captures").frame["block"].to_list())
    return (probed_blocks(folder) | pinged) & captured


MEASURE = Measure(open_departures, whole)
