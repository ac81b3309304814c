"""The verdict on a run and its sentence: what the device adds, the bed's resolution, and whether to trust the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.wording import US, counted, percent
from sojourn.devices import called
from sojourn.records.findings import label

if TYPE_CHECKING:
    from sojourn.analysis.finding import Finding
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study


SOJOURN = "Sojourn's probe"
MEASURED = ("measure", "search")
ROLES = ("send", "receive")
SIMULATED = "Simulated, not measured: "
"""The begin of the sentence of a run with simulated lines: its figures follow from the configured simulation."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The contents of verdict.json."""

    run: str
    study: str
    verdict: str
    simulated: bool
    sentence: str
    hypotheses: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    pairs: dict[str, Any]
    coverage: dict[str, Any]
    engines: dict[str, list[str]]
    checks: list[dict[str, Any]]

    def tidy(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        return {
            "run": self.run,
            "study": self.study,
            "verdict": self.verdict,
            "simulated": self.simulated,
            "sentence": self.sentence,
            "hypotheses": self.hypotheses,
            "findings": self.findings,
            "pairs": self.pairs,
            "coverage": self.coverage,
            "engines": self.engines,
            "checks": self.checks,
        }


def judge(run: Run, study: Study) -> Verdict:
    """Return the verdict: invalid or doubtful by the most severe finding, else trusted."""
    grades = {one.severity for one in study.findings}
    grade = "invalid" if "invalid" in grades else "doubtful" if "doubtful" in grades else "trusted"
    return Verdict(
        run.folder.path.resolve().name,
        str(run.study.get("name", "")),
        grade,
        run.simulated,
        f"{SIMULATED if run.simulated else ''}{study.sentence}; {_trust(grade, study.findings)}.",
        [one.tidy() for one in study.hypotheses],
        [one.tidy(run.cells) for one in study.findings],
        _pairs(run, study),
        _coverage(study.rows),
        engines_of(run),
        study.checks,
    )


def engines_of(run: Run) -> dict[str, list[str]]:
    """Return the engines that sent and received streams, as the instrument names them; empty for a run of probes."""
    if "engine" not in run.streams.columns:
        return {"send": [], "receive": []}
    measured = run.streams.filter(pl.col("purpose").is_in(MEASURED))
    return {role: sorted(set(measured.filter(pl.col("role") == role)["engine"].drop_nulls())) for role in ROLES}


def departures_sentence(run: Run, rows: list[Row]) -> str:
    """Return how well each tool kept its schedule, at the shortest interval that all of them have."""
    within = [row for row in rows if row.quantity == "pacing_within_10us" and row.factors.interval_ns]
    tools = sorted({str(row.factors.probe) for row in within})
    paces = [{row.factors.interval_ns or 0 for row in within if row.factors.probe == tool} for tool in tools]
    shared = set.intersection(*paces) if paces else set()
    if not shared:
        return f"No departures of {run.study.get('name', 'this run')} were captured"
    pace = min(shared)
    parts, several = [], False
    for tool in tools:
        shares = [row.value.estimate for row in within if row.factors.probe == tool and row.factors.interval_ns == pace]
        parts.append(f"{SOJOURN if tool == 'probe' else tool} {percent(min(shares))}")
        several = several or len(shares) > 1
    told = ", ".join(parts)
    of = f"within 10 {US} of the schedule" + (" (for each sender's worst size)" if several else "")
    return f"At {pace / 1e6:g} ms, departures (measured as arrivals at host B) {of}: {told}"


def find(rows: list[Row], device: str | None, quantity: str, statistic: str, reference: str = DIRECT) -> Row | None:
    """Return the first row with these properties."""
    return next(
        (
            row
            for row in rows
            if (row.device, row.quantity, row.statistic, row.reference) == (device, quantity, statistic, reference)
        ),
        None,
    )


def head_of(run: Run, study: Study) -> Row | None:
    """Return the headline figure: the one that the study names, else what the device adds over all cells."""
    return study.headline or find(study.rows, main_device(run.devices), "device_latency", "pooled")


def amid(device: str) -> str:
    """Return the device's name for use within a sentence."""
    name = called(device)
    return name[0].lower() + name[1:]


def _trust(grade: str, findings: list[Finding]) -> str:
    if grade == "trusted":
        notes = len(findings)
        return "no doubtful finding" + (f", {counted(notes, 'note')}" if notes else "")
    reasons = dict.fromkeys(label(one.name) for one in findings if one.severity == grade)
    return f"{'not to be used' if grade == 'invalid' else 'doubtful'}: {', '.join(reasons)}"


def _pairs(run: Run, study: Study) -> dict[str, Any]:
    device = main_device(run.devices)
    per_cell = [row.value.n for row in study.rows if row.quantity == "device_latency" and row.statistic == "mean"]
    head = head_of(run, study)
    return {
        "cells": len(run.cells),
        "per_cell_least": min(per_cell, default=0),
        "per_cell_most": max(per_cell, default=0),
        "device": device,
        "reference": None if head is None else head.reference,
        "cell": None if head is None else head.cell,
        "sessions": None if head is None else head.sessions,
        "estimate": None if head is None else head.value.estimate,
        "ci_low": None if head is None else head.value.low,
        "ci_high": None if head is None else head.value.high,
        "unit": "ns" if head is None else head.unit,
    }


def _coverage(rows: list[Row]) -> dict[str, Any]:
    """Return how many cells' A/A intervals exclude zero, and how many are expected to by chance."""
    cells = [row for row in rows if row.device == A_A and row.quantity == "device_latency" and row.statistic == "mean"]
    judged = [row for row in cells if row.value.low is not None]
    return {
        "a_a_cells": len(judged),
        "a_a_excluding_zero": sum(row.sampled.excludes(0) for row in judged),
        "a_a_expected_excluding_zero": round(sum(1 - row.value.level for row in judged), 3),
        "a_a_false_discovery_5_percent": sum(row.q_value is not None and row.q_value <= 0.05 for row in judged),
    }
