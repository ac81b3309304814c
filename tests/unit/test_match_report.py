"""`sojourn match --report`: a page of captures whose truth is known; what it shows, escapes and refuses."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import crossings
from sojourn.analysis.serialisation import serialisation_ns
from sojourn.report.crossings import page
from tests.unit.made_up_taps import Box, write_taps

SOJOURN = Path(sys.executable).with_name("sojourn")
LEAST_NS, MOST_NS = 20_000, 400_000
BOX = Box(stepped_back=0, foreign=0, copies=0, without_key=0, delay_ns=(LEAST_NS, MOST_NS))


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [str(SOJOURN), "match", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Taps, the page of them, and the rows of the match."""
    folder = tmp_path_factory.mktemp("made")
    (before,), (after,) = write_taps(BOX, folder)
    done = run(before, after, "--window", "10ms", "-o", folder / "rows", "--report", folder / "page.html", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["event"] == "matched"
    return folder


def test_delays_in_the_figures_equal_the_simulated_ones(made: Path) -> None:
    found = crossings.read(made / "rows", None)
    assert set(found.delays["direction"]) == {"forward", "backward"}
    for curve in found.delays.partition_by("direction"):
        # Delays are uniform: at each share above, the delay is where a uniform one has it.
        expected = MOST_NS - curve["exceedance"].to_numpy() * (MOST_NS - LEAST_NS)
        assert curve["delay_ns"].to_numpy() == pytest.approx(expected, abs=0.03 * MOST_NS)
    shares = found.density.group_by("direction", "rate_low_bps").agg(pl.col("share").sum())
    assert shares["share"].to_numpy() == pytest.approx(np.ones(shares.height))
    assert (found.density["low_ns"] < MOST_NS).all()
    assert (found.density["high_ns"] > LEAST_NS).all()
    middle = (LEAST_NS + MOST_NS) / 2
    held = found.sizes.select(((pl.col("low_ns") <= middle) & (middle <= pl.col("high_ns"))).mean()).item()
    assert held >= 0.8, "of 95 % intervals of the median"
    counts = {way["direction"]: way["counts"] for way in found.summary["pairs"][0]["directions"]}
    for (direction,), some in found.losses.partition_by("direction", as_dict=True).items():
        told = counts[str(direction)]
        assert some["left"].sum() == told["matched"]
        assert some["lost"].sum() == told["lost"] + told["pending"] + told["evicted"]
        assert some["reordered"].sum() == told["reordered"]
        worst = some.sort(pl.col("lost") / pl.col("entered")).tail(1).row(0, named=True)
        begin, end = (share * float(some["elapsed_s"].to_numpy().max()) for share in BOX.outage)
        assert begin - 0.02 <= worst["elapsed_s"] <= end + 0.02, "everything is lost in the outage"


def test_serialisation_time_is_subtracted_by_name(made: Path) -> None:
    whole, less = crossings.read(made / "rows", None), crossings.read(made / "rows", 10**9)
    assert (less.sizes["p50_ns"] < whole.sizes["p50_ns"]).all()
    # 8 ns an octet, of FCS and preamble too: 60 octets without FCS take 576 ns.
    assert (serialisation_ns(60, 10**9), serialisation_ns(20, 10**9), serialisation_ns(60, None)) == (576, 576, 0)
    assert "a link of 1Gbit/s (FCS, preamble) is subtracted" in page(less, ["a", "b"], "1Gbit/s")


def test_with_two_clocks_delays_are_relative_to_the_minimum_and_stated_as_such(tmp_path: Path) -> None:
    (before,), (after,) = write_taps(Box(stepped_back=0, foreign=0, offset_ns=3_000_000_000), tmp_path)
    assert run(before, after, "-o", tmp_path / "rows", "--report", tmp_path / "page.html").returncode == 0
    found = crossings.read(tmp_path / "rows", None)
    least = found.delays.group_by("direction").agg(pl.col("delay_ns").min())["delay_ns"]
    assert (least < MOST_NS / 20).all()
    # A direction's time begins with its own first packet, by its own clock.
    spans = found.timeline.group_by("direction").agg(pl.col("elapsed_s").max())["elapsed_s"]
    assert len(spans) == 2
    assert ((spans > 0.15) & (spans < 0.5)).all(), spans
    assert "The taps have two clocks." in (tmp_path / "page.html").read_text()


def test_page_escapes_names_loads_nothing_external_and_is_private(made: Path) -> None:
    text = page(crossings.read(made / "rows", None), ["<b>one", "two&<script>alert(1)</script>"], None)
    assert "<b>one" not in text
    assert "<script>alert" not in text
    assert "two&amp;&lt;script&gt;" in text
    whole = (made / "page.html").read_text()
    assert stat.S_IMODE((made / "page.html").stat().st_mode) == 0o600
    marked_up = re.sub(r"(<script[^>]*>).*?</script>", r"\1", whole, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="([^"]*)"', marked_up) == ["data:,"]
    assert "content=\"default-src 'none'; script-src 'sha256-" in whole.replace("&#39;", "'")
    ids = set(re.findall(r'id="spec-([^"]+)"', whole))
    assert {"match_cdf-0", "match_density-0", "match_time-0", "match_size-0", "match_losses-0"} <= ids


def test_existing_page_is_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("kept")
    done = run("a.pcap", "b.pcap", "--report", page)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert f"--report {page}: it is there already" in done.stderr
    assert page.read_text() == "kept"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--report"], "--report needs a FILE"),
        (["--report", "page.txt"], "--report page.txt: expected a file.html"),
        (["--report", "/no/such/folder/page.html"], "expected a file.html in a folder that is there"),
        (["--report", "page.html", "--subtract-serialisation", "fast"], "--subtract-serialisation fast: "),
        (["--report", "page.html", "--live"], "--report is for captures"),
    ],
)
def test_input_that_gives_no_page_is_refused(words: list[str], sentence: str) -> None:
    done = run("a.pcap", "b.pcap", *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
