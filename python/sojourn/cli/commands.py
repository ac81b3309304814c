"""Every command of `sojourn`: words in, words out. What a command does is elsewhere, and imported when it is called."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.bridge import app as bridges
from sojourn.cli.conclude import conclude
from sojourn.cli.emulate import app as emulators
from sojourn.cli.export import export
from sojourn.cli.groups import Grouped
from sojourn.cli.new import new
from sojourn.cli.notify import Notices
from sojourn.cli.private import private_run
from sojourn.cli.real_hosts import bed_check, bed_new
from sojourn.cli.tcplog import app as tcplogs
from sojourn.cli.timeline import timeline, why
from sojourn.cli.watch import watch
from sojourn.errors import RequestError, did_you_mean

if TYPE_CHECKING:
    from sojourn.records import RunFolder

app = typer.Typer(
    name="sojourn",
    cls=Grouped,
    help="Measures what a box in the path does to packets: how long they stay in it, and how sure that figure is.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
beds = typer.Typer(
    help="Show a bed, describe and check one of real hosts, or remove leftovers of runs that were killed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
beds.command("new", short_help="Ask real hosts for a first file that describes a bed.")(bed_new)
beds.command("check", short_help="Whether real hosts can hold a bed, and what would fix that.")(bed_check)
app.command("why", short_help="What limited a flow of TCP at a moment, and what became of its packets.")(why)
app.command("timeline", short_help="Each segment's path through TCP and emulators, for Perfetto and tables.")(timeline)
app.add_typer(beds, name="bed", short_help="Draw a bed; describe and check real hosts; clean up.")
app.add_typer(bridges, name="bridge", short_help="A Linux bridge over two real ports: up, status, down.")
app.add_typer(emulators, name="emulate", short_help="Emulate a path between two ports, or verify how exactly.")
app.command("export", short_help="A run's figures for other programs: Prometheus.")(export)
app.command("new", short_help="A package of your own that adds a device or a method.")(new)
app.command("watch", short_help="A live page of a run, on this machine alone.")(watch)
app.add_typer(tcplogs, name="tcplog", short_help="TCP's state at every packet: log, watch, plot, convert.")


def show_version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        from sojourn.version import __version__

        print(f"sojourn {__version__}")
        raise typer.Exit


@app.callback()
def program(
    *,
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Options of the program itself."""


Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a value of the plan, e.g. rounds=20 or devices=wire,bridge."
    ),
]
PUBLISHED = "published"
"""The name that runs every study of a published experiment."""

JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")]


