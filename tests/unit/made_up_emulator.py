"""Run folders of an emulator made up to order: what it does to each packet is a function of the test's own.

`Made` takes a pipe as the emulator tells it and functions that draw, lose and delay; it writes the direct path, the
emulator's log and the stream as both ends saw it. Drawing by the pipe's own law gives an emulator without fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tests.unit import made_up_streams as made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

START = 1_900_000_000_000_000_000
PLAN = """
[study]
name = "{name}"
title = "An emulator that was made up"
method = "emulator"
hypotheses = [{hypotheses}]
published = [{published}]
[bed]
devices = ["emulate"]
[emulate]
{emulate}
[trials]
rounds = {rounds}
"""
HYPOTHESES = '"no-tick", "no-shortfall", "delay-independent-of-rate", "loss-as-configured"'
Rng = np.random.Generator


@dataclass
class Cell:
    """A cell: its pipe in words and as told, its pace, and what the emulator does.

    `stay` gives the true stay of each packet from its times of entry (ns), `lose` which are lost, `drawn` what the log
    says was drawn, where that is another thing.
    """

    words: str
    pipe: dict[str, Any]
    stay: Callable[[Rng, NDArray[np.int64]], NDArray[np.int64]]
    lose: Callable[[Rng, int], NDArray[np.bool_]] = lambda _rng, n: np.zeros(n, dtype=np.bool_)
    drawn: Callable[[Rng, NDArray[np.int64]], NDArray[np.int64]] | None = None
    packets: int = 1000
    interval_ns: int = 1_000_000
    poisson: bool = True
    frame_bytes: int = 64


@dataclass
class Made:
    """A run of several cells; `late` is how late the emulator really sends, `path_ns` what the path takes besides."""

    cells: list[Cell]
    rounds: int = 4
    seed: int = 1
    floor_ns: int = 20_000
    path_ns: int = 0
    late: Callable[[Rng, int], NDArray[np.int64]] = lambda rng, n: rng.gamma(2.0, 1000.0, n).astype(np.int64)
    log: bool = True
    name: str = "emulator-delay"
    published: str = ""
    emulate: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)

    def write(self, path: Path) -> Path:
        """The run folder."""
        rng = np.random.default_rng(self.seed)
        blocks: list[dict[str, Any]] = []
        sent, received, events = [], [], []
        tables: dict[str, list[pl.DataFrame]] = {"sends": [], "arrivals": [], "packets": []}
        at = START
        for round_ in range(self.rounds):
            for number, cell in enumerate(self.cells):
                for device in ("direct", "emulate"):
                    block = {"block": len(blocks), "device": device, "round": round_, "cell": number}
                    blocks.append(block)
                    at += 3_000_000_000 + cell.packets * cell.interval_ns
                    one = _trial(self, rng, cell, block, at)
                    for name, frame in one.tables.items():
                        tables[name].append(frame)
                    sent.append(one.sender)
                    received.append(one.receiver)
                    events += [*one.events, made.trial_event(block, one.factors)]
        streams = [made.streams(sent, "send"), made.streams(received, "receive")]
        frames: dict[tuple[str, str], pl.DataFrame] = {
            ("streams", "s0"): streams[0],
            ("streams", "r0"): streams[1],
            ("sends", "s0"): pl.concat(tables["sends"]),
            ("arrivals", "r0"): pl.concat(tables["arrivals"]),
        }
        if self.log:
            frames["packets", "emulate"] = pl.concat(tables["packets"])
        words = {
            "name": self.name,
            "hypotheses": HYPOTHESES,
            "published": self.published,
            "emulate": self.emulate,
            "rounds": self.rounds,
        }
        return made.write(path, PLAN.format(**words), [*events, *self.events], frames)


@dataclass
class _Trial:
    tables: dict[str, pl.DataFrame]
    sender: dict[str, Any]
    receiver: dict[str, Any]
    factors: dict[str, Any]
    events: list[dict[str, Any]]


def _trial(run: Made, rng: Rng, cell: Cell, block: dict[str, Any], at: int) -> _Trial:
    n, through = cell.packets, block["device"] == "emulate"
    gaps = rng.exponential(cell.interval_ns, n) if cell.poisson else np.full(n, float(cell.interval_ns))
    departure = at + np.cumsum(gaps).astype(np.int64)
    path = run.floor_ns // 2
    noise = rng.gamma(2.0, 500.0, n).astype(np.int64)
    lost, table = np.zeros(n, dtype=np.bool_), {}
    leaves = departure + path
    if through:
        entered = leaves
        lost = cell.lose(rng, n)
        stay = cell.stay(rng, entered)
        leaves = entered + stay
        actual = _one_by_one(leaves, leaves + run.late(rng, n))
        drawn = cell.drawn(rng, entered) if cell.drawn else stay
        table = {"packets": _log(block["block"], cell, (entered, drawn, leaves, actual), lost)}
        leaves = actual
    arrival = _one_by_one(leaves, leaves + path + noise + run.path_ns * through)
    seq = np.arange(n)
    shared = {"block": pl.lit(block["block"], dtype=pl.Int32), "flow": pl.lit(1, dtype=pl.Int32)}
    sends = pl.DataFrame({"seq": seq, "intended_ns": departure, "departure_ns": departure}).with_columns(**shared)
    came = np.flatnonzero(~lost)
    order = came[np.argsort(arrival[came], kind="stable")]
    overtaken = np.maximum.accumulate(seq[order]) > seq[order]
    arrivals = pl.DataFrame(
        {
            "seq": seq[order], "intended_ns": departure[order], "sent_ns": departure[order],
            "arrival_ns": arrival[order], "reordered": overtaken,
        }
    ).with_columns(**shared)  # fmt: skip
    counts = {
        "first": len(came), "lost": int(lost.sum()), "reordered": int(overtaken.sum()),
        "first_ns": int(arrival[order][0]), "last_ns": int(arrival[order][-1]),
    }  # fmt: skip
    common = {
        **block,
        "frame_bytes": cell.frame_bytes,
        "payload_bytes": cell.frame_bytes - 18,
        "started_ns": at,
        "started_raw_ns": at,
    }
    pace = 1e9 / cell.interval_ns
    schedule = "poisson" if cell.poisson else "regular"
    sender = {
        **common, "schedule": schedule, "asked": n, "sent": n, "rate_pps": pace, "intended_pps": pace,
        "anderson_darling_p": 0.5, "achieved_pps": pace, "first_ns": int(departure[0]), "last_ns": int(departure[-1]),
    }  # fmt: skip
    factors = made.factors(
        frame_bytes=cell.frame_bytes, payload_bytes=cell.frame_bytes - 18, rate_pps=pace, schedule=schedule,
        interval_ns=cell.interval_ns, pipe=cell.words,
    )  # fmt: skip
    told = {
        "event": "emulator-set", "block": block["block"], "device": "emulate", "emulator": "emulate", "pipe": "forward",
        "words": cell.words, "to": {"name": "forward", **cell.pipe},
    }  # fmt: skip
    return _Trial(
        {"sends": sends, "arrivals": arrivals, **table}, sender, {**common, **counts, "schedule": schedule}, factors,
        [told] if through else [],
    )  # fmt: skip


def _one_by_one(leaves: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """The times, delayed so that nobody overtakes who was to leave earlier."""
    place = np.argsort(leaves, kind="stable")
    found = np.empty(len(at), dtype=np.int64)
    found[place] = np.maximum.accumulate(at[place])
    return found


def _log(block: int, cell: Cell, times: Any, lost: NDArray[np.bool_]) -> pl.DataFrame:
    """The emulator's account: entered, drawn, intended, departed."""
    entered, drawn, intended, actual = times
    stage = "after" if (cell.pipe.get("after") or {}).get("loss") else "before"
    kept = pl.col("number").is_in(np.flatnonzero(~lost))
    rate = (cell.pipe.get("link") or {}).get("rate_bps")
    left = intended - (cell.pipe.get("delay") or {}).get("constant", 0) if rate else None
    return pl.DataFrame(
        {
            "number": np.arange(len(entered)), "arrival_ns": entered, "entered_ns": entered, "drawn_ns": drawn,
            "intended_ns": intended, "departure_ns": actual, "link_left_ns": left if rate else [None] * len(entered),
            "head": [_head(block, seq) for seq in range(len(entered))],
        },
        schema_overrides={"link_left_ns": pl.Int64},
    ).with_columns(
        block=pl.lit(block, dtype=pl.Int32), frame_bytes=pl.lit(cell.frame_bytes, dtype=pl.Int32),
        direction=pl.lit("forward"), pipe=pl.lit("forward"),
        disposition=pl.when(kept).then(pl.lit("sent")).otherwise(pl.lit("lost")),
        cause=pl.when(kept).then(pl.lit("")).otherwise(pl.lit(stage)),
        **{name: pl.when(kept).then(pl.col(name)) for name in ("drawn_ns", "intended_ns", "departure_ns")},
    )  # fmt: skip


def _head(block: int, seq: int) -> bytes:
    """The head of a stream's frame: addresses, type, and the stream's header as far as it matters."""
    header = b"SOJ3" + bytes([1, 0]) + (1).to_bytes(2, "big") + block.to_bytes(8, "big") + seq.to_bytes(6, "big")
    return bytes(12) + b"\x88\xb6" + header + bytes(20)


def constant(ns: int) -> dict[str, Any]:
    """A pipe that only delays."""
    return {"delay": {"constant": ns}}


def losing(model: dict[str, Any], stage: str = "before") -> dict[str, Any]:
    """A pipe that only loses."""
    return {stage: {"loss": [model]}}


def stays(ns: int) -> Callable[[Rng, NDArray[np.int64]], NDArray[np.int64]]:
    """Every packet stays as long."""
    return lambda _rng, entered: np.full(len(entered), ns, dtype=np.int64)
