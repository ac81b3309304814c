"""The analysis of made-up runs of streams: truth in, number out; every finding of theirs provoked once."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.factors import Factors
from sojourn.analysis.rows import Row as Figure
from sojourn.analysis.stream_findings import modes_apart, sound
from sojourn.analysis.wording import percent
from sojourn.methods.background import analyse as background
from sojourn.methods.multicast import analyse as multicast
from sojourn.methods.stages import analyse as stages
from sojourn.records import RunFolder, read_table
from sojourn.statistics.interval import Interval
from tests.unit import made_up_streams as made_up
from tests.unit.synthetic_streams import StreamRun, Trial, cell

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Row = dict[str, Any]
FLOOD: dict[str, Any] = {"schedule": "flood", "interval_ns": None, "rate_pps": None}
MEAN_NS, MEDIAN_NS = 4000 + 4 * 500, 4000 + 3.672 * 500
"""Of the maker's own delays: gamma of shape 4 and scale 500 ns over 4 us."""


def run(path: Path, method: str, cells: list[Row], **asked: Any) -> list[Row]:
    """Write a run, analyse it, and give its rows."""
    analyse(StreamRun(path / "run", method, cells, **asked).write())
    rows: list[Row] = json.loads(RunFolder(path / "run").results.read_text())
    return rows


def verdict(path: Path) -> Row:
    told: Row = json.loads(RunFolder(path / "run").verdict.read_text())
    return told


def found(path: Path) -> dict[str, Row]:
    return {one["name"]: one for one in verdict(path)["findings"]}


