"""The Linux bridge with our capture on the port towards A, whose frames are copied by BPF programs of traffic control.

It captures the same as `bridge:capture`, which uses a packet socket.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sojourn.devices.bridge_capture import CAPTURING, ENDED
from sojourn.devices.mode import Box, Ink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.devices.mode import Run

LINKS = """here=$(readlink /proc/self/ns/net)
for one in /proc/[0-9]*; do
    [ "$(readlink "$one/ns/net" 2>/dev/null)" = "$here" ] || continue
    grep -sh -A 5 '^link_type:.*tcx' "$one"/fdinfo/* || true
done"""
"""Lists the programs on the interfaces of a network stack, by their links; `tc` before iproute2 6.6 shows none."""


def objects(box: Box) -> Sequence[str]:
    """Return commands for the links and the programs of the network stack, which is its own."""
    del box
    return ("ip -d link show", LINKS)


def notes(run: Run, box: Box) -> list[str]:
    """Return whether the capture ran."""
    return [] if broken(run, box) else ["The capture ran."]


def broken(run: Run, box: Box) -> list[str]:
    """Return whether the capture has ended."""
    del box
    return [] if run(["sh", "-c", LINKS]).strip() else [ENDED]


DEVICE = replace(
    CAPTURING,
    name="bridge:bpf",
    slug="bpf",
    title="The Linux bridge with a BPF capture",
    beyond="Our BPF capture",
    box="bridge, BPF capture",
    told=("bpf",),
    fix="the rights to load programs (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN) and Linux 6.6: run as root",
    objects=objects,
    notes=notes,
    broken=broken,
    place=25,
    ink=Ink("bridge-bpf", "#7a5fa8", "#b9a3e0", (4, 1, 1, 1), "triangle-down"),
)
