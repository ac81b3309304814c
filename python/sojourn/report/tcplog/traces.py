"""The samples of one flow as steps, spans and marks over time, thinned for a screen. Knows no charts.

Seconds count from the first sample of all flows in the figure. Values that the kernel marks as unknown (an infinite
threshold, no round trip yet, no pacing) are left out, and never drawn as numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.tcplog.thinning import COLUMNS, changes, counted, merged, spans_where, thin, with_holes

if TYPE_CHECKING:
    from collections.abc import Iterable

RECOVERY, LOSS = 3, 4
INFINITE = 2**31 - 1
UNSET_US = 2**32 - 1
"""The kernel's minimum RTT before the first round trip."""

RATES = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
SIZES = ((1e6, "MB"), (1e3, "kB"), (1.0, "B"))
TIMES = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))
SQUEEZED = 15
"""The ratio of the highest to the median value above which a linear axis would squeeze the rest into a line."""


@dataclass(frozen=True)
class Steps:
    """Quantities that share an axis: rows of `series`, t (s), v (in `unit`), each valid until the next."""

    title: str
    unit: str
    rows: pl.DataFrame
    series: tuple[str, ...]

    @property
    def is_squeezed(self) -> bool:
        """Whether a few values would squeeze the rest into a line."""
        low, middle, high = _spread(self.rows["v"])
        return low > 0 and high > SQUEEZED * middle

    @property
    def decades(self) -> float:
        """The number of decades between the lowest and the highest positive value."""
        low, _, high = _spread(self.rows["v"])
        return math.log10(high / low) if low > 0 else 0.0


@dataclass(frozen=True)
class Traces:
    """The traces of one flow that are drawn."""

    steps: tuple[Steps, ...]
    spans: pl.DataFrame
    """what (recovery, loss, skipped), low, high."""
    marks: pl.DataFrame
    """what (retransmitted, timeout), t, n."""
    samples: int
    is_thinned: bool


def traces_of(samples: pl.DataFrame, gaps: pl.DataFrame, start_ns: int, span: tuple[float, float]) -> Traces:
    """Return the traces of one flow's samples, in time order; `gaps` are the log's."""
    rows = samples.with_columns(t=(pl.col("time_ns") - start_ns) / 1e9)
    panels = (_windows(rows), _round_trips(rows), _rates(rows), _receiver(rows))
    steps = tuple(filter(None, (_scaled(*panel, span) for panel in panels)))
    thinned = any(changes(one) > 4 * COLUMNS for *_, found in panels for one in found.values())
    return Traces(steps, _spans(rows, gaps, start_ns, span), _marks(rows, span), rows.height, thinned)


Panel = tuple[str, tuple[tuple[float, str], ...], dict[str, pl.DataFrame]]


def _windows(rows: pl.DataFrame) -> Panel:
    """The windows in segments: what may be in flight, and what is."""
    in_flight = pl.col("packets_out") - pl.col("sacked_out") - pl.col("lost_out") + pl.col("retrans_out")
    by_bytes = pl.col("in_flight_bytes") / pl.col("mss_bytes").replace(0, None)
    peer = pl.col("snd_wnd_bytes") / pl.col("mss_bytes").replace(0, None)
    found = {
        "in flight": _steps(rows, pl.coalesce(in_flight, by_bytes)),
        "slow-start threshold": _steps(rows, _between("snd_ssthresh", -1, INFINITE)),
        "congestion window": _steps(rows, pl.col("snd_cwnd")),
    }
    limiting = rows.select("t", v=peer.round(1), shown=(peer < pl.col("snd_cwnd")) & (pl.col("snd_wnd_bytes") > 0))
    if limiting["shown"].any():
        found["peer's window"] = with_holes(limiting, pl.col("shown")).select("t", "v")
    return "Windows", ((1.0, "segments"),), found


def _round_trips(rows: pl.DataFrame) -> Panel:
    names = {"last sample": "rtt_last_us", "minimum": "rtt_min_us", "smoothed": "srtt_us"}
    found = {name: _steps(rows, _between(column, 0, UNSET_US)) for name, column in names.items()}
    return "Round trip", TIMES, found


