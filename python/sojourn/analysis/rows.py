"""The tidy results table: one row per reported figure, each with its factors, interval, unit and source."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.analysis.factors import Factors

if TYPE_CHECKING:
    from sojourn.analysis.statistics.interval import Interval


@dataclass(slots=True)
class Row:
    """A figure: of which device (against which reference, or None for the whole path), which statistic of what."""

    device: str
    quantity: str
    statistic: str
    value: Interval
    unit: str
    reference: str | None = None
    factors: Factors = field(default_factory=Factors)
    cell: int | None = None
    probes: int = 0
    clock: str = ""
    source: str = ""
    q_value: float | None = None
    findings: list[str] = field(default_factory=list)

    def tidy(self) -> dict[str, Any]:
        """The row as results.json holds it; what is not a number is null."""
        return {
            "device": self.device,
            "reference": self.reference,
            **asdict(self.factors),
            "quantity": self.quantity,
            "statistic": self.statistic,
            "estimate": finite(self.value.estimate),
            "ci_low": finite(self.value.low),
            "ci_high": finite(self.value.high),
            "level": self.value.level,
            "unit": self.unit,
            "n": self.value.n,
            "probes": self.probes,
            "q_value": finite(self.q_value),
            "cell": self.cell,
            "clock": self.clock,
            "source": self.source,
            "findings": self.findings,
        }


def finite(value: float | None) -> float | None:
    """The number, or None where it is none (JSON knows no NaN)."""
    return value if value is not None and math.isfinite(value) else None
