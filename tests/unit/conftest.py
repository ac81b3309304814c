"""Run folders made up to order, so that the analysis can be held to a known truth without an instrument.

`synthetic(...)` writes a folder as the conductor and the instrument would; `alter` changes a block before it is
written, to provoke what the analysis should find.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from sojourn.records import TABLES, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Block = dict[str, Any]
Probes = dict[str, Any]
ARROW = {"bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64()}


@dataclass
class Synthetic:
    """A made-up run: `latency_ns` and `per_byte_ns` are what each device adds one way, over the direct path."""

    path: Path
    rounds: int = 12
    icmp_bytes: tuple[int, ...] = (64, 772, 1480)
    intervals_ns: tuple[int, ...] = (1_000_000,)
    latency_ns: dict[str, float] = field(default_factory=lambda: {"bridge": 1300.0})
    per_byte_ns: dict[str, float] = field(default_factory=lambda: {"bridge": 0.4})
    count: int = 44
    warmup: int = 4
    seed: int = 2
    a_a: bool = True
    hypotheses: tuple[str, ...] = ("constant-plus-per-byte",)
    noise: Callable[[np.random.Generator, int], Any] = lambda rng, n: rng.gamma(4, 75, n)
    alter: Callable[[Block, Probes, np.random.Generator], None] = lambda block, probes, rng: None
    metadata: dict[str, str] = field(default_factory=lambda: {"profile": "release"})
    log: tuple[dict[str, Any], ...] = ({"event": "started"}, {"event": "finished"})
    bed: dict[str, Any] = field(default_factory=dict)
    clock: str = "simulated"
    plan_extra: str = ""
    bed_extra: str = ""
    sessions: int = 1
    """Parts that the rounds are in."""

    def write(self) -> Path:
        """Write the folder and return its path."""
        folder = RunFolder(self.path)
        folder.records.mkdir(parents=True)
        folder.plan.write_text(self._plan())
        folder.bed.write_text(json.dumps(self.bed))
        folder.log.write_text("".join(json.dumps(event) + "\n" for event in self.log))
        rng = np.random.default_rng(self.seed)
        with ExitStack() as files:
            parts = [
                [files.enter_context(Stream(folder, name, self.metadata, self.clock, part)) for name in KEPT]
                for part in range(self.sessions)
            ]
            for block in self._schedule(rng):
                probes, blocks = parts[block["round"] * self.sessions // self.rounds]
                rows = self._measure(block, rng)
                self.alter(block, rows, rng)
                probes.append(rows)
                blocks.append({name: [block[name]] for name in TABLES["blocks"]})
        return self.path

    @property
    def paths(self) -> list[str]:
        return ["direct", *(["a/a"] if self.a_a else []), *self.latency_ns]

    def _plan(self) -> str:
        quoted = ", ".join(f'"{one}"' for one in self.latency_ns)
        hypotheses = ", ".join(f'"{one}"' for one in self.hypotheses)
        return (
            f'[study]\nname = "made-up"\nmethod = "pairs"\nhypotheses = [{hypotheses}]\n'
            f'[bed]\nbackend = "sim"\ndevices = [{quoted}]\nmtu = 1500\n{self.bed_extra}\n'
            f"{f'sessions = {self.sessions}' if self.sessions > 1 else ''}\n"
            f'[probe]\nprobe = ["icmp"]\nicmp_bytes = {list(self.icmp_bytes)}\n'
            f"[pairs]\nrounds = {self.rounds}\na_a = {str(self.a_a).lower()}\n{self.plan_extra}\n"
        )

    def _schedule(self, rng: np.random.Generator) -> list[Block]:
        cells = [(size, interval) for size in self.icmp_bytes for interval in self.intervals_ns]
        blocks: list[Block] = []
        now = 1_000_000_000
        for round_ in range(self.rounds):
            for cell in rng.permutation(len(cells)):
                order = [self.paths[i] for i in rng.permutation(len(self.paths))]
                for visit, device in [(0, one) for one in order] + [(1, one) for one in reversed(order)]:
                    size, interval = cells[cell]
                    blocks.append(self._block(len(blocks), device, round_, visit, int(cell), size, interval, now))
                    now = blocks[-1]["ended_ns"] + 1_000_000
        return blocks

    def _block(
        self, number: int, device: str, round_: int, visit: int, cell: int, size: int, interval: int, now: int
    ) -> Block:
        ended = now + self.count * interval
        counts = dict.fromkeys(("lost", "late", "duplicated", "reordered", "unexpected", "local_drops"), 0)
        return {
            "block": number, "device": device, "round": round_, "visit": visit, "cell": cell, "via": "sim",
            "kind": "icmp", "schedule": "regular", "interval_ns": interval, "count": self.count, "warmup": self.warmup,
            "seed": number, "request_payload_bytes": size - 8, "response_payload_bytes": size - 8,
            "request_frame_bytes": size + 38, "response_frame_bytes": size + 38, "timeout_ns": 200_000_000,
            "started_ns": now, "ended_ns": ended, "started_raw_ns": now - 500, "ended_raw_ns": ended - 500,
            "clock_error_ns": 100, "sent": self.count, "received": self.count, **counts,
            "responder_kernel": True, "wait": "simulated", "cpu": None, "fifo": False, "dscp": None,
        }  # fmt: skip

    def _measure(self, block: Block, rng: np.random.Generator) -> Probes:
        n = self.count
        device = "direct" if block["device"] == "a/a" else block["device"]
        each_way = self.latency_ns.get(device, 0.0) + self.per_byte_ns.get(device, 0.0) * block["request_frame_bytes"]
        host = 4000 + 0.3 * block["request_frame_bytes"]
        rtt = (2 * (host + each_way) + self.noise(rng, n) + self.noise(rng, n)).astype(np.int64)
        intended = block["started_ns"] + np.arange(n) * block["interval_ns"]
        departure = intended + rng.integers(0, 300, n)
        return {
            "block": np.full(n, block["block"]), "seq": np.arange(n), "warmup": np.arange(n) < block["warmup"],
            "intended_ns": intended, "send_call_ns": departure - 400, "departure_ns": departure,
            "departure_source": ["simulated"] * n, "arrival_ns": departure + rtt, "arrival_source": ["simulated"] * n,
            "receive_call_ns": departure + rtt + 700, "responder_arrival_ns": [None] * n,
            "responder_departure_ns": [None] * n, "replies": np.ones(n, dtype=np.int64),
            "late": np.zeros(n, dtype=bool), "reordered": np.zeros(n, dtype=bool),
        }  # fmt: skip


def lose(probes: Probes, which: Any) -> None:
    """Take the answers away from the probes in `which`."""
    probes["replies"] = np.where(which, 0, probes["replies"])
    for name in ("arrival_ns", "receive_call_ns", "arrival_source"):
        probes[name] = [None if gone else value for gone, value in zip(which, probes[name], strict=True)]


KEPT = ("probes", "blocks")


class Stream:
    """An Arrow stream as the instrument writes it: one batch a block, units in the field metadata."""

    def __init__(self, folder: RunFolder, name: str, metadata: dict[str, str], clock: str, part: int = 0) -> None:
        self.schema = pa.schema(
            [
                pa.field(
                    one.name, ARROW.get(one.type, pa.string()), one.nullable, _metadata(one.unit, one.clock, clock)
                )
                for one in TABLES[name].values()
            ],
            {
                key.encode(): value.encode()
                for key, value in ({"schema": f"sojourn.{name}", "version": "1"} | metadata).items()
            },
        )
        self.path = folder.records / f"{name}-{part:03}.arrow"

    def __enter__(self) -> Stream:
        self.file = pa.OSFile(str(self.path), "wb")
        self.stream = pa.ipc.new_stream(self.file, self.schema)
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.file.close()

    def append(self, columns: dict[str, Any]) -> None:
        arrays = [pa.array(columns[one.name], one.type) for one in self.schema]
        self.stream.write_batch(pa.record_batch(arrays, schema=self.schema))


def _metadata(unit: str, clock: str | None, tai: str) -> dict[str, str]:
    return {"unit": unit} | ({"clock": tai if clock == "TAI" else clock} if clock else {})


@dataclass
class Captured:
    """A made-up run of method "departures": each trial is (tool, interval_ns, arrivals_ns, sequences)."""

    path: Path
    trials: list[tuple[str, int, Any, Any]]

    def write(self) -> Path:
        """Write the folder and return its path."""
        folder = RunFolder(self.path)
        folder.records.mkdir(parents=True)
        folder.plan.write_text('[study]\nname = "senders"\nmethod = "departures"\n[pairs]\nrounds = 1\n')
        with folder.log.open("w") as log, Stream(folder, "captures", {}, "TAI") as captures:
            for block, (tool, interval_ns, arrivals, sequences) in enumerate(self.trials):
                n = len(arrivals)
                event = {"event": "trial", "block": block, "tool": tool, "interval_ns": interval_ns, "icmp_bytes": 64}
                log.write(json.dumps(event | {"count": n, "icmp_id": 7}) + "\n")
                captures.append(
                    {
                        "block": [block] * (n + 1),
                        "arrival_ns": [*arrivals, arrivals[0] + 5],
                        "frame_bytes": [102] * (n + 1),
                        "icmp_id": [7] * n + [9],  # the last frame is a stranger's
                        "icmp_seq": [*(sequences % 65536), 0],
                    }
                )
            log.write(json.dumps({"event": "finished"}) + "\n")
        return self.path


@pytest.fixture
def synthetic(tmp_path: Path) -> Callable[..., Synthetic]:
    """A maker of made-up runs, each in a folder of its own."""
    made = 0

    def make(**asked: Any) -> Synthetic:
        nonlocal made
        made += 1
        return Synthetic(tmp_path / f"run-{made}", **asked)

    return make


@pytest.fixture
def captured(tmp_path: Path) -> Callable[..., Captured]:
    """A maker of made-up captures."""
    return lambda *trials: Captured(tmp_path / "captured", list(trials))


@pytest.fixture
def losing() -> Callable[[Probes, Any], None]:
    """`lose`, for alterations."""
    return lose
