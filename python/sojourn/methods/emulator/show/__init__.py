"""The report of "emulator": configured against measured, how exactly packets leave, and how losses come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.methods.emulator.show import figures
from sojourn.methods.emulator.show.published import PUBLISHED
from sojourn.report.checks import checks_of, results, shown_of, singly
from sojourn.report.numbers import count
from sojourn.report.pacing import departures
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.words import words

if TYPE_CHECKING:
    from sojourn.report.run import Run
    from sojourn.report.table import Table

SPREAD = ("mean", "p50", "p99", "p99.9", "max")
TITLES = {"min": "Min", "mean": "Mean", "p50": "Median", "max": "Max", "sd": "Std dev"}


def errors(run: Run) -> Table:
    """The emulation error of every cell, by the log and from outside."""
    groups = {"emulation_error": "Departures, by its log",
              "emulation_error_outside": "Delays, from outside",
              "emulation_error_less_path": "From outside, less the path's own cost"}  # fmt: skip
    measures = tuple(
        Measure(quantity, name, TITLES.get(name, name), group, interval=name == "p50")
        for quantity, group in groups.items()
        for name in SPREAD
    )
    cost = Measure("path_cost", "p50", "Median", "The path's own cost", interval=True)
    note = (
        "By its log: real less intended departure, as the emulator wrote it down. From outside: the stream's one-way "
        "delay, less what each packet was to stay and less the direct path's median in the same cell. The path's own "
        "cost is what is neither of that nor the emulator's lateness: before the stamp of arrival and behind the call "
        "that sends; what half of the trials found of it is taken off the others. A percentile is given where at least "
        "ten packets lie beyond it."
    )
    return measured(run, Ask("emulation_error", "By how much packets miss their time", (*measures, cost), note))


def emulated(run: Run) -> Table:
    """The delay that the emulator makes, as the papers tabulate it."""
    measures = (
        *(Measure("emulated_delay", name, TITLES[name], "Delay over the direct path", interval=name == "mean")
          for name in ("min", "mean", "max", "sd")),
        Measure("emulated_delay_error", "mean", "Mean less configured"),
    )  # fmt: skip
    note = "One-way delay less the direct path's median (the error: its mean) in the same cell."
    return measured(run, Ask("emulated_delay", "Emulated delay", measures, note))


def lost(run: Run) -> Table:
    """The share of the stream that the emulator lost."""
    measures = (Measure("emulated_loss", "ratio", "Lost"),)
    note = "By the numbers of the stream's frames; the interval is Clopper and Pearson's."
    asked = {one["cell"] for one in checks_of(run) if one["check"].startswith("loss")}
    where = pl.col("cell").is_in(sorted(asked)) | (pl.col("estimate") > 0)
    return measured(run, Ask("emulated_loss", "Emulated loss", measures, note, where))


def keys(run: Run) -> list[Key]:
    """The checks, the exactness of departures, and the error from outside."""
    found = checks_of(run)
    if not found:
        return []
    tally = {name: sum(one["verdict"] == name for one in found) for name in ("pass", "fail", "inconclusive")}
    said = (f"{count(tally['fail'])} fail", f"{count(tally['inconclusive'])} inconclusive")
    keys_ = [Key("Checks passed", f"{count(tally['pass'])} of {count(len(found))}", "", said)]
    for quantity, what in (("emulation_error", "by its log"), ("emulation_error_outside", "from outside")):
        for statistic, title in (("p50", "median"), ("p99", "99th percentile")):
            worst = _worst(run, quantity, statistic)
            if worst:
                cell = run.cell_of(worst)
                title_ = f"{worst['device']}: error, {what}, {title}"
                keys_.append(delays.key_of(worst, title_, f"the worst cell: {cell.short}" if cell else ""))
    return [*keys_, *_loss_key(found)]


def _loss_key(found: list[dict[str, Any]]) -> list[Key]:
    """The loss from outside that is least likely to be by chance."""
    several = [one for one in found if one["check"] == "loss" and one["of"] == "streams" and one["p"] is not None]
    if not several:
        return []
    worst = min(several, key=lambda one: float(one["p"]))
    shown, configured, _ = shown_of(worst)
    lines = (
        f"95 % CI {shown.interval}",
        f"{configured} % was asked, p {worst['p']:.2g}",
        "the least likely of all cells",
    )
    return [Key(f"{worst['device']}: lost", shown.text, "%", lines, str(worst["device"]))]


def _worst(run: Run, quantity: str, statistic: str) -> dict[str, object] | None:
    """The worst cell of those whose packets are held to a time."""
    timed = sorted({one["cell"] for one in checks_of(run) if one["check"].endswith(", median")})
    rows = run.rows(quantity, statistic).drop_nulls("estimate").filter(pl.col("cell").is_in(timed))
    return rows.sort(pl.col("estimate").abs(), descending=True).row(0, named=True) if rows.height else None


def how(run: Run) -> list[str]:
    """What is particular to it."""
    lines = words(
        run,
        "Each cell has a pipe, set before each trial without losing a packet. The direct path is visited in every cell "
        "with the same stream: what it takes is subtracted, so that what is left is the emulator's. Packets that are "
        "to stay less than 100 µs are not held to a time: what passing through costs is in the figures all the same.",
        unit=UNIT,
    )
    return [*lines, *_replays(run), ALARM]


UNIT = (
    "The unit is the part of a trial: trials are cut until there are twenty parts at least, where there are packets "
    "enough, and intervals are over parts. Paths and cells follow each other in random and then mirrored order."
)
ALARM = (
    "All checks of a run together raise a false alarm in at most one of a hundred runs of an emulator without fault: "
    "each check has an equal part of that. A check for which there were too few packets is inconclusive; it has not "
    "passed."
)


def _replays(run: Run) -> list[str]:
    found = [one for one in run.log if one.get("event") == "emulator-replay"]
    return [
        f"Oracle replay: the same engine was given the log's {count(one.get('packets'))} arrivals and the seed again, "
        "in virtual time; dispositions, drawn delays and intended departures were "
        f"{'identical' if one.get('identical') else 'not identical'}."
        for one in found
    ]


PARTS = Parts(
    tables=(
        results, errors, emulated, lost, singly, delays.delays, delays.conservation, delays.pacing,
    ),
    figures=(
        figures.errors, figures.over_delay, figures.over_rate, figures.distribution, figures.loss_shares,
        figures.losses_over_time, figures.loss_runs, figures.correlations, delays.over_time, departures,
    ),
    keys=keys,
    words=how,
    results=("checks", "emulation_error", "emulated_loss"),
    published=PUBLISHED,
)  # fmt: skip
