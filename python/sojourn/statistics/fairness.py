"""Fairness of classes on one link: how far a class lags behind its share while all are backlogged, and its limit.

While all classes are backlogged, generalised processor sharing gives each its weight's share of what is sent, from any
moment on. A class's lag over an interval is its share of what was sent minus what it sent; it depends only on the order
of packets and their sizes. A sub-queue of one flow is a class here. Sizes are in bytes; weights are relative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def all_backlogged(
    entered: NDArray[np.int64], left: NDArray[np.int64], classes: NDArray[np.int64], several: int
) -> list[slice]:
    """Return the slices of packets, in the order of departure, that were sent while every class was backlogged.

    Classes are numbered from 0; a packet of no class (-1) ends a slice. A class is backlogged while a packet of it
    waits that is not yet on the link: some schedulers remove a class that has nothing behind that packet.
    """
    n = len(left)
    if n < 2:
        return []
    waits = classes[1:] >= 0  # at each departure but the last: the next packet is just on the link
    for one in range(several):
        own = np.flatnonzero(classes == one)
        behind = np.searchsorted(own, np.arange(n - 1) + 1, side="right")
        there = behind < len(own)
        waits &= there
        waits[there] &= entered[own[behind[there]]] < left[:-1][there]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], waits, [False]]).astype(np.int8)))
    return [slice(int(a) + 1, int(b) + 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def shortfalls(classes: NDArray[np.int64], sizes: Floats, weights: Sequence[float]) -> Floats:
    """Return each class's largest lag behind its share over any interval of a slice, in bytes."""
    sent = np.cumsum(sizes)
    found = []
    for one, weight in enumerate(weights):
        own = np.cumsum(np.where(classes == one, sizes, 0.0))
        behind = np.concatenate([[0.0], weight / sum(weights) * sent - own])
        found.append(float((behind - np.minimum.accumulate(behind)).max()))
    return np.array(found)


def wf2q_bounds(weights: Floats, largest: Floats, quantum: float) -> Floats:
    """Return WF2Q+'s bounds: L_i + (L_max - L_i) w_i / W after a packet of i has left (Bennett and Zhang, 1997).

    Before the packet leaves, the lag is larger by the packet minus its own share.
    """
    del quantum
    share = weights / weights.sum()
    return np.asarray(largest + (largest.max() - largest) * share + (1 - share) * largest, dtype=np.float64)


def rounds_bounds(weights: Floats, largest: Floats, turns: float) -> Floats:
    """Return bounds for round robin: of two classes, one is ahead by at most some turns by weight and a packet of each.

    |W_j / w_j - W_i / w_i| <= turns + L_i / w_i + L_j / w_j; the lag is the weighted sum of that over all others.
    """
    pairs = turns + (largest / weights)[:, None] + (largest / weights)[None, :]
    products = np.outer(weights, weights) * pairs / weights.sum()
    return np.asarray(products.sum(axis=1) - np.diag(products), dtype=np.float64)


BOUNDS: dict[str, Callable[[Floats, Floats, float], Floats]] = {
    "wf2q": wf2q_bounds,
    "drr": rounds_bounds,
    # A newly backlogged sub-queue is served before the others once: one more turn.
    "fq-codel": lambda weights, largest, quantum: rounds_bounds(weights, largest, 2 * quantum),
}
"""The limit of a class's lag in bytes, from weights, largest packets, and the quantum of a class of weight 1."""
