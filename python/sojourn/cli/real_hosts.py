"""`sojourn bed check` and `bed new`: arguments and output; the functions are in bed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated

import typer

JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")]


def bed_check(file: Annotated[Path, typer.Argument(metavar="FILE.toml")], *, as_json: JsonOutput = False) -> None:
    """Inspect the real hosts that a file names, then build the bed once, probe each path, and restore everything.

    Exit status: 0; 3 if the bed cannot be measured on.
    """
    from sojourn.bed.doctor import print_examination
    from sojourn.bed.real_hosts import examine
    from sojourn.conduct.real_hosts import hosts_of, paths_of
    from sojourn.plan.real_bed import load_real_bed

    real = load_real_bed(file)
    found = examine(hosts_of(real), paths_of(real), real.devices)
    if as_json:
        print(json.dumps(found))
    else:
        print_examination(found)
    if found["status"]:
        raise typer.Exit(found["status"])


def bed_new(  # noqa: PLR0913 - one for each option
    a: Annotated[str, typer.Argument(metavar="A", help="The host that asks, as `ssh` takes it.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The host that answers.")],
    *,
    device: Annotated[
        str | None, typer.Option(metavar="HOST", help="A host between them, on which Sojourn builds devices.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Who logs in.")] = None,
    jump: Annotated[str | None, typer.Option(metavar="HOST", help="The host to go through.")] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="A configuration of OpenSSH in place of your own.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: what the file describes, and its text with its comments.")
    ] = False,
) -> None:
    """Ask hosts for their interfaces, and print a first file that describes a bed of them.

    It cannot know which cable is where: correct that in the file, then run `sojourn bed check`.
    """
    from sojourn.bed.model import HostSpec
    from sojourn.bed.real_hosts import first_file
    from sojourn.errors import RequestError
    from sojourn.plan.real_bed import ADDRESS, WORD

    for what, given, reader in (
        *(("A", a, ADDRESS), ("B", b, ADDRESS), ("--device", device, ADDRESS)),
        *(("--user", user, WORD), ("--jump", jump, ADDRESS)),
    ):
        if given and reader.read(given) is None:
            raise RequestError(f"{what} {given!r}: expected {reader.expected}")
    config = str(Path(config).absolute()) if config and config != "none" else config
    named = {"a": a, "b": b} | ({"device": device} if device else {})
    hosts = {name: HostSpec(address, user=user, jump=jump, config=config) for name, address in named.items()}
    text = first_file(hosts)
    print(json.dumps({"bed": tomllib.loads(text), "file": text}) if as_json else text, end="\n" if as_json else "")
