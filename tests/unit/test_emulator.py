"""An emulator without fault passes, and known faults of others fail: run folders made up, truth in, verdicts out."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest
import typer

from sojourn.analysis import analyse
from sojourn.analysis.checks import ALARM, Asked, Checks
from sojourn.cli.emulate import conclude
from sojourn.errors import RequestError
from sojourn.methods.emulator.analyse import seen
from sojourn.methods.emulator.analyse.loss import LEAST_LOSSES, Share, deviating
from sojourn.methods.emulator.analyse.seen import cut_blocks
from sojourn.records import RunFolder
from sojourn.records.events import EMULATION
from sojourn.records.shape import misfit
from sojourn.statistics.interval import Interval
from sojourn.statistics.randomness import runs_test
from tests.unit.made_up_emulator import Cell, Made, Rng, constant, losing, stays
from tests.unit.made_up_link import leave

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Draws = Callable[[Rng, NDArray[np.int64]], NDArray[np.int64]]

MS = 1_000_000
FREE: dict[str, Any] = {"constant": 20 * MS, "jitter": {"normal": {"sd": 2 * MS}}, "order": "free"}
SEED = 20_261_121


def analysed(path: Path, made: Made) -> dict[str, Any]:
    """The verdict of a run made up, its checks by name and source."""
    print(f"seed {made.seed}")
    verdict = analyse(made.write(path / "run")).tidy()
    return verdict | {"by": {(one["cell"], one["check"], one["of"]): one for one in verdict["checks"]}}


def failed(verdict: dict[str, Any]) -> set[str]:
    return {one["check"] for one in verdict["checks"] if one["verdict"] == "fail"}


def normal(mean: int, sd: int) -> Draws:
    return lambda rng, entered: np.maximum(0, np.round(rng.normal(mean, sd, len(entered)))).astype(np.int64)


def correlated(mean: int, sd: int, half_life: int) -> Draws:
    """A Gaussian copula over time: each score is what is left of the one before, and new."""

    def draw(rng: Rng, entered: NDArray[np.int64]) -> NDArray[np.int64]:
        rho, new = 2.0 ** (-np.diff(entered) / half_life), rng.normal(size=len(entered))
        z = new.copy()
        for i, kept in enumerate(rho):
            z[i + 1] = kept * z[i] + (1 - kept**2) ** 0.5 * new[i + 1]
        return np.round(mean + sd * z).astype(np.int64)

    return draw


def bernoulli(p: float) -> Callable[[Rng, int], NDArray[np.bool_]]:
    return lambda rng, n: rng.random(n) < p


def gilbert(p: float, r: float) -> Callable[[Rng, int], NDArray[np.bool_]]:
    def lose(rng: Rng, n: int) -> NDArray[np.bool_]:
        bad, u, found = rng.random() < p / (p + r), rng.random(n), np.zeros(n, dtype=np.bool_)
        for i in range(n):
            found[i] = bad
            bad = u[i] >= r if bad else u[i] < p
        return found

    return lose


def link(rate: float, constant_ns: int, asked_bps: int = 10_000_000, interval_ns: int = 700_000) -> Cell:
    """A link of this true rate, asked to have another one."""
    pipe = {"delay": {"constant": constant_ns}, "link": {"rate_bps": asked_bps, "overhead_bytes": 24}}

    def stay(_rng: Rng, entered: NDArray[np.int64]) -> NDArray[np.int64]:
        bits = np.full(len(entered), (1000 - 4 + 24) * 8)
        return leave(entered, bits, rate) - entered + constant_ns  # type: ignore[arg-type]

    return Cell("rate 10Mbit/s delay 5ms", pipe, stay, drawn=stays(constant_ns), packets=1500, frame_bytes=1000,
                interval_ns=interval_ns, poisson=False)  # fmt: skip


FAULTLESS = {
    "constant": Cell("delay 10ms", constant(10 * MS), stays(10 * MS)),
    "normal": Cell("delay 20ms jitter 2ms order free", {"delay": FREE}, normal(20 * MS, 2 * MS), packets=5000),
    "correlated": Cell(
        "half-life 10ms", {"delay": FREE | {"half_life": 10 * MS}}, correlated(20 * MS, 2 * MS, 10 * MS), packets=5000
    ),
    "exponential": Cell(
        "exponential",
        {"delay": {"constant": MS, "jitter": {"exponential": {"mean": MS}}, "order": "free"}},
        lambda rng, entered: (MS + rng.exponential(MS, len(entered))).astype(np.int64),
        packets=5000,
    ),
    "independent": Cell(
        "loss 10%", losing({"independent": {"probability": 0.1}}), stays(0), bernoulli(0.1), packets=4000
    ),
    "behind": Cell(
        "loss 10% after", losing({"independent": {"probability": 0.1}}, "after"), stays(0), bernoulli(0.1), packets=4000
    ),
    "gilbert": Cell(
        "loss 5% burst 4", losing({"gilbert-elliott": {"p": 0.05 / 0.95 / 4, "r": 0.25, "h": 0.0, "k": 1.0}}), stays(0),
        gilbert(0.05 / 0.95 / 4, 0.25), packets=6000,
    ),
    "rate": link(10_000_000, 5 * MS),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTLESS)
def test_correct_emulator_passes(tmp_path: Path, name: str) -> None:
    verdict = analysed(tmp_path, Made([FAULTLESS[name]], seed=SEED))
    assert failed(verdict) == set()
    passed = [one for one in verdict["checks"] if one["verdict"] == "pass"]
    assert len(passed) >= 10
    drawn = pl.read_parquet(tmp_path / "run/analysis/samples/delay_distribution.parquet")
    assert drawn.is_empty() == (name not in ("normal", "correlated", "exponential"))


def test_jitter_without_reordering_keeps_drawn_departure_times_and_mean(tmp_path: Path) -> None:
    """Packets leave at the drawn times in the order in which they came: the default under jitter."""
    draw, drawn = normal(20 * MS, 2 * MS), {}

    def stay(rng: Rng, entered: NDArray[np.int64]) -> NDArray[np.int64]:
        drawn["last"] = draw(rng, entered)
        return np.sort(entered + drawn["last"]) - entered

    cell = Cell("jitter", {"delay": FREE | {"order": "kept"}}, stay, drawn=lambda _r, _e: drawn["last"], packets=4000)
    verdict = analysed(tmp_path, Made([cell], seed=SEED))
    assert failed(verdict) == set()
    assert verdict["by"][0, "order kept, same times", "log"]["verdict"] == "pass"
    assert verdict["by"][0, "delay, mean", "streams"]["verdict"] == "pass"
    assert (0, "delay, distribution", "streams") not in verdict["by"], "no packet's own delay is the drawn one"


def netem(rng: Rng, n: int) -> NDArray[np.bool_]:
    """netem's own arithmetic of correlated loss: each value is 3/4 new and 1/4 the last, and no longer uniform."""
    last, found = rng.random(), np.zeros(n, dtype=np.bool_)
    for i, new in enumerate(rng.random(n)):
        last = 0.75 * new + 0.25 * last
        found[i] = last < 0.1
    return found