@app.command(short_help="Run a study: a built-in one, or a plan of your own.")
def run(  # noqa: PLR0913 - one for each option
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME | PLAN.toml]",
            help="A built-in study (see `list`), `published` for all studies of published experiments, or a plan file.",
        ),
    ] = None,
    *,
    sets: Sets = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|[LABEL=]PROGRAM",
            help=(
                "Measure this device instead of the plan's: a mode (bridge:qos), or a program of yours that builds "
                "one (./my-box.sh), by a label of yours (new=./my-box.sh). May be given several times."
            ),
        ),
    ] = None,
    bed: Annotated[
        str | None,
        typer.Option(
            metavar="netns|sim|FILE.toml",
            help="Where: real frames on this machine, simulated lines, or the real hosts that a file names.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; by default one under runs/.")] = None,
    as_json: JsonOutput = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be measured, and how long.")] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Use the plan's [quick] values: mostly a minute of measuring, see --dry-run."),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help=("Use the plan's [full] values: as published, however long that takes."))
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="±5%|±0.1us",
            help=(
                "Run further sessions until the headline's interval is at most this far from its estimate, on each "
                "side."
            ),
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Run as many sessions as fit into this time, such as 2h: one at least, 100 at most; with --until, no "
            "longer than this.",
        ),
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Continue an interrupted run.")] = None,
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help=(
                "Run this (by `sh -c`, as you, for 30 s at most) when the run ends, and after the first session with "
                "a doubtful finding; it gets JSON about it on its standard input."
            ),
        ),
    ] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Analyse only; `sojourn report RUN` makes the report when it is wanted.")
    ] = False,
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Do not add the figures to this user's history (`sojourn history`).")
    ] = False,
) -> None:
    """Run a study: build the bed, measure the plan's trials, analyse, report."""
    if resume is not None:
        beside = {
            "a study": study,
            "--set": sets,
            "--device": device,
            "--bed": bed,
            "--out": out,
            "--quick": quick,
            "--full": full,
            "--until": until,
            "--budget": budget,
        }
        beside["--dry-run"] = dry_run
        folder = resumable(resume, [name for name, value in beside.items() if value])
        notices = Notices(notify, resume)
        with notices.of_the_end(), private_run(resume):
            resumed = resume_run(folder, notices)
            conclude(resumed, as_json=as_json, report=not no_report, history=not no_history)
        return
    if study is None:
        raise RequestError("no study is named: try `sojourn list`, then `sojourn run NAME`")
    if study == PUBLISHED:
        beside = {"--set": sets, "--device": device, "--no-report": no_report, "--until": until, "--budget": budget}
        beside["--notify"] = notify
        given = [name for name, value in beside.items() if value]
        if quick and full:
            raise RequestError("--quick beside --full: expected one of them")
        if given:
            raise RequestError(f"`sojourn run {PUBLISHED}` runs several studies as they are: leave out {given[0]}")
        from sojourn.cli.published import dry_run as show_published
        from sojourn.cli.published import run_published, stamped

        if dry_run:
            show_published(full=full, backend=bed, as_json=as_json)
            return
        into = out or Path("runs") / stamped()
        with private_run(into):
            status = run_published(into, full=full, backend=bed, history=not no_history, as_json=as_json)
        if status:
            raise typer.Exit(status)
        return
    from sojourn.plan import load_plan

    ends = [f"study.{key}={value}" for key, value in (("until", until), ("budget", budget)) if value is not None]
    planned = partial(
        load_plan, study, sets=[*(sets or []), *ends], quick=quick, full=full, backend=bed, devices=device or []
    )
    plan = planned()
    from sojourn.conduct import Screen, conduct, create_folder, folder_of, refuse_wrong_words, try_boxes

    refuse_wrong_words(plan)
    if dry_run:
        from sojourn.cli.dry_run import show_plan

        show_plan(plan, as_json=as_json)
        return
    if found := try_boxes(plan):
        plan = planned(more=found)
    into = out or folder_of(plan)
    notices = Notices(notify, into)
    with notices.of_the_end(), private_run(into):
        folder = create_folder(plan, into)
        conduct(plan, folder, Screen(on_doubt=notices.on_doubt))
        conclude(folder, as_json=as_json, report=not no_report, history=not no_history)


def resumable(path: Path, beside: list[str]) -> RunFolder:
    """Return the folder of an interrupted run, which has its plan."""
    if beside:
        raise RequestError(f"--resume continues with the run's own plan: leave out {', '.join(beside)}")
    from sojourn.records.folder import open_folder

    return open_folder(path)


def resume_run(folder: RunFolder, notices: Notices) -> RunFolder:
    """Measure the rest of an interrupted run."""
    from sojourn.conduct import Screen
    from sojourn.conduct import resume as resume_measuring

    resume_measuring(folder, Screen(on_doubt=notices.on_doubt))
    return folder


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


@app.command()
def report(
    run: RunArgument,
    *,
    vector: Annotated[bool, typer.Option("--vector", help="Also write each figure as SVG and PDF.")] = False,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Show a result of another tool next to ours: of iperf3 -J, irtt -o, sockperf --full-log, or flent. "
                "May be given several times."
            ),
        ),
    ] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Also print the report to report/report.pdf, by the Chromium installed.")
    ] = False,
    as_json: JsonOutput = False,
) -> None:
    """Analyse and report again, from the records alone."""
    from sojourn.records.folder import open_folder

    folder = open_folder(run)
    with private_run(run):
        conclude(folder, as_json=as_json, vector=vector, beside=beside or [], pdf=pdf)