def sample(path: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(RunFolder(path / "run").samples / f"{name}.parquet")


def pick(rows: list[Row], quantity: str, statistic: str, **wanted: Any) -> Row:
    wanted = {"device": "bridge", "quantity": quantity, "statistic": statistic} | wanted
    several = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    assert len(several) == 1, f"{len(several)} rows for {wanted}"
    return several[0]


def holds(row: Row, truth: float) -> bool:
    return bool(row["ci_low"] <= truth <= row["ci_high"])


def test_delays_from_both_departures_and_device_latency_are_reported(tmp_path: Path) -> None:
    rows = run(tmp_path, "one-way", [cell(), cell(frame_bytes=1518, payload_bytes=1500)], rounds=12)
    assert found(tmp_path) == {}
    assert verdict(tmp_path)["sentence"].startswith("The Linux bridge adds 1.5")
    for place in (0, 1):
        assert pick(rows, "one_way_delay", "mean", cell=place)["estimate"] == pytest.approx(MEAN_NS + 1500, abs=60)
        assert pick(rows, "one_way_delay", "p50", cell=place)["estimate"] == pytest.approx(MEDIAN_NS + 1500, abs=60)
        intended = pick(rows, "one_way_delay_intended", "mean", cell=place)
        assert intended["estimate"] == pytest.approx(MEAN_NS + 1500 + 250, abs=60)
        assert pick(rows, "device_latency", "mean", cell=place)["estimate"] == pytest.approx(1500, abs=100)
    pooled = pick(rows, "device_latency", "pooled")
    assert (pooled["reference"], pooled["clock_bound_ns"], pooled["clock_error95_ns"]) == ("direct", 0, 0)
    assert holds(pooled, 1500)
    assert {row["unit"] for row in rows} <= {"ns", "1", "1/s", "bit/s", "ns/byte", "s/s"}
    assert all(row["clock"] and row["source"] for row in rows)


def slower_in_cell_1(trial: Trial, rng: np.random.Generator) -> None:
    del rng
    trial.delay = trial.delay + (1500 if trial.device == "bridge" and trial.cell == 1 else 0)


def test_cells_that_disagree_are_reported_as_a_range(tmp_path: Path) -> None:
    """1.5 and 3.0 us: their average, 2.25, is true of neither."""
    run(tmp_path, "one-way", [cell(), cell(frame_bytes=1518, payload_bytes=1500)], alter=slower_in_cell_1, rounds=12)
    said = verdict(tmp_path)["sentence"]
    assert re.match(r"The Linux bridge adds 1\.[45]\d* to [23]\.[09]\d* µs one way, depending on the cell", said), said
    assert "64 B" in said
    assert "1518 B" in said


def test_headline_is_relative_to_the_wire_with_the_direct_link_beside(tmp_path: Path) -> None:
    """The direct link is shorter than the device's path, the wire is not: of 1.5 us the links have 1.2."""
    cells = [cell(), cell(frame_bytes=1518)]
    rows = run(tmp_path, "one-way", cells, added={"wire": 1200.0, "bridge": 1500.0}, rounds=12)
    assert holds(pick(rows, "device_latency", "mean", reference="direct", cell=0), 1500)
    over_wire = pick(rows, "device_latency", "mean", reference="wire", cell=0)
    assert holds(over_wire, 300)
    told = verdict(tmp_path)
    said = (
        r"^The Linux bridge adds 0\.(29|3)\d* µs one way \(.*64 B.*\) over the wire, a path of as many links \(2\) .*"
        r"\(95 % CI .*\); over the direct link, 1\.(4|5).*; the bed can resolve 0\."
    )
    assert re.search(said, told["sentence"]), told["sentence"]
    assert (told["pairs"]["reference"], told["pairs"]["cell"]) == ("wire", 0)
    assert told["pairs"]["estimate"] == over_wire["estimate"]
    (budget,) = json.loads((tmp_path / "run" / "analysis" / "budgets.json").read_text())
    assert (budget["reference"], budget["cell"], budget["estimate"]) == ("wire", 0, over_wire["estimate"])
    pairs = pl.read_parquet(tmp_path / "run" / "analysis" / "samples" / "pairs.parquet")
    assert set(pairs.select("device", "reference").rows()) == {
        ("a/a", "direct"), ("wire", "direct"), ("bridge", "direct"), ("bridge", "wire"),
    }  # fmt: skip


def test_path_with_more_links_than_the_wire_states_both_numbers(tmp_path: Path) -> None:
    run(tmp_path, "one-way", [cell()], added={"wire": 1200.0, "bridge*3": 2500.0}, rounds=12)
    said = verdict(tmp_path)["sentence"]
    assert "as many" not in said
    assert re.search(
        r"adds 1\.[23]\d* µs one way over the wire, which has 2 links where .* 4 .*; over the direct link, 2\.[45]",
        said,
    ), said


@pytest.mark.parametrize(
    ("added", "told"), [({"bridge": 1500.0}, True), ({"bridge": 0.0}, False), ({"wire": 0.0, "bridge": 1500.0}, False)]
)
def test_additional_links_are_named_if_relevant(tmp_path: Path, added: dict[str, float], told: bool) -> None:
    run(tmp_path, "one-way", [cell()], added=added, rounds=12)
    assert ("no wire was measured" in verdict(tmp_path)["sentence"]) == told


def test_results_of_two_runs_can_be_put_one_below_the_other(tmp_path: Path) -> None:
    """Columns that are empty in one run have the type that they have in another."""
    run(tmp_path / "one", "one-way", [cell()])
    run(tmp_path / "two", "one-way", [cell(load=0.5, load_via="through"), cell()])
    both = [pl.read_parquet(tmp_path / name / "run" / "analysis" / "results.parquet") for name in ("one", "two")]
    assert pl.concat(both).height == sum(one.height for one in both)
    assert pl.Null not in both[0].schema.values()


def test_attempts_that_were_repeated_are_marked(tmp_path: Path) -> None:
    """Their records stay: who joins on them must not count a trial twice."""
    run(tmp_path, "one-way", [cell()], rounds=8)
    made = sample(tmp_path, "attempts")
    assert set(made["block"]) == set(sample(tmp_path, "trials")["block"])
    folder = RunFolder(tmp_path / "run")
    events = [json.loads(line) for line in folder.log.read_text().splitlines()]
    first = next(event for event in events if event["event"] == "stream-trial")
    first["kept"] = False
    folder.log.write_text("".join(json.dumps(event) + "\n" for event in events))
    analyse(folder.path)
    assert sample(tmp_path, "attempts").filter(~pl.col("kept"))["block"].to_list() == [first["block"]]
    assert first["block"] not in set(sample(tmp_path, "trials")["block"])


def test_histogram_bins_follow_the_timestamp_resolution(tmp_path: Path) -> None:
    """Whole nanoseconds, evenly spread: bins that hold four and five of them in turn would differ by a fifth."""
    even = {"delay": lambda rng, factors, n: rng.integers(5_000, 5_531, n), "run_sd_ns": 0, "rounds": 24}
    run(tmp_path, "one-way", [cell()], **even)
    bins = sample(tmp_path, "delay_histograms").filter(device="bridge")
    assert bins["high_ns"].to_numpy() - bins["low_ns"].to_numpy() == pytest.approx(5.0)
    whole = bins["share"].to_numpy()[1:-1]
    assert whole.std() / whole.mean() < 0.12


def test_lost_packet_has_infinite_delay(tmp_path: Path) -> None:
    rows = run(tmp_path, "one-way", [cell()], lose=lambda rng, factors, n: rng.random(n) < 0.02, rounds=10)
    assert pick(rows, "one_way_delay", "p99")["estimate"] is None
    assert pick(rows, "one_way_delay", "p90")["estimate"] > MEDIAN_NS + 1500
    assert holds(pick(rows, "loss_ratio", "ratio"), 0.02)
    curve = sample(tmp_path, "delay_quantiles").filter(device="bridge", measure="actual")
    assert curve["delay_ns"].null_count() > 0
    assert curve.drop_nulls("delay_ns")["exceedance"].to_numpy().min() == pytest.approx(0.02, abs=0.01)


def queue(service_ns: float) -> Callable[[np.random.Generator, Row, int], Any]:
    """A line that takes this long for each frame, fed as the cell asks (Lindley), and some noise."""

    def delays(rng: np.random.Generator, factors: Row, n: int) -> Any:
        waits = np.cumsum(np.full(n, service_ns - factors["interval_ns"]))
        behind = waits - np.minimum.accumulate(np.minimum(waits, 0))
        return 5000 + behind + rng.gamma(4, 100, n)

    return delays


def test_minimum_inter_departure_time_is_where_the_queue_is_stable(tmp_path: Path) -> None:
    intervals = (200_000, 100_000, 60_000, 45_000, 30_000)
    cells = [cell(interval_ns=interval, frame_bytes=621) for interval in intervals]
    rate = 'rate = "100Mbit/s"'
    rows = run(tmp_path, "one-way", cells, delay=queue(50_000), rounds=6, bed_extra=rate)
    shortest = pick(rows, "min_frame_interval", "sustained")
    assert (shortest["estimate"], shortest["ci_low"], shortest["ci_high"]) == (60_000, None, None), (
        "a grid has no level"
    )
    assert pick(rows, "min_frame_interval", "next_tried")["estimate"] == 45_000
    assert pick(rows, "min_frame_interval", "saturated")["estimate"] == pytest.approx(50_000, rel=0.001)
    assert pick(rows, "min_frame_interval", "calculated")["estimate"] == pytest.approx(621 * 80)
    direct = pick(rows, "min_frame_interval", "calculated", device="direct")
    assert direct["estimate"] is None
    assert direct["source"]
    assert pick(rows, "queue_growth", "trend", cell=4)["estimate"] == pytest.approx(20 / 30, rel=0.01)
    drawn = sample(tmp_path, "delay_by_interval").filter(device="bridge", statistic="p50", quantity="one_way_delay")
    assert dict(drawn.select("interval_ns", "stable").iter_rows()) == {i: i >= 60_000 for i in intervals}


def by_exchanges(error95_ns: float) -> Callable[[Trial], list[Row]]:
    """Clocks a quarter of a second apart, which exchanges know to this error."""

    def lines(trial: Trial) -> list[Row]:
        start = int(trial.intended[0])
        return [{"block": trial.block, "peer": "b", "shared": False, "from_ns": start, "to_ns": start + 10**10,
                 "reference_ns": start, "offset_ns": 250e6, "skew_ppb": 0.0, "bound_ns": 900.0 + error95_ns,
                 "error95_ns": error95_ns, "clock_id": 8, "skew_bound_ppb": 0.0, "skew95_ppb": 0.0,
                 "exchanges": 64}]  # fmt: skip

    return lines


def test_two_clocks_are_aligned_and_their_error_is_in_the_interval(tmp_path: Path) -> None:
    def apart(trial: Trial, rng: np.random.Generator) -> None:
        del rng
        trial.delay = trial.delay + 250_000_000

    rows = run(tmp_path, "one-way", [cell()], alter=apart, lines=by_exchanges(80.0), shared=False)
    mean = pick(rows, "one_way_delay", "mean")
    assert mean["estimate"] == pytest.approx(MEAN_NS + 1500, abs=100)
    assert (mean["clock_bound_ns"], mean["clock_error95_ns"]) == (980.0, 80.0)
    added = pick(rows, "device_latency", "pooled")
    assert added["clock_bound_ns"] == 1960.0
    assert mean["ci_high"] - mean["ci_low"] >= 160
    assert added["ci_high"] - added["ci_low"] >= 320
    assert "by exchanges" in mean["clock"]
    assert found(tmp_path) == {}


@pytest.mark.parametrize("error95_ns", [80.0, 400.0])
def test_clock_error_hides_neither_a_wrong_control_nor_differing_cells(error95_ns: float, tmp_path: Path) -> None:
    """It is the same on both sides of these comparisons; cells differ by less than twice the larger error."""

    def apart(trial: Trial, rng: np.random.Generator) -> None:
        del rng
        extra = 600 * (trial.device == "a/a") + 1000 * (trial.device == "bridge" and trial.cell == 1)
        trial.delay = trial.delay + 250_000_000 + extra

    cells = [cell(), cell(frame_bytes=1518, payload_bytes=1500)]
    run(tmp_path, "one-way", cells, alter=apart, lines=by_exchanges(error95_ns), shared=False)
    assert "a_a_nonzero" in found(tmp_path)
    assert "depending on the cell" in verdict(tmp_path)["sentence"]


def arriving(interval_ns: Callable[[Row], float]) -> Callable[[Trial, np.random.Generator], None]:
    """Let frames arrive at a pace of their own: what a flood's receiver sees."""

    def alter(trial: Trial, rng: np.random.Generator) -> None:
        n = len(trial.departure)
        pace = interval_ns(trial.factors) * (1 + rng.normal(0, 0.002))
        trial.delay = (trial.departure[0] + 5000 + np.arange(n) * pace - trial.departure).astype(np.int64)

    return alter


def test_throughput_and_its_fit_over_size_equal_the_truth(tmp_path: Path) -> None:
    cells = [cell(frame_bytes=size, payload_bytes=size - 18, **FLOOD) for size in (64, 512, 1024, 1518)]
    alter = arriving(lambda factors: 2000 + 1.5 * factors["frame_bytes"])
    qualified = [
        {"event": "qualified", "send_engine": "packet", "frame_bytes": size, "clean_pps": pps}
        for size, pps in ((64, 480_000.0), (512, 2e6), (1024, 2e6), (1518, 2e6))
    ]
    rows = run(tmp_path, "throughput", cells, alter=alter, log=qualified, rounds=10)
    assert holds(pick(rows, "inter_frame_slope", "fit"), 1.5)
    assert holds(pick(rows, "inter_frame_intercept", "fit"), 2000)
    through = pick(rows, "throughput_pps", "mean", cell=1)
    assert through["estimate"] == pytest.approx(1e9 / (2000 + 768), rel=0.005)
    for quantity, size in (("throughput_bps", 512), ("l1_bps", 532), ("user_bps", 494)):
        assert pick(rows, quantity, "mean", cell=1)["estimate"] == pytest.approx(through["estimate"] * size * 8)
    # 477 kpps of 64 B are within 10 % of what the tester itself moves: no throughput of the device.
    assert pick(rows, "throughput_pps", "at_least", cell=0)["findings"] == ["tester_limited"]
    assert not [row for row in rows if row["quantity"] == "throughput_pps" and row["cell"] == 0
                and row["device"] == "bridge" and row["statistic"] != "at_least"]  # fmt: skip
    assert found(tmp_path)["tester_limited"]["places"] == [{"device": "bridge", "cell": 0}]
    assert pick(rows, "throughput_pps", "mean", cell=0, device="direct")
    rates = sample(tmp_path, "rates").filter(device="bridge")
    assert rates.filter(cell=0)["tester_limited"].to_list() == [True]


def test_loss_to_unknown_addresses_is_compared_with_known_ones(tmp_path: Path) -> None:
    rows = run(tmp_path, "loss", [cell(), cell(to="unknown")], rounds=10,
               lose=lambda rng, factors, n: rng.random(n) < (0.1 if factors["to"] == "unknown" else 0.0))  # fmt: skip
    assert pick(rows, "loss_ratio", "ratio", cell=0)["estimate"] == 0
    assert holds(pick(rows, "loss_ratio", "ratio", cell=1), 0.1)
    shift = pick(rows, "loss_shift", "mean", cell=1)
    assert shift["against"] == "to=unicast"
    assert holds(shift, 0.1)


def test_fan_in_reports_delay_spread_fairness_and_total(tmp_path: Path) -> None:
    def delays(rng: np.random.Generator, factors: Row, n: int) -> Any:
        spread = 250 * factors["senders"] ** 0.5 if factors["schedule"] != "flood" else 25_000 / factors["senders"]
        return 5000 + rng.gamma(4, spread, n)

    cells = [cell(senders=senders, interval_ns=100_000) for senders in (1, 2, 3, 8)]
    cells += [cell(senders=senders, **FLOOD) for senders in (1, 8)]  # of which the spread is another question
    rows = run(tmp_path, "fan-in", cells, delay=delays, rounds=8, a_a=False)
    assert "has a standard deviation of 0.50 µs with 1 sender and of 1.4 µs with 8" in verdict(tmp_path)["sentence"]
    for place, senders in enumerate((1, 2, 3, 8)):
        wide = pick(rows, "delay_spread", "sd", cell=place)
        assert wide["estimate"] == pytest.approx(500 * senders**0.5, rel=0.03)
        assert pick(rows, "fairness", "jain", cell=place)["estimate"] == pytest.approx(1, abs=1e-3)
    assert pick(rows, "throughput_pps", "mean", cell=3)["estimate"] == pytest.approx(10_000, rel=0.03)
    (answer,) = verdict(tmp_path)["hypotheses"]
    assert (answer["hypothesis"], answer["outcome"], answer["unit"]) == (
        "delay-spread-grows-with-senders",
        "supported",
        "1",
    )
    assert answer["ci_low"] <= 0.5 <= answer["ci_high"]


@pytest.mark.parametrize(("power", "outcome"), [(0.0, "inconclusive"), (-0.5, "rejected"), (0.5, "supported")])
def test_growth_of_the_delay_spread_is_reported_only_if_significant(tmp_path: Path, power: float, outcome: str) -> None:
    """A spread that is the same for any number of senders neither supports growth nor, by its interval, excludes it."""
    cells = [cell(senders=senders, interval_ns=100_000) for senders in (1, 2, 8)]
    run(tmp_path, "fan-in", cells, rounds=8, a_a=False,
        delay=lambda rng, factors, n: 5000 + rng.gamma(4, 250 * factors["senders"] ** power, n))  # fmt: skip
    (answer,) = verdict(tmp_path)["hypotheses"]
    assert answer["outcome"] == outcome, answer["sentence"]
    assert answer["ci_low"] <= power <= answer["ci_high"]


def test_a_sender_that_gets_less_makes_it_unfair(tmp_path: Path) -> None:
    def alter(trial: Trial, rng: np.random.Generator) -> None:
        del rng
        if trial.flow == 1:  # every second frame of the first sender is lost: rates 1 : 2
            trial.lost = np.arange(len(trial.lost)) % 2 == 1

    rows = run(tmp_path, "fan-in", [cell(senders=2)], alter=alter)
    assert pick(rows, "fairness", "jain")["estimate"] == pytest.approx(9 / 10, rel=0.001)


def test_multicast_replies_have_modes_and_groups_a_shift(tmp_path: Path) -> None:
    cells = [cell(to=to, receivers=n, kind="answers") for to in ("unicast", "multicast") for n in (0, 2)]
    rows = run(
        tmp_path,
        "multicast",
        cells,
        rounds=8,
        answer_ns=lambda rng, node, n: 10_000 + 14_000 * node + rng.gamma(4, 200, n),
        delay=lambda rng, factors, n: 5000 + 900 * (factors["to"] != "unicast") + rng.gamma(4, 200, n),
    )
    spaced = pick(rows, "peak_spacing", "mean", cell=3)
    assert spaced["estimate"] == pytest.approx(14_000, abs=20)
    assert [pick(rows, "peak", "p50", cell=3, node=node)["estimate"] for node in (1, 2, 3)] == pytest.approx(
        [24_734, 38_734, 52_734], abs=40
    )
    assert pick(rows, "response_latency", "mean", cell=3, node=2)["estimate"] == pytest.approx(38_800, abs=40)
    shift = pick(rows, "one_way_delay_shift", "mean", cell=2, against="to=unicast")
    assert holds(shift, 900)
    alone = pick(rows, "one_way_delay_shift", "mean", cell=3, against="receivers=0")
    assert abs(alone["estimate"]) < 150
    assert {row["port"] for row in rows if row["quantity"] == "one_way_delay"} == {0, 1, 2}


def test_cpu_effect_of_a_load_is_subtracted_using_the_bypass(tmp_path: Path) -> None:
    loads = [(0.0, None), (0.5, "through"), (0.5, "beside"), (0.9, "through"), (0.9, "beside")]
    cells = [cell(load=load, load_via=via) for load, via in loads]

    def delays(rng: np.random.Generator, factors: Row, n: int) -> Any:
        return 5000 + factors["load"] * (3000 if factors["load_via"] == "through" else 1000) + rng.gamma(4, 200, n)

    rows = run(tmp_path, "background", cells, delay=delays, rounds=12)
    assert holds(pick(rows, "one_way_delay_shift", "mean", cell=3, against="load=0.0"), 2700)
    own = pick(rows, "one_way_delay_shift", "mean", cell=3, against="load_via=beside")
    assert holds(own, 1800)
    assert (
        "A load of 90 % through the Linux bridge rather than past it lengthens the mean one-way delay by 1.8 µs"
        in verdict(tmp_path)["sentence"]
    )
    assert pick(rows, "modes", "count", cell=0)["estimate"] == 1


def test_two_modes_are_counted(tmp_path: Path) -> None:
    rows = run(tmp_path, "background", [cell()], delay=lambda rng, factors, n: np.where(
        rng.random(n) < 0.5, 5000, 9000) + rng.normal(0, 150, n))  # fmt: skip
    assert pick(rows, "modes", "count")["estimate"] == 2
    assert sorted(sample(tmp_path, "modes").filter(device="bridge")["mode_ns"]) == pytest.approx([6500, 10_500], abs=80)
    assert "several_modes" in found(tmp_path)


def late(trial: Trial, rng: np.random.Generator) -> None:
    trial.departure = trial.departure + np.where(rng.random(len(trial.departure)) < 0.2, 60_000, 0)


def counted(name: str, count: int) -> Callable[[Trial, np.random.Generator], None]:
    def alter(trial: Trial, rng: np.random.Generator) -> None:
        del rng
        trial.lost[:count] = True
        trial.counts[name] = count

    return alter


def changed(**values: Any) -> Callable[[Trial, np.random.Generator], None]:
    def alter(trial: Trial, rng: np.random.Generator) -> None:
        del rng
        for name, value in values.items():
            setattr(trial, name, value)

    return alter


def beyond_sent(trial: Trial, rng: np.random.Generator) -> None:
    del rng
    trial.counts["astray"] = 3


def uncounted(trial: Trial, rng: np.random.Generator) -> None:
    del rng
    trial.counters["a-bridge"] = {"tx_packets": len(trial.intended) - 5, "rx_packets": 0}


def negative(trial: Trial, rng: np.random.Generator) -> None:
    trial.delay = trial.delay - np.where(rng.random(len(trial.delay)) < 0.01, 50_000, 0)


def dead(trial: Trial, rng: np.random.Generator) -> None:
    del rng
    if trial.device == "bridge":
        trial.lost[:] = True


def mixed(trial: Trial, rng: np.random.Generator) -> None:
    del rng
    trial.source = "user" if trial.device == "bridge" else "kernel"


def only(name: str) -> Callable[[Trial, np.random.Generator], None]:
    def alter(trial: Trial, rng: np.random.Generator) -> None:
        del rng
        trial.counts[name] = 4

    return alter


PROVOCATIONS: dict[str, tuple[Callable[[Trial, np.random.Generator], None], Row, set[str]]] = {
    "sender_late": (late, {}, set()),
    "duration_stretched": (changed(offered=0.97), {}, set()),
    "local_drops": (counted("local_drops", 5), {}, {"buffer_too_small"}),
    "buffer_too_small": (counted("local_drops", 50), {}, {"local_drops"}),
    "corruption": (counted("corrupted", 5), {}, set()),
    "poisson_misfit": (changed(fit_p=1e-6), {"schedule": "poisson"}, set()),
    "not_conserved": (beyond_sent, {}, set()),
    "counts_contradict": (only("excess"), {}, set()),
    "negative_delay": (negative, {}, {"several_modes"}),
    "path_dead": (dead, {}, {"loss"}),
    "mixed_timestamps": (mixed, {}, {"user_timestamps"}),
    "user_timestamps": (changed(source="user"), {}, set()),
    "duplication": (only("duplicated"), {}, set()),
    "reordering": (only("reordered"), {}, set()),
    "late_frames": (only("late"), {}, set()),
}


@pytest.mark.parametrize("name", PROVOCATIONS)
def test_every_finding_of_streams_can_be_provoked(name: str, tmp_path: Path) -> None:
    alter, factors, besides = PROVOCATIONS[name]
    run(tmp_path, "one-way", [cell(**factors)], alter=alter)
    seen = found(tmp_path)
    assert name in seen
    assert seen.keys() <= {name, *besides, "loss"}


def test_frames_that_the_interface_did_not_count_are_not_conserved(tmp_path: Path) -> None:
    run(tmp_path, "one-way", [cell()], alter=uncounted)
    assert "not_conserved" in found(tmp_path)
    assert verdict(tmp_path)["verdict"] == "invalid"


def test_unsent_load_and_refused_frames_are_reported(tmp_path: Path) -> None:
    folder = RunFolder(StreamRun(tmp_path / "run", "one-way", [cell()]).write())
    path = folder.records / "streams-a-000.arrow"
    rewrite(path, lambda frame: frame.with_columns(asked=pl.col("sent") + 50, refused=pl.lit(50, dtype=pl.Int64)))
    analyse(folder.path)
    assert found(tmp_path).keys() == {"load_missed", "sender_refused"}


def test_clock_step_is_reported(tmp_path: Path) -> None:
    folder = RunFolder(StreamRun(tmp_path / "run", "one-way", [cell()]).write())
    step = pl.when(pl.col("block") > 20).then(5_000_000).otherwise(0)
    rewrite(
        folder.records / "streams-b-000.arrow",
        lambda frame: frame.with_columns((pl.col(one) - step).alias(one) for one in ("started_raw_ns", "ended_raw_ns")),
    )
    analyse(folder.path)
    assert found(tmp_path)["clock_stepped"]["value"] == pytest.approx(5e6)


def read(path: Path) -> pa.Table:
    """A record as it lies there."""
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
        return stream.read_all()


def rewrite(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Write a record again, changed."""
    table = read(path)
    changed = change(pl.DataFrame(table)).to_arrow().cast(table.schema)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(changed)


def test_repeated_trial_is_not_analysed(tmp_path: Path) -> None:
    folder = RunFolder(StreamRun(tmp_path / "run", "one-way", [cell()], rounds=8).write())
    events = [json.loads(line) for line in folder.log.read_text().splitlines()]
    trials = [event for event in events if event["event"] == "stream-trial"]
    trials[0]["kept"] = False
    folder.log.write_text("".join(json.dumps(event) + "\n" for event in events))
    analyse(folder.path)
    kept = sample(tmp_path, "trials")["block"].unique().to_list()
    assert set(kept) == {event["block"] for event in trials[1:]}


def test_histograms_replace_packets_that_were_not_kept(tmp_path: Path) -> None:
    whole = StreamRun(
        tmp_path / "run", "one-way", [cell()], rounds=8, lose=lambda rng, factors, n: rng.random(n) < 0.02
    )
    folder = RunFolder(whole.write())
    kept = pl.concat([pl.DataFrame(read(path)) for path in folder.records.glob("arrivals-b-*")])
    delay = ((pl.col("arrival_ns") - pl.col("sent_ns")) // 20 * 20).alias("low")
    bins = kept.group_by("block", "flow", "port", delay).len("count")
    bins = bins.with_columns(
        high=pl.col("low") + 19, role=pl.lit("receive"), quantity=pl.lit("delay"), unit=pl.lit("ns")
    )
    made_up.write_table(folder.records / "histograms-b-000.arrow", "histograms", bins)
    for path in [*folder.records.glob("arrivals-*"), *folder.records.glob("sends-*")]:
        path.unlink()
    analyse(folder.path)
    rows = json.loads(folder.results.read_text())
    median = pick(rows, "one_way_delay", "p50")
    assert median["estimate"] == pytest.approx(MEDIAN_NS + 1500 + 400 + 20, abs=80)  # 2 % lost: the median is p51
    assert pick(rows, "one_way_delay", "p99")["estimate"] is None
    assert median["clock_bound_ns"] == 0


def test_the_same_records_give_the_same_analysis(tmp_path: Path) -> None:
    first = run(tmp_path, "one-way", [cell(), cell(schedule="poisson")])
    analyse(tmp_path / "run")
    assert json.loads(RunFolder(tmp_path / "run").results.read_text()) == first


def figure(statistic: str, estimate: float, low: float | None, high: float | None) -> Figure:
    return Figure("bridge", "delay", statistic, Interval(estimate, low, high, 0.95, 9), "ns", cell=0)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([figure("mean", 5, 4, 6)], False),
        ([figure("mean", 7, 4, 6)], True),
        ([figure("ratio", -0.1, None, None)], True),
        ([figure("p50", 5, 4, 6), figure("p99", 9, 8, 10)], False),
        ([figure("p50", 5, 4, 6), figure("p99", 4, 3, 5)], True),
        ([figure("p99", float("inf"), 8, float("inf"))], False),
    ],
)
def test_impossible_figure_is_a_finding(rows: list[Figure], wrong: bool) -> None:
    assert ([one.name for one in sound(rows)] == ["impossible"]) == wrong


def test_clock_ticks_are_not_modes() -> None:
    rng = np.random.default_rng(3)
    assert len(modes_apart(np.round(rng.normal(250, 25, 20_000) / 10) * 10 + (rng.random(20_000) < 0.01))) == 1


def test_minimum_of_the_sender_is_not_attributed_to_the_device(tmp_path: Path) -> None:
    def alter(trial: Trial, rng: np.random.Generator) -> None:
        del rng
        trial.offered = 0.7 if trial.factors["interval_ns"] < 50_000 else 1.0

    rows = run(tmp_path, "one-way", [cell(interval_ns=interval) for interval in (100_000, 50_000, 20_000)], alter=alter)
    shortest = pick(rows, "min_frame_interval", "at_most")
    assert (shortest["estimate"], shortest["ci_low"]) == (50_000, None)
    assert pick(rows, "min_frame_interval", "next_tried")["estimate"] == 20_000
    assert "tester_limited" in found(tmp_path)
    told = verdict(tmp_path)
    assert "queues stay stable at 50 µs" in told["sentence"]
    assert "the tester could not keep the next shorter time that was tried, 20 µs" in told["sentence"]
    assert told["verdict"] == "trusted", "an overload that was asked for, to see what it does, doubts nothing"
    notes = {one["name"]: one for one in told["findings"]}
    for name in ("tester_limited", "duration_stretched"):
        assert notes[name]["severity"] == "note"
        assert {place["cell"] for place in notes[name]["places"]} == {2}


def test_a_load_missed_at_a_stable_rate_is_doubtful(tmp_path: Path) -> None:
    def alter(trial: Trial, rng: np.random.Generator) -> None:
        del rng
        slow = trial.factors["interval_ns"] == 100_000 and trial.round == 0
        trial.offered = 0.7 if slow or trial.factors["interval_ns"] < 50_000 else 1.0

    run(tmp_path, "one-way", [cell(interval_ns=interval) for interval in (100_000, 50_000, 20_000)], alter=alter)
    told = verdict(tmp_path)
    stretched = {one["severity"]: one for one in told["findings"] if one["name"] == "duration_stretched"}
    assert told["verdict"] == "doubtful"
    assert {place["cell"] for place in stretched["doubtful"]["places"]} == {0}
    assert {place["cell"] for place in stretched["note"]["places"]} == {2}


def test_queue_growing_in_the_sender_is_visible_from_intended_departures(tmp_path: Path) -> None:
    def alter(trial: Trial, rng: np.random.Generator) -> None:
        del rng
        if trial.factors["interval_ns"] == 20_000:
            trial.departure = trial.departure + (trial.intended - trial.intended[0]) // 10

    rows = run(tmp_path, "one-way", [cell(interval_ns=100_000), cell(interval_ns=20_000)], alter=alter, rounds=6)
    assert pick(rows, "queue_growth", "trend", cell=1)["estimate"] == pytest.approx(0.1, rel=0.05)
    assert pick(rows, "queue_stable", "ratio", cell=1)["estimate"] == 0
    assert pick(rows, "queue_stable", "ratio", cell=0)["estimate"] == 1
    assert np.abs(sample(tmp_path, "growth").filter(cell=1)["path_growth"].to_numpy()).max() < 0.05


def test_tester_limited_maximum_rate_is_a_note(tmp_path: Path) -> None:
    clean = {"event": "qualified", "send_engine": "packet", "frame_bytes": 64, "clean_pps": 10_000.0}
    rows = run(tmp_path, "throughput", [cell(**FLOOD)], log=[clean])
    assert pick(rows, "throughput_pps", "at_least")["estimate"] > 9_000
    assert found(tmp_path)["tester_limited"]["severity"] == "note"
    assert verdict(tmp_path)["verdict"] == "trusted"


def test_the_verdict_discloses_the_engines(tmp_path: Path) -> None:
    run(tmp_path, "one-way", [cell()], rounds=2)
    streams = RunFolder(tmp_path / "run")
    engines = json.loads(streams.verdict.read_text())["engines"]
    assert set(engines) == {"send", "receive"}


def test_packets_of_repeated_trials_are_not_even_read(tmp_path: Path) -> None:
    run(tmp_path, "one-way", [cell()], rounds=2)
    records = RunFolder(tmp_path / "run").records
    every, one = read_table(records, "sends"), read_table(records, "sends", {1})
    assert one.frame.equals(every.frame.filter(pl.col("block") == 1))
    assert len(one.parts) == len(every.parts)


@pytest.mark.parametrize(
    ("share", "said"),
    [(1.0, "100 %"), (0.95, "95 %"), (0.999, "99.9 %"), (0.005, "0.5 %"), (0.696, "70 %"), (0.0312, "3.1 %"),
     (0.0, "0 %"), (0.00002, "0.002 %"), (-0.31, "\N{MINUS SIGN}31 %")],
)  # fmt: skip
def test_percentages_are_formatted_short(share: float, said: str) -> None:
    assert percent(share) == said


def test_cell_labels_are_readable() -> None:
    common: Row = {"probe": "packet", "engine": "packet", "frame_bytes": 64}
    assert Factors(**common, schedule="poisson", interval_ns=3000).describe() == "packet, 64 B, poisson 3 µs"
    assert Factors(**common, schedule="closed-loop", interval_ns=0).describe() == "packet, 64 B, closed loop"
    assert Factors(**common, schedule="flood").describe() == "packet, 64 B, flood"
    assert Factors(**common, schedule="regular").describe() == "packet, 64 B, regular"
    assert "load 90 % beside" in Factors(**common, schedule="flood", load=0.9, load_via="beside").describe()


def test_unanswered_requests_are_reported(tmp_path: Path) -> None:
    run(tmp_path, "multicast", [cell(kind="answers", to="multicast", receivers=1)], rounds=6)
    assert found(tmp_path)["incomplete"]["value"] == 1
    assert verdict(tmp_path)["verdict"] == "doubtful"


def test_rate_limited_by_our_receiver_is_a_lower_limit(tmp_path: Path) -> None:
    rows = run(tmp_path, "throughput", [cell(**FLOOD)], alter=counted("local_drops", 100))
    assert pick(rows, "throughput_pps", "at_least")["unit"] == "1/s"
    assert found(tmp_path)["local_drops"]["severity"] == "doubtful"


@pytest.mark.parametrize(
    ("low", "high", "than_unicast", "stage", "load"),
    [
        (
            1000.0,
            3000.0,
            "takes 2.0 µs (95 % CI 1.0 µs to 3.0 µs) longer",
            "adds 2.0 µs (95 % CI 1.0 µs to 3.0 µs)",
            "lengthens",
        ),
        (-3000.0, -1000.0, "takes 2.0 µs (95 % CI 1.0 µs to 3.0 µs) less", "changes the stage path by", "shortens"),
        (
            -1000.0,
            5000.0,
            "do not differ significantly",
            "shows no effect on the stage path, with an interval that holds zero: 2.0 µs",
            "shows no effect on the mean round trip: 2.0 µs (95 % CI −1.0 µs to 5.0 µs), an interval that holds zero",
        ),
        (None, None, "too few trials for an interval", "too few trials for an interval", "too few trials"),
    ],
)
def test_a_sentence_claims_no_effect_whose_interval_holds_zero(
    low: float | None, high: float | None, than_unicast: str, stage: str, load: str
) -> None:
    middle = 2000.0 if low is None or high is None else (low + high) / 2
    value = Interval(middle, low, high, 0.95, 10)
    assert than_unicast in multicast._than_unicast(value)
    assert stage in stages._adds("The bridge", "path", value)
    assert load in background._change(Figure("bridge", "rtt_shift", "mean", value, "ns"))
