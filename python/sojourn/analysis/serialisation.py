"""The time of a frame on a link, which is subtracted from delays on request."""

from __future__ import annotations

LEAST_FRAME_BYTES, AROUND_FRAME_BYTES = 60, 12
"""The padded length of a frame without FCS; the bytes of FCS, preamble and start delimiter."""


def serialisation_ns(length_bytes: int, rate_bps: int | None) -> int:
    """Return the time of a frame of this length without FCS on a link, 0 without a rate; whole ns, as in the
    instrument."""
    bits = 8 * (max(length_bytes, LEAST_FRAME_BYTES) + AROUND_FRAME_BYTES)
    return bits * 10**9 // rate_bps if rate_bps else 0
