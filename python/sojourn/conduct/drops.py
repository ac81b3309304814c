"""Where frames went between two ends, from what the interfaces counted: each once, at the place that had no room. Pure.

A veth has two such places. Its *ring* (256 frames, there only while the port polls): what does not fit is counted by
both ends of the cable, as dropped on the way out and on the way in. The *backlog* of a core (1,000 frames), where
packets are handed to another core: what does not fit is counted by the receiving end alone, and by the core. Both are
the input queue of whoever owns the receiving port: the device's between the ends, the tester's own at B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sojourn.bed.model import Link
    from sojourn.conduct.counters import Counts


def located(link: Link, counted: Counts) -> dict[str, dict[str, int]]:
    """Frames that the ring and the backlog of each receiving port had no room for; ports without any are left out."""
    found: dict[str, dict[str, int]] = {}
    for cable in (*link.cables, *link.further_cables):
        if cable.left.dev not in counted or cable.right.dev not in counted:
            continue
        ring = counted[cable.left.dev]["tx_dropped"]
        backlog = max(0, counted[cable.right.dev]["rx_dropped"] - ring)
        if ring or backlog:
            found[cable.right.dev] = {"ring": ring, "backlog": backlog}
    return found
