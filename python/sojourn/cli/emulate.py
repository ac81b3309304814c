"""`sojourn emulate verify`: test a pipe with our own streams over a bed of its own, configured against measured.

Everything else of `sojourn emulate` is the instrument's. Builds a plan in memory, and runs it as any other.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli.private import private_run
from sojourn.errors import RequestError

if TYPE_CHECKING:
    from sojourn.plan import Plan
    from sojourn.records import RunFolder

FAILED = 4

app = typer.Typer(
    help="A bridge that emulates a path: `sojourn emulate --help` is the instrument's own; here: verify.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def emulate() -> None:
    """Emulate a path between two ports, and verify how exactly."""


@app.command()
def verify(  # noqa: PLR0913, PLR0917 - one for each option
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG.toml | WORDS…]", help='A file of pipes and rules, or one pipe: "delay 20ms loss 1%".'
        ),
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="Constant delay, e.g. 20ms.")] = None,
    jitter: Annotated[str | None, typer.Option(metavar="TIME", help="Size of the random part.")] = None,
    distribution: Annotated[str | None, typer.Option(metavar="NAME", help="Its shape: uniform, normal, …")] = None,
    half_life: Annotated[
        str | None, typer.Option(metavar="TIME", help="Correlation: time after which half of a deviation is left.")
    ] = None,
    order: Annotated[str | None, typer.Option(metavar="kept|free", help="Whether packets may overtake.")] = None,
    reorder: Annotated[str | None, typer.Option(metavar="SHARE", help="Packets that overtake others.")] = None,
    loss: Annotated[list[str] | None, typer.Option(metavar="LOSS", help='E.g. 1%, "burst 1% 3".')] = None,
    loss_after: Annotated[list[str] | None, typer.Option(metavar="LOSS", help="The same, after the link.")] = None,
    corrupt: Annotated[str | None, typer.Option(metavar="SHARE", help="Packets with a flipped bit.")] = None,
    ber: Annotated[str | None, typer.Option(metavar="P", help="Probability that a bit is flipped.")] = None,
    duplicate: Annotated[str | None, typer.Option(metavar="SHARE", help="Packets that are sent twice.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Rate of the link, e.g. 10Mbit/s.")] = None,
    overhead: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Bytes that the link adds to each packet; Ethernet 24.")
    ] = None,
    burst: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes that the link sends at once after idle time.")
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="N|SIZE", help="Queue limit in packets or bytes (30KB).")] = None,
    aqm: Annotated[
        str | None,
        typer.Option(metavar="AQM", help="Queue management and scheduler: codel, pie, red …, fq_codel, dualpi2."),
    ] = None,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Rate, delay and loss over time.")] = None,
    outage: Annotated[
        str | None, typer.Option(metavar="OUTAGE", help="Time during which the link sends nothing.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all random impairments.")] = 1,
    frame_bytes: Annotated[int | None, typer.Option(metavar="N", help="Size of the frames sent, with FCS.")] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Limit of a check: offset, p50, p99, p999 (times), rate, cdf."),
    ] = None,
    compensate: Annotated[
        str | None, typer.Option(metavar="TIME", help="Path delay compensation, as an earlier verify found it.")
    ] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="At most a minute; more checks are inconclusive.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent, and why.")] = False,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; by default one under runs/.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")] = False,
) -> None:
    """Verify how exactly this machine emulates a pipe: compare configured with measured values, with verdicts.

    Exit status 4 where a verdict fails. Example: sojourn emulate verify --delay 20ms --loss 1%
    """
    options: dict[str, Any] = {
        "delay": delay, "jitter": jitter, "distribution": distribution, "half-life": half_life, "order": order,
        "reorder": reorder, "loss": loss, "loss-after": loss_after, "corrupt": corrupt, "ber": ber,
        "duplicate": duplicate, "rate": rate, "overhead": overhead, "burst": burst, "queue": queue, "aqm": aqm,
        "trace": trace, "outage": outage,
    }  # fmt: skip
    file, given = what_is_asked(words or [], options)
    asked = {"seed": seed, "quick": quick, "limits": limits_of(limit or []), "frame_bytes": frame_bytes}
    asked["compensate"] = compensate
    plan, reasons = plan_of(file, given, asked)
    if dry_run:
        show(plan, reasons, as_json=as_json)
        return
    from sojourn.conduct import Screen, conduct, create_folder, folder_of

    into = out or folder_of(plan)
    with private_run(into):
        folder = create_folder(plan, into)
        screen = Screen()
        for reason in reasons:
            screen.say(reason)
        conduct(plan, folder, screen)
        conclude(folder, as_json=as_json)


FROM = Annotated[
    list[str],
    typer.Option("--from", metavar="LINES", help="Lines of tc (netem, tbf, pfifo, bfifo) or of ipfw; may be repeated."),
]


@app.command("explain")
def explain_from(
    lines: FROM,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")] = False,
) -> None:
    """Translate lines of tc or ipfw: the same path in our words, the command, and what has no equivalent, with why.

    Without --from it is the instrument's own: how options, words and files are understood.

    Example: sojourn emulate explain --from "tc qdisc add dev eth0 root netem delay 40ms loss 1%"
    """
    from sojourn.cli.translate import in_words, translate
    from sojourn.instruments import find_instrument
    from sojourn.instruments.emulator import explain

    found = translate("\n".join(lines), lambda options: explain(find_instrument(), options))
    print(json.dumps(asdict(found)) if as_json else "\n".join(in_words(found)))


def what_is_asked(words: list[str], options: dict[str, Any]) -> tuple[str | None, list[str]]:
    """Return a file, if there is one, and the arguments of `emulate run`: options, and strings for both directions."""
    lists = {
        name: value if isinstance(value, list) else [value] for name, value in options.items() if value is not None
    }
    given = [f"--{name}={value}" for name, values in lists.items() for value in values]  # "-5ms" is a value too
    if len(words) == 1 and (words[0].endswith(".toml") or Path(words[0]).is_file()):
        if given:
            raise RequestError(f"{words[0]} says what the pipes are: leave out the options for delay, loss and rate")
        file = str(Path(words[0]).resolve())
        return file, ["--config", file]
    if words:
        given += ["--forward", " ".join(words), "--backward", " ".join(words)]
    if not given:
        raise RequestError('nothing to verify: try `sojourn emulate verify --delay 1ms`, or words: "delay 1ms loss 1%"')
    return None, given


LIMITS = ("offset", "p50", "p99", "p999", "rate", "cdf")


def limits_of(given: list[str]) -> dict[str, Any]:
    """Parse `--limit p99=50us --limit rate=0.001`."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if name not in LIMITS or not equals:
            raise RequestError(f"--limit {one}: expected NAME=VALUE with {', '.join(LIMITS)}, such as p99=50us")
        try:
            found[name] = float(value) if name in ("rate", "cdf") else value
        except ValueError:
            raise RequestError(f"--limit {one}: expected a share, such as 0.001") from None
    return found


