"""What a loss of power leaves of a whole run: the order of writes, syncs and renames as the kernel saw them, cut.

`sojourn run --resume` goes on from whatever is left, and loses at most what the log on that disk says is open: a trial
of a batch that is closed there keeps its records, and is not measured again.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from sojourn.conduct import Screen, resume
from sojourn.errors import SojournError
from sojourn.records import RunFolder, read_table
from sojourn.records.log import read_log
from sojourn.records.lost import CLOSED
from tests.unit.in_process import sojourn
from tests.unit.traced_disk import LEFT, Disk, can_trace, traced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import polars as pl

    from tests.unit.traced_disk import Left

MAIN = "import sys; from sojourn.cli import main; sys.argv[0] = 'sojourn'; main()"
WORDS = ("bridge-latency", "--bed", "sim", "--no-report", "--no-history")
SETS = ("pairs.rounds=4", "bed.sessions=2", "probe.payload_bytes=[64]", 'probe.probe=["udp/ping-pong"]')
SOME = 5
MADE_AGAIN = "analysis"
"""What of a run folder may be made again: it is no loss."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A whole run, and the trace of how it was written."""
    if not can_trace():
        assert shutil.which("strace"), "strace is missing: `make setup` installs it"
        assert not os.environ.get("CI"), "CI must be able to trace"
        pytest.skip("strace may trace nothing here")
    root = tmp_path_factory.mktemp("power")
    sets = [word for one in SETS for word in ("--set", one)]
    argv = [sys.executable, "-c", MAIN, "run", *WORDS, *sets, "--out", str(root / "runs" / "one")]
    return root, traced(argv, root / "trace", root)


