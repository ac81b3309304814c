"""A separate program that evaluates the records of a run once: what is planned, what is done, and the results so far.

`python -m sojourn.watch.look RUN` prints one line of JSON and writes no file. With `--give-way` it runs only when no
other program needs a processor (SCHED_IDLE), so that it does not disturb a measurement on the same machine. The figures
are those of `sojourn report`, from the same code; a run with too few trials says why.
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

from sojourn.errors import RequestError, SojournError
from sojourn.records.decode import text_of
from sojourn.records.results import read_results, read_verdict

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
"""The figures of a cell that are shown, if a run has them."""

KEPT = ("device", "reference", "quantity", "statistic", "estimate", "ci_low", "ci_high", "level", "unit", "cell",
        "clock_bound_ns")  # fmt: skip
UNENDED = frozenset({"truncated_record", "incomplete"})
"""Findings that every run has until it ends."""

FINDING = ("name", "severity", "where", "sentence")


def main() -> None:
    """Evaluate once, and print the result."""
    end_with_who_asked()
    if "--give-way" in sys.argv:
        give_way()
    try:
        told = looked(Path(sys.argv[1]))
    except SojournError as error:
        told = {"problem": str(error)}
    except Exception as error:  # records of a run in progress may lack what an analysis expects
        told = {"problem": f"too little is recorded so far ({''.join(traceback.format_exception_only(error)).strip()})"}
    print(json.dumps(told | {"cpu_s": round(time.process_time(), 2)}, allow_nan=False))


def give_way() -> None:
    """Run only when no other program needs the processor."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        os.nice(19)


def end_with_who_asked() -> None:
    """Have this process killed when the server ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def looked(folder: Path) -> dict[str, Any]:
    """Return the page's data of plan and records; from the run's own analysis if that is complete."""
    from sojourn.analysis.run import load

    run = load(folder)
    told: dict[str, Any] = {"title": run.study.get("title") or run.study.get("name", ""), "method": run.method}
    told |= {"question": run.study.get("question", ""), "cells": cells_of(run)}
    is_over = any(event.get("event") == "finished" for event in run.log)
    rows, verdict = said_by_run(run) or said_so_far(run, goes_on=not is_over and not has_failed(run))
    shown = [row for row in rows if row.get("cell") is not None and (row["quantity"], row["statistic"]) in PRESENT]
    told["figures"] = [{name: row.get(name) for name in KEPT} for row in shown]
    told |= {name: verdict[name] for name in ("verdict", "sentence")}
    told["final"] = is_over
    return told | {"findings": [{name: one[name] for name in FINDING} for one in verdict.get("findings", [])]}


def said_by_run(run: Run) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """Return rows and verdict that `sojourn run` has written; None if they are older than the log, or missing."""
    folder = run.folder
    try:
        if folder.verdict.stat().st_mtime < folder.log.stat().st_mtime:
            return None
        return read_results(folder.results), read_verdict(folder.verdict)
    except (OSError, RequestError):
        return None


def has_failed(run: Run) -> bool:
    """Return whether the run ended early, and was not resumed since."""
    ends = [event.get("event") for event in run.log if event.get("event") in {"started", "failed", "interrupted"}]
    return ends[-1:] in (["failed"], ["interrupted"])


def said_so_far(run: Run, *, goes_on: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return rows and verdict of the records; for a run in progress, without findings of incompleteness."""
    from sojourn.analysis import assess
    from sojourn.analysis.verdict import judge

    study, verdict = assess(run)
    if goes_on:
        study = replace(study, findings=[one for one in study.findings if one.name not in UNENDED])
        verdict = judge(run, study)
    return [row.tidy() for row in study.rows], verdict.tidy()


def cells_of(run: Run) -> list[dict[str, Any]]:
    """Return each cell and path of the plan: its name, and the numbers of its trials and of recorded ones.

    Trials over a twin count for its fellow: figures are of both together.
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
    """Return every trial of the plan; none if this version cannot read it."""
    from sojourn.plan import plan_from_text
    from sojourn.records.earlier import plan_text

    try:
        text = plan_text(text_of(run.folder.plan))
        return plan_from_text(text, str(run.folder.plan), ()).expand()
    except SojournError:
        return ()


def done_of(run: Run) -> set[int]:
    """Return the planned trials in the log or the records."""
    from sojourn.watch.follow import Follower

    follower = Follower(run.folder.log)
    while follower.behind and follower.poll():
        pass
    recorded = set(run.blocks["block"].to_list()) if "block" in run.blocks.columns else set()
    return follower.done | recorded


def factors_of(trial: Trial[Any]) -> Factors:
    """Return the factors of a cell without records, as far as the plan has them by these names."""
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
