"""The data of each pipe: its configuration, the emulator's packet log, and the stream's frames from outside.

There is one `Seen` for each path with an emulator and each cell. The log's rows are the packets in the stream's
direction that went through a pipe, in the order of their numbers; rows of the stream's own frames have its flow and
sequence number, read from the header that the log kept. The module judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.budget import CLOCK_RATE
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.sessions import beds_in
from sojourn.analysis.streams import in_order
from sojourn.errors import RequestError
from sojourn.methods.emulator.analyse.pipe import Pipe
from sojourn.records.decode import MOST_BYTES, json_value
from sojourn.records.events import EMULATION
from sojourn.records.shape import misfit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run
    from sojourn.analysis.stream_study import Gathered

KIND_AT, FLOW_AT, DATA = 4, 6, (1, 7)
"""In the header of a stream's frame: the offsets of kind and flow, and the kinds of packets."""
SEQ_AT = {b"SOJ3": slice(16, 22), b"SOJ2": slice(12, 20)}
"""The magic of the header, and the offset of its number; the second is that of earlier versions, whose logs are read
too."""

FORWARD = "forward"
"""The direction of streams, and the name of its pipe."""

LEAST_PARTS = 20
"""The least number of parts of trials for an interval, given enough packets."""

LEAST_STAY_NS = 100e3
"""Packets delayed at least this long are judged by their departure time; shorter delays end before a program runs."""

LEAST_IN_PART = 25


