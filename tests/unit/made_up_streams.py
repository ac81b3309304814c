"""Run folders of streams made up to order: whoever tests an analysis gives frames with a known truth.

`write(...)` takes the columns that matter and fills the rest of each declared table with what is harmless.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from sojourn.records import TABLES, RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

KINDS = {"bool": pl.Boolean, "int32": pl.Int32, "int64": pl.Int64, "float64": pl.Float64, "binary": pl.Binary}
HARMLESS: dict[str, Any] = {
    "bool": False, "int32": 0, "int64": 0, "float64": 0.0, "utf8": "", "utf8-dictionary": "kernel",
}  # fmt: skip


def write(
    path: Path,
    plan: str,
    log: Iterable[Mapping[str, Any]],
    tables: Mapping[tuple[str, str], pl.DataFrame],
    bed: Mapping[str, Any] | None = None,
) -> Path:
    """A run folder; `tables` are by (name, who), its frames need only the columns that the test is about."""
    folder = RunFolder(path)
    folder.records.mkdir(parents=True)
    folder.plan.write_text(plan)
    folder.bed.write_text(json.dumps(bed or {}))
    events = [{"event": "started"}, *log, {"event": "finished"}]
    folder.log.write_text("".join(json.dumps(event) + "\n" for event in events))
    for (name, who), frame in tables.items():
        write_table(folder.records / f"{name}-{who}-000.arrow", name, frame)
    return path


def write_table(path: Path, name: str, frame: pl.DataFrame) -> None:
    """One record; the frame needs only the columns that the test is about."""
    columns = []
    for field in TABLES[name].values():
        kind = KINDS.get(field.type.lower(), pl.String)
        if field.name in frame.columns:
            columns.append(pl.col(field.name).cast(kind))
        else:
            filler = None if field.nullable else HARMLESS[field.type.lower()]
            columns.append(pl.lit(filler, dtype=kind).alias(field.name))
    table = frame.select(columns).to_arrow()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


def streams(blocks: Iterable[Mapping[str, Any]], role: str = "send", clock_id: int = 1) -> pl.DataFrame:
    """The `streams` rows of one end: one flow and port a block."""
    rows = [
        {"flow": 1, "port": 0, "purpose": "measure", "role": role, "clock_id": clock_id, "visit": 0, **block}
        for block in blocks
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def trial_event(block: Mapping[str, Any], factors: Mapping[str, Any], **other: Any) -> dict[str, Any]:
    """The log's account of a trial."""
    place = {name: block[name] for name in ("block", "device", "round", "cell")}
    return {
        "event": "stream-trial", "purpose": "measure", "visit": 0, **place, "factors": dict(factors), "kept": True,
        "sent": [], "received": [], **other,
    }  # fmt: skip


def factors(**other: Any) -> dict[str, Any]:
    """The factors of a plain one-way cell."""
    return {
        "engine": "packet", "frame_bytes": 64, "payload_bytes": 46, "schedule": "regular", "rate_pps": 10_000.0,
        "interval_ns": 100_000, "rate_share": None, "to": "unicast", "senders": 1, "receivers": 0, "load": 0.0,
        "load_via": None, "kind": "one-way", **other,
    }  # fmt: skip
