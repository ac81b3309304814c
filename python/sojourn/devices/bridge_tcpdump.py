"""The Linux bridge with tcpdump running on the port towards A, as in bridge-2003.

It captures the same as `bridge:capture`: the first 128 bytes of every frame, into the same memory, of which the last 64
MB are kept.
"""

from __future__ import annotations

from dataclasses import replace

from sojourn.devices.bridge_capture import captured_by
from sojourn.devices.mode import Ink

DEVICE = replace(
    captured_by("tcpdump", "tcpdump"),
    place=26,
    ink=Ink("bridge-tcpdump", "#2f7f6f", "#7fcfbd", (8, 6), "triangle-right"),
)
