"""Read the folder of a log of TCP's state, batch by batch, so that a log may be larger than memory.

The folder is the output of `sojourn tcplog run --out`, or a run folder of a study. Samples come in batches in the order
of the files, or in the order of time. The rings of several CPUs are drained one after the other, so a file is in order
except within the time between two drains. The records before a truncation are read; `TcpLog.cut` names the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from sojourn.errors import RequestError
from sojourn.records import TABLES, read_table
from sojourn.records.bed import read_bed
from sojourn.records.log_ends import read_log_end
from sojourn.records.log_fields import fields_of, unasked_of
from sojourn.records.messages import refuse_unpackable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

NS = 1_000_000_000
TAI_MINUS_UTC_S = 37
"""The value since 2017; a header's value overrides it."""

CHUNK_ROWS = 262_144
CHUNK_BATCHES = 16
"""The most batches of a chunk; ours have 65,536 rows, and none has more than 4 GiB (records/messages.py)."""

NEVER_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Chosen:
    """The selected samples: flows, a span in ns after the log's start and, of a run folder, who and block."""

    flows: frozenset[int] | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    who: str | None = None
    block: int | None = None

    @property
    def in_time(self) -> bool:
        """Whether a span of time is selected."""
        return self.since_ns is not None or self.until_ns is not None


