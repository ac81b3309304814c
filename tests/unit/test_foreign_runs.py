"""A run folder of somebody else, whose JSON files are JSON of another shape: read, or refused in one sentence."""

from __future__ import annotations

import json
import tarfile
from io import StringIO
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from sojourn.analysis import analyse
from sojourn.cli.boots import with_boots
from sojourn.cli.compare import compare_runs
from sojourn.errors import RequestError, SojournError
from sojourn.history import entry_of
from sojourn.records import RunFolder
from sojourn.report import render_terminal
from sojourn.report.budgets import read_budgets
from sojourn.report.run import Run
from tests.unit.in_process import sojourn

GOLDEN = Path(__file__).parents[1] / "golden"
MADE = ("analysis/results.json", "analysis/verdict.json", "analysis/budgets.json")
VALUES: list[Any] = [None, True, 0, -1, 2**70, 1e308, "", "x", [], [[]], [1], [None], {}, {"a": 1}, {"": {}}]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is analysed."""
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN / "bridge-latency.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    analyse(folder / "bridge-latency")
    return folder / "bridge-latency"


def places_of(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a value of JSON other values stand; of long arrays the first three."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return [place, *(deeper for name, one in inner for deeper in places_of(one, (*place, name)))]


def put(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """The same with another value there; `...` takes it away."""
    if not place:
        return {} if new is ... else new
    first, *rest = place
    changed = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        changed[first] = put(changed[first], tuple(rest), new)
    elif new is ...:
        del changed[first]
    else:
        changed[first] = new
    return changed


def otherwise(data: st.DataObject, value: Any) -> Any:
    """The value with one or two others in it."""
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(places_of(value)))
        value = put(value, place, data.draw(st.sampled_from([..., *VALUES])))
    return value


def refused_at_most(*reads: Any) -> None:
    """Each reads, or refuses in one sentence."""
    for read in reads:
        said, status = refusal_of(read)
        assert status in {0, 2, 3, 4}
        assert "\n" not in said


def refusal_of(read: Any) -> tuple[str, int]:
    """The sentence and the status of a refusal; of a reader that takes what is there none, and 0."""
    try:
        read()
    except SojournError as error:
        return str(error), error.status
    return "", 0


@pytest.mark.parametrize("name", [*MADE, "bed.json"])
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_arbitrary_analysis_files_are_read_or_refused(whole: Path, name: str, data: st.DataObject) -> None:
    changed = otherwise(data, json.loads((whole / name).read_text()))
    with TemporaryDirectory() as spare:
        run = Path(spare) / "run"
        copytree(whole, run)
        (run / name).write_text(json.dumps(changed))
        folder = RunFolder(run)
        refused_at_most(
            lambda: entry_of(folder),
            lambda: compare_runs(run, whole, history=False),
            lambda: read_budgets(Run.read(run)),
            lambda: with_boots(folder),
            lambda: render_terminal(run, Console(file=StringIO())),
        )


@pytest.mark.parametrize("member", ["estimate", "ci_low", "ci_high"])
@pytest.mark.parametrize("value", [1e308, -1e101, pytest.param(10**400, id="of 401 digits")])
def test_figure_whose_square_is_no_number_is_refused(whole: Path, tmp_path: Path, member: str, value: float) -> None:
    run = tmp_path / "run"
    copytree(whole, run)
    rows = json.loads((run / "analysis/results.json").read_text())
    rows[1][member] = value
    (run / "analysis/results.json").write_text(json.dumps(rows))
    said, status = refusal_of(lambda: compare_runs(run, whole, history=False))
    assert status == 2
    why = f"row 1: {member} is too large for a figure, or no number"
    assert said.startswith(f"{run}/analysis/results.json cannot be read: {why};")


@pytest.mark.parametrize("level", [0.95, 1e-60])
@pytest.mark.parametrize("value", [9e99, -9e99])
def test_largest_figures_are_compared(whole: Path, tmp_path: Path, value: float, level: float) -> None:
    """Their variances have no square: the shares of the largest one are squared."""
    run = tmp_path / "run"
    copytree(whole, run)
    rows = json.loads((run / "analysis/results.json").read_text())
    for row in rows:
        row.update(estimate=value, ci_low=0.0, ci_high=1e99, level=level)
    (run / "analysis/results.json").write_text(json.dumps(rows))
    compare_runs(run, whole, history=False)


@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_arbitrary_bed_and_log_files_are_analysed_or_refused(whole: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["bed.json", "log.jsonl"]))
    text = (whole / name).read_text()
    if name == "bed.json":
        changed = json.dumps(otherwise(data, json.loads(text)))
    else:
        lines = text.splitlines()
        at = data.draw(st.integers(0, len(lines) - 1))
        changed = "\n".join([*lines[:at], json.dumps(otherwise(data, json.loads(lines[at]))), *lines[at + 1 :]])
    with TemporaryDirectory() as spare:
        run = Path(spare) / "run"
        copytree(whole, run)
        (run / name).write_text(changed)
        refused_at_most(lambda: analyse(run), lambda: render_terminal(run, Console(file=StringIO())))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bed.json", "[]", "bed.json is damaged: it is not a JSON object"),
        ("bed.json", '{"stable": []}', "bed.json is damaged: stable is of another type"),
        ("bed.json", '{"objects": {"wire": {}}}', "bed.json is damaged: objects.wire has no notes"),
        (
            "log.jsonl",
            '{"event": "emulator", "block": [1]}',
            "an event 'emulator': block is not a whole number of 32 bits",
        ),
        ("log.jsonl", '{"event": "stream-trial"}', "an event 'stream-trial': it has no block"),
    ],
)
def test_report_ends_with_status_2_and_says_what_is_wrong(
    whole: Path, tmp_path: Path, name: str, text: str, words: str
) -> None:
    copytree(whole, tmp_path / "run")
    (tmp_path / "run" / name).write_text(text)
    done = sojourn("report", str(tmp_path / "run"))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr.replace("\n", " ")


def test_malformed_budgets_are_refused(whole: Path, tmp_path: Path) -> None:
    copytree(whole, tmp_path / "run")
    file = tmp_path / "run/analysis/budgets.json"
    for text in ("{}", "[1]", '[{"name": 1}]', "[" * 100, '[{"name": "a"}]'):
        file.write_text(text)
        with pytest.raises(RequestError, match=r"budgets\.json cannot be read"):
            read_budgets(Run.read(tmp_path / "run"))


@pytest.mark.parametrize("figure", ["1e101", "NaN", pytest.param("1" + 400 * "0", id="of 401 digits")])
def test_budget_with_a_figure_that_is_too_large_is_refused(whole: Path, tmp_path: Path, figure: str) -> None:
    copytree(whole, tmp_path / "run")
    file = tmp_path / "run/analysis/budgets.json"
    budgets = json.loads(file.read_text())
    budgets[0]["estimate"] = "HERE"
    file.write_text(json.dumps(budgets).replace('"HERE"', figure))
    with pytest.raises(RequestError, match=r"budget 0: estimate is too large for a figure, or no number;"):
        read_budgets(Run.read(tmp_path / "run"))
