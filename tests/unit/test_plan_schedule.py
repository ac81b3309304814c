"""Blocks in their order: mirrored rounds, shuffled cells, one order for one seed; sizes; the estimate of the time."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.plan import Plan, load_plan
from sojourn.plan.probes import LEAST_COUNT, Probing, estimate_probes
from sojourn.plan.sizes import KINDS, frame_of, payload_of
from sojourn.statistics.signed_rank import least_pairs

if TYPE_CHECKING:
    from sojourn.plan.trial import Trial

QUICK = ("bridge-latency", "frame-size", "ping-wait")


def cells(plan: Plan) -> list[Probing]:
    every = {trial.cell: trial.factors for trial in plan.expand()}
    return [every[cell] for cell in sorted(every)]


def quick(*sets: str, name: str = "bridge-latency") -> Plan:
    return load_plan(name, quick=True, sets=sets)


def test_round_of_a_cell_visits_paths_forth_and_back() -> None:
    for _, group in groupby(quick().expand(), key=lambda block: (block.round, block.cell)):
        blocks = list(group)
        devices = [block.device for block in blocks]
        assert devices == devices[::-1]
        assert sorted(devices[:5]) == ["a/a", "bridge", "bridge/2", "direct", "wire"]
        assert [block.visit for block in blocks] == [0] * 5 + [1] * 5


def test_every_cell_has_every_path_in_every_round() -> None:
    plan = quick("rounds=3")
    seen: dict[tuple[int, int], list[str]] = defaultdict(list)
    for block in plan.expand():
        seen[block.round, block.cell].append(block.device)
    assert len(seen) == 3 * len(cells(plan))
    every = sorted(["direct", "a/a", "wire", "bridge", "bridge/2"] * 2)
    assert all(sorted(devices) == every for devices in seen.values())


def test_blocks_are_numbered_in_order_and_depend_on_the_seed_alone() -> None:
    blocks = quick().expand()
    assert [block.block for block in blocks] == list(range(len(blocks)))
    assert quick().expand() == blocks
    other = quick("seed=2").expand()
    assert [block.device for block in other] != [block.device for block in blocks]
    assert len({block.seed for block in blocks}) == len(blocks)


def test_both_cells_and_paths_are_shuffled() -> None:
    blocks = quick().expand()
    first_cells = {next(group).cell for _, group in groupby(blocks, key=lambda block: block.round)}
    first_arms = {next(group).device for _, group in groupby(blocks, key=lambda block: (block.round, block.cell))}
    assert first_cells == {0, 1, 2}
    assert first_arms == {"direct", "a/a", "wire", "bridge", "bridge/2"}


@pytest.mark.parametrize(("twins", "path"), [("false", "direct"), ("true", "a/a")])
def test_a_a_control_uses_the_direct_link_or_its_second_instance(twins: str, path: str) -> None:
    control = next(block for block in quick(f"bed.twins={twins}").expand() if block.device == "a/a")
    assert control.path == path


def test_slow_intervals_get_shorter_blocks_but_keep_a_warm_up() -> None:
    by_interval: dict[int, Trial[Probing]] = {}
    for block in load_plan("bridge-latency").expand():
        by_interval[block.factors.interval_ns] = block
    assert by_interval[1_000_000].count == 108
    slowest = by_interval[1_000_000_000]
    assert (slowest.count, slowest.warmup) == (LEAST_COUNT, 1)


def test_icmp_size_1480_fits_and_1488_fragments() -> None:
    fragments = {cell.size: cell.fragments for cell in cells(load_plan("bridge-latency"))}
    assert fragments == {64: False, 772: False, 1480: False, 1488: True}


def test_a_closed_loop_has_no_interval_and_a_fixed_request() -> None:
    found = cells(load_plan("frame-size"))
    assert {cell.interval_ns for cell in found} == {0}
    requests = {cell.request_payload_bytes for cell in found if cell.probe == "raw/request-response"}
    assert requests == {64}
    assert all(c.request_payload_bytes == c.response_payload_bytes for c in found if c.probe == "raw/ping-pong")


def test_ping_interval_is_at_least_one_millisecond() -> None:
    found = cells(load_plan("ping-wait"))
    assert {cell.tool for cell in found if cell.interval_ns == 100_000} == {"probe"}
    assert {cell.tool for cell in found if cell.interval_ns == 0} == {"ping", "probe"}
    assert all(block.device == "direct" and block.visit == 0 for block in load_plan("ping-wait").expand())


@pytest.mark.parametrize("name", QUICK)
def test_quick_run_reserves_a_third_of_a_minute_for_setup_and_analysis(name: str) -> None:
    """Building, warming up, analysis and report take 12 s of a quiet machine and twice that of a busy one."""
    plan = quick(name=name)
    assert estimate_probes(plan, plan.expand()).measuring_ns < 37e9
    assert plan.study.method == "departures" or (plan.pairs.at_most_ns or 1e99) <= 36e9


@pytest.mark.parametrize("name", ["bridge-latency", "frame-size"])
def test_a_study_measures_enough_to_answer_its_hypotheses(name: str) -> None:
    """Deviations from a hypothesis are judged together, which takes more rounds than one of them would."""
    plan = load_plan(name)
    levels = {
        "rate-independent": len(plan.probe.intervals_ns),
        "constant-plus-per-byte": len({cell.size for cell in cells(plan) if not cell.fragments}),
        "cascade-adds": 1,
    }
    for hypothesis in plan.study.hypotheses:
        assert hypothesis == "cascade-adds" or levels[hypothesis] >= (
            3 if hypothesis == "constant-plus-per-byte" else 2
        )
        assert plan.pairs.rounds >= least_pairs(1 - 0.05 / levels[hypothesis])


def test_estimated_duration_is_counts_times_intervals_plus_overhead() -> None:
    plan = load_plan("bridge-latency")
    blocks = plan.expand()
    least = sum(((block.count or 0) - 1) * block.factors.interval_ns for block in blocks)
    assert least < estimate_probes(plan, blocks).measuring_ns < 1.01 * least
    assert estimate_probes(plan, blocks[:10]).measuring_ns < estimate_probes(plan, blocks).measuring_ns / 10


@pytest.mark.parametrize(
    ("probe", "key", "size", "payload", "frame"),
    [
        ("icmp", "icmp_bytes", 64, 56, 102),
        ("icmp", "icmp_bytes", 1480, 1472, 1518),
        ("icmp6", "icmp_bytes", 64, 56, 122),
        ("raw/ping-pong", "payload_bytes", 46, 46, 64),
        ("raw/ping-pong", "payload_bytes", 1500, 1500, 1518),
        ("udp/ping-pong", "frame_bytes", 1518, 1472, 1518),
        ("udp6/ping-pong", "payload_bytes", 40, 40, 106),
        ("icmp", "icmp_bytes", 8, 0, 64),
    ],
)
def test_payload_and_frame_sizes_are_consistent(probe: str, key: str, size: int, payload: int, frame: int) -> None:
    assert payload_of(probe, key, size) == payload
    assert frame_of(probe, payload) == frame


@given(st.sampled_from(sorted(KINDS)), st.integers(46, 1400))
def test_a_frame_size_gives_the_payload_that_gives_the_frame(probe: str, payload: int) -> None:
    frame = frame_of(probe, payload)
    assert frame_of(probe, payload_of(probe, "frame_bytes", frame)) == frame
