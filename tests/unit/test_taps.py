"""Method "taps" on made-up runs of known truth: the delay between the taps, modes, and subtraction beside them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.run import load
from sojourn.methods.taps import show as taps_show
from sojourn.methods.taps.analyse import OVER, budgets, interval_errors, sentence, stream_mean, study
from sojourn.methods.taps.show.published import PUBLISHED
from sojourn.records import TABLES
from sojourn.records.log import read_log
from sojourn.report.run import Run
from sojourn.statistics.interval import Interval
from tests.unit.made_up_streams import write_table
from tests.unit.synthetic_streams import StreamRun, cell

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.analysis.rows import Row
    from sojourn.analysis.study import Study
    from sojourn.report.figure import Figure
    from tests.unit.synthetic_streams import Trial

BETWEEN_NS = {"wire": 900.0, "bridge": 1_300.0, "bridge:qos": 2_100.0}
AT_ENDS_NS = {"wire": 1_000.0, "bridge": 1_400.0, "bridge:qos": 2_500.0}
"""By subtraction HTB takes 300 ns more over the redirect than between its ports: its receiver's side is slower."""
COUNT = 400
STEPS_NS = np.array([95_000, 125_000])
"""Times between frames that are as likely: of 100 us asked, one is within 10 %; of 200 us, none."""


def made_up(
    path: Path,
    *,
    lost: int = 0,
    dropped: int = 0,
    ambiguous: int = 0,
    reordered: int = 0,
    entry: str = "kernel",
    held_ns: int = 0,
    seed: int = 3,
    error95_ns: float | None = None,
    sizes: dict[int, int] | None = None,
    subtracted: str | None = None,
    payload: int | None = None,
) -> Path:
    """A run whose taps saw every packet but the lost ones, and one of another length, which is none of the stream's.

    `sizes`: what the frames of each size take beyond, in ns; each has a cell. `subtracted`: what the plan subtracts.
    With `error95_ns` both ends have clocks of their own, which exchanges brought together with this error.
    """
    cells = [cell(frame_bytes=size) for size in sizes or ()] or [cell(payload_bytes=payload), cell(interval_ns=200_000)]
    run = StreamRun(path, "taps", cells, AT_ENDS_NS, count=COUNT, seed=seed)
    if error95_ns is not None:
        run.shared, run.lines = False, lambda trial: [line(trial, error95_ns)]
    folder = run.write()
    rng = np.random.default_rng(seed)
    lines = folder.joinpath("log.jsonl").read_text().splitlines()
    for event in (one for one in read_log(folder / "log.jsonl") if one["event"] == "stream-trial"):
        if event["device"] not in BETWEEN_NS:
            continue
        delays = BETWEEN_NS[event["device"]] + rng.normal(0, 20) + rng.gamma(2, 50, COUNT - lost) - 100 + held_ns
        size = int(event["factors"]["frame_bytes"])
        delays += (sizes or {}).get(size, 0)
        out = folder / "records" / "taps" / f"000-{event['block']}" / "matched"
        out.mkdir(parents=True)
        columns = {
            "first_source": entry, "second_source": "kernel",
            "direction": ["forward"] * (len(delays) + 1), "length_bytes": [size - 4] * len(delays) + [90],
            "number": [*range(len(delays)), len(delays) + 5],
            "first_ns": np.cumsum(STEPS_NS[rng.integers(0, 2, len(delays) + 1)]),
            "delay_ns": [*delays.astype(int), 10**9],
        }  # fmt: skip
        write_table(out / "crossings-match-000.arrow", "crossings", pl.DataFrame(columns))
        counts = {"matched": len(delays), "lost": lost // 4, "pending": lost - lost // 4, "ambiguous": ambiguous,
                  "reordered": reordered, "duplicated": 1}  # fmt: skip
        taps = {
            "event": "taps", "block": event["block"], "device": event["device"],
            "records": f"taps/000-{event['block']}/matched",
            "captured": {"taps": [{"account": {"dropped": dropped}}, {"account": {"dropped": 0}}]},
            "matched": {"pairs": [{"directions": [{"direction": "forward", "counts": counts}]}]},
        }  # fmt: skip
        lines.insert(-1, json.dumps(taps))
    folder.joinpath("log.jsonl").write_text("\n".join(lines) + "\n")
    if subtracted:
        with folder.joinpath("plan.toml").open("a") as plan:
            plan.write(f'\n[taps]\nsubtract_serialisation = "{subtracted}"\n')
    return folder


