"""What an interrupted run still owes: the blocks whose records are not whole, and the number of its next part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from sojourn.records import RunFolder, read_table
from sojourn.records.log import read_log

if TYPE_CHECKING:
    from sojourn.plan import Plan

PART = re.compile(r"-(\d{3})\.\w+$")


def next_part(folder: RunFolder) -> int:
    """One more than any part that left a file."""
    numbers = [int(found[1]) for path in folder.records.iterdir() if (found := PART.search(path.name))]
    return max(numbers, default=-1) + 1


def whole_blocks(folder: RunFolder, plan: Plan) -> set[int]:
    """The blocks that need not be measured again."""
    done = probed_blocks(folder)
    if plan.study.method == "departures":
        captured = set(read_table(folder.records, "captures").frame["block"].to_list())
        return (done | trial_blocks(folder, "ping")) & captured
    return done


def probed_blocks(folder: RunFolder) -> set[int]:
    """Blocks that sent all they should, with a record of every probe."""
    blocks = read_table(folder.records, "blocks").frame.select("part", "block", "count", "sent")
    probes = (
        read_table(folder.records, "probes").frame.select("part", "block").group_by("part", "block").len("recorded")
    )
    whole = blocks.join(probes, on=["part", "block"]).filter(
        (pl.col("sent") == pl.col("count")) & (pl.col("recorded") == pl.col("count"))
    )
    return set(whole["block"].to_list())


def trial_blocks(folder: RunFolder, tool: str) -> set[int]:
    """The trials of a tool that ran to their end."""
    return {entry["block"] for entry in read_log(folder.log) if entry.get("event") == "trial" and entry["tool"] == tool}


def whole_trials(folder: RunFolder, plan: Plan) -> set[int]:
    """The planned trials that were kept and whose records are there."""
    del plan
    recorded = {block for table in ("streams", "blocks") for block in read_table(folder.records, table).frame["block"]}
    return {
        entry["trial"]
        for entry in read_log(folder.log)
        if entry.get("event") == "stream-trial"
        and entry["kept"]
        and entry["trial"] is not None
        and entry["block"] in recorded
    }


def whole_searches(folder: RunFolder, plan: Plan) -> set[int]:
    """The searches that came to a result, or to a sentence why there is none."""
    del plan
    return {entry["search"] for entry in read_log(folder.log) if entry.get("event") == "search-result"}


def next_block(folder: RunFolder, first: int) -> int:
    """A number for a block that nobody planned: from `first`, and one more than any in the log."""
    return max([first, *(int(entry["block"]) + 1 for entry in read_log(folder.log) if "block" in entry)])


def is_finished(folder: RunFolder) -> bool:
    """Whether the log says that nothing is owed."""
    return any(entry.get("event") == "finished" for entry in read_log(folder.log))
