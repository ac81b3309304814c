"""`sojourn tcplog …`: our commands, top, plot and convert, and in the help those of the instrument.

run, receive, status, set, watch, serve and recover are implemented by the instrument, which this process becomes.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.errors import RequestError
from sojourn.units import UNITS_NS, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Callable

DOUBTFUL = 4

app = typer.Typer(
    help="TCP from the inside: log its state at every packet, watch it, plot it, convert it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


LogArgument = Annotated[Path, typer.Argument(metavar="OUT", help="The folder that `tcplog run --out` wrote.")]


@app.callback()
def tcplog() -> None:
    """Log TCP's own state at every packet, watch it live, draw it, convert it."""


def become(name: str, help_: str) -> None:
    """Add a command that the instrument implements, for the list of commands."""

    def run() -> None:
        from sojourn.cli.become import become_instrument

        become_instrument(["tcplog", *sys.argv[2:]])

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    command: Callable[[Callable[[], None]], Callable[[], None]] = app.command(
        name, short_help=help_, help=help_, context_settings=anything, add_help_option=False
    )
    command(run)


become("run", "Log while a command runs, for a time, or until Ctrl-C.")
become("receive", "Receive the log that `tcplog run --export` sends from another host.")
become("status", "The packet accounting of a log: what was logged, and what was not and why.")
become("set", "Change what a running log asks for; switch it on and off.")


@app.command(short_help="A live table of flows.")
def top(  # noqa: PLR0913, PLR0917 - one for each option
    out: Annotated[
        Path | None, typer.Argument(metavar="[OUT]", help="A running log; else this machine.", readable=False)
    ] = None,
    port: Annotated[
        list[str] | None, typer.Option(metavar="P", help="Only flows with this port at either end.")
    ] = None,
    prefix: Annotated[list[str] | None, typer.Option(metavar="CIDR", help="Only flows with such an address.")] = None,
    process: Annotated[str | None, typer.Option(metavar="PID", help="Only this process's flows.")] = None,
    netns: Annotated[str | None, typer.Option(metavar="NAME|PATH|PID", help="Only this network namespace's.")] = None,
    cgroup: Annotated[str | None, typer.Option(metavar="PATH", help="Only flows of this cgroup.")] = None,
    congestion: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only flows of this congestion control.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="How often the table is drawn anew [default: 1s]")
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help="What comes first: out (packets sent), cwnd, retrans, srtt, local, …")
    ] = "out",
    rows: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many flows.")] = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
) -> None:
    """A live table of flows: windows, round trips, rates, retransmissions; Ctrl-C ends it.

    Nothing is logged. A connection is shown from its next packet on, so one without packets is not. Where the
    terminal is narrow, columns are left out, the least important first.
    """
    from sojourn.cli.tcplog_top import View, watch

    view = View(sort, rows)
    lists = {"port": port, "prefix": prefix}
    single = {"process": process, "netns": netns, "cgroup": cgroup, "congestion": congestion}
    asked = [(name, value) for name, values in lists.items() for value in values or []]
    asked += [(name, value) for name, value in single.items() if value is not None]
    # A running log knows its flows already; our own programs see them at their next packets.
    every = interval or ("10ms" if once and out else "1s")
    words = [*([str(out)] if out else []), f"--interval={every}", *(f"--{name}={value}" for name, value in asked)]
    watch(words, view, once=once)


@app.command(short_help="Draw windows, round trips, rates and losses over time.")
def plot(
    out: LogArgument,
    flow: Annotated[list[int] | None, typer.Option(metavar="N", help="This flow; may be given again.")] = None,
    target: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="A .html, .svg or .png [default: OUT/plot.html]"),
    ] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Draw a file anew that is there already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")] = False,
) -> None:
    """Draw windows, round trips and rates over time, with what was retransmitted, lost or skipped marked.

    Of the flows with the most packets, at most six, where --flow names none. For the time-sequence graph of a flow:
    sojourn timeline OUT --to html.
    """
    from sojourn.export.output import refuse_existing
    from sojourn.report.tcplog import FORMS, draw

    into = target or out / "plot.html"
    if into.suffix not in FORMS:
        raise RequestError(f"--output {into}: expected a file that ends in {', '.join(FORMS[:-1])} or {FORMS[-1]}")
    if target is not None and not into.parent.is_dir():
        raise RequestError(f"--output {into}: there is no folder {into.parent}")
    refuse_existing(into, force=force)
    draw(out, into, flow or [])
    print(json.dumps({"file": str(into)}) if as_json else into)


