"""Samples as tables: CSV, JSON lines and Parquet. Every column has its name in the record schema; a flow's endpoints
and the names of states are added.

An absent value is empty in CSV, null elsewhere. Times stay integers of nanoseconds on the log's clock. Parquet is
sorted by flow and time within each group of rows, because a flow's values change little from packet to packet.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sojourn.export.names import RECOVERY, STATES
from sojourn.export.output import write_text
from sojourn.records import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.export.log import TcpLog
    from sojourn.export.output import Told

GROUP_ROWS = 1 << 18
COMPRESSION_LEVEL = 6
FLOATS = [one.name for one in TABLES["tcp_samples"].values() if one.type == "float64"]
TEXTS = [one.name for one in TABLES["tcp_samples"].values() if one.type == "utf8-dictionary"]
ENDS = {
    "local_address": pa.string(),
    "local_port": pa.int32(),
    "remote_address": pa.string(),
    "remote_port": pa.int32(),
    "algorithm": pa.string(),
}
NAMES = {"state_name": ("state", STATES), "ca_state_name": ("ca_state", RECOVERY)}
"""Columns of names: the column that they translate, and the names."""

ADDED = ENDS | dict.fromkeys(NAMES, pa.string())
CSV_HEAD = (",".join([*TABLES["tcp_samples"], *ADDED]) + "\n").encode()
KINDS = {"int32": pa.int32(), "int64": pa.int64(), "float64": pa.float64(), "utf8-dictionary": pa.string()}


def write_csv(log: TcpLog, file: BinaryIO, told: Told) -> None:
    """Write a line with the names, then one line per sample; floats are exact."""
    file.write(CSV_HEAD)
    for samples in named(log):
        csv_rows(samples, file)
        told.records += samples.height


def write_json_lines(log: TcpLog, file: BinaryIO, told: Told) -> None:
    """Write one object per line."""
    for samples in named(log):
        json_rows(samples, file)
        told.records += samples.height


def csv_rows(samples: pl.DataFrame, file: BinaryIO) -> None:
    """Write one line per sample, after CSV_HEAD."""
    write_text(samples, file)


def json_rows(samples: pl.DataFrame, file: BinaryIO) -> None:
    """Write one object per line."""
    octets = io.BytesIO()
    samples.write_ndjson(octets)
    file.write(octets.getbuffer())


def write_parquet(log: TcpLog, file: BinaryIO, told: Told) -> None:
    """Write one file; its metadata have the log's header, footer and flows under `sojourn.…`."""
    fields = [*map(_field, TABLES["tcp_samples"]), *(pa.field(name, kind) for name, kind in ADDED.items())]
    schema = pa.schema(fields, metadata=_metadata(log))
    writer = pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=[*TEXTS, *ADDED],  # type: ignore[arg-type] # names of columns, says its documentation
        column_encoding=_encodings(),
        write_statistics=["time_ns", "flow", "block"],
        data_page_size=1 << 20,
    )
    with writer:
        for samples in _groups(log):
            table = samples.sort("block", "flow", "time_ns", maintain_order=True).to_arrow()
            writer.write_table(table.cast(schema), row_group_size=GROUP_ROWS)
            told.records += samples.height


def named(log: TcpLog) -> Iterator[pl.DataFrame]:
    """Return samples in the order of time, with the endpoints of their flows and the names of their states."""
    ends = log.flows.select("flow", *ENDS)
    names = [
        pl.col(column).replace_strict(known, default=None, return_dtype=pl.String).alias(name)
        for name, (column, known) in NAMES.items()
    ]
    for samples in log.in_order():
        yield samples.join(ends, on="flow", how="left", maintain_order="left").with_columns(names)


def _groups(log: TcpLog) -> Iterator[pl.DataFrame]:
    """Return samples in large groups: larger ones compress better."""
    held: list[pl.DataFrame] = []
    for samples in named(log):
        held.append(samples)
        if sum(one.height for one in held) >= GROUP_ROWS:
            joined = pl.concat(held)
            yield joined.head(GROUP_ROWS)
            held = [joined.slice(GROUP_ROWS)]
    yield pl.concat(held) if held else pl.DataFrame(schema=dict.fromkeys([*TABLES["tcp_samples"], *ADDED], pl.Null))


def _field(name: str) -> pa.Field[Any]:
    field = TABLES["tcp_samples"][name]
    said: dict[str | bytes, str | bytes] = {"unit": field.unit}
    return pa.field(name, KINDS[field.type], nullable=field.nullable, metadata=said)


def _encodings() -> dict[str, str]:
    """Return the encodings: differences for integers, byte planes for floats; texts are dictionaries."""
    integers = [one for one in TABLES["tcp_samples"] if one not in {*FLOATS, *TEXTS}]
    return dict.fromkeys(FLOATS, "BYTE_STREAM_SPLIT") | dict.fromkeys(integers, "DELTA_BINARY_PACKED")


def _metadata(log: TcpLog) -> dict[str | bytes, str | bytes]:
    return {
        "sojourn.table": "tcp_samples",
        "sojourn.header": json.dumps(log.header),
        "sojourn.footer": json.dumps(log.footer),
        "sojourn.flows": json.dumps(log.flows.to_dicts()),
    }
