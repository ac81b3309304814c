"""`tcplog summary`: one log, or two side by side, as text, JSON lines, CSV or Parquet."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.errors import RequestError
from sojourn.export.log import Chosen, TcpLog
from sojourn.export.output import refuse_existing, writing
from sojourn.export.summary import summarised
from sojourn.export.summary_pairs import compared, paired
from sojourn.export.summary_text import described, tabulated

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl


@dataclass(frozen=True, slots=True)
class Asked:
    """The request."""

    log: Path
    other: Path | None
    flows: frozenset[int] | None
    block: int | None
    who: str | None
    form: str
    """text, json or csv."""
    output: Path | None
    force: bool


def summarise(asked: Asked) -> tuple[str, list[str]]:
    """Write the summary, if a file is asked for; return what is to be printed, and the truncated files."""
    if asked.output is not None:
        if asked.output.suffix != ".parquet":
            raise RequestError(f"--output {asked.output}: expected a file that ends in .parquet")
        refuse_existing(asked.output, force=asked.force)
    if asked.output is not None and asked.form != "text":
        raise RequestError(f"--output and --{asked.form}: choose one of them")
    chosen = Chosen(asked.flows, who=asked.who, block=asked.block)
    logs = [TcpLog.open(path, chosen) for path in (asked.log, asked.other) if path is not None]
    found = [_rows(log) for log in logs]
    rows = found[0] if len(logs) == 1 else paired(*found)
    if asked.output is not None:
        octets = io.BytesIO()
        rows.write_parquet(octets)  # in memory: polars does not tell of a full disk
        with writing(asked.output) as file:
            file.write(octets.getbuffer())
        said = f"{asked.output}\n"
    elif asked.form == "text":
        text = compared(*found) if len(logs) > 1 else (described if asked.flows else tabulated)(rows, logs[0])
        said = text + "\n"
    else:
        said = rows.write_ndjson() if asked.form == "json" else rows.write_csv()
    return said, [str(log.records / name) for log in logs for name in log.cut]


def _rows(log: TcpLog) -> pl.DataFrame:
    rows = summarised(log)
    if rows.is_empty() and not log.cut:
        raise RequestError(log.nothing_logged())
    return rows
