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
from tests.cabled import cabled_for, cabled_to_dut

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HOSTS = "".join(f'[hosts.{name}]\naddress = "{name}.lab"\n' for name in ("a", "b", "device"))


ENDS = "".join(f'[hosts.{name}]\naddress = "{name}.lab"\n' for name in ("a", "b"))
TABLE = "search.tests=broadcast-forwarding,broadcast-latency,forward-pressure"


def refusal(study: str, file: Path, bed: str, sets: Sequence[str] = ()) -> str | None:
    """Why a study is refused between hosts with clocks of their own; None where it is not."""
    file.write_text(bed)
    try:
        plan = load_plan(study, sets=sets, backend=str(file))
        checked(bed_spec(plan, Cores(0, 1), None))
    except RequestError as error:
        return str(error)
    return refused_with_two_clocks(plan)


@pytest.mark.parametrize("study", [name for name, _ in studies()])
def test_every_study_is_planned_between_real_hosts(study: str, tmp_path: Path) -> None:
    bed = HOSTS + cabled_for(load_plan(study).bed)[1]
    assert refusal(study, tmp_path / "bed.toml", bed) is None


OURS = {
    "capture-cost": 'pairs.reference = "bridge": expected one of bed.devices',
    "rated-frame-size": "the study gives the direct link a rate or delay, which an emulator on the host of devices has",
    **dict.fromkeys(("aqm", "cubic-region", "tcp-hypotheses"), "load.pipe = "),
    "dummynet-tcp": "windows.pipe = ",
    "rtt-fairness": "expected none but where bed.devices has emulators alone",
    **dict.fromkeys(
        ("emulator-delay", "emulator-delay-rate", "emulator-loss"), 'expected a device "emulate" in bed.devices'
    ),
    **dict.fromkeys(("emulator-overhead", "emulator-throughput"), 'expected the device "emulate:idle" in bed.devices'),
    **dict.fromkeys(("tcplog-perturbation", "tcplog-truth"), "its pipes are the path"),
}
"""Why studies are refused of what Sojourn itself has on a host of devices: an emulator, a capture at a bridge."""


@pytest.mark.parametrize("study", [name for name, _ in studies()])
def test_every_study_is_planned_over_a_device_that_sojourn_does_not_build(study: str, tmp_path: Path) -> None:
    """With several ports at an end where the study asks them; an address table of others cannot be read or emptied."""
    bed = ENDS + cabled_to_dut(load_plan(study).bed)[1]
    found = refusal(study, tmp_path / "bed.toml", bed)
    if study == "rfc2889":
        assert found is not None
        assert found.endswith(
            'search.tests = "address-capacity": expected no test of the table of addresses over dut:box, which Sojourn '
            f"can neither read nor empty: --set {TABLE}"
        )
        found = refusal(study, tmp_path / "bed.toml", bed, [TABLE])
    assert (found is None) if study not in OURS else (found is not None and OURS[study] in found), found