def line(trial: Trial, error95_ns: float) -> dict[str, Any]:
    """A line between two clocks that are not apart, for the whole trial."""
    begin, end = int(trial.intended[0]) - 10**7, int(trial.intended[-1]) + 10**7
    known = {"block": trial.block, "peer": "b", "clock_id": 8, "shared": False, "from_ns": begin, "to_ns": end}
    known |= {"reference_ns": (begin + end) // 2, "exchanges": 400, "error95_ns": error95_ns}
    return dict.fromkeys(TABLES["clock_lines"], 0.0) | known | {"bound_ns": 4 * error95_ns}


def rows_of(
    found: Study, device: str, quantity: str, statistic: str = "mean", reference: str | None = None
) -> list[Row]:
    return [
        row for row in found.rows
        if (row.device, row.quantity, row.statistic, row.reference) == (device, quantity, statistic, reference)
    ]  # fmt: skip


def holds(row: Row, truth: float) -> bool:
    value = row.value
    return value.low is not None and value.high is not None and value.low <= truth <= value.high


def test_delay_between_taps_equals_the_simulated_one(tmp_path: Path) -> None:
    run = load(made_up(tmp_path / "run"))
    found = study(run)
    for device, truth in BETWEEN_NS.items():
        means = rows_of(found, device, "delay_between_taps")
        assert len(means) == 2, "one for each cell"
        assert all(holds(row, truth) for row in means), [row.value for row in means]
        # Of a gamma with shape 2 and scale 50, less 100: its 99 % quantile is 332 - 100.
        for row in rows_of(found, device, "delay_between_taps", "p99"):
            assert row.value.estimate == pytest.approx(truth + 232, abs=60)
    for row in rows_of(found, "bridge:qos", "delay_between_taps_over", reference="bridge"):
        assert holds(row, 800)
    for row in rows_of(found, "bridge", "delay_between_taps_over", reference="wire"):
        assert holds(row, 400)
    assert not rows_of(found, "wire", "delay_between_taps_over", reference="bridge")
    assert found.headline is not None
    assert (found.headline.device, found.headline.quantity) == ("bridge", "delay_between_taps")
    one_bed = r"µs \(95 % CI [\d.]+–[\d.]+ within one bed\)"
    assert re.match(rf"The Linux bridge holds a packet for 1\.[23]\d+ {one_bed} on average; ", found.sentence)
    assert re.search(rf"; the Linux bridge with HTB takes 0\.[78]\d+ {one_bed} more, between taps", found.sentence)
    own, more = budgets(run, found)
    assert own.row is found.headline
    assert (more.row.device, more.row.reference) == ("bridge:qos", "bridge")
    of_taps = next(one.component for one in own.entries if one.name == "offset of the taps")
    assert of_taps is not None
    assert of_taps.standard_uncertainty * 3**0.5 == pytest.approx(BETWEEN_NS["wire"], rel=0.05)
    assert own.budget is not None
    assert own.budget.share(of_taps) > 0.5, "of 1.3 us, 0.9 may be the taps' own"
    assert next(one.state for one in own.entries if one.name == "scatter of the taps") == "contained"
    assert next(one.state for one in more.entries if one.name == "offset of the taps") == "cancels"


def test_mode_without_added_delay_is_not_reported_as_slower(tmp_path: Path) -> None:
    run = load(made_up(tmp_path / "run"))
    found = study(run)
    nothing = Interval(10.0, -90.0, 110.0, 0.95, 24)
    rows = [replace(one, value=nothing) if one.quantity == OVER else one for one in found.rows]
    said = sentence(run, rows, [cast("Any", None)])
    assert "; no mode of the bridge takes significantly longer: " in said
    assert "0.01 µs (95 % CI −0.09 to 0.11" in said


def test_disagreement_of_subtraction_and_taps_is_a_finding(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run")))
    for row in rows_of(found, "bridge", "subtraction_less_taps", reference="wire"):
        assert abs(row.value.estimate) < 120
    for row in rows_of(found, "bridge:qos", "subtraction_less_taps", reference="wire"):
        assert holds(row, 300)
    (told,) = [one for one in found.findings if one.name == "taps_disagree"]
    assert told.value == pytest.approx(300, abs=120)
    assert {place.device for place in told.places} >= {"bridge:qos"}
    assert "bridge:qos" in told.sentence


@pytest.mark.parametrize(("error95_ns", "told"), [(20.0, 1), (400.0, 0)])
def test_with_two_clocks_only_the_subtraction_has_clock_errors(error95_ns: float, told: int, tmp_path: Path) -> None:
    """300 ns more by subtraction are a finding only where the clocks are surely not what makes them."""
    found = study(load(made_up(tmp_path / "run", error95_ns=error95_ns)))
    subtracted = rows_of(found, "bridge:qos", "subtraction_less_taps", reference="wire")
    assert len(subtracted) == 2
    for row in subtracted:
        assert row.clock_error95_ns == pytest.approx(2 * error95_ns, rel=0.1)
        assert row.clock_bound_ns == pytest.approx(8 * error95_ns, rel=0.1)
        assert (row.value.half_width or 0) > 1.8 * error95_ns
        assert holds(row, 300)
    for row in rows_of(found, "bridge:qos", "delay_between_taps"):
        assert row.clock_bound_ns == 0.0
        assert holds(row, BETWEEN_NS["bridge:qos"])
    assert sum(one.name == "taps_disagree" for one in found.findings) == told


def test_clock_exchanges_are_not_counted_as_stream_frames(tmp_path: Path) -> None:
    """Taps see both; the mean of a trial that is compared with repeated ones is of the stream's alone."""
    run = load(made_up(tmp_path / "run"))
    event = next(one for one in run.log if one["event"] == "taps")
    (pair,) = event["matched"]["pairs"]
    pair["directions"][0]["delay"] = {"n": COUNT + 1, "mean_ns": 5e6}
    assert stream_mean(run, event) == 5e6, "no clock exchanges between two ends with one clock"
    run.trial_events[event["block"]]["clock"] = [{"shared": False}]
    assert stream_mean(run, event) == pytest.approx(BETWEEN_NS[event["device"]], abs=100)


def test_losses_between_taps_are_infinite_delays_and_doubts_are_reported(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run", lost=20, dropped=2, ambiguous=5)))
    for row in rows_of(found, "bridge", "delay_between_taps", "p99"):
        assert row.value.estimate == float("inf"), "5 % never came"
    for row in rows_of(found, "bridge", "delay_between_taps", "p50"):
        assert row.value.estimate == pytest.approx(BETWEEN_NS["bridge"], abs=60)
    told: dict[str, Any] = {one.name: one for one in found.findings}
    assert "no room for" in told["local_drops"].sentence
    assert told["ambiguous_matches"].severity == "note"


def test_run_without_matched_packets_is_reported(tmp_path: Path) -> None:
    folder = StreamRun(tmp_path / "run", "taps", [cell()], AT_ENDS_NS, count=COUNT).write()
    found = study(load(folder))
    assert found.headline is None
    assert "No packet was seen by both taps" in found.sentence


def test_inter_frame_times_are_reported_by_both_timestamp_sources(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run")))
    for row in rows_of(found, "bridge", "tap_interval"):
        assert holds(row, STEPS_NS.mean())
    for row in rows_of(found, "bridge", "tap_interval", "sd"):
        assert row.value.estimate == pytest.approx(15_000, rel=0.02)
    shares = [row.value.estimate for row in rows_of(found, "bridge", "tap_interval_within_10", "ratio")]
    assert shares == [pytest.approx(0.5, abs=0.03), 0.0]
    for row in rows_of(found, "bridge", "departure_interval"):
        asked = row.factors.interval_ns
        assert asked is not None
        assert row.value.estimate == pytest.approx(asked, rel=0.01)
        assert row.source != "the kernel, at both ports of the device"
    for row in rows_of(found, "bridge", "tap_interval_error"):
        asked = row.factors.interval_ns
        assert asked is not None
        assert row.value.estimate == pytest.approx(STEPS_NS.mean() - asked, abs=1_000)
    for row in rows_of(found, "bridge", "tap_interval_error", "sd"):  # departures are exact here
        assert row.value.estimate == pytest.approx(15_000, rel=0.02)
    curve = found.samples["tap_interval_quantiles"].filter(pl.col("device") == "bridge")
    upper = curve.filter(pl.col("exceedance").is_between(0.1, 0.4))["gap_ns"].to_numpy()
    assert len(upper) > 0
    assert upper == pytest.approx(np.full(len(upper), STEPS_NS.max()), rel=0.02)


def test_frames_are_paired_only_in_complete_trials(tmp_path: Path) -> None:
    """The taps lack the last frame: by its order alone no frame before would be wrong, but one in the middle would."""
    found = study(load(made_up(tmp_path / "run", lost=1)))
    assert rows_of(found, "bridge", "tap_interval")
    assert not rows_of(found, "bridge", "tap_interval_error")


def test_frames_are_not_mispaired_if_tap_and_receiver_each_miss_one() -> None:
    whole = {"block": [1] * 4, "port": [0] * 4, "cell": [0] * 4}
    tap = pl.DataFrame({**whole, "number": [0, 2, 3, 4], "at_ns": [0, 200, 300, 400]})
    left = pl.DataFrame({**whole, "number": [0, 1, 2, 4], "at_ns": [0, 100, 200, 400]})
    flows = pl.DataFrame({"block": [1], "sent": [5]})
    assert interval_errors(tap, left, flows).is_empty()
    both = interval_errors(left, left, flows.with_columns(sent=pl.lit(4)))
    assert both["error_ns"].to_list() == [0.0] * 3


def test_published_timestamp_table_is_shown_beside_ours(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "run")
    analyse(folder)
    table = PUBLISHED["bridge2003_timestamping"](Run.read(folder), "bridge2003_timestamping")
    names = [key for column in table.columns for key in column.keys]
    rows = [dict(zip(names, (value for one in row for value in one.values), strict=True)) for row in table.rows]
    assert [row["cpu_mhz"] for row in rows] == ["100"] * 3 + ["200"] * 3
    for tap, sender, error in (rows[:3], rows[3:]):
        assert (tap["our_interval_us"], sender["our_interval_us"]) == (100, 100)
        assert tap["our_mean_us"] == pytest.approx(STEPS_NS.mean() / 1e3, rel=0.02)
        assert (tap["our_min_us"], tap["our_max_us"]) == tuple(STEPS_NS / 1e3)
        assert sender["our_mean_us"] == pytest.approx(100, rel=0.01)
        assert error["our_mean_us"] == pytest.approx(10, abs=1)


def test_published_delays_are_shown_beside_ours(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "run", payload=64)
    analyse(folder)
    table = PUBLISHED["linuxbridge2003_statements"](Run.read(folder), "linuxbridge2003_statements")
    least, low, high = (row[-1].values[0] for row in table.rows[:3])
    assert isinstance(least, float)
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert 1.1 < least < low < BETWEEN_NS["bridge"] / 1e3 < high < 1.6
    assert table.rows[3][-1].values[0] is None, "the run has no such size"


def test_delay_density_contains_every_packet(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run"))).samples["tap_density"]
    sums = found.group_by("device", "cell").agg(pl.col("share").sum())
    assert sums["share"].to_list() == [pytest.approx(1.0)] * 6
    bulk = found.filter(pl.col("device") == "bridge:qos").sort("share").tail(1).row(0, named=True)
    assert bulk["low_ns"] <= BETWEEN_NS["bridge:qos"] <= bulk["high_ns"]


@pytest.mark.parametrize(
    ("entry", "said"), [("kernel", "kernel"), ("hardware", "hardware at the entry, kernel at the")]
)
def test_figures_name_the_timestamp_source_at_each_port(entry: str, said: str, tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run", entry=entry)))
    assert found.headline is not None
    assert found.headline.source.startswith(said)


def test_loss_reordering_and_duplication_between_taps_are_reported(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run", lost=20, reordered=4)))
    for quantity, share in (("lost", 20 / 400), ("reordered", 4 / 380), ("duplicated", 1 / 380)):
        rows = rows_of(found, "bridge", f"{quantity}_between_taps", "ratio")
        assert [row.value.estimate for row in rows] == [pytest.approx(share)] * 2
    trials = found.samples["tap_trials"]
    assert set(trials["entered"]) == {400}
    assert (trials["left"] + trials["lost"] == 400).all()


def test_packets_in_flight_are_counted_and_delays_reported_by_them(tmp_path: Path) -> None:
    """Frames enter every 95 or 125 us: held for 301.3 us, each meets two others, and after three short steps three."""
    held = 300_000
    found = study(load(made_up(tmp_path / "run", held_ns=held)))
    for row in rows_of(found, "bridge", "packets_in_flight"):
        assert row.value.estimate == pytest.approx(2 + 1 / 8, abs=0.03)
    assert {row.value.estimate for row in rows_of(found, "bridge", "packets_in_flight", "max")} == {3.0}
    sample = found.samples["tap_in_flight"].filter(pl.col("device") == "bridge", pl.col("cell") == 0)
    assert sample["in_flight"].to_list()[-2:] == [2, 3]
    assert (sample["mean_ns"] - held - BETWEEN_NS["bridge"]).abs().max() < 60  # type: ignore[operator]
    assert sample["packets"].sum() == pytest.approx(16 * COUNT, rel=0.02)


def test_without_a_redirect_the_error_of_the_taps_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for times in (BETWEEN_NS, AT_ENDS_NS):
        monkeypatch.delitem(times, "wire")
    run = load(made_up(tmp_path / "run"))
    own = budgets(run, study(run))[0]
    (entry,) = (one for one in own.entries if one.name == "offset of the taps")
    assert (entry.state, entry.component) == ("unknown", None)


@pytest.mark.parametrize("size", [64, 512])
def test_serialisation_time_is_subtracted_if_the_plan_states_the_link_rate(size: int, tmp_path: Path) -> None:
    """On a link of 100 Mbit/s a frame takes 80 ns a byte, its preamble of 8 bytes too: 5.76 us at 64 B."""
    on_link = {64: 72 * 80, 512: 520 * 80}
    found = study(load(made_up(tmp_path / "run", sizes=on_link, subtracted="100Mbit/s")))
    whole = study(load(made_up(tmp_path / "whole", sizes=on_link)))
    for device, truth in BETWEEN_NS.items():
        (row,) = (one for one in rows_of(found, device, "delay_between_taps") if at(one) == size)
        assert holds(row, truth), row.value
        (row,) = (one for one in rows_of(whole, device, "delay_between_taps") if at(one) == size)
        assert holds(row, truth + on_link[size]), row.value
    # Between two devices the same is subtracted from both.
    for row in rows_of(found, "bridge:qos", "delay_between_taps_over", reference="bridge"):
        assert holds(row, 800)


def at(row: Row) -> int | None:
    return row.factors.frame_bytes


def test_delays_between_taps_are_reported_over_time_and_size(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "run", sizes={64: 0, 512: 2_000, 1518: 7_000})
    times = study(load(folder)).samples["tap_timeline"]
    assert set(times["device"]) == set(BETWEEN_NS)
    assert (times["elapsed_s"] >= 0).all()
    spans = times.group_by("block").agg(pl.col("elapsed_s").max() - pl.col("elapsed_s").min())["elapsed_s"]
    assert (spans <= COUNT * STEPS_NS.max() / 1e9).all()
    assert (spans > COUNT * STEPS_NS.min() / 2e9).all()
    for (device, size), some in times.partition_by("device", "frame_bytes", as_dict=True).items():
        more = {64: 0, 512: 2_000, 1518: 7_000}[int(str(size))]
        assert some["delay_ns"].to_numpy().min() == pytest.approx(BETWEEN_NS[str(device)] + more - 100, abs=100)
    analyse(folder)
    run = Run.read(folder)
    over_time, over_size = taps_show.over_time(run), taps_show.over_size(run)
    assert over_time is not None
    assert over_size is not None
    rows = pl.concat([pl.DataFrame(some, infer_schema_length=None) for some in drawn(over_size)])
    means = rows.filter((pl.col("device") == "bridge") & (pl.col("series") == "mean")).sort("x")
    assert means["x"].to_list() == [64, 512, 1518]
    for row, more in zip(means.iter_rows(named=True), (0, 2_000, 7_000), strict=True):
        assert row["low"] <= (BETWEEN_NS["bridge"] + more) / 1e3 <= row["high"], row


def test_one_size_gives_no_dependence_on_size(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "run")
    analyse(folder)
    assert taps_show.over_size(Run.read(folder)) is None


def drawn(one: Figure) -> list[list[dict[str, Any]]]:
    """The rows of a figure's panels, of those that have the columns of points."""
    datasets = json.loads(one.file())["datasets"].values()
    return [rows for rows in datasets if rows and {"x", "y", "series", "device"} <= rows[0].keys()]
