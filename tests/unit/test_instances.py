"""What an instance of a link or a device is worth: a known spread of instances in, the number out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.budget import instance
from sojourn.analysis.factors import Factors
from sojourn.analysis.instances import Turns, apart, control_findings, instance_rows, taken_in_turns
from sojourn.analysis.rows import Row
from sojourn.analysis.sessions import middle
from sojourn.report.instances import instances
from sojourn.statistics.interval import Interval

BEDS, ROUNDS, CELLS = 40, 3, 4


def trials(
    of: dict[tuple[str, int], np.ndarray[Any, Any]], noise: float, seed: int = 1, base: float = 5_000.0
) -> tuple[Any, pl.DataFrame]:
    """Trials of each path, link and bed, by what the link adds in that bed; with the run that they are of."""
    rng, second = np.random.default_rng(seed), set()
    rows: list[tuple[Any, ...]] = []
    for (device, link), added in of.items():
        for bed, more in enumerate(added):
            for turn in range(ROUNDS):
                for cell in range(CELLS):
                    block = len(rows)
                    if link == 2:
                        second.add(block)
                    value = base * (1 + cell) + more + rng.normal(0, noise)
                    rows.append((block, device, cell, bed * ROUNDS + turn, link - 1, bed, 0, value))
    names = ("block", "device", "cell", "round", "visit", "session", "port", "value")
    devices = list(dict.fromkeys(device for device, _ in of))
    cells = dict.fromkeys(range(CELLS), Factors())
    run = SimpleNamespace(second_blocks=second, has_twins=True, devices=devices, cells=cells)
    return run, pl.DataFrame(rows, schema=names, orient="row")


@pytest.mark.parametrize("sd", [0.0, 60.0])
def test_spread_of_instances_is_separated_from_measurement_scatter(sd: float) -> None:
    """Each bed has two instances that differ from their kind by sd 60 ns; trials scatter by 30 ns."""
    rng = np.random.default_rng(7)
    of = {("bridge", link): rng.normal(0, sd, BEDS) if sd else np.zeros(BEDS) for link in (1, 2)}
    run, rows = trials(of, 30.0)
    found = {
        row.quantity: row for row in instance_rows(run, apart(run, rows, "value", range(CELLS), share=False), "ns", "x")
    }
    spread, difference = found["between_instances"].value, found["instance_difference"].value
    assert spread.estimate == pytest.approx(sd, rel=0.25, abs=6)
    made = (of["bridge", 2] - of["bridge", 1]).mean()
    assert difference.estimate == pytest.approx(made, abs=6)
    assert difference.excludes(made - 60 - sd)
    assert not difference.excludes(made)
    assert found["between_instances"].sessions == BEDS


def test_second_link_slower_on_every_bed_is_a_difference_not_a_spread() -> None:
    run, rows = trials({("bridge", 1): np.zeros(BEDS), ("bridge", 2): np.full(BEDS, 40.0)}, 10.0)
    found = {
        row.quantity: row for row in instance_rows(run, apart(run, rows, "value", range(CELLS), share=False), "ns", "x")
    }
    assert found["instance_difference"].value.estimate == pytest.approx(40, abs=2)
    assert found["between_instances"].value.estimate < 5


def test_a_a_control_in_the_plan_is_compared_as_the_second_direct_link() -> None:
    run, rows = trials({("direct", 1): np.zeros(BEDS), ("a/a", 1): np.full(BEDS, 25.0)}, 5.0)
    run.second_blocks = set()
    assert apart(run, rows, "value", range(CELLS), share=False)["direct"][0].mean() == pytest.approx(25, abs=1)
    run.has_twins = False
    assert apart(run, rows, "value", range(CELLS), share=False) == {}, "one direct link, measured twice"


@pytest.mark.parametrize("more", [0.0, 0.03])
def test_two_direct_links_that_differ_in_their_rates_make_the_run_doubtful(more: float) -> None:
    """A rate is a share of its cell's mean: 3 % more over the second link, whatever the size."""
    run, rows = trials({("direct", 1): np.zeros(BEDS), ("direct", 2): np.zeros(BEDS)}, 0.0)
    noise = np.random.default_rng(3).normal(1, 0.004, rows.height)
    second = pl.col("block").is_in(sorted(run.second_blocks))
    rows = rows.with_columns(value=pl.col("value") * (1 + more * second.cast(pl.Float64)) * pl.Series(noise))
    found = apart(run, rows, "value", range(CELLS), share=True)
    assert found["direct"][0].mean() == pytest.approx(more, abs=0.002)
    findings = control_findings(found, "1")
    assert len(findings) == (more > 0)
    assert all("two direct links differ by 2.9" in one.sentence for one in findings)


NAMES = ("session", "second", "group", "value")


def searched(seed: int, beds: int, sizes: int, sd: float, noise: float = 0.005) -> Turns:
    """Sizes of very different rates on beds that differ by sd 5 %: in each every other size is over the second link."""
    rng, rows = np.random.default_rng(seed), []
    for bed in range(beds):
        level, worth = rng.normal(1, 0.05), rng.normal(0, sd, 2)
        for size in range(sizes):
            link = (size + bed) % 2
            value = 1e6 / (1 + size) * level * (1 + worth[link]) * (1 + rng.normal(0, noise))
            rows.append((bed, link == 1, str(size), value))
    return taken_in_turns(pl.DataFrame(rows, schema=NAMES, orient="row"))


