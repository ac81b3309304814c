"""Plans with streams: rates and schedules as words, what is refused, what `--set` means, trials in order."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from itertools import groupby, pairwise
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
from sojourn.plan.matrix import is_restful
from sojourn.plan.rates import Rate, ramp_ends, rate, schedule, share
from sojourn.plan.sizes import ENGINES, stream_frame, stream_payload
from sojourn.plan.trials import (
    CLOSED_LOOPS,
    LEAST_COUNT,
    QUALIFY_BLOCKS,
    SEARCH_BLOCKS,
    estimate_trials,
    expand_trials,
    paths_of,
    qualify_trials,
    stream_cells,
)

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

LEAST = """\
[study]
name = "mine"
method = "one-way"

[bed]
devices = ["bridge"]

[stream]
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


STREAM_METHODS = ("one-way", "stages", "model", "background", "fan-in", "throughput", "loss", "multicast", "emulator")
SEARCH_METHODS = ("rfc2544", "rfc8219", "rfc2889")


def names(methods: tuple[str, ...]) -> list[str]:
    return [name for name, _ in studies() if load_plan(name).study.method in methods]


@pytest.mark.parametrize(
    ("words", "pps"),
    [("10kpps", 10_000), ("1.5Mpps", 1_500_000), ("100pps", 100), ("100Mbit/s", 195_312.5), ("1Gbit/s", 1_953_125)],
)
def test_rates_are_frames_or_bits_of_frames(words: str, pps: float) -> None:
    found = rate().read(words)
    assert found.pps(64) == pps
    assert str(found) == words


def test_relative_rate_is_unresolved_before_measurement() -> None:
    half = rate().read("50%")
    assert (half.share, half.pps(64), str(half)) == (0.5, None, "50%")
    assert rate(shares=False).read("50%") is None


@pytest.mark.parametrize("words", ["10", 10, "kpps", "0pps", "-1pps", "10kbps", "1e3pps", "0%", "5000%", True, ""])
def test_invalid_rates_are_refused(words: object) -> None:
    assert rate().read(words) is None


@given(st.decimals("0.001", "999999", places=3), st.sampled_from(["pps", "bit/s", "share"]))
def test_rates_are_parsed_and_formatted(value: Decimal, unit: str) -> None:
    asked = Rate(unit, value / 100_000 if unit == "share" else value)  # type: ignore[arg-type]
    assert rate().read(str(asked)) == asked


@pytest.mark.parametrize(
    "words", ["regular", "poisson", "flood", "burst:8", "ramp:1kpps-10kpps", "ramp:1Mbit/s-2Mbit/s"]
)
def test_schedules_are_parsed(words: str) -> None:
    assert schedule().read(words) == words


@pytest.mark.parametrize("words", ["burst:1", "burst:", "burst", "ramp:1kpps", "ramp:10%-20%", "sometimes", 5])
def test_invalid_schedules_are_refused(words: object) -> None:
    assert schedule().read(words) is None


def test_ramp_needs_two_rates_and_relative_rates_are_bounded() -> None:
    assert ramp_ends("ramp:1kpps-10kpps", 64) == (1000, 10_000)
    assert ramp_ends("flood", 64) is None
    assert [share().read(value) for value in ("10%", 0.5, 0, 1, "101%", 1.1, True)] == [
        0.1,
        0.5,
        0,
        1,
        None,
        None,
        None,
    ]


@given(st.sampled_from(sorted(ENGINES)), st.integers(46, 1400), st.booleans())
def test_a_frame_gives_the_payload_that_gives_the_frame(engine: str, payload: int, tagged: bool) -> None:
    frame = stream_frame(engine, payload, tagged=tagged)
    assert stream_payload(engine, "frame_bytes", frame, tagged=tagged) == payload


