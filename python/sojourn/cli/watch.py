"""`sojourn watch`: a live page of a run, or of a folder of runs, reachable from this machine only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

Watched = Annotated[Path, typer.Argument(metavar="[RUN | FOLDER]", help="A run folder, or a folder that holds runs.")]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=65535, help="TCP port at 127.0.0.1; 0: the one that this folder had the last time, or any free one."
    ),
]
Looks = Annotated[
    bool,
    typer.Option(
        "--looks/--no-looks",
        help=(
            "Compute cells, intervals and findings from the records meanwhile, when a processor is idle; without it, "
            "show only what the log says."
        ),
    ),
]


AsJson = Annotated[bool, typer.Option("--json", help="Print the address as JSON, then serve.")]


def watch(folder: Watched = Path("runs"), *, port: Port = 0, looks: Looks = True, as_json: AsJson = False) -> None:
    """Show the progress of a run and its results so far, in a browser on this machine.

    Prints the page's address (keep it secret: it contains the key to the page) and serves the page until Ctrl-C.
    Reads the run folder and nothing else; the run may begin later, and may end meanwhile.

    Example: sojourn watch runs
    """
    from sojourn.watch.server import serve

    def say(address: str, notes: list[str]) -> None:
        lines = [json.dumps({"address": address, "notes": notes})] if as_json else [
            *(f"note: {one}" for one in notes), address
        ]  # fmt: skip
        print("\n".join(lines), flush=True)

    serve(folder, port, looks=looks, say=say)
