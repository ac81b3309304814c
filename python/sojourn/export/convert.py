"""One log, one format, one file: the table of formats, and the conversion itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.errors import RequestError, did_you_mean
from sojourn.export.log import Chosen, TcpLog
from sojourn.export.output import Told, refuse_existing, writing

if TYPE_CHECKING:
    from typing import BinaryIO

FORMATS = {
    "siftr": "siftr.log",
    "siftr-1.2": "siftr-1.2.log",
    "csv": "tcplog.csv",
    "parquet": "tcplog.parquet",
    "jsonl": "tcplog.jsonl",
    "qlog": "tcplog.qlog",
    "pcapng": "tcplog.pcapng",
}
"""Every format, and the default name of its file in the log's folder."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request: the log, the format, and the output (`-`: standard output; default: in the log's folder)."""

    log: Path
    to: str
    output: Path | None = None
    chosen: Chosen = field(default_factory=Chosen)
    capture: Path | None = None
    all_states: bool = False
    force: bool = False
    per_flow: Path | None = None
    """A new folder with one file per flow, instead of `output`."""
    flow_hashes: bool = False
    """For siftr: the flow's id is a hash instead of its number."""


def convert(request: Request) -> Told:
    """Convert the log; write nothing where the request is wrong."""
    if request.to not in FORMATS:
        meant = did_you_mean(request.to, FORMATS)
        raise RequestError(f"no format is named {request.to}: there are {', '.join(FORMATS)}{meant}")
    if (request.to == "pcapng") != (request.capture is not None):
        raise RequestError(
            "--to pcapng needs --capture FILE, the packets that are to be commented, and no other format"
        )
    if request.flow_hashes and request.to != "siftr":
        raise RequestError("--genhashes needs --to siftr: no other format has a field for the hash of a flow")
    if request.per_flow is not None:
        return _per_flow(request, request.per_flow)
    log = TcpLog.open(request.log, request.chosen)
    path = request.output or request.log / FORMATS[request.to]
    place = None if path == Path("-") else path
    refuse_existing(place, force=request.force)
    told = Told("standard output" if place is None else str(place))
    with writing(place) as file:
        _write(request, log, file, told)
        if not told.records and not log.cut:
            raise RequestError(_nothing(request, log, told))
    told.cut = bool(log.cut)
    if log.cut:
        told.sentences.append(f"{', '.join(log.cut)} ends before its end: what lay before the cut was converted")
    return told


def _per_flow(request: Request, folder: Path) -> Told:
    """Convert to one file per flow."""
    from sojourn.export.per_flow import convert_per_flow

    if request.output is not None or request.capture is not None:
        raise RequestError("--per-flow names the folder of all files: leave out -o and --capture")
    if request.force:
        raise RequestError("--per-flow makes a new folder and replaces none: leave out --force")
    return convert_per_flow(request, folder, Path(FORMATS[request.to]).suffix, _write)


def _nothing(request: Request, log: TcpLog, told: Told) -> str:
    """Return why a complete log gave no record."""
    chosen = request.chosen
    if not any(
        frame.height for frame in TcpLog.open(request.log, Chosen(who=chosen.who, block=chosen.block)).batches()
    ):
        return log.nothing_logged()
    asked = {"--flow": chosen.flows, "--since": chosen.since_ns, "--until": chosen.until_ns}
    options = " and ".join(option for option, value in asked.items() if value is not None)
    why = "; ".join([f"nothing of it is left by {options}"] * bool(options) + told.sentences)
    return f"no record of {request.log} can be written{': ' * bool(why)}{why}"


def _write(request: Request, log: TcpLog, file: BinaryIO, told: Told) -> None:
    """Write the requested format; its module is imported only then."""
    if request.to.startswith("siftr"):
        from sojourn.export.siftr import Version, write_siftr

        name = "1.2.3" if request.to == "siftr-1.2" else "1.3.0"
        version = Version(name, established_only=not request.all_states, has_hashes=request.flow_hashes)
        write_siftr(log, file, told, version)
    elif request.to == "qlog":
        from sojourn.export.qlog import write_qlog

        write_qlog(log, file, told, sequence=Path(request.output or "").suffix == ".sqlog")
    elif request.capture is not None:
        from sojourn.export.comments import write_comments

        write_comments(log, request.capture, file, told)
    else:
        from sojourn.export import tables

        write = {"csv": tables.write_csv, "jsonl": tables.write_json_lines, "parquet": tables.write_parquet}
        write[request.to](log, file, told)