@pytest.mark.parametrize(
    ("line", "where", "said"),
    [
        ("rate = ['10']", 9, 'stream.rate = ["10"]: expected a list of different values, each a rate with its unit'),
        ("interval = ['1ms']\nrate = ['1kpps']", 10, "stream.rate beside stream.interval: expected one of"),
        ("frame_bytes = [64]\npayload_bytes = [46]", 10, "stream.payload_bytes beside stream.frame_bytes"),
        ("frame_bytes = [63]", 9, "stream.frame_bytes = 63: expected at least 64 for engine auto"),
        ("frame_bytes = [1519]", 9, "at most 1518 for engine auto with bed.mtu = 1500"),
        ("engine = ['udp']\npayload_bytes = [1473]", 10, "at most 1472 for engine udp"),
        ("engine = ['udp']\nframe_bytes = [80]", 10, "at least 86 for engine udp"),
        ("schedule = ['burst:1']", 9, '"burst:8" or "ramp:1kpps-10kpps"'),
        ("schedule = ['poisson']\nengine = ['live']", 9, '"flood" or "regular" with engine live'),
        ("senders = [17]", 9, "a whole number from 1 to 16"),
        ("receivers = [1]", 9, '0, or "multicast" or "broadcast" in stream.to'),
        ("to = ['unknown']\nengine = ['udp']", 9, '"unicast" or "multicast" with UDP'),
        ("kind = ['ping-pong']", 9, '"one-way" for study.method = one-way'),
        ("pcp = 3", 9, "stream.vlan beside it"),
        ("dscp = 46", 9, 'it with engine "udp" or "udp6" alone'),
        ("vlan = 5\nengine = ['live']", 9, 'it with engine "auto", "packet" or "xdp" alone'),
        ("load = ['150%']", 9, 'a share from "0%" to "100%"'),
        ("load_frame_bytes = 2000\nload = [0.5]", 9, "at most 1518 with bed.mtu = 1500"),
        ("[pairs]\nrounds = 3", 10, "pairs.rounds has no meaning for study.method = one-way: expected a key of study"),
        ("[trials]\nduration = '1'", 10, "trials.duration"),
        ("[search]\nwidth = 0.1", 10, "search.width has no meaning"),
        ("[bed.lines.direct]\nforward = { constant_ns = 1 }", 10, "expected one of the keys delay, delay_backward"),
        ("[bed.lines.direct]\nserialiser = { rate_pps = 1 }", 10, "queue_frames = N"),
        ("[bed.lines.direct]\nclocks = { sender = { skew = 1 } }", 10, "skew_ppm = N"),
    ],
)
def test_refusals_name_line_key_and_what_was_expected(line: str, where: int, said: str, tmp_path: Path) -> None:
    told = refusal(tmp_path, LEAST + line + "\n")
    assert told.startswith(f"{tmp_path}/mine.toml, line {where}: ")
    assert said in told


@pytest.mark.parametrize(
    ("method", "bed", "stream", "said"),
    [
        ("fan-in", "devices = ['wire']", "senders = [2]", "stream.senders = [2]: expected a bridge in bed.devices"),
        ("loss", "devices = ['wire']", "to = ['unknown']", 'stream.to = "unknown": expected a bridge in bed.devices'),
        ("loss", "devices = []", "to = ['unknown']", "no other path knows addresses"),
        ("background", "devices = []", "load = [0.5]", "stream.load = [0.5]: expected a device in bed.devices"),
        ("background", "devices = ['bridge']", "", "a share above 0 for study.method = background"),
        ("background", "devices = ['wire']", "load = [0.5]", 'stream.load_via = ["through"]: expected "beside", or'),
        (
            "background",
            "devices = ['wire']\nbypass = false",
            "load = [0.5]\nload_via = ['beside']",
            "bed.bypass = false",
        ),
        ("fan-in", "devices = ['bridge']\nnear = 2", "senders = [3]", "bed.near = 2: expected at least 3"),
        ("fan-in", "devices = ['bridge']", "walk = 1", "stream.walk = 1: expected several stream.senders and"),
        ("fan-in", "devices = ['bridge']", "walk = 1\nsenders = [2]\nschedule = ['poisson']", 'schedule = ["regular"]'),
        (
            "fan-in",
            "devices = ['bridge']",
            "walk = 300\nsenders = [2]",
            "stream.walk = 300: expected at most 250: the shortest trial has 500 frames of each sender",
        ),
        ("rfc2544", "devices = ['bridge']", "walk = 1", "stream.walk has no meaning for study.method = rfc2544"),
        ("multicast", "devices = ['bridge']\nfar = 2", "receivers = [2]\nto = ['multicast']", "bed.far = 2: expected"),
        ("multicast", "devices = ['bridge']", "to = ['unknown']\nkind = ['answers']", "nobody answers"),
        ("multicast", "devices = ['bridge']", "kind = ['ping-pong']\nengine = ['xdp']", "without engine xdp"),
        (
            "background",
            "devices = ['bridge']",
            "kind = ['ping-pong']\nload = [1]\nsenders = [2]",
            "1 for a closed loop",
        ),
        ("stages", "rate = '1Mbit/s'", "rate = ['2kpps']", 'stream.rate = "2kpps": expected at most 1953pps'),
        ("stages", "rate = '1Mbit/s'", "interval = ['100us']", 'stream.interval = "100us": expected at most 1953pps'),
        ("stages", "rate = '1Mbit/s'", "schedule = ['flood']", 'stream.schedule = "flood": expected at most'),
        ("stages", "rate = '1Mbit/s'", "schedule = ['ramp:1kpps-9kpps']", "frames of 64 bytes fill bed.rate"),
        ("one-way", "rate = '1kpps'", "", 'bed.rate = "1kpps": expected a rate in bits'),
        ("one-way", "rate = '1Mbit/s'\nburst_bytes = 1400", "", "bed.burst_bytes = 1400: expected at least 1518"),
        (
            "rfc2544",
            "devices = ['bridge']",
            "rate = ['1kpps']",
            "stream.rate has no meaning for study.method = rfc2544",
        ),
        ("rfc2889", "devices = ['wire']", "", "bridges alone for rfc2889"),
    ],
)
def test_impossible_combinations_are_refused(method: str, bed: str, stream: str, said: str, tmp_path: Path) -> None:
    sized = stream if method.startswith("rfc") else f"frame_bytes = [64]\n{stream}"
    text = f'[study]\nname = "mine"\nmethod = "{method}"\n[bed]\n{bed}\n[stream]\n{sized}\n'
    told = refusal(tmp_path, text)
    assert told.startswith(f"{tmp_path}/mine.toml, line ") or "mine.toml: " in told
    assert said in told


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("tests = ['pdv']", '"throughput" or "latency" or "frame-loss" or "back-to-back" for study.method = rfc2544'),
        ("tests = ['latency']", '"throughput" beside it, at whose result it is done'),
        ("algorithm = ['guess']", '"mlrsearch" or "binary"'),
        ("goals = [0.9]", "a number from 0 to 0.5"),
        ("initial_duration = '70s'", "search.initial_duration"),
        ("duration_sum = '1s'", "at least search.duration"),
    ],
)
def test_impossible_searches_are_refused(search: str, said: str, tmp_path: Path) -> None:
    text = f'[study]\nname = "mine"\nmethod = "rfc2544"\n[bed]\ndevices = ["bridge"]\n[search]\n{search}\n'
    assert said in refusal(tmp_path, text)


