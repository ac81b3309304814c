"""A run folder for the analysis: plan, bed and log as plain values, blocks and probes as frames, cells.

It hides repeated blocks (a resumed run measures a cut block again: the later part counts) and the names of cells. The
records of streams are read on first use: a run of probes has none, a flood has millions. It judges nothing; that is for
`findings`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.factors import Factors, factors_of, factors_of_stream
from sojourn.analysis.lent_lines import one_sided, with_lent
from sojourn.analysis.path import PathInCell, RowRanges, gathered
from sojourn.devices import TWIN
from sojourn.errors import RequestError
from sojourn.methods import DEFAULT
from sojourn.records import TABLES, RunFolder, Table, read_table
from sojourn.records.asked import read_run_plan
from sojourn.records.bed import read_bed
from sojourn.records.earlier import VALUES
from sojourn.records.log import read_log
from sojourn.records.lost import in_parts, lost_blocks, without_lost_searches
from sojourn.records.reader import no_rows, read_in_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

DIRECT = "direct"
A_A = "a/a"
WIRE = "wire"


def against(devices: list[str], stated: str | None = None) -> list[tuple[str, str]]:
    """Return every (device, reference) that can be subtracted: a/a first, then over direct, the wire, the
    stated one."""
    known = [one for one in devices if one not in (DIRECT, A_A)]
    over_direct = [(one, DIRECT) for one in [A_A, *known] if one in devices]
    over_wire = [(one, WIRE) for one in known if one != WIRE]
    others = [one for one in known if one not in (stated, WIRE)] if stated not in (None, DIRECT, WIRE) else []
    over_stated = [(one, str(stated)) for one in others]
    return [pair for pair in over_direct + over_wire + over_stated if pair[1] in devices]


JUDGED = ("measure", "search")
"""Purposes of the blocks from which figures are calculated."""


@dataclass(frozen=True)
class Run:
    """The contents of a run folder.

    `probes` has every probe with its block's factors: first the measured ones, then the warm-up, so that `measured` is
    a slice and no copy. Both are in the order of blocks and sequence numbers.
    """

    folder: RunFolder
    plan: dict[str, Any]
    bed: dict[str, Any]
    log: list[dict[str, Any]]
    blocks: pl.DataFrame
    probes: pl.DataFrame
    captures: pl.DataFrame
    tables: dict[str, Table]
    cells: dict[int, Factors]

    @cached_property
    def devices(self) -> list[str]:
        """Every measured path: direct, a/a, then the devices in the plan's order."""
        seen = self.blocks["device"].unique(maintain_order=True).to_list()
        streams = self.streams if "purpose" not in self.streams else self.streams.filter(purpose="measure")
        seen += [one for one in streams["device"].unique(maintain_order=True) if one not in seen]
        planned = [DIRECT, A_A, *self.planned_devices]
        return [one for one in planned if one in seen] + sorted(one for one in seen if one not in planned)

    @property
    def planned_devices(self) -> list[str]:
        """The devices in the plan."""
        return [str(one) for one in self.plan.get("bed", {}).get("devices", [])]

    @property
    def study(self) -> dict[str, Any]:
        """The plan's [study]."""
        return dict(self.plan.get("study", {}))

    @property
    def reference(self) -> str | None:
        """The device that the plan states as the reference of the others; None where it states none."""
        stated = self.plan.get("pairs", {}).get("reference")
        return None if stated is None else str(stated)

    @property
    def hypotheses(self) -> list[str]:
        """The names of the published hypotheses that the run is to test."""
        return [str(one) for one in self.study.get("hypotheses", [])]

    @property
    def method(self) -> str:
        """The method of the study: "pairs", "departures", "one-way", ..."""
        return str(self.study.get("method", DEFAULT))

    @property
    def sessions(self) -> int:
        """The number of sessions in the plan, each with a rebuilt bed; the part of a record numbers its session."""
        return int(self.plan.get("bed", {}).get("sessions", 1))

    @property
    def session(self) -> pl.Expr:
        """The session of a row with a part: the part's number, or 0 where the run has one bed."""
        return (pl.col("part").cast(pl.Int32) if self.sessions > 1 else pl.lit(0, pl.Int32)).alias("session")

    def sessions_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the session of each block of streams or probes; 0 where the run has one bed."""
        found, (each, which) = self._session_of_block, np.unique(blocks, return_inverse=True)
        return np.array([found.get(block, 0) for block in each.tolist()], dtype=np.int64)[which]

    @cached_property
    def _session_of_block(self) -> dict[int, int]:
        if self.sessions == 1:
            return {}
        frames = (one.select("block", "part").unique() for one in (self.blocks, self.streams) if "part" in one.columns)
        return {block: part for frame in frames for block, part in frame.iter_rows()}

    @property
    def has_twins(self) -> bool:
        """Whether the A/A control, or else the direct path, has a second link; devices also have one, if possible."""
        return bool(self.plan.get("bed", {}).get("twins", False))

    @cached_property
    def second_blocks(self) -> set[int]:
        """The blocks of streams over the second link of their path's kind."""
        return {block for block, event in self.trial_events.items() if event.get("link", 1) == 2}

    @property
    def simulated(self) -> bool:
        """Whether time was simulated."""
        return self.clock == "simulated"

    @property
    def clock(self) -> str:
        """The clock of departures and arrivals."""
        named = self.tables["probes"].field_metadata("departure_ns", "clock")
        named = named or self.table("streams").field_metadata("started_ns", "clock")
        return ", ".join(named) if named else "TAI"

    @cached_property
    def measured(self) -> pl.DataFrame:
        """The probes without the warm-up, in the order of blocks and sequence numbers."""
        warm_up = self.probes["warmup"]
        return self.probes.head(len(warm_up) - int(warm_up.sum()))

    @cached_property
    def paths(self) -> dict[tuple[str | None, int | None], PathInCell]:
        """Every device in every measured cell, in the order of the tables."""
        of_paths = self.blocks.group_by("device", "cell").agg("block")
        blocks = {(device, cell): own for device, cell, own in of_paths.iter_rows()}
        each = ((device, cell) for cell in self.cells for device in self.devices)
        rows = ((key, self._ranges_of_measured.rows(blocks[key])) for key in each if key in blocks)
        return {key: PathInCell(*key, self, own) for key, own in rows if len(own)}

    def path_by_path(self, *columns: str) -> Iterator[pl.DataFrame]:
        """Return these columns of the measured probes, path by path: all at once are gigabytes.

        The first frame has no rows, so that there is always one.
        """
        yield self.measured.clear().select(columns)
        for path in self.paths.values():
            yield path.probes(*columns)

    @cached_property
    def stamps(self) -> pl.DataFrame:
        """The number of measured probes (`len`) of each cell by sources of timestamps; null: without timestamps.

        Columns: cell, departure_source, arrival_source, len.
        """
        names = ("cell", "departure_source", "arrival_source")
        of_paths = pl.concat(probes.group_by(names).len() for probes in self.path_by_path(*names))
        return of_paths.group_by(names).agg(pl.col("len").sum())

    def probes_of(self, blocks: Iterable[int], *columns: str) -> pl.DataFrame:
        """Return these columns of the probes of some blocks, warm-up included, in order."""
        both = ((self.measured, self._ranges_of_measured), (self._warm_up, self._ranges_of_warm_up))
        blocks = list(blocks)
        found = pl.concat(gathered(frame.select(columns), ranges.rows(blocks)) for frame, ranges in both)
        return found.sort("block", "seq")

    @property
    def recorded(self) -> pl.DataFrame:
        """The number of recorded probes of each block (`block`), warm-up included (`len`)."""
        both = pl.concat(one.lengths for one in (self._ranges_of_measured, self._ranges_of_warm_up))
        return both.group_by("block").agg(pl.col("len").sum())

    @property
    def _warm_up(self) -> pl.DataFrame:
        return self.probes.slice(self.measured.height)

    @cached_property
    def _ranges_of_measured(self) -> RowRanges:
        return RowRanges.of(self.measured)

    @cached_property
    def _ranges_of_warm_up(self) -> RowRanges:
        return RowRanges.of(self._warm_up)

    def table(self, name: str) -> Table:
        """Return a table of the records, read once; one that this version does not declare is empty."""
        if name not in self.tables:
            self.tables[name] = read_table(self.folder.records, name) if name in TABLES else Table(name, pl.DataFrame())
        return self.tables[name]

    @cached_property
    def streams(self) -> pl.DataFrame:
        """One row per block, role, flow and port of streams, from the last part that measured the block."""
        rows = self.table("streams").frame
        if not rows.height:
            return rows if rows.width else pl.DataFrame(schema={"device": pl.String})
        rows = _of_last_part(without_lost(rows, self.log))
        _require_cells(rows, self)
        return rows

    @cached_property
    def sends(self) -> pl.DataFrame:
        """Every packet sent, of the judged blocks."""
        return self._packets("sends")

    @cached_property
    def arrivals(self) -> pl.DataFrame:
        """Every frame received, of the judged blocks."""
        return self._packets("arrivals")

    @cached_property
    def histograms(self) -> pl.DataFrame:
        """The binned counts, of the blocks in `streams`."""
        return self._of_streams("histograms")

    @cached_property
    def exchanges(self) -> pl.DataFrame:
        """The exchanges that compare clocks, of the blocks in `streams`."""
        return self._of_streams("exchanges")

    @cached_property
    def clock_lines(self) -> pl.DataFrame:
        """The lines of the receivers' clocks by exchanges, of the blocks in `streams`.

        Streams over an emulator make no exchanges, and borrow the lines of others.
        """
        return with_lent(self._of_streams("clock_lines"), self.streams, self._emulators)

    @cached_property
    def one_sided_blocks(self) -> set[int]:
        """The blocks with a borrowed line from one side only."""
        return one_sided(self._of_streams("clock_lines"), self.streams, self._emulators)

    @cached_property
    def _emulators(self) -> set[str]:
        """The paths over emulators."""
        return {str(one.get("device")) for one in self.log if one.get("event") == "emulator-ready"}

    @cached_property
    def emulated(self) -> pl.DataFrame:
        """The emulators' records of every packet, of the judged blocks, in the part that measured the block."""
        rows = read_table(self.folder.records, "packets", self.judged_blocks).frame
        return rows.join(self.streams.select("block", "part").unique(), on=["block", "part"], how="semi")

    @cached_property
    def trial_events(self) -> dict[int, dict[str, Any]]:
        """The log's event of each trial of streams, by block: the last one, where a block was measured again."""
        lost = lost_blocks(self.log)
        told = in_parts(self.log, "stream-trial")
        return {int(event["block"]): event for part, event in told if (event["block"], part) not in lost}

    @cached_property
    def judged_blocks(self) -> set[int]:
        """The blocks whose packets are analysed: measured, and not repeated because the sender missed its load."""
        if "purpose" not in self.streams.columns:
            return set()
        measured = self.streams.filter(pl.col("purpose").is_in(JUDGED))["block"].unique().to_list()
        return {block for block in measured if self.trial_events.get(block, {}).get("kept", True)}

    def _packets(self, name: str) -> pl.DataFrame:
        """Return a table with one row per packet: only of the judged blocks, and held once."""
        if name not in self.tables:
            self.tables[name] = read_table(self.folder.records, name, self.judged_blocks)
        rows = self._of_streams(name)
        self.tables[name] = replace(self.tables[name], frame=rows.clear())
        return rows

    def _of_streams(self, name: str) -> pl.DataFrame:
        rows = self.table(name).frame
        if not rows.height:
            return rows
        return rows.join(self.streams.select("block", "part").unique(), on=["block", "part"], how="semi")


