"""What the device's host recorded belongs to a trial: without it the trial is measured again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.conduct.device_records import lacking_at_device
from sojourn.conduct.streams import whole_streams
from sojourn.methods import load
from sojourn.plan import Plan, load_plan
from sojourn.records import RunFolder
from tests.unit.made_up_path import write_table_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STARTED = [{"event": "started", "part": part} for part in (0, 1)]


def folder_of(folder: Path, *log: dict[str, Any]) -> RunFolder:
    """A run's folder with such a log."""
    found = RunFolder(folder)
    found.records.mkdir()
    found.log.write_text("".join(f"{json.dumps(one)}\n" for one in log))
    return found


def trial(block: int) -> dict[str, Any]:
    """A stream that was kept."""
    return {"event": "stream-trial", "trial": block, "block": block, "missed": False, "kept": True}


def write_ends(folder: RunFolder, part: int, blocks: Sequence[int]) -> None:
    """The records of both ends of streams."""
    for who, role in (("a", "send"), ("b", "receive")):
        rows = [{"block": block, "purpose": "measure", "role": role} for block in blocks]
        write_table_of(folder.records / f"streams-{who}-{part:03}.arrow", rows, "streams")


def whole(folder: RunFolder, plan: Plan) -> set[int]:
    """What the plan's method calls whole."""
    found: set[int] = load(plan.study.method, "measure").MEASURE.whole(folder, plan)
    return found


def tapped(part: int, block: int) -> dict[str, Any]:
    """Taps of a trial, as a run logs them."""
    return {"event": "taps", "block": block, "device": "bridge", "records": f"taps/{part:03}-{block}/matched",
            "captured": {"taps": []}, "matched": {"pairs": [{"directions": []}]}}  # fmt: skip


def write_taps(folder: RunFolder, part: int, block: int) -> None:
    """The delays between the taps of a trial."""
    place = folder.records / f"taps/{part:03}-{block}/matched"
    place.mkdir(parents=True)
    write_table_of(place / "crossings-match-000.arrow", [{"block": block}], "crossings")


def test_a_trial_whose_taps_did_not_come_is_not_whole_until_it_is_measured_again(tmp_path: Path) -> None:
    plan = load_plan("bridge-modes")
    first = [STARTED[0], tapped(0, 0), trial(0), tapped(0, 1), trial(1), trial(2)]
    folder = folder_of(tmp_path, *first)
    write_ends(folder, 0, [0, 1, 2])
    write_taps(folder, 0, 0)
    assert lacking_at_device(folder, plan) == {(0, 1)}
    assert whole(folder, plan) == {0, 2}, "the third is of the direct path, which has no taps"
    assert whole_streams(folder) == {0, 1, 2}
    with folder.log.open("a") as log:
        log.write("".join(f"{json.dumps(one)}\n" for one in (STARTED[1], tapped(1, 1), trial(1))))
    write_ends(folder, 1, [1])
    assert whole(folder, plan) == {0, 2}
    write_taps(folder, 1, 1)
    assert whole(folder, plan) == {0, 1, 2}


def passed(block: int, arrived: int) -> dict[str, Any]:
    """What an emulator counted of a trial, both ways."""
    none = {"duplicated": 0, "held": 0, "marked": 0, "lost": {"full": 0, "managed": 0}}
    counted = {"forward": arrived, "backward": 0}
    pipes = [{"name": name, "arrived": count, "sent": count, **none} for name, count in counted.items()]
    return {"event": "emulator", "block": block, "device": "emulate", "emulator": "emulate",
            "summary": {"summary": {"pipes": pipes}}}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "skipped", "expected"), [(30, 0, {0, 1}), (29, 0, {0}), (0, 0, {0}), (29, 1, {0, 1}), (28, 1, {0})]
)
def test_a_trial_of_which_an_emulators_log_lacks_packets_is_not_whole(
    rows: int, skipped: int, expected: set[int], tmp_path: Path
) -> None:
    plan = load_plan("emulator-delay")
    ended = {"event": "emulator-ended", "device": "emulate", "emulator": "emulate",
             "report": {"log": {"skipped": skipped}}}  # fmt: skip
    folder = folder_of(tmp_path, STARTED[0], passed(0, 20), trial(0), passed(1, 30), trial(1), ended)
    write_ends(folder, 0, [0, 1])
    packets = [{"block": 0}] * 20 + [{"block": 1}] * rows
    write_table_of(folder.records / "packets-emulate-000.arrow", packets, "packets")
    assert whole(folder, plan) == expected
    assert whole(folder, load_plan("emulator-delay", sets=["emulate.log=false"])) == {0, 1}, "nobody asked for a log"