@app.command(short_help="Whether a second run is better, worse or equivalent.")
def compare(  # noqa: PLR0913 - one for each option
    first: RunArgument,
    second: RunArgument,
    *,
    margin: Annotated[
        str,
        typer.Option(
            metavar="5%,50ns,0.1pp",
            help=(
                "Differences that do not matter: a share of the first run's figure, but at least this time for times "
                "and these percentage points for ratios; give any of the three."
            ),
        ),
    ] = "5%,50ns,0.1pp",
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="worse|difference|inconclusive|never",
            help=(
                "Which overall answer ends with status 1: worse; any difference; worse or inconclusive; none. By "
                "default worse; with --fail-if never."
            ),
        ),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="'NAME > +5%'",
            help="Status 1 where a figure's whole interval lies beyond this limit: a change (+5%, +200ns, -1Mbit/s) or "
            "a bound on the second run (2us, 1%). NAME as in --json, its factors left out as you like. May be given "
            "several times.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a test case for each figure and limit, as JUnit's XML.")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Print annotations of a GitHub workflow (::error, ::warning) as well.")
    ] = False,
    no_history: Annotated[
        bool,
        typer.Option("--no-history", help=("Do not use the differences between boots and days that the history has.")),
    ] = False,
    as_json: JsonOutput = False,
) -> None:
    """Compare two runs: each figure of the second is better, worse, equivalent within the margin, or inconclusive.

    A figure of which neither more nor less is better “differs” instead. Below the figures stands what differed
    between the plans and the beds.

    Exit status: 0; 1 if a leading figure is worse (see --fail-on) or a limit fails (--fail-if); 2 if the runs have no
    figure in common, or none that a limit names; 4 if one of them is invalid. A limit that the interval neither keeps
    nor breaks is reported, and fails only under --fail-on inconclusive.
    """
    from sojourn.analysis.limits import read_limit
    from sojourn.cli.cases import cases_of, print_annotations, write_junit
    from sojourn.cli.compare import (
        compare_runs,
        print_comparison,
        read_fail_on,
        read_margin,
        status_of,
    )
    from sojourn.cli.readers import whoever_reads

    if github and as_json:
        raise RequestError("--github beside --json: standard output can hold only one of them")
    limits = [read_limit(text) for text in fail_if or []]
    word = read_fail_on(fail_on, limited=bool(limits))
    compared = compare_runs(first, second, read_margin(margin), history=not no_history, limits=limits)
    status = status_of(compared, word)
    if junit is not None:
        write_junit(cases_of(compared, word), junit)
    with whoever_reads():
        if as_json:
            print(json.dumps(compared))
        else:
            print_comparison(compared)
        if github:
            print_annotations(cases_of(compared, word))
    if status:
        raise typer.Exit(status)


@app.command(short_help="A study's figures over runs, boots and kernels.")
def history(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Whose runs; without it, every study is listed.")
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Every leading figure run by run, not the headline alone.")
    ] = False,
    as_json: JsonOutput = False,
) -> None:
    """Show the results of all runs of a study, bed by bed, with control limits and how boots and days differ.

    Each `sojourn run` is added to the history of the user who runs it; `run --no-history` is not.
    """
    from sojourn.cli.history import list_history, show_study

    if study is None:
        list_history(as_json=as_json)
    else:
        show_study(study, every=every, as_json=as_json)


@app.command("list")
def list_studies(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="This study alone.")] = None,
    *,
    as_json: JsonOutput = False,
) -> None:
    """The built-in studies, each with its question."""
    from sojourn.plan import studies

    found = [*studies(), (PUBLISHED, "What does each table and figure of five papers come to on this machine?")]
    if name is not None:
        names = [known for known, _ in found]
        if name not in names:
            raise RequestError(f"no study is called {name}{did_you_mean(name, names)}: `sojourn list` shows them all")
        found = [one for one in found if one[0] == name]
    if as_json:
        print(json.dumps([{"name": known, "question": question} for known, question in found]))
        return
    width = max(len(known) for known, _ in found)
    for known, question in found:
        print(f"{known:<{width}}  {question}")


