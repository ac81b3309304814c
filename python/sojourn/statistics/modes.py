"""Find the modes of a sample: a smoothed density and the depth of its valleys.

Conservative on purpose: a second mode must hold a share of the sample and be separate from the first, and the valley
between them must be deeper than chance explains. Coarse clock ticks do not make modes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRID = 512
LEAST_SHARE = 0.04
"""A mode with less of the sample is a tail, not a mode."""

DEEPEST_VALLEY = 0.6
"""The valley's height over the lower of its two modes must be below this."""

CHANCE = 5.0
"""The least depth of the valley, in standard deviations of its count."""


FOOT = 0.02


def foot(values: NDArray[np.float64]) -> float:
    """Return where the fastest mode begins: the 2 % quantile, which lies in it if slower modes have less than 98 %.

    Beds and paths are aligned by it: their medians jump from one mode to the next where shares differ.
    """
    return float(np.quantile(values, FOOT))


def find_modes(values: NDArray[np.float64]) -> list[float]:
    """Return the locations of the modes in rising order: one for a unimodal sample."""
    low, high = np.quantile(values, [0.002, 0.99])
    kept = np.sort(values[(values >= low) & (values <= high)])
    if len(kept) < 100 or kept[-1] <= kept[0]:
        return [float(np.median(values))]
    width = _bandwidth(kept)
    grid, density = _density(kept, width)
    peaks = _peaks(density)
    while len(peaks) > 1:
        weakest = _weakest_valley(density, peaks, kept, grid, width)
        if weakest is None:
            break
        peaks.remove(weakest)
    return [float(grid[peak]) for peak in peaks]


def _bandwidth(ordered: NDArray[np.float64]) -> float:
    # Narrow enough to separate two modes (by the spread of the denser half, not of all), never finer than the clock
    # tick.
    n = len(ordered)
    half = n // 2
    densest = float((ordered[half:] - ordered[: n - half]).min()) / 1.349
    whole = float(np.std(ordered))
    steps = np.diff(np.unique(ordered))
    tick = float(steps.min()) if len(steps) else 0.0
    return float(max(1.06 * min(densest, whole) * n**-0.2, 1.5 * tick, 1e-9))


def _density(ordered: NDArray[np.float64], width: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return counts per grid cell, smoothed by a Gaussian of `width`; the grid's step follows from the width."""
    low, high = float(ordered[0]) - 4 * width, float(ordered[-1]) + 4 * width
    cells = int(min(max(GRID, 4 * (high - low) / width), 1 << 16))
    counts, edges = np.histogram(ordered, bins=cells, range=(low, high))
    step = float(edges[1] - edges[0])
    frequency = np.asarray(fft.rfftfreq(2 * cells, d=step))
    smooth = fft.irfft(fft.rfft(counts, 2 * cells) * np.exp(-2 * (np.pi * frequency * width) ** 2), 2 * cells)
    return edges[:-1] + step / 2, np.maximum(np.asarray(smooth[:cells], dtype=np.float64), 0.0)


def _peaks(density: NDArray[np.float64]) -> list[int]:
    inner = np.flatnonzero((density[1:-1] > density[:-2]) & (density[1:-1] >= density[2:])) + 1
    return [int(i) for i in inner if density[i] > 0.01 * density.max()]


def _weakest_valley(
    density: NDArray[np.float64],
    peaks: list[int],
    ordered: NDArray[np.float64],
    grid: NDArray[np.float64],
    width: float,
) -> int | None:
    """Return the peak to drop because a valley beside it is too shallow or it holds too little, or None if all are
    valid."""
    worst, drop = 0.0, None
    valleys = [left + int(density[left:right].argmin()) for left, right in pairwise(peaks)]
    borders = [0, *np.searchsorted(ordered, grid[valleys]).tolist(), len(ordered)]
    step = float(grid[1] - grid[0])
    for left, right, valley in zip(peaks[:-1], peaks[1:], valleys, strict=True):
        lower = left if density[left] < density[right] else right
        place = peaks.index(lower)
        share = (borders[place + 1] - borders[place]) / len(ordered)
        depth = float(density[valley] / density[lower])
        # Counts within one smoothing width, at the mode and in the valley, vary like Poisson counts.
        per_width = 2 * width / step
        mode, gap = float(density[lower]) * per_width, float(density[valley]) * per_width
        clear = (mode - gap) / max((mode + gap) ** 0.5, 1e-9)
        badness = max(depth / DEEPEST_VALLEY, LEAST_SHARE / max(share, 1e-9), CHANCE / max(clear, 1e-9))
        if badness > max(worst, 1.0):
            worst, drop = badness, lower
    return drop
