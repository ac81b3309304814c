"""One emulated path under a flow of TCP, measured by ours and by iperf3, irtt and fping in turn: do medians agree?

Each repetition has both sides once, in random order, over the same path. A side probes the idle path, then sends, and
probes again when the flow's start-up is over. Goodput is of the same seconds as the round trips. Ours are read at the
peers' own timestamp points: irtt's are calls of its own, fping's the call before and the kernel's stamp behind.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import sojourn
from bench.compare import Row, What, ratio
from bench.ours import PORT, Ours
from sojourn.errors import MachineError
from sojourn.instruments import find_instrument
from sojourn.records import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sojourn.labs.lab import Lab

PIPE = "rate 50Mbit/s delay 10ms queue 125"
"""A bandwidth-delay product of 83 frames; the queue holds one and a half times that, 30 ms."""

TASK = f"one flow of CUBIC over an emulated path ({PIPE})"
IDLE_SECONDS, START_UP_SECONDS, WORKING_SECONDS = 2, 3, 12
SPARE_SECONDS = 1
"""The time by which the flow outlasts its probes."""

INTERVAL_MS = 10
TIMEOUT_MS = 3_000
TCP_PORT, IRTT_PORT = 5201, 2112
PATIENCE_SECONDS = 60

Sample = dict[str, float]
Trips = dict[str, list[float]]
"""Round trips in ns, by their probe: `udp` and `icmp`."""


class Figure(NamedTuple):
    """A line of the table: a key of the samples, the peer that has it too, and its name."""

    key: str
    peer: str
    name: str
    unit: str


FIGURES = (
    Figure("goodput_bps", "iperf3", "goodput", "bit/s"),
    Figure("idle_udp_ns", "irtt", "median RTT, idle", "ns"),
    Figure("working_udp_ns", "irtt", "median RTT under load", "ns"),
    Figure("working_udp_p95_ns", "irtt", "95th percentile under load", "ns"),
    Figure("idle_icmp_ns", "fping", "median RTT, idle", "ns"),
    Figure("working_icmp_ns", "fping", "median RTT under load", "ns"),
    Figure("working_icmp_p95_ns", "fping", "95th percentile under load", "ns"),
)


def rows(repetitions: int, seed: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """The lines of the table."""
    pairs = measured(repetitions, seed, scratch, tell)
    return [
        ratio(What(TASK, one.peer, one.name, one.unit), [(a[one.key], b[one.key]) for a, b in pairs], None)
        for one in FIGURES
    ]


def measured(
    repetitions: int, seed: int, scratch: Path, tell: Callable[[str], None], keep: Path | None = None
) -> list[tuple[Sample, Sample]]:
    """Return ours and theirs of each repetition; `keep` gets the peers' own files of the last one."""
    missing = [tool for tool in ("iperf3", "irtt", "fping") if shutil.which(tool) is None]
    if missing:
        raise MachineError(f"not installed: {', '.join(missing)}: scripts/setup.sh bench installs them")
    sides: dict[str, Callable[[Lab, Path], Sample]] = {"ours": ours, "theirs": theirs}
    order, pairs = random.Random(seed), []
    with sojourn.lab(forward=PIPE, backward=PIPE, seed=seed) as lab, ExitStack() as stack:
        for _ in serving(lab, stack):
            pass
        for number in range(1, repetitions + 1):
            found = {}
            for side in order.sample(list(sides), 2):
                tell(f"loads: repetition {number}/{repetitions}: {side}")
                folder = scratch / side
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                found[side] = sides[side](lab, folder)
                time.sleep(0.5)
            pairs.append((found["ours"], found["theirs"]))
    if keep is not None:
        shutil.copytree(scratch / "theirs", keep, dirs_exist_ok=True)
    return pairs


