"""Method "emulator": an emulating bridge against its configuration, seen from outside and in its own packet log.

Every cell has a pipe. Checks (`checks`) compare what was configured with what was measured: delays (`delay`), losses
(`loss`), link and queue (`link`), packet accounting (`accounting`). A check has one of three sources: the stream's own
timestamps and sequence numbers, less those of the direct path in the same cell; the emulator's packet log; a replay, in
which the same engine handles the logged arrivals again in virtual time. A check that fails is a fault of the emulator.
It does not make the measurement doubtful, so it does not change the run's verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.analysis.checks import ALARM, Checks, limits_of
from sojourn.analysis.factors import spell_interval
from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.wording import counted, micro, percent
from sojourn.methods.emulator.analyse import accounting, delay, figures, hypotheses, link, loss, path
from sojourn.methods.emulator.analyse.budget import budgets
from sojourn.methods.emulator.analyse.figures import SAMPLES
from sojourn.methods.emulator.analyse.seen import Seen, seen_of

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study

__all__ = ["SAMPLES", "budgets", "study"]

ASKING = (delay.asked, loss.asked, link.asked, accounting.asked)


def study(run: Run) -> Study:
    """Return the results, the checks with their verdicts, the published hypotheses, and the samples of the figures."""
    of = Gathered(run)
    several = seen_of(of)
    of.overloads.update(Place(device, one.cell) for one in several if one.pipe.rate_bps for device in run.devices)
    of.begin()
    of.rows.extend(row for one in several for row in figures.rows_of(run, one))
    checks = checked(run, several)
    of.hypotheses.extend(hypotheses.evaluate(run, several, (of.rows, checks, limits_of(run))))
    of.samples.update(figures.samples(run, several, checks))
    found = of.conclude(sentence(of.rows, several, checks) + path.sentence(run, of.rows))
    return _without_configured(found, several, checks)


def checked(run: Run, several: list[Seen]) -> list[dict[str, Any]]:
    """Return every check of the run with its verdict."""
    limits, checks = limits_of(run), Checks()
    for seen in several:
        for asking in ASKING:
            checks.add(seen.device, seen.cell, seen.words, asking(seen, limits))
    for device, one in accounting.replayed(run):
        checks.add(device, None, "", [one])
    return checks.answered()


def _without_configured(found: Study, several: list[Seen], checks: list[dict[str, Any]]) -> Study:
    """Return the study without findings of configured losses, delays and copies; the checks judge those."""
    configured = {Place(one.device, one.cell) for one in several}
    kept = [one for one in (_unconfigured(finding, configured) for finding in found.findings) if one is not None]
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
"""Findings of what an emulator is configured to do."""


def _unconfigured(finding: Finding, configured: set[Place]) -> Finding | None:
    """Return the finding without the places that are configured to cause it; None where nothing is left."""
    if finding.name not in CONFIGURED:
        return finding
    rest = tuple(place for place in finding.places if place not in configured)
    return None if not rest else Finding(finding.name, finding.sentence, finding.value, rest, finding.grade)


def sentence(rows: list[Row], several: list[Seen], checks: list[dict[str, Any]]) -> str:
    """Return how many checks pass, which failed first, and how exactly packets leave."""
    devices = {one.device for one in several} - {DIRECT, A_A}
    if not devices:
        return "No pipe of an emulator was measured"
    name, verb = ("The emulator", "s") if len(devices) == 1 else ("The emulators", "")
    inconclusive = sum(one["verdict"] == "inconclusive" for one in checks)
    failed = [one for one in checks if one["verdict"] == "fail"]
    if failed:
        said = f"{name} deviate{verb} from the configuration: {_first(failed, len(checks))}"
    elif inconclusive:
        kept = len(checks) - inconclusive
        said = f"None of {len(checks)} checks of {name[0].lower()}{name[1:]} fails ({_by_chance()}): {kept} pass"
    else:
        said = f"{name} behave{verb} as configured: all of {len(checks)} checks pass ({_by_chance()})"
    said += f", {inconclusive} inconclusive{_beyond(checks)}" if inconclusive else ""
    timed = {(one["device"], one["cell"]) for one in checks if one["check"] == "departure, median"}
    return said + _losses(checks) + _exactness([row for row in rows if (row.device, row.cell) in timed])


def _by_chance() -> str:
    return f"in {percent(ALARM)} of such runs one fails by chance"


def _beyond(checks: list[dict[str, Any]]) -> str:
    """Return how many of the inconclusive checks have an estimate beyond the limit."""
    known = [one for one in checks if one["verdict"] == "inconclusive" and None not in (one["limit"], one["measured"])]
    several = [one for one in known if abs(one["measured"] - (one["configured"] or 0.0)) > one["limit"]]
    return f" ({len(several)} of them with an estimate beyond the limit)" if several else ""


def _losses(checks: list[dict[str, Any]]) -> str:
    """Return the loss ratio that is least likely by chance, with the configured one."""
    several = [one for one in checks if one["check"] == "loss" and one["of"] == "streams" and one["p"] is not None]
    if not several:
        return ""
    worst = min(several, key=lambda one: float(one["p"]))
    least = f"of {len(several)} loss ratios the least likely" if len(several) > 1 else "the loss ratio"
    return (
        f"; {least} is {percent(worst['measured'])} where {percent(worst['configured'])} was configured "
        f"(p {worst['p']:.2g})"
    )


def _first(failed: list[dict[str, Any]], several: int) -> str:
    first, fail = failed[0], "fails" if len(failed) == 1 else "fail"
    where = f" with {first['pipe']}" if first["pipe"] else ""
    such = f'"{first["check"]}"{where}'
    return (
        f"{len(failed)} of {counted(several, 'check')} {fail}: {such if len(failed) == 1 else f'the first is {such}'}"
    )


def _exactness(rows: list[Row]) -> str:
    """Return the worst cell's median and 99th percentile of actual minus intended departure."""
    own = [row for row in rows if row.quantity == "emulation_error"]
    middle, tail = (_largest(own, name) for name in ("p50", "p99"))
    if middle is None:
        return ""
    side = "before" if middle.value.estimate < 0 else "after"
    said = f"; in the worst cell the median packet leaves {micro(abs(middle.value.estimate))} {side} its intended "
    said += f"departure ({_cell(middle)})"
    if tail is None:
        return said
    percentile = f"the worst 99th percentile is {micro(tail.value.estimate)}"
    return f"{said}; {percentile}" + ("" if tail.cell == middle.cell else f" ({_cell(tail)})")


def _largest(rows: list[Row], statistic: str) -> Row | None:
    several = [row for row in rows if row.statistic == statistic]
    return max(several, key=lambda row: abs(row.value.estimate), default=None)


def _cell(row: Row) -> str:
    """Return the cell's pipe and time between packets."""
    pace = row.factors.interval_ns
    parts = [row.factors.pipe, f"packets {spell_interval(pace)} apart" if pace else None]
    return ", ".join(one for one in parts if one)
