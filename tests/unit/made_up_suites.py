"""Made-up runs of suites: a device of known capacity and buffer, a tester that hiccups, searches that really search.

MLRsearch is its authors' package; halving is written out here, so that neither shares code with what is under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from tests.unit import made_up_streams as made_up

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

START = 1_795_000_000_000_000_000
HALVINGS = 60


@dataclass
class Device:
    """Forwards up to `capacity_pps`, holds `room` frames; in a share of trials the tester's machine hiccups."""

    capacity_pps: float
    room: int = 40
    hiccups: float = 0.0
    wobble: float = 0.0

    def lost(self, sent: int, rate_pps: float, rng: np.random.Generator) -> int:
        """How many of the frames sent at this rate are lost."""
        capacity = self.capacity_pps * (1 + self.wobble * rng.standard_normal())
        too_many = max(0.0, sent * (1 - capacity / rate_pps) - self.room)
        hiccup = rng.integers(1, max(2, sent // 50)) if rng.random() < self.hiccups else 0
        return min(sent, round(too_many) + int(hiccup))


@dataclass
class Suite:
    """A run folder in the making: every trial is recorded as the instrument would, every step logged."""

    method: str
    seed: int = 1
    goals: tuple[float, ...] = (0.0, 0.005)
    seconds: float = 1.0
    sum_seconds: float = 5.0
    clean_pps: float = 1e6
    log: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    received: list[dict[str, Any]] = field(default_factory=list)
    frames: list[pl.DataFrame] = field(default_factory=list)
    arrivals: list[pl.DataFrame] = field(default_factory=list)
    searches: int = 0
    sessions: int = 1
    asked: str = ""
    """Further lines of the plan's section."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def qualified(self, *sizes: int) -> None:
        for size in sizes:
            floor = {"min": 4_000.0, "p50": 5_200.0}
            self.log.append({"event": "qualified", "frame_bytes": size, "clean_pps": self.clean_pps, "floor_ns": floor})

    def step(self, head: dict[str, Any], device: Device, rate_pps: float, seconds: float, **other: Any) -> int:
        """One trial at a rate, or a burst (`frames`); its loss in frames."""
        count = other.get("frames") or max(1, round(rate_pps * seconds))
        missed = bool(other.pop("missed", False))
        lost = other.pop("lost", None)
        lost = device.lost(count, rate_pps, self.rng) if lost is None else lost
        block = 2_000_000 + len(self.sent)
        place = {
            "block": block, "device": head["device"], "round": head["repetition"], "visit": 0, "cell": 0,
            "purpose": "search", "flow": 1, "port": 0, "clock_id": 1, "frame_bytes": head["frame_bytes"],
        }  # fmt: skip
        own = other.pop("local_drops", 0)
        pace = rate_pps * (0.97 if missed else 1.0)
        self.sent.append({**place, "role": "send", "sent": count, "achieved_pps": pace})
        self.received.append(
            {**place, "role": "receive", "first": count - lost - own, "local_drops": own, "lost": lost}
        )
        told = made_up.factors(frame_bytes=head["frame_bytes"], offered_pps=rate_pps)
        trial = {"kept": True, "engines": {"send": "packet", "receive": "packet"}, "missed": missed}
        self.log.append(made_up.trial_event(place, told, **trial))
        load = {} if "frames" in other else {"rate_pps": rate_pps, "duration_s": seconds}
        self.log.append({"event": "search-step", **head, "block": block, **load, **other, "sent": count,
                         "received": count - lost - own, "loss_ratio": lost / count, "missed": missed})  # fmt: skip
        return lost

    def head(self, test: str, size: int, repetition: int, algorithm: str = "mlrsearch") -> dict[str, Any]:
        self.searches += 1
        return {"search": self.searches, "test": test, "algorithm": algorithm, "device": "bridge",
                "frame_bytes": size, "repetition": repetition}  # fmt: skip

    def session(self, part: int) -> None:
        """What follows is of a bed of its own."""
        self.sessions = max(self.sessions, part + 1)
        self.log.append({"event": "started", "part": part, "blocks": 0})

    def result(self, head: dict[str, Any], goal: float | None = None, **other: Any) -> None:
        told: dict[str, Any] = {"goal": goal, "lower_pps": None, "upper_pps": None, "sentence": None, "extra": {}}
        told["tester_pps"] = self.clean_pps
        self.log.append({"event": "search-result", **head, **told, **other})

    def mlr(self, device: Device, size: int, repetition: int, most: float, test: str = "throughput") -> None:
        """MLRsearch by its authors' package, all goals at once."""
        head = self.head(test, size, repetition)
        self.step(head, device, 500.0, 0.2, lost=0)
        goals = {one: self._goal(one) for one in self.goals}
        config = Config()
        config.goals = list(goals.values())
        config.min_load, config.max_load, config.search_duration_max, config.warmup_duration = 100.0, most, 1e6, None
        search = MultipleLossRatioSearch(config=config)
        results = search.search(_Measurer(self, head, device), debug=lambda _: None)
        for one, goal in goals.items():
            found = results[goal]
            lower, upper = found.relevant_lower_bound, found.relevant_upper_bound
            self.result(head, one, lower_pps=lower and float(lower), upper_pps=upper and float(upper))

    def _goal(self, loss_ratio: float) -> SearchGoal:
        return SearchGoal(
            loss_ratio=loss_ratio, exceed_ratio=0.5 if loss_ratio else 0.0, relative_width=0.005,
            initial_trial_duration=self.seconds, final_trial_duration=self.seconds, duration_sum=self.sum_seconds,
            preceding_targets=2, expansion_coefficient=2, fail_fast=False,
        )  # fmt: skip

    def halve(self, device: Device, size: int, repetition: int, most: float) -> None:
        """Halving: a load holds when all trials of it keep the goal, each loss verified by a second trial."""
        head = self.head("throughput", size, repetition, "binary")
        for goal in self.goals:
            low, high = most / 1e3, most
            for _ in range(HALVINGS):
                if high - low <= 0.005 * high:
                    break
                middle = (low + high) / 2
                count = round(middle * self.seconds)
                good = all(
                    any(self.step(head, device, middle, self.seconds) <= goal * count for _ in range(2))
                    for _ in range(round(self.sum_seconds / self.seconds))
                )
                low, high = (middle, high) if good else (low, middle)
            self.result(head, goal, lower_pps=low, upper_pps=high)

    def timed(self, test: str, size: int, repetition: int, delays: NDArray[np.float64], lost: int = 0) -> None:
        """A stream at the throughput with these delays, the last `lost` of its frames lost."""
        head = self.head(test, size, repetition)
        device, count = Device(1e9), len(delays)
        self.step(head, device, 500.0, 0.2, lost=0)
        self.step(head, device, float(count), 1.0, lost=lost)
        block = self.sent[-1]["block"]
        departure = START + np.arange(count) * 100_000
        both = {"block": block, "flow": 1, "seq": np.arange(count)}
        self.frames.append(pl.DataFrame({**both, "intended_ns": departure, "departure_ns": departure}))
        arrival = departure + delays.astype(np.int64)
        arrived = pl.DataFrame({**both, "port": 0, "node": 0, "arrival_ns": arrival, "receive_call_ns": arrival + 500})
        self.arrivals.append(arrived[: count - lost])
        self.result(head, lower_pps=float(count))

    def write(self, path: Path) -> Path:
        goals = ", ".join(str(one) for one in self.goals)
        plan = (
            f'[study]\nname = "{self.method}"\nmethod = "{self.method}"\n'
            f'[bed]\nbackend = "netns"\ndevices = ["bridge"]\nsessions = {self.sessions}\n'
            f'[search]\ngoals = [{goals}]\nduration = "{self.seconds:g}s"\nduration_sum = "{self.sum_seconds:g}s"\n'
            f"exceed_ratio = 0.5\nverify_loss = true\n{self.asked}"
        )
        tables = {("streams", "a"): pl.DataFrame(self.sent), ("streams", "b"): pl.DataFrame(self.received)}
        if self.frames:
            tables |= {("sends", "a"): pl.concat(self.frames), ("arrivals", "b"): pl.concat(self.arrivals)}
        return made_up.write(path, plan, self.log, tables)


class _Measurer(AbstractMeasurer):  # type: ignore[misc]
    def __init__(self, suite: Suite, head: dict[str, Any], device: Device) -> None:
        self.suite, self.head, self.device = suite, head, device

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        lost = self.suite.step(self.head, self.device, intended_load, intended_duration)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=round(intended_load * intended_duration),
            loss_count=lost,
        )
