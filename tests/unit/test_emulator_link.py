"""Queue, fairness, copies, damages, losses by count: logs made up row by row, each with the fault it must show."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.checks import LIMITS, Asked
from sojourn.methods.emulator.analyse import accounting, link, loss
from sojourn.methods.emulator.analyse.pipe import Pipe
from sojourn.methods.emulator.analyse.seen import Seen
from tests.unit.made_up_link import leave

SEED = 9_403
RATE = 10_000_000
START = 1_900_000_000_000_000_000


def log(n: int, **columns: Any) -> pl.DataFrame:
    """So many packets that all left at once, but for what is given."""
    at = START + np.arange(n) * 1_000_000
    rows = {
        "number": np.arange(n), "entered_ns": at, "arrival_ns": at, "intended_ns": at, "departure_ns": at,
        "disposition": ["sent"] * n, "cause": [""] * n, "flipped": [0] * n,
        "queue_slots": [0] * n, "queue_bytes": [0] * n,
        **columns,
    }  # fmt: skip
    filled = {"block": 1, "flow": 0, "frame_bytes": 1004, "flow_of_stream": None, "copy_of": None, "drawn_ns": 0}
    frame = pl.DataFrame(rows)
    frame = frame.with_columns(pl.lit(value).alias(name) for name, value in filled.items() if name not in rows)
    return frame.with_columns(link_left_ns=pl.lit(None, pl.Int64)) if "link_left_ns" not in rows else frame


def seen(pipe: dict[str, Any], rows: pl.DataFrame) -> Seen:
    """A pipe of which only the log tells."""
    trials = pl.DataFrame({"offered_pps": [1500.0], "frame_bytes": [1004], "schedule": ["regular"], "local_drops": [0]})
    none = pl.DataFrame(schema={"block": pl.Int32, "flow": pl.Int32, "seq": pl.Int64, "delay_ns": pl.Float64})
    return Seen(
        "emulate", 0, "", Pipe(pipe), [1], rows.with_columns(seq=pl.lit(None, pl.Int64)), trials, none, none, none
    )


def verdicts(several: list[Asked]) -> dict[str, str]:
    return {one.name: one.answer(0.001).verdict for one in several}


LIMITED = {"link": {"rate_bps": RATE}, "queue": {"limit": {"slots": 3, "bytes": None}}}


@pytest.mark.parametrize(
    ("slots", "lost_at", "found"),
    [
        ([0, 1, 2, 2], 3, ("pass", "pass")),
        ([0, 1, 2, 3], 3, ("fail", "pass")),
        ([0, 1, 2, 2], 1, ("pass", "fail")),
    ],
)
def test_queue_respects_its_limit_and_drops_only_when_full(
    slots: list[int], lost_at: int, found: tuple[str, str]
) -> None:
    """The last packet meets `lost_at` packets, and is lost."""
    rows = log(5, queue_slots=[*slots, lost_at], disposition=["sent"] * 4 + ["lost"], cause=[""] * 4 + ["full"])
    told = verdicts(link._queue(seen(LIMITED, rows)))
    assert (told["queue, slots"], told["queue, lost only when full"]) == found


TURNS = {
    "in turns": (np.arange(800) % 4 == 3).astype(int),
    "in order of arrival": (np.arange(800) >= 600).astype(int),
    # 18 to 5 where 15 to 5 were asked, and 5 to 2.
    "a fifth too much": (np.arange(800) * 5 // 23 != (np.arange(800) + 1) * 5 // 23).astype(int),
    "a sixth too little": (np.arange(800) * 2 // 7 != (np.arange(800) + 1) * 2 // 7).astype(int),
}
WEIGHTS = [{"name": "web", "weight": 3}, {"name": "bulk", "weight": 1}]


@pytest.mark.parametrize(
    ("scheduler", "order", "verdict"),
    [
        ("wf2q", "in turns", "pass"),
        ({"drr": {"quantum": 1500}}, "in turns", "pass"),
        ("wf2q", "a fifth too much", "fail"),
        ("wf2q", "a sixth too little", "fail"),
        ({"drr": {"quantum": 1500}}, "a fifth too much", "fail"),
        ({"drr": {"quantum": 1500}}, "a sixth too little", "fail"),
        ("wf2q", "in order of arrival", "fail"),
        ({"drr": {"quantum": 1500}}, "in order of arrival", "fail"),
        ({"fq-codel": {"quantum": 1514}}, "in turns", "fail"),
        ("fifo", "in order of arrival", None),
    ],
)
def test_backlogged_classes_share_by_weight(scheduler: object, order: str, verdict: str | None) -> None:
    """800 packets at once, three quarters of them in the class of weight 3; classes of FQ-CoDel have no weights."""
    of_class = TURNS[order]
    left = leave(np.full(800, START), np.full(800, 8000), RATE)
    rows = log(
        800, entered_ns=np.full(800, START), link_left_ns=left, flow_of_stream=of_class + 1, **{"class": of_class}
    )
    classes = [] if "fq-codel" in scheduler else WEIGHTS  # type: ignore[operator]
    pipe = {"link": {"rate_bps": RATE}, "queue": {"scheduler": scheduler, "classes": classes}}
    assert verdicts(link._fairness(seen(pipe, rows))) == ({} if verdict is None else {"fairness": verdict})


@pytest.mark.parametrize(("together", "verdict"), [(20, "inconclusive"), (200, "pass")])
def test_fairness_is_reported_only_if_a_20_percent_deficit_is_detectable(together: int, verdict: str) -> None:
    """Bursts with idle time between them: in short ones no class can fall behind by as much as its bound."""
    entered = START + np.arange(800) // together * 1_000_000_000
    left = leave(entered, np.full(800, 8000), RATE)
    of_class = TURNS["in turns"]
    rows = log(800, entered_ns=entered, link_left_ns=left, flow_of_stream=of_class + 1, **{"class": of_class})
    pipe = {"link": {"rate_bps": RATE}, "queue": {"scheduler": "wf2q", "classes": WEIGHTS}}
    assert verdicts(link._fairness(seen(pipe, rows))) == {"fairness": verdict}


def test_fairness_is_not_reported_for_classes_never_backlogged_together() -> None:
    """One packet at a time: nobody is behind anybody."""
    rows = log(
        200,
        link_left_ns=START + np.arange(200) * 1_000_000 + 800_000,
        flow_of_stream=1,
        **{"class": np.arange(200) % 2},
    )
    pipe = {"link": {"rate_bps": RATE}, "queue": {"scheduler": "wf2q"}}
    assert verdicts(link._fairness(seen(pipe, rows))) == {"fairness": "inconclusive"}


def test_link_law_holds_for_any_service_order() -> None:
    rng = np.random.default_rng(SEED)
    entered = START + np.sort(rng.integers(0, 10**9, 1000))
    left = leave(entered, np.full(1000, 8000), RATE)
    good = log(1000, entered_ns=entered, link_left_ns=left)
    idle = good.with_columns(
        link_left_ns=pl.when(pl.col("number") >= 500).then(pl.col("link_left_ns") + 5).otherwise("link_left_ns")
    )
    pipe = {"link": {"rate_bps": RATE}}
    assert verdicts(link._law(seen(pipe, good))) == {"link, departure times": "pass"}
    assert verdicts(link._law(seen(pipe, idle))) == {"link, departure times": "fail"}


@pytest.mark.parametrize(("every", "verdict"), [(10, "pass"), (11, "fail")])
def test_loss_of_every_tenth_packet_is_verified(every: int, verdict: str) -> None:
    lost = np.arange(1000) % every == 3
    rows = log(1000, disposition=np.where(lost, "lost", "sent"), cause=np.where(lost, "before", ""))
    pipe = {"before": {"loss": [{"every": {"every": 10, "first": 4}}]}}
    assert verdicts(loss._stage(seen(pipe, rows), "before")) == {"loss before the link": verdict}


@pytest.mark.parametrize(("share", "verdict"), [(0.05, "pass"), (0.08, "fail")])
def test_duplication_and_corruption_rates_are_verified(share: float, verdict: str) -> None:
    rng, n = np.random.default_rng(SEED), 20_000
    flipped = rng.binomial(1, share, n)
    rows = log(n, flipped=flipped)
    assert verdicts(loss._bit_errors(seen({"before": {"corruption": {"one-bit": 0.05}}}, rows))) == {
        "bit errors": verdict
    }
    copies = int(rng.binomial(n, share))
    doubled = log(copies, number=np.arange(copies) + n, copy_of=np.arange(copies))
    both = pl.concat([log(n).with_columns(copy_of=pl.lit(None, pl.Int64)), doubled], how="diagonal_relaxed")
    told = verdicts(loss._copies(seen({"before": {"duplication": 0.05}}, both)))
    assert told == {"duplicates before the link": verdict}


def test_bit_errors_are_counted_of_more_bits_than_32_bits_count() -> None:
    rng, n, p = np.random.default_rng(SEED), 200_000, 1e-6
    rows = log(n, flipped=rng.binomial((1514 - 4 - 14) * 8, p, n))
    rows = rows.with_columns(pl.lit(1514, pl.Int32).alias("frame_bytes"))
    assert verdicts(loss._bit_errors(seen({"after": {"corruption": {"bit-error-rate": p}}}, rows))) == {
        "bit errors": "pass"
    }


def test_bit_errors_are_counted_by_bits() -> None:
    rng, n, p = np.random.default_rng(SEED), 5000, 1e-4
    rows = log(n, flipped=rng.binomial((1004 - 4 - 14) * 8, p, n))
    assert verdicts(loss._bit_errors(seen({"after": {"corruption": {"bit-error-rate": p}}}, rows))) == {
        "bit errors": "pass"
    }
    assert verdicts(loss._bit_errors(seen({"after": {"corruption": {"bit-error-rate": 2 * p}}}, rows))) == {
        "bit errors": "fail"
    }


def test_a_packet_without_a_disposition_is_missed() -> None:
    good = log(10)
    assert verdicts(accounting.asked(seen({}, good), LIMITS)) == {"conservation": "pass"}
    for wrong in (
        good.with_columns(disposition=pl.when(pl.col("number") == 3).then(pl.lit("lost")).otherwise("disposition")),
        good.with_columns(departure_ns=pl.when(pl.col("number") != 3).then("departure_ns")),
        pl.concat([good, good.head(1)]),
    ):
        assert verdicts(accounting.asked(seen({}, wrong), LIMITS)) == {"conservation": "fail"}
