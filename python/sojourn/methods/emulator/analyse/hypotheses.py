"""Published hypotheses about emulators: no quantisation error, no delay too short, no dependence on the packet rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sojourn.analysis.factors import spell_interval
from sojourn.analysis.hypotheses import Outcome
from sojourn.analysis.wording import micro
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.emulator.analyse.seen import Seen

    Told = tuple[list[Row], list[dict[str, Any]], dict[str, float]]

ORDER = ("fail", "inconclusive", "pass")


def evaluate(run: Run, several: list[Seen], told: Told) -> list[Outcome]:
    """The plan's hypotheses that are about emulators; of every path with one."""
    devices = list(dict.fromkeys(one.device for one in several))
    return [HYPOTHESES[name](name, device, told) for name in run.hypotheses if name in HYPOTHESES for device in devices]


def _no_tick(name: str, device: str, told: Told) -> Outcome:
    found = [one for one in told[1] if one["device"] == device and one["check"] == "delay, quantisation error"]
    return _by_checks(name, device, found, told[2]["offset"])


def _no_shortfall(name: str, device: str, told: Told) -> Outcome:
    """Delays are not short by a constant, as dummynet's were by 0.26 ms: by medians, which stalls do not move."""
    limit = told[2]["offset"]
    wanted = (device, "emulation_error_outside", "p50")
    rows = [row for row in told[0] if (row.device, row.quantity, row.statistic) == wanted]
    known = [row.value for row in rows if row.value.low is not None and row.value.high is not None]
    if not known:
        return Outcome(name, "inconclusive", "no delay has a direct path to compare it with", device)
    worst = min(known, key=lambda one: one.estimate)
    if all((one.low or 0.0) >= -limit for one in known):
        side = "below" if worst.estimate < 0 else "above"
        said = f"no median delay is more than {micro(limit)} below the configured one"
        said += f": the smallest is {micro(abs(worst.estimate))} {side} it"
        return Outcome(name, "supported", said, device, margin=limit, shown=worst)
    if any((one.high or 0.0) < -limit for one in known):
        said = f"a median delay is {micro(-worst.estimate)} below the configured one"
        return Outcome(name, "rejected", said, device, margin=limit, shown=worst)
    return Outcome(
        name,
        "inconclusive",
        f"the median delays are not known within {micro(limit)}",
        device,
        margin=limit,
        shown=worst,
    )


def _independent_of_rate(name: str, device: str, told: Told) -> Outcome:
    """For every delay, its errors at different packet rates differ by less than the limit."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in told[0]:
        if (row.device, row.quantity, row.statistic) == (device, "emulation_error_outside", "p50"):
            groups.setdefault((row.factors.pipe, row.factors.frame_bytes), []).append(row)
    spans = [(_span(rows), rows) for rows in groups.values() if len(rows) > 1]
    limit = told[2]["offset"]
    if not spans:
        return Outcome(name, "inconclusive", "the run has no delay at more than one packet rate", device)
    worst, rows = max(spans, key=lambda one: one[0].estimate)
    ends = [pick(rows, key=lambda row: row.value.estimate) for pick in (min, max)]
    least, most = (
        f"{micro(one.value.estimate)} ({spell_interval(one.factors.interval_ns or 0)} apart)" for one in ends
    )
    said = f"between packet rates, the median error of {rows[0].factors.pipe} lies between {least} and {most}"
    span = f"{micro(worst.estimate)}{_ends(worst)}"
    if worst.high is not None and worst.high <= limit:
        return Outcome(
            name,
            "supported",
            f"{said}: {span} is within the limit of {micro(limit)}",
            device,
            margin=limit,
            shown=worst,
        )
    if worst.low is not None and worst.low > limit:
        return Outcome(
            name, "rejected", f"{said}: {span} is beyond the limit of {micro(limit)}", device, margin=limit, shown=worst
        )
    said += f": whether {span} is within the limit of {micro(limit)} is not known"
    return Outcome(name, "inconclusive", said, device, margin=limit, shown=worst)


def _ends(shown: Interval) -> str:
    return "" if shown.low is None or shown.high is None else f" (95 % CI {micro(shown.low)} to {micro(shown.high)})"


def _span(rows: list[Row]) -> Interval:
    """The largest minus the least estimate; its half-width is the root of the sum of both squared half-widths."""
    low, high = (pick(rows, key=lambda row: row.value.estimate).value for pick in (min, max))
    span = high.estimate - low.estimate
    halves = [one.half_width for one in (low, high)]
    if None in halves:
        return Interval(span, None, None, low.level, len(rows))
    reach = math.hypot(*(half or 0.0 for half in halves))
    return Interval(span, max(0.0, span - reach), span + reach, low.level, len(rows))


def _loss_as_configured(name: str, device: str, told: Told) -> Outcome:
    found = [one for one in told[1] if one["device"] == device and one["check"].startswith("loss")]
    outcome, worst = _worst(found)
    if worst is None:
        return Outcome(name, "inconclusive", "no losses were configured", device)
    n = len(found)
    alarms = sum(one["verdict"] == "fail" for one in found)
    if alarms:
        where = f"{worst['check']} of {worst['pipe']}"
        return Outcome(name, "rejected", f"{alarms} of {n} checks of losses fail, among them {where}", device)
    inconclusive = sum(one["verdict"] == "inconclusive" for one in found)
    said = f"{n - inconclusive} of {n} checks of losses pass, none fails"
    said += f", {inconclusive} had too few losses and are inconclusive" if inconclusive else ""
    if known := [one for one in found if one["p"] is not None]:
        least = min(known, key=lambda one: float(one["p"]))
        said += f"; the least p of them all is {least['p']:.2g} ({least['check']} of {least['pipe']})"
    return Outcome(name, outcome if inconclusive == n else "supported", said, device)


def _by_checks(name: str, device: str, found: list[dict[str, Any]], limit: float) -> Outcome:
    outcome, worst = _worst(found)
    if worst is None:
        return Outcome(name, "inconclusive", "no delay error was measured", device)
    shown = Interval(worst["measured"], worst["ci_low"], worst["ci_high"], worst["level"], worst["n"])
    largest = max(one["measured"] for one in found if one["measured"] is not None)
    said = f"no quantisation error of the delays exceeds {micro(limit)}: the largest is {micro(largest)}"
    if outcome == "rejected":
        said = f"the delays have a quantisation error of {micro(worst['measured'])}"
    elif outcome == "inconclusive":
        said = (
            f"there are too few packets to tell whether a quantisation error of the delays exceeds {micro(limit)}: the "
            f"largest estimate is {micro(largest)}"
        )
    return Outcome(name, outcome, said, device, margin=limit, shown=shown)


def _worst(found: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """The worst verdict as an outcome, and the check that has it."""
    if not found:
        return "inconclusive", None
    worst = min(found, key=lambda one: (ORDER.index(one["verdict"]), -(one["measured"] or 0.0)))
    return {"pass": "supported", "fail": "rejected", "inconclusive": "inconclusive"}[worst["verdict"]], worst


HYPOTHESES: dict[str, Callable[[str, str, Told], Outcome]] = {
    "no-tick": _no_tick,
    "no-shortfall": _no_shortfall,
    "delay-independent-of-rate": _independent_of_rate,
    "loss-as-configured": _loss_as_configured,
}
