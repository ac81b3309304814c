"""Loads of TCP between hosts with two clocks: with B's times an hour ahead and faster, the same is found as before."""

from __future__ import annotations

import json
import math
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.clocks import Lines
from sojourn.analysis.comparison import key_of
from sojourn.analysis.host_clock import FarClock
from sojourn.methods.short_flows.show import words as words_of_short
from sojourn.methods.tcp_load.show import words
from sojourn.records import RunFolder
from sojourn.records.lost import in_parts
from sojourn.report.run import Run
from tests.unit.made_up_tcp import write_table
from tests.unit.test_tcp_load_background import Beside, run_of
from tests.unit.two_clocks import Apart, part_clocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

GOLDEN = Path(__file__).parents[1] / "golden"
Rows = dict[tuple[Any, ...], dict[str, Any]]
NUMBERS = ("estimate", "ci_low", "ci_high", "n")
ONE_CLOCK_ALONE = ("standing_queue",)
"""What is left out where the device's clock is not A's."""


def recorded(path: Path, name: str) -> RunFolder:
    """A run that was recorded over namespaces."""
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(path, filter="data")
    return RunFolder(path / name)


@pytest.fixture
def rrul(tmp_path: Path) -> RunFolder:
    """Four flows each way at once."""
    return recorded(tmp_path, "rrul")


@pytest.fixture
def beside(tmp_path: Path) -> RunFolder:
    """A made-up run with UDP, long flows and transfers beside the flows; its records as two hosts write them."""
    folder = run_of(tmp_path / "beside", Beside())
    events = [json.loads(line) for line in folder.log.read_text().splitlines()]
    told = [
        one for entry in events if entry["event"] == "load-trial" for one in (*entry["flows"], *entry["background"])
    ]
    far = {flow["local"] for one in told if one["direction"] == "down" for flow in one.get("flows") or (one,)}
    for file in sorted(folder.records.glob("tcp_readings-*.arrow")):
        frame = pl.read_ipc_stream(file)
        local = pl.concat_str("local_address", pl.lit(":"), "local_port")
        is_far, rest = local.is_in(sorted(far)), file.name.removeprefix("tcp_readings-")
        write_table(folder.records / f"tcp_readings-a{rest}", "tcp_readings", frame.filter(~is_far))
        write_table(folder.records / f"tcp_readings-b{rest}", "tcp_readings", frame.filter(is_far))
        file.unlink()
    for file in sorted(folder.records.glob("arrivals-*.arrow")):  # delays that differ from trial to trial
        later = pl.col("arrival_ns") + pl.col("block") % 7 * 100_000
        write_table(file, "arrivals", pl.read_ipc_stream(file).with_columns(later.alias("arrival_ns")))
    return folder


def found_in(folder: RunFolder) -> tuple[Rows, set[str]]:
    """Every row of the results by what it is of, and the names of the findings."""
    analyse(folder.path)
    rows = {key_of(row): row for row in json.loads(folder.results.read_text())}
    findings = json.loads(folder.verdict.read_text())["findings"]
    return rows, {one["name"] for one in findings}


def both(folder: RunFolder, of: Apart) -> tuple[tuple[Rows, set[str]], tuple[Rows, set[str]]]:
    """What is found in a run, and in the same with two clocks."""
    other = RunFolder(folder.path.with_name("two"))
    shutil.copytree(folder.path, other.path)
    part_clocks(other, of)
    return found_in(folder), found_in(other)


def same(one: Rows, two: Rows, rel: float, absolute: Mapping[str, float], names: Sequence[str] = NUMBERS) -> None:
    """Each figure of the first in the second."""
    wanted = {key: row for key, row in one.items() if row["quantity"] not in ONE_CLOCK_ALONE}
    assert wanted.keys() == two.keys()
    for key, row in wanted.items():
        for name in names:
            if row[name] is None:
                assert two[key][name] is None, (key, name)
                continue
            near = pytest.approx(row[name], rel=rel, abs=absolute.get(row["unit"], 1e-12))
            assert two[key][name] == near, (key, name)


def test_known_clock_offsets_do_not_change_the_figures(rrul: RunFolder) -> None:
    (one, found), (two, found_of_two) = both(rrul, Apart())
    assert len(two) > 40
    same(one, two, 1e-7, {"ns": 1.0})
    assert found_of_two == found


