"""Searches run beside each other, the least searched target first, and nothing that they spent is lost.

A program stands for libFuzzer's: it spends processor time, and ends on SIGUSR1 and after -max_total_time as that does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts import fuzz_ledger, fuzz_search
from scripts.fuzz_search import Searches, take_fewest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
SEARCH = """
import signal, sys, time
from pathlib import Path
build, target, *options = sys.argv[1:]
log, tried = Path(build) / "turns.txt", 0
def told(what):
    with log.open("a") as file:
        file.write(f"{what} {target}\\n")
def end(*_):
    told("ended")
    print(f"stat::number_of_executed_units: {tried}", flush=True)
    sys.exit(0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # until it has begun
signal.signal(signal.SIGUSR1, end)
started = time.process_time()  # of which the interpreter may have taken much
while time.process_time() < started + 0.1:  # what has begun has tried something, on a busy machine too
    tried += 1
told("began")
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
if target == "bad":
    (Path(build) / "found/bad-crash-0123").write_bytes(b"bad")
    sys.exit(77)
until = time.monotonic() + int(next(one for one in options if one.startswith("-max_total_time=")).partition("=")[2])
while time.monotonic() < until:
    tried += 1
end()
"""


@pytest.fixture
def searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, float], int], Searches]:
    """Return searches of targets for which so many seconds are counted, in turns of a second."""

    def of(counted: dict[str, float], at_a_time: int) -> Searches:
        for name in counted:
            (tmp_path / "corpus_kept" / name).mkdir(parents=True)
            (tmp_path / "corpus_kept" / name / "made-00").write_bytes(b"a seed")
        facts = {name: fuzz_ledger.NEVER | {"seconds": seconds} for name, seconds in counted.items()}
        (tmp_path / "FACTS").write_text(json.dumps(facts))
        return Searches(tmp_path, program(tmp_path), at_a_time)

    for module, name in ((fuzz_ledger, "FACTS"), (fuzz_ledger, "PAGE")):
        monkeypatch.setattr(module, name, tmp_path / name)
    monkeypatch.setattr(fuzz_ledger, "CORPUS", tmp_path / "corpus_kept")
    monkeypatch.setattr(fuzz_search, "KEPT", tmp_path / "corpus_kept")
    monkeypatch.setattr(fuzz_search, "TURN_SECONDS", 1)
    monkeypatch.setattr(fuzz_search, "SHORTEST_SECONDS", 1)
    return of


def program(build: Path) -> tuple[str, ...]:
    """Write the program, and return how it is called."""
    (build / "search.py").write_text(SEARCH)
    return (sys.executable, "-I", "-S", str(build / "search.py"), str(build))


def turns(build: Path, what: str = "began") -> list[str]:
    """Return the targets in the order of their searches."""
    path = build / "turns.txt"
    lines = [line.split() for line in path.read_text().splitlines()] if path.is_file() else []
    return [target for did, target in lines if did == what]


def end_after(number: int, run: Searches) -> None:
    """End a run once so many searches have begun."""

    def watch() -> None:
        while len(turns(run.build)) < number:
            time.sleep(0.05)
        run.end(signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def test_least_searched_target_is_first_and_notes_of_a_broken_off_run_count(
    tmp_path: Path, searches: Callable[[dict[str, float], int], Searches]
) -> None:
    run = searches({"a": 30.0, "b": 0.0, "python/c": 20.0, "d": 0.0}, 1)
    (tmp_path / "spent.tsv").write_text("2026-11-28\t0123456789ab\tb\tclean\t40.00 0.50\t5000\n")
    assert run.in_turn(["a", "b", "python/c", "d"], 1 / 40) >= 1
    # The others are ahead by more than a turn.
    assert set(turns(tmp_path)) == {"d"}
    assert fuzz_ledger.seconds(tmp_path / "spent.tsv")["b"] == 40.5
    run.each(["python/c", "a"], 1)
    assert turns(tmp_path)[-2:] == ["python/c", "a"]


def test_targets_take_turns_and_as_many_run_as_there_are_processors(
    tmp_path: Path, searches: Callable[[dict[str, float], int], Searches]
) -> None:
    run = searches({"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}, 2)
    end_after(5, run)
    assert run.in_turn(["a", "b", "c", "d"], 10) >= 5
    assert set(turns(tmp_path)[:2]) == {"a", "b"}
    assert set(turns(tmp_path)[:4]) == {"a", "b", "c", "d"}
    running, most = 0, 0
    for line in (tmp_path / "turns.txt").read_text().splitlines():
        running += 1 if line.startswith("began") else -1
        most = max(most, running)
    assert (running, most) == (0, 2)
    fuzz_ledger.take(tmp_path / "spent.tsv")
    facts = fuzz_ledger.read()
    # One for each processor may be ended before it has said that it began.
    assert 0 <= sum(told["searches"] for told in facts.values()) - len(turns(tmp_path)) <= 2
    assert all(told["seconds"] > 0 and told["inputs"] > 0 and not told["found"] for told in facts.values())


def test_run_ends_once_no_target_lacks_minutes(
    tmp_path: Path, searches: Callable[[dict[str, float], int], Searches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_ledger, "GOAL_MINUTES", 1 / 240)
    run = searches({"a": 0.0, "b": 0.2, "c": 7.0}, 2)
    began = time.monotonic()
    run.in_turn(["a", "b", "c"], 30)
    assert time.monotonic() - began < 600
    assert set(turns(tmp_path)) == {"a", "b"}
    assert all(spent >= 0.25 for spent in fuzz_ledger.seconds(tmp_path / "spent.tsv").values())


def test_target_that_bytes_ended_is_named_and_not_searched_again(
    tmp_path: Path, searches: Callable[[dict[str, float], int], Searches]
) -> None:
    run = searches({"bad": 0.0, "good": 5.0}, 1)
    end_after(3, run)
    run.in_turn(["bad", "good"], 10)
    assert turns(tmp_path)[0] == "bad"
    assert set(turns(tmp_path)[1:]) == {"good"}
    assert run.failed == ["bad"]
    outcomes = {line.split("\t")[2]: line.split("\t")[3] for line in (tmp_path / "spent.tsv").read_text().splitlines()}
    assert outcomes == {"bad": "found", "good": "clean"}


def test_searches_of_an_interrupted_run_are_on_the_page_and_the_next_run_continues(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / "kept" / name).mkdir(parents=True)
        (tmp_path / "kept" / name / "made-00").write_bytes(b"a seed")
    (tmp_path / "begin.py").write_text(f"""
import sys
from pathlib import Path
from scripts import fuzz_ledger, fuzz_search
build = Path({str(tmp_path)!r})
fuzz_ledger.FACTS, fuzz_ledger.PAGE, fuzz_ledger.CORPUS = build / "FACTS", build / "PAGE", build / "kept"
fuzz_search.KEPT = build / "kept"
fuzz_search.os.cpu_count = lambda: 2
sys.exit(fuzz_search.main())
""")
    asked = ["--minutes", "30", "--build", str(tmp_path), "--program", " ".join(program(tmp_path))]

    def interrupted(number: int) -> str:
        """Interrupt a run once so many searches have begun in all; return what it said."""
        run = subprocess.Popen(
            [sys.executable, str(tmp_path / "begin.py"), *asked],
            cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        until = time.monotonic() + 120
        while len(turns(tmp_path)) < number and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1)
        run.send_signal(signal.SIGTERM)
        said = run.communicate(timeout=120)[0]
        assert run.returncode == 128 + signal.SIGTERM, said
        return said

    assert "0 of 3 readers" in interrupted(2)
    assert sorted(turns(tmp_path)) == sorted(turns(tmp_path, "ended")) == ["a", "b"]
    first = json.loads((tmp_path / "FACTS").read_text())
    assert first["c"] == fuzz_ledger.NEVER
    assert all(first[name]["seconds"] > 0 and first[name]["inputs"] > 0 for name in "ab")
    assert not (tmp_path / "spent.tsv").exists()
    assert "| `c` | 0.0 min | 0 | 0 | 0 | never |" in (tmp_path / "PAGE").read_text()
    interrupted(4)
    assert "c" in turns(tmp_path)[2:4]
    second = json.loads((tmp_path / "FACTS").read_text())
    assert all(second[name]["seconds"] >= first[name]["seconds"] for name in "ab")
    assert sum(told["searches"] for told in second.values()) == 4


def test_kept_files_are_the_shortest_that_have_room(tmp_path: Path) -> None:
    kept, fewest = tmp_path / "kept", tmp_path / "fewest"
    for folder in (kept, fewest):
        folder.mkdir()
    (kept / "made-00").write_bytes(b"made")
    (kept / "earlier").write_bytes(b"no longer among the fewest")
    for name, octets in (("one", b"1"), ("two", b"22"), ("six", b"666666"), ("long", bytes(90)), ("made-00", b"made")):
        (fewest / name).write_bytes(octets)
    take_fewest(fewest, kept, 10)
    assert sorted(path.name for path in kept.iterdir()) == ["made-00", "one", "six", "two"]


MERGE = """
import shutil, sys
from pathlib import Path
how, target, *options = sys.argv[1:]
first, *others = [Path(one) for one in options if not one.startswith("-")]
if how == "whole":
    there = {path.read_bytes() for path in first.iterdir()}
    for path in (path for other in others for path in other.iterdir()):
        if path.read_bytes() not in there:
            shutil.copy(path, first)
    print("MERGE-OUTER: successful in 1 attempt(s)")
"""


def test_what_searches_found_is_kept_and_nothing_is_removed_unless_it_was_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, corpus = tmp_path / "kept/a", tmp_path / "corpus/a"
    for folder in (kept, corpus):
        folder.mkdir(parents=True)
    (kept / "made-00").write_bytes(b"made")
    (kept / "earlier").write_bytes(b"found earlier")
    (corpus / "same").write_bytes(b"made")
    (corpus / "new").write_bytes(b"found now")
    (tmp_path / "merge.py").write_text(MERGE)
    monkeypatch.setattr(fuzz_search, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(fuzz_ledger, "CORPUS", tmp_path / "kept")
    merge = (sys.executable, "-I", "-S", str(tmp_path / "merge.py"))
    with pytest.raises(SystemExit, match="a: the corpora cannot be merged"):
        fuzz_search.keep(tmp_path, (*merge, "broken"), ["a"])
    assert sorted(path.name for path in kept.iterdir()) == ["earlier", "made-00"]
    fuzz_search.keep(tmp_path, (*merge, "whole"), ["a"])
    assert sorted(path.name for path in kept.iterdir()) == ["earlier", "made-00", "new"]
