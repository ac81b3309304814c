"""A long run goes on soon: no more of it is read than its log and the blocks of its probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from bench import long_run
from sojourn.conduct.blocks import probed_blocks
from sojourn.conduct.run import Recorded
from sojourn.plan import load_plan
from sojourn.records.log import read_log
from sojourn.records.lost import TOLD
from sojourn.records.reader import read_table, rows_of_blocks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_generated_run_lacks_its_last_rounds_and_can_be_resumed(tmp_path: Path) -> None:
    run = long_run.made_up(tmp_path / "long", rounds=20, probes=40)
    plan = load_plan(run.plan)
    owed = {one.block for one in plan.expand() if one.round >= 18}
    whole = probed_blocks(run)
    assert whole | owed == {one.block for one in plan.expand()}
    assert not whole & owed
    took = long_run.seconds_to_go_on(run, len(whole))
    assert 0 < took < long_run.PATIENCE_S
    assert read_log(run.log, {"started"})[-1]["owed"] == len(owed)


def test_streamed_rows_of_blocks_equal_the_table_also_of_a_truncated_file(tmp_path: Path) -> None:
    """Batches of one block, of several, and of none; whole, cut in a batch, cut in the header, and empty."""
    schema = pa.schema([("block", pa.int32()), ("seq", pa.int32())], {"schema": "sojourn.probes", "version": "1"})
    for part in range(3):
        with pa.ipc.new_stream(str(tmp_path / f"probes-{part:03}.arrow"), schema) as stream:
            for blocks in ([7] * 500, [8, 9, 8], [], [9] * 400):
                stream.write_batch(pa.record_batch([blocks, range(len(blocks))], schema=schema))
    for part, kept in ((1, 0.8), (2, 0.01)):
        file = tmp_path / f"probes-{part:03}.arrow"
        file.write_bytes(file.read_bytes()[: int(file.stat().st_size * kept)])
    (tmp_path / "probes-003.arrow").write_bytes(b"")
    frame = read_table(tmp_path, "probes", columns=("block",)).frame
    truth = {(part, block): rows for part, block, rows in frame.group_by("part", "block").len().iter_rows()}
    assert rows_of_blocks(tmp_path, "probes") == truth
    assert truth[0, 7] == 500
    assert truth[1, 9] < truth[0, 9], "something is cut"
    assert {part for part, _ in truth} == {0, 1}


def test_only_requested_events_of_a_log_are_read_also_under_old_names(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"event": "begun", "part": 0, "why": "lost"}\n{"event": "block", "device": "lost"}\n{"event": "sham"}\n{"ev'
    )
    assert [one["event"] for one in read_log(log)] == ["begun", "block", "placebo"]
    assert [one["event"] for one in read_log(log, TOLD)] == ["begun"]
    assert [one["event"] for one in read_log(log, {"placebo"})] == ["placebo"]


def test_records_are_reread_only_if_the_log_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = long_run.made_up(tmp_path / "long", rounds=20, probes=40)
    monkeypatch.setattr("sojourn.conduct.run.measured", lambda plan, folder: {1})
    plan, size = load_plan(run.plan), run.log.stat().st_size
    assert Recorded(frozenset({5}), size).now(plan, run) == {5}
    assert Recorded(frozenset({5}), size - 1).now(plan, run) == {1}
