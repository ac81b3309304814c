"""Study "bufferbloat" through a box of the user's own without a log: taps at the hosts' ports tell what it did."""

from __future__ import annotations

import json
import math
import os
import shutil
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.records.log import read_log
from tests.net.busy_machine import retried, undisturbed
from tests.net.here import sojourn_here
from tests.net.test_boxes import BRIDGE, program
from tests.unit.chrome_trace import checked
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name"),
    pytest.mark.skipif(shutil.which("nft") is None, reason="no nft here: scripts/setup.sh test installs it"),
]

SHARE = 0.02
LOSSY = f"""{BRIDGE}
nft -f - <<RULES
table bridge lossy {{
    chain forward {{
        type filter hook forward priority 0
        ip protocol tcp numgen random mod 100 < {SHARE * 100:.0f} drop
    }}
}}
RULES
"""
SHORT = ("sessions=1", "rounds=1", "load.idle=500ms", "load.start_up=500ms", "load.duration=2s", "probe.interval=20ms",
         "host.fifo=false")  # fmt: skip
SIGMAS = 5


def studied(box: Path, run: Path, *sets: str) -> None:
    words = [f"--set={one}" for one in (*SHORT, *sets)]
    done = sojourn_here("run", "bufferbloat", "--quick", "--no-history", "--device", box, *words, "--out", run)
    assert done.returncode in {0, 4}, done.stderr


@retried
def test_loss_in_a_box_is_located_by_taps_outside_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    studied(program(tmp_path, LOSSY), run)
    logged = [one for one in read_log(run / "log.jsonl") if one["event"] == "load-trial" and one["purpose"] == "log"]
    assert len(logged) == 2, "down and up"
    for entry in logged:
        assert [one["taps"][0]["account"]["dropped"] for one in entry["tapped"]] == [0, 0]
        assert {one["host"] for one in entry["tapped"]} == {"a", "b"}
    ways = pl.read_parquet(run / "analysis" / "samples" / "load_conserved.parquet")
    print(ways)
    assert ways.height == 2
    assert (ways["segments"] == ways["tap_near"]).all()
    assert (ways["tap_near"] == ways["tap_far"] + ways["tap_device"]).all()
    assert (ways["received"] == ways["tap_far"]).all()
    assert ways["arrived"].null_count() == 2, "there is no emulator"
    for sent, gone in ways.select("segments", "tap_device").iter_rows():
        assert abs(gone - SHARE * sent) <= SIGMAS * math.sqrt(SHARE * sent)
    findings = json.loads((run / "analysis" / "verdict.json").read_text())["findings"]
    assert "segments_not_conserved" not in {one["name"] for one in findings}

    # As the guide has it: without --block it is of the first of both trials, and says so.
    first = sojourn_here("why", run, "--flow", "1", "--at", "1.5s")
    assert first.returncode == 0, first.stderr
    numbers = sorted(entry["block"] for entry in logged)
    assert f"this is trial {numbers[0]}, the first; --block names another: {numbers[1]}" in first.stderr
    for entry in logged:
        block = entry["block"]
        told = sojourn_here("why", run, "--block", str(block), "--at", "1.5s", "--json")
        assert told.returncode == 0, told.stderr
        answer = printed("why", told.stdout)
        assert answer["cause"] in {"lossy_link", "inconclusive"}, answer["sentences"]
        with undisturbed():
            assert answer["cause"] == "lossy_link", answer["sentences"]
        assert any("/records/taps/" in rows["file"] for one in answer["sentences"] for rows in one["records"])
        way = ways.filter(block=block)
        joined = sojourn_here("timeline", run, "--block", str(block), "--to", "csv", "-o", tmp_path / f"{block}.csv")
        assert joined.returncode == 0, joined.stderr
        table = pl.read_csv(tmp_path / f"{block}.csv", infer_schema_length=None)
        assert table.height == way["segments"][0]
        assert table.filter(lost_where="device").height == way["tap_device"][0]
        assert table["tap_before_frame"].null_count() == 0
    trace = tmp_path / "trace.json"
    assert sojourn_here("timeline", run, "--block", str(block), "--to", "perfetto", "-o", trace).returncode == 0
    events, _ = checked(trace)
    lost = [one for one in events if one["name"] == "lost between the taps"]
    assert len(lost) == way["tap_device"][0]


def test_study_of_a_box_works_without_taps(tmp_path: Path) -> None:
    run = tmp_path / "run"
    studied(program(tmp_path, LOSSY), run, "load.direction=up", "load.taps=false")
    assert not (run / "records" / "taps").exists()
    assert pl.read_parquet(run / "analysis" / "samples" / "load_conserved.parquet").is_empty()
