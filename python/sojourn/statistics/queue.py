"""A queueing simulation: one server that takes frames in order, its service times, and its stalls.

Waiting is Lindley's recursion, vectorised: the cumulative sum of service minus interval, minus its running minimum. A
frame's service is a fixed part plus an exponential one (fixed alone is M/D/1, exponential alone M/M/1). Stalls, in
which the server does nothing whatever the load, enter the same queue as extra work. A serialiser behind it takes the
same time for each frame. Where the queue is finite, frames that find it full are lost.

Delay is waiting plus a draw from the delays without waiting. `fit` finds the service whose delays are nearest
(Wasserstein) to the measured ones; it draws its random numbers once, from a seed, so that equal records give equal
results.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import optimize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

STALL_SPREADS = 20.0
"""A delay this many spreads above the median is a stall, not service."""

LEAST_STALLS = 12
"""With fewer stalled frames, stalls are not modelled, and the frames stay among the delays without waiting."""

START_SHARES = (0.3, 0.5, 0.65, 0.75, 0.82, 0.88, 0.93, 0.96, 0.98, 1.0)
"""Start values of the search: mean service over the shortest mean interval that the server kept up with."""


@dataclass(frozen=True, slots=True)
class Stalls:
    """Times at which the server stands still: their rate, and the distribution of their durations."""

    rate_hz: float
    durations_ns: NDArray[np.float64]
    chances: NDArray[np.float64]

    @property
    def mean_ns(self) -> float:
        """The mean duration."""
        return float(self.durations_ns @ self.chances)

    def draw(
        self, begin: float, end: float, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw the begins and durations of the stalls in a span."""
        count = int(rng.poisson(self.rate_hz * (end - begin) / 1e9))
        at = np.sort(rng.uniform(begin, end, count))
        return at, rng.choice(self.durations_ns, size=count, p=self.chances)


