"""What `sojourn lab` says at its end of what its path did."""

from __future__ import annotations

from typing import Any

from sojourn.cli.lab_show import passed


def pipe(name: str, arrived: int, lost: int, late: int) -> dict[str, Any]:
    times = {"count": arrived - lost, "late": late, "p50_ns": 15_196, "p99_ns": 2_255_872, "max_ns": 3_714_142}
    return {"name": name, "arrived": arrived, "lost": {"before": lost, "full": 0}, "accuracy": times}


def test_summary_is_per_direction_and_high_pacing_error_is_a_warning() -> None:
    pipes = [pipe("forward", 3517, 59, 524), pipe("backward", 1500, 0, 15), pipe("idle", 0, 0, 0)]
    forward, warning, backward = passed({"budget_ns": 100_000, "pipes": pipes})
    assert forward == "forward: 59 of 3517 packets lost (1.68%); departures off by 15.2 µs (median), 2.26 ms (p99)"
    assert warning.startswith("! forward: 524 of 3458 packets left more than 100 µs too late, one by 3.71 ms: ")
    assert backward == "backward: 0 of 1500 packets lost (0.00%); departures off by 15.2 µs (median), 2.26 ms (p99)"
