"""The tidy results table: one row per reported figure, each with its factors, interval, unit and source.

Columns of streams are at the end, null where they do not apply. A percentile whose estimate is null is infinite: too
many frames were lost; a null upper end beside a lower end is infinite for the same reason.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from sojourn.analysis.factors import Factors

if TYPE_CHECKING:
    from sojourn.statistics.interval import Interval


FACTORS = tuple(one.name for one in fields(Factors))
STREAM_FACTORS = ("kind", "engine", "rate_pps", "rate_share", "to", "senders", "receivers", "load", "load_via", "pipe")
"""The factors that only cells of streams have: they are at the end of a row."""


SPREADS = ("sd", "within_bed", "between_beds")
"""Quantities and statistics that an offset between clocks does not affect: it is common to all their values."""


RATES = ("1/s", "bit/s", "1/min")
"""Units of figures that cannot be negative, except as a difference."""

SHARES = (
    "utilisation", "retransmitted", "fairness", "share", "converged", "dropped", "marked", "probe_loss",
    "window_limited", "efficiency", "spurious", "ecn_echoed", "limited",
    "background_utilisation", "background_lost", "background_retransmitted",
    "share_by_rtt", "fairness_by_rtt", "retransmitted_by_rtt",
)  # fmt: skip
AMOUNTS = (
    "back_to_back_frames", "baseline_rtt", "bandwidth_delay_product", "throughput_ratio", "window_bytes",
    "transfer_time_ratio", "timeouts", "ssthresh_changes", "losses", "standing_queue", "mathis_ratio", "cubic_ratio",
    "background_completion", "background_delay", "tcp_rtt",
)  # fmt: skip
LARGEST = dict.fromkeys(SHARES, 1.0) | dict.fromkeys(AMOUNTS, math.inf)
"""Quantities that cannot be negative, with the largest possible value of each."""


@dataclass(frozen=True, slots=True)
class LogSetting:
    """The traffic under which the log of TCP's state was measured, and how: columns of such rows only."""

    path: str | None = None
    flows: int | None = None
    where: str | None = None
    packets_per_log: int | None = None


@dataclass(frozen=True, slots=True)
class LoadSetting:
    """The TCP flows during which round trips were measured: columns of such rows only."""

    flows: int
    direction: str
    congestion: str
    round_trips: str | None = field(default=None, kw_only=True)
    """The round trips that the flows have in turn without the queue; None: all have that of the pipe."""
    background: str | None = field(default=None, kw_only=True)
    """The background traffic on the path."""
    scenario: str | None = field(default=None, kw_only=True)
    """The plan's name of the combination."""


@dataclass(frozen=True, slots=True)
class MarkedSetting(LoadSetting):
    """The flows, and the DSCP of the probes: for rows whose probes ran beside others."""

    dscp: str


@dataclass(frozen=True, slots=True)
class WindowSetting(LoadSetting):
    """TCP transfers with a window of all connections together, over the bandwidth-delay product."""

    window: float


@dataclass(slots=True)
class Row:
    """A figure: its device (and reference, or None for the whole path), quantity and statistic.

    `against` names the subtracted cell of the same path: "load=0.0", "to=unicast". `port` is the receiver's, `node` the
    answering one's. The clock's errors are set for times between two clocks, and are 0 for one clock.
    """

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
    clock_bound_ns: float | None = None
    clock_error95_ns: float | None = None
    against: str | None = None
    port: int | None = None
    node: int | None = None
    setting: LogSetting | LoadSetting | None = None
    sessions: int | None = None
    """The number of rebuilt beds behind the figure; None where a run has one."""
    scatter: Interval | None = None
    """The interval of the scatter alone, where `value` also includes an error of the clocks, or was clipped to the
    possible range; None where `value` is that interval."""

    def __post_init__(self) -> None:
        """Clip the interval to the possible range of a rate, spread or share: a mean of few values may exceed it."""
        most = LARGEST.get(self.quantity)
        if (self.unit in RATES or self.statistic == "sd") and self.reference is None and self.against is None:
            most = math.inf
        if most is not None and (possible := self.value.within(0.0, most)) is not self.value:
            self.scatter, self.value = self.value, possible

    @property
    def sampled(self) -> Interval:
        """The value with the interval of its scatter alone, for budgets."""
        return self.value if self.scatter is None else self.scatter

    def between_clocks(self, bound_ns: float | None, error95_ns: float | None) -> None:
        """Set the clock errors of a delay; the interval of a location (not of a spread) includes the 95 % error."""
        self.clock_bound_ns, self.clock_error95_ns = bound_ns, error95_ns
        is_place = self.unit == "ns" and self.quantity not in SPREADS and self.statistic not in SPREADS
        if error95_ns and is_place and math.isfinite(self.value.estimate):
            self.scatter, self.value = self.value, self.value.widened(error95_ns)

    def tidy(self) -> dict[str, Any]:
        """Return the row as in results.json; NaN and infinity are null."""
        factors = {name: getattr(self.factors, name) for name in FACTORS}
        of_streams = {name: factors.pop(name) for name in STREAM_FACTORS}
        return {
            "device": self.device,
            "reference": self.reference,
            **factors,
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
            "clock_bound_ns": finite(self.clock_bound_ns),
            "clock_error95_ns": finite(self.clock_error95_ns),
            "against": self.against,
            "port": self.port,
            "node": self.node,
            **of_streams,
            "sessions": self.sessions,
            **({} if self.setting is None else asdict(self.setting)),
        }


def over_beds(row: Row) -> str:
    """Return the number of beds, within a sentence; empty for one bed."""
    return "" if row.sessions is None else f" over {row.sessions} beds"


def finite(value: float | None) -> float | None:
    """Return the number, or None where it is not finite (JSON knows no NaN)."""
    return value if value is not None and math.isfinite(value) else None
