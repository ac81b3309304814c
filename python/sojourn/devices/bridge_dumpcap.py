"""The Linux bridge with dumpcap, Wireshark's capture program, running on the port towards A.

It captures the same as `bridge:capture`: the first 128 bytes of every frame, into the same memory, of which the last 64
MB are kept.
"""

from __future__ import annotations

from dataclasses import replace

from sojourn.devices.bridge_capture import captured_by
from sojourn.devices.mode import Ink

DEVICE = replace(
    captured_by("dumpcap", "wireshark-common"),
    place=27,
    ink=Ink("bridge-dumpcap", "#9a4f2f", "#e3a184", (10, 2, 2, 2, 2, 2), "triangle-left"),
)
