"""The Linux bridge with our capture on the port towards A, its frames copied by programs of traffic control (TCX).

It captures what `bridge:capture` does, which has a packet socket for it.
"""

from __future__ import annotations

from dataclasses import replace

from sojourn.devices.bridge_capture import CAPTURING
from sojourn.devices.mode import Ink

DEVICE = replace(
    CAPTURING,
    name="bridge:bpf",
    slug="bpf",
    title="The Linux bridge with a BPF capture",
    beyond="Our BPF capture",
    box="bridge, BPF capture",
    told=("bpf",),
    fix="the rights to load programs (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN) and Linux 6.6: run as root",
    place=25,
    ink=Ink("bridge-bpf", "#7a5fa8", "#b9a3e0", (4, 1, 1, 1), "triangle-down"),
)
