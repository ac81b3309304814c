"""The phase between two regular streams: a saw tooth of known height is found and judged, and none is made up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.sessions import beds_in
from sojourn.methods.fan_in import show
from sojourn.methods.fan_in.analyse.phase import BINS, Phases
from sojourn.records import RunFolder
from sojourn.report.run import Run
from sojourn.statistics.queue import waits
from tests.unit.synthetic_streams import StreamRun, Trial, cell

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

COUNT, INTERVAL_NS = 200, 5_170_000
SERVICE_NS = 1538 * 8e9 / 10e6
STILL_NS = 20_000.0


def departures(begin: int, block: int, flow: int, walk: int) -> NDArray[np.int64]:
    """One stream of a trial: the second falls behind by so many intervals; neither leaves quite on time."""
    interval = INTERVAL_NS * (1.0 if flow == 1 else COUNT / (COUNT - walk))
    late = np.random.default_rng([block, flow]).integers(0, 3_000, COUNT)
    return np.asarray(begin + np.round(np.arange(COUNT) * interval) + late, dtype=np.int64)


def two_streams(path: Path, share: float, *, walk: int = 1, rate: int | None = 10_000_000) -> Path:
    """Both through one line that serves a frame in SERVICE_NS; of what a frame waits there its delay has a share."""

    def alter(trial: Trial, rng: np.random.Generator) -> None:
        begin = int(trial.intended[0])
        both = [departures(begin, trial.block, flow, walk) for flow in (1, 2)]
        trial.departure = both[trial.flow - 1]
        trial.intended = trial.departure - 100
        merged = np.concatenate(both)
        order = np.argsort(merged, kind="stable")
        waited = np.empty(len(merged))
        waited[order] = waits(merged[order].astype(np.float64), np.full(len(merged), SERVICE_NS))
        own = waited[:COUNT] if trial.flow == 1 else waited[COUNT:]
        trial.delay = (STILL_NS + share * own + rng.gamma(4, 500, COUNT)).astype(np.int64)

    cells = [cell(senders=2, interval_ns=INTERVAL_NS // 2, frame_bytes=1518, payload_bytes=1500)]
    run = StreamRun(path, "fan-in", cells, a_a=False, count=COUNT, rounds=12, alter=alter)
    run.hypotheses = ("phase-saw-tooth",)
    rated = [None, {"rate_bps": rate, "delay_ns": 0} if rate else None]
    run.bed = {"stable": {"bed": {"paths": [{"path": "bridge", "rated": rated}]}}}
    return run.write()


def analysed(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    analyse(path)
    folder = RunFolder(path)
    return json.loads(folder.verdict.read_text()), json.loads(folder.results.read_text())


def pick(rows: list[dict[str, Any]], quantity: str, statistic: str) -> dict[str, Any]:
    (found,) = [row for row in rows if (row["quantity"], row["statistic"]) == (quantity, statistic)]
    return found


@pytest.mark.parametrize(("share", "outcome"), [(1.0, "supported"), (0.8, "rejected"), (1.2, "rejected")])
def test_the_delay_falls_with_the_phase_as_the_link_serves_frames(tmp_path: Path, share: float, outcome: str) -> None:
    verdict, rows = analysed(two_streams(tmp_path / "run", share))
    (answer,) = verdict["hypotheses"]
    assert (answer["outcome"], answer["expected"]) == (outcome, pytest.approx(SERVICE_NS)), answer["sentence"]
    tooth = pick(rows, "phase_height", "fit")
    assert tooth["estimate"] == pytest.approx(share * SERVICE_NS, rel=0.005)
    within = INTERVAL_NS / BINS / 2  # of the first bin, whose middle is half a bin from the foot of the tooth
    assert pick(rows, "phase_effect", "behind")["estimate"] == pytest.approx(share * (SERVICE_NS - within), rel=0.02)
    foot = pick(rows, "delay_by_phase", "at_0.975")
    assert foot["estimate"] == pytest.approx(STILL_NS + 2_000, abs=200)
    assert foot["clock_bound_ns"] == 0
    assert "phase_dependent" in {one["name"] for one in verdict["findings"]}
    said = "Over the Linux bridge a frame of a regular stream that leaves just after a frame of another stream takes "
    assert verdict["sentence"].startswith(said)
    assert "longer than a frame that leaves half an interval or more after it" in verdict["sentence"]


def test_delay_independent_of_the_phase_is_reported_as_such(tmp_path: Path) -> None:
    verdict, rows = analysed(two_streams(tmp_path / "run", 0.0, rate=None))
    behind = pick(rows, "phase_effect", "behind")
    assert behind["ci_low"] <= 0 <= behind["ci_high"]
    assert "phase_dependent" not in {one["name"] for one in verdict["findings"]}
    assert "does not take significantly longer than" in verdict["sentence"]
    assert [one["outcome"] for one in verdict["hypotheses"]] == ["inconclusive"]
    assert not [row for row in rows if row["quantity"] == "phase_height"]


def test_streams_with_a_constant_phase_have_no_delay_by_phase(tmp_path: Path) -> None:
    verdict, rows = analysed(two_streams(tmp_path / "run", 1.0, walk=0))
    assert not [row for row in rows if row["quantity"].startswith(("phase", "delay_by_phase"))]
    assert "standard deviation" in verdict["sentence"]


def test_phase_dependence_is_inconclusive_if_frames_queue_behind_several(tmp_path: Path) -> None:
    verdict, _ = analysed(two_streams(tmp_path / "run", 1.0, rate=4_000_000))
    (answer,) = verdict["hypotheses"]
    assert (answer["outcome"], "not tested" in answer["sentence"]) == ("inconclusive", True)


def test_the_report_has_the_bins_as_table_and_figure(tmp_path: Path) -> None:
    path = two_streams(tmp_path / "run", 1.0)
    analyse(path)
    run = Run.read(path)
    table = show.by_phase(run)
    assert len(table.rows) == BINS
    assert [column.title for column in table.columns][-2:] == ["Expected", "Frames"]
    figure = show.delay_over_phase(run)
    assert figure is not None
    assert figure.name == "delay_over_phase"
    shown = pl.read_parquet(RunFolder(path).samples / "delay_by_phase.parquet")
    off = (shown["delay_ns"] - shown["expected_ns"]).abs().max()
    assert isinstance(off, float)
    assert off < 1_000


@pytest.mark.parametrize("sessions", [1, 5])
def test_noise_is_no_dependence_on_the_phase(sessions: int) -> None:
    """False alarms at most as often as one level for all bins allows; the effect's interval holds zero."""
    rng = np.random.default_rng(418)
    session = np.repeat(np.arange(sessions), 20 // sessions)
    alarms = misses = 0
    for _ in range(60):
        level = rng.normal(0, 5_000, sessions)[session]
        delays = 20_000 + level[:, None] + rng.normal(0, 500, (20, BINS))
        one = Phases("bridge", 0, pl.DataFrame(), session, delays, 1e6)
        alarms += any(bin_.excludes(0) for bin_ in one.deviations(delays).each)
        misses += one.over(one.behind()).excludes(0)
    assert beds_in(session) == (sessions if sessions > 1 else None)
    assert alarms <= 9  # of 60 at 5 %: more than that once in 1,000
    assert misses <= 9
