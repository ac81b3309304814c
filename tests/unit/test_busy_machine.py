"""What tests with real traffic try again, and what they never do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.net.busy_machine import TRIES, DisturbedError, await_standstill, await_that, thrice, undisturbed

if TYPE_CHECKING:
    from pathlib import Path


def test_flaky_test_is_retried_in_its_own_folder(tmp_path: Path) -> None:
    folders: list[Path] = []

    @thrice
    def holds_at_last(tmp_path: Path) -> None:
        folders.append(tmp_path)
        with undisturbed():
            assert len(folders) == TRIES

    holds_at_last(tmp_path=tmp_path)
    assert len({folder for folder in folders if folder.is_dir()}) == TRIES


def test_test_that_always_fails_fails_after_its_retries() -> None:
    tries = []

    @thrice
    def never_holds() -> None:
        tries.append(1)
        with undisturbed():
            assert not tries

    with pytest.raises(DisturbedError):
        never_holds()
    assert len(tries) == TRIES


def test_deterministic_failure_is_not_retried() -> None:
    tries = []

    @thrice
    def breaks_a_law() -> None:
        tries.append(1)
        assert not tries

    with pytest.raises(AssertionError):
        breaks_a_law()
    assert len(tries) == 1


def test_waiting_ends_when_the_condition_holds_or_at_the_timeout() -> None:
    numbers = iter([1, 2, 3, 3])
    assert await_standstill(lambda: next(numbers), still_seconds=0.0) == 3
    left = [False, False, True]
    await_that(lambda: left.pop(0), "the third")
    with pytest.raises(AssertionError, match=r"not within 0\.0 s: never"):
        await_that(lambda: False, "never", seconds=0.0)
