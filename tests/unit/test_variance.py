"""Method "variance": its design, what each bed holds, and a simulated run whose beds differ by their cores alone."""

from __future__ import annotations

import io
from collections import Counter
from itertools import combinations, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.errors import RequestError
from sojourn.methods.variance.ask import design, held_by_bed
from sojourn.plan import load_plan
from sojourn.plan.types import DRAWN
from sojourn.records.log import read_log
from sojourn.report import write_report
from sojourn.statistics.components import factorial

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.plan import Plan


def quick(*sets: str, **how: Any) -> Plan:
    return load_plan("variance", quick=True, sets=sets, **how)


@pytest.mark.parametrize("factors", [DRAWN[:k] for k in range(7)])
def test_each_factor_is_held_in_half_of_the_rows_and_any_two_in_a_quarter(factors: tuple[str, ...]) -> None:
    rows = design(factors)
    assert rows[0] == ()
    assert len(rows) == 2 ** min(3, len(factors))
    for one in factors:
        assert sum(one in row for row in rows) == len(rows) // 2
    for one, other in combinations(factors, 2):
        assert sum(one in row and other in row for row in rows) == len(rows) // 4
    assert factorial(np.array([[one not in row for one in factors] for row in rows], dtype=np.bool_)) is not None


def test_every_bed_of_the_plan_holds_what_the_design_says() -> None:
    held = Counter(held_by_bed(quick()))
    assert held == {row: 8 if not row else 4 for row in design(DRAWN)}
    assert held_by_bed(quick()) != sorted(held_by_bed(quick()))


def test_paths_are_visited_in_one_order_on_a_bed_and_on_beds_that_hold_it() -> None:
    plan = quick()
    each = plan.pairs.rounds // plan.bed.sessions
    orders: dict[int, set[tuple[str, ...]]] = {}
    for (turn, visit), several in groupby(plan.expand(), key=lambda trial: (trial.round, trial.visit)):
        if visit == 0:
            orders.setdefault(turn // each, set()).add(tuple(trial.device for trial in several))
    assert {len(found) for found in orders.values()} == {1}
    held = held_by_bed(plan)
    kept = {frozenset(orders[bed]) for bed in orders if "order" in held[bed]}
    drawn = {frozenset(orders[bed]) for bed in orders if "order" not in held[bed]}
    assert len(kept) == 1
    assert len(drawn) > 2


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["sessions=35"], r"bed.sessions = 35: expected 36 or more: variance.beds = 8, and 4 of each row that holds"),
        (
            ["rounds=145"],
            r"pairs.rounds = 145: expected a multiple of bed.sessions x variance.starts = 72, from 144 on",
        ),
        (["rounds=72"], "from 144 on"),
        (['factors=["moon"]'], 'each "layout" or "addresses"'),
        (["icmp_bytes=64,100"], "one size, one probe, one schedule and one interval"),
        (['bed.hold=["layout"]'], "bed.hold"),
    ],
)
def test_what_the_design_cannot_have_is_refused(sets: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        quick(*sets)


def test_a_simulated_run_says_that_the_cores_carry_it(tmp_path: Path) -> None:
    plan = quick('factors=["cores", "layout"]', "sessions=20", "rounds=80", backend="sim")
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    started = [event for event in read_log(folder.log) if event["event"] == "started"]
    assert [(one["part"], one["bed"]) for one in started] == [(part, part // 2) for part in range(40)]
    assert [tuple(one["draw"]["held"]) for one in started[::2]] == held_by_bed(plan)
    verdict = analyse(folder.path)
    found = pl.read_parquet(folder.analysis / "results.parquet").filter(device="bridge", reference="wire")
    rows = {(row["quantity"], row["statistic"]): row for row in found.iter_rows(named=True)}
    bed, start, repeat = (rows["variance_component", name] for name in ("bed", "start", "repeat"))
    assert bed["ci_low"] < 200 < bed["ci_high"]
    assert start["ci_low"] == 0
    assert repeat["ci_high"] < 40
    assert rows["variance_component", "cores"]["ci_low"] < 200 < rows["variance_component", "cores"]["ci_high"]
    assert rows["variance_share", "cores"]["ci_low"] > 0
    assert rows["variance_share", "layout"]["ci_low"] == 0
    assert "cores carries" in verdict.sentence
    assert "not told apart from nothing: layout" in verdict.sentence
    page = write_report(folder.path)
    assert "What carries the variance of beds" in page.read_text()
