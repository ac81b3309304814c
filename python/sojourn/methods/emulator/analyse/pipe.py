"""A pipe as configured, and its predictions: the distribution of delays, the chain of losses, the rate.

Reads the pipe as the emulator reports it (JSON; times in ns, probabilities from 0 to 1), independent of records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from sojourn.statistics.chain import Chain, bernoulli, dwelling, four_states, gilbert_elliott

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

HEADER_BYTES = 14
"""Corruption does not affect these bytes of a frame."""


@dataclass(frozen=True)
class Jitter:
    """The random part of a delay: its name and parameters (ns except for shapes)."""

    name: str
    told: Mapping[str, Any]

    def cdf(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of draws up to `x`."""
        return np.asarray(_CDFS[self.name](np.asarray(x, dtype=np.float64), self.told), dtype=np.float64)

    @property
    def mean(self) -> float:
        """The mean of the draws."""
        return _moments(self.name, self.told)[0]

    @property
    def sd(self) -> float:
        """The standard deviation of the draws; infinite for a Pareto distribution of a shape up to 2."""
        return _moments(self.name, self.told)[1]

    @property
    def is_continuous(self) -> bool:
        """Whether no single value has a positive probability."""
        return self.name not in ("empirical", "table")


def _uniform(x: NDArray[np.float64], told: Mapping[str, Any]) -> Any:
    return np.clip((x + told["spread"]) / (2 * told["spread"]), 0.0, 1.0)


def _normal(x: NDArray[np.float64], told: Mapping[str, Any]) -> Any:
    return special.ndtr(x / told["sd"])


def _exponential(x: NDArray[np.float64], told: Mapping[str, Any]) -> Any:
    return -np.expm1(-np.maximum(x, 0.0) / told["mean"])


def _pareto(x: NDArray[np.float64], told: Mapping[str, Any]) -> Any:
    return -np.expm1(-told["shape"] * np.log1p(np.maximum(x, 0.0) / told["scale"]))


def _gamma(x: NDArray[np.float64], told: Mapping[str, Any]) -> Any:
    return special.gammainc(told["shape"], np.maximum(x, 0.0) / told["scale"])


def _empirical(x: NDArray[np.float64], told: Mapping[str, Any]) -> NDArray[np.float64]:
    shares, values = (np.array(one, dtype=np.float64) for one in zip(*told["points"], strict=True))
    return np.where(x < values[0], 0.0, np.interp(x, values, shares))


def _table(x: NDArray[np.float64], told: Mapping[str, Any]) -> NDArray[np.float64]:
    values = told["sd"] * np.sort(np.array(told["values"], dtype=np.float64)) / 8192
    return np.searchsorted(values, x, side="right") / len(values)


_CDFS: dict[str, Any] = {
    "uniform": _uniform,
    "normal": _normal,
    "exponential": _exponential,
    "pareto": _pareto,
    "gamma": _gamma,
    "empirical": _empirical,
    "table": _table,
}


def _moments(name: str, told: Mapping[str, Any]) -> tuple[float, float]:
    """Return mean and standard deviation."""
    if name == "pareto":
        scale, shape = float(told["scale"]), float(told["shape"])
        mean = scale / (shape - 1) if shape > 1 else math.inf
        return mean, mean * math.sqrt(shape / (shape - 2)) if shape > 2 else math.inf
    if name == "empirical":
        return _piecewise(told["points"])
    if name == "table":
        values = told["sd"] * np.array(told["values"], dtype=np.float64) / 8192
        return float(values.mean()), float(values.std())
    if name in ("uniform", "normal"):
        return 0.0, float(told["sd"]) if name == "normal" else float(told["spread"]) / math.sqrt(3)
    if name == "gamma":
        return float(told["shape"] * told["scale"]), math.sqrt(told["shape"]) * float(told["scale"])
    return float(told["mean"]), float(told["mean"])


