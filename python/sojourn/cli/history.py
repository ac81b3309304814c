"""The output for a study's history, bed by bed: its figures over runs and boots, limits, components."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from sojourn.analysis.wording import counted
from sojourn.cli.figures import (
    NOTHING,
    SHARES,
    Scale,
    columns,
    conditions,
    folded,
    in_groups,
    label,
    shared_conditions,
    title,
)
from sojourn.errors import RequestError
from sojourn.history import find_history, over_runs
from sojourn.statistics.control_chart import LEAST_VALUES
from sojourn.statistics.nested import LEAST_GROUPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.history import Entry, OfBed, Series, Value

MOST_RUNS = 30
MOST_COLUMNS = 100
EMPTY = "There are no runs in the history: each `sojourn run` adds its figures."
OF_LIMITS = (
    "Control limits: three standard deviations about the mean, from the differences of successive runs (individuals "
    "and moving range, ISO 7870-2); rough below 20 runs. One run of 370 lies outside by chance."
)
OF_BOOTS = (
    "Between boots and days: the standard deviation that runs on different boots or days have beyond those on the same "
    "one. Invalid runs count for nothing."
)


def list_history(*, as_json: bool) -> None:
    """Print every study in the history, and the number of its runs."""
    entries = find_history().read()
    counts = Counter(entry.study for entry in entries)
    last = {entry.study: entry for entry in entries}
    if as_json:
        found = [{"study": name, "runs": count, "last": time_of(last[name])} for name, count in counts.items()]
        print(json.dumps(found))
        return
    if not entries:
        print(EMPTY)
        return
    rows = [(name, str(count), time_of(last[name])) for name, count in sorted(counts.items())]
    print("\n".join(columns(("study", "runs", "last (UTC)"), rows, MOST_COLUMNS)))


def show_study(study: str, *, every: bool, as_json: bool) -> None:
    """Print the runs of one study; an unknown study is a wrong request if the history has others."""
    history = find_history()
    entries = history.read(study)
    if not entries and not as_json:
        others = sorted({entry.study for entry in history.read()})
        if not others:
            print(EMPTY)
            return
        raise RequestError(f"the history has no run of {study}: it has {', '.join(others)}")
    beds = over_runs(entries)
    if as_json:
        print(json.dumps({"study": study, "beds": [of_bed(bed) for bed in beds]}))
        return
    console = Console(highlight=False, emoji=False)
    width = min(console.width, MOST_COLUMNS)
    boots = numbered(entries)
    for line in lines_of(study, beds, boots, every=every, width=width):
        console.print(Text(line), soft_wrap=True)
    console.print()
    for note in (OF_LIMITS, OF_BOOTS):
        for line in folded(note, width):
            console.print(Text(line, style="dim"), soft_wrap=True)


def numbered(entries: Sequence[Entry]) -> dict[str | None, str]:
    """Return a number for each boot, in order of time."""
    boots = dict.fromkeys(entry.boot for entry in entries if entry.boot)
    return {None: "?"} | {boot: str(number) for number, boot in enumerate(boots, 1)}


def lines_of(study: str, beds: Sequence[OfBed], boots: dict[str | None, str], *, every: bool, width: int) -> list[str]:
    """Return the lines without the notes: each bed with its first figures run by run, then the others in short."""
    runs = sum(len(bed.entries) for bed in beds)
    lines = [f"{study}: {counted(runs, 'run')} on {counted(len(beds), 'bed')}, {counted(len(boots) - 1, 'boot')}"]
    for bed in beds:
        lines += ["", *folded(heading(bed), width)]
        first = bed.series if every else in_full(bed.series)
        for one in first:
            lines += ["", *folded(label(one.figure.row), width), *run_by_run(one, boots, width)]
        rest = [one for one in bed.series if one not in first]
        if rest:
            lines += ["", *in_short(rest, width)]
    return lines


def heading(bed: OfBed) -> str:
    """Return the bed: the beginning of its hash, its kernel, the version of Sojourn that last measured on it."""
    last = bed.entries[-1]
    where = "simulated lines" if last.simulated else f"kernel {last.kernel or 'not known'}"
    boots = len({entry.boot for entry in bed.entries if entry.boot})
    counts = f"{counted(len(bed.entries), 'run')}, {counted(boots, 'boot')}"
    return f"Bed {bed.bed[:8] or 'without a hash'}: {where}, Sojourn {last.version or 'not known'}, {counts}"


def in_full(several: Sequence[Series]) -> Sequence[Series]:
    """Return the study's measurand; if there is none, the figures of the first kind."""
    headline = [one for one in several if one.figure.headline]
    return headline or [one for one in several if one.figure.of[:2] == several[0].figure.of[:2]]


def run_by_run(series: Series, boots: dict[str | None, str], width: int) -> list[str]:
    """Return a line for each run, the newest last, then limits and the variation between boots."""
    scale = scale_for([series])
    places = places_of(series, scale)
    shown = series.values[-MOST_RUNS:]
    rows = [
        (
            f"  {time_of(value.entry)}",
            boots[value.entry.boot],
            scale.number(value.figure.estimate, places),
            scale.interval(value.figure.ci_low, value.figure.ci_high, places),
            str(value.figure.sessions or 1),
            marks(value),
        )
        for value in shown
    ]
    header = ("  started (UTC)", "boot", scale.unit or "figure", "95 % CI", "beds", "")
    earlier = len(series.values) - len(shown)
    more = [f"  {counted(earlier, 'earlier run')}: see --json"] if earlier else []
    said = [f"  {limits_in_words(series, scale, places)}", f"  {between_in_words(series, scale)}"]
    return [*more, *columns(header, rows, width), *(line for one in said for line in folded(one, width))]


