"""What a method's `measure` module gives the loop: instruments that are up, and how one trial is measured with them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sojourn.conduct.part import Session
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder


class Bench(ABC):
    """The instruments of a part, up for as long as it lasts."""

    def batch(self, trials: Sequence[Trial[Any]]) -> AbstractContextManager[None]:
        """Set up what the trials of one batch share; nothing, unless a method says otherwise."""
        del trials
        return nullcontext()

    @abstractmethod
    def measure(self, trial: Trial[Any]) -> None:
        """Measure one trial, and log what is kept of it beside its records."""


class Clock:
    """The time that measuring may take, from when the first trial begins."""

    def __init__(self, at_most_ns: int | None) -> None:
        self._seconds = None if at_most_ns is None else at_most_ns / 1e9
        self._end: float | None = None

    def start(self) -> None:
        """Begin to count."""
        self._end = None if self._seconds is None else time.monotonic() + self._seconds

    @property
    def left_seconds(self) -> float | None:
        """What is left, below 0 when the time is up; None where there is no limit."""
        return None if self._end is None else self._end - time.monotonic()

    @property
    def is_up(self) -> bool:
        """Whether no further batch may begin."""
        left = self.left_seconds
        return left is not None and left < 0


class Measure(NamedTuple):
    """How a method measures."""

    open: Callable[[Session, Clock], AbstractContextManager[Bench]]
    """Starts the instruments and warms up; ends them when the part is over, however it ends."""
    whole: Callable[[RunFolder, Plan], set[int]]
    """The numbers of the trials that are recorded whole, and need not be measured again."""
