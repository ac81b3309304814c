"""From the records of a run to figures, answers and a verdict: `analyse(folder)`.

Reads plan.toml, bed.json, log.jsonl and records/ of a run folder; writes analysis/, which may be deleted and made again
and is the same to the last bit for the same records. It measures nothing and imports nothing of the half that does.

What it writes:

- `results.json`, `results.parquet`: the tidy table, one row per figure (`rows.Row.tidy` lists the columns).
- `budgets.json`: the uncertainty budget of each headline figure (`budget`, and `records.budgets` for the names).
- `verdict.json`: verdict, sentence, tested hypotheses, findings, and how the A/A control came out.
- `samples/*.parquet`, what figures draw (`samples.Sample` declares them).

How a figure is made is said where it is made: `pairs` (a device's latency), `sizes` (a + b x size), `paths` (round-trip
times, losses), `departures` (senders), `hypotheses`; findings: `tester`, `shape`, `soundness`. Of streams, `streams`
says what every method has in common, and each method's module what is its own: `one_way`, `throughput`, `loss`,
`fan_in`, `multicast`, `background`, `stages`, `model`, `suites`. `links` knows the rates of links.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sojourn.analysis.verdict import Verdict
from sojourn.methods import load as load_method
from sojourn.records.results import TIDY
from sojourn.records.whole_file import write_table, write_whole
from sojourn.records.whole_folder import whole_folder

if TYPE_CHECKING:
    from sojourn.analysis.budget import Stated
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Method, Study
    from sojourn.records import RunFolder

__all__ = ["Verdict", "analyse", "assess"]


def analyse(folder: Path) -> Verdict:
    """Analyse the run in `folder`, rewrite its analysis/, and return the verdict."""
    from sojourn.analysis.run import load
    from sojourn.analysis.samples import write_samples

    run = load(Path(folder))
    study, verdict = assess(run)
    method = cast("Method", load_method(run.method, "analyse"))
    budgets = method.budgets(run, study) if hasattr(method, "budgets") else []
    with whole_folder(run.folder.analysis) as draft:
        write_samples(draft / run.folder.samples.name, study.samples, getattr(method, "SAMPLES", {}))
        _write(draft, run.folder, study.rows, verdict)
        _write_budgets(draft / run.folder.budgets.name, budgets)
    return verdict


def assess(run: Run) -> tuple[Study, Verdict]:
    """Return the results so far and whether to trust them; write nothing, so that a run may still be in progress."""
    from sojourn.analysis.finding import mark
    from sojourn.analysis.poisson import poisson
    from sojourn.analysis.settings import settings
    from sojourn.analysis.stopping import ended
    from sojourn.analysis.surroundings import lost
    from sojourn.analysis.too_few import too_few
    from sojourn.analysis.verdict import judge

    method = cast("Method", load_method(run.method, "analyse"))
    study = method.study(run)
    study.findings.extend(too_few(study.rows, run.sessions))
    study.findings.extend(lost(run))
    study.findings.extend(settings(run))
    study.findings.extend(ended(run))
    tests, misfits = poisson(run)
    study.rows.extend(tests)
    study.findings.extend(misfits)
    mark(study.rows, study.findings)
    return study, judge(run, study)


def _write(into: Path, names: RunFolder, rows: list[Row], verdict: Verdict) -> None:
    import polars as pl

    tidy = [row.tidy() for row in rows]
    write_whole(
        into / names.results.name, "[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in tidy) + "\n]\n"
    )
    further = [name for name in (tidy[0] if tidy else ()) if name not in TIDY]
    typed = {**TIDY, **{name: pl.Series([row.get(name) for row in tidy]).dtype for name in further}}
    frame = pl.DataFrame(tidy, schema=typed)
    write_table(into / "results.parquet", frame)
    said = json.dumps(verdict.tidy(), indent=2, allow_nan=False, ensure_ascii=False)
    write_whole(into / names.verdict.name, said + "\n")


def _write_budgets(path: Path, budgets: list[Stated]) -> None:
    tidy = [one.tidy() for one in budgets]
    write_whole(path, json.dumps(tidy, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
