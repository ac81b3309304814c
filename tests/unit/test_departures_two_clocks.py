"""Senders judged by a capture at a host with a clock of its own, an hour ahead and faster: the same is found."""

from __future__ import annotations

import math
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.clocks import Lines
from sojourn.analysis.departures import on_clock_of_a, trials_of
from sojourn.analysis.host_clock import along
from sojourn.analysis.run import load as load_run
from sojourn.records import RunFolder
from tests.unit.made_up_streams import write_table
from tests.unit.test_tcp_load_two_clocks import found_in
from tests.unit.two_clocks import Apart, part_clocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sojourn.analysis.departures import Trials
    from tests.unit.test_tcp_load_two_clocks import Rows

RUN = Path(__file__).parents[2] / "docs/gallery/runs/ping-wait.tar.xz"
SECOND = 1_000_000_000
PAUSE_NS = 3 * SECOND // 2
"""Between two trials: a clock trial fits in."""
SHARES = ("pacing_within_1us", "pacing_within_10us", "interval_within_1us", "interval_within_10us")


@pytest.fixture
def recorded(tmp_path: Path) -> RunFolder:
    """A run over namespaces with 26 trials, apart as trials between two clocks are."""
    with tarfile.open(RUN) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = RunFolder(tmp_path / "ping-wait")
    for file in folder.records.glob("captures-*.arrow"):
        frame = pl.read_ipc_stream(file)
        later = pl.col("block").rank("dense").cast(pl.Int64) * PAUSE_NS
        write_table(file, "captures", frame.sort("arrival_ns").with_columns(pl.col("arrival_ns") + later))
    return folder