def serving(lab: Lab, stack: ExitStack) -> Iterator[int]:
    """Start the far end's answering programs one after another; they end with the laboratory."""
    for port, argv in (
        (PORT, [find_instrument(), "probe", "respond", "--udp", str(PORT), "--bind", lab.far.address]),
        (IRTT_PORT, ["irtt", "server", "-i", "0", "-b", f"{lab.far.address}:{IRTT_PORT}"]),
    ):
        process = lab.far.popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(ended, process)
        lab.far.wait_for_port(port, unless=lambda process=process: process.poll() is not None)  # type: ignore[misc]
        if process.poll() is not None:
            raise MachineError(f"'{' '.join(argv)}' does not start")
        yield port


def ended(process: subprocess.Popen[Any]) -> None:
    """Stop a program and wait for its end."""
    with suppress(ProcessLookupError):
        process.terminate()
    process.wait(PATIENCE_SECONDS)


def side_by_side(lab: Lab, several: dict[str, list[str]]) -> dict[str, str]:
    """Run programs at the near end at the same time; return the output of each."""
    started = {
        name: lab.near.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name, argv in several.items()
    }
    printed = {name: process.communicate(timeout=PATIENCE_SECONDS)[0] for name, process in started.items()}
    for name, process in started.items():
        if process.returncode != 0:
            raise MachineError(f"{name} ended with status {process.returncode}: {printed[name].strip()[-300:]}")
    return printed


def of_trips(idle: Trips, working: Trips) -> Sample:
    """The figures of round trips."""
    found = {}
    for kind in ("udp", "icmp"):
        found[f"idle_{kind}_ns"] = float(np.median(idle[kind]))
        found[f"working_{kind}_ns"] = float(np.median(working[kind]))
        found[f"working_{kind}_p95_ns"] = float(np.quantile(working[kind], 0.95))
    return found


# --- ours ------------------------------------------------------------------------------------------------------------


def ours(lab: Lab, folder: Path) -> Sample:
    """`sojourn tcp` with our probes."""
    idle = our_trips(lab, folder / "idle", IDLE_SECONDS)
    to, instrument = f"{lab.far.address}:{TCP_PORT}", find_instrument()
    lasts = START_UP_SECONDS + WORKING_SECONDS + SPARE_SECONDS
    (folder / "flow").mkdir()
    with (
        lab.far.popen([instrument, "tcp", "receive", to], stdout=subprocess.DEVNULL) as receiver,
        ExitStack() as stack,
    ):
        stack.callback(ended, receiver)
        lab.far.wait_for_port(TCP_PORT)
        send = [instrument, "tcp", "send", to, "--for", f"{lasts}s", "--congestion", "cubic", "--read-every", "100ms"]
        with lab.near.popen([*send, "--record", str(folder / "flow")], stdout=subprocess.DEVNULL) as sender:
            stack.callback(ended, sender)
            time.sleep(START_UP_SECONDS)
            working = our_trips(lab, folder / "working", WORKING_SECONDS)
            if sender.wait(PATIENCE_SECONDS) != 0:
                raise MachineError(f"our sender ended with status {sender.returncode}")
    return {"goodput_bps": goodput_bps(folder / "flow"), **of_trips(idle, working)}