def load(path: Path) -> Run:
    """Load the run in the folder at `path`; a folder without plan or records is refused."""
    folder = RunFolder(path)
    plan = _plan(folder)
    tables = {name: read_table(folder.records, name) for name in ("blocks", "captures")}
    log = without_lost_searches(read_log(folder.log))
    latest = _latest(without_lost(tables["blocks"].frame, log))
    captures = _of_last_part(without_lost(tables["captures"].frame, log))
    blocks = _by_instance(latest).with_columns(pl.col("schedule").replace(VALUES))
    cells = {int(row["cell"]): factors_of(row, plan) for row in blocks.unique("cell").iter_rows(named=True)}
    cells |= _cells_of_streams(log)
    probes, of_probes = _probes(folder, blocks)
    return Run(
        folder,
        plan,
        read_bed(folder.bed),
        log,
        blocks,
        probes,
        captures,
        {"probes": of_probes, **tables},
        dict(sorted(cells.items())),
    )


def _cells_of_streams(log: list[dict[str, Any]]) -> dict[int, Factors]:
    """Return the cells of streams: the log has their factors once for all and again with each trial."""
    told: dict[int, dict[str, Any]] = {}
    for event in log:
        if event.get("event") == "cells":
            several = event.get("cells", {})
            pairs = several.items() if isinstance(several, dict) else ((one.get("cell"), one) for one in several)
            told |= {int(cell): factors.get("factors", factors) for cell, factors in pairs}
        elif event.get("event") == "stream-trial" and {"factors", "cell"} <= event.keys():
            told[int(event["cell"])] = event["factors"]
    return {cell: factors_of_stream(factors) for cell, factors in told.items()}


