"""Probes that run beside the main ones of a trial, each of a kind and with a DSCP of its own. Pure.

Each is a block of its own: it is numbered behind those of all trials, and its cell behind all cells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sojourn.plan.dscp import EXPECTED, code_of, name_of
from sojourn.plan.sizes import exceeds_mtu
from sojourn.plan.values import Reader

if TYPE_CHECKING:
    from sojourn.plan.trial import Trial

PROBES = ("icmp", "icmp6", "udp/ping-pong", "udp6/ping-pong")
"""Kinds that have a DSCP and answers as long as their requests."""

UNMARKED = "BE"


@dataclass(frozen=True, slots=True)
class Beside:
    """A further series of probes."""

    probe: str
    dscp: int

    @property
    def name(self) -> str:
        """As plans write it."""
        return f"{self.probe} {name_of(self.dscp)}"


def beside_of(words: str) -> Beside | None:
    """A kind of probe and, behind it, its DSCP: "udp/ping-pong EF"; None where it is none."""
    probe, _, mark = words.partition(" ")
    dscp = code_of(mark or UNMARKED)
    return Beside(probe, dscp) if probe in PROBES and dscp is not None else None


def read(value: Any) -> str | None:
    """The words of a further series of probes as they are kept."""
    found = beside_of(value) if isinstance(value, str) else None
    return None if found is None else found.name


BESIDE = Reader(read, f'a probe and its DSCP, such as "udp/ping-pong EF": {", ".join(PROBES)}; {EXPECTED}')


def trial_of(trial: Trial[Any], own: Beside, turn: int, planned: tuple[int, int], mtu: int) -> Trial[Any]:
    """The block of a further series, the number `turn` (from 1) of its trial's, as that of a trial of its own.

    `planned`: how many trials and cells there are.
    """
    payload = trial.factors.request_payload_bytes
    factors = replace(
        trial.factors,
        probe=own.probe,
        response_payload_bytes=payload,
        fragments=exceeds_mtu(own.probe, payload, mtu),
    )
    return replace(
        trial,
        block=trial.block + turn * planned[0],
        cell=trial.cell + turn * planned[1],
        seed=(trial.seed + turn) % 2**62,
        factors=factors,
    )