def test_a_background_over_udp_has_its_delay_and_the_clocks_error(beside: RunFolder) -> None:
    (one, found), (two, found_of_two) = both(beside, Apart(bound_ns=2_000_000.0))
    assert any(row["quantity"] in ONE_CLOCK_ALONE for row in one.values())
    delays = {key: row for key, row in two.items() if row["quantity"] == "background_delay"}
    assert {row["statistic"].rpartition(" ")[2] for row in delays.values()} >= {"mean", "p50"}
    for key, row in delays.items():
        assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"]
        assert row["estimate"] == pytest.approx(one[key]["estimate"], abs=2.0)
        alone, wider = (of["ci_high"] - of["estimate"] for of in (one[key], row))
        assert wider == pytest.approx(math.hypot(alone, row["clock_error95_ns"]), rel=1e-4)
    for rows in (one, two):
        for key in delays:
            del rows[key]
    same(one, two, 1e-7, {"ns": 2.0})
    assert found_of_two == found


def test_figures_differ_by_at_most_the_clock_error(rrul: RunFolder) -> None:
    wrong_ns = 50_000.0
    (one, _), (two, _) = both(rrul, Apart(wrong_ns=wrong_ns, bound_ns=60_000.0))
    lasts_ns = 1.5e9
    # Round trips are all of A's clock; at the ends of the working conditions a probe or a reading may be another one.
    same(one, two, 4 * wrong_ns / lasts_ns, {"ns": 4 * wrong_ns, "1": 1e-3, "1/min": 5.0}, ("estimate", "n"))


def test_poorly_known_clocks_are_reported_and_change_figures(rrul: RunFolder) -> None:
    (one, _), (two, found) = both(rrul, Apart(ahead_ns=1_000_000_000, wrong_ns=400_000_000.0, bound_ns=500_000_000.0))
    assert "clock_imprecise" in found
    with pytest.raises(AssertionError):
        same(one, two, 0.01, {"ns": 1e5})


def test_clock_set_between_two_trials_is_reported(rrul: RunFolder) -> None:
    _, (_, found) = both(rrul, Apart(wrong_ns=400_000_000.0))
    assert {"clock_stepped", "clock_imprecise"} <= found


def test_session_without_clock_exchanges_is_excluded_and_reported(rrul: RunFolder) -> None:
    (one, found), (two, found_of_two) = both(rrul, Apart(parts=lambda part: part != 1))
    increase = {key: row for key, row in one.items() if row["quantity"] == "rtt_increase"}
    assert {(row["n"], two[key]["n"]) for key, row in increase.items()} == {(7, 5)}
    assert found_of_two - found >= {"clock_unsynchronised"}
    told = json.loads((rrul.path.with_name("two") / "analysis/verdict.json").read_text())["findings"]
    [said] = [one["sentence"] for one in told if one["name"] == "clock_unsynchronised"]
    assert said == (
        "in the sessions of 2 trials nothing brought the clocks of hosts A and B together: "
        "these trials are in no figure"
    )


def test_clock_findings_of_the_instrument_are_reported(rrul: RunFolder) -> None:
    slewed = {"finding": "clock_slewed", "sentence": "the rate changed"}
    asymmetric = {"finding": "clock_asymmetric", "sentence": "ways differ"}
    _, (_, found) = both(rrul, Apart(told=({"shared": False, "findings": [slewed, asymmetric]},)))
    assert "clock_slewed" in found
    assert "clock_asymmetric" not in found, "no figure of this run is a one-way delay"


def test_report_names_the_clock_of_its_times(rrul: RunFolder) -> None:
    other = RunFolder(rrul.path.with_name("two"))
    shutil.copytree(rrul.path, other.path)
    part_clocks(other, Apart(bound_ns=40_000.0))
    texts = {}
    for folder in (rrul, other):
        analyse(folder.path)
        texts[folder.path.name] = " ".join(words(Run.read(folder.path)))
    assert "All times are of one clock: CLOCK_TAI" in texts["rrul"]
    assert (
        "times of host B are read on it by short streams between the trials, with an error of at most" in texts["two"]
    )
    assert "The standing queue is left out" in texts["two"]
    errors = pl.read_parquet(other.samples / "load_clocks.parquet")
    assert errors.height > 0
    assert (errors["error95_ns"] <= errors["bound_ns"]).all()


