"""The log of TCP's state between real hosts: in cgroups that the keeper makes, and by the clock of host A alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.bed import cgroups, keeper
from sojourn.errors import MachineError
from sojourn.records import read_table
from tests.cabled import cabled
from tests.children import Child
from tests.net.busy_machine import idle_ends
from tests.net.real_hosts import SOJOURN, SSHD, Hosts
from tests.net.test_real_hosts import LEASE_SECONDS, await_nothing
from tests.net.test_real_hosts_studies import events, run_over_ssh
from tests.unit.made_up_tcp import write_table

if TYPE_CHECKING:
    from collections.abc import Iterator


def no_hierarchy() -> bool:
    """Whether this machine has no cgroups for hosts of tests."""
    try:
        return not os.access(cgroups.unified_root(), os.W_OK)
    except MachineError:
        return True


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
    pytest.mark.skipif(no_hierarchy(), reason="no unified cgroup hierarchy here"),
]
TRUTH = ("truth.congestion=reno", "truth.messages_pipe=delay 2ms", "truth.messages_duration=1500ms",
         "truth.reno_pipe=delay 10ms loss 0.3%", "truth.law_duration=2s",
         "truth.direct_bytes=5000000", "truth.repetitions=1")  # fmt: skip
PERTURBATION = ("bed.sessions=2", "perturbation.rounds=4", "perturbation.duration=600ms", "perturbation.skip=100ms",
                "perturbation.at_most=1h")  # fmt: skip
COST = ("bed.sessions=1", "ppl=1", "flows=1", "where=sender,both", "controls=disabled", "slice=150ms", "grace=10ms",
        "ramp=200ms", "repetitions=2", "at_once=2", "statistics=1", "pause=1ms")  # fmt: skip
HOUR_NS = 3_600_000_000_000
TIMES = ("intended_ns", "read_before_ns", "read_after_ns", "sent_ns")


def sets(several: tuple[str, ...]) -> list[str]:
    """Them as options."""
    return [word for one in several for word in ("--set", one)]


def set_clock_of_b_ahead(run: Path, by_ns: int) -> int:
    """Write the records of host B again as if its clock were ahead; return how many rows there are."""
    rows = read_table(run / "records", "tcp_readings").frame.filter(pl.col("who").str.starts_with("b"))
    later = rows.with_columns([pl.col(name) + by_ns for name in TIMES])
    for (part,), own in later.group_by("part"):
        file = run / "records" / f"tcp_readings-b-{part:03}.arrow"
        assert file.is_file()
        write_table(file, "tcp_readings", own)
    return later.height


def analysed(run: Path) -> list[Any]:
    """The results and findings, made anew."""
    analyse(run)
    verdict = json.loads((run / "analysis/verdict.json").read_text())
    return [json.loads((run / "analysis/results.json").read_text()), verdict["sentence"], verdict["findings"]]


def test_the_log_of_a_real_host_says_what_tcp_info_and_a_capture_there_say(tmp_path: Path) -> None:
    run = run_over_ssh(tmp_path, "tcplog-truth", *sets(TRUTH), *idle_ends())
    ready = [one for one in events(run, "ready") if one.get("host")]
    assert [one["host"] for one in ready] == ["a"]
    trials = events(run, "tcp-trial")
    assert {one["kind"] for one in trials} == {"messages", "law", "direct"}
    assert all(one["logged"]["records"] > 0 and one["logged"]["interruption"] is None for one in trials)
    assert all(one["captured"] > 0 for one in trials)
    agreement = pl.read_parquet(run / "analysis/samples/agreement.parquet").filter(pl.col("kind") == "messages")
    quiet = agreement.filter(pl.col("quiet") > 0)
    assert quiet.height > 10
    assert quiet["quiet"].to_list() == quiet["quiet_agree"].to_list(), quiet
    matched = pl.read_parquet(run / "analysis/samples/witness.parquet")
    assert len(set(matched["cell"])) == len(trials)
    if not any(one["capture_dropped"] for one in trials):
        assert (matched["missing"] <= matched["skipped"]).all(), matched
    before = analysed(run)
    assert set_clock_of_b_ahead(run, HOUR_NS) > 0
    assert analysed(run) == before, "a figure is of the clock of B"


def test_what_a_log_changes_is_found_with_readings_of_host_a_alone(tmp_path: Path) -> None:
    run = run_over_ssh(tmp_path, "tcplog-perturbation", *sets(PERTURBATION), *idle_ends())
    trials = events(run, "tcp-trial")
    assert len(trials) == 2 * 4 * 3 // 2
    with_log = [one for one in trials if one["logged"]]
    assert len(with_log) == len(trials) // 3
    assert all(one["logged"]["records"] > 100 for one in with_log)
    before = analysed(run)
    assert before[0]
    assert set_clock_of_b_ahead(run, HOUR_NS) > 0
    assert analysed(run) == before, "a figure is of the clock of B"


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="no iperf3 here: apt-get install iperf3")
def test_what_a_log_costs_is_of_each_hosts_own_clock(tmp_path: Path) -> None:
    run = run_over_ssh(tmp_path, "tcplog-cost", *sets(COST), *idle_ends())
    rows = read_table(run / "records", "tcp_slices").frame
    seconds = (rows["ended_ns"] - rows["started_ns"]) / 1e9
    assert seconds.min() > 0.15  # type: ignore[operator]
    assert seconds.max() < 120  # type: ignore[operator]  # a busy machine takes seconds for a reading, and no hour
    assert rows["received_bytes"].min() > 100_000  # type: ignore[operator]
    assert rows["cpu_sender_s"].min() > 0  # type: ignore[operator]
    assert rows["cpu_receiver_s"].min() > 0  # type: ignore[operator]
    assert (rows["cpu_sender_s"] < 1.5 * seconds).all()
    logged = rows.filter((pl.col("mode") == "on") & (pl.col("pair") >= 0))
    assert set(logged["where"]) == {"sender", "both"}
    assert logged["logged"].min() > 10  # type: ignore[operator]
    assert logged["logger_cpu_s"].min() > 0  # type: ignore[operator]
    assert rows.filter(pl.col("mode") == "off")["logged"].null_count() > 0
    costs = read_table(run / "records", "tcp_costs").frame
    assert set(costs["host"]) == {"a", "b"}
    assert {one["host"] for one in events(run, "ready") if one.get("host")} == {"a", "b"}
    before = analysed(run)
    [file] = (run / "records").glob("tcp_slices*.arrow")
    write_table(file, "tcp_slices", rows.with_columns(pl.col("started_ns", "ended_ns") + HOUR_NS))
    assert analysed(run) == before, "a figure is of the difference of two clocks"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Hosts with an emulator between them; whatever a test did, nothing is left on any of them."""
    cables, _ = cabled(["emulate"])
    with Hosts(tmp_path / "lab", cables=cables) as hosts:
        yield hosts
        await_nothing(hosts, 5)


