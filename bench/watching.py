"""What watching costs: one flow of TCP over one emulated path, with every instrument on and with all but one off.

Watched are TCP's state at every packet of both hosts, the frames at both ends (taps), every packet in the emulator, and
probes over UDP. What measures the round trips is on in both: probes over ICMP. Each repetition has both, in random
order, over the same path.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import sojourn
from bench import loads
from bench.compare import Row, What, ratio
from bench.ours import PORT, Ours
from sojourn.errors import MachineError
from sojourn.instruments import find_instrument
from sojourn.instruments.emulator import NOBODY
from sojourn.records import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sojourn.labs.lab import Lab

TASK = f"one flow of CUBIC over an emulated path ({loads.PIPE}), every instrument on"
PEER = "all off but ICMP probes"
Sample = dict[str, float]
FIGURES = (
    ("goodput_bps", "goodput", "bit/s"),
    ("idle_ns", "median RTT, idle", "ns"),
    ("working_ns", "median RTT under load", "ns"),
    ("working_p95_ns", "95th percentile under load", "ns"),
)
"""A key of the samples, what it is, and its unit."""


def rows(repetitions: int, seed: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """Return the lines of the table: the ratio of watched to not watched."""
    pairs = measured(repetitions, seed, scratch, tell)
    return [
        ratio(What(TASK, PEER, name, unit), [(on[key], off[key]) for on, off in pairs], None)
        for key, name, unit in FIGURES
    ]


def measured(repetitions: int, seed: int, scratch: Path, tell: Callable[[str], None]) -> list[tuple[Sample, Sample]]:
    """Return the samples of each repetition, watched and not watched."""
    with tempfile.TemporaryDirectory(dir=scratch) as log:
        pairs, kept = repeated(repetitions, seed, (scratch, Path(log)), tell)
        logged = set(read_table(Path(log), "packets", columns=["block"]).frame["block"])
    if not kept <= logged <= kept | {NOBODY}:
        raise MachineError(f"the emulator's log has blocks {sorted(logged)}, and was on in {sorted(kept)}")
    return pairs


def repeated(
    repetitions: int, seed: int, folders: tuple[Path, Path], tell: Callable[[str], None]
) -> tuple[list[tuple[Sample, Sample]], set[int]]:
    """The pairs, and the blocks that were watched; the emulator's log goes to the second folder."""
    order, block = random.Random(seed), 0
    pairs: list[tuple[Sample, Sample]] = []
    kept: set[int] = set()
    pipe = loads.PIPE
    with sojourn.lab(forward=pipe, backward=pipe, seed=seed, log=folders[1]) as lab, responding(lab):
        for number in range(1, repetitions + 1):
            found = {}
            for is_watched in order.sample([True, False], 2):
                tell(f"watching: repetition {number}/{repetitions}: {'on' if is_watched else 'off'}")
                block += 1
                kept |= {block} if is_watched else set()
                with tempfile.TemporaryDirectory(dir=folders[0]) as folder:
                    found[is_watched] = once(lab, Path(folder), block, is_watched=is_watched)
                time.sleep(0.5)
            pairs.append((found[True], found[False]))
    return pairs, kept


def once(lab: Lab, folder: Path, block: int, *, is_watched: bool) -> Sample:
    """Run the flow once; check that every instrument saw it if it is watched."""
    lab.emulator.begin(block, keep=is_watched)
    try:
        with watched(lab, folder) if is_watched else ExitStack():
            sample = loaded(lab, folder)
    finally:
        lab.emulator.begin(NOBODY, keep=False)
    return sample


@contextmanager
def responding(lab: Lab) -> Iterator[None]:
    """Run our responder at the far end."""
    argv = [find_instrument(), "probe", "respond", "--udp", str(PORT), "--bind", lab.far.address]
    process = lab.far.popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        lab.far.wait_for_port(PORT, unless=lambda: process.poll() is not None)
        yield
    finally:
        loads.ended(process)


