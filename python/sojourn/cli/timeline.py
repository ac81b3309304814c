"""`sojourn why` and `sojourn timeline`: arguments and output; the functions are in `sojourn.timeline`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.tcplog import DOUBTFUL, parsed_time
from sojourn.errors import RequestError

LogOfRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="A log of `sojourn tcplog run`, or a run folder of a study of TCP.")
]
More = Annotated[
    list[Path] | None,
    typer.Option(
        "--records",
        metavar="FOLDER",
        help="More records of the same machine and time: an emulator's --log, the other end's log. May be repeated.",
    ),
]
Block = Annotated[int | None, typer.Option(metavar="N", help="Of a run folder: which trial; by default the first.")]
Who = Annotated[str | None, typer.Option(metavar="HOST", help="Of a run folder: whose log.")]


def why(  # noqa: PLR0913 - one for each option
    run: LogOfRun,
    *,
    at: Annotated[str, typer.Option(metavar="TIME", help="The moment, after the flow's first sample, e.g. 2.4s.")],
    flow: Annotated[
        int | None, typer.Option(metavar="N", help="Which flow; not needed where there is only one.")
    ] = None,
    records: More = None,
    block: Block = None,
    who: Who = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")] = False,
) -> None:
    """Say what limited a flow at a moment, why, and what became of its packets in flight, with the rows that show it.

    Where the records do not suffice, the answer is "inconclusive".

    Example: sojourn why out/t --flow 3 --at 2.4s --records out/emulator
    """
    from sojourn.export.log import Chosen
    from sojourn.timeline.source import first_trial, only_flow
    from sojourn.timeline.why import explain

    after_ns = parsed_time("--at", at)
    if after_ns is None or after_ns < 0:
        raise RequestError(f"--at {at}: expected a time after the flow's first sample, such as 2.4s")
    chosen, which = first_trial(run, Chosen(who=who, block=block))
    tell_which(which)
    answer = explain(run, only_flow(run, chosen) if flow is None else flow, after_ns, chosen, records or [])
    typer.echo(json.dumps(answer.told) if as_json else answer.text)
    tell_cut(answer.cut)


def timeline(  # noqa: PLR0913 - one for each option
    run: LogOfRun,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help=(
                "html (a time-sequence diagram), perfetto (a Chrome trace in JSON), csv, parquet, qlog, or pcapng (a "
                "capture of the run with comments)."
            ),
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE|-", help="Where to; by default a file in RUN. -: standard output."
        ),
    ] = None,
    flow: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="This flow, both its ends; may be given again. By default all, at most 50."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Leave out what was sent before, e.g. 2s after the log's start.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help=("Leave out what was sent at that time or later."))
    ] = None,
    records: More = None,
    block: Block = None,
    who: Who = None,
    force: Annotated[bool, typer.Option("--force", help="Write a file anew that is there already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Also print what was written as JSON.")] = False,
) -> None:
    """Write the path of each data segment: TCP's state when it was built, emulators, the receiver, its ACK.

    What could not be matched is counted on standard error: every segment, packet and sample is in exactly one number.

    Example: sojourn timeline out/t --to html --records out/emulator
    """
    from sojourn.export.log import Chosen
    from sojourn.timeline.convert import Request, write_timeline
    from sojourn.timeline.source import first_trial

    if as_json and str(output) == "-":
        raise RequestError("--json beside -o -: standard output can hold only one of them")
    span = Chosen(None, parsed_time("--since", since), parsed_time("--until", until), who, block)
    chosen, which = first_trial(run, span)
    tell_which(which)
    asked = Request(run, to, output, flow or [], chosen, records or [], force)
    told = write_timeline(asked)
    if as_json:
        print(json.dumps(asdict(told)))
    typer.echo(f"{told.records} segments to {told.where}", err=True)
    for sentence in told.sentences:
        typer.echo(f"note: {sentence}", err=True)
    if told.cut:
        raise typer.Exit(DOUBTFUL)


def tell_which(trial: str) -> None:
    """Say which of several logged trials was chosen."""
    if trial:
        typer.echo(f"note: {trial}", err=True)


def tell_cut(files: tuple[str, ...]) -> None:
    """Name the files without an end marker; exit with status 4 if there are any."""
    for name in files:
        typer.echo(f"note: {name} ends before its end: the answer is of what lay before", err=True)
    if files:
        raise typer.Exit(DOUBTFUL)
