"""Throughput: rates, the time between frames, Jain's index, and where the tester is the limit instead of the device.

A rate counts undamaged frames without duplicates, from the first arrival of a trial to its last. `throughput_bps`
counts the frame with its FCS, `l1_bps` 20 bytes more, `user_bps` the user data alone. Before a run the tester is
qualified on the direct link; the highest rate that it reaches there without loss is the tester zero-loss rate. A
device's rate within 10 % of it has the statistic "at_least": the device can do at least that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn import units
from sojourn.analysis.finding import Finding, Place, worst_apart
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.samples import Sample, shared
from sojourn.analysis.stream_rows import beside_rows, mean_of, per_path, trial_row
from sojourn.analysis.streams import L1_OVERHEAD, over_column, share_of
from sojourn.analysis.wording import percent
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.run import Run

NEAR = 0.9
"""A rate above this share of the tester zero-loss rate is limited by the tester."""

LOCAL_DROPS = 0.005
"""Where the tester's socket dropped more than this share, more frames arrived than were counted."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The minimum time between frames on a line, from its bit rate (of frames with FCS) or its frame rate.

    Both are None where no rate is known; `why` states the source of the rate, or why there is none.
    """

    why: str
    bps: float | None = None
    pps: float | None = None
    overhead: int = 0
    """Bytes that a frame takes on the line besides its own."""

    def interval_ns(self, frame_bytes: int) -> float | None:
        """Return the time of one frame."""
        if self.bps is not None:
            return (frame_bytes + self.overhead) * 8e9 / self.bps
        return None if self.pps is None else 1e9 / self.pps


def pace_of(run: Run, device: str, senders: int = 1) -> Pace:
    """Return the slowest line on the path over a device: the plan's shaper, a simulated serialiser, or a rated link.

    With rated links, each sender has one of its own before those that all senders share.
    """
    bed, direct = run.plan.get("bed", {}), device in (DIRECT, A_A)
    line = bed.get("lines", {}).get(DIRECT if direct else device, {}).get("serialiser")
    if line:
        return Pace("the simulated line's rate", _bits(line.get("rate_bps")), line.get("rate_pps"))
    shaped = _bits(bed.get("rate"))
    if shaped is not None and not direct:
        return Pace("the shaper's rate, in bits of frames with FCS", shaped)
    rated = cables_of(run).get(DIRECT if direct else device)
    if rated is not None:
        why = "the rate of the slowest link, in bits on the wire"
        return Pace(why, rated.through_bps(senders), overhead=L1_OVERHEAD)
    return Pace("no line rate: a virtual link passes frames on without serialising them")


def _bits(rate: object) -> float | None:
    """Return a rate in bit/s, as a plan or a line writes it."""
    if isinstance(rate, int | float):
        return float(rate)
    found = units.rate(str(rate))
    return float(found[1]) if found and found[0] == "bit/s" else None


def zero_loss_rates(run: Run) -> Iterator[tuple[str, int, float]]:
    """Return the tester zero-loss rates of the run's qualifications: engine, frame size, frames per second."""
    for event in run.log:
        if event.get("event") == "qualified" and event.get("clean_pps"):
            yield str(event.get("send_engine")), int(event["frame_bytes"]), float(event["clean_pps"])


def zero_loss_rate(run: Run, factors: Factors) -> float | None:
    """Return the tester zero-loss rate at a cell's size: of its engine, else the least of any engine."""
    known = _by_engine(run)
    exact = known.get((str(factors.engine), factors.frame_bytes or 0))
    others = [rate for (_, size), rate in known.items() if size == factors.frame_bytes]
    return exact if exact is not None else min(others, default=None)


def _by_engine(run: Run) -> dict[tuple[str, int], float]:
    return {(engine, size): rate for engine, size, rate in zero_loss_rates(run)}


def rate_rows(run: Run, trials: pl.DataFrame) -> list[Row]:
    """Return throughput in frames and in three kinds of bits, and the time between frames."""
    rows = []
    for _, _, here in per_path(run, trials):
        value = over_column(here, "received_pps")
        if not value.n:
            continue
        statistic = "at_least" if is_testers(run, here, value) else "mean"
        frame, payload = int(here["frame_bytes"][0]), int(here["payload_bytes"][0])
        rows.append(mean_of(trial_row(run, here, "throughput_pps", statistic, value, "1/s"), here, "received_pps"))
        for quantity, size in (
            ("throughput_bps", frame),
            ("l1_bps", frame + L1_OVERHEAD),
            ("user_bps", payload),
        ):
            rows.append(
                mean_of(
                    trial_row(run, here, quantity, statistic, value.scaled(8.0 * size), "bit/s"), here, "received_pps"
                )
            )
        rows += beside_rows(run, here, "throughput_pps", "received_pps", "1/s")
        gap = over_column(here, 1e9 / pl.col("received_pps"))
        rows.append(
            mean_of(trial_row(run, here, "inter_frame_time", "mean", gap, "ns"), here, 1e9 / pl.col("received_pps"))
        )
    return rows