@app.command()
def doctor(*, as_json: JsonOutput = False) -> None:
    """What this machine can do, and how to fix what it cannot."""
    from sojourn.bed.doctor import examine, print_examination

    examination = examine()
    if as_json:
        print(json.dumps(examination))
    else:
        print_examination(examination)
    if examination["status"]:
        raise typer.Exit(examination["status"])


@beds.command("show")
def bed_show(
    plan: Annotated[str, typer.Argument(metavar="[NAME | PLAN.toml]", help="Whose bed.")] = "bridge-latency",
    *,
    sets: Sets = None,
    as_json: JsonOutput = False,
) -> None:
    """Draw the hosts, links and devices of a plan."""
    from sojourn.bed import LinkSpec, Topology
    from sojourn.bed.drawing import drawing, text
    from sojourn.plan import load_plan

    bed = load_plan(plan, sets=sets or []).bed
    links = {path: LinkSpec(link.rates_bps, link.delays_ns, bed.queue_bytes) for path, link in bed.links.items()}
    topology = Topology.of(bed.devices, bed.near, bed.far, bypass=bed.bypass, links=links)
    print(json.dumps(drawing(topology)) if as_json else text(topology))


@beds.command("clean")
def bed_clean(*, as_json: JsonOutput = False) -> None:
    """Remove what killed runs and emulators left; running ones are not touched."""
    from sojourn.bed.clean import clean

    done = clean()
    print(json.dumps(asdict(done)) if as_json else "\n".join(done.sentences()))
    if done.left:
        raise typer.Exit(3)


@app.command(
    "probe",
    short_help="Probe an address by hand, or answer probes.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
def probe() -> None:
    """Probe an address by hand (icmp, udp, raw) or answer probes (respond): see `sojourn probe --help`."""
    import sys

    from sojourn.cli.become import become_instrument

    become_instrument(["probe", *sys.argv[2:]])


@app.command(
    "stamp",
    short_help="Measure with STAMP (RFC 8762), or reflect it.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
def stamp() -> None:
    """Be a session-sender (send) or a session-reflector (reflect) of RFC 8762: see `sojourn stamp --help`."""
    import sys

    from sojourn.cli.become import become_instrument

    become_instrument(["stamp", *sys.argv[2:]])


@app.command(
    "stream",
    short_help="Send or receive a stream of frames by hand.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
def stream() -> None:
    """Send a stream by hand (send), receive one (recv), or simulate both (sim): see `sojourn stream --help`."""
    import sys

    from sojourn.cli.become import become_instrument

    become_instrument(["stream", *sys.argv[2:]])


@app.command(
    "match",
    short_help="What two taps saw: each packet's delay, loss, reordering.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
def match() -> None:
    """Match captures or records of two taps, packet by packet: see `sojourn match --help`."""
    import sys

    from sojourn.cli.match import match as match_taps

    raise typer.Exit(match_taps(sys.argv[2:]))


@app.command(
    "lab",
    short_help="Run a command at one end of an emulated path.",
    options_metavar="[OPTIONS] [-- COMMAND…]",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]},
)
def lab(  # noqa: PLR0913 - options for the help alone: `--` divides the words, which the parser does not tell
    peer: Annotated[
        str | None, typer.Option(metavar="COMMAND2", help="Run this at the other end meanwhile (by `sh -c`).")
    ] = None,
    mtu: Annotated[int, typer.Option(metavar="BYTES", help="MTU of the interfaces.")] = 1500,
    congestion: Annotated[
        str | None, typer.Option(metavar="NAME", help="TCP's congestion control at both ends: cubic, bbr, …")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all random impairments.")] = 1,
    log: Annotated[Path | None, typer.Option(metavar="DIR", help="Log every packet into this folder.")] = None,
    *,
    spin: Annotated[bool, typer.Option("--spin", help="Never sleep: most exact, but uses a whole processor.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Only print what would be built: namespaces, links, stages of each pipe.")
    ] = False,
) -> None:
    """Run COMMAND in a network namespace that an emulated path joins with another; all is removed when COMMAND ends.

    What happens to packets is written as `sojourn emulate run --help` says, and holds in each direction: --delay,
    --loss, --rate, --queue, --forward WORDS, --backward WORDS, -C FILE, … Without COMMAND, a shell at both ends.

    COMMAND gets SOJOURN_PEER, SOJOURN_PEER6, SOJOURN_ADDRESS, SOJOURN_ADDRESS6 and SOJOURN_DEV; the peer is always
    10.77.1.2. It runs as whoever called this, also by sudo, and begins once COMMAND2 listens. Exit status: COMMAND's;
    4 where the path ended before it.

    Example: sojourn lab --delay 20ms --loss 1% --peer "iperf3 -s" -- iperf3 -c 10.77.1.2
    """
    import sys

    from sojourn.cli.lab import lab as run_lab

    raise typer.Exit(run_lab(sys.argv[2:]))


@app.command(
    "uplink",
    short_help="Emulate what one of this machine's interfaces leads to.",
    options_metavar="DEV [OPTIONS]",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]},
)
def uplink(
    *,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Emulate it although this machine uses it (an address, a route).")
    ] = False,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End after this time, and leave all as it was.")
    ] = None,
) -> None:
    """Emulate a path between this machine and the network that an interface of it leads to.

    What happens to packets is written as `sojourn emulate run --help` says, and holds in each direction: --delay,
    --loss, --rate, --queue, --forward WORDS (what this machine sends), --backward WORDS (what comes in), -C FILE, …

    The interface keeps its addresses and routes, and is as it was when the command ends, however it ends. Needs root
    and Linux 6.6. If you are logged in over this interface, use --for: a path that loses everything loses your session,
    too.

    Example: sojourn uplink eth0 --take-over --delay 20ms --loss 1% --for 10min
    """
    import sys

    from sojourn.cli.uplink import uplink as run_uplink

    del take_over, lasts
    raise typer.Exit(run_uplink(sys.argv[2:]))


