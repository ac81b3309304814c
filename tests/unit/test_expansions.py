"""Every built-in plan, with many options, expands into the same trials as ever, and has the same effective values.

`expansions.json` was recorded by the code before plans were rewritten: for each plan and set of options, the number of
trials, a digest of them, of the effective plan and of the estimated times.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.plan import effective_toml, load_plan
from sojourn.plan.probes import Probing
from sojourn.plan.searches import Sought
from sojourn.plan.tcp import Connections
from sojourn.plan.trials import qualify_trials

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial

ROOT = Path(__file__).parents[2]
RECORDED: dict[str, dict[str, list[Any]]] = json.loads(Path(__file__).with_name("expansions.json").read_text())


NAMED: dict[str, str] = json.loads(Path(__file__).with_name("expansions_renamed.json").read_text())
"""What is called otherwise by now, and what it was called when the digests were recorded."""


LATER = (("round_trips", ""),)
"""Factors that there were not then, without a value."""


def digest(value: Any) -> str:
    text = json.dumps(as_recorded(value), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_recorded(value: Any, known: dict[int, Any] | None = None) -> Any:
    """A value with the names of then; a table that stands in it again is gone through once."""
    known = {} if known is None else known
    if isinstance(value, dict):
        if id(value) not in known:
            known[id(value)] = {NAMED.get(key, key): as_recorded(inner, known) for key, inner in value.items()}
        return known[id(value)]
    if isinstance(value, (list, tuple)):
        return [as_recorded(one, known) if isinstance(one, (str, dict, list, tuple)) else one for one in value]
    return NAMED.get(value, value) if isinstance(value, str) else value


def rows_of(trials: Sequence[Trial[Any]]) -> list[list[Any]]:
    """Trials as they were recorded; most of thousands share their factors, which are made into a table once."""
    tables: dict[int, Any] = {}

    def table(of: Any) -> Any:
        if id(of) not in tables:
            tables[id(of)] = {key: value for key, value in asdict(of).items() if (key, value) not in LATER}
        return tables[id(of)]

    return [row(one, table) for one in trials]


def row(trial: Trial[Any], table: Callable[[Any], Any]) -> list[Any]:
    """A trial as it was recorded."""
    factors = trial.factors
    if isinstance(factors, Probing):
        at = [trial.block, trial.device, trial.round, trial.visit, trial.cell, table(factors)]
        return [*at, trial.count, trial.warmup, trial.seed]
    if isinstance(factors, Sought):
        at = [trial.block, trial.device, trial.round, factors.test, factors.engine, factors.frame_bytes]
        return [*at, factors.payload_bytes, factors.algorithm, list(factors.goals), trial.seed]
    if isinstance(factors, Connections):
        at = [trial.block, trial.device, trial.round, trial.cell]
        return [*at, factors.kind, factors.congestion, factors.pipe, factors.setting]
    if hasattr(factors, "setting"):
        at = [trial.block, trial.round, trial.visit, trial.batch, trial.cell]
        return [*at, table(factors.setting), factors.mode]
    at = [trial.block, trial.purpose, trial.device, trial.round, trial.visit, trial.cell, table(factors)]
    return [*at, trial.duration_ns, trial.count, trial.seed]


def expanded(plan: Plan) -> Sequence[Trial[Any]]:
    """Every trial; of streams in a fixed matrix, those that qualify the tester first."""
    trials = plan.ask.expand(plan)
    matrix = "trials" in plan.sections and "search" not in plan.sections
    return [*qualify_trials(plan), *trials] if matrix else trials


@pytest.mark.parametrize("name", RECORDED)
def test_a_plan_expands_into_the_recorded_trials(name: str) -> None:
    for options, (count, trials, values, times) in RECORDED[name].items():
        given = [one for one in options.split("; ") if one]
        flags = {one.removeprefix("--"): True for one in given if one.startswith("--")}
        sets = [one for one in given if not one.startswith("--")]
        plan = load_plan(ROOT / name if "/" in name else name, sets=sets, **flags)  # type: ignore[arg-type]
        every = expanded(plan)
        rows = rows_of(every)
        assert len(rows) == count, options
        assert digest(rows) == trials, options
        assert digest(tomllib.loads(effective_toml(plan))) == values, options
        told = plan.ask.describe(plan)
        assert digest({key: told[key] for key in ("measuring_ns", "total_ns")}) == times, options
