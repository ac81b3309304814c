"""Findings provoked over real frames, each by its own cause, and a clean run that has none that are doubtful.

Those that real frames cannot be made to show here (drift, periods, a clock that steps, …) are provoked over simulated
lines: tests/scenarios and tests/unit/test_analysis.py. Cut records are in test_conduct_net.py and test_bad_input.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.analysis import analyse
from sojourn.bed.clean import marked_processes
from sojourn.conduct import create_folder
from sojourn.conduct import run as conducting
from sojourn.conduct.progress import Screen
from sojourn.conduct.site import Site, open_site
from sojourn.plan import load_plan
from tests.net.busy_machine import sleeping_ends, thrice, undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sojourn.bed import Bed

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
ROOT = Path(__file__).parents[2]

PLAN = """
[study]
name = "provoked"
[bed]
devices = ["wire", "bridge"]
[probe]
probe = ["icmp"]
payload_bytes = [56]
interval = ["1ms"]
timeout = "20ms"
[pairs]
rounds = 12
probes_per_block = 28
warmup_probes = 4
"""

Finding = dict[str, Any]


def findings_of(run: Path) -> dict[str, Finding]:
    """What the analysis found, by name."""
    analyse(run)
    return {one["name"]: one for one in json.loads((run / "analysis/verdict.json").read_text())["findings"]}


def devices(finding: Finding) -> set[str | None]:
    return {place["device"] for place in finding["places"]}


def measure(folder: Path, *sets: str, provoke: Callable[[Bed], None] | None = None) -> dict[str, Finding]:
    """Measure the plan, with something done to the bed once it stands."""

    @contextmanager
    def with_provocation(*asked: Any) -> Iterator[Site]:
        with open_site(*asked) as site:
            if provoke:
                provoke(site.bed)
            yield site

    (folder / "plan.toml").write_text(PLAN)
    plan = load_plan(folder / "plan.toml", sets=list(sets))
    run = create_folder(plan, folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conducting, "open_site", with_provocation)
        conducting.conduct(plan, run, Screen())
    return findings_of(run.path)


PATIENT = ("probe.timeout=2s",)
"""So that no reply is late because the machine was busy."""

QUIET_ONLY = {"sender_late", "tester_limited", "unsteady", "a_a_nonzero", "modes_differ"}
"""What other work on the machine can bring about all by itself."""

CONTENDED = {"contended", "contended_heavily"}


@thrice
def test_undisturbed_run_has_no_doubtful_finding(tmp_path: Path) -> None:
    found = measure(tmp_path, *PATIENT)
    assert not found.keys() & {"loss", "duplication", "late_replies", "reordering", "offload_on", "user_timestamps"}
    bad = {name for name, one in found.items() if one["severity"] != "note"}
    assert not bad - QUIET_ONLY - CONTENDED, found
    with undisturbed():
        assert not bad - (QUIET_ONLY | CONTENDED if CONTENDED & found.keys() else set()), found


def drop_and_double(bed: Bed) -> None:
    """Over the bridge, every eighth request goes to where nobody takes it; over the wire, each is sent on twice."""
    bridge = bed.topology.paths["bridge"].stations[0].left.dev
    bed.backend.run("d", ["tc", "qdisc", "add", "dev", bridge, "clsact"])
    eighth = ["u32", "match", "u8", "0", "0x07", "at", "27"]  # the ICMP sequence number's last bits
    redirect = ["action", "mirred", "egress", "redirect", "dev", "lo"]
    bed.backend.run("d", ["tc", "filter", "add", "dev", bridge, "ingress", "protocol", "ip", *eighth, *redirect])
    wire = bed.topology.paths["wire"].a_dev
    bed.backend.run("a", ["tc", "qdisc", "add", "dev", wire, "clsact"])
    each = ["u32", "match", "u32", "0", "0"]
    mirror = ["action", "mirred", "egress", "mirror", "dev", wire]
    bed.backend.run("a", ["tc", "filter", "add", "dev", wire, "egress", "protocol", "ip", *each, *mirror])


def test_loss_duplication_and_offloads_are_found_at_their_path(tmp_path: Path) -> None:
    sets = ("offloads=true", "probe.timeout=200ms", "rounds=6", *sleeping_ends())
    found = measure(tmp_path, *sets, provoke=drop_and_double)
    assert devices(found["loss"]) == {"bridge"}
    assert 0.03 < found["loss"]["value"] < 0.25
    assert devices(found["duplication"]) == {"wire"}
    assert "offload_on" in found


@contextmanager
def stalling_the_responder() -> Iterator[None]:
    """Now and then, the answering program is stopped for longer than the timeout."""
    over = threading.Event()

    def stall() -> None:
        while not over.wait(0.4):
            for process, mark in marked_processes():
                if mark.controller.pid == os.getpid() and is_responder(process.pid):
                    os.kill(process.pid, signal.SIGSTOP)
                    time.sleep(0.06)
                    os.kill(process.pid, signal.SIGCONT)

    thread = threading.Thread(target=stall)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def is_responder(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"sojourn-instrument") and b"respond" in words


def test_replies_after_the_timeout_are_late_not_lost(tmp_path: Path) -> None:
    few = ("probe.probe=udp/ping-pong", "probes_per_block=120", "rounds=8", "a_a=false", "bed.devices=bridge")
    sets = (*few, *sleeping_ends())
    with stalling_the_responder():
        found = measure(tmp_path, *sets)
    assert "late_replies" in found, found
    assert found["late_replies"]["value"] > 0


BUSY = "import os; os.sched_setaffinity(0, {int(__import__('sys').argv[1])})\nwhile True: pass"


def prober_core(run: Path) -> int:
    entries = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return next(int(entry["cores"]["prober"]) for entry in entries if entry["event"] == "ready")


@pytest.mark.alone  # it is the other work
def test_other_load_on_the_core_of_the_prober_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    core = max(os.sched_getaffinity(0))
    busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(core)]) for _ in range(2)]
    try:
        sets = ["--set", f"prober_cpu={core}", "--set", "fifo=false", "--set", "rounds=4"]
        argv = [SOJOURN, "run", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "run"), "--no-report", *sets]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert done.returncode in {0, 4}, done.stderr
    assert prober_core(tmp_path / "run") == core
    found = {one["name"]: one for one in json.loads((tmp_path / "run/analysis/verdict.json").read_text())["findings"]}
    (name,) = CONTENDED & found.keys()
    assert found[name]["value"] > 0.3


def test_debug_build_of_the_instrument_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debug = ROOT / "target/debug/sojourn-instrument"
    if not debug.is_file():
        pytest.skip("no debug build of the instrument is here")
    monkeypatch.setenv("SOJOURN_INSTRUMENT", str(debug))
    found = measure(tmp_path, "rounds=3", "bed.devices=bridge", "a_a=false")
    assert found["debug_build"]["severity"] == "doubtful"
