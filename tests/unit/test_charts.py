"""Axes of charts: a logarithmic one only where its values span enough ticks to be read."""

from __future__ import annotations

import polars as pl
import pytest

from sojourn.report.charts import Axis, Lines
from sojourn.report.palette import Palette


@pytest.mark.parametrize(
    ("values", "scale"),
    [([3.0, 50.0], "log"), ([0.9, 1.1], "linear"), ([7.0], "linear"), ([1.0, 10.0], "log"), ([210.0, 480.0], "linear")],
)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_axis_is_logarithmic_only_where_its_values_span_three_ticks(axis: str, values: list[float], scale: str) -> None:
    other = [float(place + 1) for place in range(len(values))]
    rows = pl.DataFrame({"device": "bridge", axis: values, "y" if axis == "x" else "x": other})
    rows = rows.with_columns(low="y", high="y")
    chart = Lines(Axis("x", log=axis == "x"), Axis("y", log=axis == "y"))
    drawn = chart.draw(rows, ["bridge"], Palette(for_page=True), 300).to_dict()
    (found,) = {
        layer["encoding"][axis]["scale"].get("type", "linear") for layer in drawn["layer"] if axis in layer["encoding"]
    }
    assert found == scale
