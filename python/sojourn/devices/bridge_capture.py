"""The Linux bridge with a capture running on it: ours, on the port towards A (bridge-2003 had tcpdump on its bridge).

The capture is written to memory that goes with the bed: the last 64 MiB of it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.devices.mode import SALTIRE, Box, Ink, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.devices.mode import Run

SOCKETS = "/proc/net/packet"


def objects(box: Box) -> Sequence[str]:
    """Return commands for the links and the packet sockets of the network stack, which is its own."""
    del box
    return ("ip -d link show", f"cat {SOCKETS}")


ENDED = "the capture had ended before the session did, and the path was a plain bridge by then"
"""The finding for a capture that has ended before the end of a session."""


def notes(run: Run, box: Box) -> list[str]:
    """Return whether the capture ran."""
    return [] if broken(run, box) else ["The capture ran."]


def broken(run: Run, box: Box) -> list[str]:
    """Return whether the capture has ended."""
    del box
    return [] if len(run(["cat", SOCKETS]).splitlines()) > 1 else [ENDED]


CAPTURING = Mode(
    name="bridge:capture",
    slug="capture",
    title="The Linux bridge with a capture",
    beyond="Our capture",
    box="bridge, capture",
    rank=3,
    is_apart=True,
    program=str(Path(__file__).with_suffix(".sh")),
    told=("capture",),
    fix="the right to capture (CAP_NET_RAW): run as root",
    objects=objects,
    notes=notes,
    broken=broken,
)


def captured_by(program: str, package: str) -> Mode:
    """Return the bridge with another capture program: the first 128 bytes of every frame, into memory."""
    return replace(
        CAPTURING,
        name=f"bridge:{program}",
        slug=program,
        title=f"The Linux bridge with {program}",
        beyond=program,
        box=f"bridge, {program}",
        told=(program,),
        tools={program: package},
        fix=f"{program}: apt-get install {package}; and {CAPTURING.fix}",
    )


DEVICE = replace(CAPTURING, place=24, ink=Ink("bridge-capture", "#5b6470", "#a3adba", (4, 6), SALTIRE))
