"""A process of a test ends with it."""

from __future__ import annotations

import pytest

from tests.children import Child


def test_child_process_ends_when_its_test_fails() -> None:
    with pytest.raises(ZeroDivisionError), Child(["sleep", "60"]) as process:
        raise ZeroDivisionError
    assert process.returncode == -9
