"""Our probe, run alone as a user would, with its records read at the peers' own timestamp points.

The instrument's best timestamps are the kernel's on both sides, which no peer has. So a comparison takes from our
records the timestamps of the peer's figure, truncated to whole microseconds if the peer's are.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from bench.measure import finish
from sojourn.errors import MachineError
from sojourn.instruments import find_instrument
from sojourn.records import read_table

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl
    from numpy.typing import NDArray

    from sojourn.bed import Bed

Points = Literal["best", "intended", "user", "ping", "ping -U"]
PORT = 7707


@dataclass(frozen=True, slots=True)
class Ours:
    """One run of our probe."""

    frame: pl.DataFrame
    seconds: float
    cpu_ns: int

    @property
    def probes(self) -> int:
        """The number of sent probes, warm-up included."""
        return self.frame.height

    @property
    def lost(self) -> int:
        """The number of probes without a reply."""
        return int(self.frame["arrival_ns"].null_count())

    @property
    def cpu_per_probe_ns(self) -> float:
        """CPU time of the probing program only, per probe."""
        return self.cpu_ns / self.probes

    def rtt_ns(self, points: Points) -> NDArray[np.float64]:
        """Return round-trip times between the timestamps of `points`, without lost and warm-up probes."""
        kept = self.frame.filter(~self.frame["warmup"]).drop_nulls(["arrival_ns", "receive_call_ns"])
        column = {name: kept[name].to_numpy() for name in ("intended_ns", "send_call_ns", "departure_ns")}
        arrival, received = kept["arrival_ns"].to_numpy(), kept["receive_call_ns"].to_numpy()
        spans = {
            "best": arrival - column["departure_ns"],
            "intended": arrival - column["intended_ns"],
            "user": received - column["send_call_ns"],
            "ping": (arrival // 1000 - column["send_call_ns"] // 1000) * 1000,
            "ping -U": (received // 1000 - column["send_call_ns"] // 1000) * 1000,
        }
        return np.asarray(spans[points], dtype=np.float64)

    def figures(self, points: Points) -> dict[str, float]:
        """Return the figures that the peers print, from the same timestamps."""
        rtt = self.rtt_ns(points)
        if not len(rtt):
            raise MachineError("our probe got no answer at all")
        p50, p90, p99 = np.quantile(rtt, [0.5, 0.9, 0.99])
        return {
            "min_ns": float(rtt.min()),
            "mean_ns": float(rtt.mean()),
            "p50_ns": float(p50),
            "p90_ns": float(p90),
            "p99_ns": float(p99),
        }


def probe(bed: Bed, records: Path, to: list[str], options: list[str]) -> Ours:
    """`sojourn-instrument probe …` on host A, recorded into an empty folder."""
    shutil.rmtree(records, ignore_errors=True)
    records.mkdir(parents=True)
    argv = [find_instrument(), "probe", *to, *options, "--record", str(records)]
    done = finish(bed, "a", argv)
    frame = read_table(records, "probes").frame
    if frame.is_empty():
        raise MachineError(f"our probe recorded nothing: {done.printed.strip()[-200:]}")
    span = int(frame["departure_ns"].max()) - int(frame["departure_ns"].min())  # type: ignore[arg-type]
    return Ours(frame, max(span, 1) / 1e9, done.cpu_ns)
