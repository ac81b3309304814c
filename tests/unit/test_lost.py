"""Lost blocks: what a log tells of them, what the analysis leaves out, and what it says."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.analysis import analyse
from sojourn.bed import BedSpec, Topology
from sojourn.bed.turns import Turns
from sojourn.conduct.losses import batch_of
from sojourn.conduct.site import Site
from sojourn.errors import MachineError
from sojourn.instruments.conversation import ENDED_HERE
from sojourn.records import read_table
from sojourn.records.lost import (
    begun_trials,
    lost_blocks,
    lost_trials,
    named,
    still_lost,
    without_lost_searches,
)

WHY = "host B (b.lab): the SSH connection was lost"


def lost(part: int, *blocks: int) -> dict[str, Any]:
    trials = [{"block": block, "round": block // 6, "path": "bridge", "cell": 2} for block in blocks]
    return {"event": "lost", "part": part, "why": WHY, "trials": trials}


def closed(part: int, *blocks: int) -> dict[str, Any]:
    return {"event": "closed", "part": part, "trials": list(blocks)}


def test_block_is_lost_until_a_later_part_completes_it() -> None:
    log = [closed(0, 1, 2, 3), lost(0, 7, 8), closed(0, 7), closed(1, 7)]
    assert [(one.block, one.part, one.again) for one in lost_trials(log)] == [(7, 0, True), (8, 0, False)]
    assert [one.block for one in still_lost(log)] == [8]
    again = [*log, lost(1, 7)]
    assert [(one.block, one.part) for one in still_lost(again)] == [(7, 1), (8, 0)]


class Fetching:
    """A backend whose host goes before its records are fetched."""

    is_there = False

    def require_hosts(self) -> None:
        """It answers at the end of the batch."""

    def lost_links(self) -> dict[str, str]:
        return {}

    def gather(self) -> None:
        if not self.is_there:
            raise MachineError(WHY)


def test_lost_block_is_missing_until_later_records_are_fetched() -> None:
    backend, log = Fetching(), [lost(0, 7)]
    bed: Any = SimpleNamespace(backend=backend, turns=Turns(Topology.of(()), BedSpec()))
    site = Site(bed, {})
    session: Any = SimpleNamespace(
        site=site,
        part=SimpleNamespace(number=1),
        since=[],
        log=lambda event, **told: log.append({"event": event, **told}),
    )
    trial: Any = SimpleNamespace(block=7, path="direct")
    with batch_of(session, [trial]) as begin:
        begin(trial)
    with pytest.raises(MachineError):
        site.gather()
    assert [one.block for one in still_lost(log)] == [7]
    backend.is_there = True
    site.gather()
    site.gather()
    assert still_lost(log) == []
    assert [entry["event"] for entry in log] == ["lost", "begun", "closed"]


@pytest.mark.parametrize("consequence", ["nobody listens there", "`sojourn-instrument tcp serve` was ended by SIGKILL"])
def test_killed_program_is_named_before_what_the_others_say_of_it(consequence: str) -> None:
    def start(host: str, argv: list[str], **popen: Any) -> subprocess.Popen[bytes]:
        del host, argv
        return subprocess.Popen(["sleep", "60"], **popen)

    backend: Any = Fetching()
    backend.start = start
    bed: Any = SimpleNamespace(backend=backend, turns=Turns(Topology.of(()), BedSpec()))
    backend.simulated = False
    site = Site(bed, {})
    session: Any = SimpleNamespace(site=site, part=SimpleNamespace(number=1), since=[], log=lambda *_, **__: None)
    other = site.start("a")(["/bin/sojourn-instrument", "probe", "blocks"])
    killed = site.start("b")(["/bin/sojourn-instrument", "tcp", "serve", "--name", "b"])
    gone = site.start("b")(["/bin/sojourn-instrument", "capture"])
    gone.kill()
    gone.wait()
    ours = site.start("b")(["/bin/sojourn-instrument", "capture"])

    def measure() -> None:
        with batch_of(session, []):
            for one in (killed, ours):
                one.kill()
                one.wait()
            ENDED_HERE.add(ours)  # as `Conversation.kill` does in a trial that fails
            raise MachineError(consequence)

    try:
        with pytest.raises(MachineError) as caught:
            measure()
    finally:
        other.kill()
        other.wait()
    said = "`sojourn-instrument tcp serve` on host B was ended by SIGKILL"
    assert str(caught.value) == (said if "SIGKILL" in consequence else f"{said} ({consequence})")


def test_attempts_and_steps_of_lost_trials_are_excluded() -> None:
    """Each has a block of its own."""
    log: list[dict[str, Any]] = [
        {"event": "started", "part": 0},
        {"event": "stream-trial", "block": 7, "trial": 7},
        {"event": "stream-trial", "block": 100, "trial": 7},
        {"event": "stream-trial", "block": 101, "trial": 8},
        {"event": "stream-trial", "block": 102, "trial": None, "search": 9},
        {"event": "search-step", "block": 102, "search": 9},
        {"event": "search-result", "search": 9},
        lost(0, 7, 9),
        {"event": "started", "part": 1},
        {"event": "stream-trial", "block": 103, "trial": 7},
        {"event": "search-result", "search": 9, "again": True},
    ]
    assert lost_blocks(log) == {(7, 0), (9, 0), (100, 0), (102, 0)}
    kept = [entry for entry in without_lost_searches(log) if entry["event"].startswith("search")]
    assert kept == [{"event": "search-result", "search": 9, "again": True}]


def test_each_lost_block_is_listed_with_session_round_path_and_cell() -> None:
    (one,) = lost_trials([lost(3, 13)])
    assert named([one]) == "1 block is lost: session 3, round 2, bridge, cell 2 (block 13)"
    many = named(lost_trials([lost(0, *range(40))]))
    assert many.startswith("40 blocks are lost: session 0, round 0, bridge, cell 2 (block 0); ")
    assert many.endswith("; and 28 more, which log.jsonl names")


def test_the_part_in_which_a_trial_began_last_is_known() -> None:
    log: list[dict[str, Any]] = [
        {"event": "begun", "part": 0, "trial": 4},
        {"event": "begun", "part": 2, "trial": 4},
        {"event": "begun"},
    ]
    assert begun_trials(log) == {4: 2}
    assert begun_trials([*log, {"event": "interrupted"}]) == {}


KEYS = ["event", "part", "trials", "trial", "block", "round", "cell", "path", "why"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


ENTRY = st.dictionaries(
    st.sampled_from(["event", "part", "trials", "trial"]),
    st.sampled_from(["lost", "closed", "begun"]) | JSON,
    max_size=4,
)


@given(st.lists(ENTRY, max_size=5))
def test_arbitrary_log_never_fails(log: list[dict[str, Any]]) -> None:
    for one in still_lost(log):
        assert one.name
    begun_trials(log)
    assert all(0 <= number < 2**31 for pair in lost_blocks(log) for number in pair)
    without_lost_searches(log)


def rtt_row(folder: Path, cell: int) -> dict[str, Any]:
    """The median round trip over the bridge."""
    rows = json.loads((folder / "analysis/results.json").read_text())
    wanted = ("bridge", "rtt", "p50", cell)
    found: dict[str, Any] = next(
        row for row in rows if (row["device"], row["quantity"], row["statistic"], row["cell"]) == wanted
    )
    return found


def test_analysis_excludes_lost_blocks_and_reports_them(tmp_path: Path) -> None:
    with tarfile.open(Path("tests/golden/bridge-latency.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob("plan.toml")).parent
    analyse(folder)
    block = read_table(folder / "records", "blocks").frame.filter(device="bridge").row(0, named=True)
    before = rtt_row(folder, block["cell"])
    trial = {"block": block["block"], "round": block["round"], "path": "bridge", "cell": block["cell"]}
    told = {"event": "lost", "part": block["part"], "why": WHY, "trials": [trial, trial | {"block": 1 << 40}]}
    with (folder / "log.jsonl").open("a") as log:
        log.write(f"{json.dumps(told)}\n")
    assert analyse(folder).verdict == "doubtful"
    now = rtt_row(folder, block["cell"])
    assert now["probes"] == before["probes"] - (block["count"] - block["warmup"])
    assert "blocks_lost" in now["findings"]
    findings = json.loads((folder / "analysis/verdict.json").read_text())["findings"]
    (finding,) = [one for one in findings if one["name"] == "blocks_lost"]
    assert f"round {block['round']}, bridge, cell {block['cell']} (block {block['block']})" in finding["sentence"]
    assert finding["severity"] == "doubtful"


def test_lost_search_marks_every_row_of_its_path(tmp_path: Path) -> None:
    with tarfile.open(Path("tests/golden/rfc2544.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob("plan.toml")).parent
    lost = {"block": 1 << 30, "round": 1, "path": "bridge", "cell": 5}  # a search's cell is no cell of a row
    with (folder / "log.jsonl").open("a") as log:
        log.write(f"{json.dumps({'event': 'lost', 'part': 0, 'why': WHY, 'trials': [lost]})}\n")
    analyse(folder)
    rows = json.loads((folder / "analysis/results.json").read_text())
    marked = {"blocks_lost" in row["findings"] for row in rows if row["device"] == "bridge"}
    assert marked == {True}
    assert {
        "blocks_lost" in row["findings"] for row in rows if {row["device"], row["reference"]} == {"direct", None}
    } <= {False}
