"""Losses by a hidden Markov chain (Bernoulli, Gilbert, Elliott, Salsano's four states): the expected observations.

A state loses a packet with its own probability; after each packet the chain takes a step. From this follow the loss
ratio, its variance over n packets, the correlation at any lag, and the mean burst length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Chain:
    """Transition probabilities from row to column, and the loss probability of each state."""

    moves: NDArray[np.float64]
    loses: NDArray[np.float64]

    @cached_property
    def stationary(self) -> NDArray[np.float64]:
        """The share of time that the chain spends in each state."""
        n = len(self.loses)
        equations = np.vstack([self.moves.T - np.eye(n), np.ones(n)])
        wanted = np.concatenate([np.zeros(n), [1.0]])
        found = np.linalg.lstsq(equations, wanted, rcond=None)[0]
        return np.asarray(np.clip(found, 0.0, 1.0) / np.clip(found, 0.0, 1.0).sum(), dtype=np.float64)

    @property
    def loss(self) -> float:
        """The loss ratio."""
        return float(self.stationary @ self.loses)

    @property
    def is_renewal(self) -> bool:
        """Whether the loss reveals the state, so that run lengths are independent and geometric."""
        told = len(self.loses) == 2 and bool(np.isin(self.loses, (0.0, 1.0)).all()) and len(set(self.loses)) == 2
        return len(self.loses) == 1 or told

    def both(self, lag: int) -> float:
        """Return the probability that a packet and the one `lag` later are both lost."""
        ahead = np.linalg.matrix_power(self.moves, lag) @ self.loses
        return float((self.stationary * self.loses) @ ahead)

    def correlation(self, lag: int) -> float:
        """Return the correlation of losses `lag` packets apart."""
        spread = self.loss * (1 - self.loss)
        return (self.both(lag) - self.loss**2) / spread if spread > 0 else 0.0

    @property
    def inflation(self) -> float:
        """The variance of a long run's loss ratio, over that of independent losses."""
        n, spread = len(self.loses), self.loss * (1 - self.loss)
        if spread <= 0:
            return 1.0
        # The sum of the covariances over all lags, by the fundamental matrix of the chain.
        fundamental = np.linalg.inv(np.eye(n) - self.moves + np.outer(np.ones(n), self.stationary))
        later = (self.moves @ fundamental) @ (self.loses - self.loss)
        return max(1e-9, 1 + 2 * float((self.stationary * self.loses) @ later) / spread)

    def ends(self, lost: bool) -> float:
        """Return, for a renewal process, the probability that a run (of losses, or of none) ends at each packet."""
        if len(self.loses) == 1:
            return float(1 - self.loses[0]) if lost else float(self.loses[0])
        state = int(np.flatnonzero(self.loses == float(lost))[0])
        return float(1 - self.moves[state, state])


def bernoulli(probability: float) -> Chain:
    """Return a chain of independent losses."""
    return Chain(np.ones((1, 1)), np.array([probability]))


def gilbert_elliott(p: float, r: float, h: float, k: float) -> Chain:
    """Return Gilbert and Elliott's chain: good to bad with `p`, back with `r`; delivery with `k` in good, `h`
    in bad."""
    return Chain(np.array([[1 - p, p], [r, 1 - r]]), np.array([1 - k, 1 - h]))


def four_states(p13: float, p31: float, p23: float, p32: float, p14: float) -> Chain:
    """Return Salsano, Ludovici and Ordine's chain: good, received within a burst, lost within a burst, lost alone."""
    moves = [
        [1 - p13 - p14, 0.0, p13, p14],
        [0.0, 1 - p23, p23, 0.0],
        [p31, p32, 1 - p31 - p32, 0.0],
        [1.0, 0.0, 0.0, 0.0],
    ]
    return Chain(np.array(moves), np.array([0.0, 0.0, 1.0, 1.0]))


def dwelling(good_ns: float, bad_ns: float, interval_ns: float) -> Chain:
    """Return a chain with exponential dwell times in good and bad, sampled by packets at this interval."""
    left = np.exp(-interval_ns * (1 / good_ns + 1 / bad_ns))
    bad = bad_ns / (good_ns + bad_ns)
    into, back = bad * (1 - left), (1 - bad) * (1 - left)
    return Chain(np.array([[1 - into, into], [back, 1 - back]]), np.array([0.0, 1.0]))
