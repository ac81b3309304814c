"""Files that flent itself wrote, from the tests in its source archive, against the means that flent keeps in them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from sojourn.report.beside import read_result

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.proof,
    pytest.mark.may_skip,  # where the archive cannot be had, and for that alone
]
ARCHIVE = "flent==2.1.1 --hash=sha256:db581deac3d8099965dd0d8eee4b9c4d1857bdce5bc97790af9d3ed5b6554f73\n"
PARTS = (", before the flows", ", with the flows")
DELAY_S = 5
"""Before and behind the flows, by flent's own `TOTAL_LENGTH=LENGTH+2*DELAY`: its plots of distributions cut it off."""

FACTORS = {"ms": ("round-trip time", 1e6), "Mbits/s": ("throughput", 1e6)}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of flent."""
    folder = tmp_path_factory.mktemp("flent")
    (folder / "asked").write_text(ARCHIVE)
    argv = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "flent", "--require-hashes"]
    argv += ["-r", str(folder / "asked"), "-d", str(folder)]
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=600, check=False)
    assert "hash" not in done.stderr.lower(), done.stderr
    if done.returncode:
        pytest.skip(f"the archive cannot be had: {done.stderr.strip().splitlines()[-1:]}")
    (found,) = folder.glob("flent-*.tar.gz")
    return found


@pytest.mark.parametrize(
    ("name", "series", "left_out"),
    [
        ("test-rtt-fair", 11, {"TCP upload fairness"}),
        ("test-rrul-icmp", 15, set()),
        ("test-voip-rrul", 18, {f"VoIP::{one}" for one in ("bitrate", "delay", "induced_delay", "jitter", "loss")}),
    ],
)
def test_means_of_real_files_are_those_that_flent_keeps(
    archive: Path, tmp_path: Path, name: str, series: int, left_out: set[str]
) -> None:
    """Its own are of measured values, ours of a series with values between these: they differ by up to 2 %."""
    inside = f"flent-2.1.1/unittests/test_data/{name}.flent.gz"
    with tarfile.open(archive) as every:
        every.extract(inside, tmp_path, filter="data")
    told = json.loads(gzip.decompress((tmp_path / inside).read_bytes()))
    read = read_result(tmp_path / inside)
    assert read.tool == f"flent {told['metadata']['FLENT_VERSION']}"
    every_mean = {figure.of: figure for figure in read.figures if figure.statistic == "mean"}
    means = {of: found for of, found in every_mean.items() if not of.endswith(PARTS)}
    assert len(means) == series
    length = told["metadata"]["LENGTH"]
    assert told["results"].keys() - means.keys() == left_out
    for of, found in means.items():
        meta = told["metadata"]["SERIES_META"][of]
        kind, factor = FACTORS[meta["UNITS"]]
        assert found.kind == kind, of
        assert found.value == pytest.approx(meta["MEAN_VALUE"] * factor, rel=0.02), of
        own = [value for value in told["results"][of] if value is not None]
        extremes = {
            one.statistic: one.value for one in read.figures if one.of == of and one.statistic in {"min", "max"}
        }
        assert extremes == pytest.approx({"min": min(own) * factor, "max": max(own) * factor}), of
        assert found.n == len(own)
        if of.startswith("Ping"):
            at = zip(told["x_values"], told["results"][of], strict=True)
            during = [value * factor for time, value in at if value is not None and DELAY_S < time <= DELAY_S + length]
            with_flows = every_mean[f"{of}, with the flows"]
            assert with_flows.n == pytest.approx(len(during), abs=3), of
            assert with_flows.value == pytest.approx(sum(during) / len(during), rel=0.005), of
            assert every_mean[f"{of}, before the flows"].n == pytest.approx(DELAY_S / 0.2, abs=2), of
