"""Run folders of streams made up to order: delays, losses and rates of known truth, as conductor and instrument write.

`StreamRun(path, method, cells, ...).write()`; a cell is a dict of factors as the log tells them. `delay` draws a
trial's delays, `lose` says which packets are lost; `alter` changes a trial before it is written, to provoke findings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.records import TABLES
from tests.unit.made_up_streams import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START_NS = 1_800_000_000_000_000_000
Tables = dict[tuple[str, str], dict[str, list[Any]]]
"""By table and who wrote it: each column's values, an array or a list for each time that rows were appended."""
BASE: dict[str, Any] = {
    "engine": "packet", "kind": "one-way", "frame_bytes": 64, "payload_bytes": 46, "schedule": "regular",
    "rate_pps": 10_000.0, "interval_ns": 100_000, "rate_share": None, "to": "unicast", "senders": 1, "receivers": 0,
    "load": 0.0, "load_via": None,
}  # fmt: skip


def cell(**factors: Any) -> dict[str, Any]:
    """The factors of a cell: the base's, but for those that are given; rate and interval follow each other."""
    told = BASE | factors
    if factors.get("interval_ns"):
        told["rate_pps"] = 1e9 / factors["interval_ns"]
    return told


@dataclass
class Trial:
    """What a maker may change of a trial before it is written; arrays are per packet."""

    block: int
    device: str
    cell: int
    round: int
    visit: int
    flow: int
    port: int
    factors: dict[str, Any]
    intended: Any
    departure: Any
    delay: Any
    lost: Any
    counts: dict[str, int]
    offered: float = 1.0
    """Achieved over intended rate."""
    fit_p: float | None = None
    source: str = "kernel"
    counters: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass
