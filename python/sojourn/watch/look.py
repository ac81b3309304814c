"""One look at the records of a run, by a program of its own: what is planned, what is done, what that says so far.

`python -m sojourn.watch.look RUN` prints one line of JSON and writes nothing. With `--give-way` it runs only where
nobody else wants a processor (SCHED_IDLE): what measures on the same machine comes first.
The figures are those of `sojourn report`, by the same code; a run that has too few trials for them says why.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.errors import SojournError
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.run import Run
    from sojourn.plan.trial import Trial

PR_SET_PDEATHSIG = 1
PRESENT = (
    ("device_latency", "mean"), ("one_way_delay", "p50"), ("one_way_delay", "p99"), ("delay_between_taps", "p50"),
    ("rtt", "p50"), ("rtt", "p99"), ("loss", "ratio"), ("loss_ratio", "ratio"), ("received_pps", "mean"),
    ("throughput_bps", "mean"), ("pacing_error", "p99"),
)  # fmt: skip
"""The figures of a cell that are shown, where a run has them."""

KEPT = ("device", "reference", "quantity", "statistic", "estimate", "ci_low", "ci_high", "level", "unit", "cell",
        "clock_bound_ns")  # fmt: skip
UNENDED = frozenset({"truncated_record", "incomplete"})
"""Findings that every run has until it ends."""

FINDING = ("name", "severity", "where", "sentence")


def main() -> None:
    """Look once, and say so."""
    end_with_who_asked()
    if "--give-way" in sys.argv:
        give_way()
    try:
        told = looked(Path(sys.argv[1]))
    except SojournError as error:
        told = {"problem": str(error)}
    except Exception as error:  # records of a run that goes on may lack what an analysis counts on
        told = {"problem": f"too little is recorded so far ({''.join(traceback.format_exception_only(error)).strip()})"}
    print(json.dumps(told | {"cpu_s": round(time.process_time(), 2)}, allow_nan=False))


def give_way() -> None:
    """Run where nobody else does."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        os.nice(19)


def end_with_who_asked() -> None:
    """Be killed when the server has ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def looked(folder: Path) -> dict[str, Any]:
    """What the page shows of the plan and of the records; where the run's own analysis is whole, what that says."""
    from sojourn.analysis.run import load

    run = load(folder)
    told: dict[str, Any] = {"title": run.study.get("title") or run.study.get("name", ""), "method": run.method}
    told |= {"question": run.study.get("question", ""), "cells": cells_of(run)}
    is_over = any(event.get("event") == "finished" for event in run.log)
    rows, verdict = said_by_run(run) or said_so_far(run, goes_on=not is_over and not has_failed(run))
    shown = [row for row in rows if row["cell"] is not None and (row["quantity"], row["statistic"]) in PRESENT]
    told["figures"] = [{name: row[name] for name in KEPT} for row in shown]
    told |= {name: verdict[name] for name in ("verdict", "sentence")}
    told["final"] = is_over
    return told | {"findings": [{name: one[name] for name in FINDING} for one in verdict["findings"]]}


def said_by_run(run: Run) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """Rows and verdict that `sojourn run` has written when it had measured; None where they are older, or not there."""
    folder = run.folder
    try:
        if folder.verdict.stat().st_mtime < folder.log.stat().st_mtime:
            return None
        return json_value(folder.results.read_bytes()), json_value(folder.verdict.read_bytes())
    except (OSError, ValueError):
        return None


def has_failed(run: Run) -> bool:
    """Whether the run ended before it was whole, and nobody has gone on with it since."""
    ends = [event.get("event") for event in run.log if event.get("event") in {"started", "failed", "interrupted"}]
    return ends[-1:] in (["failed"], ["interrupted"])


def said_so_far(run: Run, *, goes_on: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and verdict of what is recorded; that a run which goes on is not whole is not held against it."""
    from sojourn.analysis import assess
    from sojourn.analysis.verdict import judge

    study, verdict = assess(run)
    if goes_on:
        study = replace(study, findings=[one for one in study.findings if one.name not in UNENDED])
        verdict = judge(run, study)
    return [row.tidy() for row in study.rows], verdict.tidy()


def cells_of(run: Run) -> list[dict[str, Any]]:
    """Each cell and path of the plan: what it is called, how many trials it has, and how many are recorded.

    Trials over a twin are its fellow's: figures are of both together.
    """
    from sojourn.devices import A_A, fellow_of
    from sojourn.report.palette import ordered

    done, planned = done_of(run), planned_of(run)
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for trial in planned:
        label = (run.cells[trial.cell] if trial.cell in run.cells else factors_of(trial)).describe()
        device = trial.device if trial.device == A_A else fellow_of(trial.device)
        new = {"cell": trial.cell, "device": device, "label": label, "done": 0, "planned": 0}
        one = found.setdefault((trial.cell, device), new)
        one["planned"] += 1
        one["done"] += trial.block in done
    order = ordered([device for _, device in found])
    return sorted(found.values(), key=lambda one: (one["cell"], order.index(one["device"])))


def planned_of(run: Run) -> Iterable[Trial[Any]]:
    """Every trial of the plan; none where this version cannot read it."""
    from sojourn.plan import plan_from_text
    from sojourn.records.earlier import plan_text

    try:
        text = plan_text(run.folder.plan.read_text(encoding="utf-8"))
        return plan_from_text(text, str(run.folder.plan), ()).expand()
    except SojournError:
        return ()


def done_of(run: Run) -> set[int]:
    """The planned trials that the log or the records have."""
    from sojourn.watch.follow import Follower

    follower = Follower(run.folder.log)
    while follower.behind and follower.poll():
        pass
    recorded = set(run.blocks["block"].to_list()) if "block" in run.blocks.columns else set()
    return follower.done | recorded


def factors_of(trial: Trial[Any]) -> Factors:
    """The factors of a cell that nothing was recorded of yet, as far as the plan has them by their names."""
    from sojourn.analysis.factors import Factors, factors_of_stream

    told = {one.name: getattr(trial.factors, one.name, None) for one in fields(Factors)}
    told["payload_bytes"] = told["payload_bytes"] or getattr(trial.factors, "request_payload_bytes", None)
    if told["engine"] is not None:
        return factors_of_stream(told)
    if (told["probe"] or "").startswith("icmp"):
        told["icmp_bytes"] = (told["payload_bytes"] or 0) + 8
    return Factors(**told)


if __name__ == "__main__":
    main()
