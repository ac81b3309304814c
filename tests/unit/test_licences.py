"""Whether a licence is allowed, for expressions of SPDX as crates write them."""

from __future__ import annotations

import pytest

from scripts.check_dependencies import licence_is_allowed


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("GPL-3.0", False),
        ("MIT AND GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("(MIT OR GPL-2.0) AND Unicode-3.0", True),
        ("(GPL-3.0 OR GPL-2.0) AND Unicode-3.0", False),
        ("", False),
    ],
)
def test_licence_expressions_are_parsed(expression: str, *, expected: bool) -> None:
    assert licence_is_allowed(expression, {"MIT", "Apache-2.0", "Unicode-3.0"}) is expected
