"""The Linux bridge with dumpcap running on the port towards A, Wireshark's program that captures.

It captures what `bridge:capture` does: the first 128 bytes of every frame, into the same memory, of which the last
64 MB are kept.
"""

from __future__ import annotations

from pathlib import Path

from sojourn.devices.bridge_capture import notes, objects
from sojourn.devices.mode import Ink, Mode

DEVICE = Mode(
    name="bridge:dumpcap",
    slug="dumpcap",
    title="The Linux bridge with dumpcap",
    beyond="dumpcap",
    box="bridge, dumpcap",
    ink=Ink("bridge-dumpcap", "#9a4f2f", "#e3a184", (3, 2), "triangle-left"),
    place=26,
    rank=3,
    is_apart=True,
    program=str(Path(__file__).with_suffix(".sh")),
    tools={"dumpcap": "wireshark-common"},
    fix="dumpcap: apt-get install wireshark-common; and the right to capture (CAP_NET_RAW): run as root",
    objects=objects,
    notes=notes,
)
