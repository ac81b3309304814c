"""From the records of a run to figures, answers and a verdict: `analyse(folder)`.

Reads plan.toml, bed.json, log.jsonl and records/ of a run folder; writes analysis/, which may be deleted and made again
and is the same to the last bit for the same records. It measures nothing and imports nothing of the half that does.

What it writes:

- `results.json`, `results.parquet`: the tidy table, one row per figure (`rows.Row.tidy` lists the columns).
- `verdict.json`: verdict, sentence, answered laws, findings, and how the A/A control came out.
- `samples/*.parquet`, what figures draw. Those of cells carry the cell's factors (probe, schedule, icmp_bytes,
  payload_bytes, response_payload_bytes, frame_bytes, response_frame_bytes, interval_ns) beside `cell`:
    - `rtt_quantiles`: device, cell, q (the share of probes above), rtt_ns; for a CDF on a log(1 - p) axis.
    - `timeline`: device, cell, round, visit, elapsed_s, rtt_ns; thinned, the slowest probes kept.
    - `blocks`: block, device, cell, round, visit, elapsed_s, mean_rtt_ns, lost.
    - `pairs`: device, reference, cell, round, latency_ns (one way); the A/A control is device "a/a".
    - `sizes`: device, reference (null: whole path), probe, frame_bytes, estimate_ns, ci_low_ns, ci_high_ns: the points.
    - `lines`: the same columns on a fine grid of sizes: the fitted line and its 95 % band.
    - `departure_errors`: device, q, error_ns (absolute); for method "departures" device is the tool, and the factors
      of its trials stand beside it.

How a figure is made is said where it is made: `pairs` (a device's latency), `sizes` (a + b x size), `paths` (round-trip
times, losses), `departures` (senders), `laws`, and `tester`, `shape`, `soundness` (findings).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.analysis.verdict import Verdict

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run

__all__ = ["Verdict", "analyse"]


def analyse(folder: Path) -> Verdict:
    """Analyse the run in `folder`, write its analysis/ anew, and give the verdict."""
    from sojourn.analysis.run import load

    run = load(Path(folder))
    if run.folder.analysis.exists():
        shutil.rmtree(run.folder.analysis)
    run.folder.analysis.mkdir(parents=True)
    rows, verdict = _departures(run) if run.method == "departures" else _pairs(run)
    _write(run, rows, verdict)
    return verdict


def _pairs(run: Run) -> tuple[list[Row], Verdict]:
    from sojourn.analysis.finding import mark
    from sojourn.analysis.laws import answer_laws
    from sojourn.analysis.pairs import latency_rows, resolution, rounds_of
    from sojourn.analysis.paths import path_rows
    from sojourn.analysis.samples import write_samples
    from sojourn.analysis.shape import shape_findings
    from sojourn.analysis.sizes import by_size, size_rows
    from sojourn.analysis.soundness import soundness_findings
    from sojourn.analysis.tester import stamp_sources, tester_findings
    from sojourn.analysis.verdict import judge

    rounds = rounds_of(run)
    fits = by_size(run, rounds)
    rows = [*latency_rows(run, rounds), *size_rows(fits), *path_rows(run)]
    bed = resolution(rounds)
    bed_ns = 0.0 if bed is None else bed.estimate
    findings = [
        *tester_findings(run),
        *soundness_findings(rows, bed_ns),
        *shape_findings(run, rounds, bed_ns),
    ]
    mark(rows, findings)
    stamp_sources(run, rows)
    write_samples(run.folder.samples, run, rounds, fits)
    return rows, judge(run, rows, findings, answer_laws(run, rounds, bed_ns))


def _departures(run: Run) -> tuple[list[Row], Verdict]:
    from sojourn.analysis.departures import departure_rows, trials_of
    from sojourn.analysis.finding import mark
    from sojourn.analysis.samples import write_departures
    from sojourn.analysis.tester import departures_findings
    from sojourn.analysis.verdict import judge

    trials = trials_of(run)
    rows = departure_rows(trials)
    findings = departures_findings(run)
    mark(rows, findings)
    write_departures(run.folder.samples, trials)
    return rows, judge(run, rows, findings, [])


def _write(run: Run, rows: list[Row], verdict: Verdict) -> None:
    import polars as pl

    tidy = [row.tidy() for row in rows]
    run.folder.results.write_text("[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in tidy) + "\n]\n")
    frame = pl.DataFrame(tidy, infer_schema_length=None)
    frame.write_parquet(run.folder.analysis / "results.parquet", compression="zstd")
    run.folder.verdict.write_text(json.dumps(verdict.tidy(), indent=2, allow_nan=False, ensure_ascii=False) + "\n")
