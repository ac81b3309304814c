"""How long a trial waits for late frames: the grace period, or until each has arrived or is counted as dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from sojourn.bed.model import BedSpec, Topology
from sojourn.conduct import tester as tested
from sojourn.conduct.asking import Engines
from sojourn.conduct.tester import LOOK_SECONDS
from sojourn.plan import load_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.conduct.asking import Asked

GRACE_S = 0.02
SENT = {"flows": [{"sent": 100}]}


class Watch:
    """Time that passes where somebody sleeps, and nowhere else."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch()
    monkeypatch.setattr(tested, "time", made)
    return made


def asked(
    ends: str, *, load_pps: float = 0.0, engine: str = "live", answering: int = 0, device: str = "bridge"
) -> Asked:
    plan = load_plan("rfc2544", sets=[f'trials.grace_ends="{ends}"', "trials.grace=20ms"])
    link = Topology.of_spec(BedSpec(devices=("bridge",))).link(device)
    made = SimpleNamespace(plan=plan, link=link, near=link.near, far=link.far, load_pps=load_pps, load_link=None,
                           trial=SimpleNamespace(block=1), engines=Engines(engine, engine),
                           answering=answering)  # fmt: skip
    return cast("Asked", made)


def waiting(arrivals: Sequence[int], dropped: int = 0, device: str = "bridge") -> tuple[tested.Tester, Iterator[int]]:
    """A tester whose receiver tells these numbers one after the other, and whose device's port has dropped so many."""
    told = iter([*arrivals, *[arrivals[-1]] * 1000])
    tester = tested.Tester.__new__(tested.Tester)
    tester.ends = cast("Any", {"b": SimpleNamespace(arrived=lambda _block: next(told))})
    link = Topology.of_spec(BedSpec(devices=("bridge",))).link(device)
    first, second = link.cables[0].left.dev, link.cables[0].right.dev
    now = {first: {"tx_dropped": dropped, "rx_dropped": 0}, second: {"tx_dropped": 0, "rx_dropped": dropped}}
    tester.counted = lambda _asked: (now, 0)  # type: ignore[method-assign, assignment]
    return tester, told


def zero(counts: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {dev: dict.fromkeys(values, 0) for dev, values in counts.items()}


def waited(watch: Watch, ends: str, arrivals: Sequence[int], dropped: int = 0, **more: Any) -> float:
    """How long a trial of 100 frames waits."""
    tester, _ = waiting(arrivals, dropped, more.get("device", "bridge"))
    one = asked(ends, **more)
    before = (zero(tester.counted(one)[0]), 0)
    tester._wait_for_late(one, SENT, before)
    return watch.now


@pytest.mark.parametrize(
    ("arrivals", "dropped", "seconds"),
    [
        ([100], 0, 0.0),
        ([97, 99, 100], 0, 2 * LOOK_SECONDS),
        ([99], 0, GRACE_S),
        ([90], 10, LOOK_SECONDS),
        # Another's frame is among the dropped, and one of ours is still to come.
        ([80, 89, 90, 91], 10, 2 * LOOK_SECONDS + 2 * LOOK_SECONDS),
        ([89], 10, GRACE_S),
    ],
)
def test_grace_period_ends_when_each_frame_is_accounted_for(
    watch: Watch, arrivals: list[int], dropped: int, seconds: float
) -> None:
    assert waited(watch, "accounted", arrivals, dropped) == pytest.approx(seconds)


def test_full_grace_period_is_waited_unless_the_plan_allows_an_early_end(watch: Watch) -> None:
    assert waited(watch, "after", [100]) == pytest.approx(GRACE_S)


def test_full_grace_period_is_waited_with_a_concurrent_load(watch: Watch) -> None:
    assert waited(watch, "accounted", [100], load_pps=1000.0) == pytest.approx(GRACE_S)


@pytest.mark.parametrize(("engine", "device"), [("packet", "bridge"), ("xdp", "bridge"), ("live", "direct")])
def test_frames_refused_by_the_ring_do_not_count_as_accounted(watch: Watch, engine: str, device: str) -> None:
    # It sends each again until it is taken: the ring has dropped more than the device holds.
    assert waited(watch, "accounted", [50], dropped=500, engine=engine, device=device) == pytest.approx(GRACE_S)


def test_full_grace_period_is_waited_if_replies_are_expected(watch: Watch) -> None:
    assert waited(watch, "accounted", [100], answering=1) == pytest.approx(GRACE_S)


def test_only_quick_search_studies_end_the_grace_period_early() -> None:
    for name in ("rfc2544", "rfc8219", "rfc2889"):
        plan, quick = load_plan(name), load_plan(name, quick=True)
        assert (plan.trials.grace_ends, plan.trials.grace_ns) == ("after", 2_000_000_000)
        assert (quick.trials.grace_ends, quick.trials.grace_ns) == ("accounted", 20_000_000)
