"""The Linux bridge with tcpdump running on the port towards A, as bridge-2003 had on its bridge.

It captures what `bridge:capture` does: the first 128 bytes of every frame, into the same memory, of which the last
64 MB are kept.
"""

from __future__ import annotations

from pathlib import Path

from sojourn.devices.bridge_capture import notes, objects
from sojourn.devices.mode import Ink, Mode

DEVICE = Mode(
    name="bridge:tcpdump",
    slug="tcpdump",
    title="The Linux bridge with tcpdump",
    beyond="tcpdump",
    box="bridge, tcpdump",
    ink=Ink("bridge-tcpdump", "#2f7f6f", "#7fcfbd", (5, 2, 1, 2), "triangle-right"),
    place=25,
    rank=3,
    is_apart=True,
    program=str(Path(__file__).with_suffix(".sh")),
    tools={"tcpdump": "tcpdump"},
    fix="tcpdump: apt-get install tcpdump; and the right to capture (CAP_NET_RAW): run as root",
    objects=objects,
    notes=notes,
)
