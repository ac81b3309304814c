"""`sojourn emulate verify`: how many packets each promise is given, whether they suffice, and what is refused."""

from __future__ import annotations

import json
import math
import os
import random
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scipy import stats

from sojourn.cli import is_by_hand
from sojourn.cli.emulate import what_is_asked
from sojourn.errors import RequestError
from sojourn.methods.emulator.verifying import (
    FAST_PPS,
    LONGEST_NS,
    VISITS,
    Verification,
    distribution_needs,
    four_states,
    loss_share,
    needs,
    share_need,
    verify_plan,
    z,
)
from sojourn.plan import effective_toml, load_plan, plan_from_text
from sojourn.plan.trials import estimate_trials, expand_trials

if TYPE_CHECKING:
    from sojourn.plan import Plan

FAKE = Path(__file__).with_name("fake_instrument.py")
MS = 1_000_000
PIPES: dict[str, dict[str, Any]] = {
    "delay": {"delay": {"constant": 20 * MS}},
    "jitter": {"delay": {"constant": 20 * MS, "jitter": {"normal": {"sd": 2 * MS}}}},
    "correlated": {"delay": {"jitter": {"normal": {"sd": 2 * MS}}, "half_life": 50 * MS}},
    "loss": {"before": {"loss": [{"independent": {"probability": 0.01}}]}},
    "bursts": {"after": {"loss": [{"gilbert-elliott": {"p": 0.01, "r": 0.2, "h": 0.0, "k": 1.0}}]}},
    "rate": {"link": {"rate_bps": 10_000_000, "overhead_bytes": 24}},
    "all": {
        "before": {"loss": [{"independent": {"probability": 0.001}}], "duplication": 0.01},
        "link": {"rate_bps": 100_000_000, "overhead_bytes": 0},
        "delay": {"constant": 5 * MS, "reorder": {"probability": 0.25, "gap": 5}},
    },
}


def asked(pipe: dict[str, Any], *, quick: bool = False, **more: Any) -> Verification:
    config = {"pipes": [pipe | {"name": name} for name in ("forward", "backward")]}
    words = None if more.get("file") else "some words"
    return Verification(
        **{"config": config, "words": words, "file": None, "seed": 3, "quick": quick, "limits": {}} | more
    )


def plan_of(verification: Verification) -> tuple[Plan, list[str]]:
    text, reasons = verify_plan(verification)
    return plan_from_text(text, "made", ()), reasons


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", PIPES)
def test_verify_plan_is_an_ordinary_plan_within_its_time(name: str, quick: bool, tmp_path: Path) -> None:
    plan, reasons = plan_of(asked(PIPES[name], quick=quick))
    (tmp_path / "plan.toml").write_text(effective_toml(plan))
    assert load_plan(tmp_path / "plan.toml").stream == plan.stream
    trials = expand_trials(plan)
    assert sum(trial.duration_ns for trial in trials) <= 1.1 * LONGEST_NS[quick]
    assert estimate_trials(plan, trials).total_ns < (60e9 if quick else 15 * 60e9)
    assert plan.trials.rounds * 2 == VISITS
    assert all(reason for reason in reasons)


@pytest.mark.parametrize("name", ["delay", "jitter", "loss"])
def test_required_packets_are_sent_if_time_allows(name: str) -> None:
    verification = asked(PIPES[name])
    plan, _ = plan_of(verification)
    wanted = needs(verification.config, quick=False, pps=1000)[0].packets
    sent = sum(trial.count or 0 for trial in expand_trials(plan) if trial.device == "emulate")
    assert wanted <= sent <= 1.2 * wanted + 10_000


def test_checks_without_enough_time_are_reported() -> None:
    _, reasons = plan_of(asked(PIPES["correlated"], quick=True))
    assert any("do not fit into 30 s" in reason for reason in reasons)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.35, 0.95])
@pytest.mark.parametrize("quick", [False, True])
def test_planned_number_of_packets_gives_the_stated_precision(share: float, quick: bool) -> None:
    packets = share_need("a loss", share, 1.0, quick=quick).packets
    seed = 7
    lost = int(stats.binom(packets, share).rvs(random_state=seed))
    interval = stats.binomtest(lost, packets).proportion_ci(2 * (1 - stats.norm.cdf(z())), "exact")
    half = (interval.high - interval.low) / 2
    slack = 1.5 if packets * (1 - share) < 100 else 1.1
    assert half <= slack * share * (0.1 if quick else 0.05), f"seed {seed}"


def test_burst_losses_need_proportionally_more_packets() -> None:
    assert share_need("a loss", 0.05, 5.0, quick=True).packets == pytest.approx(
        9 * share_need("a loss", 0.05, 1.0, quick=True).packets, rel=1e-3
    )
    assert loss_share({"gilbert-elliott": {"p": 0.01, "r": 0.2, "h": 0.0, "k": 1.0}}) == pytest.approx((1 / 21, 5.0))
    assert loss_share({"dwell": {"good": 900 * MS, "bad": 100 * MS}}) == pytest.approx((0.1, FAST_PPS / 10))
    assert loss_share({"every": {"every": 100, "first": 100}}) is None


