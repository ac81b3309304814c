"""What a reader of a report sees: one level for one number, loads as asked, no open table of 900 rows, no comb."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.stream_samples import BINS, BULK, whole_bins
from sojourn.records import RunFolder
from sojourn.report import write_report
from sojourn.report.contents import parts_of
from sojourn.report.run import Run
from tests.unit.synthetic_streams import StreamRun, cell

if TYPE_CHECKING:
    from pathlib import Path

SAID = r"([\d.]+) % CI ([\d.,−\u202f–]+)"


def one_way(path: Path, **asked: Any) -> Path:
    run = StreamRun(path, "one-way", asked.pop("cells", [cell()]), **asked)
    folder = run.write()
    analyse(folder)
    return folder


@pytest.mark.parametrize("rounds", [6, 7, 8, 12])
def test_a_tile_has_the_level_of_the_headline(tmp_path: Path, rounds: int) -> None:
    """Of few rounds an interval of ranks has no level of just 95 %: both name it alike, and as the results have it."""
    folder = one_way(tmp_path / "run", rounds=rounds)
    run = Run.read(folder)
    headline = re.search(SAID, run.verdict["sentence"])
    tile = next(line for key in parts_of(run).keys(run) for line in key.lines if "% CI" in line)
    shown = re.search(SAID, tile)
    assert headline is not None
    assert shown is not None
    assert headline.groups() == shown.groups()
    page = write_report(folder).read_text().replace("\u00a0", " ")
    assert page.count(f"{headline[1]} % CI {headline[2]}") >= 2
    row = run.rows("device_latency", "pooled").filter(pl.col("device") == "bridge")
    assert float(headline[1]) / 100 == pytest.approx(row["level"].item(), abs=0.021)


@pytest.mark.parametrize("level", [0.9, 0.99, 0.999])
def test_level_other_than_95_percent_is_stated_in_the_tile(tmp_path: Path, level: float) -> None:
    folder = one_way(tmp_path / "run")
    results = RunFolder(folder).results
    rows = json.loads(results.read_text())
    results.write_text(json.dumps([row | {"level": level} for row in rows]))
    run = Run.read(folder)
    said = [line for key in parts_of(run).keys(run) for line in key.lines if "% CI" in line]
    assert said
    assert {re.match(SAID, line)[1] for line in said} == {f"{level * 100:g}"}  # type: ignore[index]


@pytest.mark.parametrize(
    ("schedule", "said"), [("poisson", ["Poisson 2,000/s", "Poisson 20,000/s"]), ("regular", ["regular 2,000/s"])]
)
def test_load_requested_in_frames_per_second_is_shown_so(tmp_path: Path, schedule: str, said: list[str]) -> None:
    cells = [cell(interval_ns=interval, schedule=schedule) for interval in (500_000, 50_000)]
    folder = one_way(tmp_path / "run", cells=cells)
    plan = RunFolder(folder).plan
    plan.write_text(plan.read_text() + '[stream]\nrate = ["2000pps", "20000pps"]\n')
    page = write_report(folder).read_text().replace("\u202f", ",").replace("\u00a0", " ")
    assert all(one in page for one in said)
    assert "500 µs" not in page.partition("<h2")[2].partition('<h2 id="record"')[0]


def test_load_requested_by_interval_is_shown_so(tmp_path: Path) -> None:
    cells = [cell(interval_ns=interval, schedule="poisson") for interval in (500_000, 50_000)]
    folder = one_way(tmp_path / "run", cells=cells)
    plan = RunFolder(folder).plan
    plan.write_text(plan.read_text() + '[stream]\ninterval = ["500us", "50us"]\n')
    page = write_report(folder).read_text().replace("\u202f", ",").replace("\u00a0", " ")
    assert "Poisson 500 µs" in page
    assert "2,000/s" not in page


def test_an_environment_of_many_rows_is_folded(tmp_path: Path) -> None:
    """Nothing of 900 values is seen until somebody opens them; the kernel and the processor stand at the top."""
    folder = one_way(tmp_path / "run")
    machine = {"kernel": {"release": "6.1.0-9"}, "cpu": {"model": "An EPYC", "online": 8}}
    many = {f"net.name{number}": f"value-{number}" for number in range(900)}
    (folder / "bed.json").write_text(json.dumps({"stable": {"machine": machine, "sysctl": many}}))
    page = write_report(folder).read_text()
    tags = list(re.finditer(r"<details([^>]*)>|</details>", page))
    at = page.index("value-899")
    around: list[str] = []
    for tag in tags:
        if tag.start() > at:
            break
        around.append(tag[1]) if tag[1] is not None else around.pop()
    assert around, "the values stand in no <details>"
    assert not any("open" in attributes for attributes in around), "nothing around them is open"
    assert page.index("An EPYC") < page.index("<h2")


def lattice(rng: np.random.Generator, step: float) -> Any:
    """Differences of two clocks that tick each `step` ns and are read in whole ns, of delays around 6 us."""
    left = np.floor(rng.uniform(0, 1e9, 200_000) / step)
    came = left + np.round(rng.gamma(9, 300, 200_000) / step) + round(4000 / step)
    return np.round(came * step) - np.round(left * step)


@pytest.mark.parametrize("step", [1.0, 2.0, 10.0, 18.518518, 20.0, 27.7, 41.666667, 52.083333, 100.0])
def test_histogram_bins_follow_the_timestamp_resolution(step: float) -> None:
    """Of a smooth distribution neighbouring bins differ little: bins of unequal numbers of timestamp steps are a comb.

    Clocks of 54, 36.1, 24 and 19.2 MHz tick in fractions of a nanosecond, and timestamps are whole ones.
    """
    values = lattice(np.random.default_rng(5), step).astype(float)
    low, high = (float(edge) for edge in np.quantile(values, (0.001, 0.995)))
    edges = whole_bins(values, low, high)
    counts, _ = np.histogram(values, edges)
    assert len(counts) <= BINS + 2
    assert counts.sum() >= 0.99 * len(values)
    body = counts[counts > 0.2 * counts.max()].astype(float)
    odd = np.abs(body[1:-1] - (body[:-2] + body[2:]) / 2) / body[1:-1]
    assert len(body) > 10
    assert np.median(odd) < 0.08, f"{step} ns: neighbours differ by {np.median(odd):.0%}"
    assert body.min() > 0


def test_few_scattered_values_are_binned() -> None:
    """No more than a value or two in a group, and the first far from the next."""
    values = np.array([4000.0, 4981.0, 4982.0, 5000.0, 5018.0, 5019.0, 5037.0])
    edges = whole_bins(values, 4000.0, 5037.0)
    assert edges[0] < 4000
    assert edges[-1] > 5037
    assert np.histogram(values, edges)[0].sum() == len(values)
    assert np.ptp(np.diff(edges)) < 1e-6


@pytest.mark.parametrize("values", [[53256.0, 53400.0], [53256.0, 53257.0], [100.0], [7.0, 7.0]])
def test_one_or_two_values_are_binned(values: list[float]) -> None:
    """The quantiles of two values lie between them."""
    low, high = (float(edge) for edge in np.quantile(values, BULK))
    assert np.histogram(values, whole_bins(np.array(values), low, high))[0].sum() == len(values)
