"""Probes of a run are held once: in order, warm-up last, however they were read: whole, in pieces, in turned parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import path as paths
from sojourn.analysis import run as runs
from sojourn.analysis.run import load
from sojourn.errors import RequestError
from sojourn.records import reader
from tests.unit.conftest import Synthetic

Make = Callable[..., Synthetic]


def in_order(rows: pl.DataFrame) -> bool:
    return rows.select("block", "seq").equals(rows.select("block", "seq").sort("block", "seq"))


@pytest.mark.parametrize("rows", [1, 7, 44, 1000])
def test_chunk_size_does_not_change_the_loaded_probes(
    rows: int, synthetic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = synthetic(rounds=2, sessions=2).write()
    whole = load(path)
    monkeypatch.setattr(reader, "ROWS_IN_TURN", rows)
    again = load(path)
    strings = pl.col(runs.WORDS).cast(pl.String)
    assert again.probes.with_columns(strings).equals(whole.probes.with_columns(strings))
    assert [part.rows for part in again.tables["probes"].parts] == [part.rows for part in whole.tables["probes"].parts]


def test_measured_probes_are_ordered_and_warm_up_is_last(synthetic: Make) -> None:
    run = load(synthetic(rounds=2, sessions=2).write())
    warm_up = run.probes.tail(run.probes.height - run.measured.height)
    assert not run.measured["warmup"].any()
    assert warm_up.height
    assert warm_up["warmup"].all()
    assert in_order(run.measured)
    assert in_order(warm_up)


def test_parts_with_blocks_in_reverse_order_are_sorted(synthetic: Make) -> None:
    path = synthetic(rounds=2, sessions=2).write()
    want = load(path)
    for name in ("probes", "blocks"):  # as where a resumed run measures the blocks before those that it has
        first, second = sorted((path / "records").glob(f"{name}-*.arrow"))
        first.rename(first.with_suffix(".x"))
        second.rename(first)
        first.with_suffix(".x").rename(second)
    run = load(path)
    assert run.measured["part"].to_list() == [1 - part for part in want.measured["part"].to_list()]
    assert in_order(run.measured)
    assert run.measured["rtt"].equals(want.measured["rtt"])


def test_each_path_has_its_own_probes_and_together_they_are_complete(synthetic: Make) -> None:
    run = load(synthetic(rounds=2, sessions=2).write())
    assert sum(path.probes("rtt").height for path in run.paths.values()) == run.measured.height
    for (device, cell), path in run.paths.items():
        own = run.measured.filter((pl.col("device") == device) & (pl.col("cell") == cell))
        assert path.probes("seq", "rtt").equals(own.select("seq", "rtt"))
        values, clusters = path.answered("rtt_intended")
        assert np.array_equal(values, (own["arrival_ns"] - own["intended_ns"]).drop_nulls().to_numpy())
        assert set(clusters) == {0, 1}


@pytest.mark.parametrize("rows", [1, 7, 44, 1000])
def test_rows_gathered_in_chunks_equal_rows_gathered_at_once(
    rows: int, synthetic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "PIECE_ROWS", rows)
    run = load(synthetic(rounds=2, sessions=2).write())
    for path in run.paths.values():
        own = run.measured.filter((pl.col("device") == path.device) & (pl.col("cell") == path.cell))
        assert path.probes(*own.columns).equals(own)
    assert paths.gathered(run.measured, np.empty(0, np.int32)).equals(run.measured.clear())


def test_probes_of_selected_blocks_include_the_warm_up(synthetic: Make) -> None:
    run = load(synthetic(rounds=2, sessions=2).write())
    blocks = run.blocks["block"].to_list()[1::3]
    want = run.probes.filter(pl.col("block").is_in(blocks)).sort("block", "seq")
    assert want["warmup"].any()
    assert run.probes_of(blocks, "block", "seq", "warmup", "rtt").equals(want.select("block", "seq", "warmup", "rtt"))
    counted = run.probes.group_by("block").len().sort("block")
    assert run.recorded.sort("block").rows() == counted.rows()


def test_too_many_timestamp_sources_are_damage(synthetic: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path, plain = synthetic(rounds=2).write(), reader._plain

    def many(*asked: Any) -> pl.DataFrame:
        frame = plain(*asked)
        return frame.with_columns(departure_source=pl.int_range(pl.len()).cast(pl.String))

    monkeypatch.setattr(reader, "_plain", many)
    with pytest.raises(RequestError, match="the probes are damaged"):
        load(path)
