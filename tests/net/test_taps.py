"""Method "taps" on real frames: what the taps of each trial saw is what its stream sent, and all is gone afterwards."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.analysis.run import load
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.methods.taps.analyse import study
from sojourn.plan import load_plan
from sojourn.records import read_table
from sojourn.records.log import read_log

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

SETS = (
    "bed.sessions=1", "trials.rounds=2", "trials.duration=40ms", "stream.interval=400us", "stream.payload_bytes=92",
    "trials.qualify=false",
)  # fmt: skip
KEYS = {"wire": "bridge", "bridge:qos": "bridge", "router": "router", "router:nat": "nat"}


@pytest.mark.parametrize("devices", ["wire,bridge:qos", "router,router:nat"])
def test_taps_see_every_packet_of_every_trial_on_its_way_through_the_device(devices: str, tmp_path: Path) -> None:
    engine = ("stream.engine=udp",) if "router" in devices else ()
    plan = load_plan("bridge-modes", quick=True, sets=[*SETS, *engine, f"bed.devices={devices}"])
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    run = load(folder.path)
    taps = [event for event in read_log(folder.log) if event["event"] == "taps"]
    trials = {event["block"]: event for event in run.trial_events.values() if event["device"] not in ("direct", "a/a")}
    assert {event["block"] for event in taps} >= trials.keys()
    for event in taps:
        assert event["key"] == KEYS[event["device"]]
        expect_whole(event, trials.get(event["block"]), folder.records / "taps" / str(event["block"]) / "matched")
    found = study(run)
    least = {row.device: row.value.estimate for row in found.rows
             if (row.quantity, row.statistic) == ("delay_between_taps", "min")}  # fmt: skip
    assert least.keys() == set(devices.split(","))
    assert all(200 < ns < 1e6 for ns in least.values()), least
    assert not list(tmp_path.rglob("*.pcapng"))


def expect_whole(event: dict[str, Any], trial: dict[str, Any] | None, matched: Path) -> None:
    """Forward: everything that was sent entered, and is matched or lost; nothing else came out."""
    [pair] = event["matched"]["pairs"]
    assert pair["clocks"]["relation"] == "one"
    counts = next(one["counts"] for one in pair["directions"] if one["direction"] == "forward")
    assert counts["seen_first"] == counts["matched"] + counts["lost"] + counts["pending"] + counts["evicted"], counts
    assert counts["seen_second"] == counts["matched"] + counts["duplicated"] + counts["unexpected"], counts
    assert (counts["unexpected"], counts["ambiguous"]) == (0, 0), json.dumps(event["matched"])
    if trial is None:  # tried again
        return
    length = trial["factors"]["frame_bytes"] - 4
    crossings = read_table(matched, "crossings").frame
    mine = crossings.filter(pl.col("direction") == "forward", pl.col("length_bytes") == length)
    assert mine.height == sum(flow["first"] for flow in trial["received"] if flow["port"] == 0)
    assert (mine["delay_ns"] > 0).all()
