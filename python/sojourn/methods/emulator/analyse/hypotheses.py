"""Published hypotheses about emulators: no quantisation error, no delay too short, no dependence on the packet rate,
and losses as configured.

A hypothesis is supported where the whole interval of every figure concerned lies within its limit; a figure without an
interval makes it inconclusive.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sojourn.analysis.checks import ALARM, FAIL, INCONCLUSIVE, PASS, place
from sojourn.analysis.factors import spell_interval
from sojourn.analysis.hypotheses import Outcome
from sojourn.analysis.wording import counted, micro, percent
from sojourn.methods.emulator.analyse import loss
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.emulator.analyse.loss import Share
    from sojourn.methods.emulator.analyse.seen import Seen

    Told = tuple[list[Row], list[dict[str, Any]], dict[str, float]]

ORDER = ("fail", "inconclusive", "pass")


def evaluate(run: Run, several: list[Seen], told: Told) -> list[Outcome]:
    """Return the outcomes of the plan's hypotheses about emulators, for every path with one."""
    outcomes = []
    for name in run.hypotheses:
        for device in dict.fromkeys(one.device for one in several):
            if name in HYPOTHESES:
                outcomes.append(HYPOTHESES[name](name, device, told))
            elif name == "loss-as-configured":
                own = [one for one in several if one.device == device]
                outcomes.append(_loss_as_configured(name, device, told[1], loss.pooled(own)))
    return outcomes


def _no_tick(name: str, device: str, told: Told) -> Outcome:
    found = [one for one in told[1] if one["device"] == device and one["check"] == "delay, quantisation error"]
    return _by_checks(name, device, found, told[2]["offset"])


