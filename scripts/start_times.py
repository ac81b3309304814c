"""Prints how long commands take to start, as the table of docs/guide/install.md: the median of some runs of each.

`.venv/bin/python -m scripts.start_times` as root, on a machine that does nothing else. Each command is run once before,
so that its files are in memory. Commands of the log of TCP are given a log with one flow, and one that runs. Writes
nothing but logs in a folder that is gone afterwards.
"""

from __future__ import annotations

import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BIN = Path(sys.executable).parent
RUNS = 20
PATIENCE_SECONDS = 30
FLOW = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
    other, _ = server.accept()
    one.sendall(bytes(100_000))
    while len(other.recv(200_000, socket.MSG_PEEK)) < 100_000: pass
"""
OWN = "sojourn-instrument probe icmp 127.0.0.1 --count 1"
"""The start of the instrument itself, which is the least that the machine needs to start a command."""

COMMANDS = {
    'python -c ""': [sys.executable, "-c", ""],
    'python -c "import sojourn"': [sys.executable, "-c", "import sojourn"],
    "sojourn --help": ["sojourn", "--help"],
    "sojourn run --help": ["sojourn", "run", "--help"],
    "sojourn probe icmp 127.0.0.1 --count 1": ["sojourn", "probe", "icmp", "127.0.0.1", "--count", "1"],
    OWN: OWN.split(),
    "sojourn tcplog run --out OUT -- true": ["sojourn", "tcplog", "run", "--out", "new-{run}", "--", "true"],
    "sojourn tcplog top OUT --once": ["sojourn", "tcplog", "top", "running", "--once"],
    "sojourn tcplog plot OUT -o OUT.png": ["sojourn", "tcplog", "plot", "ended", "-o", "{run}.png"],
}


def main() -> int:
    """Print the table and the machine."""
    print(f"| command | median of {RUNS} | range |\n|---|---|---|")
    for name, took in times(RUNS).items():
        print(f"| `{name}` | {statistics.median(took):.3f} s | {took[0]:.3f}–{took[-1]:.3f} s |")
    print(f"\n{processor()}, {os.cpu_count()} processors, {platform.release()}, Python {platform.python_version()}")
    return 0


def times(runs: int) -> dict[str, list[float]]:
    """Time each command and return the times ascending. The commands alternate, so other load affects all alike."""
    took: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with logs() as folder:
        for run in range(-1, runs):
            for name, command in COMMANDS.items():
                first, *words = (word.format(run=run) for word in command)
                lasted = seconds([str(BIN / first), *words], folder)
                took[name] += [lasted] if run >= 0 else []
    return {name: sorted(each) for name, each in took.items()}


@contextmanager
def logs() -> Iterator[Path]:
    """Yield a folder with one log that has ended and one that is being written, both with a flow."""
    log = [str(BIN / "sojourn"), "tcplog", "run", "--out"]
    with tempfile.TemporaryDirectory(prefix="sojourn-start-") as name:
        folder = Path(name)
        seconds([*log, "ended", "--", sys.executable, "-c", FLOW], folder)
        running = subprocess.Popen([*log, "running"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not (folder / "running" / "control.sock").exists():
                if running.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("sojourn tcplog run did not begin: it needs root")
                time.sleep(0.01)
            seconds([sys.executable, "-c", FLOW], folder)
            yield folder
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(PATIENCE_SECONDS)


def seconds(command: list[str], folder: Path) -> float:
    """Return the time from a command's start to its end."""
    began = time.perf_counter()
    done = subprocess.run(command, check=False, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode().strip()}")
    return took


def processor() -> str:
    """Return the processor's model name from the kernel."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