def _piecewise(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the moments of an inverse distribution with straight lines between its points."""
    shares, values = (np.array(one, dtype=np.float64) for one in zip(*points, strict=True))
    width, low, high = np.diff(shares), values[:-1], values[1:]
    mean = float((width * (low + high) / 2).sum() + shares[0] * values[0])
    square = float((width * (low**2 + low * high + high**2) / 3).sum() + shares[0] * values[0] ** 2)
    return mean, math.sqrt(max(0.0, square - mean**2))


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A scheduler: its name, and the bytes that a class of weight 1 may send per turn."""

    name: str
    quantum: float


@dataclass(frozen=True)
class Pipe:
    """A parsed pipe."""

    told: Mapping[str, Any]

    @property
    def delay(self) -> Mapping[str, Any]:
        """The delay line."""
        return self.told.get("delay") or {}

    @property
    def link(self) -> Mapping[str, Any]:
        """The link."""
        return self.told.get("link") or {}

    @property
    def queue(self) -> Mapping[str, Any]:
        """The queue."""
        return self.told.get("queue") or {}

    @property
    def constant_ns(self) -> int:
        """The constant part of the delay."""
        return int(self.delay.get("constant") or 0)

    @cached_property
    def jitter(self) -> Jitter | None:
        """The random part of the delay."""
        found = _tagged(self.delay.get("jitter"))
        return None if found is None else Jitter(*found)

    @property
    def half_life_ns(self) -> int | None:
        """The time after which half of a deviation is left."""
        return self.delay.get("half_life")

    @property
    def keeps_order(self) -> bool:
        """Whether no packet overtakes another."""
        return (self.delay.get("order") or "kept") == "kept" and not self.delay.get("reorder")

    @property
    def mean_delay_ns(self) -> float:
        """The mean delay in the delay line; draws below zero count as zero."""
        if self.jitter is None:
            return float(self.constant_ns)
        plain = self.constant_ns + self.jitter.mean
        return plain + self._clipped if math.isfinite(plain) else plain

    @property
    def _clipped(self) -> float:
        """The increase of the mean by draws below zero that become zero: the integral of the distribution below
        zero."""
        if self.jitter is None or float(self.delay_cdf(np.zeros(1) - 1)[0]) <= 0:
            return 0.0
        grid = np.linspace(-20 * self.jitter.sd, -self.constant_ns, 20_001)
        return float(np.trapezoid(self.jitter.cdf(grid), grid))

    def delay_cdf(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of unclipped delays of at most `x`."""
        if self.jitter is None:
            return (x >= self.constant_ns).astype(np.float64)
        return self.jitter.cdf(x - self.constant_ns)

    @property
    def rate_bps(self) -> int | None:
        """The link's rate."""
        return self.link.get("rate_bps")

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of the queue."""
        name, told = _tagged(self.queue.get("scheduler")) or ("fifo", {})
        return Scheduler(name, float(told.get("quantum") or 0))

    @property
    def is_plain_link(self) -> bool:
        """Whether the link is only a rate, so that one formula gives each packet's departure."""
        varied = ("profile", "trace", "outages", "burst_bytes")
        return bool(self.rate_bps) and not any(self.link.get(one) for one in varied)

    def bits(self, frame_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bits of frames (FCS included) on the link, overhead and cells included."""
        carried = frame_bytes - 4 + int(self.link.get("overhead_bytes") or 0)
        cell = self.link.get("cell")
        if cell:
            cells = -(-carried // int(cell["bytes"]))
            carried = cells * (int(cell["bytes"]) + int(cell["overhead_bytes"]))
        return np.asarray(np.maximum(carried, 0) * 8, dtype=np.int64)

    @property
    def loss_varies(self) -> bool:
        """Whether a queue, a profile or a trace also loses packets, so that the loss ratio is not configured."""
        return bool(self.rate_bps or self.link.get("profile") or self.link.get("trace") or self.link.get("outages"))

    def losses(self, stage: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the loss models of a stage ("before", "after")."""
        found = [_tagged(one) for one in (self.told.get(stage) or {}).get("loss") or []]
        return [one for one in found if one is not None]

    def chain(self, stage: str, interval_ns: float | None) -> Chain | None:
        """Return the loss models of a stage as one chain; None where there are none, or they are no chain."""
        models = self.losses(stage)
        if models and all(name == "independent" for name, _ in models):
            return bernoulli(1 - math.prod(1 - float(told["probability"]) for _, told in models))
        return _chain_of(*models[0], interval_ns) if len(models) == 1 else None

    def periodic(self, stage: str) -> tuple[str, Mapping[str, Any]] | None:
        """Return a model that loses by count: every n-th, or a pattern."""
        models = self.losses(stage)
        return models[0] if len(models) == 1 and models[0][0] in ("every", "pattern") else None

    def duplication(self, stage: str) -> float | None:
        """Return the probability that a packet is duplicated."""
        return (self.told.get(stage) or {}).get("duplication")

    def corruption(self, stage: str) -> tuple[str, float] | None:
        """Return the model of bit errors: its name and its probability."""
        found = (self.told.get(stage) or {}).get("corruption")
        return None if not found else next((str(name), float(value)) for name, value in found.items())

    @property
    def reorder(self) -> Mapping[str, Any] | None:
        """The settings for packets chosen to overtake."""
        return self.delay.get("reorder")

    def describe(self) -> str:
        """Return the delay in a few words."""
        said = f"{self.constant_ns / 1e6:g} ms"
        if self.jitter is not None:
            said += f" and {self.jitter.name} jitter"
        return said + (f", half-life {self.half_life_ns / 1e6:g} ms" if self.half_life_ns else "")


def _tagged(found: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Return a variant as serde writes it: {"name": {...}}, or "name"."""
    if not found:
        return None
    if isinstance(found, str):
        return found, {}
    return next((str(name), told or {}) for name, told in found.items())


def _chain_of(name: str, told: Mapping[str, Any], interval_ns: float | None) -> Chain | None:
    if name == "gilbert-elliott":
        return gilbert_elliott(*(float(told[one]) for one in ("p", "r", "h", "k")))
    if name == "four-state":
        return four_states(*(float(told[one]) for one in ("p13", "p31", "p23", "p32", "p14")))
    if name == "dwell" and interval_ns:
        return dwelling(float(told["good"]), float(told["bad"]), interval_ns)
    return None
