"""A stranger attacks the streams of a study: its delays and losses stay as they are, nothing is believed.

The attacker is on both hosts of each bed, on every path, and sends what it would send to a receiver by hand: forged
packets, exchanges of clocks, ends and greetings, and again all of that which it recorded of the study's earlier trials
over the same path. Studies with and without it are measured one after the other, and the difference of their figures is
held to both intervals. As fast as the attacker can, it takes the processors that are measured: then what is counted is
judged.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan
from sojourn.records import RunFolder, read_table
from sojourn.records.log import read_log
from sojourn.records.results import read_results
from tests.net.attacked import Figure, Told
from tests.net.busy_machine import thrice, undisturbed
from tests.net.test_attack import attacked_bed

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name"),
]

PAUSE_SECONDS = 0.1
"""Between some 900 frames of each path and direction: losses and times are judged."""
SETS = (
    'bed.devices=["bridge"]', "stream.payload_bytes=[64]", 'stream.schedule=["regular"]', 'stream.interval=["500us"]',
    "trials.rounds=20", "bed.sessions=6", 'trials.duration="200ms"', 'trials.keep="packets"', "trials.qualify=false",
    "trials.a_a=false",
)  # fmt: skip
SHORTER = ("trials.rounds=8", "bed.sessions=2")
"""Where no figure is judged."""


class Measured(NamedTuple):
    """What a study came to: the median delay over each path, what the bridge adds to it, and the counts of frames."""

    delays: dict[str, Figure]
    added: Figure
    sent: int
    lost: int
    local_drops: int
    unexpected: int


@thrice
def test_a_study_of_streams_has_the_figures_that_it_has_without_the_attack(tmp_path: Path) -> None:
    quiet = measured(tmp_path / "quiet")
    with attacked_bed(pause_seconds=PAUSE_SECONDS) as attacked:
        under = measured(tmp_path / "attacked")
    again = measured(tmp_path / "again")
    print(f"quiet {quiet}, {again}; attacked {under}: {attacked}")
    assert quiet.unexpected == again.unexpected == 0
    assert sum(sum(one.values()) for one in attacked) > 10_000, attacked
    assert under.unexpected > 1000, "what reached the receivers was counted apart"
    assert replayed_in(attacked) > 1000, "frames of earlier trials were sent again"
    with undisturbed():
        assert len(attacked) >= 2 * 6, "each bed was attacked at both ends"
        assert under.lost + under.local_drops <= 0.01 * under.sent, under
        assert under.added.agrees(quiet.added, again.added), (quiet, again, under)
        for path, delay in under.delays.items():
            assert delay.agrees(quiet.delays[path], again.delays[path]), (path, quiet, again, under)


@pytest.mark.alone
def test_an_attack_at_the_highest_rate_changes_no_count_of_a_study_of_streams(tmp_path: Path) -> None:
    with attacked_bed(pause_seconds=0) as attacked:
        received = counted(run_of(tmp_path / "attacked", *SHORTER))
    unexpected = {kind: int(received[f"unexpected_{kind}"].sum()) for kind in KINDS}
    print(f"{attacked} sent, {unexpected} counted")
    assert sum(sum(one.values()) for one in attacked) > 100_000, attacked
    assert replayed_in(attacked) > 1000, "frames of earlier trials were sent again"
    assert all(unexpected.values()), unexpected


KINDS = ("packets", "exchanges", "ends", "greetings")


def replayed_in(attacked: list[Told]) -> int:
    """How many frames of earlier trials were sent again."""
    return sum(one.get("replayed", 0) for one in attacked)


def run_of(folder: Path, *sets: str) -> RunFolder:
    """The study, measured."""
    plan = load_plan("one-way", sets=(*SETS, *sets))
    run = create_folder(plan, folder)
    conduct(plan, run, Screen(io.StringIO()))
    assert read_log(run.log)[-1]["event"] == "finished", "nothing ended"
    return run


def counted(run: RunFolder) -> pl.DataFrame:
    """What each receiver counted: every frame is in one count, none is damaged or doubled."""
    table = read_table(run.records, "streams").frame.filter(purpose="measure")
    sent = table.filter(role="send").select("block", "flow", told="sent")
    received = table.filter(role="receive").join(sent, on=["block", "flow"])
    assert received.height == sent.height > 1
    assert (received["told"] == received["sent"]).all(), "it ended with its own sender's word"
    counts = received["first"] + received["lost"] + received["local_drops"] + received["corrupted"]
    assert (counts == received["sent"]).all(), received
    assert received["corrupted"].sum() == received["duplicated"].sum() == received["excess"].sum() == 0
    return received


def measured(folder: Path) -> Measured:
    """The study, from its plan to its figures."""
    run = run_of(folder)
    received = counted(run)
    analyse(run.path)
    rows = [one for one in read_results(run.results) if one["statistic"] == "p50"]
    found = {
        (one["quantity"], one["device"]): Figure(one["estimate"], one["ci_low"], one["ci_high"])
        for one in rows
        if one["quantity"] in ("one_way_delay", "one_way_delay_shift")
    }
    delays = {device: figure for (quantity, device), figure in found.items() if quantity == "one_way_delay"}
    assert delays.keys() == {"direct", "bridge"}
    with undisturbed():
        assert ("one_way_delay_shift", "bridge") in found, "its queue is stable: no trial lost frames or was late"
    totals = (int(received[name].sum()) for name in ("sent", "lost", "local_drops", "unexpected"))
    return Measured(delays, found["one_way_delay_shift", "bridge"], *totals)
