"""Logs and captures of somebody else for `why`, `timeline` and `dataset`: a file that is cut, damaged, another or gone
is read, or refused in one sentence."""

from __future__ import annotations

import json
import random
import warnings
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.export import Chosen
from sojourn.records.taps import write_dataset
from sojourn.timeline.why import explain
from tests.unit.in_process import sojourn
from tests.unit.made_up_path import MadePath
from tests.unit.made_up_taps import Box, write_taps
from tests.unit.test_foreign_runs import VALUES, places_of, put, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable

FEWER = settings(deadline=None, max_examples=max(10, settings.default.max_examples // 2))  # type: ignore[union-attr]


@cache
def kept() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="sojourn-foreign-")


@cache
def logs() -> Path:
    """The log of both ends of a connection, and that of the emulator between them."""
    at = Path(kept().name) / "logs"
    MadePath(segments=120).write(at)
    return at


@cache
def capture() -> Path:
    at = Path(kept().name) / "capture"
    write_taps(Box(packets=500), at, parts=2)
    return at


def changed(data: st.DataObject, octets: bytes, other: bytes) -> bytes | None:
    """Another content of a file; None: the file is gone."""
    how = data.draw(st.sampled_from(["cut", "flip", "empty", "other", "text", "gone", "json"]))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    if how == "json" and octets.startswith(b"{"):
        value = json.loads(octets)
        place = data.draw(st.sampled_from(places_of(value)))
        return json.dumps(put(value, place, data.draw(st.sampled_from([..., *VALUES])))).encode()
    made = bytearray(octets)
    for _ in range(rng.randrange(1, 4) if made else 0):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return {
        "cut": octets[: rng.randrange(len(octets) + 1)], "flip": bytes(made), "empty": b"", "other": other,
        "text": b'{"a": [1, 2]}\n', "gone": None, "json": bytes(made),
    }[how]  # fmt: skip


def damaged(data: st.DataObject, whole: Path, read: Callable[[Path], object]) -> None:
    """Read a copy of a folder of which a file is another."""
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    chosen, other = (data.draw(st.sampled_from(files)) for _ in range(2))
    with TemporaryDirectory() as spare, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copy = Path(spare) / "copy"
        copytree(whole, copy)
        octets = changed(data, (whole / chosen).read_bytes(), (whole / other).read_bytes())
        if octets is None:
            (copy / chosen).unlink()
        else:
            (copy / chosen).write_bytes(octets)
        said, status = refusal_of(lambda: read(copy))
        assert status in {0, 2, 3, 4}
        assert "\n" not in said


@FEWER
@given(data=st.data())
def test_why_of_a_damaged_log_is_answered_or_refused(data: st.DataObject) -> None:
    damaged(data, logs(), lambda at: explain(at / "t", 1, 600_000_000, Chosen(), [at / "e"]))


def timeline(at: Path) -> None:
    done = sojourn(
        "timeline", str(at / "t"), "--to", "csv", "--records", str(at / "e"), "-o", str(at / "out"), "--force"
    )
    assert done.returncode in {0, 2, 3, 4}, done.stderr
    assert "Traceback" not in done.stderr


@FEWER
@given(data=st.data())
def test_a_timeline_of_a_damaged_log_is_written_or_refused(data: st.DataObject) -> None:
    damaged(data, logs(), timeline)


@FEWER
@given(data=st.data())
def test_a_data_set_of_a_damaged_capture_is_written_or_refused(data: st.DataObject) -> None:
    damaged(data, capture(), lambda at: write_dataset(at, at.parent / "data", "one"))