def test_the_log_and_its_cgroups_end_when_the_controller_is_killed(hosts: Hosts) -> None:
    _, paths = cabled(["emulate"])
    argv = ["run", "tcplog-perturbation", "--quick", "--no-history", "--no-report", *sets(PERTURBATION), *idle_ends()]
    argv = hosts.command(SOJOURN, *argv, "--bed", str(hosts.bed(paths)), "--out", "run")
    log, end = hosts.folder / "run/log.jsonl", time.monotonic() + 240
    with Child(argv, cwd=hosts.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        while not log.is_file() or '"event": "tcp-trial"' not in log.read_text():
            assert run.poll() is None, run.stderr.read() if run.stderr else ""
            assert time.monotonic() < end
            time.sleep(0.1)
        [bed] = hosts.at("a", "sh", "-c", "ls -d /sys/fs/cgroup/sojourn-*").split()
        assert hosts.at("a", "sh", "-c", f"ls -d {bed}/*/").split() == [f"{bed}/a/", f"{bed}/beside/"]
        assert "\0tcplog\0serve\0" in programs(hosts, f"{bed}/beside")
        own = programs(hosts, f"{bed}/a")
        assert "\0tcp\0" in own
        assert "\0tcplog\0serve\0" not in own
        run.send_signal(signal.SIGKILL)
    await_nothing(hosts, LEASE_SECONDS)


def programs(hosts: Hosts, group: str) -> str:
    """The command lines of a cgroup's programs at host A."""
    script = 'for pid in $(cat "$0/cgroup.procs"); do cat "/proc/$pid/cmdline"; done 2>/dev/null; true'
    return hosts.at("a", "sh", "-c", script, group)


def keeping(hosts: Hosts, work: str) -> Child[str]:
    """A keeper at host A, of a bed whose host has a cgroup."""
    inside = ["nsenter", f"--target={hosts.pid('a')}", "--net", "--mount", "--pid", "--"]
    argv = [*inside, "sh", "-c", keeper.KEEPER, "sh", work, "me", f"/tmp/{work}", "/tmp/tools", "-", "cgroups", "a"]
    return Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ready(child: Any) -> list[str]:
    """What a keeper says first."""
    assert child.stdout is not None
    return str(child.stdout.readline()).split()


def test_the_cgroups_of_a_keeper_that_was_killed_go_with_the_next_bed(hosts: Hosts) -> None:
    with keeping(hosts, "sojourn-one") as first:
        word, number, namespace, groups = ready(first)
        assert (word, groups) == ("ready", "/sys/fs/cgroup/sojourn-one")
        script = f"echo $$ >{groups}/beside/cgroup.procs; exec sleep 300"
        inside = ["nsenter", f"--target={hosts.pid('a')}", "--net", "--mount", "--pid", "--"]
        with Child([*inside, "sh", "-c", script]) as beside:
            while not hosts.at("a", "cat", f"{groups}/beside/cgroup.procs").split():
                assert beside.poll() is None
                time.sleep(0.05)
            hosts.at("a", "kill", "-KILL", number)
            assert first.stdin is not None
            first.stdin.close()
            first.wait(10)
            assert hosts.at("a", "cat", f"/run/sojourn/cgroup.{number}").strip() == groups
            assert hosts.at("a", "cat", f"{groups}/beside/cgroup.procs").split(), "its programs are still there"
            with keeping(hosts, "sojourn-two") as second:
                assert ready(second)[3] == "/sys/fs/cgroup/sojourn-two"
                assert beside.wait(5) == -signal.SIGKILL
                assert "sojourn-one" not in hosts.at("a", "ls", "/sys/fs/cgroup", "/run/sojourn")
                assert second.stdin is not None
                second.stdin.close()
                second.wait(20)
    del namespace
    hosts.at("a", "rm", "-rf", "/tmp/sojourn-one")
    assert "sojourn-" not in hosts.at("a", "ls", "/sys/fs/cgroup")


def test_a_host_without_the_unified_hierarchy_refuses_a_log_by_name(hosts: Hosts) -> None:
    hosts.at("a", "umount", "/sys/fs/cgroup")
    _, paths = cabled(["emulate"])
    argv = ["run", "tcplog-truth", "--quick", "--no-history", "--no-report", *sets(TRUTH), *idle_ends()]
    done = hosts.sojourn(*argv, "--bed", str(hosts.bed(paths)), "--out", "run")
    assert done.returncode == 3
    assert "host A (a.lab) has no cgroup of this bed: no unified hierarchy is mounted there" in done.stderr
    await_nothing(hosts, LEASE_SECONDS)