@app.command(short_help="Write a log as SIFTR, CSV, Parquet, JSON lines, qlog or pcapng.")
def convert(  # noqa: PLR0913 - one for each option
    log: LogArgument,
    *,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="siftr, siftr-1.2, csv, parquet, jsonl, qlog or pcapng.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE|-", help="Where to; by default a file in OUT. -: standard output."
        ),
    ] = None,
    flow: Annotated[list[int] | None, typer.Option(metavar="N", help="Only this flow; may be given again.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Leave out what was before, e.g. 2s after the log's start.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Leave out what was at that time or later.")] = None,
    capture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With pcapng: the packets, as tcpdump saved them.")
    ] = None,
    per_flow: Annotated[
        Path | None,
        typer.Option("--per-flow", metavar="FOLDER", help="Make this folder: a file a flow, and flows.csv lists them."),
    ] = None,
    all_states: Annotated[
        bool, typer.Option("--all-states", help="With siftr: also packets before a connection was established.")
    ] = False,
    genhashes: Annotated[
        bool,
        typer.Option("--genhashes", help="With siftr: a hash of the connection's ends as flow id, not its number."),
    ] = False,
    block: Annotated[int | None, typer.Option(metavar="N", help="Of a run folder: which trial.")] = None,
    who: Annotated[str | None, typer.Option(metavar="HOST", help="Of a run folder: whose log.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write a file anew that is there already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON, not for people.")] = False,
) -> None:
    """Write a log of TCP's state in a format that others read.

    Example: sojourn tcplog convert out/t --to siftr -o - | head
    """
    from sojourn.export import Chosen, Request
    from sojourn.export import convert as convert_log

    if as_json and str(output) == "-":
        raise RequestError("--json beside -o -: standard output can hold only one of them")
    flows = frozenset(flow) if flow else None
    chosen = Chosen(flows, parsed_time("--since", since), parsed_time("--until", until), who, block)
    told = convert_log(Request(log, to, output, chosen, capture, all_states, force, per_flow, genhashes))
    if as_json:
        print(json.dumps(asdict(told)))
    for line in [f"{told.records} records to {told.where}", *(f"note: {one}" for one in told.sentences)]:
        typer.echo(line, err=True)
    if told.cut:
        raise typer.Exit(DOUBTFUL)


@app.command(short_help="Each flow: bytes, goodput, retransmissions, RTT, what limited it.")
def summary(  # noqa: PLR0913 - one for each option
    log: LogArgument,
    other: Annotated[
        Path | None, typer.Argument(metavar="[OUT2]", help="A second log: flows are compared in pairs.")
    ] = None,
    *,
    flow: Annotated[list[int] | None, typer.Option(metavar="N", help="This flow in full; may be given again.")] = None,
    block: Annotated[int | None, typer.Option(metavar="N", help="Of a run folder: which trial.")] = None,
    who: Annotated[str | None, typer.Option(metavar="HOST", help="Of a run folder: whose log.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a flow, or a pair of flows.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line a flow, or a pair of flows.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a .parquet of the same columns.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write a file anew that is there already.")] = False,
) -> None:
    """Report for each flow its bytes, goodput, retransmissions and RTT, and what limited it for how long.

    One line for each flow; with --flow, all figures of that flow; with a second log, the figures of both and their
    differences.

    Example: sojourn tcplog summary out/t
    """
    from sojourn.cli.readers import whoever_reads
    from sojourn.export.summary_command import Asked, summarise

    flows = frozenset(flow) if flow else None
    form = "json" if as_json else "csv" if as_csv else "text"
    if as_json and as_csv:
        raise RequestError("--json and --csv: choose one of them")
    said, cut = summarise(Asked(log, other, flows, block, who, form, output, force))
    with whoever_reads():
        sys.stdout.write(said)
    for path in cut:
        typer.echo(f"note: {path} ends before its end: the summary is of what lay before", err=True)
    if cut:
        raise typer.Exit(DOUBTFUL)


become("watch", "The flows as JSON, a line each interval.")
become("serve", "Log block by block, asked by a program.")
become("recover", "Convert what a killed log left behind to records.")


def parsed_time(option: str, words: str | None) -> int | None:
    """Return a time in nanoseconds: a number with a unit."""
    if words is None:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", words.strip()):
        raise RequestError(f"{option} {words}: expected a time with its unit: {words}s, or {words}ms?")
    if (nanos := nanoseconds(words)) is None:
        raise RequestError(f"{option} {words}: expected a time such as {', '.join('2' + unit for unit in UNITS_NS)}")
    return round(nanos)
