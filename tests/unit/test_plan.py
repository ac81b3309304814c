"""A plan is parsed once: what is refused, with which words; what `--quick` and `--set` change; what is written back."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import RequestError
from sojourn.plan import (
    Plan,
    effective_toml,
    load_plan,
    studies,
)
from sojourn.plan.estimate import over_limit
from sojourn.plan.source import read_toml
from sojourn.plan.values import duration
from sojourn.units import UNITS_NS, as_duration

if TYPE_CHECKING:
    from pathlib import Path

LEAST = """\
[study]
name = "mine"

[bed]
devices = ["bridge"]

[probe]
icmp_bytes = [64]
"""


def plan_of(tmp_path: Path, text: str, **more: object) -> Plan:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return load_plan(path, **more)  # type: ignore[arg-type]


def refusal(tmp_path: Path, text: str, **more: object) -> str:
    with pytest.raises(RequestError) as caught:
        plan_of(tmp_path, text, **more)
    assert caught.value.status == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


QUICK_SECONDS = dict.fromkeys((name for name, _ in studies()), 60.5) | {"variance": 150}
"""The most that the quick run of a study is forecast to take; `variance` is about differences between many beds."""


@pytest.mark.parametrize("name", QUICK_SECONDS)
def test_quick_run_is_forecast_to_take_a_minute_and_all_of_its_rounds(name: str) -> None:
    plan = load_plan(name, quick=True)
    told = plan.ask.describe(plan)
    assert told["total_ns"] <= QUICK_SECONDS[name] * 1e9
    assert over_limit(plan, told["measuring_ns"]) is None


@pytest.mark.parametrize("name", [name for name, _ in studies()])
@pytest.mark.parametrize("quick", [False, True])
def test_every_study_round_trips_through_its_file(name: str, quick: bool, tmp_path: Path) -> None:
    plan = load_plan(name, quick=quick)
    path = tmp_path / "plan.toml"
    path.write_text(effective_toml(plan))
    again = load_plan(path)
    assert replace(again, asked=plan.asked, bed=replace(again.bed, lines=plan.bed.lines)) == plan
    assert again.expand() == plan.expand()


SIMULATED = ["bridge-latency", "frame-size", "one-way", "model", "fan-in", "throughput", "loss", "rfc2544", "rfc8219"]


@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_study_keeps_its_lines(name: str, tmp_path: Path) -> None:
    plan = load_plan(name, backend="sim", quick=True)
    path = tmp_path / "plan.toml"
    path.write_text(effective_toml(plan))
    assert load_plan(path).bed == plan.bed


@pytest.mark.parametrize(
    ("line", "where", "said"),
    [
        ("rounds = 5", 9, "unknown key probe.rounds: expected pairs.rounds"),
        ("intervall = ['1ms']", 9, "unknown key probe.intervall: expected probe.interval"),
        ("path_cost = 5", 9, "unknown key probe.path_cost: expected"),
        ("schedule = ['as-answered']", 9, 'did you mean "closed-loop"?'),
        ("interval = ['1']", 9, 'probe.interval = ["1"]: expected a list'),
        ("interval = ['1 parsec']", 9, 'a time with its unit, such as "1ms", "500us" or "1s"'),
        ("interval = [5]", 9, "probe.interval = [5]: expected a list"),
        ("interval = []", 9, "probe.interval = []: expected a list"),
        ("interval = ['1ms', '1000us']", 9, "a list of different values"),
        ("interval = ['0ms']", 9, 'between "1us" and "3600s"'),
        ("payload_bytes = [64]", 9, "probe.payload_bytes beside probe.icmp_bytes"),
        ("probe = ['smoke']", 9, '"icmp" or "icmp6"'),
        (
            "probe = ['raw/ping-pong']",
            8,
            "expected payload_bytes or frame_bytes, since raw/ping-pong has no ICMP header",
        ),
        ("schedule = ['sometimes']", 9, '"regular" or "poisson" or "closed-loop"'),
        ("timeout = true", 9, "probe.timeout = true: expected a time"),
        ("[pairs]\nrounds = 0", 10, "pairs.rounds = 0: expected a whole number from 1"),
        ("[pairs]\nrounds = true", 10, "pairs.rounds = true: expected a whole number"),
        ("[pairs]\nwarmup_probes = 44", 10, "fewer than pairs.probes_per_block = 44"),
        ("[pears]\nrounds = 1", 10, "unknown key pears.rounds: expected pairs.rounds"),
        ("[quick]\n'pairs.round' = 1", 10, "unknown key pairs.round: expected pairs.rounds"),
        ("[host]\nfifo = 'maybe'", 10, '"auto" or true or false'),
        ("[bed.lines.direct]\nforwards = 1", 10, "bed.lines.direct.forwards = 1: expected one of the keys forward"),
        ("[bed.lines.direct]\nforward = 1", 10, "a delay such as { constant_ns = 5000 }"),
        ("[bed.lines.direct]\nloss = 1.5", 10, "a probability from 0 to 1"),
    ],
)
def test_refusals_name_line_key_and_what_was_expected(line: str, where: int, said: str, tmp_path: Path) -> None:
    told = refusal(tmp_path, LEAST + line + "\n")
    assert told.startswith(f"{tmp_path}/mine.toml, line {where}: ")
    assert said in told


@pytest.mark.parametrize(
    ("old", "new", "where", "said"),
    [
        ("[64]", "[4]", 8, "probe.icmp_bytes = 4: expected at least 8 for icmp"),
        ("[64]", "[65516]", 8, "at most 65515 for icmp"),
        ('["bridge"]', '["bridge*5"]', 5, '"bridge*N" with N from 2 to 4'),
        ('["bridge"]', '["bridge", "bridge"]', 5, "a list of different values"),
        ('["bridge"]', '["direct"]', 5, '"direct" is always there'),
        ('["bridge"]', '["hub"]', 5, '"router:nat", "ovs" or "bridge*N"'),
        ('["bridge"]', '["wire"]\nmtu = 100', 6, "bed.mtu = 100: expected a whole number from 1280"),
        ('"mine"', '"Mine!"', 2, "a name of small letters"),
        ("[study]", "x = 1\n[study]", 1, "x is outside any section"),
    ],
)
def test_impossible_values_are_refused(old: str, new: str, where: int, said: str, tmp_path: Path) -> None:
    told = refusal(tmp_path, LEAST.replace(old, new, 1))
    assert told.startswith(f"{tmp_path}/mine.toml, line {where}: ")
    assert said in told


def test_missing_and_malformed_files_are_distinguished(tmp_path: Path) -> None:
    assert "the key study.name is missing" in refusal(tmp_path, "[bed]\ndevices = ['bridge']\n")
    assert "mine.toml, line 1, column 7: not TOML: Expected ']'" in refusal(tmp_path, "[study\n")
    assert "mine.toml, at its end: not TOML: " in refusal(tmp_path, "[study]\nname =")
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        load_plan(tmp_path / "none.toml")
    with pytest.raises(RequestError, match=r"did you mean bridge-latency\?"):
        load_plan("bridge-latancy")
    with pytest.raises(
        RequestError,
        match="the studies are anomalies, aqm, background, bridge-latency, bridge-modes, bridge-modes-tcp, bufferbloat",
    ):
        load_plan("qqq")


def test_sizes_are_checked_against_probe_and_mtu(tmp_path: Path) -> None:
    raw = LEAST.replace("icmp_bytes = [64]", "probe = ['raw/ping-pong']\npayload_bytes = [1501]")
    assert "at most 1500 for raw/ping-pong with bed.mtu = 1500" in refusal(tmp_path, raw)
    assert "at least 46" in refusal(tmp_path, raw.replace("1501", "45"))
    frame = LEAST.replace("icmp_bytes = [64]", "probe = ['icmp']\nframe_bytes = [63]")
    assert "at least 64" in refusal(tmp_path, frame)
    udp = LEAST.replace("icmp_bytes = [64]", "probe = ['udp/request-response']\npayload_bytes = [64]")
    assert plan_of(tmp_path, udp + "request_payload_bytes = 1472\n").probe.request_payload_bytes == 1472
    assert "expected 40 to 1472" in refusal(tmp_path, udp + "request_payload_bytes = 1473\n")


def test_the_sim_bed_needs_a_line_for_every_device(tmp_path: Path) -> None:
    assert "expected a section [bed.lines.direct]" in refusal(tmp_path, LEAST, backend="sim")
    line = "forward = { constant_ns = 1 }\nbackward = { constant_ns = 1 }\n"
    text = LEAST.replace('"bridge"', '"bridge*2"') + "[bed.lines.direct]\n" + line
    assert 'expected a section [bed.lines."bridge*2"]' in refusal(tmp_path, text, backend="sim")
    whole = text + '[bed.lines."bridge*2"]\n' + line
    assert plan_of(tmp_path, whole, backend="sim").bed.lines["bridge*2"]["forward"] == {"constant_ns": 1}
    half = text + '[bed.lines."bridge*2"]\nforward = { constant_ns = 1 }\n'
    assert "a key backward" in refusal(tmp_path, half, backend="sim")


def test_set_overrides_quick_and_file() -> None:
    plan = load_plan(
        "bridge-latency", quick=True, sets=["device=bridge", "rounds=3", "interval=2ms,1500us", "fifo=true"]
    )
    assert plan.bed.devices == ("bridge",)
    assert plan.pairs.rounds == 3
    assert plan.probe.intervals_ns == (2_000_000, 1_500_000)
    assert plan.host.fifo is True
    assert plan.asked == (
        "--quick",
        "--set device=bridge",
        "--set rounds=3",
        "--set interval=2ms,1500us",
        "--set fifo=true",
    )
    sized = load_plan("bridge-latency", sets=["payload_bytes=[56, 100]"])
    assert (sized.probe.size_key, sized.probe.sizes) == ("payload_bytes", (56, 100))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rounds=abc", '--set rounds=abc: pairs.rounds = "abc": expected a whole number'),
        ("rounds", "--set rounds: expected key=value"),
        ("bogus=1", "--set bogus=1: unknown key bogus: expected one of the sections"),
        ("interval=5", "--set interval=5: probe.interval = 5: expected a list"),
        ("devices=bridge*9", '--set devices=bridge*9: bed.devices = "bridge*9": expected "wire"'),
    ],
)
def test_wrong_set_is_refused_quoting_it(words: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        load_plan("bridge-latency", sets=[words])
    assert str(caught.value).startswith(said)


@given(st.integers(1, 10**13))
def test_durations_are_parsed_and_formatted(nanos: int) -> None:
    assert duration(1, 10**13).read(as_duration(nanos)) == nanos


@given(st.decimals("0.001", "1000", places=3, allow_nan=False), st.sampled_from(sorted(UNITS_NS)))
def test_durations_are_whole_nanoseconds_or_refused(number: object, unit: str) -> None:
    read = duration(0, 10**18).read(f"{number}{unit}")
    assert read is None or isinstance(read, int)
    assert (read is None) == (unit == "ns" and int(number) != number)  # type: ignore[call-overload]


@given(st.text(max_size=200))
def test_arbitrary_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(RequestError):
        read_toml(text, "x.toml")


def test_quick_is_refused_for_a_plan_without_it(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text('[study]\nname = "long"\n[probe]\nicmp_bytes = [64]\n')
    assert load_plan(path).pairs.rounds == 12
    with pytest.raises(RequestError, match=r"long\.toml: --quick has nothing to change: expected a \[quick\]"):
        load_plan(path, quick=True)


def test_old_names_are_refused_with_the_current_ones() -> None:
    with pytest.raises(RequestError, match=r"unknown key trials\.settle: expected trials\.grace$"):
        load_plan("one-way", sets=["trials.settle=2ms"])
    with pytest.raises(RequestError, match=r'"placebo": did you mean "placebo"\?$'):
        load_plan("tcplog-cost", sets=["controls=sham"])


def test_a_misspelt_hypothesis_is_refused_in_one_sentence() -> None:
    with pytest.raises(RequestError, match=r'"md1" for study.method = one-way: did you mean "md1"\?$'):
        load_plan("one-way", sets=["study.hypotheses=md"])


def test_reference_must_be_a_device_and_gets_a_second_link() -> None:
    plan = load_plan("capture-cost")
    assert plan.twins == ("direct", "bridge:capture", "bridge")
    with pytest.raises(RequestError, match=r"pairs\.reference.*one of bed\.devices, and another device beside it"):
        load_plan("capture-cost", sets=["devices=wire,bridge:capture"])
    with pytest.raises(RequestError, match=r"pairs\.reference.*one of bed\.devices, and another device beside it"):
        load_plan("capture-cost", sets=["devices=bridge"])
    with pytest.raises(RequestError, match=r"pairs\.reference has no meaning for study\.method = variance"):
        load_plan("variance", sets=["pairs.reference=bridge"])
