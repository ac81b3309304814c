"""The lines that a new user of a bench types, in order and in a shell, between real sshd's: no test helper in between.

The desk has a configuration of OpenSSH that names the hosts, as a user's has. Each line stands here as the guide has
it, but for values that shorten the run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.plan.sizes import ICMP_HEADER
from sojourn.records import RunFolder
from sojourn.records.log import read_log
from sojourn.records.lost import CLOSED, closed_trials, still_lost
from sojourn.records.reader import read_table
from tests.children import Child
from tests.net.busy_machine import await_that, retried, undisturbed
from tests.net.here import entered
from tests.net.real_hosts import SSHD, Hosts
from tests.net.test_real_hosts import LEASE_SECONDS, await_nothing, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
]
CABLES = [("a", "eth1", "b", "eth1"), ("a", "eth2", "br", "eth1"), ("br", "eth2", "b", "eth2")]
SIZES = (64, 1480)
SESSIONS, ROUNDS, PROBES = 4, 40, 28
SHORTER = (
    f" --set icmp_bytes={','.join(map(str, SIZES))} --set interval=250us --set probes_per_block={PROBES}"
    f" --set sessions={SESSIONS} --set rounds={ROUNDS} --set twins=false"
)
RUN = f"sojourn run bridge-latency --bed bed.toml{SHORTER}"
PATHS = 3
"""The direct one, the same against itself, and the bridge."""
BLOCKS = len(SIZES) * ROUNDS * 2 * PATHS


@dataclass
class Desk:
    """Where the lines are typed: a folder, a network from which the hosts are reached, and a configuration of SSH."""

    hosts: Hosts
    pids: list[int] = field(default_factory=list)
    """The processes of the lines."""

    @property
    def folder(self) -> Path:
        return self.hosts.folder / "desk"

    @contextmanager
    def begun(self, line: str) -> Iterator[Child[str]]:
        """A line that is under way; whatever it has begun ends with the block."""
        configured = 'mount -n --bind "$0" /etc/ssh/ssh_config && exec sh -c "exec $1"'
        own = ["unshare", "--mount", "--propagation", "private", "sh", "-c", configured, str(self.hosts.config), line]
        kept = {"SOJOURN_DATA": "data", "XDG_STATE_HOME": "state", "TMPDIR": "tmp"}
        env = os.environ | {name: str(self.hosts.folder / folder) for name, folder in kept.items()}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        argv = self.hosts.command(*own)
        with Child(argv, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                   start_new_session=True) as process:  # fmt: skip
            self.pids.append(process.pid)
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def typed(self, line: str) -> tuple[int, str, str]:
        """The status of a line, and what it prints."""
        with self.begun(line) as process:
            out, err = process.communicate(timeout=600)
        print(f"$ {line}\n{out}{err}[{process.returncode}]")
        return process.returncode, out, err

    def runs(self) -> list[RunFolder]:
        """The runs, the first first."""
        return [RunFolder(path) for path in sorted((self.folder / "runs").glob("*"))]


@dataclass
class Page:
    """What the address that `sojourn watch` printed shows, asked for at the desk."""

    desk: Desk
    address: str

    def read(self, path: str = "") -> str:
        """A page."""
        with (
            entered(Path(f"/proc/{self.desk.hosts.pid('desk')}/ns/net")),
            urllib.request.urlopen(self.address + path, timeout=30) as answer,
        ):
            return str(answer.read().decode())

    def told(self, path: str = "") -> dict[str, Any]:
        """What the script of a page gets first."""
        with (
            entered(Path(f"/proc/{self.desk.hosts.pid('desk')}/ns/net")),
            urllib.request.urlopen(f"{self.address}{path}events", timeout=30) as events,
        ):
            while not (words := events.readline().decode()).startswith("data: "):
                assert words, "the stream has ended"
            told: dict[str, Any] = json.loads(words.removeprefix("data: "))
            return told


@retried
def test_the_lines_of_a_new_user_end_in_a_comparison_of_two_runs(tmp_path: Path) -> None:
    with Hosts(tmp_path / "lab", names=("a", "b", "br"), cables=CABLES) as hosts:
        desk = Desk(hosts)
        for folder in (desk.folder, hosts.folder / "tmp", desk.folder / "runs"):
            folder.mkdir()
        before = settings(hosts)
        assert desk.typed("sojourn bed new a.lab b.lab --device br.lab > bed.toml") == (0, "", "")
        status, said, problems = desk.typed("sojourn bed check bed.toml")
        assert (status, problems) == (0, "")
        assert re.search(r"^This bed can be measured on(\.|; \d+ of \d+ things are limited\.)$", said, re.MULTILINE)
        with desk.begun("sojourn watch runs/") as watching:
            assert watching.stdout is not None
            address = watching.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
            page = Page(desk, address)
            run, had = killed_in_the_middle(desk, page)
            await_nothing(hosts, LEASE_SECONDS)
            resumed(desk, run, had)
            [listed] = page.told()["runs"]
            assert (listed["state"], listed["done"]) == ("finished", listed["total"])
            watching.send_signal(signal.SIGINT)
            assert watching.communicate(timeout=30) == ("", "")
            assert watching.returncode == 0
        status, said, _ = desk.typed(RUN)
        assert status in {0, 4}
        first, second = desk.runs()
        assert first.path == run.path
        with undisturbed():
            compared(desk, first, second)
        await_nothing(hosts, 5)
        assert settings(hosts) == before
        assert left_at_the_desk(desk) == []
        for one in (first, second):
            obeys_physics(one)


def killed_in_the_middle(desk: Desk, page: Page) -> tuple[RunFolder, pl.DataFrame]:
    """Run, look at it while it measures, and kill it when a part is closed; gives the rows of what was closed."""
    with desk.begun(RUN) as running:
        await_that(lambda: bool(desk.runs()), "the run has a folder", 120)
        [run] = desk.runs()
        await_that(lambda: bool(closed(run)), "a part of the run is closed", 240)
        done = len(closed(run))
        await_that(lambda: page.told()["runs"][0]["done"] > done, "the page has what is measured meanwhile")
        [listed] = page.told()["runs"]
        assert (listed["name"], listed["study"], listed["state"]) == (run.path.name, "bridge-latency", "measuring")
        assert listed["done"] < listed["total"] == BLOCKS
        assert run.path.name in page.read(f"{run.path.name}/")
        told = page.told(f"{run.path.name}/")
        assert (told["state"], set(told["paths"])) == ("measuring", {"direct", "a/a", "bridge"})
        for path in told["paths"].values():
            assert 0 < path["middle"]["rtt_p50_ns"] <= path["middle"]["rtt_p99_ns"] < 1e9
            assert path["lost"] <= path["sent"]
        assert running.poll() is None, "it goes on while it is watched"
        running.kill()
        running.communicate()
        assert running.returncode == -signal.SIGKILL
    assert 0 < len(closed(run)) < BLOCKS
    assert page.told()["runs"][0]["state"] == "measuring", "a killed run tells nothing"
    return run, rows_of(run, closed(run))


def resumed(desk: Desk, run: RunFolder, had: pl.DataFrame) -> None:
    """Go on with a killed run to its end: what was closed is as it was, what was not is measured."""
    status, said, _ = desk.typed(f"sojourn run --resume runs/{run.path.name}")
    assert status in {0, 4}
    assert json.loads(run.verdict.read_text())["sentence"] in " ".join(said.split())
    assert f"Report: runs/{run.path.name}/report/index.html" in said
    assert read_log(run.log)[-1]["event"] == "finished"
    assert still_lost(read_log(run.log)) == []
    assert closed(run) == set(range(BLOCKS))
    assert rows_of(run, set(had["block"])).equals(had)


def compared(desk: Desk, first: RunFolder, second: RunFolder) -> None:
    """Compare the runs: on the same bed, with the same plan, nothing is worse."""
    status, said, problems = desk.typed(f"sojourn compare runs/{first.path.name} runs/{second.path.name}")
    assert (status, problems) == (0, "")
    assert "\nplan: no difference\n" in said
    assert re.search(r"^bridge over direct: latency, µs\n +all cells +\S+ +\S+ ", said, re.MULTILINE), said
    for size in SIZES:
        assert len(re.findall(rf"^  {size} B of ICMP ", said, re.MULTILINE)) >= 2, said


def obeys_physics(run: RunFolder) -> None:
    """Hold records and figures to what no bridge, cable or clock can break; nothing is lost on an idle path."""
    probes, blocks = (read_table(run.records, name).frame for name in ("probes", "blocks"))
    assert set(blocks["block"]) == set(range(BLOCKS))
    assert set(blocks["request_payload_bytes"]) == {size - ICMP_HEADER for size in SIZES}
    assert (blocks["received"] + blocks["lost"] == blocks["sent"]).all()
    assert set(blocks["sent"]) == {PROBES}
    answered = probes.filter(pl.col("arrival_ns").is_not_null())
    assert (answered["arrival_ns"] > answered["departure_ns"]).all(), "no answer is there before its question"
    assert (probes["departure_ns"] >= probes["intended_ns"]).all()
    rows = json.loads(run.results.read_text())
    added, control = (latency_of(rows, device) for device in ("bridge", "a/a"))
    assert set(added) == set(control) == set(SIZES)
    for row in (*added.values(), *control.values()):
        assert row["ci_low"] <= row["estimate"] <= row["ci_high"]
    with undisturbed():
        assert blocks["lost"].sum() == 0
        for size in SIZES:
            assert 0 < added[size]["ci_low"] < added[size]["estimate"] < 100_000, "ns that a bridge adds"
            assert abs(control[size]["estimate"]) < added[size]["estimate"], "a cable against itself"


def latency_of(rows: list[dict[str, Any]], device: str) -> dict[int, dict[str, Any]]:
    """The mean latency over the direct path of each size."""
    figure = ("device_latency", "mean", device)
    return {
        row["icmp_bytes"]: row
        for row in rows
        if (row["quantity"], row["statistic"], row["device"]) == figure and row["cell"] is not None
    }


def closed(run: RunFolder) -> set[int]:
    """The blocks that the log has as closed."""
    return {block for entry in read_log(run.log) if entry["event"] == CLOSED for block in closed_trials(entry)}


def rows_of(run: RunFolder, blocks: set[int]) -> pl.DataFrame:
    """Every record of these blocks' probes."""
    return read_table(run.records, "probes").frame.filter(pl.col("block").is_in(blocks)).sort("block", "seq")


def left_at_the_desk(desk: Desk) -> list[str]:
    """What the lines have left there but runs, the history and what `watch` keeps: files, processes."""
    files = [str(path) for path in (desk.hosts.folder / "tmp").iterdir()]
    files += [str(path) for pid in desk.pids for path in Path("/run").glob(f"sojourn-*@{pid}-*")]
    mark = os.fsencode(f"XDG_STATE_HOME={desk.hosts.folder}/state")
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes():
                files.append((process / "cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " "))
    return files
