"""Runs searches by coverage beside each other, and notes how long each was: scripts/fuzz.sh calls it once all is built.

    python -m scripts.fuzz_search --seconds S [TARGET…]    each target once, in this order; all of them by default
    python -m scripts.fuzz_search --minutes M              all in turn for so long, the least searched first
    python -m scripts.fuzz_search --keep                   fewest inputs that reach the same code into tests/fuzz/corpus

As many searches run at a time as there are processors. A search that ends, for whatever reason, is a line of
build/fuzz/spent.tsv, so a run that is broken off loses nothing and the next one begins where it was. SIGTERM and SIGINT
end the searches that are running, which count, too. With `--minutes`, scripts/fuzz_ledger.py then adds all lines to the
page. A target that bytes ended is not searched again in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import fuzz_ledger
from scripts.make_corpus import LONGEST_FOUND, MOST_FOUND, MOST_FOUND_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests/fuzz/corpus"
TURN_SECONDS, SHORTEST_SECONDS = 600, 60
"""The longest and the shortest search of a target before the next one's turn. Python's begin with some ten seconds in
which modules are loaded, so turns are not shorter."""

PATIENCE_SECONDS = 40
"""How long a search may take to end when it is asked to: twice the longest input (-timeout)."""


@dataclass
class Search:
    """A search that is running."""

    target: str
    process: subprocess.Popen[bytes]
    log: Path
    began: float
    found_before: set[Path]


@dataclass
class Searches:
    """The searches of one run."""

    build: Path
    """Where corpora, logs and what was found lie."""
    program: tuple[str, ...]
    """Searches a target, whose name follows, with libFuzzer's options."""
    at_a_time: int = field(default_factory=lambda: os.cpu_count() or 1)
    running: list[Search] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    asked_to_end: int = 0
    """The signal, if one came."""

    def each(self, targets: Iterable[str], seconds: int) -> int:
        """Search each target once; return their number."""
        number = 0
        for target in targets:
            self._wait_for(self.at_a_time - 1)
            if self.asked_to_end:
                break
            self._begin(target, seconds)
            number += 1
        self._wait_for(0)
        return number

    def in_turn(self, targets: Iterable[str], minutes: float) -> int:
        """Search the target that was searched least, again and again, until the time is over or, if any lacked minutes
        at the beginning, until none does; return the number of searches."""
        every, number, until = list(targets), 0, time.monotonic() + 60 * minutes
        goal = 60 * fuzz_ledger.GOAL_MINUTES
        are_short = any(spent < goal for spent in self._counted(every).values())
        shortest = min(SHORTEST_SECONDS, 30 * minutes)
        while not self.asked_to_end:
            left = until - time.monotonic()
            counted = self._counted(every)
            least = self._least(counted)
            is_enough = least is None or (are_short and counted[least] >= goal)
            if left < shortest or (is_enough and not self.running):
                break
            if least is None or is_enough:
                # One that runs may come to an end with too little processor time.
                self._wait_for(len(self.running) - 1)
                continue
            missing = goal - counted[least] if are_short else TURN_SECONDS
            turn = max(SHORTEST_SECONDS, min(TURN_SECONDS, missing + 1))
            self._begin(least, max(1, int(min(turn, left))))
            number += 1
            self._wait_for(self.at_a_time - 1)
        self._wait_for(0)
        return number

    def end(self, signal_number: int, _: object = None) -> None:
        """End what runs, and begin nothing more."""
        self.asked_to_end = signal_number
        self._signal(signal.SIGUSR1)  # libFuzzer ends after the present input and says what it did

    def _signal(self, number: int) -> None:
        for one in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.process.pid, number)

    def _counted(self, targets: list[str]) -> dict[str, float]:
        counted = fuzz_ledger.seconds(self.build / "spent.tsv")
        return {target: counted.get(target, 0.0) for target in targets}

    def _least(self, counted: dict[str, float]) -> str | None:
        busy = {one.target for one in self.running} | set(self.failed)
        free = [(spent, target) for target, spent in counted.items() if target not in busy]
        return min(free)[1] if free else None

    def _begin(self, target: str, seconds: int) -> None:
        corpus, kept, found = self.build / "corpus" / target, KEPT / target, self.build / "found"
        for folder in (corpus, found):
            folder.mkdir(parents=True, exist_ok=True)
        log = self.build / f"{target.replace('/', '-')}.log"
        before = set(self._found(target))
        options = [f"-max_total_time={seconds}", "-print_final_stats=1"]
        with log.open("wb") as output:
            # A group of its own: a terminal's interrupt comes to this program alone, which ends the searches in order.
            process = subprocess.Popen(
                [*self.program, target, *options, str(corpus), str(kept)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0,
            )  # fmt: skip
        self.running.append(Search(target, process, log, time.monotonic(), before))

    def _found(self, target: str) -> Iterator[Path]:
        """Return the files with bytes that ended a target, as scripts/fuzz.sh has libFuzzer name them."""
        for how in ("crash", "timeout", "oom", "leak"):
            yield from (self.build / "found").glob(f"{target.replace('/', '-')}-{how}-*")

    def _wait_for(self, most: int) -> None:
        """Wait until at most so many searches run; of those that were asked to end, as long as one input may take."""
        since: float | None = None
        while len(self.running) > max(0, most):
            if self._take_ended():
                continue
            if self.asked_to_end and since is None:
                most, since = 0, time.monotonic()
                self._signal(signal.SIGUSR1)  # also one that began while the signal came
            if since is not None and time.monotonic() - since > PATIENCE_SECONDS:
                self._signal(signal.SIGKILL)
            time.sleep(0.1)

    def _take_ended(self) -> bool:
        """Note the searches that have ended; return whether any had."""
        any_ended = False
        for one in list(self.running):
            pid, status, usage = os.wait4(one.process.pid, os.WNOHANG)
            if pid == 0:
                continue
            any_ended = True
            self.running.remove(one)
            one.process.returncode = os.waitstatus_to_exitcode(status)
            self._note(one, usage.ru_utime, usage.ru_stime)
        return any_ended

    def _note(self, one: Search, user: float, system: float) -> None:
        found = set(self._found(one.target)) - one.found_before
        is_clean = one.process.returncode == 0
        outcome = "clean" if is_clean else "found" if found else "ended"
        # Ended by us before its first input.
        is_ours = bool(self.asked_to_end) and one.process.returncode == -signal.SIGUSR1
        said = one.log.read_text(errors="replace")
        tried = re.findall(r"^stat::number_of_executed_units:\s*(\d+)", said, re.MULTILINE) if is_clean else []
        inputs = tried[-1] if tried else ""
        # When, at which commit, what, processor seconds of the user and the kernel, how many inputs.
        line = (f"{datetime.now(UTC):%F}", commit(), one.target, outcome, f"{user:.2f} {system:.2f}", inputs)
        with (self.build / "spent.tsv").open("a") as file:
            file.write("\t".join(line) + "\n")
        if not is_clean and not is_ours:
            self.failed.append(one.target)
        lasted = round(time.monotonic() - one.began)
        told = f"Done {inputs or 0} runs in {lasted} second(s)" if is_clean or is_ours else f"FOUND: {one.log}"
        print(f"{one.target:24}{told}", flush=True)


def commit() -> str:
    """Return the commit that is searched."""
    said = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


def keep(build: Path, program: tuple[str, ...], targets: list[str]) -> None:
    """Copy the fewest inputs that reach the same code to the corpus, the shortest first, as far as there is room."""
    room = MOST_FOUND_BYTES // len(fuzz_ledger.targets())
    for target in targets:
        corpus, kept, fewest = build / "corpus" / target, KEPT / target, build / "fewest"
        if not corpus.is_dir():
            continue
        shutil.rmtree(fewest, ignore_errors=True)
        fewest.mkdir(parents=True)
        # What the seeds cover needs no other file: only what adds to the first folder is copied there.
        for seed in kept.glob("made-*"):
            shutil.copy(seed, fewest)
        # Without counters: how often code ran makes three files of one, and tens of thousands in all.
        options = ["-set_cover_merge=1", "-use_counters=0", f"-max_len={LONGEST_FOUND}"]
        options += [str(fewest), str(kept), str(corpus)]
        path = build / "keep.log"
        with path.open("wb") as log:
            subprocess.run([*program, target, *options], stdout=log, stderr=log, check=True)
        # libFuzzer's status is 0 also where it could not read the files at all.
        if "MERGE-OUTER: successful" not in path.read_text(errors="replace"):
            raise SystemExit(f"fuzz: {target}: the corpora cannot be merged, see {path}; nothing was removed")
        take_fewest(fewest, kept, room)
        print(f"{target:24}{sum(1 for _ in kept.iterdir())} files", flush=True)


def take_fewest(fewest: Path, kept: Path, room: int) -> None:
    """Replace what searches have found by these files, the shortest first, as far as there is room; seeds stay."""
    for old in found_files(kept):
        old.unlink()
    for path in sorted(found_files(fewest), key=lambda path: (path.stat().st_size, path.name))[:MOST_FOUND]:
        room -= path.stat().st_size
        if room < 0:
            return
        shutil.copy(path, kept)


def found_files(kept: Path) -> Iterator[Path]:
    """Return the files of a target's corpus that searches have found."""
    return (path for path in sorted(kept.iterdir()) if path.is_file() and not path.name.startswith("made-"))


def main() -> int:
    """Search, or keep what was found."""
    parser = argparse.ArgumentParser()
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seconds", type=int)
    what.add_argument("--minutes", type=float)
    what.add_argument("--keep", action="store_true")
    parser.add_argument("--build", type=Path, default=ROOT / "build/fuzz")
    parser.add_argument("--program", default=f"{ROOT}/scripts/fuzz.sh search")
    parser.add_argument("targets", nargs="*")
    asked = parser.parse_args()
    every = fuzz_ledger.targets()
    if unknown := [one for one in asked.targets if one not in every]:
        print(f"fuzz: no such target: {' '.join(unknown)}; there are {' '.join(every)}", file=sys.stderr)
        return 2
    targets, program = asked.targets or every, tuple(asked.program.split())
    if asked.keep:
        keep(asked.build, program, targets)
        return 0
    searches = Searches(asked.build, program)
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, searches.end)
    if asked.minutes is not None:
        number = searches.in_turn(targets, asked.minutes)
        fuzz_ledger.take(asked.build / "spent.tsv")
        print(f"fuzz: {fuzz_ledger.sentence(fuzz_ledger.read())} {fuzz_ledger.PAGE.name} says which.", flush=True)
    else:
        number = searches.each(targets, asked.seconds)
    if searches.failed:
        names, where = " ".join(searches.failed), asked.build
        print(
            f"fuzz: not searched to the end, or cannot be taken: {names}; see {where}/*.log and {where}/found",
            file=sys.stderr,
        )
        return 1
    if searches.asked_to_end:
        print(f"fuzz: interrupted in {number} searches; what they had searched counts", file=sys.stderr)
        return 128 + searches.asked_to_end
    searched = f"{number} searches" if asked.minutes is not None else f"{number} targets, {asked.seconds} s each"
    print(f"fuzz: {searched}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
