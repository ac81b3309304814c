"""What was published of emulators, asked of ours: no saw-tooth of a tick, nothing too little, whatever the rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sojourn.analysis.laws import Answer
from sojourn.analysis.wording import micro
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.emulator.analyse.seen import Seen

    Told = tuple[list[Row], list[dict[str, Any]], dict[str, float]]

ORDER = ("fail", "cannot tell", "pass")


def answer(run: Run, several: list[Seen], told: Told) -> list[Answer]:
    """The plan's laws that are about emulators; of every arm with one."""
    asked = [str(one) for one in run.study.get("laws", [])]
    devices = list(dict.fromkeys(one.device for one in several))
    return [LAWS[law](law, device, told) for law in asked if law in LAWS for device in devices]


def _no_tick(law: str, device: str, told: Told) -> Answer:
    found = [one for one in told[1] if one["device"] == device and one["check"] == "delay, saw-tooth"]
    return _by_checks(law, device, found, "no periodic part of the delay's error is larger than", told[2]["offset"])


def _no_shortfall(law: str, device: str, told: Told) -> Answer:
    """Delays are not too short by a constant, as dummynet's by 0.26 ms: by their medians, which no stall moves."""
    limit = told[2]["offset"]
    wanted = (device, "emulation_error_outside", "p50")
    rows = [row for row in told[0] if (row.device, row.quantity, row.statistic) == wanted]
    known = [row.value for row in rows if row.value.low is not None and row.value.high is not None]
    if not known:
        return Answer(law, "cannot tell", "no delay is known beside the direct path's", device)
    worst = min(known, key=lambda one: one.estimate)
    if all((one.low or 0.0) >= -limit for one in known):
        side = "below" if worst.estimate < 0 else "above"
        said = f"no median delay is more than {micro(limit)} below the configured one"
        said += f": the smallest is {micro(abs(worst.estimate))} {side} it"
        return Answer(law, "holds", said, device, margin=limit, shown=worst)
    if any((one.high or 0.0) < -limit for one in known):
        said = f"delays are short by {micro(-worst.estimate)} in the median"
        return Answer(law, "fails", said, device, margin=limit, shown=worst)
    return Answer(law, "cannot tell", f"medians are not known to {micro(limit)}", device, margin=limit, shown=worst)


def _independent_of_rate(law: str, device: str, told: Told) -> Answer:
    """Of every delay: its error at the packet rates that were tried differs by less than the limit."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in told[0]:
        if (row.device, row.quantity, row.statistic) == (device, "emulation_error_outside", "p50"):
            groups.setdefault((row.factors.pipe, row.factors.frame_bytes), []).append(row)
    spans = [_span(rows) for rows in groups.values() if len(rows) > 1]
    limit = told[2]["offset"]
    if not spans:
        return Answer(law, "cannot tell", "the run has no delay at several rates", device)
    worst = max(spans, key=lambda one: one.estimate)
    said = f"over packet rates, the median of a delay's error moves by at most {micro(worst.estimate)}"
    if worst.high is not None and worst.high <= limit:
        return Answer(law, "holds", said, device, margin=limit, shown=worst)
    beyond = worst.low is not None and worst.low > limit
    return Answer(law, "fails" if beyond else "cannot tell", said, device, margin=limit, shown=worst)


def _span(rows: list[Row]) -> Interval:
    """From the least to the largest estimate; the interval adds and takes both ends' half-widths."""
    low, high = (pick(rows, key=lambda row: row.value.estimate).value for pick in (min, max))
    span = high.estimate - low.estimate
    halves = [one.half_width for one in (low, high)]
    if None in halves:
        return Interval(span, None, None, low.level, len(rows))
    reach = math.hypot(*(half or 0.0 for half in halves))
    return Interval(span, max(0.0, span - reach), span + reach, low.level, len(rows))


def _loss_as_configured(law: str, device: str, told: Told) -> Answer:
    found = [one for one in told[1] if one["device"] == device and one["check"].startswith("loss")]
    answer_, worst = _worst(found)
    if worst is None:
        return Answer(law, "cannot tell", "no losses were configured", device)
    n = len(found)
    alarms = sum(one["verdict"] == "fail" for one in found)
    if alarms:
        where = f"{worst['check']} of {worst['pipe']}"
        return Answer(law, "fails", f"{alarms} of {n} checks of losses fail, {where} among them", device)
    least = min((one["p"] for one in found if one["p"] is not None), default=float("nan"))
    said = f"none of {n} checks of losses is beyond chance: the least p is {least:.2g}"
    untold = sum(one["verdict"] == "cannot tell" for one in found)
    said += f"; {untold} had too few losses to say" if untold else ""
    return Answer(law, answer_ if untold == n else "holds", said, device)


def _by_checks(law: str, device: str, found: list[dict[str, Any]], what: str, limit: float) -> Answer:
    answer_, worst = _worst(found)
    if worst is None:
        return Answer(law, "cannot tell", "nothing was measured that could tell", device)
    shown = Interval(worst["measured"], worst["ci_low"], worst["ci_high"], worst["level"], worst["n"])
    largest = max(one["measured"] for one in found if one["measured"] is not None)
    said = f"{what} {micro(limit)}: the most is {micro(largest)}"
    if answer_ == "fails":
        said = f"a part of the delay's error repeats itself, {micro(worst['measured'])} high"
    elif answer_ == "cannot tell":
        said = (
            f"whether a periodic part of the delay's error is larger than {micro(limit)} is not known: the largest "
            f"estimate is {micro(largest)}, with too few packets to be sure"
        )
    return Answer(law, answer_, said, device, margin=limit, shown=shown)


def _worst(found: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """The gravest verdict as an answer, and the check that has it."""
    if not found:
        return "cannot tell", None
    worst = min(found, key=lambda one: (ORDER.index(one["verdict"]), -(one["measured"] or 0.0)))
    return {"pass": "holds", "fail": "fails", "cannot tell": "cannot tell"}[worst["verdict"]], worst


LAWS: dict[str, Callable[[str, str, Told], Answer]] = {
    "no-tick": _no_tick,
    "no-shortfall": _no_shortfall,
    "delay-independent-of-rate": _independent_of_rate,
    "loss-as-configured": _loss_as_configured,
}
