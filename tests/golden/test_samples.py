"""Every sample is declared beside the code that makes it, written so, and made by a run or a test named here."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from scripts.generate_reference import declared_samples
from scripts.make_gallery import archives
from sojourn.analysis.samples import Sample, write_samples
from sojourn.methods import DEFAULT, load

if TYPE_CHECKING:
    from sojourn.records import RunFolder

ROOT = Path(__file__).parents[2]
BY_RUNS = {
    "throughput": "trials attempts delay_quantiles delay_histograms inter_arrival_quantiles pairs rates rate_lines",
    "emulator-delay": "delay_timeline loss_runs pacing_errors checks emulation_errors pipes",
    "emulator-loss": "autocorrelations loss_run_lengths losses",
    "bridge-latency-real": "rtt_quantiles timeline blocks session_machine session_paths",
    "bridge-latency": "lines sizes",
    "ping-wait": "pacing_errors",
    "anomalies": "anomalies anomaly_profiles",
    "one-way": "delay_by_interval min_intervals growth",
    "rated-phase": "delay_by_phase delay_spreads shares",
    "multicast": "peaks shifts",
    "background": "modes shifts",
    "loss": "shifts",
    "stages": "latency_breakdown missing_timestamps",
    "model": "model_parameters model_histograms model_distances",
    "variance": "sessions",
    "bridge-modes": (
        "tap_interval_quantiles departure_interval_quantiles tap_quantiles tap_histograms "
        "tap_density tap_timeline tap_in_flight tap_trials"
    ),
    "rfc2544": "suite_rates searches search_steps loss_curve latency_trials bursts not_measured deviations",
    "rfc2889": "lessons",
    "short-flows": "short_curves",
    "rrul": "load_timeline load_quantiles load_grades",
    "bufferbloat": "load_logged load_conserved",
    "tcplog-cost": "cost_ratios cost_traffic cost_programs cost_slices",
    "tcplog-perturbation": "effects distributions summaries",
    "tcplog-truth": "oracle agreement witness apart back_offs reno_windows reno_slopes cubic_windows",
}
"""Tables with rows, by archived run."""

BY_TESTS = {
    "load_grid": "tests/unit/test_tcp_load.py::test_a_grid_of_pipes_is_drawn_as_maps",
    "load_clocks": "tests/unit/test_tcp_load_two_clocks.py::test_report_names_the_clock_of_its_times",
    "delay_distribution": "tests/unit/test_emulator.py::test_correct_emulator_passes",
    "cost_skips": "tests/unit/test_costs.py::test_skips_are_reported_by_reason_and_in_the_published_form",
    "cost_collapses": ("tests/unit/test_costs.py::test_more_window_collapses_in_one_setting_are_counted_and_found"),
}
"""Tests that find rows in tables of which no archived run has any."""


def as_declared(folder: RunFolder) -> None:
    """Each sample of an analysed run has exactly the declared columns; those named above have rows."""
    method = tomllib.loads((folder.path / "plan.toml").read_text())["study"].get("method", DEFAULT)
    declared = getattr(load(method, "analyse"), "SAMPLES", {})
    found = {path.stem: pl.read_parquet(path) for path in folder.samples.glob("*.parquet")}
    assert {name: frame.schema for name, frame in found.items()} == {name: declared[name].schema for name in found}
    empty = [name for name in BY_RUNS.get(folder.path.name, "").split() if found[name].is_empty()]
    assert not empty


def test_each_declared_sample_is_made_by_a_run_or_a_test() -> None:
    makers = Counter(name for names in BY_RUNS.values() for name in names.split()) + Counter([*BY_TESTS])
    declared = declared_samples()
    assert makers.keys() == declared.keys()
    assert [name for name, kinds in declared.items() if makers[name] < len(kinds)] == []
    assert BY_RUNS.keys() <= {path.name.removesuffix(".tar.xz") for path in archives()}
    for name, test in BY_TESTS.items():
        file, _, function = test.partition("::")
        text = (ROOT / file).read_text().partition(f"def {function}(")[2].partition("\ndef ")[0]
        assert name in text, test


def test_each_column_has_a_meaning_in_a_sentence() -> None:
    for name, kinds in declared_samples().items():
        for sample, _ in kinds:
            said = [sample.rows, *(doc for _, doc in sample.columns.values())]
            assert [doc for doc in said if not doc.endswith(".")] == [], name


def test_a_sample_that_is_not_as_declared_is_refused(tmp_path: Path) -> None:
    declared = {"toys": Sample("A toy.", {"toy": (pl.Int64, "Its number.")})}
    toys = pl.DataFrame({"toy": [1, 2]})
    write_samples(tmp_path, {"toys": toys}, declared)
    assert pl.read_parquet(tmp_path / "toys.parquet").equals(toys)
    with pytest.raises(TypeError, match="the sample balls is not declared"):
        write_samples(tmp_path, {"balls": toys}, declared)
    for other in (toys.cast(pl.Int32), toys.rename({"toy": "ball"}), toys.with_columns(ball=1), toys.drop("toy")):
        with pytest.raises(TypeError, match=r"columns of the sample toys are not as declared: (toy|ball)"):
            write_samples(tmp_path, {"toys": other}, declared)
