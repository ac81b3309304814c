"""How long a frame takes on a link: what is subtracted from delays on request."""

from __future__ import annotations

LEAST_FRAME_BYTES, AROUND_FRAME_BYTES = 60, 12
"""What a frame without FCS is padded to; FCS, preamble and start delimiter."""


def serialisation_ns(length_bytes: int, rate_bps: int | None) -> int:
    """The time of a frame of this length without FCS on a link, 0 without one; whole ns, as the instrument has it."""
    bits = 8 * (max(length_bytes, LEAST_FRAME_BYTES) + AROUND_FRAME_BYTES)
    return bits * 10**9 // rate_bps if rate_bps else 0
