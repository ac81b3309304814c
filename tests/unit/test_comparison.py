"""Two runs compared: intervals that hold the true difference, answers that are right, a table of 80 columns."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from sojourn.analysis import analyse
from sojourn.analysis.comparison import (
    BEDS,
    BETTER,
    BOOTS,
    DIFFERS,
    EQUIVALENT,
    NOTHING_SHARED,
    ONE_BED,
    OPEN,
    USUAL_MARGIN,
    WORSE,
    Known,
    Margin,
    difference,
    key_of,
    over_all,
    shared_results,
    standard_error,
)
from sojourn.analysis.leading import LEADING, LESS_IS_BETTER, MORE_IS_BETTER
from sojourn.cli import compare as command
from sojourn.cli.compare import read_fail_on, read_margin, status_of
from sojourn.errors import RequestError
from sojourn.records.results import RESULTS
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.nested import Component, Scatter, between_groups, within_groups
from tests.unit.in_process import sojourn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NO_MARGIN = Margin()


def row_of(value: Interval, **factors: Any) -> dict[str, Any]:
    """A row of results; by default of the bridge's latency."""
    named = {"device": "bridge", "reference": "direct", "quantity": "device_latency", "statistic": "mean", "unit": "ns"}
    ends: dict[str, Any] = {
        "ci_low": value.low,
        "ci_high": value.high,
        "level": value.level,
        "n": value.n,
        "findings": [],
    }
    return dict.fromkeys(RESULTS) | named | {"estimate": value.estimate} | ends | factors


def around(estimate: float, half: float = 10.0, n: int = 30, **factors: Any) -> dict[str, Any]:
    return row_of(Interval(estimate, estimate - half, estimate + half, 0.95, n), **factors)


def answered(one: dict[str, Any], two: dict[str, Any], margin: Margin = NO_MARGIN) -> dict[str, Any]:
    """The one figure that two runs share."""
    return shared_results([one], [two], margin)[0]


