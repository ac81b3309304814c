"""Every built-in study is planned between real hosts with clocks of their own. Reaches no host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sojourn.bed.model import checked
from sojourn.conduct.cores import Cores
from sojourn.conduct.real_hosts import refused_with_two_clocks
from sojourn.conduct.site import bed_spec
from sojourn.errors import RequestError
from sojourn.plan import load_plan
from sojourn.plan.load import studies
from tests.cabled import cabled_for

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = "".join(f'[hosts.{name}]\naddress = "{name}.lab"\n' for name in ("a", "b", "device"))


def refusal(study: str, file: Path) -> str | None:
    """Why a study is refused between hosts with clocks of their own; None where it is not."""
    file.write_text(HOSTS + cabled_for(load_plan(study).bed)[1])
    try:
        plan = load_plan(study, backend=str(file))
        checked(bed_spec(plan, Cores(0, 1), None))
    except RequestError as error:
        return str(error)
    return refused_with_two_clocks(plan)


@pytest.mark.parametrize("study", [name for name, _ in studies()])
def test_every_study_is_planned_between_real_hosts(study: str, tmp_path: Path) -> None:
    assert refusal(study, tmp_path / "bed.toml") is None
