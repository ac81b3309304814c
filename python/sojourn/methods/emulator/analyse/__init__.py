"""Method "emulator": an emulating bridge against what it was configured to do, from outside and by its own log.

Every cell has a pipe. What was configured is compared with what was measured, check by check (`checks`), each with its
verdict: delays (`delay`), losses (`loss`), link and queue (`link`), the books (`account`). From outside it is the
stream's own stamps and numbers, less the direct path in the same cell; by the log, what the emulator wrote of every
packet; by the oracle, what the same engine makes of the same arrivals in virtual time. A check that fails is a fault of
the emulator and no doubt of the measurement: the verdict on the run stays one on the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.analysis.checks import ALARM, Checks, limits_of
from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.wording import counted, micro, percent
from sojourn.methods.emulator.analyse import account, delay, figures, hypotheses, link, loss, path
from sojourn.methods.emulator.analyse.seen import Seen, seen_of

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study

ASKING = (delay.asked, loss.asked, link.asked, account.asked)


def study(run: Run) -> Study:
    """The figures, the checks with their verdicts, the hypotheses that were published, and what the page draws."""
    of = Gathered(run)
    several = seen_of(of)
    of.overloads.update(Place(device, one.cell) for one in several if one.pipe.rate_bps for device in run.devices)
    of.begin()
    of.rows.extend(row for one in several for row in figures.rows_of(run, one))
    checks = checked(run, several)
    of.hypotheses.extend(hypotheses.evaluate(run, several, (of.rows, checks, limits_of(run))))
    of.samples.update(figures.samples(run, several, checks))
    found = of.conclude(sentence(of.rows, several, checks) + path.sentence(run, of.rows))
    return _as_asked(found, several, checks)


def checked(run: Run, several: list[Seen]) -> list[dict[str, Any]]:
    """Every check of the run, answered."""
    limits, checks = limits_of(run), Checks()
    for seen in several:
        for asking in ASKING:
            checks.add(seen.device, seen.cell, seen.words, asking(seen, limits))
    for device, one in account.replayed(run):
        checks.add(device, None, "", [one])
    return checks.answered()


def _as_asked(found: Study, several: list[Seen], checks: list[dict[str, Any]]) -> Study:
    """Losses, delays and copies that were configured are no findings; what a check covers is said there."""
    asked = {Place(one.device, one.cell) for one in several}
    kept = [one for one in (_apart(finding, asked) for finding in found.findings) if one is not None]
    found.findings[:] = kept
    found.checks.extend(checks)
    return found


CONFIGURED = (
    "loss",
    "duplication",
    "reordered",
    "reordering",
    "corruption",
    "several_modes",
    "periodic_delay",
    "path_dead",
)
"""Findings that an emulator is asked to make."""


def _apart(finding: Finding, asked: set[Place]) -> Finding | None:
    """The finding without the paths that were configured to show it; None where nothing is left."""
    if finding.name not in CONFIGURED:
        return finding
    rest = tuple(place for place in finding.places if place not in asked)
    return None if not rest else Finding(finding.name, finding.sentence, finding.value, rest, finding.grade)


def sentence(rows: list[Row], several: list[Seen], checks: list[dict[str, Any]]) -> str:
    """How many checks hold, what failed first, and how exactly packets leave."""
    devices = {one.device for one in several} - {DIRECT, A_A}
    if not devices:
        return "No pipe of an emulator was measured"
    name, verb = ("The emulator", "s") if len(devices) == 1 else ("The emulators", "")
    untold = sum(one["verdict"] == "inconclusive" for one in checks)
    failed = [one for one in checks if one["verdict"] == "fail"]
    if failed:
        said = f"{name} do{'es' if verb else ''} not do what was configured: {_first(failed, len(checks))}"
    else:
        keeps = f"{name} keep{verb} to what was configured"
        keeps = f"No check shows {name[0].lower()}{name[1:]} to miss what was configured" if untold else keeps
        said = f"{keeps}: {len(checks) - untold} of {len(checks)} checks pass, none fails"
        said += f" (by chance one would in {percent(ALARM)} of such runs)"
    said += f", {untold} inconclusive" if untold else ""
    timed = {(one["device"], one["cell"]) for one in checks if one["check"] == "departure, median"}
    return said + _losses(checks) + _exactness([row for row in rows if (row.device, row.cell) in timed])


def _losses(checks: list[dict[str, Any]]) -> str:
    """By how much the share of losses that is least likely by chance is off."""
    several = [one for one in checks if one["check"] == "loss" and one["of"] == "streams" and one["p"] is not None]
    if not several:
        return ""
    worst = min(several, key=lambda one: float(one["p"]))
    least = f"the least likely of {len(several)} losses" if len(several) > 1 else "the loss"
    return (
        f"; {least} is {percent(worst['measured'])} where {percent(worst['configured'])} was asked (p {worst['p']:.2g})"
    )


def _first(failed: list[dict[str, Any]], several: int) -> str:
    first, fail = failed[0], "fails" if len(failed) == 1 else "fail"
    where = f" (of {first['pipe']})" if first["pipe"] else ""
    return f"{len(failed)} of {counted(several, 'check')} {fail}, {first['check']} first{where}"


def _exactness(rows: list[Row]) -> str:
    """The worst cell's median and 99th percentile of real less intended departure."""
    own = [row for row in rows if row.quantity == "emulation_error"]
    named = {name: [row.value.estimate for row in own if row.statistic == name] for name in ("p50", "p99")}
    if not named["p50"]:
        return ""
    middle = max(named["p50"], key=abs)
    side = "early" if middle < 0 else "late"
    said = f"; in the worst cell's median, packets leave {micro(abs(middle))} too {side}"
    return said + (f" (99th percentile {micro(max(named['p99'], key=abs))})" if named["p99"] else "")