def two(folder: RunFolder, of: Apart) -> RunFolder:
    """The same run over two clocks, with a clock trial behind each trial."""
    other = RunFolder(folder.path.with_name("two"))
    shutil.copytree(folder.path, other.path)
    [file] = other.records.glob("captures-*.arrow")
    spans = pl.read_ipc_stream(file).group_by("block").agg(pl.col("arrival_ns").max() - pl.col("arrival_ns").min())
    lasts = dict(spans.iter_rows())
    part_clocks(other, replace(of, lasts_ns=lambda block: lasts[block] + SECOND // 10))
    return other


def test_a_recorded_run_with_a_known_clock_has_the_same_figures(recorded: RunFolder) -> None:
    one, found = found_in(recorded)
    other, found_of_two = found_in(two(recorded, Apart()))
    assert (len(one) > 100, found_of_two) == (True, found)
    assert one.keys() == other.keys()
    for key, row in one.items():
        near = {"ns": 2.0, "1": 2e-3}.get(row["unit"], 0.0)  # a nanosecond of rounding may move one departure of 1,000
        assert other[key]["estimate"] == pytest.approx(row["estimate"], rel=1e-6, abs=near), key
        assert other[key]["n"] == row["n"]


def test_a_trial_that_was_measured_again_has_the_frames_of_its_last_part_alone(recorded: RunFolder) -> None:
    before, _ = found_in(recorded)
    [file] = recorded.records.glob("captures-*.arrow")
    frame = pl.read_ipc_stream(file)
    again = frame.filter(pl.col("block") == frame["block"].min())
    assert again.height > 50
    name = file.name.replace("000", "001")
    assert name != file.name
    write_table(file.with_name(name), "captures", again.with_columns(pl.col("arrival_ns") + 3600 * SECOND))
    after, _ = found_in(recorded)
    assert {key: row["estimate"] for key, row in after.items()} == {key: row["estimate"] for key, row in before.items()}


def test_without_the_clock_trials_the_figures_would_be_others(recorded: RunFolder) -> None:
    """So the test above can fail: 50 ppm are 60 us in trials of 1.2 s, 15 us away from the middle in the median."""
    run = load_run(two(recorded, Apart()).path)
    judged = on_clock_of_a(run)

    def typical(several: list[Trials]) -> float:
        return min(float(np.median(np.abs(one.errors()[0]))) for one in several if one.interval_ns == 10_000_000)

    assert typical(trials_of(run)) > typical(trials_of(judged.run, judged.clocks)) + 5_000


def test_figures_differ_by_no_more_than_their_rows_say(recorded: RunFolder) -> None:
    wrong_ns = 5_000.0
    one, _ = found_in(recorded)
    other, _ = found_in(two(recorded, Apart(wrong_ns=wrong_ns, bound_ns=20 * wrong_ns)))
    assert_within(one, other)
    moved = [abs(row["estimate"] - one[key]["estimate"]) for key, row in other.items() if row["unit"] == "ns"]
    assert max(moved) > wrong_ns / 10, "nothing was wrong"


def assert_within(one: Rows, other: Rows) -> None:
    """The figures of one clock lie within the errors of the same by two."""
    assert one.keys() == other.keys()
    for key, row in other.items():
        true = one[key]["estimate"]
        if row["unit"] == "ns":
            assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"], key
            # Neighbouring lines are wrong by as much in opposite directions: more than one of 20 may be.
            assert abs(row["estimate"] - true) <= row["clock_bound_ns"] + 2, key
        elif (row["quantity"] in SHARES and row["ci_low"] is not None) or row["ci_low"] is not None:
            assert row["ci_low"] <= true <= row["ci_high"], key


def test_a_session_whose_clock_trials_nobody_answered_has_no_figures(recorded: RunFolder) -> None:
    rows, found = found_in(two(recorded, Apart(parts=lambda _: False)))
    assert (rows, "clock_unsynchronised" in found) == ({}, True)


def test_a_trial_behind_the_last_clock_trial_is_read_by_that_alone_and_said(recorded: RunFolder) -> None:
    folder = two(recorded, Apart())
    [file] = folder.records.glob("clock_lines-*.arrow")
    frame = pl.read_ipc_stream(file)
    write_table(file, "clock_lines", frame.sort("from_ns")[:-1])
    _, found = found_in(folder)
    assert "clock_one_sided" in found


def lines_at(begins: list[int], clock: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Lines:
    """What clock trials that begin at these seconds of A say of a clock, exactly; it is how far B's clock is ahead."""
    middle = np.array(begins, dtype=np.float64) + 0.4
    ahead = clock(middle) * SECOND
    skew = (clock(middle + 0.01) - clock(middle - 0.01)) / 0.02
    reference = np.rint(middle * SECOND + ahead).astype(np.int64)
    half, many = np.int64(2 * SECOND // 5), np.ones(len(begins))
    return Lines(reference - half, reference + half, reference, ahead, skew, 20_000 * many, 1_000 * many, 2e-6 * many,
                 1e-7 * many, np.full(len(begins), 400))  # fmt: skip


def read(clock: Callable[[NDArray[np.float64]], NDArray[np.float64]], begins: list[int]) -> tuple[float, float, float]:
    """The largest error within a trial from 1 to 25 s, and its 95 % and maximum error."""
    at = np.linspace(1.0, 25.0, 241)
    times = np.rint((at + clock(at)) * SECOND).astype(np.int64)
    found = along(lines_at(begins, clock), int(times[0]), int(times[-1]))
    assert found is not None
    wrong = (found.read(times) - at * SECOND).astype(np.float64)
    return float(np.ptp(wrong)), found.error95_ns, found.bound_ns


def test_a_clock_that_drifts_is_within_the_95_percent_error_and_one_that_is_slewed_within_the_maximum() -> None:
    wrong, error95, bound = read(lambda at: 3600 + 50e-6 * at + 0.5 * 0.02e-6 * at**2, [0, 25])
    assert 500 < wrong <= error95 < 5_000 < bound
    one_sided = read(lambda at: 3600 + 50e-6 * at + 0.5 * 0.02e-6 * at**2, [0])
    assert one_sided[0] <= one_sided[1]
    assert one_sided[1] > 3 * error95
    wrong, error95, bound = read(lambda at: 150e-6 * (13 - np.abs(at - 13)), [0, 25])
    assert error95 < wrong <= bound
    assert math.isclose(wrong, 1.7e6, rel_tol=0.2)
