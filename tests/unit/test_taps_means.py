"""The mean delay that taps keep of a trial: none where nothing was matched."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sojourn.conduct.taps import MEASURE, Taps

NOTHING: dict[str, Any] = {"direction": "forward", "counts": {}}
"""As `match` tells of a direction in which no packet was matched."""


@pytest.mark.parametrize(("way", "kept"), [(NOTHING, []), (NOTHING | {"delay": {"n": 3, "mean_ns": 700.0}}, [700.0])])
def test_a_trial_without_a_matched_packet_has_no_mean(way: dict[str, Any], kept: list[float]) -> None:
    taps = SimpleNamespace(means={}, trials={})
    asked = SimpleNamespace(trial=SimpleNamespace(device="router", path="router", cell=1, purpose=MEASURE))
    Taps._keep(taps, asked, {"pairs": [{"directions": [way]}]})  # type: ignore[arg-type]
    assert list(taps.means.values()) == ([kept] if kept else [])
