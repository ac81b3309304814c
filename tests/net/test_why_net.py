"""`sojourn why` over real TCP: of faults that our own emulator makes the right one is named, or none.

What is right is the fault that was made; a limit or a cause that is "inconclusive" is not wrong. The moment is in the
middle of the transfer, when slow start is over. The same is asked with the emulator's log, with two taps in its place,
and with TCP's log alone.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.records import read_table
from tests.net.busy_machine import retried, undisturbed
from tests.net.faulty_path import (
    FAULTS,
    SECONDS,
    SLOW_FAULTS,
    SLOW_SECONDS,
    case_of,
    faulty_bed,
    recorded,
    slow_case_of,
)
from tests.net.here import sojourn_here
from tests.unit.chrome_trace import checked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

TRUTH = {
    "queue": ("congestion_window", "queue_short"),
    "loss": ("congestion_window", "lossy_link"),
    "slow": ("congestion_window", "lossy_link"),
    "policer": ("congestion_window", "policer"),
    "receiver": ("receiver_window", "slow_receiver"),
    "application": ("application", "application_pause"),
    "standing": ("congestion_window", "standing_queue"),
}
SEEN_BY_TCP = {"receiver", "application", "standing"}
"""What TCP's own samples tell; of the others they tell the limit."""

RECORDS = {"tcp": (), "taps": ("tap-a", "tap-b"), "emulator": ("e",)}
"""What is there beside TCP's log."""

LEAST_BY_TAPS = 0.8
"""Of the answers by taps alone that are right; none is wrong."""

SEEDS = range(1001, 1005)
SLOW_SEEDS = range(2001, 2005)
"""Others than those that thresholds and rules were set with."""


def why(out: Path, *words: str | Path, at: float = SECONDS / 2 + 0.5) -> dict[str, Any]:
    done = sojourn_here("why", out / "t", "--at", f"{at}s", "--flow", str(flow_of(out)), "--json", *words)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def beside(out: Path, kind: str) -> list[str | Path]:
    """The words that name these records."""
    return [word for one in RECORDS[kind] for word in ("--records", out / one)]


def flow_of(out: Path) -> int:
    """The flow with the data: a closed connection of an earlier case may still send its FIN again."""
    account = read_table(out / "t" / "records", "tcp_account").frame.drop_nulls("flow")
    seen = account.filter(pl.col("disposition") == "seen").group_by("flow").agg(pl.col("packets").sum())
    return int(seen.sort("packets", "flow")["flow"][-1])


def graded(told: dict[str, Any], fault: str) -> str:
    """right, inconclusive or wrong."""
    limit, cause = TRUTH[fault]
    if (told["limit"], told["cause"]) == (limit, cause):
        return "right"
    is_open = told["limit"] in {limit, "inconclusive"} and told["cause"] == "inconclusive"
    return "inconclusive" if is_open else "wrong"


def expect_joined(account: dict[str, int]) -> None:
    """Every segment is joined to the packet at the emulator; without a sample of the receiver it is in one number."""
    assert account["segments"] == account["at_emulator"] == account["emulator_packets"]
    assert account["segments"] == account["received"] + account["not_received"]
    without = ("lost_at_emulator", "acknowledged_unseen", "unexplained")
    assert account["not_received"] == sum(account[one] for one in without)
    assert account["receiver_unjoined"] == account["emulator_unjoined"] == 0


@retried
@pytest.mark.parametrize("fault", ["policer", "receiver"])
def test_cause_of_an_injected_fault_is_named(fault: str, tmp_path: Path) -> None:
    with faulty_bed() as bed:
        recorded(bed, case_of(fault, 7), tmp_path / "x", 7)
    told = why(tmp_path / "x", "--records", tmp_path / "x" / "e")
    expect_joined(told["account"])
    alone = why(tmp_path / "x")
    assert graded(alone, fault) != "wrong"
    by_taps = why(tmp_path / "x", *beside(tmp_path / "x", "taps"))
    assert graded(by_taps, fault) != "wrong"
    [near, far] = by_taps["account"]["taps"]
    assert near["segments"] == by_taps["account"]["segments"] == told["account"]["segments"]
    assert near["segments"] - far["segments"] == told["account"]["lost_at_emulator"]
    words = ("timeline", tmp_path / "x" / "t", "--to", "perfetto", "--records", tmp_path / "x" / "e")
    assert sojourn_here(*words).returncode == 0
    events, _ = checked(tmp_path / "x" / "t" / "timeline.json")
    assert sum(one["name"] == "segment" and one["ph"] == "b" for one in events) == told["account"]["segments"]
    with undisturbed():
        assert (told["limit"], told["cause"]) == TRUTH[fault], told["sentences"]
        assert told["in_flight"]["segments"] > 0
        assert graded(alone, fault) == ("right" if fault in SEEN_BY_TCP else "inconclusive")


@pytest.mark.proof
@pytest.mark.alone  # on a busy machine packets are lost before the emulator, and a fault is not the only one
@pytest.mark.parametrize("is_slow", [False, True], ids=["10-to-20Mbit", "1Mbit"])
def test_nineteen_of_twenty_injected_faults_are_named_and_none_wrongly(is_slow: bool, tmp_path: Path) -> None:
    faults, make, seconds = (SLOW_FAULTS, slow_case_of, SLOW_SECONDS) if is_slow else (FAULTS, case_of, SECONDS)
    seeds = SLOW_SEEDS if is_slow else SEEDS
    grades: dict[str, Counter[str]] = {kind: Counter() for kind in RECORDS}
    odd = []
    with faulty_bed() as bed:
        for seed in seeds:
            for fault in faults:
                out = tmp_path / f"{fault}-{seed}"
                case = make(fault, seed)
                recorded(bed, case, out, seed)
                for kind in RECORDS:
                    told = why(out, *beside(out, kind), at=seconds / 2 + 0.5)
                    grade = graded(told, fault)
                    grades[kind][grade] += 1
                    if kind == "emulator":
                        expect_joined(told["account"])
                    if grade == "wrong" or (grade != "right" and kind != "tcp"):
                        odd.append((kind, case, grade, told["limit"], told["cause"], told["sentences"][:3]))
    print(grades, odd)
    count = len(seeds) * len(faults)
    assert [grades[kind]["wrong"] for kind in RECORDS] == [0, 0, 0], odd
    assert grades["taps"]["right"] >= LEAST_BY_TAPS * count, odd
    assert grades["emulator"]["right"] >= 0.95 * count, odd