def test_correlated_loss_of_netem_fails(tmp_path: Path) -> None:
    """10 % with a correlation of 25 % loses 1.75 % there."""
    share = netem(np.random.default_rng(SEED), 200_000).mean()
    assert share == pytest.approx(0.0175, abs=0.002)
    p, r = 0.1 * 0.75, 0.9 * 0.75  # the chain of 10 % whose neighbours are correlated by 25 %
    asked = losing({"gilbert-elliott": {"p": p, "r": r, "h": 0.0, "k": 1.0}})
    verdict = analysed(tmp_path, Made([Cell("loss 10% 25%", asked, stays(0), netem, packets=4000)], seed=SEED))
    assert {"loss", "loss, gaps"} <= failed(verdict)
    assert verdict["by"][0, "loss", "streams"]["measured"] == pytest.approx(0.0175, abs=0.004)


def ticked(delay: int, tick: int) -> Draws:
    """dummynet's: a packet leaves on the last tick before its time."""
    return lambda _rng, entered: (entered + delay) // tick * tick - entered


def test_a_quantisation_error_of_a_tick_fails(tmp_path: Path) -> None:
    cells = [Cell(f"delay {ms}ms", constant(ms * MS), ticked(ms * MS, MS), drawn=stays(ms * MS)) for ms in (1, 10)]
    verdict = analysed(tmp_path, Made(cells, seed=SEED, log=False))
    assert {"delay, quantisation error", "delay, offset"} <= failed(verdict)
    for cell in (0, 1):
        height = verdict["by"][cell, "delay, quantisation error", "streams"]
        assert height["measured"] == pytest.approx(MS, rel=0.15), "as high as the tick"
    outcomes = {one["hypothesis"]: one["outcome"] for one in verdict["hypotheses"]}
    assert (outcomes["no-tick"], outcomes["no-shortfall"]) == ("rejected", "rejected")


