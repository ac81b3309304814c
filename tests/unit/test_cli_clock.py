"""`sojourn clock`: the instrument as it is, or with a plot of what it recorded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest

from sojourn.cli.clock import draw, with_record, without_plot
from sojourn.errors import RequestError
from sojourn.instruments import find_instrument
from sojourn.report.clocks import Clocks


def lines() -> pl.DataFrame:
    """Two peers: one ahead by a second and gaining 20 ppm, one that shares the clock."""
    second = 1_000_000_000
    return pl.DataFrame(
        {
            "peer": ["10.0.0.2:7707", "10.0.0.2:7707", "10.0.0.3:7707"],
            "from_ns": [second, 11 * second, second],
            "to_ns": [11 * second, 21 * second, 21 * second],
            "reference_ns": [6 * second, 16 * second, second],
            "offset_ns": [1e9, 1e9 + 200_000.0, 0.0],
            "skew_ppb": [20_000.0, 20_000.0, 0.0],
            "bound_ns": [9_000.0, 9_000.0, 0.0],
            "error95_ns": [300.0, 300.0, 0.0],
        }
    )


def test_option_plot_is_removed_from_the_arguments() -> None:
    assert without_plot(["10.0.0.2", "--plot", "a.svg", "--for", "2s"]) == (["10.0.0.2", "--for", "2s"], Path("a.svg"))
    assert without_plot(["--plot=a.html", "10.0.0.2"]) == (["10.0.0.2"], Path("a.html"))
    for words in (["--plot"], ["--plot="]):
        with pytest.raises(RequestError, match="expected a file"):
            without_plot(words)


def test_records_go_to_the_requested_folder() -> None:
    assert with_record(["h", "--record", "here"], Path("spare")) == (Path("here"), ["h", "--record", "here"])
    assert with_record(["h", "--record=here"], Path("spare")) == (Path("here"), ["h", "--record=here"])
    assert with_record(["h"], Path("spare")) == (Path("spare"), ["h", "--record", "spare"])


def test_plotted_points_follow_the_clock_lines() -> None:
    points = Clocks(lines()).points()
    drifting = points.filter(pl.col("skew_ppm") == 20.0).sort("seconds")
    assert drifting["seconds"].to_list()[0] == 0.0
    assert drifting["offset_us"].to_list()[0] == 0.0
    assert drifting["offset_us"].to_list()[-1] == pytest.approx(400.0)
    assert drifting["series"].unique().to_list() == ["10.0.0.2:7707 (999900.0 µs at the start)"]
    assert points.filter(pl.col("skew_ppm") == 0.0)["offset_us"].abs().max() == 0.0


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_records_are_drawn(tmp_path: Path, suffix: str) -> None:
    lines().write_ipc_stream(tmp_path / "clock_lines-clock-000.arrow")
    target = tmp_path / f"clocks{suffix}"
    draw(tmp_path, target)
    drawn = target.read_text(encoding="utf-8")
    assert ("<svg" if suffix == ".svg" else "<html") in drawn
    assert "10.0.0.2:7707" in drawn


def test_no_records_draw_no_figure(tmp_path: Path) -> None:
    draw(tmp_path, tmp_path / "clocks.svg")
    assert not (tmp_path / "clocks.svg").exists()


def test_figure_specification_is_valid() -> None:
    for panel in Clocks(lines()).figure().panels:
        assert panel.page()["width"] == "container"
    assert json.loads(Clocks(lines()).figure().file())["concat"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sim", "--truth", '{"skew_ppm":"x"}'], "--truth"),
        (["sim", "--truth", '{"count":1}'], "needs 2 at least"),
        (["sim", "--truth", '{"interval_ns":0}'], "interval_ns"),
        (["127.0.0.1", "--interval", "0ms"], "--interval"),
        (["127.0.0.1", "127.0.0.1:7707"], "named twice"),
        (["127.0.0.1", "--for", "1ms", "--interval", "1s"], "--for"),
        (["somewhere"], "expected an address"),
    ],
)
def test_wrong_requests_are_one_sentence(words: list[str], said: str) -> None:
    done = subprocess.run([find_instrument(), "clock", *words], capture_output=True, text=True, check=False)
    assert done.returncode == (4 if "at least" in said else 2), done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
