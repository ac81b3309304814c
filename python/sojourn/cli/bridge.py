"""`sojourn bridge`: a Linux bridge over two real ports, as the devices of a bed have it; what it does is in bed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

app = typer.Typer(
    help="A Linux bridge over two real ports of this machine; `down` restores the ports as they were.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")]


@app.command("up")
def bridge_up(  # noqa: PLR0913 - one for each option
    first: Annotated[str, typer.Argument(metavar="PORT")],
    second: Annotated[str, typer.Argument(metavar="PORT")],
    *,
    mode: Annotated[
        str,
        typer.Option(
            metavar="bridge|qos|netfilter",
            help="A plain bridge; with HTB at both ports (102.4 Mbit/s); with connection tracking and marks as well.",
        ),
    ] = "bridge",
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the bridge.")] = "br-sojourn",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Also bridge ports that this machine itself uses.")
    ] = False,
    persist: Annotated[
        bool, typer.Option("--persist", help="Write files for systemd-networkd, so that it is there after a boot.")
    ] = False,
    as_json: JsonOutput = False,
) -> None:
    """Bridge two ports. It stays until `sojourn bridge down`, or until the machine is booted again."""
    from sojourn.bed import host_bridge

    made = host_bridge.up(name, (first, second), mode, take_over=take_over, persist=persist)
    if as_json:
        print(json.dumps(asdict(made)))
        return
    print(f"{made.name} bridges {first} and {second} (mode {mode}): `sojourn bridge down` leaves them as they were.")
    for sentence in (*made.notes, *(f"Wrote {path}." for path in made.files)):
        print(sentence)


@app.command("status")
def bridge_status(*, as_json: JsonOutput = False) -> None:
    """Show the bridges that `up` made, their ports and the ports' counters."""
    from sojourn.bed import host_bridge

    found = host_bridge.status()
    if as_json:
        print(json.dumps(found))
        return
    for one in found:
        print(f"{one['name']}: mode {one['mode']}" + ("" if one["there"] else "; it is no longer there"))
        for port in one["now"]:
            counted = f", {port['received']} received, {port['sent']} sent, {port['dropped']} dropped"
            print(f"  {port['port']}: {port['state']}" + (counted if "sent" in port else ""))
    if not found:
        print("There is no bridge of `sojourn bridge` here.")


@app.command("down")
def bridge_down(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Its name, where there are several.")] = None,
    *,
    as_json: JsonOutput = False,
) -> None:
    """Remove a bridge and leave its ports as they were; files for systemd-networkd, too."""
    from sojourn.bed import host_bridge

    done = host_bridge.down(name)
    print(json.dumps({"done": done}) if as_json else "\n".join(done))