@pytest.mark.parametrize(("sizes", "level"), [((12, 12), 0.95), ((8, 20), 0.95), ((12, 12), 0.99)])
def test_interval_of_a_difference_covers_it(sizes: tuple[int, int], level: float) -> None:
    """Runs that differ by 130: 95 % of the intervals hold it, whatever level their own intervals have."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(600):
        one, two = (row_of(student_t(rng.normal(m, 100, n), level)) for m, n in zip((0, 130), sizes, strict=True))
        found = difference(one, two)
        held += found["ci_low"] <= 130 <= found["ci_high"]
    assert 0.93 <= held / 600 <= 0.985


def test_p_value_agrees_with_the_interval() -> None:
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(400):
        low, high = rng.exponential(10, 2)
        lopsided = row_of(Interval(shift := rng.normal(0, 20), shift - low, shift + high, 0.95, 9))
        found = difference(around(0, 8, n=14), lopsided)
        assert (found["p"] < 0.05) == (not found["ci_low"] <= 0 <= found["ci_high"])
        seen.add(found["p"] < 0.05)
    assert seen == {True, False}


def test_p_value_is_uniform_without_a_difference() -> None:
    rng = np.random.default_rng(5)
    pairs = [[row_of(student_t(rng.normal(0, 1, 10))) for _ in range(2)] for _ in range(1000)]
    p = [difference(one, two)["p"] for one, two in pairs]
    assert 0.03 <= np.mean(np.array(p) < 0.05) <= 0.065
    assert 0.45 <= np.mean(np.array(p) < 0.5) <= 0.55


def test_few_of_the_reported_differences_are_false() -> None:
    """40 figures of which 30 are alike: of those reported, 5 % at most are among the 30."""
    rng = np.random.default_rng(11)
    shares = []
    for _ in range(100):
        one = [row_of(student_t(rng.normal(0, 1, 12)), icmp_bytes=size) for size in range(40)]
        two = [row_of(student_t(rng.normal(2.0 * (size < 10), 1, 12)), icmp_bytes=size) for size in range(40)]
        told = [row["icmp_bytes"] for row in shared_results(one, two, NO_MARGIN) if row["answer"] != OPEN]
        shares.append(sum(size >= 10 for size in told) / max(1, len(told)))
        assert sum(size < 10 for size in told) >= 7
    assert np.mean(shares) <= 0.06


def test_lower_latency_and_higher_throughput_are_better() -> None:
    assert answered(around(1000), around(1100))["answer"] == WORSE
    assert answered(around(1000), around(900))["answer"] == BETTER
    rate: dict[str, Any] = {"quantity": "throughput_pps", "unit": "1/s", "reference": None}
    assert answered(around(1000, **rate), around(1100, **rate))["answer"] == BETTER
    assert answered(around(1000, **rate), around(900, **rate))["answer"] == WORSE
    assert answered(around(1000), around(1005))["answer"] == OPEN


def test_neither_is_better_where_no_direction_is_known() -> None:
    assert answered(around(0, device="a/a"), around(100, device="a/a"))["answer"] == DIFFERS
    error: dict[str, Any] = {"quantity": "emulated_delay_error"}
    assert answered(around(1000, **error), around(900, **error))["answer"] == DIFFERS
    assert not LESS_IS_BETTER & MORE_IS_BETTER
    known = LESS_IS_BETTER | MORE_IS_BETTER | {"emulated_delay_error", "resolution"}
    assert {quantity for quantity, _ in LEADING} <= known


def test_equivalent_means_an_interval_entirely_within_the_margin() -> None:
    near = around(1000, 20), around(1010, 20)  # 1000 to 1010: -18 to 38
    assert answered(*near, Margin(relative=0.05))["answer"] == EQUIVALENT
    assert answered(*near, Margin(relative=0.03))["answer"] == OPEN
    assert answered(*near, Margin(relative=0.001, time_ns=40))["answer"] == EQUIVALENT
    assert answered(*near, NO_MARGIN)["answer"] == OPEN
    surely = around(1000, 1), around(1010, 1)
    assert answered(*surely, Margin(relative=0.05))["answer"] == EQUIVALENT, "surely not zero, but it does not matter"
    assert answered(*surely, Margin(relative=0.005))["answer"] == WORSE
    loss: dict[str, Any] = {"quantity": "loss_ratio", "statistic": "ratio", "unit": "1"}
    nothing = row_of(Interval(0, 0, 0.0005, 0.95, 10), **loss)
    assert answered(nothing, nothing, Margin(relative=0.05))["answer"] == OPEN, "a share of nothing is nothing"
    assert answered(nothing, nothing, USUAL_MARGIN)["answer"] == EQUIVALENT


def test_figure_without_an_interval_is_inconclusive() -> None:
    bare = row_of(Interval(5000, None, None, 0.95, 1))
    found = answered(around(1000), bare)
    assert (found["difference"], found["p"], found["answer"]) == (4000, None, OPEN)
    assert over_all([found]) == OPEN


def test_overall_answer_is_the_worst_one() -> None:
    def over(*seconds: float) -> str:
        one = [around(1000, icmp_bytes=number) for number in range(len(seconds))]
        two = [around(value, icmp_bytes=number) for number, value in enumerate(seconds)]
        return over_all(shared_results(one, two, Margin(relative=0.02)))

    assert over(1001, 1000) == EQUIVALENT
    assert over(1001, 1010) == OPEN
    assert over(800, 1010) == BETTER
    assert over(800, 1200, 1000) == WORSE
    assert over_all([]) == NOTHING_SHARED


def test_only_leading_figures_decide() -> None:
    figures = [around(value, quantity="pdv", statistic="p50") for value in (1000, 2000)]
    found = shared_results([figures[0], around(7)], [figures[1], around(7)], NO_MARGIN)
    assert [row["answer"] for row in found] == [WORSE, OPEN]
    assert over_all(found) == OPEN


def test_only_intervals_over_sessions_of_both_runs_cover_another_bed() -> None:
    assert answered(around(1), around(1))["covers"] == ONE_BED
    assert answered(around(1, sessions=8), around(1))["covers"] == ONE_BED
    assert answered(around(1, sessions=8), around(1, sessions=20))["covers"] == BEDS
    over_eight = difference(around(0, 10, n=50, sessions=8), around(16, 10, n=50, sessions=8))
    over_pairs = difference(around(0, 10, n=50), around(16, 10, n=50))
    assert over_eight["p"] > over_pairs["p"], "eight beds have seven degrees of freedom, however many pairs there are"


def test_an_interval_of_pairs_within_beds_covers_no_other_bed() -> None:
    """Two beds give no interval between beds: what there is counts pairs, as within_bed and the pseudomedian do."""
    of_one_bed = answered(around(0, n=50), around(16, n=50))
    for name, beds in (("mean", 2), ("within_bed", 8), ("hodges_lehmann", 8)):
        one, two = (around(value, n=50, statistic=name, sessions=beds) for value in (0, 16))
        found = answered(one, two)
        assert (found["covers"], found["p"]) == (ONE_BED, of_one_bed["p"]), name
        assert [side["sessions"] for side in found["runs"]] == [beds, beds], "what is shown is what was measured"
    three = answered(around(0, n=50, sessions=3), around(16, n=50, sessions=3))
    assert three["covers"] == BEDS
    assert three["p"] > of_one_bed["p"]


def component(between: float, within: float = 5.0, groups: int = 8) -> Component:
    return Component(between, 0.0, 2 * between, within, 3.0 * groups, groups, 4 * groups)


def with_history(sides: tuple[dict[str, Any], dict[str, Any]], of: Component, *, same: bool = False) -> dict[str, Any]:
    """Both rows compared where the history has this component of both beds."""
    one, two = sides
    known = {key_of(one): of}
    own = standard_error(one)
    more = max(0.0, of.within**2 - own**2) ** 0.5
    scatter = {key_of(one): Scatter(more, round(of.within_degrees))} if of.is_replicated else {}
    return shared_results([one], [two], NO_MARGIN, Known((known, known), same, (scatter, scatter)))[0]


def test_scatter_between_boots_is_in_the_interval() -> None:
    beds = around(1000, 20, sessions=8), around(1060, 20, sessions=8)
    alone, widened = answered(*beds), with_history(beds, component(50.0))
    assert (alone["answer"], alone["covers"], alone["between_boots"]) == (WORSE, BEDS, None)
    assert (widened["answer"], widened["covers"]) == (OPEN, BOOTS)
    assert widened["between_boots"] == {"sd": 50.0, "occasions": 8}
    assert widened["ci_high"] - widened["difference"] > 2 * 50 * 2**0.5
    assert with_history(beds, component(0.0))["answer"] == WORSE, "boots that are alike widen nothing"
    same = with_history(beds, component(50.0), same=True)
    assert (same["answer"], same["covers"], same["ci_low"]) == (WORSE, BEDS, alone["ci_low"])


def test_runs_of_one_bed_take_the_scatter_of_runs_from_the_history() -> None:
    bed = around(1000, 20), around(1060, 20)
    assert answered(*bed)["answer"] == WORSE
    same = with_history(bed, component(0.0, within=60.0), same=True)
    assert (same["answer"], same["covers"]) == (OPEN, BEDS)
    assert with_history(bed, component(0.0, within=60.0))["covers"] == BOOTS
    one_run_each = Component(0.0, 0.0, 0.0, 60.0, float("inf"), 8, 8)
    assert with_history(bed, one_run_each, same=True)["covers"] == ONE_BED, "nobody saw two beds of one boot"


def test_runs_over_beds_that_differ_by_more_than_their_intervals_take_the_scatter_of_runs_too() -> None:
    """Seven other runs on one boot are enough; no component between boots is known then."""
    beds = around(1000, 20, sessions=8), around(1090, 20, sessions=8)
    key = key_of(beds[0])

    def with_scatter(sd: float) -> dict[str, Any]:
        known = Known(repeats=({}, {key: Scatter(sd, 6)}), same_occasion=True)
        return shared_results([beds[0]], [beds[1]], NO_MARGIN, known)[0]

    assert (answered(*beds)["answer"], answered(*beds)["between_runs"]) == (WORSE, None)
    drifting = with_scatter(80.0)
    assert (drifting["answer"], drifting["covers"]) == (OPEN, BEDS)
    assert drifting["between_runs"] == {"sd": 80.0, "degrees": 6}
    assert with_scatter(0.0)["ci_low"] == answered(*beds)["ci_low"], "runs that scatter as they say widen nothing"


@pytest.mark.parametrize("drift", [0.0, 10.0, 40.0])
@pytest.mark.parametrize("others", [7, 20])
def test_with_the_history_an_interval_holds_where_runs_of_a_day_drift(drift: float, others: int) -> None:
    """Beds that differ by 30, eight in a run; runs that drift beyond that, whose size others of the day tell."""
    rng = np.random.default_rng(12)
    held = 0

    def run() -> dict[str, Any]:
        return row_of(student_t(rng.normal(rng.normal(1000, drift), 30, 8)), sessions=8)

    for _ in range(400):
        history = [run() for _ in range(others)]
        values = np.array([one["estimate"] for one in history])
        scatter = within_groups(values, ["day"] * others, np.array([standard_error(one) for one in history]))
        assert scatter is not None
        one, two = run(), run()
        of = {key_of(one): scatter}
        found = shared_results([one], [two], NO_MARGIN, Known(same_occasion=True, repeats=(of, of)))[0]
        held += found["ci_low"] <= 0 <= found["ci_high"]
    print(f"drift {drift}, {others} other runs: {held / 4:.1f} % held")
    assert 0.92 <= held / 400 <= 0.995, "of 3,000 such runs 94 to 96 % held"


@pytest.mark.parametrize(("between", "sessions"), [(0.0, 8), (20.0, 8), (60.0, 8), (60.0, None)])
def test_with_the_history_an_interval_holds_across_boots(between: float, sessions: int | None) -> None:
    """Runs on boots of their own, beds that differ by 30, and a history of eight boots with three runs each."""
    rng = np.random.default_rng(9)
    held = 0

    def run_of(boot: float) -> dict[str, Any]:
        if sessions:
            return row_of(student_t(rng.normal(boot, 30, sessions)), sessions=sessions)
        return row_of(student_t(rng.normal(boot + rng.normal(0, 30), 40, 30)))

    for _ in range(400):
        boots = np.repeat(rng.normal(1000, between, 8), 3)
        runs = [run_of(boot) for boot in boots]
        values = np.array([one["estimate"] for one in runs])
        of = between_groups(values, [number // 3 for number in range(24)], np.full(24, np.nan))
        assert of is not None
        found = with_history((run_of(rng.normal(1000, between)), run_of(rng.normal(1000, between))), of)
        held += found["ci_low"] <= 0 <= found["ci_high"]
    assert held / 400 >= 0.93


def test_figures_differ_by_the_settings_of_the_log() -> None:
    assert key_of(around(1) | {"flows": 1}) != key_of(around(1) | {"flows": 10})


@pytest.mark.parametrize(
    ("text", "margin"),
    [
        ("5%", Margin(relative=0.05)),
        ("100ns", Margin(time_ns=100)),
        ("1.5%, 0.2us", Margin(relative=0.015, time_ns=200)),
        ("0.1pp", Margin(share=0.001)),
        ("5%,50ns,0.1pp", USUAL_MARGIN),
    ],
)
def test_a_margin_is_read(text: str, margin: Margin) -> None:
    assert read_margin(text) == margin


@pytest.mark.parametrize("text", ["", "5", "5 bananas", "-5%", "5%;1ns"])
def test_a_wrong_margin_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"is none of 5%, 100ns, 0\.1pp"):
        read_margin(text)


def test_exit_status_follows_the_options() -> None:
    def status(answer: str, fail_on: str = "worse", verdict: str = "trusted") -> int:
        return status_of({"answer": answer, "verdicts": ["trusted", verdict], "limits": []}, fail_on)

    assert [status(one) for one in (WORSE, BETTER, DIFFERS, EQUIVALENT, OPEN)] == [1, 0, 0, 0, 0]
    assert [status(one, "difference") for one in (WORSE, BETTER, DIFFERS, EQUIVALENT, OPEN)] == [1, 1, 1, 0, 0]
    assert [status(one, "inconclusive") for one in (WORSE, BETTER, DIFFERS, EQUIVALENT, OPEN)] == [1, 0, 0, 0, 1]
    assert status(WORSE, "never") == 0
    assert status(EQUIVALENT, verdict="invalid") == 4
    assert status(NOTHING_SHARED) == 2
    with pytest.raises(RequestError, match="--fail-on sometimes: expected worse, difference, inconclusive, never"):
        read_fail_on("sometimes", limited=False)
    with pytest.raises(RequestError, match="did you mean worse"):
        read_fail_on("worst", limited=False)


def made_up_run(path: Path, rows: list[dict[str, Any]], plan: str = "") -> Path:
    """A run folder with nothing in it but what is compared."""
    (path / "analysis").mkdir(parents=True)
    (path / "records").mkdir()
    (path / "plan.toml").write_text(f'[study]\nname = "made-up"\n{plan}')
    (path / "bed.json").write_text(json.dumps({"stable": {"kernel": path.name * 30}}))
    finding = {"name": "drift", "severity": "doubtful", "where": "bridge", "sentence": "it drifted " * 12}
    (path / "analysis/verdict.json").write_text(json.dumps({"verdict": "doubtful", "findings": [finding]}))
    (path / "analysis/results.json").write_text(json.dumps(rows))
    return path


@pytest.fixture
def long_named(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs whose figures have every condition that a figure can have, and large numbers."""
    stream: dict[str, Any] = {
        "engine": "packet", "frame_bytes": 1518, "payload_bytes": 1472, "interval_ns": 123_456, "schedule": "poisson",
        "to": "multicast", "senders": 4, "receivers": 3, "load": 0.9, "load_via": "beside", "port": 3, "node": 2,
        "pipe": "delay 10ms loss 2% rate 100Mbit/s queue 100", "against": "load=0.0", "probe": "request-response",
    }  # fmt: skip
    rate: dict[str, Any] = {"quantity": "throughput_pps", "unit": "1/s", "statistic": "at_least", "reference": None}
    paths = []
    for number, shift in enumerate((0, 7)):
        rows = [
            around(123_456_789.0 + 1e6 * shift, 4321, device="emulate-bridge", reference="wire", **stream),
            around(1300.0 + 40 * shift, 31, sessions=8, frame_bytes=102, payload_bytes=56, probe="icmp"),
            around(4e6 + 1e5 * shift, 20_000, **rate),
            around(40.0 + shift, 2, **rate, frame_bytes=64, engine="xdp"),
        ]
        paths.append(made_up_run(tmp_path / f"run-{number}", rows, f"[pairs]\nrounds = [{number}{', 123456' * 30}]\n"))
    return paths[0], paths[1]