def _no_shortfall(name: str, device: str, told: Told) -> Outcome:
    """Test that delays are not short by a constant, as dummynet's were by 0.26 ms: by medians, which stalls do not
    move."""
    limit = told[2]["offset"]
    wanted = (device, "emulation_error_outside", "p50")
    rows = [row for row in told[0] if (row.device, row.quantity, row.statistic) == wanted]
    known = [row.value for row in rows if row.value.low is not None and row.value.high is not None]
    if not known:
        return Outcome(name, "inconclusive", "no delay has a direct path to compare it with", device)
    worst = min(known, key=lambda one: one.estimate)
    if len(known) == len(rows) and all((one.low or 0.0) >= -limit for one in known):
        side = "below" if worst.estimate < 0 else "above"
        said = f"no median delay is more than {micro(limit)} below the configured one"
        said += f": the smallest is {micro(abs(worst.estimate))} {side} it"
        return Outcome(name, "supported", said, device, margin=limit, shown=worst)
    if any((one.high or 0.0) < -limit for one in known):
        worst = min((one for one in known if (one.high or 0.0) < -limit), key=lambda one: one.estimate)
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
    """Test for every delay that its errors at different packet rates differ by less than the limit."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in told[0]:
        if (row.device, row.quantity, row.statistic) == (device, "emulation_error_outside", "p50"):
            groups.setdefault((row.factors.pipe, row.factors.frame_bytes), []).append(row)
    spans = [(_span(rows), rows) for rows in groups.values() if len(rows) > 1]
    limit = told[2]["offset"]
    if not spans:
        return Outcome(name, "inconclusive", "the run has no delay at more than one packet rate", device)
    beyond = [one for one in spans if (one[0].low or 0.0) > limit]
    doubtful = [one for one in spans if one[0].high is None or one[0].high > limit]
    worst, rows = max(beyond or doubtful or spans, key=lambda one: one[0].estimate)
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
    """Return the largest minus the least estimate; its half-width is the root sum of squares of both half-widths."""
    low, high = (pick(rows, key=lambda row: row.value.estimate).value for pick in (min, max))
    span = high.estimate - low.estimate
    halves = [one.half_width for one in (low, high)]
    if None in halves:
        return Interval(span, None, None, low.level, len(rows))
    reach = math.hypot(*(half or 0.0 for half in halves))
    return Interval(span, max(0.0, span - reach), span + reach, low.level, len(rows))


def _loss_as_configured(
    name: str, device: str, checks: list[dict[str, Any]], shares: dict[str, list[Share]]
) -> Outcome:
    """Test for every pipe over all its cells: the share is within a tenth of the configured one, the pattern is random.

    A cell that fails by itself rejects the hypothesis; one with too few packets by itself does not decide.
    """
    found = [one for one in checks if one["device"] == device and one["check"].startswith("loss")]
    if not found:
        return Outcome(name, "inconclusive", "no losses were configured", device)
    every = [(words, one) for words, several in shares.items() for one in several]
    alpha = ALARM / max(1, len(every))
    placed = [(place(one.reading(0.05), one.reading(alpha), one.zone), words, one) for words, one in every]
    beyond, unknown = ([it[1:] for it in placed if it[0] == verdict] for verdict in (FAIL, INCONCLUSIVE))
    failed = [one for one in found if one["verdict"] == FAIL]
    if beyond:
        words, worst = max(beyond, key=lambda it: _off(it[1]))
        return _shared(name, "rejected", f"{words} loses {_share(worst)}", device, worst)
    if failed:
        said = f"{len(failed)} of {counted(len(found), 'check')} of losses fail, among them {failed[0]['check']}"
        return Outcome(name, "rejected", f"{said} of {failed[0]['pipe']}", device)
    if unknown:
        words, worst = max(unknown, key=lambda it: it[1].needed / it[1].n)
        said = f"{words} loses {_share(worst)}: whether that is within {percent(loss.ZONE)} of it is not known"
        if worst.n < worst.needed:
            said += f" with {worst.n:,} packets; at least {worst.needed:,} are needed"
        return _shared(name, "inconclusive", said, device, worst)
    if untested := _untested(found, every):
        return Outcome(name, "inconclusive", untested, device)
    return _as_configured(name, device, found, every)


def _untested(found: list[dict[str, Any]], every: list[tuple[str, Share]]) -> str:
    """Return the first pipe whose loss pattern no test could judge, or whose period is longer than a trial."""
    for words, one in every:
        patterns = [it for it in found if it["pipe"] == words and it["check"].startswith(f"{one.check}, ")]
        if not any(it["verdict"] == PASS for it in patterns):
            least = loss.LEAST_LOSSES
            return (
                f"the pattern of the losses of {words} is not tested: no cell has at least {least} packets lost and "
                f"{least} kept"
            )
    for it in found:
        if it["unit"] == "packets" and it["verdict"] == INCONCLUSIVE:
            return f"no trial of {it['pipe']} is as long as one period of its loss pattern"
    return ""


def _as_configured(name: str, device: str, found: list[dict[str, Any]], every: list[tuple[str, Share]]) -> Outcome:
    patterns = sum(it["verdict"] == PASS and ", " in it["check"] for it in found)
    if not every:
        return Outcome(name, "supported", "the count determines for every packet whether it is lost", device)
    words, worst = max(every, key=lambda it: _off(it[1]))
    said = f"every pipe loses what is configured to within {percent(loss.ZONE)}: the farthest off, {words}, loses "
    said += f"{_share(worst)}; {counted(patterns, 'test')} of the pattern raise{'s' * (patterns == 1)} no alarm"
    alone = [it for it in found if it["limit"] is not None and it["verdict"] == INCONCLUSIVE]
    if alone:
        said += f"; {counted(len(alone), 'share')} of single cells {'are' if len(alone) > 1 else 'is'} inconclusive"
    return _shared(name, "supported", said, device, worst)


def _off(share: Share) -> float:
    return abs(share.lost / share.n - share.configured) / share.margin


def _share(one: Share) -> str:
    value = one.reading(0.05)
    known = f" (95 % CI {percent(value.low or 0.0)} to {percent(value.high or 0.0)})"
    return f"{percent(value.estimate)}{known} of its packets where {percent(one.configured)} are configured"


def _shared(name: str, outcome: str, said: str, device: str, one: Share) -> Outcome:
    value = one.reading(0.05)
    return Outcome(name, outcome, said, device, None, None, one.margin, value, "ratio", one.configured)


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
            f"there are too few packets to decide whether a quantisation error of the delays exceeds {micro(limit)}: "
            f"the largest estimate is {micro(largest)}"
        )
    return Outcome(name, outcome, said, device, margin=limit, shown=shown)


def _worst(found: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """Return the worst verdict as an outcome, and its check."""
    if not found:
        return "inconclusive", None
    worst = min(found, key=lambda one: (ORDER.index(one["verdict"]), -(one["measured"] or 0.0)))
    return {"pass": "supported", "fail": "rejected", "inconclusive": "inconclusive"}[worst["verdict"]], worst


HYPOTHESES: dict[str, Callable[[str, str, Told], Outcome]] = {
    "no-tick": _no_tick,
    "no-shortfall": _no_shortfall,
    "delay-independent-of-rate": _independent_of_rate,
}
