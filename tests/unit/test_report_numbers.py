"""How numbers are shown: decimals by the interval, true minus signs, no interval that could be misread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.report.numbers import NOTHING, duration, percent, show
from sojourn.report.table import Column, Table, number


@pytest.mark.parametrize(
    ("value", "low", "high", "unit", "text", "interval"),
    [
        (1310.0, 1240.0, 1380.0, "ns", "1.310", "1.240–1.380"),
        (-4.0, -50.0, 42.0, "ns", "\u22120.004", "\u22120.050 to 0.042"),
        (-0.1, -40.0, 40.0, "ns", "0.000", "\u22120.040 to 0.040"),
        (153_500.0, 140_000.0, 170_000.0, "ns", "154", "140–170"),
        (45_000.0, None, None, "ns", "45", NOTHING),
        (8_325.4, None, None, "ns", "8.325", NOTHING),
        (0.998, 0.9971, 0.9987, "ratio", "99.800", "99.710–99.870"),
        (0.4, 0.371, 0.429, "ns/byte", "0.400", "0.371–0.429"),
        (1_234_567_000.0, None, None, "ns", "1\u202f234\u202f567", NOTHING),
        (None, None, None, "ns", NOTHING, NOTHING),
        (5.0, 5.0, 5.0, "ns", "0.0050", "0.0050–0.0050"),
        (5000.0, None, 6000.0, "ns", "5", "unbounded to 6"),
    ],
)
def test_a_number_is_rounded_by_its_interval(
    value: float | None, low: float | None, high: float | None, unit: str, text: str, interval: str
) -> None:
    shown = show(value, low, high, unit)
    assert (shown.text, shown.interval) == (text, interval)


@given(
    value=st.floats(-1e9, 1e9),
    half=st.floats(1e-1, 1e9),
)
def test_rounding_error_is_below_a_tenth_of_the_half_width(value: float, half: float) -> None:
    shown = show(value, value - half, value + half, "ns")
    read = float(shown.text.replace("\u2212", "-").replace("\u202f", ""))
    assert abs(read - value / 1000) <= max(0.051 * half / 1000, 0.5e-6)


def test_durations_and_levels_are_formatted_for_people() -> None:
    assert [duration(ns) for ns in (1e9, 5e8, 1e6, 5e5, 100.0)] == ["1 s", "500 ms", "1 ms", "500 µs", "100 ns"]
    assert [percent(level) for level in (0.95, 0.999, 0.958)] == ["95 %", "99.9 %", "95.8 %"]


def test_decimal_points_are_aligned() -> None:
    entries = [
        number(show(value, low, high, "ns"))
        for value, low, high in ((1310.0, 1240.0, 1380.0), (12_000.0, 11_000.0, 13_000.0), (7000.0, None, None))
    ]
    table = Table("t", "T", (Column(("x_us",), "x", "µs"),), tuple((entry,) for entry in entries))
    padded = [table.padded(row, 0) for row in range(3)]
    assert [len(words) - len(words.lstrip("0123456789")) for words in padded] == [1, 2, 1]
    after = [len(words) - next(i for i, letter in enumerate(words) if not letter.isdigit()) for words in padded]
    assert len(set(after)) == 1, "as many places after the point in every row"
