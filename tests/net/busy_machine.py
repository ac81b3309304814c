"""What a machine that others use, too, does to tests: what it delays is waited for, what it may spoil is tried again.

Counts and laws hold however busy the machine is: where one does not, the test fails at once. Times, rates and
statistical judgements stand within `undisturbed()`: where one of them does not hold, a test that is marked `thrice` or
`retried` begins again, up to three times in all. A program that is wrong is wrong three times; a 95 % interval misses
three times in a row once in eight thousand.
"""

from __future__ import annotations

import functools
import os
import random
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRIES = 3
PATIENCE_SECONDS = 60.0


class DisturbedError(AssertionError):
    """Something does not hold that other work on the machine can spoil."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """What is asserted within holds on a machine that lets us work."""
    try:
        yield
    except AssertionError as why:
        raise DisturbedError(str(why)) from why


def thrice(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that measures time: nothing runs beside it, and it begins again when other work spoilt it."""
    alone: Callable[..., None] = pytest.mark.alone(retried(test))
    return alone


def retried(test: Callable[..., None]) -> Callable[..., None]:
    """Begin a test again when other work spoilt it. Its tolerances are so wide that others may run beside it."""

    @functools.wraps(test)
    def tried(**given: Any) -> None:
        for number in range(1, TRIES + 1):
            own = dict(given)
            if "tmp_path" in given:
                own["tmp_path"] = given["tmp_path"] / f"try-{number}"
                own["tmp_path"].mkdir()
            try:
                return test(**own)
            except DisturbedError as why:
                print(f"try {number} of {TRIES}: {why}")
                if number == TRIES:
                    raise
        return None

    return tried


def sleeping_ends() -> tuple[str, ...]:
    """Settings of a study where nobody looks at times: both ends sleep on one core while they wait.

    Else a prober spins, and on two cores a responder, too: as long as the run, which then takes both from other tests.
    """
    cpu = random.choice(sorted(os.sched_getaffinity(0)))
    return ("host.wait=sleep", f"host.prober_cpu={cpu}", f"host.responder_cpu={cpu}")


def idle_ends() -> list[str]:
    """The same as words for `sojourn run`."""
    return [word for one in sleeping_ends() for word in ("--set", one)]


def await_that(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Waits until something holds, which it must in the end. Looking takes a fifth of a processor at most."""
    deadline = time.monotonic() + seconds
    while not (answer := timed(holds))[0]:
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(max(0.02, 4 * answer[1]))


def timed(call: Callable[[], bool]) -> tuple[bool, float]:
    """What a call gives, and the processor seconds that this process took for it."""
    began = time.process_time()
    return call(), time.process_time() - began


def await_standstill(read: Callable[[], Any], still_seconds: float = 0.2) -> Any:
    """What is read, once it has not changed for so long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    before = read()
    while True:
        time.sleep(still_seconds)
        now = read()
        if now == before:
            return now
        assert time.monotonic() < deadline, f"it never stands still: {before}, {now}"
        before = now


def slowdown() -> float:
    """How many times as long as the processor time that it needs some work takes just now: 1 on an idle machine."""
    began, used = time.monotonic(), processor_seconds()
    for _ in range(40):
        subprocess.run(["ip", "-V"], check=True, stdout=subprocess.DEVNULL)
    return max(1.0, (time.monotonic() - began) / (processor_seconds() - used))


def processor_seconds() -> float:
    """What this process and its children that have ended have used."""
    return sum(os.times()[:4])
