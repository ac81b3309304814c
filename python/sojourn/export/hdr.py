"""Round-trip times as an HdrHistogram log (format 1.3): one histogram per block in ns, tagged with path and cell.

Lost probes are reported in comments, as a histogram cannot hold them. Values have three significant digits, as usual
for HdrHistogram. The warm-up and blocks that the run lost are left out, as in every figure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.analysis.run import load
from sojourn.analysis.tcp_trials import figured
from sojourn.errors import MachineError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from sojourn.records import RunFolder

MOST_NS = 3_600_000_000_000
"""One hour: no probe waits so long."""

DIGITS = 3
HEAD = "#[Histogram log format version 1.3]\n"
LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'


def hdr_log(folder: RunFolder) -> str:
    """Return the log of one run."""
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError as error:
        raise MachineError("HdrHistogram's library is missing: pip install 'sojourn[hdr]'") from error
    run = figured(load(folder.path))
    if not run.measured.height:
        raise RequestError(f"{folder.path} has no round-trip times: --to hdr takes studies of probes")
    lines = [HEAD, f"#[Round-trip times in ns of {_word(folder.path.resolve().name)}, a histogram a block]\n"]
    blocks = run.measured.sort("departure_ns").partition_by("block", maintain_order=True)
    begin_ns = min(int(one["departure_ns"][0]) for one in blocks)
    since = f"{begin_ns / 1e9:.9f} (seconds, clock {_word(run.clock)})"  # the same base as the times of the lines
    lines += [f"#[StartTime: {since}]\n", f"#[BaseTime: {since}]\n", LEGEND]
    for block in blocks:
        lines += _block(block, begin_ns, HdrHistogram(1, MOST_NS, DIGITS))
    return "".join(lines)


def _block(probes: pl.DataFrame, begin_ns: int, histogram: Any) -> Iterator[str]:
    """Return the block's line, preceded by a comment where probes were lost."""
    tag = _word(f"{probes['device'][0]}/{probes['instance'][0]}.cell{probes['cell'][0]}")
    times = probes["rtt"].drop_nulls().to_numpy()
    for value, count in zip(*np.unique(np.clip(times, 1, MOST_NS), return_counts=True), strict=True):
        histogram.record_value(int(value), int(count))
    first = int(probes["departure_ns"][0])
    last = max([int(probes["departure_ns"][-1]), *probes["arrival_ns"].drop_nulls().to_list()])
    if lost := probes.height - len(times):
        yield f"#[block {probes['block'][0]}, {tag}: {lost} of {probes.height} probes without an answer]\n"
    largest = int(times.max()) if len(times) else 0
    start_s, length_s = (first - begin_ns) / 1e9, (last - first) / 1e9
    yield f"Tag={tag},{start_s:.6f},{length_s:.6f},{largest / 1e6:.6f},{histogram.encode().decode()}\n"


def _word(words: str) -> str:
    """Return a name without the characters that separate fields of the log."""
    return re.sub(r"[^\w./:+-]", "_", words)
