"""A device on the bench: a switch, a firewall, a NIC, whatever joins a port of A to a port of B (`dut:cisco`).

Sojourn does not build it, and knows only its label. It needs real hosts (`--bed bed.toml`).
"""

from __future__ import annotations

from sojourn.devices.mode import Mode

DEVICE = Mode(
    name="dut",
    title="The device under test",
    box="device",
    place=50,
    rank=3,
    is_outside=True,
)
