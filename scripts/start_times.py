"""Prints how long commands take to start, as the table of docs/guide/install.md: the median of some runs of each.

`.venv/bin/python -m scripts.start_times`, on a machine that does nothing else. Each command is run once before, so that
its files are in memory. Writes nothing.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent
RUNS = 20
COMMANDS = {
    'python -c ""': [sys.executable, "-c", ""],
    'python -c "import sojourn"': [sys.executable, "-c", "import sojourn"],
    "sojourn --help": [str(BIN / "sojourn"), "--help"],
    "sojourn run --help": [str(BIN / "sojourn"), "run", "--help"],
    "sojourn probe icmp 127.0.0.1 --count 1": [str(BIN / "sojourn"), "probe", "icmp", "127.0.0.1", "--count", "1"],
    "sojourn-instrument probe icmp 127.0.0.1 --count 1": [
        str(BIN / "sojourn-instrument"), "probe", "icmp", "127.0.0.1", "--count", "1",
    ],
}  # fmt: skip


def main() -> int:
    """The table and the machine."""
    print(f"| command | median of {RUNS} | range |\n|---|---|---|")
    for name, command in COMMANDS.items():
        seconds([*command])
        took = sorted(seconds(command) for _ in range(RUNS))
        print(f"| `{name}` | {statistics.median(took):.3f} s | {took[0]:.3f}–{took[-1]:.3f} s |")
    print(f"\n{processor()}, {os.cpu_count()} processors, {platform.release()}, Python {platform.python_version()}")
    return 0


def seconds(command: list[str]) -> float:
    """How long a command took, from its start to its end."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def processor() -> str:
    """The model's name, as the kernel has it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
