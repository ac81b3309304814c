"""A process of a test ends with it."""

from __future__ import annotations

import pytest

from tests.children import Child


def test_a_process_ends_where_the_test_beside_it_fails() -> None:
    with pytest.raises(ZeroDivisionError), Child(["sleep", "60"]) as process:
        raise ZeroDivisionError
    assert process.returncode == -9
