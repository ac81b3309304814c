"""A run over hosts with one clock, made into one over hosts with two whose truth is known: B's times are moved.

`part_clocks` moves every time that host B recorded, in the tables and in the log, and adds what clock trials between
the trials would have told. Whoever analyses both runs must find the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.records import TABLES
from sojourn.records.clock_trials import CLOCK_BLOCKS, CLOCK_TRIAL, PURPOSE
from tests.unit.made_up_streams import write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sojourn.records import RunFolder

LINE_NS = 800_000_000
LASTS_NS = 30_000_000_000
"""No trial lasts longer: beside its first probe it has a line of the clocks on both sides."""

OF_STREAMS = ("started_ns", "ended_ns", "first_ns", "last_ns", "started_raw_ns", "ended_raw_ns")
"""With those of CLOCK_MONOTONIC_RAW: B's oscillator is the faster one, and its clock is not stepped."""

OF_FLOWS = ("started_ns", "ended_ns", "first_moved_ns", "last_moved_ns")
TRIALS = ("load-trial", "tcp-trial", "stream-trial", "trial")
READINGS = ("intended_ns", "read_before_ns", "read_after_ns", "sent_ns")


@dataclass(frozen=True)
class Apart:
    """How B's clock differs from A's, and how well the clock trials know it."""

    ahead_ns: int = 3_600_000_000_000
    rate: float = 50e-6
    wrong_ns: float = 0.0
    """By how much each line is wrong, by turns too much and too little."""
    bound_ns: float = 40_000.0
    skew_bound_ppb: float = 1_000.0
    parts: Callable[[int], bool] = lambda _: True
    """The sessions whose exchanges were answered."""
    lasts_ns: Callable[[int], int] | None = None
    """How long after the begin of a block the next clock trial begins; None: `LASTS_NS`."""
    told: Sequence[dict[str, Any]] = field(default_factory=tuple)
    """What the sender says of the clocks in each clock trial."""


def part_clocks(folder: RunFolder, of: Apart) -> None:
    """Give host B a clock of its own; programs at B have names that begin with its letter."""
    events = [json.loads(line) for line in folder.log.read_text().splitlines()]
    begins = _begins(folder, events)
    origin = min(begins.values())

    def moved(times: Any) -> Any:
        since = np.asarray(times, dtype=np.int64) - origin
        return origin + since + of.ahead_ns + np.rint(of.rate * since).astype(np.int64)

    for file in sorted(folder.records.glob("tcp_readings-b*.arrow")):
        _rewrite(file, moved, READINGS)
    for file in sorted(folder.records.glob("arrivals-b*.arrow")):
        _rewrite(file, moved, ("arrival_ns", "receive_call_ns"))
    for file in sorted(folder.records.glob("arrivals-a*.arrow")):
        _rewrite(file, moved, ("intended_ns", "sent_ns"))
    for clock, end in enumerate("ab", start=1):
        for file in sorted(folder.records.glob(f"streams-{end}*.arrow")):
            if end == "b":
                _rewrite(file, moved, OF_STREAMS)
            write_table(file, "streams", pl.read_ipc_stream(file).with_columns(clock_id=pl.lit(clock)))
    for file in sorted(folder.records.glob("captures-*.arrow")):
        _rewrite(file, moved, ("arrival_ns",))
    for entry in events:
        _move(entry, moved)
    told = list(_with_clock_trials(folder, of, events, begins, moved))
    folder.log.write_text("".join(json.dumps(one) + "\n" for one in told))


def _move(entry: dict[str, Any], moved: Any) -> None:
    """Move what the log tells of a trial at B; any other event stays as it is."""
    if entry["event"] == "tcp-trial":
        for one in entry["connections"]:
            one["read_ns"] = int(moved(one["read_ns"]))
    if entry["event"] == "load-trial":
        for flow in _of_far(entry):
            flow.update({name: int(moved(flow[name])) for name in OF_FLOWS if flow.get(name) is not None})
        for channel in entry.get("background") or ():
            if channel["kind"] == "udp":
                channel["one_clock"] = False