def scale_for(several: Sequence[Series]) -> Scale:
    """Return the unit of a table of these figures, which are of one quantity."""
    figures = [value.figure for one in several for value in one.values]
    return Scale.of(figures[0].unit, [one.estimate for one in figures], share=figures[0].quantity in SHARES)


def places_of(series: Series, scale: Scale) -> int:
    """Return the decimals that the narrowest interval supports."""
    figures = [value.figure for value in series.values]
    ends = [(one.ci_low, one.ci_high) for one in figures if one.ci_low is not None and one.ci_high is not None]
    places = [scale.places(low, high) for low, high in ends if low < high]
    return max(places, default=scale.places(None, None, figures[-1].estimate))


def marks(value: Value) -> str:
    """Return the marks of a run: outside the limits, not trusted."""
    said = ["outside"] if value.is_outside else []
    return ", ".join([*said, *([] if value.entry.verdict == "trusted" else [value.entry.verdict])])


def limits_in_words(series: Series, scale: Scale, places: int) -> str:
    """Return the mean and the control limits, and the number of runs outside."""
    known, limits = len(series.counted), series.limits
    if limits is None:
        return f"control limits not known: {known} of at least {LEAST_VALUES} runs"
    outside = sum(value.is_outside for value in series.values)
    ends = scale.interval(limits.low, limits.high, places)
    mean = f"mean {scale.number(limits.mean, places)}, control limits {ends} {scale.unit}".rstrip()
    return f"{mean}; {outside or 'none'} of {known} runs outside"


def between_in_words(series: Series, scale: Scale) -> str:
    """Return the standard deviation between boots and days, with its interval."""
    found = series.between
    if found is None:
        reason = f"{series.occasions} of at least {LEAST_GROUPS}" if series.occasions < LEAST_GROUPS else "no intervals"
        return f"between boots and days: not known ({reason})"
    places = scale.places(found.low, found.high, found.between)
    ends = scale.interval(found.low, found.high, places)
    said = f"sd {scale.number(found.between, places)} {scale.unit} (95 % CI {ends})"
    own = "" if found.is_replicated else "; one run each, so the scatter within a boot is from the runs' own intervals"
    return f"between boots and days: {said}, {found.groups} of them{own}"


def in_short(several: Sequence[Series], width: int) -> list[str]:
    """Return one line for each figure: number of runs, mean and limits, last run, variation between boots."""
    common = shared_conditions([one.figure.row for one in several])
    rows: list[Sequence[str] | str] = []
    for inside in in_groups(several, lambda one: one.figure.row):
        scale = scale_for(inside)
        rows.append(scale.headed(title(inside[0].figure.row)))
        rows += [short(one, scale, common) for one in inside]
    said = folded(f"Other leading figures: {', '.join(common)}.", width) if common else []
    return [*said, *columns(("", "runs", "mean", "control limits", "last", "sd of boots", ""), rows, width)]


def short(series: Series, scale: Scale, common: Sequence[str]) -> tuple[str, ...]:
    """Return a figure's conditions and numbers."""
    places = places_of(series, scale)
    limits, between, last = series.limits, series.between, series.values[-1]
    return (
        f"  {', '.join(one for one in conditions(series.figure.row) if one not in common)}",
        str(len(series.counted)),
        scale.number(limits.mean, places) if limits else NOTHING,
        scale.interval(limits.low, limits.high, places) if limits else "not known",
        scale.number(last.figure.estimate, places),
        "not known" if between is None else scale.number(between.between, places),
        marks(last),
    )


def time_of(entry: Entry) -> str:
    """Return the start of a run: "2026-11-23 01:31"."""
    return datetime.fromtimestamp(entry.began_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M")


def of_bed(bed: OfBed) -> dict[str, Any]:
    """Return a bed as JSON."""
    last = bed.entries[-1]
    named = {"bed": bed.bed, "kernel": last.kernel, "simulated": last.simulated}
    return named | {"runs": len(bed.entries), "figures": [of_series(one) for one in bed.series]}


def of_series(series: Series) -> dict[str, Any]:
    """Return a figure over runs as JSON."""
    limits, between = series.limits, series.between
    return {
        **series.figure.row,
        "runs": [of_value(value) for value in series.values],
        "limits": None if limits is None else {"mean": limits.mean, "low": limits.low, "high": limits.high},
        "occasions": series.occasions,
        "between_boots": None
        if between is None
        else {
            "sd": between.between,
            "ci_low": between.low,
            "ci_high": between.high,
            "replicated": between.is_replicated,
        },
    }


def of_value(value: Value) -> dict[str, Any]:
    """Return a figure of one run as JSON."""
    entry, figure = value.entry, value.figure
    began = datetime.fromtimestamp(entry.began_ns / 1e9, UTC).isoformat(timespec="seconds")
    of_run = {"run": entry.run, "began": began, "verdict": entry.verdict, "boot": entry.boot, "version": entry.version}
    names = ("estimate", "ci_low", "ci_high", "level", "n", "sessions")
    return of_run | {name: getattr(figure, name) for name in names} | {"outside": value.is_outside}