def _require_cells(rows: pl.DataFrame, run: Run) -> None:
    """Refuse streams of cells that the log does not describe: their factors are unknown."""
    if "purpose" not in rows.columns or "cell" not in rows.columns:
        return
    measured = rows.filter(pl.col("purpose").is_in(JUDGED))["cell"].drop_nulls().unique().sort().to_list()
    if unknown := [cell for cell in measured if cell not in run.cells]:
        raise RequestError(
            f"{run.folder.log} is damaged: it does not say what cell {unknown[0]} is, which was measured"
        )


def without_lost(rows: pl.DataFrame, log: list[dict[str, Any]]) -> pl.DataFrame:
    """Return the rows without blocks that the log reports as lost in the part that recorded them."""
    lost = sorted(lost_blocks(log))
    if not lost or not rows.height:
        return rows
    kinds = {name: rows.schema[name] for name in ("block", "part")}
    return rows.join(pl.DataFrame(lost, schema=kinds, orient="row"), on=["block", "part"], how="anti")


def _of_last_part(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of each block from the last part that has any: earlier parts began it in vain."""
    return rows.filter(pl.col("part") == pl.col("part").max().over("block")) if rows.height else rows


def _latest(blocks: pl.DataFrame) -> pl.DataFrame:
    return blocks.sort("block", "part").unique("block", keep="last", maintain_order=True)


def _by_instance(blocks: pl.DataFrame) -> pl.DataFrame:
    """Rename blocks over a twin to its device; they are its second instance."""
    is_twin = pl.col("device").str.ends_with(TWIN)
    return blocks.with_columns(
        pl.when(is_twin).then(2).otherwise(1).cast(pl.Int8).alias("instance"), pl.col("device").str.strip_suffix(TWIN)
    )


WORDS = ("departure_source", "arrival_source", "schedule")
"""Columns with few distinct values and millions of rows: each value is held in a byte."""


def _probes(folder: RunFolder, blocks: pl.DataFrame) -> tuple[pl.DataFrame, Table]:
    """Return the probes with their block's factors, and the table without rows; `probes` holds each part once."""
    own = blocks.select("block", "part", "device", "instance", "round", "visit", "cell", "schedule")
    kind = pl.Categorical(pl.Categories.random(physical=pl.UInt8))
    nothing, parts = no_rows("probes"), []
    measured, warm_up = ([_with_factors(nothing, own, kind)] for _ in range(2))
    try:
        for one in read_in_turn(folder.records, "probes"):
            parts += one.parts
            rows = _with_factors(one.frame, own, kind)
            measured.append(rows.filter(~pl.col("warmup")))
            warm_up.append(rows.filter("warmup"))
    except pl.exceptions.ComputeError as error:
        raise RequestError(f"{folder.records}: the probes are damaged: {error}") from error
    return pl.concat([_in_order(measured), _in_order(warm_up)]), Table("probes", nothing, parts)


def _in_order(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of all, sorted; sorted input is not copied."""
    rows = pl.concat(frames)
    same = pl.col("block") == pl.col("block").shift()
    after = (pl.col("block") > pl.col("block").shift()) | (same & (pl.col("seq") >= pl.col("seq").shift()))
    return rows if rows.select(after.all()).item() else rows.sort("block", "seq")


def _with_factors(probes: pl.DataFrame, blocks: pl.DataFrame, words: pl.DataType) -> pl.DataFrame:
    """Return probes with their block's factors; those of a block that another part measured again are left out."""
    rtt = (pl.col("arrival_ns") - pl.col("departure_ns")).alias("rtt")
    return probes.join(blocks, on=["block", "part"], how="inner").with_columns(pl.col(WORDS).cast(words), rtt)


def _plan(folder: RunFolder) -> dict[str, Any]:
    try:
        return read_run_plan(folder.plan)
    except FileNotFoundError:
        raise RequestError(f"{folder.path} is not a run folder: it has no plan.toml") from None
