"""Pack columns of integers into few octets, for a page that contains its data.

A column is its least value and each row's offset from it, plus one; 0 is null. Offsets are written octet plane by octet
plane (all lowest octets first), which compresses well. All planes of a block are compressed with zlib, in base64. A
column whose steps have the smaller range is written as its steps. templates/diagram_data.js reads the format.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 1 << 53
"""The limit of the integers that a JavaScript number holds exactly."""


@dataclass(frozen=True, slots=True)
class Block:
    """Packed rows: the header for their reader, and the base64 text."""

    head: dict[str, Any]
    text: str


def pack(rows: pl.DataFrame) -> Block:
    """Pack columns of integers and booleans; each value's size is below 2^53."""
    heads, planes = [], []
    for column in rows.cast(pl.Int64):
        head, octets = _column(column)
        heads.append(head)
        planes.append(octets)
    text = base64.b64encode(zlib.compress(b"".join(planes), 6)).decode()
    return Block({"rows": rows.height, "columns": heads}, text)


def _column(column: pl.Series) -> tuple[dict[str, Any], bytes]:
    values = column.fill_null(0).to_numpy()
    known = column.is_not_null().to_numpy()
    head: dict[str, Any] = {"name": column.name}
    if len(values) > 1 and known.all():
        steps = np.diff(values)
        if np.ptp(steps) < np.ptp(values):
            head["first"] = int(values[0])
            values, known = np.concatenate([steps[:1], steps]), np.ones(len(values), bool)
    base = int(values[known].min()) if known.any() else 0
    above = np.where(known, values - base + 1, 0)
    count = _octets(int(above.max()) if len(above) else 0)
    return head | {"base": base, "planes": count}, _planes(above, count)


def _octets(largest: int) -> int:
    if largest >= LARGEST:
        raise ValueError(f"{largest} is no number that a page can hold exactly")
    return (largest.bit_length() + 7) // 8


def _planes(values: NDArray[np.int64], count: int) -> bytes:
    octets = values.astype("<u8").view(np.uint8).reshape(len(values), 8)
    return np.ascontiguousarray(octets[:, :count].T).tobytes()


def unpack(block: Block) -> pl.DataFrame:
    """Return the columns of a block: the page's decoder, in Python."""
    octets = np.frombuffer(zlib.decompress(base64.b64decode(block.text)), np.uint8)
    rows, at, columns = block.head["rows"], 0, []
    for head in block.head["columns"]:
        above = np.zeros(rows, np.int64)
        for place in range(head["planes"]):
            above += octets[at : at + rows].astype(np.int64) << (8 * place)
            at += rows
        values = above + head["base"] - 1
        if "first" in head:
            values[0] = head["first"]
            columns.append(pl.Series(head["name"], np.cumsum(values)))
        else:
            found = pl.Series(head["name"], values)
            columns.append(found.to_frame().select(pl.when(pl.Series(above > 0)).then(found.name)).to_series())
    return pl.DataFrame(columns)
