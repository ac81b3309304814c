"""A stranger beside the ports of an emulator attacks it within a study of it: its figures stay as they are.

The attacker is on both hosts of each bed, at the far ends of the cables of the emulator's ports and of other paths. It
sends frames of every sort, forged ones of streams with a key that is guessed, and again those that it recorded of the
study's earlier trials. They go through the pipe that is measured, for it is the only one. As fast as the attacker can,
it takes the processors that the emulator needs: then what is counted is judged, and which packets the pipe takes; with
pauses, times as well.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan
from sojourn.records import RunFolder, read_table
from sojourn.records.log import read_log
from sojourn.records.results import read_results
from tests.net.attacked import Figure
from tests.net.busy_machine import thrice, undisturbed
from tests.net.test_attack import attacked_bed

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name"),
]

DELAY_NS, LOSS = 5_000_000, 0.05
EARLIEST_NS = 2_000
"""How long before its time a frame may leave: by the error of a timestamp."""
PAUSE_SECONDS = 0.25
"""Between some 2,700 frames of each path and direction: processors are left, and times are judged."""
SETS = (
    'stream.pipe=["delay 5ms loss 5%"]', 'stream.rate=["1kpps"]', "trials.rounds=8", "bed.sessions=4",
    'trials.duration="500ms"', "trials.qualify=false", "emulate.log=true",
)  # fmt: skip


class Measured(NamedTuple):
    """What a study came to."""

    delay: Figure
    """The median one way, ns."""
    loss: Figure
    sent: int
    """Frames of streams."""
    unexpected: int
    packets: int
    """That came to the pipe, whosever they are."""


@thrice
@pytest.mark.parametrize("pause", [pytest.param(0.0, id="highest-rate"), pytest.param(PAUSE_SECONDS, id="paced")])
def test_attack_does_not_change_a_study_of_an_emulator(pause: float, tmp_path: Path) -> None:
    quiet = measured(tmp_path / "quiet")
    with attacked_bed(("any", "stream"), pause) as attacked:
        under = measured(tmp_path / "attacked")
    again = measured(tmp_path / "again")
    print(f"quiet {quiet}, {again}; attacked {under}: {attacked}")
    assert quiet.unexpected == again.unexpected == 0
    assert sum(sum(one.values()) for one in attacked) > 10_000, attacked
    assert under.unexpected > 1000, "what reached the receivers was counted apart"
    assert sum(one.get("replayed", 0) for one in attacked) > 1000, "frames of earlier trials were sent again"
    assert under.packets > max(quiet.packets, again.packets) + 1000, "the attack went through the pipe"
    with undisturbed():
        assert len(attacked) >= 2 * 4, "each bed was attacked at both ends"
        if pause:
            assert under.loss.agrees(quiet.loss, again.loss), (quiet, again, under)
            assert under.delay.agrees(quiet.delay, again.delay), (quiet, again, under)


def measured(folder: Path) -> Measured:
    """The study, from its plan to its figures; what holds of each is expected here."""
    plan = load_plan("emulator-delay", quick=True, sets=SETS)
    run = create_folder(plan, folder)
    conduct(plan, run, Screen(io.StringIO()))
    assert read_log(run.log)[-1]["event"] == "finished", "nothing ended"
    sent = expect_counted(run)
    packets = expect_emulated(run)
    analyse(run.path)
    rows = [one for one in read_results(run.results) if one["device"] == "emulate"]
    streams = read_table(run.records, "streams").frame.filter(purpose="measure", role="receive")
    found = {
        name: next(one for one in rows if (one["quantity"], one["statistic"]) == which and one.get("reference") is None)
        for name, which in {"delay": ("one_way_delay", "p50"), "loss": ("emulated_loss", "ratio")}.items()
    }
    delay, loss = (
        Figure(*(found[name][key] for key in ("estimate", "ci_low", "ci_high"))) for name in ("delay", "loss")
    )
    return Measured(delay, loss, sent, int(streams["unexpected"].sum()), packets)


def expect_counted(run: RunFolder) -> int:
    """Every frame of every stream is in one count, and none is damaged, doubled, or believed that was not sent."""
    table = read_table(run.records, "streams").frame.filter(purpose="measure")
    sent = table.filter(role="send").select("block", "flow", told="sent")
    received = table.filter(role="receive").join(sent, on=["block", "flow"])
    assert received.height == sent.height > 1
    assert (received["told"] == received["sent"]).all(), "it ended with its own sender's word"
    counts = received["first"] + received["lost"] + received["local_drops"] + received["corrupted"]
    assert (counts == received["sent"]).all(), received
    assert received.select(pl.sum("corrupted", "duplicated", "excess")).row(0) == (0, 0, 0)
    return int(sent["told"].sum())


def expect_emulated(run: RunFolder) -> int:
    """Every packet is in one count, in each pipe, which loses its share of them; none left early; each replay is
    identical. How many came."""
    log = read_log(run.log)
    pipes = [pipe for one in log if one["event"] == "emulator" for pipe in one["summary"]["summary"]["pipes"]]
    drawn = sum(pipe["arrived"] - pipe["lost"]["memory"] - pipe["lost"]["port"] for pipe in pipes)
    lost = sum(pipe["lost"]["before"] for pipe in pipes)
    assert abs(lost / drawn - LOSS) < 4 * (LOSS * (1 - LOSS) / drawn) ** 0.5, (lost, drawn)
    for end in (one for one in log if one["event"] == "emulator-ended"):
        for pipe in end["report"]["pipes"]:
            assert pipe["held"] == 0, pipe
            assert pipe["arrived"] + pipe["duplicated"] == pipe["sent"] + sum(pipe["lost"].values()), pipe
    packets = read_table(run.records, "packets").frame.filter(pl.col("block") >= 0, pl.col("direction") == "forward")
    left = packets.filter(pl.col("disposition") == "sent")
    early = left.filter(pl.col("departure_ns") - pl.col("arrival_ns") < DELAY_NS - EARLIEST_NS)
    assert early.is_empty(), early
    skipped = sum(one["report"]["log"]["skipped"] for one in log if one["event"] == "emulator-ended")
    replays = [one for one in log if one["event"] == "emulator-replay"]
    assert skipped or all(one["identical"] for one in replays), replays
    return packets.height
