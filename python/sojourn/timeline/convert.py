"""`sojourn timeline`: write the joined path of each segment for other tools; report what could not be joined."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from sojourn.errors import RequestError, did_you_mean
from sojourn.export.log import NEVER_NS, Chosen
from sojourn.export.output import Told, refuse_existing, writing
from sojourn.timeline.comments import write_commented
from sojourn.timeline.diagram import write_page
from sojourn.timeline.perfetto import write_trace
from sojourn.timeline.qlog import write_joined_qlog
from sojourn.timeline.segments import joined
from sojourn.timeline.source import between, connections, emulated, open_flow, opened
from sojourn.timeline.tables import write_csv, write_parquet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.timeline.perfetto import Joined
    from sojourn.timeline.segments import Account
    from sojourn.timeline.source import Flow

FORMATS = {
    "html": "timeline.html",
    "perfetto": "timeline.json",
    "csv": "timeline.csv",
    "parquet": "timeline.parquet",
    "qlog": "timeline.qlog",
    "pcapng": "timeline.pcapng",
}
"""Every format, and the default name of its file in RUN."""

MOST_FLOWS = 50


@dataclass(frozen=True, slots=True)
class Request:
    """A request: the run, its flows, the format, and the output file (`-`: standard output)."""

    run: Path
    to: str
    output: Path | None = None
    flows: Sequence[int] = ()
    chosen: Chosen = field(default_factory=Chosen)
    more: Sequence[Path] = ()
    force: bool = False


def write_timeline(request: Request) -> Told:
    """Join and write the flows; write nothing where the request is wrong."""
    if request.to not in FORMATS:
        meant = did_you_mean(request.to, FORMATS)
        raise RequestError(f"no format is named {request.to}: there are {', '.join(FORMATS)}{meant}")
    path = request.output or request.run / FORMATS[request.to]
    place = None if path == Path("-") else path
    refuse_existing(place, force=request.force)
    flows = _flows(request)
    passed = emulated([request.run, *request.more], request.chosen.block)
    several = [open_flow(request.run, one, request.chosen, request.more, passed) for one in flows]
    ways = [_cut_out(flow, request.chosen) for flow in several]
    told = Told("standard output" if place is None else str(place))
    then = " in that time" if request.chosen.in_time else ""
    if not any(segments.height for _, segments, _ in ways):
        whose = "these flows" if len(ways) > 1 else "this flow"
        raise RequestError(f"{request.run} has no packet with data of {whose}{then}")
    with writing(place) as file:
        told.records = _written(request, ways, file)
    for flow, _, account in ways:
        told.sentences += [f"flow {flow.sender.flow}: {one}" for one in account.sentences()]
    cut = dict.fromkeys(name for flow in several for name in flow.cut)
    told.sentences += [f"{name} ends before its end: what lay before was joined" for name in cut]
    told.cut = bool(cut)
    return told


def _written(request: Request, ways: list[Joined], file: BinaryIO) -> int:
    """Write the requested format; return the number of segments written."""
    folders = [request.run, *request.more]
    if request.to == "html":
        return write_page(ways, file, request.run.resolve().name, folders, request.chosen.block)
    if request.to == "pcapng":
        return write_commented(ways, file, folders, request.chosen.block)
    if request.to in {"perfetto", "qlog"}:
        return {"perfetto": write_trace, "qlog": write_joined_qlog}[request.to](ways, file)
    return {"csv": write_csv, "parquet": write_parquet}[request.to](ways, file)


def _cut_out(flow: Flow, chosen: Chosen) -> tuple[Flow, pl.DataFrame, Account]:
    """Join the whole flow and keep the segments sent in the requested span; the accounting is of the whole flow."""
    segments, account = joined(flow)
    if not chosen.in_time:
        return flow, segments, account
    start = flow.sender.log.start_ns
    since = start + (chosen.since_ns or 0)
    until = NEVER_NS if chosen.until_ns is None else start + chosen.until_ns
    wanted = segments.filter(pl.col("sent_ns") >= since, pl.col("sent_ns") < until)
    return between(flow, since, until), wanted, account


def _flows(request: Request) -> list[int]:
    """Return the requested flows, or else all connections, one flow number each."""
    if request.flows:
        return list(dict.fromkeys(request.flows))
    log = opened(request.run, request.chosen)
    found = connections(log.logged_flows)
    if not found:
        raise RequestError(log.nothing_logged())
    if len(found) > MOST_FLOWS:
        raise RequestError(
            f"{request.run} has {len(found)} connections: name some with --flow "
            f"(`sojourn tcplog summary {request.run}`)"
        )
    return found
