"""Round-trip times as HdrHistogram's own library reads them back: counts, quantiles, tags, times."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from sojourn.analysis.run import Run, load
from sojourn.errors import RequestError
from sojourn.export.hdr import DIGITS, MOST_NS, hdr_log
from sojourn.records import RunFolder
from tests.unit.in_process import sojourn


@pytest.fixture
def run(tmp_path: Path) -> Run:
    with tarfile.open(Path("tests/golden/bridge-latency.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    return load(tmp_path / "bridge-latency")


def test_hdrhistogram_library_reads_every_block(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "run.hlog"
    log.write_text(hdr_log(run.folder))
    reader = HistogramLogReader(str(log), HdrHistogram(1, MOST_NS, DIGITS))
    read = []
    while (histogram := reader.get_next_interval_histogram()) is not None:
        read.append(histogram)
    reader.close()
    blocks = run.measured.sort("departure_ns").partition_by("block", maintain_order=True)
    assert len(read) == len(blocks) > 10
    for histogram, block in zip(read, blocks, strict=True):
        times = block["rtt"].drop_nulls().to_numpy()
        assert histogram.get_total_count() == len(times)
        assert histogram.get_tag() == f"{block['device'][0]}/{block['instance'][0]}.cell{block['cell'][0]}"
        for share in (50, 99, 100):
            exact = np.quantile(times, share / 100, method="inverted_cdf")
            assert histogram.get_value_at_percentile(share) == pytest.approx(exact, rel=1e-3)
        started_s = histogram.get_start_time_stamp() / 1000
        assert started_s == pytest.approx(block["departure_ns"][0] / 1e9, abs=2e-3)


def test_lost_probes_are_counted_in_comments(run: Run) -> None:
    lost = run.measured["rtt"].null_count()
    told = [line for line in hdr_log(run.folder).splitlines() if "without an answer" in line]
    assert sum(int(line.partition(": ")[2].split()[0]) for line in told) == lost


def test_trials_with_the_tcp_log_are_excluded(run: Run) -> None:
    """They are in no figure: what the log costs would be in their times."""
    blocks = run.measured["block"].unique().sort().to_list()
    factors = {"flows": 1, "direction": "up", "congestion": "cubic", "pipe": ""}
    whole = {"device": "bridge", "cell": 0, "round": 0, "factors": factors,
             "flows": [{"direction": "up", "local": "10.0.0.1:1", "started_ns": 0}]}  # fmt: skip
    told = [{"event": "load-trial", "block": block, "purpose": purpose} | whole
            for block, purpose in zip(blocks, ["log", "measure"], strict=False)]  # fmt: skip
    before = lines_of(run)
    with run.folder.log.open("a") as log:
        log.writelines(json.dumps(event) + "\n" for event in told)
    assert len(lines_of(run)) == len(before) - 1 == len(blocks) - 1


def lines_of(run: Run) -> list[str]:
    """The histograms of the log."""
    return [line for line in hdr_log(run.folder).splitlines() if line.startswith("Tag=")]


def test_the_command_writes_a_file_and_refuses_streams(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "run.hlog"
    done = sojourn("export", str(run.folder.path), "--to", "hdr", "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert out.read_text().startswith("#[Histogram log format version 1.3]\n")
    with tarfile.open(Path("tests/golden/throughput.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    with pytest.raises(RequestError, match="has no round-trip times: --to hdr takes studies of probes"):
        hdr_log(RunFolder(tmp_path / "throughput"))
