"""Plans with emulators, pipes as a factor, and rated links: what they mean, and what is refused with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sojourn import devices
from sojourn.errors import RequestError
from sojourn.plan import Plan, effective_toml, load_plan
from sojourn.plan.emulators import expected_ns
from sojourn.plan.trials import estimate_trials, expand_trials, paths_of, stream_cells

if TYPE_CHECKING:
    from pathlib import Path

LEAST = """\
[study]
name = "mine"
method = "emulator"

[bed]
devices = ["emulate", "bridge"]

[stream]
frame_bytes = [102]
pipe = ["delay 1ms", "delay 20ms 2ms"]
rate = ["1kpps", "2kpps"]
"""


def plan_of(tmp_path: Path, text: str, *sets: str) -> Plan:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return load_plan(path, sets=sets)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(RequestError) as caught:
        plan_of(tmp_path, text)
    assert caught.value.status == 2
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_a_pipe_is_a_factor_and_every_path_is_visited(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, LEAST)
    cells = stream_cells(plan)
    assert [(cell.rate_pps, cell.pipe) for cell in cells] == [
        (1000.0, "delay 1ms"),
        (1000.0, "delay 20ms 2ms"),
        (2000.0, "delay 1ms"),
        (2000.0, "delay 20ms 2ms"),
    ]
    assert {paths_of(plan, cell) for cell in cells} == {("direct", "emulate", "bridge")}


def test_plans_without_pipes_have_unchanged_cells() -> None:
    assert {cell.pipe for cell in stream_cells(load_plan("one-way"))} == {""}
    assert "pipe" not in effective_toml(load_plan("one-way"))
    assert "[emulate]" not in effective_toml(load_plan("one-way"))


def test_the_wait_for_delayed_frames_is_in_the_estimate(tmp_path: Path) -> None:
    slow = plan_of(tmp_path, LEAST.replace("delay 1ms", "delay 1s"))
    fast = plan_of(tmp_path, LEAST)
    costs = [estimate_trials(plan, expand_trials(plan)).measuring_ns for plan in (slow, fast)]
    trials = [trial for trial in expand_trials(slow) if trial.factors.pipe == "delay 1s" and trial.device == "emulate"]
    assert costs[0] - costs[1] == len(trials) * 999_000_000
    assert expected_ns("delay 20ms 2ms loss 1%") == 22_000_000
    assert expected_ns("rate 10Mbit/s") == 0


def test_emulator_labels_inherit_common_settings(tmp_path: Path) -> None:
    text = LEAST.replace('"emulate", "bridge"', '"emulate:a", "emulate:b", "emulate:c"').replace("pipe =", "# pipe =")
    sections = (
        '[emulate]\nseed = 7\nwords = "delay 1ms"\n[emulate.a]\nengine = "xdp"\n[emulate.b]\nforward = "loss 1%"\n'
    )
    plan = plan_of(tmp_path, text + sections)
    one, other, common = (plan.emulators[label] for label in ("a", "b", ""))
    assert (one.forward, one.backward, one.engine, one.seed) == ("delay 1ms", "delay 1ms", "xdp", 7)
    assert (other.forward, other.backward, other.engine, other.seed) == ("loss 1%", None, "auto", 7)
    assert (common.forward, common.log) == ("delay 1ms", True)
    again = plan_of(tmp_path, effective_toml(plan))
    assert again.emulators == plan.emulators


def test_only_method_emulator_logs_by_default(tmp_path: Path) -> None:
    text = LEAST.replace('method = "emulator"', 'method = "one-way"')
    assert not plan_of(tmp_path, text).emulators[""].log
    assert plan_of(tmp_path, f"{text}[emulate]\nlog = true\n").emulators[""].log


def test_links_are_rated_for_all_paths_or_cable_by_cable(tmp_path: Path) -> None:
    text = LEAST.replace('"emulate", "bridge"]', '"emulate", "bridge", "bridge*2:up"]\nlink_rate = "100Mbit/s"')
    text += '[bed.links."bridge*2:up"]\nrate = ["100Mbit/s", "1Gbit/s", "unlimited"]\ndelay = "5us"\n'
    plan = plan_of(tmp_path, text)
    assert plan.bed.links["direct"].rates_bps == (100_000_000,)
    assert plan.bed.links["bridge*2:up"].rates_bps == (100_000_000, 1_000_000_000, None)
    assert plan.bed.links["bridge*2:up"].delays_ns == (5_000,)
    assert plan_of(tmp_path, effective_toml(plan)).bed == plan.bed


def test_a_path_may_be_rated_alone(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, LEAST + '[bed.links.bridge]\nrate = ["unlimited", "10Mbit/s"]\n')
    assert list(plan.bed.links) == ["bridge"]


def test_device_names_give_cables_and_labels() -> None:
    assert [devices.cables(device) for device in ("direct", "wire", "bridge:x", "emulate", "bridge*3:up")] == [
        1,
        2,
        2,
        2,
        4,
    ]
    assert [devices.emulator_label(device) for device in ("emulate", "emulate:idle", "bridge:idle")] == [
        "",
        "idle",
        None,
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"emulate", "bridge"', '"bridge"', 'line 6: bed.devices = ["bridge"]: expected a device "emulate"'),
        ('"emulate", "bridge"', '"emulate:Big"', "bed.devices"),
        ("rate =", "# \n[emulate.none]\nseed = 1\n[trials]\n#", 'expected the device "emulate:none" in bed.devices'),
        ("rate =", '[emulate]\nwords = ""\nforward = ""\n#', "emulate.forward beside emulate.words"),
        ("rate =", '[emulate]\nconfig = "x.toml"\n#', 'emulate.config = "x.toml": expected no file beside stream.pipe'),
        ("rate =", "[emulate]\nspeed = 1\n#", "unknown key emulate.speed"),
        ("rate =", "[emulate.x]\nspeed = 1\n#", "unknown key emulate.x.speed"),
        ("rate =", "[limits]\np99 = 50\n#", "limits.p99 = 50: expected a time with its unit"),
        (
            "rate =",
            '[bed.links.bridge]\nrate = ["1Mbit/s", "1Mbit/s", "1Mbit/s"]\n#',
            "one, or 2 for the cables",
        ),
        ("rate =", '[bed.links.bridge]\nrate = ["fast"]\n#', 'a rate in bits, such as "100Mbit/s", or "unlimited"'),
        ("rate =", "[bed.links.bridge]\nspeed = 1\n#", "expected one of the keys rate, delay"),
        ("rate =", '[bed.links.wire]\nrate = ["1Mbit/s"]\n#', "expected one of the paths direct, emulate, bridge"),
        ('"delay 20ms 2ms"', '"delay 1ms"', "a list of different values"),
        ('method = "emulator"', 'method = "rfc2544"', "stream.pipe has no meaning for study.method = rfc2544"),
        ("[bed]", '[bed]\nbackend = "sim"', 'bed.backend = "sim": expected "netns" for emulator'),
    ],
)
def test_impossible_plans_are_refused_in_one_sentence(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in LEAST
    assert said in refusal(tmp_path, LEAST.replace(old, new, 1))


def test_pipes_need_an_emulator_in_any_method(tmp_path: Path) -> None:
    text = LEAST.replace('method = "emulator"', 'method = "one-way"').replace('"emulate", ', "")
    assert "no other path has pipes" in refusal(tmp_path, text)


def test_limits_are_kept_as_requested(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, LEAST + '[limits]\np99 = "50us"\nrate = 0.002\n')
    assert (plan.limits.p99_ns, plan.limits.rate, plan.limits.offset_ns) == (50_000, 0.002, None)
    assert 'p99 = "50us"' in effective_toml(plan)
