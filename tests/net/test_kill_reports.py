"""SIGKILL at random moments of what is made of a run: `report`, `compare`, `export`, `dataset`; and of `new`.

What was recorded stays as it was; a report that was there is the old one or the new one, never a part of both; the next
call gives what it gives undisturbed, and removes the drafts of folders that a killed one left beside their places.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import time
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.children import Child
from tests.net.busy_machine import await_that
from tests.net.tcplog_bed import MAIN
from tests.net.test_kill_readers import KILLS, content, moments, session_of
from tests.unit.made_up_taps import Box, write_taps

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[1] / "golden"
ASKED = ("plan.toml", "bed.json", "log.jsonl", "records")
"""What a run folder has that nothing may be changed of."""
DRAFTS = (".analysis.", ".tables.", ".figures.")


def argv(*words: object) -> list[str]:
    return [sys.executable, "-c", MAIN, *map(str, words)]


def ran(*words: object) -> tuple[str, float]:
    """What a command prints when nobody kills it, and how long it takes."""
    began = time.monotonic()
    done = subprocess.run(argv(*words), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, time.monotonic() - began


def killed(moment: random.Random, took: float, *words: object) -> bool:
    """Kill a command before its end; whether it was at work still. No process of it is left."""
    with Child(
        argv(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        time.sleep(moment.uniform(0, took))
        was_at_work = process.poll() is None
        process.kill()
        _, said = process.communicate(timeout=60)
    assert was_at_work or process.returncode == 0, said
    await_that(lambda: not session_of(process.pid), f"no process of {words[0]} is left")
    return was_at_work


def unpacked(into: Path) -> Path:
    with tarfile.open(GOLDEN / "bridge-latency.tar.xz") as archive:
        archive.extractall(into, filter="data")
    return into / "bridge-latency"


def recorded(run: Path) -> dict[str, bytes]:
    return {name: octets for name, octets in content(run).items() if name.split("/")[0] in ASKED}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A run with its report, and how long that takes."""
    run = unpacked(tmp_path_factory.mktemp("reported"))
    ran("report", run)  # and the JavaScript is in the cache
    return run, ran("report", run)[1]


@KILLS
def test_killed_report_leaves_the_previous_or_the_new_one(
    kills: int, reported: tuple[Path, float], tmp_path: Path, proven: Callable[..., None]
) -> None:
    whole, took = reported
    made = {name: octets for name, octets in content(whole).items() if name.split("/")[0] in {"analysis", "report"}}
    random_moments, at_work, left = moments(), 0, 0
    for number in range(kills):
        run = tmp_path / str(number) / whole.name  # which the report says
        if number % 4:
            shutil.copytree(whole, run)
            for file in run.glob("analysis/**/*.*"):
                file.write_bytes(file.read_bytes() + b"\n")  # the old ones can be told from the new ones
            for file in run.glob("report/**/*.*"):
                file.write_bytes(file.read_bytes() + b"\n")
        else:
            unpacked(run.parent)
        before = content(run)
        at_work += killed(random_moments, took, "report", run)
        assert recorded(run) == recorded(whole)
        after = {name: octets for name, octets in content(run).items() if not name_of_draft(name)}
        left += len(content(run)) > len(after)
        assert after.keys() <= before.keys() | made.keys(), "nothing has another name"
        for folder in ("analysis", "report/tables"):
            own, old, new = (below(folder, of) for of in (after, before, made))
            assert own in (old, new), f"{folder} is whole"
        index = "report/index.html"
        assert after.get(index) in (before.get(index), made[index])
        ran("report", run)
        assert content(run) == content(whole), "and the next one leaves nothing else"
    print(f"{at_work} of {kills} were killed at work, {left} of them left a draft, which the next one removed")
    proven("kills", "`sojourn report`", kills=kills)


def name_of_draft(name: str) -> bool:
    return any(part.startswith(DRAFTS) for part in name.split("/"))


