"""Schedulers simulated round by round: within their bounds with any sizes and weights, beyond with a tenth too much."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sojourn.plan.fair import flows_for
from sojourn.statistics.fairness import BOUNDS, all_backlogged, shortfalls

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

SEED = 5_113


def drr(sizes: list[list[int]], quanta: list[int], steps: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Deficit round robin over classes that always wait, by its paper: which class, and how many bytes."""
    queues, deficits = [deque(one) for one in sizes], [0] * len(sizes)
    found: list[tuple[int, int]] = []
    while len(found) < steps:
        for index, queue in enumerate(queues):
            deficits[index] += quanta[index]
            while queue[0] <= deficits[index]:
                deficits[index] -= queue[0]
                found.append((index, queue.popleft()))
    classes, served = zip(*found[:steps], strict=True)
    return np.array(classes, dtype=np.int64), np.array(served, dtype=np.float64)


def wf2q(sizes: list[list[int]], weights: list[int], steps: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """WF2Q over classes that always wait: of the packets that the fluid has begun, the one it would end first."""
    at, start = [0] * len(sizes), [0.0] * len(sizes)
    now, found = 0.0, []
    for _ in range(steps):
        ends = [begun + sizes[index][at[index]] / weights[index] for index, begun in enumerate(start)]
        begun = [index for index in range(len(sizes)) if start[index] <= now + 1e-9]
        index = min(begun, key=ends.__getitem__)
        size = sizes[index][at[index]]
        found.append((index, size))
        at[index], start[index], now = at[index] + 1, ends[index], now + size / sum(weights)
    classes, served = zip(*found, strict=True)
    return np.array(classes, dtype=np.int64), np.array(served, dtype=np.float64)


@pytest.mark.parametrize("turn", range(20))
def test_fair_schedulers_stay_within_their_bounds_and_approach_them(turn: int) -> None:
    rng = np.random.default_rng(SEED + turn)
    several = int(rng.integers(2, 6))
    weights = [int(one) for one in rng.integers(1, 9, several)]
    sizes = [[int(one) for one in rng.integers(64, 1515, 3000)] for _ in range(several)]
    quantum = int(rng.integers(1514, 3000))
    largest = np.array([max(one) for one in sizes], dtype=float)
    for name, found in (
        ("drr", drr(sizes, [quantum * one for one in weights], 2500)),
        ("wf2q", wf2q(sizes, weights, 2500)),
    ):
        shares = shortfalls(*found, weights) / BOUNDS[name](np.array(weights, dtype=float), largest, quantum)
        assert 0.2 < shares.max() <= 1, (name, SEED + turn)


def test_weight_10_percent_too_high_violates_every_bound() -> None:
    sizes = [[1500] * 3000, [1500] * 3000]
    found = drr(sizes, [4950, 1500], 3000)  # 3.3 to 1
    for name in BOUNDS:
        bounds = BOUNDS[name](np.array([3.0, 1.0]), np.array([1500.0, 1500.0]), 1500)
        assert (shortfalls(*found, [3, 1]) > bounds).any(), name
    even = shortfalls(*drr(sizes, [4500, 1500], 3000), [3, 1])
    assert even == pytest.approx([1500 * 3 / 4, 1500 * 3 / 4])


def test_backlogged_period_has_a_waiting_packet_in_every_class() -> None:
    """Two classes in turns, all there at 0 but the sixth packet, which comes while the fifth is on the link."""
    left = np.arange(1, 9) * 10
    entered = np.array([0, 0, 0, 0, 0, 45, 0, 0])
    classes = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    assert all_backlogged(entered, left, classes, 2) == [slice(1, 3), slice(5, 6)]
    assert all_backlogged(np.zeros(8, dtype=np.int64), left, classes, 2) == [slice(1, 6)]
    classes[3] = -1
    assert all_backlogged(np.zeros(8, dtype=np.int64), left, classes, 2) == [slice(1, 3), slice(4, 6)]


def config(*rules: dict[str, Any], scheduler: object = "wf2q") -> dict[str, Any]:
    classes = [{"name": "web", "weight": 3}, {"name": "bulk", "weight": 1}]
    pipe = {"name": "p", "link": {"rate_bps": 10**7}, "queue": {"scheduler": scheduler, "classes": classes}}
    return {"pipes": [pipe], "rules": [{"number": at, **rule} for at, rule in enumerate(rules)]}


def into(name: str | None, **on: Any) -> dict[str, Any]:
    return {"on": on, "action": {"pipe": {"pipe": "p", "class": name}}}


def test_flows_are_assigned_to_classes_by_dscp() -> None:
    asked = config(into("web", dscp=10, direction="forward"), into("bulk"))
    told = flows_for(asked, asked["pipes"])
    assert (told.marks, told.crowding) == ((10, 0), 1.5)
    blocked = config({"on": {"dscp": 10}, "action": "drop"}, into("web", dscp=10), into("bulk"))
    assert flows_for(blocked, blocked["pipes"]).marks == ()
    elsewhere = config(into("web", destination_ports=[[80, 80]]), into("bulk"))
    told = flows_for(elsewhere, elsewhere["pipes"])
    assert told.marks == ()
    assert "class web;" in told.reasons[0]


def test_flows_have_their_own_sub_queues_without_classes() -> None:
    asked = config(into(None), scheduler={"fq-codel": {"quantum": 1514}})
    asked["pipes"][0]["queue"]["classes"] = []
    assert flows_for(asked, asked["pipes"]).marks == (0, 1, 2, 3)
    asked["pipes"][0]["queue"]["scheduler"] = "fifo"
    assert flows_for(asked, asked["pipes"]).marks == ()
