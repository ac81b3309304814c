"""The sentence of a figure of all cells together: it is held to the A/A control, as that of a single cell is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sojourn.analysis.factors import Factors
from sojourn.analysis.measurand import added_sentence, measurand_of_streams
from sojourn.analysis.rows import Row
from sojourn.statistics.interval import Interval

CELL = Factors(engine="packet", kind="one-way", payload_bytes=64, frame_bytes=82, schedule="regular", interval_ns=10**6)


def run(*devices: str) -> Any:
    return SimpleNamespace(
        devices=["direct", "a/a", *devices], reference=None, cells={0: CELL, 1: CELL, 2: CELL}, simulated=True
    )


def pooled(device: str, reference: str, estimate: float, half: float, quantity: str = "device_latency") -> Row:
    value = Interval(estimate, estimate - half, estimate + half, 0.95, 24)
    return Row(device, quantity, "pooled", value, "ns", reference)


def control(cell: int, half: float) -> Row:
    return Row("a/a", "device_latency", "mean", Interval(0.0, -half, half, 0.95, 24), "ns", "direct", CELL, cell)


@pytest.mark.parametrize("half", [50.0, 400.0])
@pytest.mark.parametrize("how", ["cells alone", "all cells together"])
def test_latency_below_the_resolution_of_the_a_a_control_is_not_claimed(half: float, how: str) -> None:
    controls = [control(1, 20.0), control(2, half)]
    if how == "all cells together":
        controls = [pooled("a/a", "direct", half, 0.0, "resolution")]
    over_wire = [pooled("bridge", "wire", 100.0, 30.0), *controls]
    assert measurand_of_streams(run("wire", "bridge"), over_wire) is over_wire[0]
    said = added_sentence(run("wire", "bridge"), over_wire)
    assert said.startswith("The Linux bridge adds less than the bed can resolve") == (half > 100), said
    assert "(all cells together)" in said
    direct = added_sentence(run("bridge"), [pooled("bridge", "direct", 100.0, 30.0), *controls])
    assert direct.startswith("The Linux bridge adds less than the bed can resolve") == (half > 100), direct


def test_the_limit_of_a_cell_is_named_where_it_is_wider_than_the_beds_resolution() -> None:
    """Or the figure would lie below "the bed can resolve" and above the resolution that the sentence names."""
    row = one_cell("bridge", "wire", 140.0, 120.0)
    rows = [row, control(0, 390.0), pooled("a/a", "direct", 72.0, 0.0, "resolution")]
    said = added_sentence(run("wire", "bridge"), rows)
    assert said.startswith("The Linux bridge adds less than the bed can resolve in this cell (0.39 µs) one way"), said
    assert "the bed can resolve 0.072 µs" in said


def cells_apart(reference: str, *estimates: float) -> list[Row]:
    return [
        Row(
            "bridge", "device_latency", "mean", Interval(one, one - 30, one + 30, 0.95, 24), "ns", reference, CELL, cell
        )
        for cell, one in enumerate(estimates, start=1)
    ]


@pytest.mark.parametrize(
    ("estimates", "said"),
    [((1190.0, 2400.0), "adds 1.190 to 2.400 µs one way"), ((-500.0, 520.0), "adds −0.500 to 0.520 µs one way")],
)
@pytest.mark.parametrize("reference", ["wire", "direct"])
def test_cells_that_differ_are_a_range_and_never_their_mean(
    estimates: tuple[float, float], said: str, reference: str
) -> None:
    """Their mean is true of none of them, and may be zero where both are not."""
    rows = [pooled("bridge", reference, sum(estimates) / 2, 600.0), *cells_apart(reference, *estimates)]
    found = added_sentence(run(*(["wire"] if reference == "wire" else []), "bridge"), rows)
    assert found.startswith(f"The Linux bridge {said}, depending on the cell"), found
    assert "all cells together" not in found
    assert "another bed, reboots and other days are not covered" in found


def test_cells_that_agree_are_reported_together() -> None:
    rows = [pooled("bridge", "wire", 1200.0, 20.0), *cells_apart("wire", 1190.0, 1210.0)]
    assert added_sentence(run("wire", "bridge"), rows).startswith("The Linux bridge adds 1.200 µs one way")


def one_cell(device: str, reference: str, estimate: float, half: float) -> Row:
    row = pooled(device, reference, estimate, half)
    row.statistic, row.cell, row.factors, row.sessions = "mean", 0, CELL, 8
    return row


@pytest.mark.parametrize("half", [100.0, 700.0])
def test_interval_containing_zero_reports_only_an_upper_limit(half: float) -> None:
    """Both kinds of headline: over the wire in one cell, and over the direct link of all cells together."""
    found = [one_cell("bridge", "wire", 370.0, half)]
    said = added_sentence(run("wire", "bridge"), found)
    over = added_sentence(run("bridge"), [pooled("bridge", "direct", 370.0, half)])
    place = f"one way ({CELL.describe()}) over the wire"
    if half < 370:
        assert said.startswith(f"The Linux bridge adds 0.37 µs {place}"), said
        assert over.startswith("The Linux bridge adds 0.37 µs one way (95 % CI"), over
    else:
        no_delay = "No delay of the Linux bridge was found"
        assert said.startswith(f"{no_delay} {place}: 0.37 µs, an interval that holds zero (95 % CI −0.33 to 1.07"), said
        assert over.startswith(f"{no_delay} over the direct link: 0.37 µs one way (95 % CI −0.33 to 1.07"), over
        assert "), an interval that holds zero; " in over
        assert "adds" not in said.partition(";")[0] + over.partition(";")[0]


def test_without_an_interval_no_significance_is_stated() -> None:
    row = one_cell("bridge", "wire", 370.0, 1.0)
    row.value = Interval(370.0, None, None, 0.95, 2)
    said = added_sentence(run("wire", "bridge"), [row])
    assert said.startswith("The Linux bridge adds"), said
    assert "zero" not in said
