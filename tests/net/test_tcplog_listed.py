"""`tcplog run` as a person calls it: its flows are listed at its end, signals reach it, and its status is its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.children import Child
from tests.net.busy_machine import PATIENCE_SECONDS, await_that
from tests.net.here import sojourn_here
from tests.net.tcplog_bed import B4, PORT, TRAFFIC, Bed, Log, argv_of, environment, made_bed, sojourn_says
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

NOBODY = 65_534


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        made.serve()
        yield made


def logged(bed: Bed, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A log of some short connections."""
    short = bed.inside("a", sys.executable, TRAFFIC, "short", B4, str(PORT), "30", "4")
    return sojourn_says("tcplog", "run", "--attach", bed.cgroup / "a", *words, "--", *short)


def test_flow_list_at_the_end_equals_that_of_the_summary(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    done = logged(bed, "--out", out)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("flow  port remote"))
    whole = sojourn_here("tcplog", "summary", out).stdout.splitlines()
    flows = Log(out).flows.height
    assert flows == 30
    assert lines[head : head + 18] == whole[:18], "the heading and 17 flows"
    assert len(lines) - head == 20
    assert lines[-2:] == [
        f"13 more flows with fewer bytes: sojourn tcplog summary {out}",
        f"one flow in full: sojourn tcplog summary {out} --flow N",
    ]


def test_json_output_and_an_empty_log_list_no_flows(bed: Bed, tmp_path: Path) -> None:
    done = logged(bed, "--out", tmp_path / "j", "--json")
    assert printed("tcplog-run", done.stdout.splitlines()[-1])["records"] > 0
    assert "remote" not in done.stderr
    done = logged(bed, "--out", tmp_path / "n", "--port", "1")
    assert done.returncode == 0, done.stderr
    assert "remote" not in done.stderr


CALLERS = {
    "sudo": {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY), "SUDO_USER": "nobody", "SUDO_COMMAND": "sojourn"},
    "doas": {"DOAS_USER": "nobody"},
    "pkexec": {"PKEXEC_UID": str(NOBODY)},
}


@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
def test_flows_are_read_as_the_user_that_called_root(bed: Bed, tmp_path: Path, caller: dict[str, str]) -> None:
    """The folder is theirs, and what they may have put there is not read by root."""
    for folder in (tmp_path, *(one for one in tmp_path.parents if "pytest" in str(one))):
        folder.chmod(0o755)  # as many as there are above: side by side there is one more
    mine = tmp_path / "mine"
    mine.mkdir()
    os.chown(mine, NOBODY, NOBODY)
    argv = argv_of("tcplog", "run", "--attach", bed.cgroup, "--out", mine / "t")
    with Child(argv, env=environment(**caller), stderr=subprocess.PIPE, text=True) as process:
        await_that((mine / "t" / "control.sock").exists, "the log goes on")
        bed.short(5, 1)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert process.returncode == 0, said
    assert (mine / "t" / "footer.json").stat().st_uid == NOBODY
    assert "flow  port remote" in said, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_ends_the_log_orderly(bed: Bed, tmp_path: Path, number: signal.Signals) -> None:
    """Also where it cannot be passed on: the instrument sees its parent die."""
    out = tmp_path / "t"
    argv = argv_of("tcplog", "run", "--attach", bed.cgroup, "--out", out, "--", "sleep", "60")
    with Child(argv, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        await_that((out / "control.sock").exists, "the log goes on")
        bed.send(1, 400_000).close()
        process.send_signal(number)
        said = process.communicate(timeout=PATIENCE_SECONDS)[1]
    await_that((out / "footer.json").exists, "the log has its end")
    Log(out).expect_law()
    killed = number == signal.SIGKILL
    assert process.returncode == (-number if killed else 0), said
    assert ("flow  port remote" in said) is not killed, said
