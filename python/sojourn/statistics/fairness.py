"""Classes that share a link: while all are backlogged, how far one falls behind its share, and how far it may.

While all classes are backlogged, generalised processor sharing gives each its weight's part of whatever is sent, from
any moment on. So a class's lag over an interval is its part of what was sent minus what it got; it depends on the order
of packets and their sizes alone. A sub-queue of one flow is a class here. Sizes are bytes; weights are relative.
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
    """The stretches of packets, as they left the link, that were sent while every class was backlogged.

    Classes are numbered from 0; a packet of none of them (-1) ends a stretch. A class is backlogged if a packet of it
    waits that is not yet on the link: some schedulers remove a class that has nothing behind the packet that is.
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
    """Of each class, the most by which it was behind its share over any interval of a stretch, in bytes."""
    sent = np.cumsum(sizes)
    found = []
    for one, weight in enumerate(weights):
        own = np.cumsum(np.where(classes == one, sizes, 0.0))
        behind = np.concatenate([[0.0], weight / sum(weights) * sent - own])
        found.append(float((behind - np.minimum.accumulate(behind)).max()))
    return np.array(found)


def wf2q_bounds(weights: Floats, largest: Floats, quantum: float) -> Floats:
    """WF2Q+ is worst-case fair to L_i + (L_max - L_i) w_i / W when a packet of i has left (Bennett and Zhang 1997).

    Before it leaves, it is that packet less what it takes of the share more behind.
    """
    del quantum
    share = weights / weights.sum()
    return np.asarray(largest + (largest.max() - largest) * share + (1 - share) * largest, dtype=np.float64)


def rounds_bounds(weights: Floats, largest: Floats, turns: float) -> Floats:
    """Where classes take turns: of two, one has at most some turns' bytes by weight more, and both a packet of each.

    |W_j / w_j - W_i / w_i| <= turns + L_i / w_i + L_j / w_j; the lag is the sum of that over all others, by weights.
    """
    pairs = turns + (largest / weights)[:, None] + (largest / weights)[None, :]
    products = np.outer(weights, weights) * pairs / weights.sum()
    return np.asarray(products.sum(axis=1) - np.diag(products), dtype=np.float64)


BOUNDS: dict[str, Callable[[Floats, Floats, float], Floats]] = {
    "wf2q": wf2q_bounds,
    "drr": rounds_bounds,
    # A sub-queue that has just become backlogged goes before the others, once: one turn more.
    "fq-codel": lambda weights, largest, quantum: rounds_bounds(weights, largest, 2 * quantum),
}
"""How far a class may be behind, in bytes: of weights, largest packets, and the quantum of a class of weight 1."""
