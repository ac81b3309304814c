"""Flows with round trips of their own: which ports they send from, and what the emulator is told of these."""

from __future__ import annotations

from itertools import product

import pytest

from sojourn.conduct import backgrounds, connections
from sojourn.conduct.site import UDP_PORT
from sojourn.errors import RequestError
from sojourn.methods.tcp_load.ask import cells, pipe_of, pipes
from sojourn.plan import load_plan
from sojourn.plan.round_trips import ports, spans, with_round_trips

MIX = 'load.round_trips=["20ms+80ms"]'


def test_each_flow_uses_a_port_delayed_by_half_of_its_rtt() -> None:
    for flows, turns, mix in product((2, 3, 5, 7, 1000), (1, 2, 4), ("20ms+80ms", "1ms+2ms+3ms")):
        own = spans(mix)
        words = with_round_trips("queue 9", mix, flows, turns).split()
        assert words[:2] == ["queue", "9"]
        delays: dict[int, str] = {}
        for name, span, delay in zip(words[2::3], words[3::3], words[4::3], strict=True):
            assert name == "port-delay"
            first, last = map(int, span.split("-"))
            for port in range(first, last + 1):
                assert port not in delays
                delays[port] = delay
        every = [port for turn in range(turns) for port in ports(flows, turn, turns, len(own))]
        assert len(set(every)) == flows * turns
        assert min(every) >= 1024
        assert max(every) < backgrounds.FIRST_PORT < connections.FIRST_PORT, "where trials listen"
        assert UDP_PORT not in every
        for turn in range(turns):
            for number, port in enumerate(ports(flows, turn, turns, len(own))):
                assert (
                    delays[port]
                    == {20: "10ms", 80: "40ms", 1: "500us", 2: "1ms", 3: "1500us"}[own[number % len(own)] // 1_000_000]
                )


def test_rtts_are_a_factor_and_configure_the_pipes() -> None:
    plan = load_plan("coexistence", sets=['load.round_trips=["20ms+20ms", "20ms+80ms"]', "load.flows=2"])
    several = cells(plan)
    assert {factors.round_trips for _, _, factors in several} == {"20ms+20ms", "20ms+80ms"}
    found = {pipe_of(plan, device, factors) for _, device, factors in several}
    assert found == set(pipes(plan))
    assert all(words.startswith("rate 20Mbit/s delay 10ms queue 50 port-delay 2000-") for words in found)
    assert not pipes(load_plan("coexistence"))


def test_scenarios_can_have_rtts() -> None:
    plan = load_plan("aqm", sets=[MIX, "load.scenario=several: 4 reno beside tcp 2 cubic"])
    assert {(of.scenario, of.flows, of.round_trips) for _, _, of in cells(plan)} == {("several", 4, "20ms+80ms")}


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        ([MIX], "load.flows"),
        ([MIX, "load.flows=2", 'bed.devices=["bridge", "emulate"]'], "bed.devices has emulators alone"),
        ([MIX, "load.scenario=one: 1 reno"], "load.scenario"),
        (["load.flows=2", 'load.round_trips=["20ms"]'], "two to 4 times"),
        (["load.flows=2", 'load.round_trips=["20ms+0ms"]'], "two to 4 times"),
        (["load.flows=2", 'load.round_trips=["20ms+fast"]'], "two to 4 times"),
    ],
)
def test_impossible_rtts_are_refused(sets: list[str], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        load_plan("coexistence", sets=sets)