def plan_of(file: str | None, given: list[str], asked: dict[str, Any]) -> tuple[Plan, list[str]]:
    """Return the plan, and the reasons for its choices."""
    from sojourn.binary import find_instrument
    from sojourn.instruments.emulator import explain
    from sojourn.methods.emulator.verifying import Verification, verify_plan
    from sojourn.plan import plan_from_text

    explained = explain(find_instrument(), given)
    words = None if file else str(explained["pipes"][0]["words"])
    text, reasons = verify_plan(Verification(config=explained["config"], words=words, file=file, **asked))
    typed = f"emulate verify {words or file}" + " --quick" * asked["quick"]
    return plan_from_text(text, "emulate verify", (typed, *reasons)), reasons


def show(plan: Plan, reasons: list[str], *, as_json: bool) -> None:
    """Show what would be sent."""
    from sojourn.cli.dry_run import show_plan

    show_plan(plan, as_json=as_json)
    if not as_json:
        for reason in reasons:
            print(f"- {reason}")


def conclude(folder: RunFolder, *, as_json: bool) -> None:
    """Analyse, report, and exit 4 if any check failed, or the run must not be trusted."""
    from sojourn.cli.conclude import conclude as conclude_run

    conclude_run(folder, as_json=as_json)
    checks = json.loads(folder.verdict.read_text(encoding="utf-8")).get("checks") or []
    if any(check["verdict"] == "fail" for check in checks):
        raise typer.Exit(FAILED)
