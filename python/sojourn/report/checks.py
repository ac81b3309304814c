"""The checks of an emulator as tables: configured against measured, with limit and verdict.

Up to MOST_SINGLE checks are listed one by one under "Results". Of more, each kind of check has one row with its worst
cell, and a second table lists every check. Nothing is compared here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sojourn.report.numbers import NOTHING, Shown, count, fixed, show
from sojourn.report.table import Column, Entry, Table, text, whole

if TYPE_CHECKING:
    from sojourn.report.run import Run

MOST_SINGLE = 40
VERDICTS = ("fail", "inconclusive", "pass")
SOURCES = {"log": "emulator's log", "streams": "from outside", "replay": "replay"}
Check = dict[str, Any]


def checks_of(run: Run) -> list[Check]:
    """The checks of the run's verdict."""
    return list(run.verdict.get("checks") or [])


def named(run: Run) -> list[Check]:
    """Return the checks with the cell's name as the pipe's: cells may differ in more than their pipe."""
    found = checks_of(run)
    if not found:
        return []
    single = run.results.drop_nulls("cell")["frame_bytes"].n_unique() < 2
    labels = run.labels("frame_bytes") if single else run.labels()
    return [one | {"pipe": labels.get(one["cell"]) or one["pipe"]} for one in found]


def results(run: Run) -> Table:
    """The table under "Results": every check, or every kind of check."""
    found = named(run)
    return _kinds(found) if len(found) > MOST_SINGLE else _singly(found, "checks", _titled(found))


def singly(run: Run) -> Table:
    """Return the table of every check, where "Results" has kinds of checks only."""
    found = named(run)
    several = found if len(found) > MOST_SINGLE else []
    return _singly(several, "all_checks", "Every check, one by one")


def _titled(found: list[Check]) -> str:
    pipes = sorted({str(one["pipe"]) for one in found if one["pipe"]})
    return "Configured against measured" + (f": {pipes[0]}" if len(pipes) == 1 else "")


COLUMNS = (
    Column(("configured",), "Expected"),
    Column(("measured", "unit"), "Measured"),
    Column(("ci_low", "ci_high"), "95 % CI"),
    Column(("limit",), "Limit"),
    Column(("p",), "p"),
)


def _singly(found: list[Check], name: str, title: str) -> Table:
    several = len({one["pipe"] for one in found if one["pipe"]}) > 1
    first = (Column(("cell",), "Cell", numeric=False),) if several else ()
    columns = (
        *first,
        Column(("check",), "Check", numeric=False),
        Column(("of",), "By", numeric=False),
        *COLUMNS,
        Column(("packets",), "Packets"),
        Column(("verdict",), "Verdict", numeric=False),
    )
    rows = tuple(
        (
            *((text(str(one["pipe"]) or NOTHING),) if several else ()),
            *_told(one),
            *_numbers(one),
            whole(one["n"]),
            verdict_entry(one),
        )
        for one in found
    )
    return Table(name, title, columns, rows, NOTE, wide=True, grouped=several)


NOTE = (
    "Pass: the 95 % CI lies within the limit. A check with a p and no limit passes if p is above this check's share of "
    "1 % and there were enough packets or losses to detect a deviation. Fail: p is below that share, or a wider "
    "interval, whose level allows one false alarm in a hundred whole runs, lies wholly beyond the limit. The expected "
    "value of a test statistic (in brackets) is its mean if the emulator does as configured. Counts of wrong packets "
    "have no interval: a single one fails the check."
)


def _told(one: Check) -> tuple[Entry, ...]:
    statistic = f" ({one['what']})" if _is_statistic(one) else ""
    check = Entry(f"{one['check']}{statistic}", (str(one["check"]),))
    return check, text(SOURCES.get(str(one["of"]), str(one["of"])))


def _is_statistic(one: Check) -> bool:
    """Return whether a check tests a statistic, which has no unit."""
    return bool(one["unit"] == "1" and one["limit"] is None and one["what"])


def _has_p(one: Check) -> bool:
    """Return whether a check is decided by a p-value, or would be if there were anything to test."""
    return (one["p"] is not None and one["limit"] is None) or _is_statistic(one)