@pytest.mark.parametrize("method", ["background", "stages", "multicast", "rfc2889"])
def test_features_missing_in_simulation_are_refused_there(method: str) -> None:
    with pytest.raises(RequestError, match=f'"netns" for {method}: a simulated line has'):
        load_plan(method, backend="sim")


def test_stream_accepts_options_beyond_a_rate(tmp_path: Path) -> None:
    text = LEAST.replace('["bridge"]', '["bridge"]\nrate = "1Mbit/s"') + "rate = ['10kpps']\n"
    assert plan_of(tmp_path, text).bed.rate_bps == 1_000_000


def test_set_resolves_keys_of_the_method() -> None:
    plan = load_plan("one-way", sets=["device=bridge*2", "size=64,512", "rate=1kpps,10Mbit/s", "rounds=3", "a_a=false"])
    assert plan.bed.devices == ("bridge*2",)
    assert (plan.stream.size_key, plan.stream.sizes) == ("frame_bytes", (64, 512))
    assert (plan.stream.rate_key, [str(one) for one in plan.stream.rates]) == ("rate", ["1kpps", "10Mbit/s"])
    assert plan.trials.rounds == 3
    assert plan.trials.a_a is False
    plan = load_plan("throughput", sets=["interval=1ms", "duration=2s", "seed=7", "bed.rate=100Mbit/s", "shaper=htb"])
    assert (plan.stream.rate_key, plan.trials.duration_ns, plan.trials.seed) == ("interval", 2_000_000_000, 7)
    assert (plan.bed.rate_bps, plan.bed.shaper) == (100_000_000, "htb")


def test_set_resolves_keys_of_a_search() -> None:
    plan = load_plan("rfc2544", sets=["device=bridge", "size=64", "rounds=3", "tests=throughput", "duration=2s"])
    assert (plan.search.repetitions, plan.search.tests, plan.stream.sizes) == (3, ("throughput",), (64,))
    assert plan.search.duration_ns == 2_000_000_000


def test_ports_are_derived_and_a_load_has_its_own_pair() -> None:
    fan_in, background, multicast = (load_plan(name).bed for name in ("fan-in", "background", "multicast"))
    assert (fan_in.near, fan_in.far, fan_in.bypass) == (8, 1, False)
    assert (background.near, background.far, background.bypass) == (2, 2, True)
    assert (multicast.near, multicast.far, multicast.bypass) == (1, 6, False)


