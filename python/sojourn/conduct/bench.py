"""The interface between a method's `measure` module and the loop: running instruments, and how to measure a trial."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sojourn.conduct.part import Session
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder


class Bench(ABC):
    """The instruments of a part, running as long as it lasts."""

    def batch(self, trials: Sequence[Trial[Any]]) -> AbstractContextManager[None]:
        """Set up what the trials of one batch share; by default nothing."""
        del trials
        return nullcontext()

    @abstractmethod
    def measure(self, trial: Trial[Any]) -> None:
        """Measure one trial, and log what is not in its records."""


class Clock:
    """The time budget for measuring: that of trials, without the setup in each session."""

    def __init__(self, at_most_ns: int | None) -> None:
        self._seconds = None if at_most_ns is None else at_most_ns / 1e9
        self._spent = 0.0
        self._share = 1.0
        self._began: float | None = None

    def start(self, share: float = 1.0) -> None:
        """Start or continue the clock, with a limit of `share` of the budget."""
        self._began, self._share = time.monotonic(), share

    def stop(self) -> None:
        """Stop the clock until the next start."""
        self._spent, self._began = self.spent_seconds, None

    @property
    def spent_seconds(self) -> float:
        """The time spent so far."""
        return self._spent + (0.0 if self._began is None else time.monotonic() - self._began)

    @property
    def left_seconds(self) -> float | None:
        """The rest of the share, negative when it is spent; None without a limit."""
        return None if self._seconds is None else self._share * self._seconds - self.spent_seconds

    def has_less_than(self, seconds: float) -> bool:
        """Return whether less time than this is left of the share; False without a limit."""
        return self.left_seconds is not None and self.left_seconds < seconds

    def part_of_rest(self, parts: int) -> float:
        """Return how much time will be left after the first of `parts` equal parts of the present rest."""
        return 0.0 if self.left_seconds is None else self.left_seconds * (1 - 1 / parts)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock within the block."""
        is_counting, share = self._began is not None, self._share
        self.stop()
        try:
            yield
        finally:
            if is_counting:
                self.start(share)

    @property
    def is_up(self) -> bool:
        """Whether no further batch may begin."""
        return self.has_spent(1.0)

    def has_spent(self, share: float) -> bool:
        """Return whether this share of the budget is spent; False without a limit."""
        return self._seconds is not None and self.spent_seconds > share * self._seconds


class Measure(NamedTuple):
    """How a method measures."""

    open: Callable[[Session, Clock], AbstractContextManager[Bench]]
    """Starts the instruments and warms up; ends them when the part ends, however it ends."""
    whole: Callable[[RunFolder, Plan], set[int]]
    """Returns the numbers of the trials that are recorded completely and need not be measured again."""