class StreamRun:
    """A made-up run; `added` is what a device adds to every delay, in ns."""

    path: Path
    method: str
    cells: list[dict[str, Any]]
    added: dict[str, float] = field(default_factory=lambda: {"bridge": 1500.0})
    rounds: int = 8
    visits: int = 2
    count: int = 500
    seed: int = 1
    a_a: bool = True
    delay: Callable[[np.random.Generator, dict[str, Any], int], Any] = lambda rng, factors, n: (
        rng.gamma(4, 500, n) + 4000
    )
    lose: Callable[[np.random.Generator, dict[str, Any], int], Any] = lambda rng, factors, n: np.zeros(n, dtype=bool)
    alter: Callable[[Trial, np.random.Generator], None] = lambda trial, rng: None
    run_sd_ns: float = 100.0
    log: list[dict[str, Any]] = field(default_factory=list)
    bed_extra: str = ""
    bed: dict[str, Any] = field(default_factory=dict)
    hypotheses: tuple[str, ...] = ()
    answer_ns: Callable[[np.random.Generator, int, int], Any] | None = None
    """Draws the latency of a node's answers: rng, node, n."""
    lines: Callable[[Trial], list[dict[str, Any]]] = lambda trial: []
    shared: bool = True

    def write(self) -> Path:
        """Write the folder and return its path."""
        rng = np.random.default_rng(self.seed)
        tables: Tables = {}
        events = list(self.log)
        now = START_NS
        for number, at in enumerate(self._order(rng)):
            now = self._trial(number, at, now, rng, tables, events)
        frames = {key: frame_of(columns) for key, columns in tables.items()}
        return write(self.path, self._plan(), events, frames, self.bed)

    def paths(self, factors: dict[str, Any]) -> list[str]:
        """The paths of a cell: several senders or receivers need a switch."""
        if factors["senders"] > 1 or factors["receivers"] or factors["load_via"] == "through":
            return list(self.added)
        return ["direct", *(["a/a"] if self.a_a and not factors["load"] else []), *self.added]

    def _plan(self) -> str:
        quoted = ", ".join(f'"{one}"' for one in self.added)
        hypotheses = ", ".join(f'"{one}"' for one in self.hypotheses)
        study = f'[study]\nname = "made-up"\nmethod = "{self.method}"\nhypotheses = [{hypotheses}]\n'
        bed = f'[bed]\nbackend = "netns"\ndevices = [{quoted}]\n{self.bed_extra}\n'
        return f"{study}{bed}[trials]\nrounds = {self.rounds}\n"

    def _order(self, rng: np.random.Generator) -> list[tuple[int, int, int, str]]:
        found = []
        for round_ in range(self.rounds):
            for place in rng.permutation(len(self.cells)):
                paths = self.paths(self.cells[place])
                order = [paths[i] for i in rng.permutation(len(paths))]
                for visit in range(self.visits):
                    found += [(round_, visit, int(place), path) for path in (order, order[::-1])[visit % 2]]
        return found

    def _trial(self, block: int, at: Any, now: int, rng: Any, tables: Any, events: Any) -> int:
        round_, visit, place, device = at
        factors = self.cells[place]
        luck = float(rng.normal(0, self.run_sd_ns))
        counters: dict[str, dict[str, int]] = {}
        length = 0
        for flow in range(1, factors["senders"] + 1):
            n = self.count
            intended = now + self._offsets(rng, factors, n)
            departure = intended + rng.integers(0, 500, n)
            for port in range(factors["receivers"] + 1):
                delay = self.delay(rng, factors, n) + luck + self.added.get(device, 0.0)
                trial = Trial(
                    block, device, place, round_, visit, flow, port, factors, intended, departure,
                    np.maximum(delay, 1).astype(np.int64), self.lose(rng, factors, n), {}, counters=counters,
                )  # fmt: skip
                self.alter(trial, rng)
                add(tables, self._rows(trial, rng, first=port == 0))
                length = max(length, int(intended[-1] - now))
        names = ("block", "device", "round", "visit", "cell")
        event = dict(zip(names, (block, device, round_, visit, place), strict=True))
        told = {"purpose": "measure", "trial": block, "attempt": 1, "kept": True, "missed": False}
        events.append({"event": "stream-trial", **event, **told, "factors": factors, "counters": counters})
        return now + length + 10_000_000

    def _offsets(self, rng: Any, factors: dict[str, Any], n: int) -> Any:
        interval = (factors["interval_ns"] or 1_000) * factors["senders"]
        if factors["schedule"] == "poisson":
            return np.cumsum(rng.exponential(interval, n)).astype(np.int64)
        return np.arange(n, dtype=np.int64) * interval

    def _rows(self, trial: Trial, rng: Any, *, first: bool) -> dict[tuple[str, str], dict[str, Any]]:
        n, lost = len(trial.intended), trial.lost
        gone = (
            dict.fromkeys(("corrupted", "local_drops", "duplicated", "reordered", "late", "unexpected", "excess"), 0)
            | trial.counts
        )
        elsewhere = gone["corrupted"] + gone["local_drops"]
        came = np.flatnonzero(~lost)
        arrival = trial.departure + trial.delay
        counts = {"first": len(came), "lost": n - len(came) - elsewhere, **gone}
        sent = n + int(trial.counts.get("astray", 0))
        counts.pop("astray", None)
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        if first:
            rows["sends", "a"] = self._sends(trial)
            rows["streams", "a"] = self._stream(trial, "send", dict.fromkeys(counts, 0), sent, trial.departure)
        rows["streams", "b"] = self._stream(trial, "receive", counts, 0, np.sort(arrival[came]))
        rows["arrivals", "b"] = arrivals(trial, came, arrival, 0)
        if self.lines(trial):
            rows["clock_lines", "a"] = {key: [one[key] for one in self.lines(trial)] for key in TABLES["clock_lines"]}
        if self.answer_ns is not None and trial.factors["kind"] in ("request-response", "answers"):
            answered = trial.departure + self.answer_ns(rng, trial.port + 1, n).astype(np.int64)
            rows["arrivals", "a2"] = arrivals(trial, np.arange(n), answered, trial.port + 1)
        return rows

    def _sends(self, trial: Trial) -> dict[str, Any]:
        n = len(trial.intended)
        return {
            "block": np.full(n, trial.block), "flow": np.full(n, trial.flow), "seq": np.arange(n),
            "intended_ns": trial.intended,
            "send_call_ns": trial.departure - 400, "scheduled_ns": [None] * n, "departure_ns": trial.departure,
            "departure_source": [trial.source] * n,
        }  # fmt: skip

    def _stream(self, trial: Trial, role: str, counts: dict[str, int], sent: int, times: Any) -> dict[str, Any]:
        span = max(1, int(trial.intended[-1] - trial.intended[0]))
        pps = (len(trial.intended) - 1) * 1e9 / span
        began, ended = int(trial.intended[0]), int(trial.intended[-1])
        row = {
            "block": trial.block, "device": trial.device, "round": trial.round, "visit": trial.visit,
            "cell": trial.cell, "purpose": "measure", "role": role, "flow": trial.flow, "port": trial.port,
            "via": trial.factors["engine"], "engine": "AF_PACKET",
            "schedule": trial.factors["schedule"] if role == "send" else "",
            "frame_bytes": trial.factors["frame_bytes"], "payload_bytes": trial.factors["payload_bytes"],
            "rate_pps": trial.factors["rate_pps"] or 0.0, "intended_pps": pps, "achieved_pps": pps * trial.offered,
            "anderson_darling": None, "anderson_darling_p": trial.fit_p, "started_ns": began, "ended_ns": ended,
            "started_raw_ns": began - 10**9, "ended_raw_ns": ended - 10**9,
            "first_ns": int(times[0]) if len(times) else None, "last_ns": int(times[-1]) if len(times) else None,
            "asked": sent, "sent": sent, "refused": 0, "unsent": 0, **counts, "cpu": None, "cpu_time_ns": 0,
            "fifo": False, "wait": "spin", "clock_id": 7 if self.shared or role == "send" else 8,
        }  # fmt: skip
        return {key: [value] for key, value in row.items()}


def arrivals(trial: Trial, which: Any, arrival: Any, node: int) -> dict[str, Any]:
    """Rows of `arrivals` for the packets in `which`."""
    n = len(which)
    no = np.zeros(n, dtype=bool)
    return {
        "block": np.full(n, trial.block), "flow": np.full(n, trial.flow), "port": np.full(n, 0 if node else trial.port),
        "node": np.full(n, node), "seq": which,
        "intended_ns": trial.intended[which], "sent_ns": trial.departure[which] - 400,
        "arrival_ns": arrival[which], "arrival_source": [trial.source] * n, "receive_call_ns": arrival[which] + 900,
        "duplicate": no, "reordered": no, "late": no, "corrupted": no,
    }  # fmt: skip


def add(tables: Tables, rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Append rows to the tables, each under its name and who wrote it."""
    for key, columns in rows.items():
        table = tables.setdefault(key, {name: [] for name in columns})
        for name, values in columns.items():
            table[name].append(values)


def frame_of(columns: dict[str, list[Any]]) -> pl.DataFrame:
    """The rows that were appended; a column of arrays alone stays one, for lists of a hundred thousand take long."""
    return pl.DataFrame({name: joined(several) for name, several in columns.items()}, strict=False)


def joined(several: list[Any]) -> Any:
    if all(isinstance(one, np.ndarray) for one in several):
        return np.concatenate(several)
    return [value for one in several for value in one]