@dataclass
class TcpLog:
    """An open log: header and footer as they are (empty where missing), and its tables."""

    path: Path
    records: Path
    header: dict[str, Any]
    footer: dict[str, Any]
    chosen: Chosen = field(default_factory=Chosen)
    cut: list[str] = field(default_factory=list)
    """The truncated files."""

    @classmethod
    def open(cls, path: Path, chosen: Chosen | None = None) -> TcpLog:
        """Open the log in `path`; RequestError where there is none."""
        if not path.is_dir():
            raise RequestError(f"{path} is no folder: name the one that `sojourn tcplog run --out` wrote")
        records = path / "records" if (path / "records").is_dir() else path
        if not any(records.glob("tcp_samples-*.arrow")):
            raise RequestError(_absent(path))
        header, footer = (read_log_end(path / name) for name in ("header.json", "footer.json"))
        log = cls(path, records, header, footer, chosen or Chosen())
        log._choose_one()
        return log

    @property
    def flows(self) -> pl.DataFrame:
        """The selected flows, one row each."""
        return self._small("tcp_flows").sort("flow")

    @property
    def logged_flows(self) -> pl.DataFrame:
        """The selected flows without those that were excluded from logging and have no logged packet."""
        account = self._small("tcp_account", by_flow=False)
        logged = account.filter(pl.col("disposition") == "logged", pl.col("packets") > 0)["flow"].drop_nulls().unique()
        return self.flows.filter(pl.col("wanted") | pl.col("flow").is_in(logged.implode()))

    @property
    def account(self) -> pl.DataFrame:
        """Packets by disposition: of the selected flows, or of all packets, including those of no flow."""
        account = self._small("tcp_account", by_flow=False)
        if self.chosen.flows is None:
            return account.filter(pl.col("flow").is_null())
        return account.filter(pl.col("flow").is_in(list(self.chosen.flows)))

    @property
    def account_of_flows(self) -> pl.DataFrame:
        """Packets by disposition, of each selected flow."""
        return self._small("tcp_account").drop_nulls("flow")

    @property
    def gaps(self) -> pl.DataFrame:
        """Where records are missing: of all flows, as their flows are unknown."""
        return self._small("tcp_gaps", by_flow=False)

    @property
    def start_ns(self) -> int:
        """When logging began, on the clock of the samples."""
        if "enable_time_secs" in self.header:
            utc_ns = int(self.header["enable_time_secs"]) * NS + int(self.header.get("enable_time_usecs", 0)) * 1000
            return utc_ns + self.minus_utc_ns
        first = self._small("tcp_flows", by_flow=False)["first_ns"].min()
        return int(first) if isinstance(first, int) else 0

    @property
    def minus_utc_ns(self) -> int:
        """The offset to subtract from a sample's time for UTC."""
        tai = int(self.header.get("tai_minus_utc_s", self._of_bed)) * NS
        if self.header.get("clock", "TAI") == "MONOTONIC":
            return tai - int(self.header.get("tai_minus_monotonic_ns", 0))
        return tai

    @cached_property
    def _of_bed(self) -> int:
        """The study's reading of TAI minus UTC of its machine: many machines never set it, so that it is 0."""
        clocks = read_bed(self.path / "bed.json").get("stable", {}).get("machine", {}).get("clocks", {})
        return int(clocks.get("tai_minus_utc_s", TAI_MINUS_UTC_S))

    def nothing_logged(self) -> str:
        """Return why a log has no sample: how many flows were seen, and which command shows the dispositions."""
        seen = self.flows.height
        flows = f"{seen} flow{'s' * (seen != 1)} seen, of which nothing was logged" if seen else "no flow was seen"
        return (
            f"{self.path} has no sample: {flows}; `sojourn tcplog status {self.path}` says what became of the packets"
        )

    def absent(self, columns: Collection[str]) -> list[str]:
        """Return which of these columns are null in every row: the log's kernel lacks them, or they were not
        requested."""
        return [name for name in self.header.get("absent", []) if name in columns]

    def unasked(self, columns: Collection[str]) -> list[str]:
        """Return which of these columns were not requested (`--fields`)."""
        return unasked_of(self.header, columns)

    def require(self, columns: Collection[str], what: str) -> None:
        """Raise RequestError if the log lacks any of these columns, which `what` needs."""
        if missing := self.unasked(columns):
            words = fields_of(self.header)
            raise RequestError(
                f"{self.path} has no {', '.join(missing)}, which {what} needs: it was logged with --fields {words}; "
                f"--fields {words},{','.join(missing)} has them"
            )

    def batches(self, columns: Collection[str] | None = None) -> Iterator[pl.DataFrame]:
        """Return the selected samples in the order of the files; only these columns, where given."""
        yield from (frame for _, frame in self._wanted_of_chunks(columns) if frame.height)

    def in_order(self, columns: Collection[str] | None = None) -> Iterator[pl.DataFrame]:
        """Return the same in the order of time. Times are read first: samples older than all later ones are ready."""
        ends = self._least_to_come()
        waiting: pl.DataFrame | None = None
        for place, frame in self._wanted_of_chunks(None if columns is None else {*columns, "time_ns"}):
            waiting = frame if waiting is None else pl.concat([waiting, frame])
            waiting = waiting.sort("time_ns", maintain_order=True)
            ready = int(waiting["time_ns"].search_sorted(ends[place], side="left"))
            if ready:
                yield waiting.head(ready)
                waiting = waiting.slice(ready)
        if waiting is not None and waiting.height:
            yield waiting

    def _least_to_come(self) -> list[int]:
        """Return for each chunk the least time in the later chunks."""
        least = [frame["time_ns"].min() for frame in self._chunks(["time_ns"])]
        ends, end = [], NEVER_NS
        for one in reversed(least):
            ends.append(end)
            end = min(end, one) if isinstance(one, int) else end
        return ends[::-1]

    def _wanted_of_chunks(self, columns: Collection[str] | None) -> Iterator[tuple[int, pl.DataFrame]]:
        names = [one for one in TABLES["tcp_samples"] if columns is None or one in columns]
        wanted = self._wanted()
        for place, frame in enumerate(self._chunks(names)):
            chosen = frame if wanted is None else frame.filter(wanted)
            yield place, chosen.select(names)

    def _chunks(self, names: list[str]) -> Iterator[pl.DataFrame]:
        """Return all samples in chunks, which are the same at each call."""
        for path in self._files():
            for table in self._tables(path, names):
                yield _plain(table, names)

    def _tables(self, path: Path, names: list[str]) -> Iterator[pa.Table]:
        """Return a file's batches, several merged, with these columns and those needed for the selection."""
        refuse_unpackable(path, "tcp_samples")
        wanted = {*names, "block", "flow", "time_ns"}
        with pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b"") as source:
            try:
                schema = pa.ipc.open_stream(source).schema
                missing = [name for name in names if name not in schema.names]
                if missing:
                    raise RequestError(f"{path} has no column {missing[0]!r}: it is of another version of Sojourn")
                fields = [at for at, name in enumerate(schema.names) if name in wanted]
                source.seek(0)
                stream = pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
                yield from _joined(stream)
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                self._tell_cut(path)
                return
            if not _ends(path):
                self._tell_cut(path)

    def _tell_cut(self, path: Path) -> None:
        if path.name not in self.cut:
            self.cut.append(path.name)

    def _wanted(self) -> pl.Expr | None:
        """Return the filter of the selected samples; None where all are selected."""
        asked = []
        if self.chosen.flows is not None:
            asked.append(pl.col("flow").is_in(list(self.chosen.flows)))
        if self.chosen.block is not None:
            asked.append(pl.col("block") == self.chosen.block)
        start_ns = self.start_ns if self.chosen.in_time else 0
        if self.chosen.since_ns is not None:
            asked.append(pl.col("time_ns") >= start_ns + self.chosen.since_ns)
        if self.chosen.until_ns is not None:
            asked.append(pl.col("time_ns") < start_ns + self.chosen.until_ns)
        return pl.all_horizontal(asked) if asked else None

    def _files(self) -> list[Path]:
        paths = sorted(self.records.glob("tcp_samples-*.arrow"))
        return [path for path in paths if self.chosen.who in {None, _who(path)}]

    def _small(self, name: str, *, by_flow: bool = True) -> pl.DataFrame:
        table = read_table(self.records, name).frame
        if self.chosen.who is not None:
            table = table.filter(pl.col("who") == self.chosen.who)
        if self.chosen.block is not None:
            table = table.filter(pl.col("block") == self.chosen.block)
        if by_flow and self.chosen.flows is not None:
            table = table.filter(pl.col("flow").is_in(list(self.chosen.flows)))
        return table

    def _choose_one(self) -> None:
        """Refuse an ambiguous log of a run folder, and a flow that does not exist."""
        everyone = {_who(path) for path in self.records.glob("tcp_samples-*.arrow")}
        if self.chosen.who is not None and self.chosen.who not in everyone:
            raise RequestError(f"{self.path} has no log by {self.chosen.who}: there are {', '.join(sorted(everyone))}")
        flows = self._small("tcp_flows", by_flow=False)
        if self.chosen.block is not None and flows.is_empty():
            raise RequestError(f"{self.path} has no log of block {self.chosen.block}")
        for column, option in (("block", "--block"), ("who", "--who")):
            there = flows[column].unique().sort().cast(pl.String).to_list()
            if len(there) > 1:
                some = ", ".join(map(str, there[:6])) + (", …" if len(there) > 6 else "")
                raise RequestError(f"{self.path} has several logs: name one with {option} ({some})")
        unknown = sorted((self.chosen.flows or frozenset()) - set(flows["flow"].to_list()))
        if unknown:
            known = sorted(flows["flow"].to_list())
            some = ", ".join(map(str, known[:8])) + (f", … {known[-1]}" if len(known) > 8 else "")
            raise RequestError(f"{self.path} has no flow {unknown[0]}: there are {some or 'none'}")


