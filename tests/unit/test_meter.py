"""Counters of two hosts, each by its own clock: what is read in one go, and what a slice makes of it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import keeper
from sojourn.bed.backend import FilesRead
from sojourn.bed.backends.local import LocalMachine
from sojourn.bed.backends.ssh import files_of
from sojourn.conduct.meter import Meter, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_NS = 3_600_000_000_000
TAI_NS = 37_000_000_000


def script_says(work: Path, numbers: str, *paths: str) -> str:
    """What the script prints that a host is asked with."""
    argv = ["sh", "-c", keeper.READ, "sh", str(work), numbers, *paths]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_files_of_a_host_are_read_in_one_go_with_its_time_and_the_time_of_its_programs(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"pid.{number}").write_text(f"{os.getpid()}\n")
    (tmp_path / "empty").touch()
    before, used = time.time_ns(), LocalMachine().cpu_ns(os.getpid())
    paths = ("/proc/net/dev", str(tmp_path / "empty"), "/proc/version")
    found = files_of(script_says(tmp_path, "1 2", *paths), 3, TAI_NS)
    assert before < found.at_ns - TAI_NS < time.time_ns()
    assert found.texts[0].splitlines()[0].startswith("Inter-|")
    assert found.texts[1:] == ("", Path("/proc/version").read_text())
    assert 2 * used <= found.cpu_ns <= 2 * LocalMachine().cpu_ns(os.getpid())
    assert files_of(script_says(tmp_path, "", "/proc/version"), 1, 0).cpu_ns == 0


@pytest.mark.parametrize("said", ["", "1\n== next\nfile\n", "1\n== next\nfile\n== next\n2\n== next\n"])
def test_what_is_no_answer_to_that_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        files_of(said, 2, 0)


class TwoHosts:
    """Hosts whose counters grow evenly in true time, asked at times that are not the same."""

    def __init__(self, b_ahead_ns: int) -> None:
        self._ahead = {"a": 0, "b": b_ahead_ns}
        self.asked_s: dict[str, float] = {}

    def run(self, _: str, __: Sequence[str]) -> str:
        """The clock ticks per second."""
        return "100\n"

    def cgroup(self, host: str) -> str:
        """The cgroup of a host."""
        return f"/cgroup/{host}"

    def read(self, host: str, paths: Sequence[str], pids: Sequence[int]) -> FilesRead:
        """B gets 1 GB/s in frames of 1,000 bytes; A is busy for half its time, its programs for 0.3, logs for 0.1."""
        at = self.asked_s[host]
        files = {
            "/cgroup/a/cpu.stat": f"usage_usec {round(at * 3e5)}\n",
            "/cgroup/b/cpu.stat": f"usage_usec {round(at * 2e5)}\n",
            "/proc/stat": f"cpu {round(at * 50)} 0 0 0 0 0 0 0\n",
            "/proc/net/snmp": f"Ip: InReceives\nIp: {round(at * 1e6)}\nTcp: RetransSegs\nTcp: {round(at)}\n",
            "/proc/net/netstat": f"TcpExt: TCPTimeouts\nTcpExt: {round(at)}\n"
            f"IpExt: InOctets\nIpExt: {round(at * 986e6)}\n",
        }
        read = tuple(files[path] for path in paths)
        return FilesRead(round(at * 1e9) + self._ahead[host], read, round(len(pids) * at * 1e8))


@pytest.mark.parametrize("ahead_ns", [0, HOUR_NS, -HOUR_NS])
def test_rates_are_of_each_hosts_own_clock_whenever_it_was_reached(ahead_ns: int) -> None:
    hosts = TwoHosts(ahead_ns)
    bed: Any = SimpleNamespace(backend=hosts)
    meter = Meter.of(bed, {"a": 3, "b": 4})
    hosts.asked_s = {"b": 10.0, "a": 10.4}
    before = meter.read()
    hosts.asked_s = {"b": 18.0, "a": 22.4}
    after = meter.read()
    seconds = (after.at_ns - before.at_ns) / 1e9
    assert seconds == 8
    more = after.since(before)
    assert more["received_bytes"] / seconds == 1e9
    assert more["cpu_busy_s"] / seconds == pytest.approx(0.5)
    assert more["cpu_sender_s"] / seconds == pytest.approx(0.3)
    assert more["cpu_receiver_s"] / seconds == pytest.approx(0.2)
    assert more["logger_cpu_s"] / seconds == pytest.approx(0.2)
    assert more["retransmitted"] == 12, "a count is what A counted between its own readings"


def test_readings_of_one_time_are_differences_alone() -> None:
    before, after = Reading(0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0), Reading(10, 5, 4, 3, 0.3, 0.2, 0.1, 0.05, 2)
    names = ("received_bytes", "frames", "retransmitted", "cpu_busy_s", "cpu_sender_s", "cpu_receiver_s",
             "logger_cpu_s", "timeouts")  # fmt: skip
    assert after.since(before) == dict(zip(names, (5, 4, 3, 0.3, 0.2, 0.1, 0.05, 2), strict=True))