def test_table_fits_80_columns_without_wrapped_cells(
    long_named: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "Console", lambda **asked: Console(width=80, **asked))
    compared = command.compare_runs(*long_named)
    command.print_comparison(compared)
    lines = capsys.readouterr().out.splitlines()
    runs = [line for line in lines if not line.startswith("/")]  # a path is one word, however long
    assert max(len(line) for line in runs) <= 80, "\n".join(lines)
    told = [line for line in lines if re.search(r" (better|worse|equivalent|inconclusive)\*?$", line)]
    assert len(told) == 4, "one line has all numbers of a figure"
    assert all(" to " in line for line in told)
    assert sum(line.endswith("*") for line in told) == 3, "all but that over sessions"


def test_answer_states_the_beds_it_covers(tmp_path: Path) -> None:
    one = made_up_run(tmp_path / "one", [around(1000)])
    two = made_up_run(tmp_path / "two", [around(1500)])
    done = sojourn("compare", str(one), str(two))
    assert done.returncode == 1
    words = " ".join(done.stdout.split())
    assert words.startswith("Worse (another bed is not covered): of 1 leading figure 1 worse;")
    assert "Another bed is not covered" in words
    beds = [made_up_run(tmp_path / f"beds-{at}", [around(at, sessions=8)]) for at in (1000, 1500)]
    words = " ".join(sojourn("compare", *map(str, beds)).stdout.split())
    assert words.startswith("Worse (reboots and other days are not covered): of 1 leading figure 1 worse;")
    assert "Another bed is not covered" not in words
    assert "Reboots and other days are not covered" in words


