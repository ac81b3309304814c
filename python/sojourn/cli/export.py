"""`sojourn export`: the figures of a run in formats that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sojourn.errors import RequestError, did_you_mean

FORMATS = ("prometheus", "hdr")

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Format = Annotated[str, typer.Option("--to", metavar="|".join(FORMATS), help="The format.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where it goes; by default standard output.")
]
Force = Annotated[bool, typer.Option("--force", help="Write a file anew that is there already.")]


def export(run: RunArgument, *, to: Format = "prometheus", output: Output = None, force: Force = False) -> None:
    """Write the figures of a run with their intervals: prometheus, for a textfile collector or a push.

    Or its round-trip times: hdr, a log of HdrHistogram with a histogram a block, in ns, tagged with path and cell.

    Example: sojourn export runs/2026-11-20T101500Z-bridge-latency-3f9c --to prometheus -o sojourn.prom
    """
    from sojourn.export.output import refuse_existing, writing
    from sojourn.records.folder import open_folder

    if to not in FORMATS:
        raise RequestError(f"--to {to}: expected {' or '.join(FORMATS)}{did_you_mean(to, FORMATS)}")
    refuse_existing(output, force=force)
    folder = open_folder(run)
    if to == "hdr":
        from sojourn.export.hdr import hdr_log

        text = hdr_log(folder)
    else:
        from sojourn.export.prometheus import exposition

        text = exposition(folder)
    if output is None:
        print(text, end="")
        return
    with writing(output) as file:
        file.write(text.encode())
