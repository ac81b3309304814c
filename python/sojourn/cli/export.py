"""`sojourn export`: the figures of a run in formats that other programs read.

Another distribution adds a format by an entry point of the group `sojourn.exports`: its name is the format, its value a
function that takes the run's folder, for `sojourn.open`, and returns the text. Formats are in sojourn.export.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.errors import MachineError, RequestError, SojournError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

OWN = {"prometheus": "sojourn.export.prometheus:exposition", "hdr": "sojourn.export.hdr:hdr_log"}
"""Each is imported when it is used."""

LATEX = "latex"
"""The format that has options."""

GROUP = "sojourn.exports"

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Format = Annotated[
    str,
    typer.Option(
        "--to", metavar="|".join([*OWN, LATEX, "NAME"]), help="The format; NAME is one of an installed package."
    ),
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where it goes; by default standard output.")
]
JsonOutput = Annotated[
    bool,
    typer.Option("--json", help="Print JSON: the file that was written. Needs -o."),
]
Force = Annotated[bool, typer.Option("--force", help="Write a file anew that is there already.")]


Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        help="latex: the columns: of results, the quantity's name, ci, n, level. What differs between the figures must "
        "be among them; the figure, its interval and n always are.",
        rich_help_panel="Of latex",
    ),
]
Units = Annotated[
    str | None,
    typer.Option(
        metavar="UNIT", help="latex: ns, us, ms or s; bit/s, kbit/s, Mbit/s, Gbit/s; 1, %.", rich_help_panel="Of latex"
    ),
]
Quantity = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="latex: of which quantity; by default the run's first.", rich_help_panel="Of latex"
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=VALUE",
        help="latex: only figures with this value. May be given several times.",
        rich_help_panel="Of latex",
    ),
]


def export(  # noqa: PLR0913 - one for each option
    run: RunArgument,
    *,
    to: Format = "prometheus",
    output: Output = None,
    force: Force = False,
    columns: Columns = None,
    units: Units = None,
    quantity: Quantity = None,
    where: Where = None,
    as_json: JsonOutput = False,
) -> None:
    """Write the figures of a run with their intervals: prometheus, for a textfile collector or a push.

    Or one quantity as a table for a paper: latex, with booktabs and siunitx. Or its round-trip times: hdr, a log of
    HdrHistogram with one histogram for each block, in ns, tagged with path and cell. A package adds a format of its own
    by an entry point of the group sojourn.exports.

    Example: sojourn export runs/2026-11-20T101500Z-bridge-latency-3f9c --to prometheus -o sojourn.prom
    """
    from sojourn.export.output import refuse_existing, writing

    if as_json and output is None:
        raise RequestError("--json without -o FILE: standard output can hold only one of them")
    refuse_existing(output, force=force)
    said = {"--columns": columns, "--units": units, "--quantity": quantity, "--where": where}
    if to == LATEX:
        text = for_paper(run, columns, units, quantity, where or ())
    elif others := [name for name, value in said.items() if value is not None]:
        raise RequestError(f"{others[0]} is an option of --to latex")
    else:
        text = exported(run, to)
    if output is None:
        print(text, end="")
        return
    with writing(output) as file:
        file.write(text.encode())
    if as_json:
        print(json.dumps({"file": str(output), "format": to, "lines": len(text.splitlines())}))


def exported(run: Path, to: str) -> str:
    """Return the figures of a run as text in this format."""
    from importlib import import_module
    from importlib.metadata import entry_points

    from sojourn.records.folder import open_folder

    others = {one.name: one for one in entry_points(group=GROUP) if one.name not in {*OWN, LATEX}}
    if to in others:
        return of_others(others[to], open_folder(run).path)
    if to not in OWN:
        known = [*OWN, LATEX, *sorted(others)]
        raise RequestError(f"--to {to}: expected {' or '.join(known)}{did_you_mean(to, known)}")
    module, _, function = OWN[to].partition(":")
    return str(getattr(import_module(module), function)(open_folder(run)))


def for_paper(run: Path, columns: str | None, units: str | None, quantity: str | None, where: Sequence[str]) -> str:
    """Return a table of one quantity as LaTeX."""
    from sojourn.records.folder import open_folder
    from sojourn.report.paper import Asked, paper_table

    names = tuple(filter(None, (one.strip() for one in (columns or "").split(","))))
    return paper_table(open_folder(run), Asked(names, units, quantity, tuple(where)))


def of_others(format_: EntryPoint, run: Path) -> str:
    """Return the output of another distribution's function; its errors become one sentence that names it."""
    whose = f"the entry point {format_.name} = {format_.value} of {GROUP}"
    try:
        text = format_.load()(run)
    except SojournError:
        raise
    except Exception as error:  # whatever their module raises
        raise MachineError(f"{whose} failed: {type(error).__name__}: {error}") from error
    if not isinstance(text, str):
        raise MachineError(f"{whose} returned no text, but {type(text).__name__}")
    return text