def test_frames_are_untagged_unless_a_tag_is_asked_for() -> None:
    stream = load_plan("one-way").stream
    assert (stream.vlan, stream.pcp) == (None, None)
    tagged = load_plan("one-way", sets=["vlan=0", "pcp=5", "size=68,1518"])
    assert (tagged.stream.vlan, tagged.stream.pcp) == (0, 5)
    assert next(cell.payload_bytes for cell in stream_cells(tagged)) == 68 - 22


def test_search_without_tests_runs_its_whole_suite(tmp_path: Path) -> None:
    text = '[study]\nname = "x"\nmethod = "rfc8219"\n[bed]\ndevices = ["bridge"]\n'
    assert plan_of(tmp_path, text).search.tests == ("throughput", "latency", "pdv", "ipdv")


@pytest.mark.parametrize("name", names(STREAM_METHODS))
def test_round_visits_every_cell_on_its_paths_forth_and_back(name: str) -> None:
    plan = load_plan(name, quick=True)
    cells = stream_cells(plan)
    trials = expand_trials(plan)
    assert [trial.block for trial in trials] == list(range(len(trials)))
    seen: dict[int, list[int]] = defaultdict(list)
    for (round_number, cell), group in groupby(trials, key=lambda trial: (trial.round, trial.cell)):
        visits = list(group)
        devices = [trial.device for trial in visits]
        assert devices == devices[::-1]
        assert sorted(devices[: len(devices) // 2]) == sorted(paths_of(plan, cells[cell]))
        assert all(trial.factors == cells[cell] for trial in visits)
        seen[round_number].append(cell)
    assert all(sorted(found) == list(range(len(cells))) for found in seen.values())
    assert len(seen) == plan.trials.rounds
    assert len({tuple(found) for found in seen.values()}) > 1 or len(cells) == 1
    assert len({trial.seed for trial in trials}) == len(trials)
    assert len(trials) < QUALIFY_BLOCKS < SEARCH_BLOCKS


def test_trials_depend_on_the_seed_alone_and_fewer_rounds_are_the_first_of_more() -> None:
    plan = load_plan("fan-in", quick=True)
    trials = expand_trials(plan)
    assert expand_trials(load_plan("fan-in", quick=True)) == trials
    assert expand_trials(load_plan("fan-in", quick=True, sets=["seed=9"])) != trials
    fewer = expand_trials(load_plan("fan-in", quick=True, sets=["rounds=4"]))
    assert fewer == trials[: len(fewer)]


def test_only_a_switch_carries_what_takes_more_than_two_ports() -> None:
    for name in names(tuple(method for method in STREAM_METHODS if method != "emulator")):
        if name.startswith(("rated-", "emulator-")):
            continue  # their devices have sections of their own
        plan = load_plan(name, sets=["devices=wire,bridge"])
        for factors in stream_cells(plan):
            needs = factors.senders > 1 or factors.receivers or factors.load_via == "through" or factors.to == "unknown"
            assert (paths_of(plan, factors) == ("bridge",)) == bool(needs)


def test_a_a_control_is_only_for_idle_paths() -> None:
    plan = load_plan("background")
    for factors in stream_cells(plan):
        assert ("a/a" in paths_of(plan, factors)) == (factors.load == 0)


@pytest.mark.parametrize("name", ["one-way", "background", "stages", "multicast"])
def test_a_a_control_of_streams_has_its_own_direct_link(name: str) -> None:
    plan = load_plan(name)
    assert plan.twins == ("direct", "bridge")
    assert {one.path for one in plan.expand() if one.device == "a/a"} == {"a/a"}
    assert {one.path for one in load_plan(name, sets=["bed.twins=false"]).expand() if one.device == "a/a"} == {"direct"}
    idle = [one for one in plan.expand() if one.device == "direct" and not one.factors.load]
    assert {one.path for one in idle} == {"direct"}, "the control is the second one"


@pytest.mark.parametrize("name", ["one-way", "throughput", "loss", "fan-in", "timestamp-accuracy"])
@pytest.mark.parametrize("quick", [False, True])
def test_half_of_the_trials_of_a_path_use_its_second_link(name: str, quick: bool) -> None:
    plan = load_plan(name, quick=quick)
    trials, alone = plan.expand(), load_plan(name, quick=quick, sets=["bed.twins=false"]).expand()
    assert [replace(one, second=False, own_link=False) for one in trials] == list(alone)
    visits: dict[tuple[int, int, str], list[bool]] = {}
    for one in trials:
        visits.setdefault((one.round, one.cell, one.device), []).append(one.second)
    doubled = {"bridge"} | ({"direct"} if name != "one-way" else set())
    for (_, _, device), second in visits.items():
        assert sorted(second) == ([False, True] if device in doubled else [False, False])
    first = [second[0] for (_, _, device), second in visits.items() if device == "bridge"]
    assert 0.2 < sum(first) / len(first) < 0.8, "which visit takes the second link is drawn"
    assert {one.path for one in trials if one.second} <= {"bridge/2", "a/a"}
    assert {one.first_path for one in trials if one.second} <= {"bridge", "direct"}


def test_emulator_rated_path_and_switch_without_port_names_have_no_second_link() -> None:
    assert load_plan("emulator-throughput", sets=["bed.twins=true"]).twins == ("direct",)
    assert load_plan("rated-queue", sets=["bed.twins=true"]).twins == ("direct",)
    several = ["devices=bridge:uplinks", "bed.twins=true"]
    assert load_plan("fan-in", sets=several).twins == ("direct",)
    assert load_plan("throughput", sets=several).twins == ("direct", "bridge:uplinks")


def test_searches_alternate_links_by_size_and_repetition() -> None:
    trials = load_plan("rfc2544").expand()
    links: dict[int, dict[int, set[bool]]] = {}
    for one in trials:
        links.setdefault(one.factors.frame_bytes, {}).setdefault(one.round, set()).add(one.second)
    assert all(len(each) == 1 for turns in links.values() for each in turns.values()), "all tests of a size take one"
    for turns in links.values():
        assert all(turns[turn] != turns[turn + 1] for turn in range(5))
    assert {sum(turns[turn] == {True} for turns in links.values()) for turn in range(6)} == {3, 4}
    alone = load_plan("rfc2544", sets=["bed.twins=false"]).expand()
    assert [replace(one, second=False) for one in trials] == list(alone)


def test_transfers_alternate_direct_links_by_pair() -> None:
    trials = load_plan("tcplog-cost").expand()
    of = {(one.batch, one.second) for one in trials}
    assert len(of) == len({batch for batch, _ in of}), "a transfer is over one link"
    traffic = {one.batch: (one.factors.setting.path, one.factors.setting.flows) for one in trials}
    for each in set(traffic.values()):
        turns = [second for batch, second in sorted(of) if traffic[batch] == each]
        assert all(one != after for one, after in pairwise(turns))
    alone = load_plan("tcplog-cost", sets=["bed.twins=false"]).expand()
    assert [replace(one, second=False) for one in trials] == list(alone)


@pytest.mark.parametrize("name", ["one-way", "throughput", "loss"])
def test_a_simulated_wire_has_two_ports_as_the_real_one(name: str) -> None:
    plan = load_plan(name, backend="sim", sets=["senders=2"])
    assert {path for factors in stream_cells(plan) for path in paths_of(plan, factors)} == {"bridge"}


def test_cell_without_a_load_occurs_once() -> None:
    cells = stream_cells(load_plan("background"))
    assert len(set(cells)) == len(cells) == 2 * 4 * (1 + 3 * 2)
    assert {factors.load_via for factors in cells if not factors.load} == {None}


def test_counts_and_durations_are_consistent() -> None:
    for name in names(STREAM_METHODS):
        plan = load_plan(name)
        for trial in expand_trials(plan)[:200]:
            factors = trial.factors
            if factors.kind in CLOSED_LOOPS:
                assert (trial.count, factors.schedule) == (plan.trials.probes, "closed-loop")
            elif factors.rate_pps is None:
                assert (trial.count, trial.duration_ns) == (None, plan.trials.duration_ns)
            else:
                assert trial.count is not None
                assert trial.count >= LEAST_COUNT
                assert trial.count * factors.senders / factors.rate_pps == pytest.approx(trial.duration_ns / 1e9)


def test_relative_rates_refer_to_the_measured_throughput() -> None:
    shares = {factors.rate_share for factors in stream_cells(load_plan("loss")) if factors.schedule == "regular"}
    assert shares == {0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1}
    assert all(f.rate_share is None for f in stream_cells(load_plan("loss")) if f.schedule == "flood")


def test_the_tester_is_qualified_on_the_direct_link_at_each_size() -> None:
    plan = load_plan("one-way")
    trials = qualify_trials(plan)
    assert {trial.device for trial in trials} == {"direct"}
    assert {trial.purpose for trial in trials} == {"qualify"}
    assert [trial.block for trial in trials] == [QUALIFY_BLOCKS + i for i in range(len(trials))]
    by_size = defaultdict(list)
    for trial in trials:
        by_size[trial.factors.payload_bytes].append((trial.factors.schedule, trial.factors.rate_pps))
    wanted = [("regular", 1000.0), ("regular", 1_000_000.0), ("flood", None)]
    assert by_size == dict.fromkeys(plan.stream.sizes, wanted)
    assert qualify_trials(load_plan("one-way", sets=["qualify=false"])) == []


def test_searches_include_their_prerequisite_searches() -> None:
    plan = load_plan("rfc2544", sets=["repetitions=3", "devices=bridge,wire"])
    searches = plan.expand()
    assert [search.block for search in searches] == list(range(len(searches)))
    order = [test for test, _ in groupby(search.factors.test for search in searches)]
    assert order[:4] == ["throughput", "latency", "frame-loss", "back-to-back"]
    places = [(s.round, s.device, s.factors.frame_bytes) for s in searches if s.factors.test == "latency"]
    assert len(set(places)) == len(places) == 3 * 2 * 7
    bursts = [(s.round, s.device, s.factors.frame_bytes) for s in searches if s.factors.test == "back-to-back"]
    assert len(bursts) == 9 * len(set(bursts)), "RFC 9004: whole searches are repeated"
    assert all(s.batch == s.round for s in searches), "a repetition belongs to one bed"
    two = load_plan("rfc2544", sets=["search.algorithm=mlrsearch,binary"]).expand()
    both = {(s.factors.test, s.factors.algorithm) for s in two}
    assert {algorithm for test, algorithm in both if test == "throughput"} == {"mlrsearch", "binary"}
    assert {algorithm for test, algorithm in both if test == "latency"} == {"mlrsearch"}


@pytest.mark.parametrize("name", SEARCH_METHODS)
def test_searches_are_repeated_on_separate_beds_with_several_trials(name: str) -> None:
    for quick, least in ((False, 6), (True, 3)):
        plan = load_plan(name, quick=quick)
        assert plan.search.repetitions >= least
        assert plan.bed.sessions == plan.search.repetitions
        assert plan.search.duration_sum_ns >= 2 * plan.search.duration_ns
    full = load_plan(name).search
    assert full.repetitions * full.latency_repetitions >= 20
    assert full.repetitions * full.burst_repetitions >= 50


@pytest.mark.parametrize("name", names((*STREAM_METHODS, *SEARCH_METHODS)))
def test_quick_run_leaves_time_for_setup_and_analysis(name: str) -> None:
    """The whole, with the building of beds, is held to a minute in test_plan.py."""
    plan = load_plan(name, quick=True)
    cost = plan.ask.estimate(plan, plan.expand())
    at_most = (plan.search if "search" in plan.sections else plan.trials).at_most_ns
    assert cost.measuring_ns <= 53e9
    assert at_most is not None
    assert at_most <= 48e9


@pytest.mark.parametrize("name", names(STREAM_METHODS))
def test_quick_has_time_for_a_few_rounds(name: str) -> None:
    """The estimate of one round fits the time often enough: six pairs have an interval, fewer have none."""
    plan = load_plan(name, quick=True)
    first = [trial for trial in expand_trials(plan) if trial.round == 0]
    needed = 3 if plan.study.method in {"throughput", "loss", "emulator"} else 6
    assert needed * estimate_trials(plan, first).measuring_ns < (plan.trials.at_most_ns or 0)


def test_effective_plan_has_only_the_sections_of_its_method() -> None:
    searched, streamed, paired = (effective_toml(load_plan(name)) for name in ("rfc2544", "fan-in", "frame-size"))
    assert "[search]" in searched
    assert "rounds" not in searched
    assert "[probe]" not in streamed
    assert "near = 8" in streamed
    assert "[stream]" not in paired
    assert "near" not in paired


def test_streams_over_a_router_are_udp_and_long_enough(tmp_path: Path) -> None:
    plan = load_plan("throughput", sets=["devices=router,bridge", "stream.frame_bytes=64,1518"])
    assert plan.stream.engine == ("udp",)
    assert plan.stream.frame_bytes == (86, 1518)
    assert "stream.engine = udp, which a router passes on and a filter of IP acts on" in plan.asked
    again = tmp_path / "plan.toml"
    again.write_text(effective_toml(plan))
    assert load_plan(again).stream == plan.stream


@pytest.mark.parametrize(
    ("study", "sets", "sentence"),
    [
        ("one-way", ["stream.engine=packet"], 'expected "auto", "udp" or "udp6": router forwards nothing but IP'),
        ("loss", ["stream.load=10%"], "router forwards nothing but IP"),
        ("bridge-latency", ["probe=raw/ping-pong", "probe.frame_bytes=64"], "expected icmp or udp probes alone"),
    ],
)
def test_traffic_that_no_router_forwards_is_refused(study: str, sets: list[str], sentence: str) -> None:
    with pytest.raises(RequestError, match=re.escape(sentence)):
        load_plan(study, sets=["devices=router", *sets])


@pytest.mark.parametrize(
    ("study", "sets", "sentence"),
    [
        ("bridge-modes", ["stream.engine=packet", "stream.payload_bytes=64"],
         'expected "auto", "udp" or "udp6": bridge:netfilter acts only on IP: raw frames pass it'),
        ("bridge-modes", ["stream.engine=udp,packet"], "bridge:netfilter acts only on IP"),
        ("bridge-latency", ["probe=raw/ping-pong", "probe.frame_bytes=64"], "expected icmp or udp probes alone"),
    ],
)  # fmt: skip
def test_raw_frames_are_refused_where_a_device_acts_on_ip_alone(study: str, sets: list[str], sentence: str) -> None:
    """They pass it, but past what would be measured: the cost of netfilter would be that of the queues alone."""
    with pytest.raises(RequestError, match=re.escape(sentence)):
        load_plan(study, sets=["devices=bridge,bridge:netfilter", *sets])


def test_rate_may_apply_to_one_size_only(tmp_path: Path) -> None:
    text = (
        LEAST + 'engine = ["udp"]\npayload_bytes = [64, 1472]\nrate = ["11Mbit/s at 64", "90Mbit/s at 1472", "1kpps"]\n'
    )
    plan = plan_of(tmp_path, text)
    cells = [(one.payload_bytes, round(one.rate_pps or 0)) for one in stream_cells(plan)]
    assert cells == [(64, 11_000_000 // (8 * 110)), (64, 1000), (1472, round(90e6 / (8 * 1518))), (1472, 1000)]
    again = tmp_path / "again.toml"
    again.write_text(effective_toml(plan))
    assert load_plan(again).stream == plan.stream
    assert {one.factors.rate_pps for one in qualify_trials(plan) if one.factors.payload_bytes == 64} == {
        1000.0, 12_500.0, None
    }  # fmt: skip
    assert "a rate for stream.payload_bytes = 1472 too" in refusal(
        tmp_path, text.replace(', "90Mbit/s at 1472", "1kpps"', "")
    )
    assert 'of one size "100Mbit/s at 64"' in refusal(tmp_path, text.replace("at 64", "at many"))


def test_rates_of_the_study_equal_those_of_the_paper() -> None:
    cells = [
        (one.payload_bytes, round((one.rate_pps or 0) * one.frame_bytes * 8 / 1e6))
        for one in stream_cells(load_plan("bridge-modes"))
    ]
    assert cells == [(64, rate) for rate in (1, 11, 21, 31)] + [(1472, rate) for rate in (1, *range(10, 100, 10))]


@pytest.mark.parametrize("device", ["xdp", "emulate:zero"])
def test_devices_that_bypass_taps_are_refused_for_tap_measurements(device: str) -> None:
    with pytest.raises(RequestError, match=f'bed.devices = "{device}": expected devices without XDP'):
        load_plan("bridge-modes", devices=[device])


def test_study_of_an_ip_filter_sends_udp() -> None:
    stages, loss = (load_plan(one, devices=["bridge:netfilter"]) for one in ("stages", "loss"))
    assert stages.stream.engine == ("udp",)
    assert loss.stream.to == ("unicast",)
    assert load_plan("bridge-modes").stream.engine == ("udp",)
    assert "packet" in load_plan("stages", devices=["bridge:qos"]).stream.engine


def test_study_of_a_router_omits_raw_frames_and_address_flooding() -> None:
    stages, sizes, loss = (load_plan(one, devices=["router"]) for one in ("stages", "frame-size", "loss"))
    assert stages.stream.engine == ("udp",)
    assert {probe.partition("/")[0] for probe in sizes.probe.probe} <= {"udp", "icmp"}
    assert loss.stream.to == ("unicast",)
    assert any("udp probes in place of raw ones" in one for one in sizes.asked)
    assert "packet" in load_plan("stages").stream.engine


def test_plan_with_raw_frames_over_a_router_is_refused(tmp_path: Path) -> None:
    plan = tmp_path / "mine.toml"
    plan.write_text(
        '[study]\nname = "mine"\nmethod = "stages"\n[bed]\ndevices = ["router"]\n[stream]\nengine = ["packet"]\n'
    )
    with pytest.raises(RequestError, match="router forwards nothing but IP"):
        load_plan(plan)


def test_multicast_over_an_ip_filter_uses_udp_and_keeps_its_receivers() -> None:
    plan = load_plan("multicast", devices=["bridge:netfilter"])
    assert plan.stream.engine == ("udp",)
    assert plan.stream.to == ("unicast", "multicast")
    assert max(plan.stream.receivers) > 0


def test_rate_for_one_size_is_checked_with_frames_of_that_size() -> None:
    sizes = ["devices=bridge", "bed.rate=100Mbit/s", "stream.payload_bytes=64,1472", "stream.engine=udp"]
    plan = load_plan("bridge-modes", sets=[*sizes, "stream.rate=20kpps at 64,1kpps at 1472"])
    assert [str(rate) for rate in plan.stream.rates] == ["20kpps at 64", "1kpps at 1472"]
    with pytest.raises(RequestError, match="1518 bytes"):
        load_plan("bridge-modes", sets=[*sizes, "stream.rate=1kpps at 64,20kpps at 1472"])
    slow, quick = (
        load_plan(
            "loss",
            sets=[
                "stream.payload_bytes=64,1472",
                "stream.engine=udp",
                "stream.to=unicast",
                "stream.schedule=regular",
                f"stream.rate={rates}",
            ],
        )
        for rates in ("1Mbit/s at 64,1Mbit/s at 1472", "10Mbit/s at 64,1Mbit/s at 1472")
    )
    assert is_restful(slow)
    assert not is_restful(quick), "11,364 frames of 110 bytes a second"


def test_messages_over_tcp_are_segments_without_options() -> None:
    """The paper's: "1460 byte for TCP", in frames as long as those of UDP's 1472."""
    cells = [
        (one.engine, one.payload_bytes, one.frame_bytes, round((one.rate_pps or 0) * one.frame_bytes * 8 / 1e6))
        for one in stream_cells(load_plan("bridge-modes-tcp"))
    ]
    small, large = [("tcp", 64, 122, rate) for rate in (1, 11, 21, 31)], [1, *range(10, 100, 10)]
    assert cells == [*small, *(("tcp", 1460, 1518, rate) for rate in large)]


@pytest.mark.parametrize(
    ("study", "sets", "sentence"),
    [
        ("bridge-modes-tcp", ["stream.schedule=poisson"], 'stream.schedule = "poisson": expected "regular" with'),
        ("bridge-modes-tcp", ["stream.rate=50%"], 'stream.rate = "50%": expected messages or bits per second'),
        ("bridge-modes-tcp", ["stream.to=multicast"], 'stream.to = "multicast": expected "unicast" with engine tcp'),
        ("bridge-modes-tcp", ["bed.backend=sim"], "leave out --bed sim"),
        ("bridge-modes-tcp", ["bed.offloads=true"], "bed.offloads = true: expected false with engine tcp"),
        ("bridge-modes-tcp", ["stream.payload_bytes=1461", "stream.rate=1kpps"], "at most 1460 for engine tcp"),
        ("bridge-modes-tcp", ["stream.payload_bytes=20", "stream.rate=1kpps"], "at least 40 for engine tcp"),
        ("one-way", ["stream.engine=tcp"], 'stream.engine = "tcp": expected it with study.method = taps alone'),
        ("throughput", ["stream.engine=tcp"], 'stream.engine = "tcp": expected it with study.method = taps alone'),
    ],
)
def test_impossible_tcp_messages_are_refused(study: str, sets: list[str], sentence: str) -> None:
    with pytest.raises(RequestError, match=re.escape(sentence)):
        load_plan(study, sets=sets)


def test_rate_for_an_unused_size_is_refused() -> None:
    sentence = 'stream.rate = "1Mbit/s at 1472": expected rates of sizes in stream.payload_bytes, which has 64'
    with pytest.raises(RequestError, match=re.escape(sentence)):
        load_plan("bridge-modes", sets=["stream.payload_bytes=64"])


def test_rate_for_one_size_follows_it_when_converted_to_udp() -> None:
    own = ["stream.engine=auto", "stream.payload_bytes=46,1500", "stream.rate=10kpps at 46,1kpps at 1500"]
    plan = load_plan("bridge-modes", sets=[*own, "devices=router"])
    assert [(one.payload_bytes, one.rate_pps) for one in stream_cells(plan)] == [(46, 10_000.0), (1472, 1_000.0)]


def test_a_raw_load_goes_through_a_filter_of_ip() -> None:
    plan = load_plan("loss", sets=["devices=bridge:netfilter", "stream.load=10%"])
    assert max(plan.stream.load) == 0.1