def _of_far(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the log tells of a trial with times of B."""
    for one in (*entry["flows"], *(entry.get("background") or ())):
        if one["direction"] == "down":
            yield from one.get("flows") or (one,)


def _begins(folder: RunFolder, events: Sequence[dict[str, Any]]) -> dict[int, int]:
    """When each trial began, by block."""
    found: dict[int, int] = {}
    for file in sorted(folder.records.glob("captures-*.arrow")):
        of_blocks = pl.read_ipc_stream(file).group_by("block").agg(pl.col("arrival_ns").min())
        found |= dict(of_blocks.select("block", "arrival_ns").iter_rows())
    if found:
        return found
    for file in sorted(folder.records.glob("blocks-*.arrow")):
        found |= dict(pl.read_ipc_stream(file).select("block", "started_ns").iter_rows())
    for file in sorted(folder.records.glob("streams-a*.arrow")):
        found |= dict(pl.read_ipc_stream(file).select("block", "started_ns").iter_rows())
    for entry in (one for one in events if one["event"] == "tcp-trial"):
        found[entry["block"]] = min(one["written_ns"] for one in entry["connections"])
    return found


def _rewrite(file: Any, moved: Any, columns: Sequence[str]) -> None:
    name = file.name.split("-")[0]
    frame = pl.read_ipc_stream(file)
    for column in columns:
        known = frame[column].is_not_null()
        times = pl.Series(moved(frame[column].fill_null(0).to_numpy()), dtype=pl.Int64)
        frame = frame.with_columns(pl.when(pl.lit(known)).then(pl.lit(times)).alias(column))
    write_table(file, name, frame)


def _with_clock_trials(
    folder: RunFolder, of: Apart, events: Sequence[dict[str, Any]], begins: dict[int, int], moved: Any
) -> Iterator[dict[str, Any]]:
    """The log with clock trials: one before the first trial of each part, and one behind each; their records too."""
    part, number, is_first = 0, 0, True
    made: dict[int, list[dict[str, Any]]] = {}
    for entry in events:
        if entry["event"] == "started":
            part, is_first = int(entry.get("part", 0)), True
        if entry["event"] not in TRIALS:
            yield entry
            continue
        begun = int(begins[entry["block"]])
        lasts = LASTS_NS if of.lasts_ns is None else of.lasts_ns(int(entry["block"]))
        for at in ([begun - 2 * LINE_NS] if is_first else []) + [begun + lasts]:
            made.setdefault(part, []).append(_line(of, CLOCK_BLOCKS + number, at, number, moved))
            number += 1
            yield {"event": CLOCK_TRIAL, "part": part, "block": CLOCK_BLOCKS + number - 1, "clock": list(of.told)}
        yield entry
        is_first = False
    for own, lines in made.items():
        _write_streams(folder, own, lines)
        if of.parts(own):
            write_table(folder.records / f"clock_lines-aclock-{own:03}.arrow", "clock_lines", pl.DataFrame(lines))


def _line(of: Apart, block: int, at: int, number: int, moved: Any) -> dict[str, Any]:
    """What the exchanges of one clock trial, begun at a time of A, say of B's clock."""
    begin, middle, end = (int(moved(at + part * LINE_NS // 2)) for part in range(3))
    wrong = of.wrong_ns * (-1) ** number
    return dict.fromkeys(TABLES["clock_lines"], 0) | {
        "block": block, "begun_ns": at, "peer": "b", "clock_id": 2, "shared": False, "from_ns": begin, "to_ns": end,
        "reference_ns": middle, "offset_ns": float(middle - (at + LINE_NS // 2)) + wrong,
        "skew_ppb": 1e9 * of.rate / (1 + of.rate), "bound_ns": of.bound_ns, "error95_ns": of.bound_ns / 10,
        "skew_bound_ppb": of.skew_bound_ppb, "skew95_ppb": of.skew_bound_ppb / 10, "exchanges": 400,
    }  # fmt: skip


def _write_streams(folder: RunFolder, part: int, lines: Sequence[dict[str, Any]]) -> None:
    """Both ends of the streams of clock trials, each by its clock."""
    for who, role, clock, began in (("aclock", "send", 1, "begun_ns"), ("bclock", "receive", 2, "from_ns")):
        rows = [{"block": one["block"], "device": "direct", "cell": 0, "purpose": PURPOSE, "role": role, "flow": 1,
                 "port": 0, "clock_id": clock, "sent": 3, "first": 3,
                 **dict.fromkeys(("started_ns", "ended_ns", "started_raw_ns", "ended_raw_ns"), one[began])}
                for one in lines]  # fmt: skip
        write_table(folder.records / f"streams-{who}-{part:03}.arrow", "streams", pl.DataFrame(rows))
