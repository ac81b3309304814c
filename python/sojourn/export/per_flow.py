"""A log as a folder with a file for each flow, and a list of them: `flows.csv`.

CSV and JSON lines are divided in one pass, with one file open at a time, however many flows there are; of the other
formats, which have a beginning and an end of their own, the log is read once for each flow. The folder is made whole,
or not at all. A flow's hash is made of its ends alone: it is the same in every log, and at both ends of a connection.
"""

from __future__ import annotations

import hashlib
import ipaddress
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.errors import RequestError
from sojourn.export import tables
from sojourn.export.log import TcpLog
from sojourn.export.output import Told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

    from sojourn.export.convert import Request

    Write = Callable[[Request, TcpLog, BinaryIO, Told], None]

ENDS = ("local_address", "local_port", "remote_address", "remote_port")
DIVIDED = {"csv": tables.csv_rows, "jsonl": tables.json_rows}
LIST = "flows.csv"
COLUMNS = ("file", "flow", "flow_hash", *ENDS, "records")


def convert_per_flow(request: Request, folder: Path, suffix: str, write: Write) -> Told:
    """Write the folder; it must not be there yet. Flows of which nothing is left by the request have no file."""
    if folder.exists() or folder.is_symlink():
        raise RequestError(f"{folder} is there already: --per-flow makes a new folder")
    if not folder.parent.is_dir():
        raise RequestError(f"{folder.parent} is no folder: make it, or name another place with --per-flow")
    log = TcpLog.open(request.log, request.chosen)
    flows = {int(one["flow"]): one for one in log.logged_flows.select("flow", *ENDS).sort("flow").iter_rows(named=True)}
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name[:200]}.", dir=folder.parent))
    try:
        names = {flow: draft / _name(ends, suffix) for flow, ends in flows.items()}
        counts = _divide(request, log, names) if request.to in DIVIDED else _each(request, names, write)
        if not counts:
            raise RequestError(f"{log.nothing_logged()}" if not flows else f"nothing of {request.log} is left to write")
        rows = [_row(flows[flow], names[flow].name, count) for flow, count in sorted(counts.items())]
        (draft / LIST).write_bytes(pl.DataFrame(rows).select(*COLUMNS).write_csv().encode())
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    told = Told(str(folder), sum(counts.values()), cut=bool(log.cut))
    told.sentences.append(f"{len(counts)} flows, a file each; {folder / LIST} lists them")
    if log.cut:
        told.sentences.append(f"{', '.join(log.cut)} ends before its end: what lay before the cut was converted")
    return told


def flow_hash(ends: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits of a connection: of its addresses and ports, whichever end is asked."""
    sides = [
        ipaddress.ip_address(ends[f"{side}_address"]).packed + int(ends[f"{side}_port"]).to_bytes(2, "big")
        for side in ("local", "remote")
    ]
    return hashlib.sha256(b"".join(sorted(sides))).hexdigest()[:8]


def _name(ends: Mapping[str, Any], suffix: str) -> str:
    """As `flow-000001-10.0.0.1-40000-10.0.0.2-5201.csv`; no colon, which other systems' names cannot have."""
    spelled = "-".join(str(ends[name]).replace(":", "_") for name in ENDS)
    return f"flow-{ends['flow']:06d}-{spelled}{suffix}"


def _row(ends: Mapping[str, Any], name: str, records: int) -> dict[str, Any]:
    return {**ends, "file": name, "flow_hash": flow_hash(ends), "records": records}


def _divide(request: Request, log: TcpLog, names: Mapping[int, Path]) -> dict[int, int]:
    """All flows in one pass over the log: samples of each, in the order of time."""
    write = DIVIDED[request.to]
    counts: dict[int, int] = {}
    for samples in tables.named(log):
        for (flow,), rows in samples.group_by("flow", maintain_order=True):
            number = int(str(flow))
            with names[number].open("ab") as file:
                if number not in counts and request.to == "csv":
                    file.write(tables.CSV_HEAD)
                write(rows, file)
            counts[number] = counts.get(number, 0) + rows.height
    return counts


def _each(request: Request, names: Mapping[int, Path], write: Write) -> dict[int, int]:
    """The log read once for each flow."""
    counts: dict[int, int] = {}
    for flow, path in names.items():
        chosen = replace(request.chosen, flows=frozenset({flow}))
        told = Told(str(path))
        with path.open("wb") as file:
            write(replace(request, chosen=chosen, output=path), TcpLog.open(request.log, chosen), file, told)
        if told.records:
            counts[flow] = told.records
        else:
            path.unlink()
    return counts
