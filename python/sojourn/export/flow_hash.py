"""The hash of a connection, from its endpoints alone: it is the same in every log, and at both ends."""

from __future__ import annotations

import hashlib
import ipaddress
from typing import TYPE_CHECKING, Any

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def hash_of(log: Path, ends: Mapping[str, Any]) -> str:
    """Return the hash of a log's flow; RequestError where the log is damaged."""
    try:
        return flow_hash(ends)
    except (ValueError, TypeError, OverflowError):
        raise RequestError(f"{log} is damaged: the ends of flow {ends['flow']} are no addresses and ports") from None


def flow_hash(ends: Mapping[str, Any]) -> str:
    """Return eight hexadecimal digits from a connection's addresses and ports; the same from either end."""
    sides = [
        ipaddress.ip_address(ends[f"{side}_address"]).packed + int(ends[f"{side}_port"]).to_bytes(2, "big")
        for side in ("local", "remote")
    ]
    return hashlib.sha256(b"".join(sorted(sides))).hexdigest()[:8]
