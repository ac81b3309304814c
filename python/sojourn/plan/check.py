"""Rules between the values of any plan: devices that a backend has, hypotheses that a method can test.

Each refusal names the key that a person most likely wants to change. Single values are checked before (values.py); the
further rules of a method are in its own check.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from sojourn import devices
from sojourn.errors import RequestError, nearest
from sojourn.plan.boxes import check_boxes
from sojourn.plan.emulatable import check_emulators, check_links
from sojourn.plan.real_bed import load_real_bed
from sojourn.plan.real_ports import check_real_ports
from sojourn.plan.routed import check_routed
from sojourn.plan.settings import check_settings
from sojourn.plan.source import Given, Table, refuse
from sojourn.plan.types import DIRECT, Plan
from sojourn.plan.values import one_of

if TYPE_CHECKING:
    from collections.abc import Callable

SSH = "ssh"
"""The backend whose hosts are in a file."""


def check(plan: Plan, table: Table, name: str) -> None:
    """Raise the first refusal, if any."""

    def given(key: str, value: object) -> Given:
        return table.get(key, Given(value, name))

    ask, method = plan.ask, plan.study.method
    check_hypotheses(plan, given("study.hypotheses", list(plan.study.hypotheses)))
    if plan.bed.simulated and ask.not_simulated is not None:
        raise refuse(
            given("bed.backend", plan.bed.backend), "bed.backend", f'"netns" for {method}: {ask.not_simulated}'
        )
    if "bed.devices" not in ask.unread:
        check_devices(plan, given("bed.devices", list(plan.bed.devices)))
    if plan.bed.twins and not ask.twins:
        raise refuse(given("bed.twins", value=True), "bed.twins", f"false for {method}, which measures over no twin")
    if plan.bed.sessions > 1 and not ask.sessions:
        one = f"1 for {method}, which {ask.one_bed}"
        raise refuse(given("bed.sessions", plan.bed.sessions), "bed.sessions", one)
    if plan.bed.hold and plan.bed.sessions == 1:
        raise refuse(given("bed.sessions", plan.bed.sessions), "bed.sessions", "2 or more, because bed.hold is set")
    if "order" in plan.bed.hold and not ask.probes:
        held = given("bed.hold", list(plan.bed.hold))
        raise refuse(held, "bed.hold", f'no "order" for {method}, because its trials have no order of paths')
    check_hosts(plan, given)
    check_boxes(plan, given)
    check_settings(plan, given)
    check_routed(plan, given)
    ask.check(plan, given)
    check_emulators(plan, given)
    check_links(plan, given)


def check_hosts(plan: Plan, given: Callable[[str, object], Given]) -> None:
    """Check that a file of real hosts and the ssh backend are used together."""
    if plan.bed.backend == SSH and plan.bed.hosts is None:
        wanted = "a file of hosts beside it: --bed bed.toml, which `sojourn bed new` writes"
        raise refuse(given("bed.backend", SSH), "bed.backend", wanted)
    if plan.bed.backend != SSH and plan.bed.hosts is not None:
        raise refuse(given("bed.hosts", plan.bed.hosts), "bed.hosts", f'bed.backend = "{SSH}" beside it')
    if plan.bed.hosts is not None:
        real = load_real_bed(plan.bed.hosts)
        paths = real.paths
        for device in plan.bed.devices:
            if device not in paths:
                wanted = f"devices that {plan.bed.hosts} has a path for: {', '.join(real.devices) or 'none'}"
                raise refuse(given("bed.devices", list(plan.bed.devices)), "bed.devices", wanted)
        check_real_ports(plan, given, paths)
        _check_turns(plan, given, [path.switch for path in paths.values() if path.switch is not None])


def _check_turns(plan: Plan, given: Callable[[str, object], Given], switches: list[str]) -> None:
    """Refuse a person who re-cables between passes over the trials, where a method returns to a path within a pass."""
    if devices.PERSON not in switches:
        return
    if not plan.ask.probes:
        wanted = "a program as the switch of each path, or ports of their own: a person re-cables between passes over "
        raise refuse(
            given("bed.hosts", plan.bed.hosts), "bed.hosts", f"{wanted}a session's trials, and {_beside(plan)}"
        )
    if plan.bed.sessions < 2:
        wanted = "2 or more where a person re-cables: what drifts within a session is in its difference"
        raise refuse(given("bed.sessions", plan.bed.sessions), "bed.sessions", wanted)


def _beside(plan: Plan) -> str:
    """Return why a method is not measured in passes over one path each."""
    what = "clocks are compared" if plan.ask.clock_trials else "its tester is qualified"
    if plan.ask.clock_trials or "stream" in plan.sections:
        return f"method {plan.study.method} sends over the direct path beside these, where {what}"
    return "only studies of round trips are measured in passes"


def check_hypotheses(plan: Plan, given: Given) -> None:
    """Refuse hypotheses that the method cannot test: they would be ignored silently."""
    known = plan.ask.hypotheses
    for asked in plan.study.hypotheses:
        if asked not in known:
            one = one_of(*known)
            expected = f"{one.expected or 'none'} for study.method = {plan.study.method}"
            wanted = replace(one, expected=expected).expected_for(asked)
            raise refuse(Given(asked, given.where), "study.hypotheses", wanted)


def check_devices(plan: Plan, given: Given) -> None:
    """Refuse devices that the backend cannot build."""
    for device in plan.bed.devices:
        if device == DIRECT:
            raise refuse(given, "bed.devices", 'devices only: "direct" is always there')
        if not plan.bed.simulated and devices.known(device) is None:
            meant = nearest(device, [mode.name for mode in devices.modes().values() if mode.boxes], 0.7)
            what = f"{devices.what_there_is(1)}; several of a kind have labels, 'bridge:slow'".replace("'", '"')
            hint = f': did you mean "{meant}"?' if meant else ""
            raise refuse(Given(device, given.where), "bed.devices", what + hint)
        if not plan.bed.simulated and (wanted := devices.promises(device)):
            raise refuse(Given(device, given.where), "bed.devices", wanted)
        if plan.bed.rate_bps is not None and (there := devices.known(device)) and there.mode.shapes:
            wanted = "no bed.rate beside it: its ports have queues of its own"
            raise refuse(Given(device, given.where), "bed.devices", wanted)
    if plan.bed.simulated:
        for device in (DIRECT, *plan.bed.devices):
            if device not in plan.bed.lines:
                wanted = f"expected a section [bed.lines.{quoted(device)}]"
                raise RequestError(f"{given.where}: the simulated bed has no line for {device}: {wanted}")


def quoted(device: str) -> str:
    """Return a device as a TOML key."""
    return device if re.fullmatch(r"[\w-]+", device) else f'"{device}"'