def below(folder: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: octets for name, octets in files.items() if name.startswith(f"{folder}/")}


@KILLS
def test_a_killed_comparison_leaves_both_runs(
    kills: int, reported: tuple[Path, float], tmp_path: Path, proven: Callable[..., None]
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for run in (one, other):
        shutil.copytree(reported[0], run)
    said = ran("compare", one, other, "--json")[0]
    took = ran("compare", one, other, "--json")[1]  # the first reads what is not in memory yet
    before, random_moments = content(tmp_path), moments()
    at_work = sum(killed(random_moments, took, "compare", one, other, "--json") for _ in range(kills))
    assert content(tmp_path) == before
    assert ran("compare", one, other, "--json")[0] == said
    print(f"{at_work} of {kills} were killed at work")
    proven("kills", "`sojourn compare`", kills=kills)


@KILLS
@pytest.mark.parametrize("form", ["prometheus", "hdr", "latex"])
def test_killed_export_leaves_the_previous_or_the_new_file(
    form: str, kills: int, reported: tuple[Path, float], tmp_path: Path, proven: Callable[..., None]
) -> None:
    file = tmp_path / "out"
    words = ("export", reported[0], "--to", form, "-o", file, "--force")
    took = min(ran(*words)[1] for _ in range(2))
    new, old, run = file.read_bytes(), b"before", content(reported[0])
    random_moments, at_work = moments(), 0
    for _ in range(max(1, kills // 3)):
        file.write_bytes(old)
        at_work += killed(random_moments, took, *words)
        assert file.read_bytes() in (old, new)
        assert [path.name for path in tmp_path.iterdir()] == ["out"], "no draft is left"
        assert content(reported[0]) == run
        ran(*words)
        assert file.read_bytes() == new
    print(f"{at_work} of {kills} were killed at work")
    proven("kills", "`sojourn export`", kills=max(1, kills // 3))


@KILLS
def test_killed_dataset_command_adds_all_or_nothing(kills: int, tmp_path: Path, proven: Callable[..., None]) -> None:
    records = tmp_path / "records"
    records.mkdir()
    write_taps(Box(packets=200_000), records, parts=3)
    took = ran("dataset", records, "-o", tmp_path / "whole", "--run", "one")[1]
    whole, before = content(tmp_path / "whole"), content(records)
    assert whole
    random_moments, at_work, left = moments(), 0, 0
    for number in range(kills):
        data = tmp_path / f"data-{number}"
        words = ("dataset", records, "-o", data, "--run", "one")
        at_work += killed(random_moments, took, *words)
        assert content(records) == before
        there = content(data) if data.exists() else {}
        assert there in ({}, whole), "all taps of it, or none"
        left += (tmp_path / f".data-{number}.part").exists()
        if not there:
            ran(*words)
        assert content(data) == whole
        assert not (tmp_path / f".data-{number}.part").exists() or there
    print(f"{at_work} of {kills} were killed at work, {left} of them left a draft")
    proven("kills", "`sojourn dataset`", kills=kills)


@KILLS
def test_a_killed_new_leaves_whole_files_alone(kills: int, tmp_path: Path, proven: Callable[..., None]) -> None:
    """Into a folder that was not there; `new` refuses one that is."""
    random_moments, at_work = moments(), 0
    with chdir(tmp_path):
        ran("new", "method", "whole")
        shutil.rmtree("whole")
        took = ran("new", "method", "whole")[1]
        made = content(tmp_path / "whole")
        for _ in range(kills):
            shutil.rmtree("whole")
            at_work += killed(random_moments, took, "new", "method", "whole")
            left = content(tmp_path / "whole") if Path("whole").exists() else {}
            assert left.items() <= made.items()
            shutil.rmtree("whole", ignore_errors=True)
            ran("new", "method", "whole")
            assert content(tmp_path / "whole") == made
    print(f"{at_work} of {kills} were killed at work")
    proven("kills", "`sojourn new`", kills=kills)