def _rates(rows: pl.DataFrame) -> Panel:
    names = {"pacing rate": "pacing_rate_bps", "delivery rate": "delivery_rate_bps"}
    return "Rate", RATES, {name: _steps(rows, _between(column, 0)) for name, column in names.items()}


def _receiver(rows: pl.DataFrame) -> Panel:
    """Of an end that mostly receives: the window that it offers, and the received bytes not read yet."""
    last = rows.select(pl.col("received_bytes", "sent_bytes").max()).row(0) if rows.height else (0, 0)
    if (last[0] or 0) <= (last[1] or 0):
        return "Receiver", SIZES, {}
    names = {"waiting to be read": "rcv_queued_bytes", "window offered": "rcv_wnd_bytes"}
    return "Receiver", SIZES, {name: _steps(rows, pl.col(column)) for name, column in names.items()}


def _steps(rows: pl.DataFrame, value: pl.Expr) -> pl.DataFrame:
    return rows.select("t", v=value.cast(pl.Float64)).drop_nulls("v")


def _between(column: str, low: float, high: float = float("inf")) -> pl.Expr:
    """The values strictly between the bounds; others mark an unknown value."""
    value = pl.col(column).cast(pl.Float64)
    return pl.when((value > low) & (value < high)).then(value)


def _scaled(
    title: str, units: tuple[tuple[float, str], ...], found: dict[str, pl.DataFrame], span: tuple[float, float]
) -> Steps | None:
    """Return the panel, thinned, in the unit that suits its values; None if no value is known."""
    kept = {name: steps for name, steps in found.items() if steps["v"].drop_nulls().len()}
    if not kept:
        return None
    _, middle, high = _spread(pl.concat([steps["v"] for steps in kept.values()]))
    typical = middle if high > SQUEEZED * middle > 0 else high  # a single spike does not determine the unit
    size, unit = next((one for one in units if typical >= one[0]), units[-1])
    thinned = [
        thin(steps, span).select(series=pl.lit(name), t=pl.col("t").round(6), v=(pl.col("v") / size).round_sig_figs(5))
        for name, steps in kept.items()
    ]
    return Steps(title, unit, pl.concat(thinned), tuple(kept))


def _spread(values: pl.Series) -> tuple[float, float, float]:
    """Return the lowest, the median and the highest positive value."""
    known = values.filter(values > 0)
    low, middle, high = (float(known.quantile(share) or 0.0) for share in (0.0, 0.5, 1.0))
    return low, middle, high


def _spans(rows: pl.DataFrame, gaps: pl.DataFrame, start_ns: int, span: tuple[float, float]) -> pl.DataFrame:
    low, high = (
        ((pl.coalesce(name, other) - start_ns) / 1e9).clip(*span).alias(end)
        for end, name, other in (("low", "after_ns", "before_ns"), ("high", "before_ns", "after_ns"))
    )
    found = {
        "recovery": spans_where(rows, pl.col("ca_state") == RECOVERY),
        "loss": spans_where(rows, pl.col("ca_state") == LOSS),
        "skipped": gaps.select(low, high).drop_nulls(),
    }
    named = [merged(spans, span).select(pl.lit(what).alias("what"), "low", "high") for what, spans in found.items()]
    return pl.concat(named)


def _marks(rows: pl.DataFrame, span: tuple[float, float]) -> pl.DataFrame:
    """Return the increases of the kernel's counters from one sample to the next."""
    found = []
    for what, column in (("retransmitted", "total_retrans"), ("timeout", "total_rto")):
        known = rows.select("t", n=pl.col(column).cast(pl.Int64)).drop_nulls()
        grown = known.with_columns(n=pl.col("n").cum_max().diff()).filter(pl.col("n") > 0)
        found.append(counted(grown, span).select(pl.lit(what).alias("what"), "t", "n"))
    return pl.concat(found)


def span_of(frames: Iterable[pl.DataFrame]) -> tuple[int, tuple[float, float]]:
    """Return the time of the first sample of all, and the range of a time axis for all of them, in seconds."""
    ends = [(frame["time_ns"][0], frame["time_ns"][-1]) for frame in frames if frame.height]
    start = min((low for low, _ in ends), default=0)
    end = max((high for _, high in ends), default=start)
    return start, (0.0, max((end - start) / 1e9, 1e-6))