@dataclass(frozen=True, slots=True)
class Server:
    """The service of a frame: a fixed and a random part, a serialiser behind it; stalls; the size of the queue."""

    fixed_ns: float
    random_ns: float
    serialiser_ns: float = 0.0
    stalls: Stalls | None = None
    room: int | None = None

    @property
    def mean_ns(self) -> float:
        """The mean service time; its inverse is the capacity."""
        return self.fixed_ns + self.random_ns

    def waiting(self, entered: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        """Return how long each frame that enters at these times waits; infinite where the queue was full."""
        unit, stalled = rng.exponential(size=len(entered)), self.stalls_within(entered, rng)
        return _waiting(self, entered, unit, stalled)

    def stalls_within(
        self, entered: NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.stalls is None or not len(entered):
            return np.empty(0), np.empty(0)
        return self.stalls.draw(float(entered[0]), float(entered[-1]), rng)


@dataclass(frozen=True, slots=True)
class Passage:
    """The frames of one trial: their entry times, and their delays (infinity for lost ones)."""

    entered_ns: NDArray[np.float64]
    delay_ns: NDArray[np.float64]


def waits(entered: NDArray[np.float64], services: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each waiting time by Lindley's recursion; `entered` rises."""
    walk = np.zeros(len(entered))
    np.cumsum(services[:-1] - np.diff(entered), out=walk[1:])
    lowest: NDArray[np.float64] = np.minimum.accumulate(walk)
    return walk - np.minimum(lowest, 0.0)


def waits_with_room(entered: NDArray[np.float64], services: NDArray[np.float64], room: int) -> NDArray[np.float64]:
    """Return the same where at most `room` frames may wait or be served at once; others are lost (infinity)."""
    leaving: deque[float] = deque()
    waiting = np.full(len(entered), np.inf)
    last = -np.inf
    for i, (at, service) in enumerate(zip(entered.tolist(), services.tolist(), strict=True)):
        while leaving and leaving[0] <= at:
            leaving.popleft()
        if len(leaving) < room:
            begins = max(at, last)
            waiting[i] = begins - at
            last = begins + service
            leaving.append(last)
    return waiting


def split_stalls(delays: NDArray[np.float64]) -> tuple[NDArray[np.float64], Stalls | None]:
    """Return the delays without waiting, and the stalls that the slowest delays show (None where there are too few).

    A frame that arrives at a random time within a stall waits for the rest of it. The rests of stalls longer than the
    threshold have a density that falls like the share of stalls still longer (a renewal): its isotonic estimate gives
    their durations, its height at the threshold their rate.
    """
    kept = np.sort(delays[np.isfinite(delays)])
    median = float(np.median(kept))
    spread = max((median - float(np.quantile(kept, 0.1))) / 1.2816, 1e-3 * abs(median), 1.0)
    reach = STALL_SPREADS * spread
    rests = kept[kept > median + reach] - median - reach
    if len(rests) < LEAST_STALLS:
        return kept, None
    height, durations, chances = _durations(rests)
    share = len(rests) / len(kept)
    return kept[kept <= median + reach], Stalls(share * height * 1e9, reach + durations, chances)


def _durations(rests: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return the falling density's height at zero, and its falls: durations and their probabilities."""
    stride = int(np.ceil(len(rests) ** 0.5))
    edges = np.concatenate([[0.0], rests[stride - 1 :: stride]])
    edges = np.append(edges, rests[-1]) if edges[-1] < rests[-1] else edges
    widths = np.maximum(np.diff(edges), 1e-3)
    counts = np.diff(np.searchsorted(rests, edges, side="right"))
    fitted = optimize.isotonic_regression(counts / len(rests) / widths, weights=widths, increasing=False).x
    height = float(fitted[0])
    falls = np.append(fitted[:-1] - fitted[1:], fitted[-1]) / height
    used = falls > 0
    return height, edges[1:][used], falls[used] / falls[used].sum()


def fit(
    training: Sequence[Sequence[Passage]],
    server: Server,
    base: NDArray[np.float64],
    seed: int,
    start: Server | None = None,
) -> Server:
    """Return the service, fixed and random, whose delays are nearest to those of the training cells (some trials each).

    `server` gives the rest: serialiser, stalls, room. Only waiting times depend on service, so at least one cell must
    have queued; otherwise the estimate is any service without waiting. With `start` the search begins there only.
    """
    cells = _drawn(training, server, base, seed)

    def miss(parameters: NDArray[np.float64]) -> float:
        outside = abs(float(parameters[1]) - float(np.clip(parameters[1], 0.0, 1.0)))
        one = _server(server, parameters)
        return float(np.mean([_cell_miss(one, cell) for cell in cells])) * (1 + outside)

    if start is None:
        ceiling = _shortest_mean_interval(training)
        starts = [np.array([np.log(ceiling * part), share]) for part in START_SHARES for share in (0.02, 0.5, 0.98)]
        begins = sorted(starts, key=miss)[:2]
    else:
        begins = [np.array([np.log(max(start.mean_ns, 1.0)), start.random_ns / max(start.mean_ns, 1.0)])]
    found = [_descend(miss, at) for at in begins]
    return _server(server, min(found, key=lambda one: float(one.fun)).x)


def _server(like: Server, parameters: NDArray[np.float64]) -> Server:
    """Return the server with this logarithm of the mean service and this random share of it."""
    mean, share = float(np.exp(parameters[0])), float(np.clip(parameters[1], 0.0, 1.0))
    return replace(like, fixed_ns=mean * (1 - share), random_ns=mean * share)


def _drawn(
    training: Sequence[Sequence[Passage]], server: Server, base: NDArray[np.float64], seed: int
) -> list[list[_Drawn]]:
    return [
        [_Drawn.of(one, server, base, seed + 97 * i + j) for j, one in enumerate(cell)]
        for i, cell in enumerate(training)
    ]


def _descend(miss: Callable[[NDArray[np.float64]], float], at: NDArray[np.float64]) -> optimize.OptimizeResult:
    """Minimise by Nelder and Mead; the first steps are 3 % of the mean and a fifth of the random share."""
    aside = 0.2 if at[1] < 0.5 else -0.2
    simplex = np.stack([at, at + np.array([0.03, 0.0]), at + np.array([0.0, aside])])
    options: Any = {"xatol": 1e-4, "fatol": 1e-6, "maxfev": 100, "initial_simplex": simplex}
    return optimize.minimize(miss, at, method="Nelder-Mead", options=options)


def misfit(training: Sequence[Sequence[Passage]], server: Server, base: NDArray[np.float64], seed: int) -> float:
    """Return the distance of the server's delays from those of the cells, which `fit` minimises."""
    return float(np.mean([_cell_miss(server, cell) for cell in _drawn(training, server, base, seed)]))


def predict(
    entered: NDArray[np.float64], server: Server, base: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return delays of frames that enter at these times: waiting, plus a draw from the delays without waiting."""
    drawn: NDArray[np.float64] = rng.choice(base, size=len(entered))
    return server.waiting(entered, rng) + drawn


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A trial with the random numbers that every attempt to fit it uses."""

    passage: Passage
    order: NDArray[np.float64]
    scale: float
    unit: NDArray[np.float64]
    base: NDArray[np.float64]
    stalled: tuple[NDArray[np.float64], NDArray[np.float64]]

    @staticmethod
    def of(passage: Passage, server: Server, base: NDArray[np.float64], seed: int) -> _Drawn:
        rng = np.random.default_rng(seed)
        n = len(passage.entered_ns)
        arrived = np.sort(passage.delay_ns[np.isfinite(passage.delay_ns)])
        scale = max(float(np.mean(arrived)) - float(np.mean(base)), 0.0) + float(np.std(base)) + 1.0
        unit, drawn = rng.exponential(size=n), rng.choice(base, size=n)
        return _Drawn(passage, arrived, scale, unit, drawn, server.stalls_within(passage.entered_ns, rng))


def _cell_miss(server: Server, cell: list[_Drawn]) -> float:
    return float(np.mean([_miss(server, one) for one in cell]))


def _miss(server: Server, drawn: _Drawn) -> float:
    """Return the Wasserstein distance in units of the trial's own waiting and spread, plus the difference of losses."""
    delays = _waiting(server, drawn.passage.entered_ns, drawn.unit, drawn.stalled) + drawn.base
    predicted = np.sort(delays[np.isfinite(delays)])
    n, m = len(drawn.order), len(predicted)
    if not n or not m:
        return 1.0
    if n != m:
        predicted = np.quantile(predicted, (np.arange(n) + 0.5) / n, method="hazen")
    lost = abs(n - m) / len(delays)
    return float(np.mean(np.abs(predicted - drawn.order))) / drawn.scale + lost


def _waiting(
    server: Server,
    entered: NDArray[np.float64],
    unit: NDArray[np.float64],
    stalled: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> NDArray[np.float64]:
    services = server.fixed_ns + server.random_ns * unit
    at, durations = stalled
    if len(at):
        place = np.searchsorted(entered, at)
        entered, services = np.insert(entered, place, at), np.insert(services, place, durations)
        frames = np.delete(np.arange(len(entered)), place + np.arange(len(place)))
    else:
        frames = np.arange(len(entered))
    first = _first(server, entered, services)[frames]
    if not server.serialiser_ns:
        return first
    here = np.isfinite(first)
    out = entered[frames][here] + first[here] + services[frames][here]
    first[here] += waits(out, np.full(int(here.sum()), server.serialiser_ns))
    return first


def _first(server: Server, entered: NDArray[np.float64], services: NDArray[np.float64]) -> NDArray[np.float64]:
    return waits(entered, services) if server.room is None else waits_with_room(entered, services, server.room)


def _shortest_mean_interval(training: Sequence[Sequence[Passage]]) -> float:
    """Return the least mean time between received frames: the server's mean service is no longer than this."""
    spans = []
    for passage in (one for cell in training for one in cell):
        out = np.sort((passage.entered_ns + passage.delay_ns)[np.isfinite(passage.delay_ns)])
        if len(out) > 10:
            spans.append(float(out[-1] - out[0]) / (len(out) - 1))
    return min(spans, default=1000.0)