def test_options_affect_the_answer(tmp_path: Path) -> None:
    runs = [str(made_up_run(tmp_path / f"at-{at}", [around(at, 1)])) for at in (1000, 1040)]
    assert sojourn("compare", *runs).returncode == 0, "40 ns are within the usual margin"
    assert sojourn("compare", *runs, "--margin", "1%").returncode == 1
    assert sojourn("compare", *runs, "--margin", "1%", "--fail-on", "never").returncode == 0
    done = sojourn("compare", *runs, "--margin", "much")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_runs_without_common_figures_fail(tmp_path: Path) -> None:
    runs = [str(made_up_run(tmp_path / name, [around(1000, device=name)])) for name in ("bridge", "wire")]
    done = sojourn("compare", *runs)
    assert done.returncode == 2
    assert done.stdout.startswith("The runs have no figure in common")


ROUNDS, BEDS_OF_A_RUN = 16, 8


def beds_apart(seed: int) -> Callable[..., None]:
    """Beds whose bridges differ by a standard deviation of 60 ns one way."""
    apart = np.random.default_rng(seed).normal(0, 60, BEDS_OF_A_RUN)

    def alter(block: dict[str, Any], probes: dict[str, Any], _rng: Any) -> None:
        if block["device"] == "bridge":
            for column in ("arrival_ns", "receive_call_ns"):
                probes[column] = probes[column] + round(2 * apart[block["round"] * BEDS_OF_A_RUN // ROUNDS])

    return alter


def compared_over_wire(one: str, two: str) -> tuple[str, int, dict[str, Any]]:
    """The answer over all of two runs, the exit status, and the row of the bridge over the wire."""
    done = sojourn("compare", one, two, "--json", "--no-history", "--fail-on", "worse")
    told = json.loads(done.stdout)
    [row] = [
        one for one in told["results"]
        if (one["device"], one["reference"], one["quantity"], one["statistic"])
        == ("bridge", "wire", "device_latency", "mean")
    ]  # fmt: skip
    return told["answer"], done.returncode, row


def test_difference_of_half_a_microsecond_is_detected_and_none_between_equal_devices(
    synthetic: Callable[..., Any],
) -> None:
    """Runs of eight beds each, from their records to the answer and its exit status."""
    runs = []
    for seed, latency in ((1, 1300.0), (2, 1300.0), (3, 1800.0)):
        made = synthetic(
            sessions=BEDS_OF_A_RUN, rounds=ROUNDS, icmp_bytes=(64,), seed=seed,
            latency_ns={"wire": 1100.0, "bridge": latency}, alter=beds_apart(seed),
        )  # fmt: skip
        analyse(made.write())
        runs.append(str(made.path))
    first, alike, slower = runs
    for two, truth, answers, expected in ((alike, 0, {EQUIVALENT, OPEN}, 0), (slower, 500, {WORSE}, 1)):
        answer, status, row = compared_over_wire(first, two)
        assert answer in answers
        assert row["answer"] in answers
        assert status == expected
        assert row["ci_low"] < row["difference"] < row["ci_high"]
        assert abs(row["difference"] - truth) < 200
    answer, status, row = compared_over_wire(slower, first)
    assert (answer, row["answer"], status) == (BETTER, BETTER, 0)
