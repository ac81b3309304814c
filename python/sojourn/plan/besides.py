"""Further probes during a trial, each series with its own kind and DSCP. Pure.

Each series is a block of its own, numbered after those of all trials; its cell is numbered after all cells.
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
"""Kinds of probes with a DSCP, whose replies are as long as their requests."""

UNMARKED = "BE"


@dataclass(frozen=True, slots=True)
class Beside:
    """One further series of probes."""

    probe: str
    dscp: int

    @property
    def name(self) -> str:
        """The series in the notation of plans."""
        return f"{self.probe} {name_of(self.dscp)}"


def beside_of(words: str) -> Beside | None:
    """Parse a kind of probe and, after it, a DSCP: "udp/ping-pong EF"; None if malformed."""
    probe, _, mark = words.partition(" ")
    dscp = code_of(mark or UNMARKED)
    return Beside(probe, dscp) if probe in PROBES and dscp is not None else None


def read(value: Any) -> str | None:
    """Return a series in its canonical notation; None if malformed."""
    found = beside_of(value) if isinstance(value, str) else None
    return None if found is None else found.name


BESIDE = Reader(read, f'a probe and its DSCP, such as "udp/ping-pong EF": {", ".join(PROBES)}; {EXPECTED}')


def trial_of(trial: Trial[Any], own: Beside, turn: int, planned: tuple[int, int], mtu: int) -> Trial[Any]:
    """Return the block of series `turn` (from 1) of a trial, as a trial of its own.

    `planned`: the numbers of trials and of cells.
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