def is_testers(run: Run, trials: pl.DataFrame, value: Interval) -> bool:
    """Return whether a device's rate is within 10 % of the tester zero-loss rate, or the receiver had local drops."""
    device, cell = str(trials["device"][0]), int(trials["cell"][0])
    if device in (DIRECT, A_A):
        return False
    tester = zero_loss_rate(run, run.cells[cell])
    dropped = float(np.median((trials["local_drops"] / trials["sent"]).to_numpy()))
    return dropped > LOCAL_DROPS or (tester is not None and value.estimate >= NEAR * tester)


def zero_loss_rows(run: Run) -> list[Row]:
    """Return the tester zero-loss rates, one for each engine and size of its qualification."""
    rows = []
    for (engine, size), rate in sorted(_by_engine(run).items()):
        cell = next((at for at, one in run.cells.items() if (one.engine, one.frame_bytes) == (engine, size)), None)
        factors = next((one for one in run.cells.values() if one.frame_bytes == size), None)
        if factors is not None:
            value = Interval(rate, None, None, 0.95, 1)
            row = Row(DIRECT, "tester_zero_loss_pps", "mean", value, "1/s", None, factors, cell)
            row.source = f"the tester's qualification with {engine}"
            rows.append(row)
    return rows


def tester_limits(run: Run, trials: pl.DataFrame, overloads: Collection[Place]) -> list[Finding]:
    """Return findings where the tester zero-loss rate, not the device, limits the received rate."""
    found: dict[Place, float] = {}
    for (device, cell), _, here in per_path(run, trials):
        value = over_column(here, "received_pps")
        tester = zero_loss_rate(run, run.cells[cell])
        if value.n and tester and device not in (DIRECT, A_A) and value.estimate >= NEAR * tester:
            found[Place(device, cell)] = value.estimate / tester
    sentence = "the tester was the limit: the device's rate is {} of the tester zero-loss rate"
    return list(worst_apart("tester_limited", found, overloads, lambda place: sentence.format(percent(found[place]))))


def overloads_of(run: Run, trials: pl.DataFrame) -> set[Place]:
    """Return floods, and loads above 90 % of the tester zero-loss rate: there the received rate is what is measured."""
    found = set()
    for (device, cell), _, here in per_path(run, trials):
        factors, tester = run.cells[cell], zero_loss_rate(run, run.cells[cell])
        asked = float(np.nanmedian(here["intended_pps"].to_numpy().astype(np.float64)))
        if factors.schedule == "flood" or (tester is not None and asked > NEAR * tester):
            found.add(Place(device, cell))
    return found


def jain(rates: NDArray[np.float64]) -> float:
    """Return Jain's index: 1 where all of n have the same rate, 1/n where one has all."""
    squares = float(np.square(rates).sum()) * len(rates)
    return float(rates.sum()) ** 2 / squares if squares else 1.0


RATES = Sample(
    "The rates over a path in a cell.",
    {
        **shared("device cell"),
        "offered_pps": (pl.Float64, "The packet rate that the senders reached."),
        "received_pps": (pl.Float64, "The packet rate at the receiver."),
        "received_low_pps": (pl.Float64, "The lower end of its interval."),
        "received_high_pps": (pl.Float64, "The upper end of its interval."),
        "user_bps": (pl.Float64, "Bits of user data received a second."),
        "throughput_bps": (pl.Float64, "Bits of frames with FCS received a second."),
        **shared("loss_ratio"),
        "loss_low": (pl.Float64, "The lower end of its interval."),
        "loss_high": (pl.Float64, "The upper end of its interval."),
        "inter_frame_ns": (pl.Float64, "The time between received frames."),
        "inter_frame_low_ns": (pl.Float64, "The lower end of its interval."),
        "inter_frame_high_ns": (pl.Float64, "The upper end of its interval."),
        "calculated_ns": (pl.Float64, "The time between frames at the line rate; null without one."),
        "tester_zero_loss_pps": (pl.Float64, "The tester zero-loss rate; null where it was not qualified."),
        "tester_limited": (pl.Boolean, "Whether the tester was the limit."),
    },
    with_factors=True,
)


def rate_samples(run: Run, trials: pl.DataFrame) -> pl.DataFrame:
    """Return one row per path and cell: offered, received, lost, time between frames, and whether the tester limits."""
    rows = []
    for (device, cell), _, here in per_path(run, trials):
        received, offered = over_column(here, "received_pps"), over_column(here, "offered_pps")
        if not received.n:
            continue
        loss = share_of(here, here["lost"].to_numpy().astype(float), here["sent"].to_numpy().astype(float))
        gap = over_column(here, 1e9 / pl.col("received_pps"))
        frame, payload = int(here["frame_bytes"][0]), int(here["payload_bytes"][0])
        told = (
            device, cell, offered.estimate, received.estimate, received.low, received.high,
            received.estimate * payload * 8, received.estimate * frame * 8, loss.estimate, loss.low, loss.high,
            gap.estimate, gap.low, gap.high,
            pace_of(run, device, run.cells[cell].senders or 1).interval_ns(frame), zero_loss_rate(run, run.cells[cell]),
            is_testers(run, here, received),
        )  # fmt: skip
        rows.append(told)
    return pl.DataFrame(rows, schema=RATES.own, orient="row")