def test_searches_and_transfers_of_other_sizes_give_the_difference_of_links() -> None:
    found = searched(5, 120, 6, 0.02)
    assert (len(found.pairs[0]), found.beds_each) == (60 * 3, 2)
    run: Any = SimpleNamespace(cells={})
    rows = {row.quantity: row for row in instance_rows(run, {"bridge": found.pairs}, "1", "x", found.beds_each)}
    assert rows["between_instances"].value.estimate == pytest.approx(0.02, rel=0.2)
    assert rows["between_instances"].sessions == 60, "pairs of beds"


@pytest.mark.parametrize(("beds", "sizes"), [(6, 7), (8, 4)])
def test_equal_links_seldom_differ_significantly_in_searches(beds: int, sizes: int) -> None:
    """With few beds too, on each of which a size is searched once: 5 % of the intervals exclude zero."""
    missed = 0
    for seed in range(300):
        values, session = searched(seed, beds, sizes, 0.0).pairs
        missed += middle(values, session).excludes(0)
    assert missed <= 26, "5 % of 300 are 15; more than 26 happen once in 200 times"


def test_pairs_are_formed_from_existing_beds() -> None:
    """Of six beds the second and the fifth were lost: the others still make two pairs of opposite kinds."""
    rows = [
        (bed, (size + bed) % 2 == 1, str(size), (1.02 if (size + bed) % 2 else 1.0) * (1 + bed / 10))
        for bed in (0, 2, 3, 5)
        for size in range(4)
    ]
    found = taken_in_turns(pl.DataFrame([*rows, (5, True, "9", 0.0)], schema=NAMES, orient="row"))
    assert found.pairs[0] == pytest.approx([2 * 0.02 / 2.02] * 4, rel=0.02)
    assert found.pairs[1].tolist() == [0, 0, 1, 1]


def test_bed_with_a_size_over_both_links_gives_the_difference_alone() -> None:
    rows = [(0, second, size, 1e6 * (1.01 if second else 1.0)) for size in ("64", "512") for second in (False, True)]
    found = taken_in_turns(pl.DataFrame(rows, schema=NAMES, orient="row"))
    assert found.beds_each == 1
    assert found.pairs[0] == pytest.approx([2 * 0.01 / 2.01] * 2)
    assert found.pairs[1].tolist() == [0, 0]


def test_one_size_and_one_repetition_per_bed_give_no_pairs_of_instances() -> None:
    rows = [(bed, bed % 2 == 1, "64", 1e6) for bed in range(6)]
    values, sessions = taken_in_turns(pl.DataFrame(rows, schema=NAMES, orient="row")).pairs
    assert (len(values), len(sessions)) == (0, 0)


@pytest.mark.parametrize(
    ("unit", "sd", "said", "of_mean"), [("ns", 60.0, "0.06", 60.0), ("1", 0.02, "2 %", 0.02 * 5e5)]
)
def test_budget_states_the_spread_of_instances_and_counts_it_once(
    unit: str, sd: float, said: str, of_mean: float
) -> None:
    value = Interval(5e5, 4.9e5, 5.1e5, 0.95, 16)
    row = Row("bridge", "throughput_pps", "mean", value, "ns" if unit == "ns" else "1/s", sessions=8)
    spread = Row("bridge", "between_instances", "sd", Interval(sd, None, None, 0.95, 8), unit, sessions=8)
    entry = instance([spread], row, "bridge")
    assert entry.state == "contained"
    assert f"sd {said}" in entry.source
    assert entry.component is not None
    assert entry.component.contribution == pytest.approx(of_mean / 16**0.5)
    for other in ("p99", "min"):  # what the means of instances differ by says nothing of these
        delay = Row("bridge", "rtt", other, value, "ns", sessions=8)
        assert instance([spread], delay, "bridge").component is None
    bare = instance([], row, "bridge")
    assert (bare.state, bare.component) == ("contained", None)


def test_the_table_shows_a_share_in_percent_and_a_delay_in_microseconds() -> None:
    schema = ("device", "quantity", "estimate", "ci_low", "ci_high", "unit", "source", "sessions")
    rows = pl.DataFrame(
        [
            ("bridge", "instance_difference", 0.012, -0.01, 0.03, "1", "the second link, by received rates", 5),
            ("bridge", "between_instances", 0.02, 0.01, 0.04, "1", "the second link, by received rates", 5),
            ("direct", "between_instances", 60.0, 30.0, 90.0, "ns", "", 8),
        ],
        schema=schema,
        orient="row",
    )
    run: Any = SimpleNamespace(rows=lambda quantity, *_: rows.filter(pl.col("quantity") == quantity))
    table = instances(run)
    texts = [[entry.text for entry in row] for row in table.rows]
    assert texts[0][:5] == ["bridge", "received rates", "1.2", "−1.0 to 3.0", "%"]
    assert texts[0][5:] == ["2.0", "5"]
    assert texts[1][:2] == ["direct", "round trips, one way"]
    assert texts[1][4:] == ["µs", "0.060", "8"]