@dataclass(frozen=True)
class Seen:
    """A pipe and its data; times are plain ns."""

    device: str
    cell: int
    words: str
    pipe: Pipe
    blocks: list[int]
    log: pl.DataFrame
    trials: pl.DataFrame
    packets: pl.DataFrame
    floor: pl.DataFrame
    sends: pl.DataFrame
    cut: frozenset[int] = frozenset()
    """Blocks whose log may be truncated: the emulator was killed, and the run resumed."""

    @property
    def has_log(self) -> bool:
        """Whether the emulator logged its packets."""
        return bool(self.log.height)

    @cached_property
    def sent(self) -> pl.DataFrame:
        """The logged packets that left."""
        return self.log.filter(pl.col("disposition") == "sent")

    @cached_property
    def interval_ns(self) -> float | None:
        """The mean time between the stream's packets."""
        paces = self.trials["offered_pps"].drop_nulls()
        mean = paces.mean()
        return 1e9 / float(mean) if isinstance(mean, float) and mean > 0 else None

    def by_block(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Return the rows of each trial."""
        yield from rows.partition_by("block", maintain_order=True)

    @cached_property
    def floor_p50_ns(self) -> float | None:
        """The median one-way delay of the direct path in this cell."""
        middle = self.floor["delay_ns"].median() if self.floor.height else None
        return float(middle) if isinstance(middle, float) else None

    @cached_property
    def clock_errors(self) -> tuple[float, float]:
        """The maximum and the 95 % error of the clocks in a delay minus the direct path's: the sum of both paths'
        errors.

        If the ends have two clocks, the emulator waits by its host's, whose rate differs from the measuring one's.
        """
        both = [one for one in (self.packets, self.floor) if one.height and "clock_bound_ns" in one.columns]

        def most(name: str) -> float:
            return float(sum(one[name].fill_null(0.0).to_numpy().max() for one in both))

        bound_ns, error95_ns = most("clock_bound_ns"), most("clock_error95_ns")
        stays = self.stayed["stay_ns"].mean() if bound_ns else None
        by_rate = 2 * CLOCK_RATE * stays if isinstance(stays, float) else 0.0
        return bound_ns + by_rate, error95_ns + 0.95 * by_rate

    @cached_property
    def stayed(self) -> pl.DataFrame:
        """The stream's packets with `stay_ns`, each one's intended time in the emulator; null where unknown."""
        plain = self.packets
        if self.has_log and "seq" in self.log.columns:
            stays = self.sent.filter(pl.col("copy_of").is_null()).drop_nulls("seq").select(
                "block", "flow_of_stream", "seq",
                (pl.col("intended_ns") - pl.col("arrival_ns")).cast(pl.Float64).alias("stay_ns"),
            )  # fmt: skip
            joined = plain.join(
                stays.rename({"flow_of_stream": "flow"}).unique(["block", "flow", "seq"]),
                on=["block", "flow", "seq"],
                how="left",
                maintain_order="left",
            )
            if joined["stay_ns"].null_count() < joined.height:
                return joined
        told = None if self.pipe.jitter or self.pipe.rate_bps or self.pipe.reorder else float(self.pipe.constant_ns)
        return plain.with_columns(stay_ns=pl.lit(told, dtype=pl.Float64))

    @cached_property
    def is_timed(self) -> bool:
        """Whether packets are delayed long enough to be judged by their departure times.

        For a packet without delay, only the time of passing through is measured.
        """
        stays = self.stayed["stay_ns"].median() if self.packets.height else None
        least = float(stays) if isinstance(stays, float) else self.pipe.mean_delay_ns
        return least >= LEAST_STAY_NS

    @cached_property
    def outside(self) -> pl.DataFrame:
        """The stream's packets with `error_ns`: the delay, minus the intended stay, minus the direct path's median."""
        placed = self.over_floor(self.stayed)
        return placed.with_columns(error_ns=pl.col("over_ns") - pl.col("stay_ns")).drop_nulls("error_ns")

    def over_floor(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add `over_ns`: the delay minus the direct path's median, of the same session."""
        delay = pl.col("delay_ns")
        if sessions_in(self.floor) is None or sessions_in(rows) is None:
            return rows.with_columns(over_ns=delay - pl.lit(self.floor_p50_ns, dtype=pl.Float64))
        medians = self.floor.group_by("session").agg(delay.median().alias("floor_ns"))
        joined = rows.join(medians, on="session", how="inner", maintain_order="left")
        return joined.with_columns(over_ns=delay - pl.col("floor_ns")).drop("floor_ns")

    @cached_property
    def inside(self) -> pl.DataFrame:
        """The logged packets that left, with `error_ns`: actual minus intended departure."""
        error = (pl.col("departure_ns") - pl.col("intended_ns")).cast(pl.Float64)
        return self.sent.with_columns(error_ns=error).drop_nulls("error_ns")

    @cached_property
    def arrived(self) -> list[NDArray[np.bool_]]:
        """For each trial and flow: for every packet sent, in order, whether it was lost."""
        sends = self.sends.select("block", "flow", "seq").unique()
        came = self.packets.select("block", "flow", "seq").unique().with_columns(lost=pl.lit(value=False))
        both = sends.join(came, on=["block", "flow", "seq"], how="left").sort("block", "flow", "seq")
        several = both.partition_by("block", "flow", maintain_order=True)
        return [one["lost"].fill_null(value=True).to_numpy() for one in several]


def sessions_in(rows: pl.DataFrame) -> int | None:
    """Return the number of sessions with packets; None for one."""
    return beds_in(rows["session"].to_numpy()) if "session" in rows.columns else None


def parts_of(rows: pl.DataFrame) -> NDArray[np.int64]:
    """Return each row's part: trials are cut into pieces of equally many packets, at least twenty parts in all.

    With several sessions, each is a part, however many packets it has.
    """
    if sessions_in(rows):
        return np.unique(rows["session"].to_numpy(), return_inverse=True)[1].astype(np.int64)
    blocks = rows["block"].to_numpy()
    trials = max(1, len(np.unique(blocks)))
    least = LEAST_IN_PART * trials
    pieces = max(1, min(-(-LEAST_PARTS // trials), len(blocks) // least if least else 1))
    found = np.zeros(len(blocks), dtype=np.int64)
    for place, block in enumerate(np.unique(blocks)):
        here = np.flatnonzero(blocks == block)
        found[here] = place * pieces + np.arange(len(here)) * pieces // max(1, len(here))
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def seen_of(of: Gathered) -> list[Seen]:
    """Return every path and cell whose pipe is known, in the order of the tables."""
    run = of.run
    pipes = _pipes(run)
    log = _numbered(run.emulated)
    log = log.with_columns(run.session) if "part" in log.columns else log
    found = []
    places = [(str(d), int(c)) for d, c in of.trials.select("device", "cell").unique().iter_rows()]
    for device, cell in in_order(run, places):
        here = of.trials.filter((pl.col("device") == device) & (pl.col("cell") == cell))
        blocks = sorted(set(here["block"].to_list()) & pipes.keys())
        if device not in (DIRECT, A_A) and blocks:
            found.append(_seen(of, device, cell, pipes, log, here.filter(pl.col("block").is_in(blocks))))
    return found


def _seen(
    of: Gathered, device: str, cell: int, pipes: dict[int, tuple[str, Pipe]], log: pl.DataFrame, trials: pl.DataFrame
) -> Seen:
    blocks = sorted(set(trials["block"].to_list()))
    words, pipe = pipes[blocks[0]]
    here = pl.col("block").is_in(blocks)
    direct = (pl.col("device") == DIRECT) & (pl.col("cell") == cell)
    return Seen(
        device,
        cell,
        words,
        pipe,
        blocks,
        log.filter(here),
        trials,
        of.packets.filter(here).drop_nulls("delay_ns"),
        of.packets.filter(direct).drop_nulls("delay_ns"),
        of.run.sends.filter(here),
        cut_blocks(of.run.log) & set(blocks),
    )


def cut_blocks(log: list[dict[str, Any]]) -> frozenset[int]:
    """Return the blocks of emulators that began and never ended: what they had not yet written is lost."""
    found: set[int] = set()
    open_: set[int] = set()
    for event in log:
        if event.get("event") == "started":
            found |= open_
            open_ = set()
        elif event.get("event") == "emulator-set":
            open_.add(int(event["block"]))
        elif event.get("event") == "emulator-ended":
            open_ = set()
    return frozenset(found | open_)


def _pipes(run: Run) -> dict[int, tuple[str, Pipe]]:
    """Return the pipe of every block in the run's log: its configuration string, and the pipe as the emulator parsed
    it."""
    found: dict[int, tuple[str, Pipe]] = {}
    started = _started(run)
    for block, event in run.trial_events.items():
        if started and event.get("device") not in (DIRECT, A_A):
            found[block] = started
    told: dict[int, str] = {}
    for event in run.log:
        if event.get("event") == "emulator-set" and event.get("to"):
            block, name = int(event["block"]), str(event.get("pipe") or "")
            if told.get(block) != FORWARD or name == FORWARD:  # one event per pipe: the stream's own direction counts
                told[block] = name
                found[block] = (str(event.get("words") or name), Pipe(event["to"]))
    return found


def _started(run: Run) -> tuple[str, Pipe] | None:
    """Return the pipe that the emulator started with, for a run that sets none."""
    for path in sorted(run.folder.records.glob("emulation-*.jsonl")):
        pipes = first_pipes(path)
        chosen = next((one for one in pipes if one.get("name") == FORWARD), pipes[0] if pipes else None)
        if chosen:
            return str(chosen.get("name") or ""), Pipe(chosen)
    return None


def first_pipes(path: Path) -> list[dict[str, Any]]:
    """Return the pipes in the first line of an emulator's log. Raises RequestError if the line is damaged."""
    with path.open("rb") as lines:
        line = lines.readline(MOST_BYTES)
    try:
        first = json_value(line or b"{}")
        if (wrong := misfit(first, EMULATION)) is not None:
            raise ValueError(wrong)
    except ValueError as error:
        raise RequestError(f"{path} is damaged: its first line is not how an emulator began ({error})") from error
    pipes: list[dict[str, Any]] = (first.get("config") or {}).get("pipes") or []
    return pipes


def _numbered(log: pl.DataFrame) -> pl.DataFrame:
    """Return the log's rows of the stream's direction in order, with flow_of_stream and seq (null: not of the
    stream)."""
    if not log.height:
        return log.with_columns(flow_of_stream=pl.lit(None, pl.Int32), seq=pl.lit(None, pl.Int64))
    through = log.filter((pl.col("direction") == FORWARD) & (pl.col("pipe") != "")).sort("block", "number")
    if not through.height:
        return _numbered(through)
    told = [header_of(head) for head in through["head"].to_list()]
    flows, numbers = zip(*told, strict=True)
    return through.drop("head").with_columns(
        flow_of_stream=pl.Series(flows, dtype=pl.Int32), seq=pl.Series(numbers, dtype=pl.Int64)
    )


def header_of(head: bytes | None) -> tuple[int | None, int | None]:
    """Return flow and number of a stream's packet; None for any other packet."""
    for magic, seq_at in SEQ_AT.items():
        at = head.find(magic) if head else -1
        if head is None or at < 0:
            continue
        header = head[at:]
        if len(header) < seq_at.stop or header[KIND_AT] not in DATA:
            return None, None
        return int.from_bytes(header[FLOW_AT : FLOW_AT + 2], "big"), int.from_bytes(header[seq_at], "big")
    return None, None
