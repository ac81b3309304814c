"""Damaged files that Sojourn keeps of itself, of beds, bridges, settings, netem, its history: read, or one sentence."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.bed import held
from sojourn.bed.frequency import Highest
from sojourn.bed.host_bridge import HostBridge
from sojourn.bed.netem_left import Left
from sojourn.bed.state import State, states
from sojourn.cli.published import ASKED, take
from sojourn.errors import MachineError, SojournError
from sojourn.history.entry import Entry, Figure
from sojourn.history.store import History
from tests.unit.test_foreign_runs import VALUES, places_of, put, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable

PROCESS = {"pid": 7, "started_ticks": 9}
BED = {"mark": "run@7-9", "boot": "b", "pids": "pid:[1]", "holder": PROCESS}
JOURNAL = PROCESS | {"boot": "b", "pids": "pid:[1]", "found": {"/nowhere/at/all": "1"}}
BRIDGE = {"name": "sojourn0", "mode": "bridge", "ports": [{"name": "eth1", "was_up": True, "master": None}],
          "notes": ["n"], "files": ["f"]}  # fmt: skip
NETEM = {"boot": "b", "namespace": 4026531840, "index": 3, "port": "eth1", "handle": "8001:"}


def other(data: st.DataObject, value: Any) -> bytes:
    """The file with another value somewhere, or other bytes."""
    if data.draw(st.integers(0, 4)) == 0:
        return data.draw(st.one_of(st.binary(max_size=40), st.just(b"[" * 5000), st.just(b"9" * 5000)))
    place = data.draw(st.sampled_from(places_of(value)))
    return json.dumps(put(value, place, data.draw(st.sampled_from([..., *VALUES, "x/y", "\0"])))).encode()


def read_in(folder: str, name: str, octets: bytes, read: Callable[[Path], Any]) -> Any:
    path = Path(folder) / name
    path.write_bytes(octets)
    return read(path)


@given(data=st.data())
def test_unreadable_bed_state_is_none(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        octets = other(data, BED)
        with suppress(ValueError):  # which is what who reads it expects
            read_in(folder, "sojourn-bed-x.json", octets, State.read)
        for _, state in states(Path(folder)):
            if state is not None:
                state.is_live()
                state.holder.is_alive()


@given(data=st.data())
def test_arbitrary_journal_is_restored_or_refused(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder, mock.patch.object(held, "state_folder", return_value=Path(folder)):
        read_in(folder, Highest.journal, other(data, JOURNAL), lambda _: held.recover(Highest))


@given(data=st.data())
def test_damaged_bridge_file_is_refused_in_one_sentence(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        octets = other(data, BRIDGE)
        said, status = refusal_of(lambda: read_in(folder, "sojourn0.json", octets, HostBridge.read))
        assert status in {0, 3}
        assert "\n" not in said


@given(data=st.data())
def test_damaged_netem_record_is_none(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        found = read_in(folder, "netem-1.json", other(data, NETEM), Left.read)
        assert found is None or isinstance(found.index, int)


@given(data=st.data())
def test_published_studies_resume_only_with_the_same_request(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder, suppress(SojournError):
        read_in(folder, ASKED, other(data, {"full": True}), lambda path: take(path.parent, [], {"full": True}))


@pytest.mark.parametrize("factors", ["", "[", "[]", '{"a"', "9" * 5000])
def test_a_history_whose_figures_are_damaged_is_refused_in_one_sentence(factors: str, tmp_path: Path) -> None:
    file = tmp_path / "own" / "history.sqlite"
    figure = Figure("rtt", "mean", "bridge", None, "{}", 1.0, None, None, 0.95, "ns", 3, None)
    History(file).append(Entry("s", "r", 1, "ok", "b", None, "k", "v", simulated=False, figures=(figure,)))
    assert len(History(file).read()) == 1
    with sqlite3.connect(file) as opened:
        opened.execute("UPDATE figures SET factors = ?", (factors,))
    opened.close()
    with pytest.raises(MachineError, match="is damaged") as refused:
        History(file).read()
    assert os.linesep not in str(refused.value)