def test_trace_gives_the_final_content_of_the_disk(run: tuple[Path, list[str]]) -> None:
    root, lines = run
    disk = Disk(str(root))
    for line in lines:
        disk.take(line)
    told = {path: bytes(file.content) for path, file in disk.names.items() if not file.is_folder}
    there = {str(path): path.read_bytes() for path in (root / "runs").rglob("*") if path.is_file()}
    measured = {path: octets for path, octets in there.items() if MADE_AGAIN not in path}
    assert len(measured) > 5
    assert {path: told[path] for path in told if "/runs/" in path and MADE_AGAIN not in path} == measured


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.proof)], ids=["some", "every"])
def test_run_resumes_after_power_failure_and_loses_at_most_open_blocks(
    run: tuple[Path, list[str]], tmp_path: Path, proven: Callable[..., None], *, every: bool
) -> None:
    root, lines = run
    seed = int(os.environ.get("SOJOURN_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    cuts = cuts_of(root, lines)
    chosen = set(range(len(cuts))) if every else {*rng.sample(range(len(cuts)), SOME), len(cuts) - 1}
    tried = resumed = 0
    disk = Disk(str(root))
    for at, line in enumerate(lines):
        disk.take(line)
        if at not in cuts or cuts.index(at) not in chosen:
            continue
        for what in LEFT if every else (rng.choice(LEFT),):
            left = tmp_path / f"{at}-{what}"
            disk.leave(what, left, rng)
            resumed += goes_on(left / "runs" / "one", root / "runs" / "one", what)
            tried += 1
            shutil.rmtree(left)
    print(f"{len(cuts)} moments; {tried} tried, {resumed} went on")
    assert resumed > 0
    proven("power", "`sojourn run`", cuts=tried)


def cuts_of(root: Path, lines: list[str]) -> list[int]:
    """The calls before and after which the power may fail: each that makes something certain, or changes a name."""
    disk, made_again = Disk(str(root)), "".join(f"\\x{octet:02x}" for octet in MADE_AGAIN.encode())
    return [at for at, line in enumerate(lines) if disk.take(line) is not None and made_again not in line]


def goes_on(left: Path, whole: Path, what: Left) -> bool:
    """Resume what is left; whether anything was there to resume."""
    said = closed_in(left / "log.jsonl")
    if not (left / "plan.toml").is_file() or not (left / "records").is_dir():
        assert not said, f"{what}: the run is gone, and its log had closed {len(said)} trials"
        assert sojourn("run", "--resume", str(left)).returncode == 2
        return False
    before = blocks_of(left)
    lost = said - set(before)
    assert not lost, f"{what}: trials {sorted(lost)} are closed in the log, and have no records"
    resume(RunFolder(left), Screen(io.StringIO()))
    after, planned = blocks_of(left), blocks_of(whole)
    assert after.keys() == planned.keys(), what
    again = {block for block in said if after[block] != before[block]}
    assert not again, f"{what}: trials {sorted(again)} are closed in the log, and were measured again"
    return True


def closed_in(log: Path) -> set[int]:
    """The trials that a log says are measured and fetched."""
    try:
        entries = read_log(log, {CLOSED})
    except SojournError as error:
        raise AssertionError(f"a cut log is read: {error}") from error
    return {block for entry in entries for block in entry["trials"]}


def blocks_of(run: Path) -> dict[int, int]:
    """By block that is recorded whole, the last part that measured it."""
    folder = RunFolder(run)
    frame: pl.DataFrame = read_table(folder.records, "blocks").frame
    probes = read_table(folder.records, "probes").frame
    if not frame.height or not probes.height:
        return {}
    counted = {(block, part): count for block, part, count in probes.group_by("block", "part").len().iter_rows()}
    rows = frame.select("block", "part", "count").iter_rows()
    return {block: part for block, part, count in sorted(rows) if counted.get((block, part)) == count}


def test_check_fails_without_syncs(run: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Without the syncs of records, their log closes trials that are lost."""
    root, lines = run
    disk = Disk(str(root))
    for line in lines:
        if "fsync" in line and "/records" in decoded_path(line):
            continue
        disk.take(line)
    disk.leave("least", tmp_path / "left", random.Random(1))
    with pytest.raises(AssertionError, match="closed in the log"):
        goes_on(tmp_path / "left" / "runs" / "one", root / "runs" / "one", "least")


def decoded_path(line: str) -> str:
    """The path of a call's descriptor."""
    return Disk._named(line.partition("(")[2]) or ""


def test_strace_output_is_parsed_in_kernel_order(tmp_path: Path) -> None:
    lines = [
        '7 openat(AT_FDCWD</d>, "/d/a", O_WRONLY|O_CREAT|O_EXCL, 0666) = 3</d/a>',
        '7 write(3</d/a>, "\\x61\\x62", 2) = 2',
        '7 fsync(3</d/a>) = 0',
        '7 write(3</d/a>, "\\x63", 1) = 1',
        '8 unlink("/d/b") = -1 ENOENT (No such file or directory)',
        '7 openat(AT_FDCWD</d>, "/d", O_RDWR|O_CLOEXEC|O_TMPFILE, 0600) = 4</d/#9 (deleted)>',
        '7 write(4</d/#9 (deleted)>, "\\x64", 1) = 1',
        '7 fsync(4</d/#9 (deleted)>) = 0',
        '7 linkat(AT_FDCWD</d>, "/proc/self/fd/4", 5</d>, "c", AT_SYMLINK_FOLLOW) = 0',
        '7 fsync(5</d>) = 0',
        '7 rename("/d/c", "/d/e") = 0',
    ]  # fmt: skip
    disk = Disk("/d")
    for line in lines:
        disk.take(hexed(line))
    found = {}
    for what in ("least", "names", "most"):
        disk.leave(what, tmp_path / what, random.Random(0))
        found[what] = {one.name: one.read_text() for one in (tmp_path / what).iterdir()}
    assert found == {
        "least": {"a": "ab", "c": "d"},
        "names": {"a": "ab", "e": "d"},
        "most": {"a": "abc", "e": "d"},
    }


def hexed(line: str) -> str:
    """A line with its texts as numbers, as strace -xx writes them."""
    head, *rest = line.split('"')
    texts = [one if place % 2 or "\\x" in one else "".join(f"\\x{octet:02x}" for octet in one.encode())
             for place, one in enumerate(rest)]  # fmt: skip
    return '"'.join([head, *texts])