@contextmanager
def watched(lab: Lab, folder: Path) -> Iterator[None]:
    """Run every other instrument meanwhile: TCP's log, taps at both ends, probes over UDP."""
    instrument = find_instrument()
    log = [instrument, "tcplog", "run", "--port", str(loads.TCP_PORT), "--out", str(folder / "log"), "--json"]
    tap = ["--format", "records", "--json", "-o"]
    lasts = loads.IDLE_SECONDS + loads.START_UP_SECONDS + loads.WORKING_SECONDS + loads.SPARE_SECONDS
    (folder / "udp").mkdir()
    udp = [instrument, "probe", "udp", f"{lab.far.address}:{PORT}", *shape(lasts), "--record", str(folder / "udp")]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = {
        "TCP's log": subprocess.Popen(log, **pipes),
        "the near tap": lab.near.popen([instrument, "capture", lab.near.dev, *tap, str(folder / "near")], **pipes),
        "the far tap": lab.far.popen([instrument, "capture", lab.far.dev, *tap, str(folder / "far")], **pipes),
    }
    try:
        time.sleep(loads.SPARE_SECONDS)
        running["the probes"] = lab.near.popen(udp, **pipes)
        yield
        told = {name: finished(name, process) for name, process in running.items()}
    finally:
        for process in running.values():
            loads.ended(process)
    require_seen(folder, told)


def finished(name: str, process: subprocess.Popen[Any]) -> str:
    """End a program with the signal a user would send, and return what it printed."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=loads.PATIENCE_SECONDS)
    if process.returncode not in (0, 4):
        raise MachineError(f"{name} ended with status {process.returncode}: {said.strip()[-300:]}")
    return str(printed)


def require_seen(folder: Path, told: dict[str, str]) -> None:
    """Refuse a watched run that an instrument did not see, because that instrument would have cost nothing."""
    seen = {
        "TCP's log": int(json.loads(told["TCP's log"])["records"]),
        "the probes": read_table(folder / "udp", "probes", columns=["block"]).frame.height,
        "the near tap": captured(told["the near tap"]),
        "the far tap": captured(told["the far tap"]),
    }
    blind = [name for name, count in seen.items() if not count]
    if blind:
        raise MachineError(f"{', '.join(blind)} saw nothing of the flow")


def captured(printed: str) -> int:
    """Return the number of frames that a tap reports as captured."""
    return sum(int(one["account"]["accepted"]) for one in json.loads(printed)["taps"])


# --- the flow and what measures it ------------------------------------------------------------------------------------


def loaded(lab: Lab, folder: Path) -> Sample:
    """Measure round trips on the idle path, then during 12 s of the flow, and the flow's goodput."""
    idle = trips(lab, folder / "idle", loads.IDLE_SECONDS)
    instrument, to = find_instrument(), f"{lab.far.address}:{loads.TCP_PORT}"
    lasts = loads.START_UP_SECONDS + loads.WORKING_SECONDS + loads.SPARE_SECONDS
    (folder / "flow").mkdir()
    receiver = lab.far.popen([instrument, "tcp", "receive", to], stdout=subprocess.DEVNULL)
    send = [instrument, "tcp", "send", to, "--for", f"{lasts}s", "--congestion", "cubic", "--read-every", "100ms"]
    try:
        lab.far.wait_for_port(loads.TCP_PORT)
        sender = lab.near.popen([*send, "--record", str(folder / "flow")], stdout=subprocess.DEVNULL)
        try:
            time.sleep(loads.START_UP_SECONDS)
            working = trips(lab, folder / "working", loads.WORKING_SECONDS)
            if sender.wait(loads.PATIENCE_SECONDS) != 0:
                raise MachineError(f"our sender ended with status {sender.returncode}")
        finally:
            loads.ended(sender)
    finally:
        loads.ended(receiver)
    return {
        "goodput_bps": loads.goodput_bps(folder / "flow"),
        "idle_ns": float(np.median(idle)),
        "working_ns": float(np.median(working)),
        "working_p95_ns": float(np.quantile(working, 0.95)),
    }


def shape(seconds: int) -> list[str]:
    """Return the arguments for probes over this many seconds; between probes they sleep."""
    count = str(seconds * 1000 // loads.INTERVAL_MS)
    return ["-i", f"{loads.INTERVAL_MS}ms", "-c", count, "--timeout", f"{loads.TIMEOUT_MS}ms", "--wait", "sleep"]


def trips(lab: Lab, records: Path, seconds: int) -> list[float]:
    """Return the round trips of ICMP in ns, by the best time stamps available."""
    records.mkdir()
    argv = [find_instrument(), "probe", "icmp", lab.far.address, *shape(seconds), "--record", str(records)]
    done = lab.near.run(argv, timeout=loads.PATIENCE_SECONDS, check=False)
    if done.returncode not in (0, 4):
        raise MachineError(f"our probe ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
    return list(Ours(read_table(records, "probes").frame, float(seconds), 0).rtt_ns("best"))