@app.command(
    "clock",
    short_help="Offset and rate of other hosts' clocks, with the uncertainty of both.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
def clock() -> None:
    """Watch other hosts' clocks, and draw them (--plot FILE.svg or FILE.html): see `sojourn clock --help`."""
    import sys

    from sojourn.cli.clock import clock as watch

    raise typer.Exit(watch(sys.argv[2:]))


@app.command(
    "capture",
    short_help="Capture the frames that pass interfaces, with the best timestamps.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
def capture() -> None:
    """Capture what passes one or several interfaces at once: see `sojourn capture --help`."""
    import sys

    from sojourn.cli.become import become_instrument

    become_instrument(["capture", *sys.argv[2:]])


@app.command("dataset", short_help="What taps saw, as partitioned Parquet.")
def dataset(
    records: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `sojourn capture` wrote: taps-*.arrow.")],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DATA", help="The data set that it is added to.")],
    run_name: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="Name of its partition; by default the folder's name.")
    ] = None,
    bucket: Annotated[
        str, typer.Option(metavar="SPAN", help="Time that one file of it covers, in whole seconds.")
    ] = "10min",
    as_json: JsonOutput = False,
) -> None:
    """Add a capture's packets to a Parquet data set that DuckDB, Polars, Spark and `sojourn match` open.

    Example: sojourn dataset out/c -o out/data --run monday
    """
    from sojourn.cli.private import private_run
    from sojourn.records.taps import place_of, write_dataset
    from sojourn.units import nanoseconds

    span = nanoseconds(bucket)
    if span is None or span <= 0 or span % 1_000_000_000:
        raise RequestError(f"--bucket {bucket}: give whole seconds, as 60s, 10min or 1h")
    place_of(output)
    with private_run(output):
        written = write_dataset(records, output, run_name or records.resolve().name, int(span))
    if as_json:
        print(json.dumps([{"tap": one.tap, "folder": str(one.folder), "packets": one.packets} for one in written]))
    for one in written:
        if not as_json:
            print(f"{one.tap}: {one.packets:,} packets in {one.files} files: {one.folder}")
        for sentence in one.sentences:
            typer.echo(f"note: {sentence}", err=True)
    if any(one.cut for one in written):
        raise typer.Exit(4)
