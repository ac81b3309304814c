"""Method "taps" over TCP on real frames: each message is one segment on the wire; where it is not, that is found."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.analysis.run import Run, load
from sojourn.conduct import Screen, conduct, create_folder, messages
from sojourn.methods.taps.analyse import study
from sojourn.plan import load_plan
from sojourn.records import read_table
from tests.net.busy_machine import retried, sleeping_ends, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

SETS = (
    "bed.sessions=1", "trials.rounds=2", "trials.duration=40ms", "trials.qualify=false", *sleeping_ends(),
)  # fmt: skip
HEADERS = 14 + 20 + 20


def measured(tmp_path: Path, *sets: str) -> Run:
    plan = load_plan("bridge-modes-tcp", quick=True, sets=[*SETS, *sets])
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    return load(folder.path)


def taps_of(run: Run) -> dict[int, dict[str, Any]]:
    return {event["block"]: event for event in run.log if event.get("event") == "taps"}


@retried
@pytest.mark.parametrize("devices", [pytest.param("wire,bridge:netfilter", marks=pytest.mark.alone), "router"])
def test_each_message_is_one_segment_that_both_taps_see(devices: str, tmp_path: Path) -> None:
    """Also of small messages that follow each other more closely than a receiver acknowledges."""
    run = measured(tmp_path, f"bed.devices={devices}", "stream.rate=25kpps at 64,2kpps at 1460")
    taps = taps_of(run)
    trials = [event for event in run.trial_events.values() if event["device"] in devices.split(",")]
    assert trials
    for trial in trials:
        sent, received = trial["sent"][0], trial["received"][0]
        assert (
            sent["asked"]
            == sent["sent"]
            == received["first"]
            == {64: 1000, 1460: 80}[trial["factors"]["payload_bytes"]]
        )
        event = taps[trial["block"]]
        crossings = read_table(run.folder.records / event["records"], "crossings").frame
        assert set(crossings["direction"]) == {"forward"}, "acknowledgements are no data"
        with undisturbed():  # a receiver that was held up makes the sender send again
            assert crossings["length_bytes"].to_list() == [HEADERS + trial["factors"]["payload_bytes"]] * sent["sent"]
        assert crossings["ambiguous"].sum() == 0
    found = study(run)
    alone = {row.value.estimate for row in found.rows if row.quantity == "one_segment_messages"}
    assert alone == {1.0}
    assert not [one for one in found.findings if one.name == "segments_differ"]
    rows = {(row.quantity, row.statistic) for row in found.rows if row.device == devices.split(",", maxsplit=1)[0]}
    assert {("delay_between_taps", "mean"), ("tap_pacing_error", "p50"), ("pacing_error", "p50")} <= rows
    kept = [trial for trial in trials if trial["kept"]]
    written = run.sends.filter(pl.col("block").is_in([trial["block"] for trial in kept]))
    assert written.height == sum(trial["sent"][0]["sent"] for trial in kept)


def test_messages_that_the_kernel_joins_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Nagle's algorithm, and without an end of record, small messages wait and leave together."""
    asked = messages.sending
    joined = {"settings": {"is_nodelay": False}, "is_eor": False}
    monkeypatch.setattr(messages, "sending", lambda trial: asked(trial) | joined)
    found = study(measured(tmp_path, "bed.devices=wire", "stream.payload_bytes=64", "stream.rate=25kpps"))
    (told,) = [one for one in found.findings if one.name == "segments_differ"]
    assert told.severity == "doubtful"
    assert (told.value or 0) > 0.1
    per_message = [row.value.estimate for row in found.rows if row.quantity == "segments_per_message"]
    assert max(per_message) < 0.95
