"""A calibrated load: keeps one core busy for a given share of the time, in slices of about a millisecond.

Runs as a program of its own, by its path, with only the standard library. It regulates by the CPU time that the kernel
reports, so that time lost to preemption (by a device's packets, for instance) is made up for, within limits. Each line
on standard input is answered by one line of JSON with the achieved load; the end of input ends it.

    python3 -I -S load.py CORE SHARE
"""

from __future__ import annotations

import json
import os
import select
import sys
import time

PERIOD_NS = 1_000_000
LARGEST_DEBT_NS = 2 * PERIOD_NS  # a core that others keep busy gets no more load later


def main() -> None:
    core, share = int(sys.argv[1]), float(sys.argv[2])
    os.sched_setaffinity(0, {core})
    started_ns, cpu_started_ns = time.monotonic_ns(), time.process_time_ns()
    debt_ns = 0.0
    while True:
        debt_ns = _one_slice(share, debt_ns)
        if not select.select([0], [], [], 0)[0]:
            continue
        if not os.read(0, 4096):
            return
        elapsed_ns, cpu_ns = time.monotonic_ns() - started_ns, time.process_time_ns() - cpu_started_ns
        achieved = {"core": core, "asked_share": share, "achieved_share": cpu_ns / elapsed_ns, "elapsed_ns": elapsed_ns}
        print(json.dumps(achieved), flush=True)


def _one_slice(share: float, debt_ns: float) -> float:
    """Sleep a little, then compute until the debt is paid; return the remaining debt in ns."""
    began_ns, cpu_began_ns = time.monotonic_ns(), time.process_time_ns()
    time.sleep(PERIOD_NS * (1 - share) / 1e9)
    while True:
        owed_ns = debt_ns + share * (time.monotonic_ns() - began_ns) - (time.process_time_ns() - cpu_began_ns)
        if owed_ns <= 0:
            return owed_ns
        if time.monotonic_ns() - began_ns > 10 * PERIOD_NS:
            return min(owed_ns, LARGEST_DEBT_NS)


if __name__ == "__main__":
    main()
