"""The beds that a row names are those that its interval is over, and rounds split over two beds have no figure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.factors import Factors
from sojourn.analysis.packets import ACTUAL, Values
from sojourn.analysis.rows import Row
from sojourn.analysis.stream_budget import scatter_of
from sojourn.analysis.stream_rows import _row, mean_of, trial_row
from sojourn.analysis.streams import At, Series, over_column
from sojourn.analysis.surroundings import contended, disturbed
from sojourn.methods.emulator.analyse.delay import _whole
from sojourn.methods.fan_in.analyse import _shared
from sojourn.methods.model.analyse import ROUND, SESSION, _service_by_size
from sojourn.methods.stages.analyse import _path_rows, _stage_samples, _with_clocks
from sojourn.methods.stages.analyse.breakdown import Breakdown
from sojourn.statistics.interval import Interval

RUN = cast("Any", SimpleNamespace(cells={0: Factors()}))
BEDS = np.array([0, 0, 1, 1, 2, 2, 3], dtype=np.int64)
"""Trials by bed: the last bed was cut to one."""


def trials(values: list[float | None], session: list[int]) -> pl.DataFrame:
    return pl.DataFrame({"device": "wire", "cell": 0, "sent": 10, "session": session, "rate": values})


@pytest.mark.parametrize(
    ("values", "session", "beds"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0], BEDS.tolist(), 3),
        ([1.0, 2.0, 3.0, None, None], [0, 0, 0, 1, 2], None),
    ],
)
def test_mean_over_trials_counts_its_beds(values: list[float | None], session: list[int], beds: int | None) -> None:
    here = trials(values, session)
    row = trial_row(RUN, here, "received_pps", "mean", over_column(here, "rate"), "1/s")
    assert mean_of(row, here, "rate").sessions == beds


def test_mean_excludes_a_bed_that_the_median_includes() -> None:
    values, places = np.arange(70.0), np.repeat(np.arange(7), 10)
    one = Values(
        "wire", 0, 0, 0, ACTUAL, values, None, places, np.arange(7), np.zeros(7, dtype=np.int64), sessions=BEDS
    )
    assert _row(RUN, one, "mean", one.mean()).sessions == 3
    assert _row(RUN, one, "p50", one.quantile(0.5)).sessions == 4


def test_a_round_that_was_split_over_two_beds_has_no_mean() -> None:
    rounds, sessions = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 0, 1, 1, 1])
    series = Series("wire", 0, rounds, sessions, np.array([1.0, 3.0, 5.0, 50.0, 7.0, 9.0]))
    assert series.by_round() == {At(0, 0): 2.0, At(1, 2): 8.0}
    packets = pl.DataFrame({"session": sessions, "round": rounds, "block": np.arange(6)})
    assert _whole(packets)["round"].unique().sort().to_list() == [0, 2]


def test_service_times_of_two_sizes_are_paired_by_round() -> None:
    """Sizes that lack different rounds were joined by position."""

    def model(rounds: list[int], size: float) -> Any:
        at = np.array(rounds, dtype=np.float64)
        per_round = {"service": size + at, ROUND: at, SESSION: np.zeros(len(at))}
        return SimpleNamespace(per_round=per_round, server=SimpleNamespace(mean_ns=0.0))

    rows, beds = _service_by_size([model([0, 1, 2, 3], 100.0), model([1, 2, 3, 4], 500.0)])
    assert beds is None
    assert (rows[:, 1] - rows[:, 0] == 400).all()
    assert len(rows) == 3


def test_the_difference_of_a_stage_has_the_clock_errors_of_both_paths() -> None:
    value = Interval(1.0, None, None, 0.95, 1)
    own = Row("bridge", "stage_path", "mean", value, "ns", None, Factors(), 0)
    added = Row("bridge", "stage_path", "mean", value, "ns", "direct", Factors(), 0)
    _with_clocks([own, added], {("bridge", 0): (30.0, 20.0), ("direct", 0): (10.0, None)})
    assert (own.clock_bound_ns, own.clock_error95_ns) == (30.0, 20.0)
    assert (added.clock_bound_ns, added.clock_error95_ns) == (40.0, None)


def test_interval_of_a_share_of_time_excludes_clock_errors() -> None:
    value = Interval(0.42, 0.41, 0.43, 0.95, 8)
    rows = [Row("bridge", "stage_path", name, value, unit) for name, unit in (("share", "1"), ("mean", "ns"))]
    for row in rows:
        row.between_clocks(4500.0, 4000.0)
    share, mean = (row.value for row in rows)
    assert share == value
    assert (mean.low, mean.high) == pytest.approx((0.42 - 4000, 0.42 + 4000), abs=0.01)
    assert rows[1].sampled == value


@pytest.mark.parametrize(("steal", "name"), [(10, "contended"), (60, "contended_heavily")])
def test_finding_for_steal_time_depends_on_its_share(steal: int, name: str) -> None:
    ticks = {"user": 100 - steal, "steal": steal}
    part = {"before": {"cpu_ticks": {"user": 0, "steal": 0}}, "after": {"cpu_ticks": ticks}}
    run = cast("Any", SimpleNamespace(log=[], bed={"parts": [part]}, simulated=False))
    assert [one.name for one in contended(run)] == [name]


def test_warnings_of_a_running_emulator_are_findings() -> None:
    """A device whose program was detached lost everything in silence: the emulator says so, the study repeats it."""
    end = {"event": "emulator-ended", "device": "emulate", "emulator": "emulate"}
    quiet = cast("Any", SimpleNamespace(log=[end, {**end, "report": {"said": []}}]))
    assert list(disturbed(quiet)) == []
    told = {**end, "report": {"said": ["d-1: its program was detached, and attached again", "d-2: is down"]}}
    (finding,) = disturbed(cast("Any", SimpleNamespace(log=[end, told])))
    assert (finding.name, finding.severity, finding.value) == ("device_disturbed", "doubtful", 2.0)
    assert "was detached" in finding.sentence
    assert "1 more" in finding.sentence


def test_device_that_ended_within_a_session_is_a_finding() -> None:
    event = {"event": "device-broken", "device": "bridge:capture", "sentence": "the capture had ended"}
    log = [event | {"session": 2}, event | {"session": 5}, {"event": "undisturbed"}]
    (finding,) = disturbed(cast("Any", SimpleNamespace(log=log)))
    assert (finding.name, finding.severity, finding.value) == ("device_disturbed", "doubtful", 2.0)
    assert finding.places[0].device == "bridge:capture"
    assert finding.sentence == "in session 2, 5, the capture had ended"


def test_budget_of_a_quantile_counts_beds() -> None:
    row = Row("bridge", "one_way_delay", "p50", Interval(5.0, 4.0, 6.0, 0.95, 6), "ns", sessions=6)
    assert scatter_of([], row, "trials")[0].source == "6 beds, each made anew"


def test_sample_of_stages_has_the_proportions_of_all_rows() -> None:
    """The sample had medians of trials beside rows with means over beds."""
    means = np.array([[1.0, 9.0, 10.0], [1.0, 9.0, 10.0], [6.0, 4.0, 10.0],
                      [8.0, 2.0, 10.0], [1.0, 9.0, 10.0], [1.0, 9.0, 10.0]])  # fmt: skip
    points = ("intended_ns", "send_call_ns", "departure_ns")
    sessions = np.array([0, 0, 1, 1, 2, 2])
    one = Breakdown("wire", 0, points, np.arange(6), sessions, means, {}, 60, 0, np.zeros(6), np.zeros(2), {})
    rows = [row for row in _path_rows(one, {0: Factors()}) if row.statistic == "share"]
    shares = [sample[-3] for sample in _stage_samples(one)]
    assert [row.value.estimate for row in rows] == pytest.approx(shares[:-1])
    assert shares[0] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("quantity", "unit", "ends", "possible"),
    [
        ("throughput_pps", "1/s", (-162_129.0, 416_848.0), (0.0, 416_848.0)),
        ("utilisation", "1", (0.73, 1.01), (0.73, 1.0)),
        ("retransmitted", "1", (-0.017, 0.024), (0.0, 0.024)),
        ("rtt_increase", "ns", (-5.0, 9.0), (-5.0, 9.0)),
    ],
)
def test_intervals_are_truncated_at_possible_values_and_budgets_keep_the_scatter(
    quantity: str, unit: str, ends: tuple[float, float], possible: tuple[float, float]
) -> None:
    value = Interval(sum(ends) / 2, *ends, 0.95, 3)
    row = Row("bridge", quantity, "mean", value, unit)
    assert (row.value.low, row.value.high) == possible
    assert row.sampled == value


def test_spread_cannot_be_negative_but_a_difference_of_spreads_can() -> None:
    value = Interval(220.0, -90.0, 850.0, 0.95, 5)
    assert Row("bridge", "delay_spread", "sd", value, "ns").value.low == 0
    assert Row("bridge", "one_way_delay", "sd", value, "ns", "direct").value == value


def test_a_difference_of_rates_may_be_negative() -> None:
    value = Interval(1.0, -5.0, 7.0, 0.95, 3)
    assert Row("bridge", "throughput_pps", "mean", value, "1/s", "direct").value == value
    assert Row("bridge", "throughput_pps", "mean", value, "1/s", against="load=0").value == value


def test_truncated_interval_still_contains_an_impossible_estimate() -> None:
    """Utilisation from readings of TCP_INFO may exceed 1 by what their edges cut."""
    value = Row("emulate", "utilisation", "up", Interval(1.004, 0.99, 1.02, 0.95, 6), "1").value
    assert (value.low, value.estimate, value.high) == (0.99, 1.004, 1.004)


def test_maximum_rate_of_several_senders_is_reported_as_total_and_fairness() -> None:
    def row(quantity: str, statistic: str, senders: int, value: float, unit: str) -> Row:
        of = Factors(senders=senders, schedule="flood", frame_bytes=1518)
        return Row("bridge", quantity, statistic, Interval(value, None, None, 0.95, 3), unit, None, of)

    rows = [row("throughput_bps", "mean", senders, senders * 9.95e6, "bit/s") for senders in (8, 1, 6)]
    said = _shared("bridge", [*rows, row("fairness", "jain", 8, 0.997, "1")])
    assert "in a flood: 1 sender: 9.9 Mbit/s, 6 senders: 59.7 Mbit/s, 8 senders: 79.6 Mbit/s; Jain's" in said
    assert "no delays" not in said
