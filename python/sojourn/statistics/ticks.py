"""Find the part of a delay's errors that is periodic with a clock's tick.

A delay that is only checked on ticks has a quantisation error: it falls by a nanosecond each nanosecond until the next
tick. It is tested in two ways, since a regular stream and a tick beat with each other: by the time of arrival at the
usual ticks (allowing for clock drift), and by the packet number at any period. The result is the height of the
quantisation error: π times the amplitude of its first harmonic. A stream whose interval is a multiple of the tick
always meets it at the same phase, and shows a constant error instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TICKS_NS = (10e6, 4e6, 10e6 / 3, 2e6, 1e6, 5e5, 2.5e5, 1e5, 5e4)
"""Ticks of 100, 250, 300, 500 and 1000 Hz, and of two, four, ten and twenty times 1000 Hz."""

RUNS_OFF = 60e-6
"""The relative tolerance of a tick's period: that of quartz."""

MOST_STEPS = 120
MOST_PACKETS = 20_000
LEAST = 50


@dataclass(frozen=True, slots=True)
class Tick:
    """The strongest periodic part: its height, its period (in time or in packets), and the p that there is none."""

    height: float
    spread: float
    looked: int
    period_ns: float | None
    packets: float | None
    p: float
    n: int

    def within(self, alpha: float) -> Interval:
        """Return the height with its interval, which misses the true one with at most about `alpha`."""
        reach = self.spread * float((2 * np.log(2 * self.looked / alpha)) ** 0.5)
        low = 0.0 if self.p > alpha else max(0.0, self.height - reach)
        return Interval(self.height, low, self.height + reach, 1 - alpha, self.n)


def find_tick(times: Sequence[NDArray[np.float64]], errors: Sequence[NDArray[np.float64]]) -> Tick | None:
    """Return the strongest periodic part of errors over times (ns), each pair of rows a trial; None if too few.

    Outliers are clipped: a stall is no tick. Each trial has its own phase, so powers are added instead of amplitudes.
    Long trials are truncated: the beginning of each is enough.
    """
    most = max(LEAST, MOST_PACKETS // max(1, len(times)))
    long = [(t[:most], e[:most]) for t, e in zip(times, errors, strict=True) if len(t) >= LEAST]
    if not long:
        return None
    widths = [float(np.subtract(*np.quantile(e, [0.75, 0.25]))) for _, e in long]
    widest = 2 * median_low(widths)
    kept = [(t - t[0], _drawn_in(e, 3 * max(1.0, min(own, widest)))) for (t, e), own in zip(long, widths, strict=True)]
    n = sum(len(t) for t, _ in kept)
    variance = sum(float(np.square(e).sum()) for _, e in kept) / n
    if variance <= 0:
        return Tick(0.0, 0.0, 1, None, None, 1.0, n)
    found = [_at_tick(kept, tick) for tick in TICKS_NS] + [_at_numbers([e for _, e in kept])]
    strongest = max(found, key=lambda one: one.power)
    looked = sum(one.looked for one in found)
    excess = max(0.0, strongest.power - n * variance)
    amplitude = 2 * (excess / sum(len(e) ** 2 for _, e in kept)) ** 0.5
    p = min(1.0, looked * float(special.gammaincc(len(kept), strongest.power / variance * len(kept) / n)))
    spread = float(np.pi * (2 * variance / n) ** 0.5)
    return Tick(float(np.pi * amplitude), spread, looked, strongest.period_ns, strongest.packets, p, n)


@dataclass(frozen=True, slots=True)
class _Strongest:
    """The largest power among all candidate periods, and its period."""

    power: float
    looked: int
    period_ns: float | None = None
    packets: float | None = None


def _drawn_in(errors: NDArray[np.float64], reach: float) -> NDArray[np.float64]:
    """Return the errors about their mean, clipped to `reach` from the median.

    `reach` is three times the interquartile range of the trial. The errors of ticks are all within it; stalls, which
    delay many packets in a row, are not, and would look periodic. A stall may take up more than a quarter of its own
    trial: so the range used is at most twice that of the median trial.
    """
    middle = float(np.median(errors))
    clipped = np.clip(errors, middle - reach, middle + reach)
    return np.asarray(clipped - clipped.mean(), dtype=np.float64)


def _at_tick(trials: list[tuple[NDArray[np.float64], NDArray[np.float64]]], tick: float) -> _Strongest:
    """Return the strongest period around one tick: periods within the clock's tolerance, resolved for the longest
    trial."""
    longest = max(float(t[-1]) for t, _ in trials)
    several = min(MOST_STEPS, int(4 * RUNS_OFF * longest / tick) + 1)
    found = (0.0, tick)
    for off in np.linspace(-RUNS_OFF, RUNS_OFF, several) if several > 1 else (0.0,):
        period = tick * (1 + float(off))
        power = sum(abs(np.dot(np.exp(2j * np.pi * np.mod(t / period, 1.0)), e)) ** 2 for t, e in trials)
        found = max(found, (float(power), period))
    return _Strongest(found[0], several, period_ns=found[1])


def _at_numbers(errors: list[NDArray[np.float64]]) -> _Strongest:
    """Return the strongest period in packets, up to a twentieth of a trial: slower changes are drift."""
    n = max(len(e) for e in errors)
    spectrum = sum(np.abs(np.fft.rfft(e, n)) ** 2 for e in errors)
    known = np.asarray(spectrum, dtype=np.float64)[20:]
    if not len(known):
        return _Strongest(0.0, 1)
    place = int(known.argmax())
    return _Strongest(float(known[place]), len(known), packets=n / (place + 20))