def test_short_transfers_have_the_same_completion_times_and_the_clocks_error(tmp_path: Path) -> None:
    folder = recorded(tmp_path, "short-flows")
    (one, found), (two, found_of_two) = both(folder, Apart(bound_ns=2_000_000.0))
    assert found_of_two == found
    assert one.keys() == two.keys()
    for key, row in two.items():
        assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"]
        assert row["estimate"] == pytest.approx(one[key]["estimate"], rel=1e-7)
        # B's clock is known to 2 ms, and to 0.2 ms in 19 of 20 cases; by 1 ppm more for each second from a line.
        assert row["clock_bound_ns"] == pytest.approx(2_000_000, rel=0.02)
        assert row["clock_error95_ns"] == pytest.approx(200_000, rel=0.1)
        if row["ci_high"] is not None:
            alone, wider = (of["ci_high"] - of["estimate"] for of in (one[key], row))
            error = row["clock_error95_ns"]
            if row["unit"] == "bit/s":  # as much of a rate as of the time that it is of
                [time] = [of for of in two.values() if of["quantity"] == "completion_time" and of["statistic"] == "mean"
                          and of["cell"] == row["cell"]]  # fmt: skip
                error *= row["estimate"] / time["estimate"]
            assert wider == pytest.approx(math.hypot(alone, error), rel=1e-3)
    for unit, least in (("ns", 3), ("bit/s", 1)):
        assert sum(row["ci_high"] is not None for row in two.values() if row["unit"] == unit) >= least
    said = {name: " ".join(words_of_short(Run.read(folder.path.with_name(name)))) for name in ("short-flows", "two")}
    assert "Both applications read one clock" in said["short-flows"]
    assert "The applications read two clocks (TAI), which clock trials compare" in said["two"]


def test_short_transfers_of_unknown_clocks_have_no_figure(tmp_path: Path) -> None:
    folder = recorded(tmp_path, "short-flows")
    (_, _), (two, found) = both(folder, Apart(parts=lambda _: False))
    assert not two
    assert "clock_unsynchronised" in found


def test_a_session_that_ended_behind_its_first_clock_trial_has_figures(rrul: RunFolder) -> None:
    other = RunFolder(rrul.path.with_name("two"))
    shutil.copytree(rrul.path, other.path)
    part_clocks(other, Apart())
    for file in other.records.glob("clock_lines-*.arrow"):
        write_table(file, "clock_lines", pl.read_ipc_stream(file).head(1))
    (one, _), (two, found) = found_in(rrul), found_in(other)
    same(one, two, 1e-7, {"ns": 1.0})
    assert "clock_unsynchronised" not in found
    assert "clock_one_sided" in found, "a step behind the last line would be in no error"


def test_maximum_error_is_taken_midway_between_two_clock_trials() -> None:
    """B's clock may run off by 700 ppm: of a trial of 41 s between two lines each side of the middle grows by half."""
    second, bound_ns, slew = 1_000_000_000, 100_000.0, 700e-6
    names = ("begin", "end", "reference", "offset", "skew", "bound", "error95", "skew_bound", "skew95", "exchanges")
    rows = [(at, at + second, at + second // 2, 0.0, 0.0, bound_ns, bound_ns / 10, slew, slew / 10, 400)
            for at in (0, 42 * second)]  # fmt: skip
    lines = Lines(**{name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
    for begin, end in ((1.0, 42.0), (1.5, 40.0), (5.0, 23.0)):
        found = FarClock({0: lines}).errors(0, begin * second, end * second)
        assert found.bound_ns == pytest.approx(bound_ns + slew * 20.5 * second, rel=1e-4), (begin, end)
        assert not found.one_sided
    assert FarClock({0: lines}).errors(0, 2.0 * second, 44.0 * second).one_sided
    assert FarClock({0: lines}).errors(0, -2.0 * second, 4.0 * second).one_sided


def test_repeated_trial_without_clock_exchanges_is_excluded(rrul: RunFolder) -> None:
    """Its first, lost time had lines: what B wrote then is not taken for what was measured again."""
    other = RunFolder(rrul.path.with_name("two"))
    shutil.copytree(rrul.path, other.path)
    part_clocks(other, Apart(parts=lambda part: part != 1))
    events = [json.loads(line) for line in other.log.read_text().splitlines()]
    parts = dict(in_parts_by_block(events))
    again = next(one for one in events if one["event"] == "load-trial" and parts[one["block"]] == 1)
    lost = again | {"flows": [flow | {"started_ns": flow["started_ns"] - 10**9} for flow in again["flows"]]}
    first = next(at for at, one in enumerate(events) if one["event"] == "load-trial")
    events.insert(first, lost)
    other.log.write_text("".join(json.dumps(one) + "\n" for one in events))
    (one, _), (two, found) = found_in(rrul), found_in(other)
    increase = {key: row for key, row in one.items() if row["quantity"] == "rtt_increase"}
    assert {(row["n"], two[key]["n"]) for key, row in increase.items()} == {(7, 5)}
    assert "clock_unsynchronised" in found


def in_parts_by_block(events: Sequence[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    return ((entry["block"], part) for part, entry in in_parts(events, "load-trial"))
