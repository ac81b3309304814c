"""When clock trials are made where hosts have two clocks, and how their blocks are numbered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sojourn.conduct.remaining import next_block
from sojourn.plan import load_plan
from sojourn.plan.clock_trials import needs_clock_trials
from sojourn.plan.trials import SEARCH_BLOCKS
from sojourn.records import RunFolder
from sojourn.records.clock_trials import CLOCK_BLOCKS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("study", "sets", "needed"),
    [
        ("rated-phase", [], True),
        ("rated-phase", ["stream.senders=1,2", "stream.walk=0"], False),
        ("rated-fan-in", [], False),
        ("bridge-modes", [], False),
        ("bridge-modes-tcp", [], False),
        ("one-way", [], False),
        ("emulator-delay", [], False),
        ("rrul", [], True),
        ("short-flows", [], True),
        ("bridge-latency", [], False),
    ],
)
def test_clock_trials_are_for_plans_whose_own_streams_compare_no_clocks(
    study: str, sets: list[str], *, needed: bool
) -> None:
    assert needs_clock_trials(load_plan(study, sets=sets)) is needed


def test_numbers_of_the_testers_trials_and_of_clock_trials_never_meet(tmp_path: Path) -> None:
    """A later session finds both in the log."""
    folder = RunFolder(tmp_path)
    told = [{"block": block} for block in (7, SEARCH_BLOCKS + 4, CLOCK_BLOCKS + 9)]
    folder.log.write_text("".join(json.dumps({"event": "x", **one}) + "\n" for one in told))
    assert next_block(folder, SEARCH_BLOCKS, CLOCK_BLOCKS) == SEARCH_BLOCKS + 5
    assert next_block(folder, CLOCK_BLOCKS) == CLOCK_BLOCKS + 10
