"""What analysis and report expect of a run's plan is what runs of the built-in studies write into it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sojourn import studies
from sojourn.errors import RequestError
from sojourn.plan.effective import effective_toml
from sojourn.plan.load import load_plan
from sojourn.records.asked import require_plan


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("study", studies.names())
def test_every_shipped_plan_is_accepted(study: str, quick: bool) -> None:
    require_plan(tomllib.loads(effective_toml(load_plan(study, quick=quick))), Path("plan.toml"))


def test_plan_with_sequential_stopping_is_accepted() -> None:
    plan = load_plan("bridge-latency", sets=["study.until=±5%", "study.budget=2h"])
    require_plan(tomllib.loads(effective_toml(plan)), Path("plan.toml"))


def test_malformed_plan_is_refused() -> None:
    with pytest.raises(RequestError, match=r"plan.toml is damaged: study.hypotheses"):
        require_plan({"study": {"hypotheses": 1e308}}, Path("plan.toml"))