def verdict_entry(one: Check) -> Entry:
    marks = {"pass": "pass", "fail": "FAIL", "inconclusive": "inconclusive"}
    return Entry(marks[str(one["verdict"])], (str(one["verdict"]),))


def shown_of(one: Check) -> tuple[Shown, str, str]:
    """The measured value with its interval in display units, and the configured value and the limit."""
    unit = str(one["unit"])
    measured = show(one["measured"], one["ci_low"], one["ci_high"], unit)
    places = max(measured.decimals, 1 if measured.unit == "µs" else 0)
    configured, limit = (show(one[name], None, None, unit).value for name in ("configured", "limit"))
    if unit in ("packets", "bytes") or one["configured"] is None:
        return measured, count(configured), count(limit)
    plain = _plain(configured, places) if configured else "0" if configured == 0 else NOTHING
    return measured, plain, _plain(limit, places)


def _plain(value: float | None, places: int) -> str:
    """Return a configured number with no more decimals than it needs."""
    if value is None:
        return NOTHING
    rounded = fixed(value, max(places, 4 if abs(value) < 1 else 2 if abs(value) < 100 else 0))
    return rounded.rstrip("0").rstrip(".") if "." in rounded else rounded


def _numbers(one: Check) -> tuple[Entry, ...]:
    measured, configured, limit = shown_of(one)
    unit = measured.unit or (str(one["unit"]) if one["unit"] != "1" else "")
    p = one["p"]
    plain = configured in ("0", NOTHING) or unit in ("packets", "A²")
    if _is_statistic(one) and p is None:
        return (
            Entry(NOTHING, (one["configured"],)),
            Entry(NOTHING, (one["measured"], one["unit"])),
            *[Entry(NOTHING)] * 3,
        )
    return (
        Entry(configured if plain else f"{configured} {unit}".strip(), (one["configured"],)),
        Entry(f"{measured.text} {unit}".strip(), (one["measured"], one["unit"])),
        Entry(measured.interval, (one["ci_low"], one["ci_high"])),
        Entry(limit if one["limit"] is None else f"± {limit}" if _both_ways(one) else f"≤ {limit}", (one["limit"],)),
        Entry(_p(p), (p,)),
    )


def _both_ways(one: Check) -> bool:
    return one["unit"] in ("ns", "bit/s", "ratio") and "quantisation" not in one["check"] and ", p9" not in one["check"]


def _p(p: float | None) -> str:
    if p is None:
        return NOTHING
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def _kinds(found: list[Check]) -> Table:
    """One row for each kind of check: the number of cells with each verdict, and the worst check."""
    columns = (
        Column(("check",), "Check", numeric=False),
        Column(("of",), "By", numeric=False),
        Column(("cells",), "Cells"),
        Column(("passed",), "Pass"),
        Column(("failed",), "Fail"),
        Column(("inconclusive",), "Inconclusive"),
        Column(("worst_cell",), "Cell", numeric=False, group="Worst cell"),
        *(Column(one.keys, one.title, one.unit, one.numeric, "Worst cell") for one in COLUMNS),
    )
    groups: dict[tuple[str, str], list[Check]] = {}
    for one in found:
        groups.setdefault((one["check"], one["of"]), []).append(one)
    rows = []
    for several in groups.values():
        worst = worst_of(several)
        counted = [whole(sum(one["verdict"] == name for one in several)) for name in ("pass", "fail", "inconclusive")]
        rows.append(
            (*_told(worst), whole(len(several)), *counted, text(str(worst["pipe"]) or NOTHING), *_numbers(worst))
        )
    return Table("checks", "Configured against measured", columns, tuple(rows), NOTE, wide=True)


def worst_of(several: list[Check]) -> Check:
    """Return the check with the worst verdict and, among equals, the largest deviation in relation to its limit.

    Of tests, this is a failed one, else the one with the lowest p.
    """

    def rank(one: Check) -> tuple[int, float]:
        if _has_p(one):
            return 0 if one["verdict"] == "fail" else 1, math.inf if one["p"] is None else float(one["p"])
        off = abs((one["measured"] or 0.0) - (one["configured"] or 0.0))
        return VERDICTS.index(one["verdict"]), -off / one["limit"] if one["limit"] else -off

    return min(several, key=rank)