@pytest.mark.parametrize("of", [(0.02, 0.3, 0.4, 0.1, 0.005), (0.1, 0.5, 0.0, 0.0, 0.0), (0.05, 0.25, 0.2, 0.6, 0.02)])
def test_loss_ratio_of_the_four_state_model_equals_simulation(of: tuple[float, ...]) -> None:
    p13, p31, p23, p32, p14 = of
    seed = 11
    chance, state, lost, packets = random.Random(seed), 1, 0, 400_000
    for _ in range(packets):
        draw = chance.random()
        if state == 1:
            state = 3 if draw < p13 else 4 if draw < p13 + p14 else 1
        elif state == 2:
            state = 3 if draw < p23 else 2
        elif state == 3:
            state = 1 if draw < p31 else 2 if draw < p31 + p32 else 3
        else:
            state = 1
        lost += state in (3, 4)
    share, _ = four_states(dict(zip(("p13", "p31", "p23", "p32", "p14"), of, strict=True)))
    assert lost / packets == pytest.approx(share, rel=0.05), f"seed {seed}"


def test_planned_distribution_band_accounts_for_correlation() -> None:
    (need,) = distribution_needs(PIPES["jitter"], 1000)
    assert math.sqrt(math.log(2 * 25 / 0.01) / (2 * need.packets)) <= 0.02
    (correlated,) = distribution_needs(PIPES["correlated"], 1000)
    assert correlated.packets > 100 * need.packets
    assert distribution_needs(PIPES["delay"], 1000) == []


def test_rated_link_is_tested_below_and_above_its_rate() -> None:
    plan, _ = plan_of(asked(PIPES["rate"]))
    full = 10_000_000 / (8 * (1518 - 4 + 24))
    pps = [rate.pps(1518) or 0.0 for rate in plan.stream.rates]
    assert pps == pytest.approx([0.4 * full, 1.25 * full], rel=1e-3)
    busy = [trial.duration_ns for trial in expand_trials(plan) if trial.factors.rate_pps == max(pps)]
    assert min(busy) >= 0.99e9


def test_configuration_file_replaces_the_string_and_its_rules_select_the_frames() -> None:
    config = {"pipes": [{"name": "x"}], "rules": [{"on": {"protocol": 17}, "action": {"pipe": {"pipe": "x"}}}]}
    plan, _ = plan_of(asked({}, file="/tmp/x.toml", config=config))
    assert plan.stream.pipe == ("",)
    assert plan.emulators[""].config == "/tmp/x.toml"
    assert plan.stream.engine == ("udp",)


def test_emulate_verify_is_a_python_command_and_others_of_the_instrument() -> None:
    assert is_by_hand(["emulate", "a", "b", "--delay", "1ms"])
    assert is_by_hand(["emulate", "--help"])
    assert not is_by_hand(["emulate", "verify", "--help"])
    assert not is_by_hand(["clock", "--plot=x.svg"])
    assert is_by_hand(["clock", "watch"])
    assert not is_by_hand(["run", "emulator-delay"])


@pytest.fixture
def verify(tmp_path: Path) -> Any:
    program = tmp_path / "sojourn-instrument"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore {FAKE} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def run(*words: str, pipe: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        code = "import sys; from sojourn.cli import main; sys.argv[0] = 'sojourn'; main()"
        given = {"SOJOURN_INSTRUMENT": str(program), "FAKE_PIPE": json.dumps(pipe or {}), "COLUMNS": "200"}
        argv = [sys.executable, "-c", code, "emulate", "verify", *words]
        env = {**os.environ, **given}
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=env, cwd=tmp_path)

    return run


def test_a_dry_run_says_what_would_be_sent_and_why(verify: Any, tmp_path: Path) -> None:
    done = verify("--delay", "1ms", "--loss", "1%", "--dry-run", pipe=PIPES["loss"])
    assert done.returncode == 0, done.stderr
    assert "delay 1ms loss 1%" in done.stdout
    assert "a loss of 1 % to within 5 % of itself" in done.stdout
    shown = json.loads(verify("delay 1ms", "--quick", "--dry-run", "--json").stdout)
    assert shown["cells"][0]["pipe"] == "delay 1ms"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "sojourn: nothing to verify: try `sojourn emulate verify --delay 1ms`"),
        (["nonsense"], "sojourn: pipe forward: nonsense: expected a word such as delay"),
        (["x.toml", "--delay", "1ms"], "sojourn: x.toml says what the pipes are: leave out the options"),
        (["delay 1ms", "--limit", "p98=1ms"], "sojourn: --limit p98=1ms: expected NAME=VALUE with offset, p50"),
        (["delay 1ms", "--limit", "rate=much"], "sojourn: --limit rate=much: expected a share"),
        (["delay 1ms", "--limit", "p99=much", "--dry-run"], "limits.p99"),
        (["delay 1ms", "--frame-bytes", "9", "--dry-run"], "stream.frame_bytes"),
    ],
)
def test_a_wrong_request_is_one_sentence(verify: Any, words: list[str], said: str) -> None:
    done = verify(*words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("pipe", "said"),
    [
        ({"link": {"rate_bps": 1}}, "takes"),
        ({"delay": {"constant": 3 * 3600 * 10**9}}, "waits 60 s at most"),
    ],
)
def test_untestable_configuration_is_refused_in_one_sentence(pipe: dict[str, Any], said: str) -> None:
    config = {"pipes": [{"name": "forward", **pipe}]}
    with pytest.raises(RequestError, match=said):
        verify_plan(Verification(config, "", None, seed=1, quick=True, limits={}))


def test_link_too_fast_for_the_sender_is_not_tested_at_saturation() -> None:
    config = {"pipes": [{"name": "forward", "link": {"rate_bps": 100_000_000_000}}]}
    text, reasons = verify_plan(Verification(config, "rate 100Gbit/s", None, seed=1, quick=True, limits={}))
    assert any("the rate itself is not judged" in reason for reason in reasons)
    assert text.count("pps") == 1


def test_value_with_a_leading_minus_is_not_an_option() -> None:
    assert what_is_asked([], {"delay": "-5ms"})[1] == ["--delay=-5ms"]