def our_trips(lab: Lab, records: Path, seconds: int) -> Trips:
    """Send probes over UDP and ICMP at the same time, read at the peers' timestamp points."""
    shape = ["-i", f"{INTERVAL_MS}ms", "-c", str(seconds * 1000 // INTERVAL_MS), "--timeout", f"{TIMEOUT_MS}ms"]
    shape += ["--wait", "sleep"]  # as irtt and fping do: what spins takes the emulator's processor on a machine of two
    to = {"udp": f"{lab.far.address}:{PORT}", "icmp": lab.far.address}
    for kind in to:
        (records / kind).mkdir(parents=True)
    side_by_side(lab, {
        kind: [find_instrument(), "probe", kind, where, *shape, "--record", str(records / kind)]
        for kind, where in to.items()
    })  # fmt: skip
    frames = {kind: Ours(read_table(records / kind, "probes").frame, float(seconds), 0) for kind in to}
    return {"udp": list(frames["udp"].rtt_ns("user")), "icmp": list(frames["icmp"].rtt_ns("ping"))}


def goodput_bps(records: Path) -> float:
    """Return the rate of acknowledged user data in the working seconds."""
    read = read_table(records, "tcp_readings").frame.drop_nulls("acked_bytes").sort("read_after_ns")
    at, acked = (read[name].to_numpy().astype(np.float64) for name in ("read_after_ns", "acked_bytes"))
    start = at[0] + START_UP_SECONDS * 1e9
    first, last = np.interp([start, start + WORKING_SECONDS * 1e9], at, acked)
    return float(8 * (last - first) / WORKING_SECONDS)


# --- theirs ----------------------------------------------------------------------------------------------------------


def theirs(lab: Lab, folder: Path) -> Sample:
    """Run iperf3 with irtt and fping beside it; their files stay in the folder."""
    idle = their_trips(lab, folder / "idle.json", IDLE_SECONDS)
    serve = ["iperf3", "-s", "-1", "-B", lab.far.address, "-p", str(TCP_PORT)]
    with lab.far.popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server, ExitStack() as stack:
        stack.callback(ended, server)
        lab.far.wait_for_port(TCP_PORT)
        client = ["iperf3", "-c", lab.far.address, "-p", str(TCP_PORT), "-C", "cubic", "-J", "--get-server-output"]
        client += ["-O", str(START_UP_SECONDS), "-t", str(WORKING_SECONDS)]
        with (folder / "iperf3.json").open("w") as out, lab.near.popen(client, stdout=out) as sender:
            stack.callback(ended, sender)
            time.sleep(START_UP_SECONDS)
            working = their_trips(lab, folder / "irtt.json", WORKING_SECONDS)
            if sender.wait(PATIENCE_SECONDS) != 0:
                raise MachineError(f"iperf3 ended with status {sender.returncode}")
    told = json.loads((folder / "iperf3.json").read_text())
    return {"goodput_bps": float(told["end"]["sum_received"]["bits_per_second"]), **of_trips(idle, working)}


def their_trips(lab: Lab, file: Path, seconds: int) -> Trips:
    """Run irtt over UDP and fping over ICMP at the same time."""
    count = seconds * 1000 // INTERVAL_MS
    irtt = ["irtt", "client", "-Q", "-i", f"{INTERVAL_MS}ms", "-d", f"{seconds}s", f"--wait={TIMEOUT_MS}ms"]
    fping = ["fping", "-q", "-C", str(count), "-p", str(INTERVAL_MS), "-t", str(TIMEOUT_MS), lab.far.address]
    printed = side_by_side(lab, {
        "irtt": [*irtt, "-o", str(file), f"{lab.far.address}:{IRTT_PORT}"],
        "fping": fping,
    })  # fmt: skip
    return {"udp": trips_of_irtt(json.loads(file.read_text())), "icmp": trips_of_fping(printed["fping"])}


def trips_of_irtt(told: dict[str, Any]) -> list[float]:
    """Return the round trips in a file of irtt, without the server's processing time, which irtt subtracts."""
    found = [one["delay"]["rtt"] for one in told["round_trips"] if one["lost"] == "false"]
    if not found:
        raise MachineError("irtt got no answer")
    return [float(one) for one in found]


def trips_of_fping(printed: str) -> list[float]:
    """The round trips of `fping -C`, which prints three digits of a millisecond: "10.0.0.2 : 20.1 - 20.3"."""
    _, _, values = printed.strip().rpartition("\n")[2].partition(" : ")
    found = [float(one) * 1e6 for one in values.split() if one != "-"]
    if not found:
        raise MachineError(f"fping got no answer: {printed.strip()[-200:]}")
    return found