@pytest.mark.parametrize(("tick", "outcome"), [(MS, "rejected"), (MS // 4, "rejected"), (1, "supported")])
def test_hypothesis_no_tick_is_supported_without_and_rejected_with_a_tick(
    tick: int, outcome: str, tmp_path: Path
) -> None:
    """The clock of the records counts ns: a tick of 1 ns is none."""
    cells = [Cell("delay 10ms", constant(10 * MS), ticked(10 * MS, tick), drawn=stays(10 * MS))]
    verdict = analysed(tmp_path, Made(cells, seed=SEED, log=False))
    assert {one["hypothesis"]: one["outcome"] for one in verdict["hypotheses"]}["no-tick"] == outcome


@pytest.mark.parametrize(
    ("extra", "sd", "shortfall", "independent"),
    [
        ((0, 0), 0, "supported", "supported"),
        ((0, 200_000), 0, "supported", "rejected"),
        ((-200_000, -200_000), 0, "rejected", "supported"),
        ((-200_000, 200_000), 0, "rejected", "rejected"),
        ((0, 0), MS, "inconclusive", "inconclusive"),
    ],
)
def test_too_short_or_rate_dependent_delays_are_found_and_others_are_not(
    extra: tuple[int, int], sd: int, shortfall: str, independent: str, tmp_path: Path
) -> None:
    cells = [
        Cell(
            "delay 10ms",
            constant(10 * MS),
            normal(10 * MS + more, sd),
            drawn=stays(10 * MS),
            packets=300,
            interval_ns=gap,
        )
        for more, gap in zip(extra, (MS, MS // 5), strict=True)
    ]
    verdict = analysed(tmp_path, Made(cells, seed=SEED, log=False))
    outcomes = {one["hypothesis"]: one["outcome"] for one in verdict["hypotheses"]}
    assert (outcomes["no-shortfall"], outcomes["delay-independent-of-rate"]) == (shortfall, independent)


def test_clamped_jitter_fails_on_its_mean(tmp_path: Path) -> None:
    """Who keeps the order by holding packets back adds to the mean delay."""

    def stay(rng: Rng, entered: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.maximum.accumulate(entered + normal(20 * MS, 2 * MS)(rng, entered)) - entered

    cell = Cell("jitter", {"delay": FREE | {"order": "kept"}}, stay, packets=4000)
    verdict = analysed(tmp_path, Made([cell], seed=SEED, log=False))
    assert "delay, mean" in failed(verdict)
    assert verdict["by"][0, "delay, mean", "streams"]["measured"] > 21 * MS


def test_a_wrong_rate_fails(tmp_path: Path) -> None:
    """0.3 % off, by the law of each departure, by the log's rate and from outside."""
    verdict = analysed(tmp_path, Made([link(10_030_000, 5 * MS)], seed=SEED))
    wrong = {(one["check"], one["of"]) for one in verdict["checks"] if one["verdict"] == "fail"}
    assert {("link, departure times", "log"), ("rate", "log"), ("rate", "streams")} <= wrong
    assert verdict["by"][0, "rate", "streams"]["measured"] == pytest.approx(10_030_000, rel=1e-4)


def test_correlation_without_effect_fails(tmp_path: Path) -> None:
    """As in emulators whose correlation is by packet and has no effect: the marginal is right, the memory is not."""
    pipe = {"delay": FREE | {"half_life": 10 * MS}}
    verdict = analysed(tmp_path, Made([Cell("half-life", pipe, normal(20 * MS, 2 * MS), packets=3000)], seed=SEED))
    assert "drawn delays, correlation" in failed(verdict)
    found = verdict["by"][0, "drawn delays, correlation", "log"]
    assert found["configured"] == pytest.approx(0.933, abs=0.01)
    assert abs(found["measured"]) < 0.3


def test_a_packet_without_a_disposition_breaks_the_accounting(tmp_path: Path) -> None:
    made = Made([FAULTLESS["constant"]], seed=SEED)
    made.events.append(
        {"event": "emulator-replay", "device": "emulate", "identical": False, "packets": 4000, "drawn": 2}
    )
    verdict = analysed(tmp_path, made)
    assert failed(verdict) == {"oracle replay"}
    assert verdict["by"][None, "oracle replay", "replay"]["measured"] == 2


def test_failing_emulator_does_not_make_the_run_doubtful(tmp_path: Path) -> None:
    """The measurement is sound, what it found is not: checks and findings are two things."""
    cell = Cell("delay 10ms", constant(10 * MS), stays(10 * MS + 60_000), drawn=stays(10 * MS))
    verdict = analysed(tmp_path, Made([cell], rounds=6, seed=SEED, log=False))
    assert "delay, offset" in failed(verdict)
    assert verdict["verdict"] == "trusted"


def test_a_verification_that_passes_ends_with_status_0_and_one_that_fails_with_4(tmp_path: Path) -> None:
    made = {
        "good": FAULTLESS["constant"],
        "bad": Cell("delay 10ms", constant(10 * MS), stays(10 * MS + 60_000), drawn=stays(10 * MS)),
    }
    status = {}
    for name, cell in made.items():
        path = Made([cell], rounds=6, seed=SEED, log=name == "good").write(tmp_path / name)
        try:
            conclude(RunFolder(path), as_json=True)
            status[name] = 0
        except typer.Exit as ended:
            status[name] = ended.exit_code
    assert status == {"good": 0, "bad": 4}


def test_limits_are_those_of_the_plan(tmp_path: Path) -> None:
    made = Made([Cell("delay 10ms", constant(10 * MS), stays(10 * MS + 60_000))], seed=SEED, log=False)
    path = made.write(tmp_path / "run")
    (path / "plan.toml").write_text((path / "plan.toml").read_text() + '\n[limits]\noffset = "80us"\np50 = "80us"\n')
    verdict = analyse(path).tidy()
    assert failed(verdict) == set()


@pytest.mark.parametrize(
    ("path_ns", "taken_off", "said"),
    [(5_000, "", " 5.0us "), (1_000, "4us", "the 4.0 µs that are"), (-1_000, "", "does not take significantly longer")],
)
def test_external_path_delay_is_estimated_and_reported(tmp_path: Path, path_ns: int, taken_off: str, said: str) -> None:
    """To a tenth, whatever the emulator's own lateness; the errors without it are that lateness alone."""
    emulate = f'compensate = "{taken_off}"' if taken_off else ""
    verdict = analysed(tmp_path, Made([FAULTLESS["constant"]], seed=SEED, path_ns=path_ns, emulate=emulate))
    rows = json.loads((tmp_path / "run/analysis/results.json").read_text(encoding="utf-8"))
    found = {(row["quantity"], row["statistic"]): row for row in rows}
    assert found["path_delay", "p50"]["estimate"] == pytest.approx(path_ns, abs=abs(path_ns) / 10)
    own, left = (found[name, "p50"]["estimate"] for name in ("emulation_error", "emulation_error_compensated"))
    assert left == pytest.approx(own, abs=200)
    assert said in verdict["sentence"]


def test_the_same_records_give_the_same_intervals(tmp_path: Path) -> None:
    """Parts of trials are cut in the order of packets, which a join must keep."""
    path = Made([FAULTLESS["constant"]], seed=SEED, path_ns=5_000).write(tmp_path / "run")
    found = set()
    for _ in range(3):
        analyse(path)
        found.add((path / "analysis" / "results.json").read_text())
    assert len(found) == 1


def test_rows_are_fully_labelled(tmp_path: Path) -> None:
    path = Made([FAULTLESS["constant"], FAULTLESS["independent"]], seed=SEED).write(tmp_path / "run")
    analyse(path)
    rows = json.loads((path / "analysis" / "results.json").read_text())
    errors = [row for row in rows if row["quantity"] == "emulation_error" and row["statistic"] == "p50"]
    assert {row["unit"] for row in errors} == {"ns"}
    assert {row["source"] for row in errors} == {"the emulator's packet log"}
    assert all(row["ci_low"] <= row["estimate"] <= row["ci_high"] for row in errors)
    assert {row["pipe"] for row in errors} == {"delay 10ms", "loss 10%"}
    delay = next(row for row in rows if row["quantity"] == "emulated_delay" and row["statistic"] == "p50")
    assert delay["estimate"] == pytest.approx(10 * MS, abs=5_000)


def test_false_alarm_probability_is_divided_among_checks() -> None:
    asked = Asked("a", "log", 0.5, "ratio", "", p=0.004, n=1000)
    several, single = Checks(), Checks()
    several.add("emulate", 0, "", [*[asked] * 4, Asked("b", "log", 0, "", "", exact=0, n=1)])
    single.add("emulate", 0, "", [asked])
    assert several.alpha == pytest.approx(ALARM / 4), "exact checks take no share of the false alarm probability"
    assert {one["verdict"] for one in several.answered()} == {"pass"}
    assert single.answered()[0]["verdict"] == "fail"


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(-1, 1, "pass"), (-6, 1, "inconclusive"), (6, 8, "fail"), (4, 8, "inconclusive")]
)
def test_verdict_depends_on_the_position_of_the_interval(low: float, high: float, verdict: str) -> None:
    asked = Asked(
        "a", "log", 0.0, "ns", "", lambda _: Interval((low + high) / 2, low, high, 0.95, 10), (-5, 5), 5, n=10
    )
    assert asked.answer(0.001).verdict == verdict


@pytest.mark.parametrize(("most", "verdict"), [(4.0, "pass"), (6.0, "fail")])
def test_an_extreme_is_judged_without_an_interval(most: float, verdict: str) -> None:
    found = Asked("a", "log", 0.0, "ns", "", None, (0.0, 5.0), 5.0, measured=most, n=10).answer(0.001)
    assert found.verdict == verdict
    assert (found.value.estimate, found.value.low, found.value.high) == (most, None, None)


def test_log_of_a_killed_emulator_may_lack_its_end() -> None:
    def event(name: str, block: int = 0) -> dict[str, Any]:
        return {"event": name, "block": block}

    killed = [event("started"), event("emulator-set", 1), event("emulator-set", 2)]
    resumed = [event("started"), event("emulator-set", 3), event("emulator-ended")]
    assert cut_blocks([*killed, *resumed]) == {1, 2}
    assert cut_blocks(killed) == {1, 2}
    assert cut_blocks(resumed) == frozenset()


def lossy(words: str, asked: float, truth: float, packets: int, interval_ns: int = MS) -> Cell:
    """A pipe that is to lose one share and loses another."""
    model = losing({"independent": {"probability": asked}})
    return Cell(words, model, stays(0), bernoulli(truth), packets=packets, interval_ns=interval_ns)


BURSTS = Cell("loss 10%", losing({"independent": {"probability": 0.1}}), stays(0), gilbert(1 / 27, 1 / 3), packets=4000)
LOSSES = {
    "as configured": ([lossy("loss 10%", 0.1, 0.1, 4000)], "supported", "to within 10 %"),
    "twice the loss": ([lossy("loss 10%", 0.1, 0.2, 4000)], "rejected", "where 10 % are configured"),
    "half the loss": ([lossy("loss 10%", 0.1, 0.05, 4000)], "rejected", "where 10 % are configured"),
    "no loss at all": ([lossy("loss 10%", 0.1, 0.0, 500)], "rejected", "loses 0 % (95 % CI 0 % to"),
    "in bursts": ([BURSTS], "rejected", "checks of losses fail"),
    "too few packets": ([lossy("loss 2%", 0.02, 0.02, 500)], "inconclusive", "with 2,000 packets; at least 63,"),
    "twice of too few": ([lossy("loss 2%", 0.02, 0.04, 50)], "inconclusive", "at least 63,"),
    "one pipe of two can tell": (
        [lossy("loss 10%", 0.1, 0.1, 4000), lossy("loss 2%", 0.02, 0.02, 500)], "inconclusive", "loss 2% loses",
    ),
    "a cell too small, of a pipe large enough": (
        [lossy("loss 10%", 0.1, 0.1, 4000), lossy("loss 10%", 0.1, 0.1, 100, 10 * MS)], "supported",
        "2 shares of single cells are inconclusive",
    ),
    "a pattern that no cell can test": (
        [lossy("loss 50%", 0.5, 0.5, 90, pace * MS) for pace in (1, 2, 3, 4)], "inconclusive", "is not tested",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_configured_losses_are_supported_only_by_enough_evidence(tmp_path: Path, name: str) -> None:
    cells, outcome, said = LOSSES[name]
    verdict = analysed(tmp_path, Made(cells, seed=SEED))
    found = next(one for one in verdict["hypotheses"] if one["hypothesis"] == "loss-as-configured")
    assert (found["outcome"], said in found["sentence"]) == (outcome, True), found["sentence"]


@pytest.mark.parametrize("period", [1, 2, 7, 40, 99])
def test_deviations_from_a_pattern_are_those_from_its_best_start(period: int) -> None:
    rng = np.random.default_rng([SEED, period])
    for packets in (0, 1, 6, 60, 99):
        pattern, row = rng.random(period) < 0.3, rng.random(packets) < 0.3
        at = np.arange(packets)
        least = min(int((pattern[(at + start) % period] != row).sum()) for start in range(period))
        assert deviating(row, pattern) == least


def test_a_loss_every_trillionth_packet_needs_no_more_memory_than_the_trial(tmp_path: Path) -> None:
    """It took an array of the period's length."""
    cell = Cell("every", {"before": {"loss": [{"every": {"every": 10**12, "first": 1}}]}}, stays(0), packets=500)
    verdict = analysed(tmp_path, Made([cell], seed=SEED))
    assert verdict["by"][0, "loss before the link", "log"]["verdict"] == "inconclusive"


def test_a_loss_by_count_in_trials_shorter_than_the_count_is_inconclusive(tmp_path: Path) -> None:
    every = {"before": {"loss": [{"every": {"every": 1000, "first": 1}}]}}
    kept = Cell("every 1000", every, stays(0), packets=500)
    lost = Cell("every 1000", every, stays(0), lambda _rng, n: np.arange(n) % 1000 == 0, packets=2000)
    for cell, wanted in ((kept, "inconclusive"), (lost, "pass")):
        verdict = analysed(tmp_path / wanted, Made([cell], seed=SEED))
        assert verdict["by"][0, "loss before the link", "log"]["verdict"] == wanted


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.95])
def test_power_of_the_probability_check_is_as_stated(share: float) -> None:
    """With as many packets as it says it needs: passes nine in ten, at the zone's edge one in forty, twice never."""
    rng, runs, alpha = np.random.default_rng(SEED), 2000, ALARM / 500
    need = Share("loss", "log", share, 0, 1, 1.0).needed
    odds = share / (1 - share)

    def verdicts(truth: float) -> Counter[str]:
        lost = rng.binomial(need, truth, runs)
        several = (Share("loss", "log", share, int(one), need, float(need)) for one in lost)
        return Counter(one.asked().answer(alpha).verdict for one in several)

    true, edge = verdicts(share), verdicts(share + Share("loss", "log", share, 0, 1, 1.0).margin)
    other = [verdicts(odds * times / (1 + odds * times)) for times in (0.5, 2.0)]
    print(f"seed {SEED}: {share} {need} {true} {edge} {other}")
    assert 0.87 * runs <= true["pass"] <= 0.94 * runs
    assert true["fail"] == 0
    assert edge["pass"] <= 0.035 * runs
    assert all(one["fail"] >= 0.99 * runs for one in other)


@pytest.mark.parametrize(("burst", "power"), [(1.5, 0.9), (2.0, 0.99)])
def test_burst_losses_are_detected_by_the_runs_test(burst: float, power: float) -> None:
    """Of a loss of 10 % in bursts in place of single losses, with the fewest losses for which a test may pass."""
    rng, p, runs = np.random.default_rng(SEED), 0.1, 300
    lose = gilbert(p / (1 - p) / burst, 1 / burst)
    found = sum(runs_test([lose(rng, LEAST_LOSSES * 10)]).p < ALARM / 500 for _ in range(runs)) / runs
    print(f"seed {SEED}: bursts of {burst}: {found:.3f}")
    assert found >= power


@pytest.mark.parametrize("pipe", [
    {"before": {"loss": [{"every": {"every": 2**64 - 1, "first": 1}}]}},
    {"delay": {"constant": 0, "jitter": None, "reorder": {"probability": 0.1, "gap": 2**64 - 1}}},
    {"queue": {"limit": {"bytes": 2**64 - 1, "slots": 2**64 - 1}}},
])  # fmt: skip
def test_numbers_of_64_bits_of_an_emulator_are_read(pipe: dict[str, Any]) -> None:
    assert misfit({"config": {"pipes": [pipe]}}, EMULATION) is None


@pytest.mark.parametrize("pipe", [
    {"delay": {"jitter": "normal"}}, {"before": {"loss": ["independent"]}},
    {"link": {"cell": {"bytes": 0.5, "overhead_bytes": 5}}},
    *({"delay": {"jitter": {"empirical": {"points": points}}}} for points in ([[0.5]], [[5.0, -1], [7, 3]], [])),
])  # fmt: skip
def test_models_without_their_numbers_are_refused(pipe: dict[str, Any]) -> None:
    """They ended the analysis in a traceback."""
    assert misfit({"config": {"pipes": [pipe]}}, EMULATION) is not None


@pytest.mark.parametrize("line", [b"[1,2]", b'{"config":[1]}', b'{"config":{"pipes":[1]}}', b"\xff\xfe", b"[" * 9_000,
                                  b'{"config":{"pipes":[{"name":"forward","delay":5}]}}'])  # fmt: skip
def test_damaged_first_line_of_an_emulator_log_is_one_sentence(line: bytes, tmp_path: Path) -> None:
    """A run of anyone's making: it ended in a traceback."""
    folder = RunFolder(tmp_path)
    folder.records.mkdir()
    (folder.records / "emulation-emulate-000.jsonl").write_bytes(line + b"\n")
    with pytest.raises(RequestError, match=r"emulation-emulate-000.jsonl is damaged: its first line is not how"):
        seen._started(cast("Any", SimpleNamespace(folder=folder)))
