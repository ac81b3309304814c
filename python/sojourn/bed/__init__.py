"""The bed: hosts, links and the devices under test, built on this machine and removed without a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.lazy import names_of

if TYPE_CHECKING:
    from sojourn.bed.build import Bed, build_bed
    from sojourn.bed.emulated import Emulated, LinkSpec
    from sojourn.bed.hosts import Host
    from sojourn.bed.model import BedSpec, BoxSpec, HostSpec, Link, PathSpec, Topology
else:
    __getattr__ = names_of(
        __name__,
        {
            ".build": ("Bed", "build_bed"),
            ".emulated": ("Emulated", "LinkSpec"),
            ".hosts": ("Host",),
            ".model": ("BedSpec", "BoxSpec", "HostSpec", "Link", "PathSpec", "Topology"),
        },
    )

__all__ = [
    "Bed",
    "BedSpec",
    "BoxSpec",
    "Emulated",
    "Host",
    "HostSpec",
    "Link",
    "LinkSpec",
    "PathSpec",
    "Topology",
    "build_bed",
]
