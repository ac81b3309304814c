"""Locate dropped frames between two ends by the interfaces' counters: each frame at one place. Pure.

A veth has two such places. In its *ring* (256 frames, only while the port polls) drops are counted at both ends of the
cable, as tx_dropped and rx_dropped. In the *backlog* of a core (1,000 frames), where packets are handed to another
core, drops are counted at the receiving end only, and by the core. Both are the input queue of the receiving port: of
the device between the ends, of the tester itself at B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sojourn.bed.model import Link
    from sojourn.conduct.counters import Counts


def located(link: Link, counted: Counts) -> dict[str, dict[str, int]]:
    """Return the drops in ring and backlog of each receiving port; ports without drops are left out."""
    found: dict[str, dict[str, int]] = {}
    for cable in (*link.cables, *link.further_cables):
        if cable.left.dev not in counted or cable.right.dev not in counted:
            continue
        ring = counted[cable.left.dev]["tx_dropped"]
        backlog = max(0, counted[cable.right.dev]["rx_dropped"] - ring)
        if ring or backlog:
            found[cable.right.dev] = {"ring": ring, "backlog": backlog}
    for port in link.loose:
        if port.host == "b" and (backlog := counted.get(port.dev, {}).get("rx_dropped", 0)):
            found[port.dev] = {"ring": 0, "backlog": backlog}
    return found
