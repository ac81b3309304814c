"""Clocks of known truth: within the maximum error always, within the 95 % error 93 to 97 % of the time where what it
assumes holds, and a finding where it does not. Each case is many simulated runs through the instrument.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from sojourn.instruments import find_instrument
from tests.unit.printed_json import printed

FOR_COVERAGE, FOR_FINDINGS = 200, 60
"""Runs that tell a share of 95 % to a percent or two; that tell what comes nearly always or never."""

SECOND = 1_000_000_000

Truth = dict[str, Any]


def gamma(shift_ns: float, shape: float = 1.5, scale_ns: float = 4000.0) -> Truth:
    return {"gamma": {"shape": shape, "scale_ns": scale_ns, "shift_ns": shift_ns}}


ALIKE = {"asymmetry_share": 0.0}
"""The limits of these paths: with a share for asymmetry every coverage would be near 100 %."""

CALM = {"forward": gamma(15e3), "backward": gamma(15e3)}

HOLDS: dict[str, Truth] = {
    "equal clocks": CALM,
    "seconds ahead, and fast": CALM | {"offset_ns": 4.2e9, "skew_ppm": 100.0, "count": 3000},
    "seconds behind, and slow": CALM | {"offset_ns": -4.2e9, "skew_ppm": -100.0, "count": 3000},
    "warming and cooling": CALM | {"temperature": {"amplitude_ppm": 1.0, "period_s": 60.0}, "count": 6000},
    "drifting": CALM | {"drift_ppm_per_s": 0.02, "count": 3000},
    "loaded both ways": {
        "forward": gamma(15e3, 1.0, 5e4),
        "backward": gamma(15e3, 1.0, 5e4),
        "count": 3000,
        "skew_ppm": 30.0,
    },
    "load that ramps up": {
        "forward": gamma(15e3, 1.0, 2e4),
        "backward": gamma(15e3, 1.0, 2e4),
        "load_grows": 7.0,
        "count": 3000,
    },
    "heavy tails": {
        "forward": {"pareto": {"scale_ns": 15e3, "shape": 1.2}},
        "backward": {"pareto": {"scale_ns": 15e3, "shape": 1.2}},
    },
    "few exchanges": CALM | {"count": 40, "interval_ns": 100_000_000},
}

FAILS: dict[str, tuple[Truth, str]] = {
    "set ahead by a second": (CALM | {"step": {"at_ns": 7 * SECOND, "by_ns": SECOND}, "count": 2000}, "clock_stepped"),
    "set back by 50 us": (CALM | {"step": {"at_ns": 7 * SECOND, "by_ns": -50_000}, "count": 2000}, "clock_stepped"),
    "loaded one way": (CALM | {"forward": gamma(15e3, 2.0, 2e5), "count": 3000}, "clock_asymmetric"),
    "longer one way": (CALM | {"longer": {"at_ns": 30 * SECOND, "by_ns": 10_000}, "count": 6000}, "clock_asymmetric"),
    "hardly any exchange": (CALM | {"count": 5}, "clock_unsynchronised"),
}


def simulated(truth: Truth, runs: int = FOR_FINDINGS) -> Any:
    argv = [find_instrument(), "clock", "sim", "--truth", json.dumps(truth), "--limits", json.dumps(ALIKE)]
    argv += ["--repeat", str(runs), "--json"]
    return printed("clock-sim", subprocess.check_output(argv, text=True))


@pytest.mark.parametrize("truth", HOLDS.values(), ids=HOLDS.keys())
def test_without_steps_or_asymmetry_the_95_percent_error_has_its_coverage(truth: Truth) -> None:
    seen = simulated(truth, FOR_COVERAGE)
    assert seen["beyond_bound"] == 0, seen
    assert 0.93 <= seen["within_error95"] <= 0.97, seen
    assert sum(seen["findings"].values()) <= FOR_COVERAGE * 0.02, seen


@pytest.mark.parametrize(("truth", "finding"), FAILS.values(), ids=FAILS.keys())
def test_violated_clock_assumptions_keep_the_maximum_error_and_raise_a_finding(truth: Truth, finding: str) -> None:
    seen = simulated(truth)
    assert seen["beyond_bound"] == 0, seen
    assert seen["findings"].get(finding, 0) >= 0.95 * FOR_FINDINGS, seen


def test_undetectable_path_asymmetry_is_within_the_maximum_error() -> None:
    seen = simulated(CALM | {"backward": gamma(115e3)})
    assert seen["beyond_bound"] == 0, seen
    assert seen["mean_error_ns"] == pytest.approx(50_000, rel=0.01), "half the difference of the delays"
