"""The windows in which a page is looked at: each width and each scheme once; the other two pairs in `make proof`."""

from __future__ import annotations

from typing import Literal

import pytest

Scheme = Literal["light", "dark"]

looks = pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1200, "light"),
        (390, "dark"),
        pytest.param(1200, "dark", marks=pytest.mark.proof),
        pytest.param(390, "light", marks=pytest.mark.proof),
    ],
)

schemes = pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.proof)])
"""For what takes long: the other scheme, whose colours the looks and the switch's own test see, in `make proof`."""
