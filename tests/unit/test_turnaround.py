"""Where the answering program's own time is in a device's latency, the report says so."""

from __future__ import annotations

import pytest

from sojourn.analysis.factors import Factors
from sojourn.analysis.rows import Row
from sojourn.methods.pairs.analyse.directions import ASYMMETRY, turnaround_findings
from sojourn.statistics.interval import Interval


def rows(turnaround_ns: float) -> list[Row]:
    """A device that takes 7.0 µs more each way, and a program that answers later on its path."""
    means = {"latency_request": 7200.0, "latency_reply": 6800.0, "latency_turnaround": turnaround_ns, ASYMMETRY: 200.0}
    return [
        Row("box:mine", name, "mean", Interval(mean, None, None, 0.95, 12), "ns", "bridge", Factors(), 0)
        for name, mean in means.items()
    ]


@pytest.mark.parametrize(
    ("turnaround_ns", "bed_ns", "said"),
    [(2700.0, 40.0, True), (-2700.0, 40.0, True), (600.0, 40.0, False), (2700.0, 1500.0, False)],
)
def test_different_responder_turnaround_is_not_attributed_to_the_device(
    turnaround_ns: float, bed_ns: float, said: bool
) -> None:
    found = list(turnaround_findings(rows(turnaround_ns), bed_ns))
    assert bool(found) == said
    for one in found:
        assert one.name == "turnaround_counted"
        assert one.value == pytest.approx(turnaround_ns / 2)
        assert "the mean of request and reply alone is 7.0 µs" in one.sentence


def test_unknown_directions_give_no_finding() -> None:
    assert list(turnaround_findings([one for one in rows(2700.0) if one.quantity != "latency_turnaround"], 0.0)) == []
