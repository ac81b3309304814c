"""Logs of TCP's state made up to order, with the truth beside them: senders with a sawtooth, by Reno's law or CUBIC's.

`Log` takes flows and what a logger does to them (packets per log, points, gaps, fields that a kernel lacks), writes the
folder that `tcplog run --out` writes, or the records of a run folder, and returns what it wrote and what was true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from sojourn.records import TABLES
from tests.unit.made_up_tcp_flow import FlowTruth, MadeFlow, packets_of, samples_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["FlowTruth", "Log", "MadeFlow", "Truth", "write_table"]

START = 1_900_000_000_000_000_000
TAI_MINUS_UTC_S = 37
BATCH_ROWS = 8192
PACKET_POINTS = ("in", "out")
FLAG_NAMES = [
    *("timestamps", "sack", "window-scaling", "dsack", "ecn", "ecn-queue-cwr", "ecn-demand-cwr", "ecn-seen"),
    *("nagle-off", "cork", "cwnd-limited", "app-limited", "frto", "out-of-order", "undo", "tlp"),
    *("in-use", "syn-data", "fastopen", "repair", "bit-20", "bit-21", "bit-22", "bit-23"),
]
DISPOSITIONS = (
    *("seen", "logged", "decimated", "unchanged", "early", "filtered", "forgotten"),
    *("full", "broken", "no-socket", "no-state", "control", "unparsed", "no-room", "late"),
)
STATE = list(TABLES["tcp_samples"])[list(TABLES["tcp_samples"]).index("state") :]
KINDS: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "utf8": pa.string(),
    "utf8-dictionary": pa.dictionary(pa.int8(), pa.string()),
    "binary": pa.binary(),
}


@dataclass
class Log:
    """What is logged, and how.

    `points` is pre, post or both; every `gap_every`-th record begins a gap of `gap_records` (0: none), which is skipped
    as full; `absent` are fields that the kernel lacks; `skipped` are packets without a flow by
    disposition, half each way.
    """

    flows: Sequence[MadeFlow] = (MadeFlow(),)
    ppl: int = 1
    points: str = "pre"
    gap_every: int = 0
    gap_records: int = 3
    absent: Sequence[str] = ()
    fields: Sequence[str] = ()
    """What alone is logged of TCP's state; nothing: all."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    private_every: int = 0
    cpus: int = 2
    block: int = 0
    seed: int = 1
    ended: bool = True
    """Whether there is a footer."""

    def make(self) -> Truth:
        """Everything, in memory."""
        rng = np.random.default_rng(self.seed)
        flows, frames, packets = [], [], []
        for number, flow in enumerate(self.flows, start=1):
            truth = packets_of(flow, START + number * 1_234_567, rng)
            frame = samples_of(flow, truth, rng).with_columns(
                pl.lit(number, pl.Int32).alias("flow"), pl.lit(number % self.cpus, pl.Int32).alias("cpu")
            )
            flows.append(truth)
            packets.append(frame.filter(pl.col("point").is_in(PACKET_POINTS)))
            frames.append(frame.filter(self._wanted()))
        samples, gaps = self._numbered(pl.concat(frames))
        account = self._account(pl.concat(packets), samples.clear() if gaps.is_empty() else gaps)
        lost = self._lacking()
        samples = samples.with_columns(pl.lit(None, pl.Null).alias(name) for name in lost)
        tables = {
            "tcp_samples": samples,
            "tcp_flows": self._flows(flows),
            "tcp_account": account,
            "tcp_gaps": _gaps(gaps, samples),
            "tcp_private": self._private(samples),
        }
        blocks = pl.lit(self.block, pl.Int32).alias("block")
        return Truth(self, flows, {name: _declared(one.with_columns(blocks), name) for name, one in tables.items()})

    def write(self, path: Path, who: str = "tcplog") -> Truth:
        """The folder of `tcplog run --out`: header, footer and records."""
        truth = self.make()
        path.mkdir(parents=True, exist_ok=True)
        (path / "header.json").write_text(json.dumps(self._header(truth)))
        if self.ended:
            (path / "footer.json").write_text(json.dumps(self._footer(truth)))
        truth.write_records(path / "records", who)
        return truth

    def _wanted(self) -> pl.Expr:
        """Which samples are to be logged, were there room."""
        of_packet = pl.col("point").is_in(PACKET_POINTS)
        logged = of_packet & (pl.col("packet") % self.ppl == 0)
        return {"pre": logged, "post": ~of_packet, "both": logged | ~of_packet}[self.points]

    def _numbered(self, samples: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The records in the order in which rings are drained, numbered on their CPUs; and those without room."""
        number = (pl.int_range(pl.len(), dtype=pl.Int64).over("cpu")).alias("number")
        samples = samples.sort("time_ns", maintain_order=True).with_columns(number)
        samples = samples.sort(pl.col("time_ns") // 10_000_000, "cpu", "number")
        if not self.gap_every:
            return samples, samples.clear()
        place = pl.col("number") % self.gap_every
        # No gap at the very end of a row of numbers: no record would tell of it.
        last = pl.col("number").max().over("cpu")
        full = (place < self.gap_records) & (pl.col("number") >= self.gap_every) & (pl.col("number") < last)
        return samples.filter(~full), samples.filter(full)

    def _account(self, packets: pl.DataFrame, full: pl.DataFrame) -> pl.DataFrame:
        """The law's two sides: of each flow, and of all."""
        disposition = pl.when(pl.col("packet") % self.ppl == 0).then(pl.lit("logged")).otherwise(pl.lit("decimated"))
        if self.points == "post":
            disposition = pl.lit("decimated")
        keys = full.select("flow", "packet", pl.lit(1).alias("full")).drop_nulls()
        packets = packets.join(keys, on=["flow", "packet"], how="left")
        disposition = pl.when(pl.col("full") == 1).then(pl.lit("full")).otherwise(disposition)
        packets = packets.select(
            "flow", pl.col("point").alias("direction"), disposition.alias("disposition"), "segments"
        )
        sums = (pl.len().cast(pl.Int64).alias("packets"), pl.col("segments").cast(pl.Int64).sum())
        seen = packets.with_columns(pl.lit("seen").alias("disposition"))
        met = pl.concat([packets, seen]).group_by("flow", "direction", "disposition").agg(sums)
        flows = packets.select("flow").unique()
        every = flows.join(pl.DataFrame({"direction": PACKET_POINTS}), how="cross")
        every = every.join(pl.DataFrame({"disposition": DISPOSITIONS[:8]}), how="cross")
        of_flows = every.join(met, on=["flow", "direction", "disposition"], how="left").fill_null(0)
        total = of_flows.group_by("direction", "disposition").agg(pl.col("packets", "segments").sum())
        more = [
            {"direction": way, "disposition": disposition, "packets": count // 2, "segments": count // 2}
            for name, count in self.skipped.items()
            for disposition in (name, "seen")
            for way in PACKET_POINTS
        ]
        more += [
            {"direction": way, "disposition": disposition, "packets": 0, "segments": 0}
            for way in PACKET_POINTS
            for disposition in DISPOSITIONS
        ]
        total = pl.concat([total, pl.DataFrame(more).select(total.columns)]).group_by("direction", "disposition").sum()
        total = total.with_columns(pl.lit(None, pl.Int32).alias("flow")).select(of_flows.columns)
        return pl.concat([of_flows, total]).sort("flow", "direction", "disposition", nulls_last=True)

    def _flows(self, truths: list[FlowTruth]) -> pl.DataFrame:
        rows = [
            {
                "flow": number,
                "socket_cookie": 4096 + number,
                "netns_cookie": 1,
                "cgroup": 77,
                "process": 1000 + number,
                "command": flow.command,
                "local_address": flow.local_address,
                "local_port": flow.local_port + (number - 1) * flow.step,
                "remote_address": flow.remote_address,
                "remote_port": flow.remote_port,
                "algorithm": flow.algorithm,
                "first_ns": truth.packet_ns[0],
                "last_ns": truth.packet_ns[-1],
                "ended_ns": truth.packet_ns[-1] + 1000 if flow.closed else None,
                "wanted": True,
            }
            for number, (flow, truth) in enumerate(zip(self.flows, truths, strict=True), start=1)
        ]
        return pl.DataFrame(rows, schema_overrides={"ended_ns": pl.Int64}, infer_schema_length=None)

    def _private(self, samples: pl.DataFrame) -> pl.DataFrame:
        """CUBIC's last maximum and epoch start, or Reno's nothing, with every n-th sample."""
        chosen = samples.gather_every(self.private_every) if self.private_every else samples.clear()
        names = {number: flow.algorithm for number, flow in enumerate(self.flows, start=1)}
        algorithm = pl.col("flow").replace_strict(names, return_dtype=pl.String).alias("algorithm")
        rows = chosen.select("flow", "cpu", "number", "time_ns", algorithm, "prior_cwnd")
        fields = {"last_max_cwnd": pl.col("prior_cwnd"), "cnt": pl.lit(20)}
        columns = pl.col("flow", "cpu", "number", "time_ns", "algorithm")
        return pl.concat(
            rows.select(columns, pl.lit(name).alias("field"), value.cast(pl.Int64).alias("value"))
            for name, value in fields.items()
        ).sort("time_ns", "flow", "field")

    def _lacking(self) -> list[str]:
        """The columns that are null in every row."""
        return [name for name in STATE if name in self.absent or (self.fields and name not in self.fields)]

    def _header(self, truth: Truth) -> dict[str, Any]:
        at = START - TAI_MINUS_UTC_S * 1_000_000_000
        absent = self._lacking()
        return {
            "tcplog": 1,
            "started": datetime.fromtimestamp(at // 1_000_000_000, UTC).isoformat(),
            "enable_time_secs": at // 1_000_000_000,
            "enable_time_usecs": at // 1000 % 1_000_000,
            "kernel": "6.18.0",
            "machine": "x86_64",
            "hostname": "made-up",
            "hz": 250,
            "clock": "TAI",
            "tai_minus_utc_s": TAI_MINUS_UTC_S,
            "tai_minus_monotonic_ns": START - 5_000_000_000_000,
            "fields": [name for name in STATE if name not in absent],
            "absent": absent,
            "unasked": [name for name in absent if name not in self.absent],
            "tcp_flag_names": FLAG_NAMES,
            "options": {
                "ppl": self.ppl,
                "ppl_by": "packet",
                "sample": self.points,
                "fields": list(self.fields) or ["all"],
            },
            "attach": "/sys/fs/cgroup",
            "programs": ["tcplog_in", "tcplog_out"],
            "instrument": "0.0.0",
            "command": None,
        }

    def _footer(self, truth: Truth) -> dict[str, Any]:
        account = truth.tables["tcp_account"].filter(pl.col("flow").is_null())
        totals: dict[str, Any] = {"segments": {}}
        for way in PACKET_POINTS:
            of_way = account.filter(pl.col("direction") == way)
            totals[way] = dict(of_way.select("disposition", "packets").iter_rows())
            totals["segments"][way] = dict(of_way.select("disposition", "segments").iter_rows())
        end = max(one.packet_ns[-1] for one in truth.flows) - TAI_MINUS_UTC_S * 1_000_000_000
        records = truth.tables["tcp_samples"]
        flows = truth.tables["tcp_flows"].select("local_address", "local_port", "remote_address", "remote_port")
        return {
            "ended": datetime.fromtimestamp(end // 1_000_000_000, UTC).isoformat(),
            "disable_time_secs": int(end // 1_000_000_000),
            "disable_time_usecs": int(end // 1000 % 1_000_000),
            "why": "command ended",
            "totals": totals,
            "events": records.filter(~pl.col("point").is_in(PACKET_POINTS)).height,
            "events_full": int(truth.tables["tcp_gaps"]["missing"].sum())
            - int(totals["in"]["full"] + totals["out"]["full"]),
            "gaps": truth.tables["tcp_gaps"].height,
            "flows": len(self.flows),
            "records": records.height,
            "logger_cpu_s": 0.1,
            "duration_s": (end - START) / 1e9,
            "command_status": 0,
            "conserved": True,
            "flow_list": [f"{a};{b}-{c};{d}" for a, b, c, d in flows.iter_rows()],
        }


@dataclass
class Truth:
    """What was true of each flow, and the tables as they were written."""

    log: Log
    flows: list[FlowTruth]
    tables: dict[str, pl.DataFrame]

    @property
    def samples(self) -> pl.DataFrame:
        """What was logged."""
        return self.tables["tcp_samples"]

    def packets(self, direction: str, disposition: str, flow: int | None = None) -> int:
        """How many packets met a disposition."""
        account = self.tables["tcp_account"].filter(
            pl.col("direction") == direction, pl.col("disposition") == disposition
        )
        of_flow = pl.col("flow").is_null() if flow is None else pl.col("flow") == flow
        return int(account.filter(of_flow)["packets"].sum())

    def write_records(self, records: Path, who: str = "tcplog") -> None:
        """The tables alone, as in a run folder."""
        records.mkdir(parents=True, exist_ok=True)
        for name, frame in self.tables.items():
            write_table(records / f"{name}-{who}-000.arrow", name, frame)


def write_table(path: Path, name: str, frame: pl.DataFrame) -> None:
    """An Arrow stream as the instrument writes it: dictionaries, batches, units and clocks."""
    fields = []
    for one in TABLES[name].values():
        said = {"unit": one.unit, "clock": one.clock, "source": one.source}
        metadata: dict[str | bytes, str | bytes] = {key: value for key, value in said.items() if value is not None}
        fields.append(pa.field(one.name, KINDS[one.type.lower()], nullable=one.nullable, metadata=metadata))
    origin: dict[str | bytes, str | bytes] = {"schema": f"sojourn.{name}", "instrument": "0.0.0", "profile": "release"}
    schema = pa.schema(fields, metadata=origin)
    plain = frame.to_arrow()
    columns = [_encoded(plain.column(one.name), one.type) for one in fields]
    table = pa.Table.from_arrays(columns, schema=schema)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        stream.write_table(table, max_chunksize=BATCH_ROWS)


def _encoded(column: pa.ChunkedArray[Any], kind: pa.DataType) -> pa.Array[Any]:
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if not pa.types.is_dictionary(kind):
        return array.cast(kind)
    plain = array.cast(pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(plain.indices.cast(pa.int8()), plain.dictionary)


def _declared(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """The declared columns alone, as their types; what a frame lacks is null."""
    kinds = {"bool": pl.Boolean, "int32": pl.Int32, "int64": pl.Int64, "float64": pl.Float64}
    return frame.select(
        (pl.col(one.name) if one.name in frame.columns else pl.lit(None).alias(one.name)).cast(
            kinds.get(one.type.lower(), pl.String)
        )
        for one in TABLES[name].values()
    )


def _gaps(full: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """A row for each run of numbers that is missing on a CPU, with the records on both sides."""
    schema = {"cpu": pl.Int32, "number": pl.Int64, "missing": pl.Int64, "after_ns": pl.Int64, "before_ns": pl.Int64}
    rows: list[dict[str, Any]] = []
    for (cpu,), of_cpu in full.sort("cpu", "number").group_by("cpu", maintain_order=True):
        numbers = of_cpu["number"].to_numpy()
        there = samples.filter(pl.col("cpu") == cpu).sort("number")
        kept, times = there["number"].to_numpy(), there["time_ns"].to_numpy()
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            place = int(np.searchsorted(kept, run[0]))
            after = int(times[place - 1]) if place else None
            before = int(times[place]) if place < len(times) else None
            found = {"cpu": cpu, "number": int(run[0]), "missing": len(run), "after_ns": after, "before_ns": before}
            rows.append(found)
    return pl.DataFrame(rows, schema=schema)
