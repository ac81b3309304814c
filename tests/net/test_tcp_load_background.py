"""Traffic beside the flows on real frames: it is what was asked for, and with the flows no more than the rate."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan
from sojourn.records.log import read_log
from tests.net.busy_machine import retried, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

RATE_BPS = 20e6
UDP, TCP, WEB = "udp 6Mbit/s", "tcp 2 reno", "web 3 x 50kB every 500ms down"
STREAM = "stream 200pps EF both"
SETS = (
    "emulate.words=rate 20Mbit/s delay 10ms queue 100", "emulate.spin=false", "bed.sessions=1", "load.rounds=2",
    "load.logged=0", "load.direction=up", "load.flows=2", f"load.background={UDP},{TCP} + {WEB} + {STREAM}",
    "host.fifo=false", "load.idle=500ms", "load.start_up=1s", "load.duration=3s", "load.pause=50ms",
)  # fmt: skip


@retried
def test_flows_and_background_traffic_share_the_rate_with_separate_figures(tmp_path: Path) -> None:
    plan = load_plan("bufferbloat", sets=SETS)
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    analyse(folder.path)
    found = json.loads(folder.results.read_text())
    rows = {(row["background"], row["quantity"], row["statistic"]): row["estimate"] for row in found}
    findings = {one["name"] for one in json.loads(folder.verdict.read_text())["findings"]}
    print({key: value for key, value in rows.items() if "background" in key[1] or key[1] == "goodput"}, findings)
    assert not findings & {"incomplete", "impossible", "not_conserved"}
    both = f"{TCP} + {WEB} + {STREAM}"

    # UDP does not yield: it has what it was asked for, and all together have no more than the rate.
    used = {words: rows[words, "utilisation", "up"] + rows[words, "background_utilisation", f"up {part}"]
            for words, part in ((UDP, UDP), (both, TCP))}  # fmt: skip
    assert max(used.values()) <= 1.01
    with undisturbed():
        assert rows[UDP, "background_utilisation", f"up {UDP}"] == pytest.approx(6e6 / RATE_BPS, rel=0.05)
        assert rows[UDP, "background_goodput", f"up {UDP}"] == pytest.approx(6e6 * 1472 / 1514, rel=0.05)
        assert min(used.values()) >= 0.9
        assert rows[UDP, "background_lost", f"up {UDP}"] < 0.05
    # Two flows of Reno beside two that are measured: neither has nothing, and goodput is that of the measured alone.
    share = rows[both, "background_goodput", f"up {TCP}"] / (
        rows[both, "background_goodput", f"up {TCP}"] + rows[both, "goodput", "up"]
    )
    assert 0.1 < share < 0.9
    # Transfers of 150 kB each half second go the other way, and take several round trips of 20 ms.
    with undisturbed():
        assert rows[both, "background_goodput", f"down {WEB}"] == pytest.approx(8 * 150_000 / 0.5, rel=0.2)
    assert rows[both, "background_completion", f"down {WEB} mean"] > 3 * 20e6

    # The stream waits behind the flows, in the queue that they fill, and the other way hardly; a probe meets both.
    up, down = (rows[both, "background_delay", f"{way} {STREAM} mean"] for way in ("up", "down"))
    assert 10e6 < down < up < 10e6 + 100 * 1514 * 8 / RATE_BPS * 1e9 + 10e6
    with undisturbed():
        assert up + down == pytest.approx(rows[both, "rtt_working", "mean"], rel=0.15)

    # Every packet of UDP is received or lost at the emulator, and so says each instrument by itself.
    arrivals = pl.concat(pl.read_ipc_stream(path) for path in folder.records.glob("arrivals-*.arrow"))
    told = [entry for entry in read_log(folder.log) if entry["event"] == "load-trial"]
    channels = [one for entry in told for one in entry["background"] if one["kind"] == "udp"]
    assert len(channels) == 2 + 2 * 2
    for one in channels:
        assert one["received"] + one["lost"] == one["sent"]
        assert arrivals.filter(pl.col("block") == one["block"]).height == one["received"]
    transfers = [flow for entry in told for one in entry["background"] if one["kind"] == "web" for flow in one["flows"]]
    assert len(transfers) == 2 * 3 * 8
    assert {flow["moved_bytes"] for flow in transfers} == {50_000}