def _absent(path: Path) -> str:
    """Return why a folder holds no whole log."""
    if any(path.glob("spool-*.tcplog")):
        return f"{path} was not ended as logs are: `sojourn tcplog recover {path}` first"
    return f"{path} holds no log of TCP's state: name the folder that `sojourn tcplog run --out` wrote"


def _who(path: Path) -> str:
    return path.stem.rpartition("-")[0].removeprefix("tcp_samples").removeprefix("-")


def _joined(stream: pa.RecordBatchStreamReader) -> Iterator[pa.Table]:
    """Merge a stream's batches into larger tables; yield what precedes a truncation before raising its error."""
    held: list[pa.RecordBatch] = []
    cut: Exception | None = None
    while cut is None:
        try:
            batch = stream.read_next_batch()
            batch.validate(full=True)  # inconsistent buffers would crash the process later
            held.append(batch)
        except StopIteration:
            break
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            cut = error
        if len(held) == CHUNK_BATCHES or sum(batch.num_rows for batch in held) >= CHUNK_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
    if cut is not None:
        raise cut


def _ends(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-8, 2)
        return file.read() == b"\xff\xff\xff\xff\x00\x00\x00\x00"


def _plain(table: pa.Table, names: list[str]) -> pl.DataFrame:
    """Convert to Polars columns of the declared types; dictionaries of strings become strings."""
    columns = [_spelled(column) for column in table.columns]
    frame = pl.from_arrow(pa.table(dict(zip(table.column_names, columns, strict=True))), rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame.cast({name: kind_of(name) for name in names})


def _spelled(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def kind_of(name: str) -> pl.DataType:
    """Return the Polars type of a column of samples."""
    kinds = {"int32": pl.Int32(), "int64": pl.Int64(), "float64": pl.Float64()}
    return kinds.get(TABLES["tcp_samples"][name].type, pl.String())
