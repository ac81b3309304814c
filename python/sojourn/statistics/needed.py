"""How many packets, losses or seconds a test needs to see what it is to see: formulas, not guesses.

`alpha` is the chance of a false alarm that one test may have, both sides together.
"""

from __future__ import annotations

import math

from scipy import special


def for_share(share: float, within: float, alpha: float, inflation: float = 1.0) -> int:
    """Packets until a share is known to ± `within` (relative); `inflation` of the variance where losses cluster."""
    z = float(special.ndtri(1 - alpha / 2))
    return math.ceil(z**2 * (1 - share) / (share * within**2) * inflation)


def for_distribution(band: float, alpha: float) -> int:
    """Packets until chance moves a distribution by at most `band` (Dvoretzky, Kiefer and Wolfowitz)."""
    return math.ceil(math.log(2 / alpha) / (2 * band**2))


def for_quantile(q: float, within: float, alpha: float) -> int:
    """Packets until the rank of quantile `q` is known to ± `within`, and at least ten beyond it."""
    z = float(special.ndtri(1 - alpha / 2))
    return max(math.ceil(z**2 * q * (1 - q) / within**2), math.ceil(10 / (1 - q)))


def for_mean(sd: float, within: float, alpha: float) -> int:
    """Packets until a mean is known to ± `within`, both in one unit."""
    z = float(special.ndtri(1 - alpha / 2))
    return math.ceil((z * sd / within) ** 2)


def for_rate(timing_ns: float, within: float) -> float:
    """Nanoseconds of backlog until the error of its two ends is `within` of the rate."""
    return 2 * timing_ns / within
