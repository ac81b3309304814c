"""SIGKILL at random moments of building, measuring and removing, five or fifty: within two seconds, nothing is left.

At one moment in ten it may take longer, for others may have the machine. A killed `bed clean` is completed by the next.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sojourn
from sojourn.bed import BedSpec, build_bed, cgroups
from sojourn.bed.clean import marked_processes
from sojourn.bed.state import Mark, Process, boot_id, pid_namespace, state_folder
from sojourn.errors import MachineError
from tests.children import Child
from tests.net.tcplog_bed import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

KILLS = pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.proof)])
KILLS_WITHOUT_ROOT = pytest.mark.parametrize("kills", [3, pytest.param(8, marks=pytest.mark.proof)])
KILLS_OF_CLEAN = pytest.mark.parametrize("kills", [1, pytest.param(15, marks=pytest.mark.proof)])
LIMIT_S = 2.0
BUSY_LIMIT_S = 20.0
"""On a machine that others keep busy, one in ten may take so long."""
PACKAGE = Path(sojourn.__file__).parent.parent

# Builds, measures for a moment and removes, again and again.
CONTROLLER = textwrap.dedent("""
    import subprocess, sys, time
    from sojourn.bed import BedSpec, build_bed
    print("begun", flush=True)
    ends = dict(near=3, far=2, bypass=True, rate_bps=100_000_000)
    while True:
        with build_bed(BedSpec(devices=("wire", "bridge*2"), device_cpu="loaded:5%", **ends), sys.argv[1]) as bed:
            bed.backend.start("b", ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 0.01; done"])
            bed.backend.start("d", ["sh", "-c", "sleep 100; true"], stdin=subprocess.PIPE)
            bed.backend.run("a", ["ping", "-q", "-c", "20", "-i", "0.005", "10.77.3.2"])
            for stubborn in bed.backend._started:
                stubborn.kill()
""")


@KILLS
@pytest.mark.alone  # it compares the links and namespaces of the whole machine
def test_killed_bed_processes_leave_nothing(kills: int, proven: Callable[..., None]) -> None:
    seed = int(os.environ.get("SOJOURN_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    moments = random.Random(seed)
    before = links(), namespaces(), set(state_files())
    took_s = sorted(kill_after(moments.uniform(0, 0.6)) for _ in range(kills))
    after = links(), namespaces(), set(state_files())
    print(f"slowest to be gone: {took_s[-1]:.3f} s")
    assert took_s[(kills - 1) * 9 // 10] < LIMIT_S, took_s
    assert not {link for link in after[0] - before[0] if link[:2] in ("a-", "b-", "d-")}
    assert not after[1] - before[1]
    assert not {path for path in after[2] - before[2] if "kill-" in path.name}
    proven("kills", "who builds and removes a bed", kills=kills)


@KILLS_WITHOUT_ROOT
def test_killed_bed_processes_without_root_leave_nothing(kills: int, proven: Callable[..., None]) -> None:
    if os.geteuid() != 0:
        pytest.skip("without root, the other test is this one")
    user = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--"]
    check = [*user, "/usr/bin/python3", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import sojourn.bed"]
    if subprocess.run([*check, str(PACKAGE)], capture_output=True, check=False).returncode != 0:
        pytest.skip("the user nobody cannot run this package with /usr/bin/python3")
    seed = int(os.environ.get("SOJOURN_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    moments = random.Random(seed)
    for _ in range(kills):
        kill_after(moments.uniform(0, 0.6), [*user, "/usr/bin/python3"], {"HOME": "/nonexistent"})
    proven("kills", "who builds and removes a bed without root", kills=kills)


@KILLS_OF_CLEAN
@pytest.mark.alone  # it ends what other tests have left behind on purpose
def test_a_killed_clean_is_completed_by_the_next_and_leaves_live_runs(kills: int, proven: Callable[..., None]) -> None:
    seed = int(os.environ.get("SOJOURN_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    moments, at_work = random.Random(seed), 0
    cleaning = [sys.executable, "-c", MAIN, "bed", "clean"]
    for _ in range(2):  # the second finds its files in memory, as those that are killed do
        began = time.monotonic()
        subprocess.run(cleaning, stdout=subprocess.DEVNULL, check=True, timeout=60)
        took = time.monotonic() - began
    run = f"live-{uuid.uuid4().hex[:10]}"
    with build_bed(BedSpec(), run) as live:
        of_live = leftovers(run), [path for path in state_files() if run in path.name]
        assert all(of_live)
        for _ in range(kills):
            with left_behind() as (mark, files, processes):
                with Child(cleaning, stdout=subprocess.DEVNULL) as clean:
                    # One that is not killed waits for processes that ignore SIGTERM, a second.
                    time.sleep(moments.uniform(0, took + 1))
                    at_work += clean.poll() is None
                    clean.kill()
                done = subprocess.run(cleaning, capture_output=True, text=True, check=True, timeout=60)
                assert not [path for path in files if path.exists()], done.stdout
                for process in processes:
                    assert process.wait(30) in {-signal.SIGTERM, -signal.SIGKILL}
                assert leftovers(mark.run) == []
            assert (leftovers(run), [path for path in state_files() if run in path.name]) == of_live
        live.backend.run("a", ["ping", "-q", "-c", "2", "-i", "0.01", "10.77.1.2"])
    print(f"{at_work} of {kills} were killed at work")
    proven("kills", "`sojourn bed clean`", kills=kills)


@contextmanager
def left_behind() -> Iterator[tuple[Mark, list[Path], list[subprocess.Popen[str]]]]:
    """What killed controllers leave at worst: processes, one of which ignores signals, files, control groups."""
    with Child(["sleep", "60"]) as dead:
        mark = Mark(f"kill-{uuid.uuid4().hex[:10]}", Process.of(dead.pid))
        dead.kill()
    held = vars(mark.controller)
    state = state_folder() / f"sojourn-bed-{mark}.json"
    state.write_text(json.dumps({"mark": str(mark), "boot": boot_id(), "pids": pid_namespace(), "holder": held}))
    socket = state.with_name(f"{state.stem}.control.sock")
    socket.touch()
    files = [state, socket]
    with suppress(MachineError):
        cgroups.make(cgroups.folder_of(mark), ["a", "b"])
        files.append(cgroups.folder_of(mark))
    marked = {**os.environ, "SOJOURN_BED": str(mark)}
    stubborn = ["sh", "-c", "trap '' TERM; exec sleep 60"]
    with Child(["sleep", "60"], env=marked) as one, Child(stubborn, env=marked) as other:
        yield mark, files, [one, other]


def kill_after(
    seconds: float, python: Sequence[str] = (sys.executable,), home: Mapping[str, str] | None = None
) -> float:
    """Kills a controller that long after it has begun; gives the time until nothing of it is left."""
    run = f"kill-{uuid.uuid4().hex[:10]}"
    env = {**os.environ, **(home or {}), "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}
    controller = subprocess.Popen([*python, "-c", CONTROLLER, run], stdout=subprocess.PIPE, text=True, env=env)
    assert controller.stdout is not None
    assert controller.stdout.readline() == "begun\n"
    time.sleep(seconds)
    assert controller.poll() is None, "the controller ended by itself"
    controller.kill()
    began = time.monotonic()
    controller.wait()
    controller.stdout.close()
    while left := leftovers(run):
        assert time.monotonic() - began < BUSY_LIMIT_S, f"killed after {seconds:.4f} s, still there: {left}"
        time.sleep(0.01)
    return time.monotonic() - began


def leftovers(run: str) -> list[str]:
    """Processes that carry the run's mark; with the last of them, its namespaces go."""
    return [f"process {describe(process)}" for process, mark in marked_processes() if mark.run == run]


def describe(process: Process) -> str:
    try:
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        command = "(just gone)"
    return f"{process.pid}: {command}"


def links() -> set[str]:
    listed = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True).stdout
    return {link["ifname"] for link in json.loads(listed)}


def namespaces() -> set[str]:
    """The network namespaces that any process is in, or holds open."""
    found = set()
    for pattern in ("[0-9]*/ns/net", "[0-9]*/fd/*"):
        for path in Path("/proc").glob(pattern):
            with suppress(OSError):
                found.add(str(path.readlink()))
    return {name for name in found if name.startswith("net:")}


def state_files() -> list[Path]:
    return list(state_folder().glob("*"))
