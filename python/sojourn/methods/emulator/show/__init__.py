"""The report of "emulator": configured against measured, accuracy of departures, and pattern of losses."""

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
    """Return the emulation error of every cell, by the log and from outside."""
    groups = {"emulation_error": "Emulation error, emulator's log",
              "emulation_error_outside": "Delays, from outside",
              "emulation_error_compensated": "From outside, path delay compensated"}  # fmt: skip
    measures = tuple(
        Measure(quantity, name, TITLES.get(name, name), group, interval=name == "p50")
        for quantity, group in groups.items()
        for name in SPREAD
    )
    path = Measure("path_delay", "p50", "Median", "Path delay", interval=True)
    note = (
        "Emulation error, in the emulator's log: actual minus intended departure of each packet. From outside: the "
        "stream's one-way delay, minus the configured delay of each packet, minus the direct path's median in the "
        "same cell. Path delay: the time that a frame takes before the emulator timestamps its arrival and after the "
        "emulator calls the kernel to send it. Compensated: the path delay found in one half of the trials is "
        "subtracted from the errors of the other half. Where no delay is configured, the error is the time that the "
        "emulator holds a packet. A percentile is given where at least ten packets lie beyond it."
    )
    return measured(
        run,
        Ask(
            "emulation_error",
            "Delay error",
            (*measures, path),
            note,
            counted="Beds" if run.sessions > 1 else "Parts of trials",
        ),
    )


def emulated(run: Run) -> Table:
    """Return the emulated delay, with the statistics that the papers print."""
    measures = (
        *(Measure("emulated_delay", name, TITLES[name], "Delay minus the direct path's", interval=name == "mean")
          for name in ("min", "mean", "max", "sd")),
        Measure("emulated_delay_error", "mean", "Mean minus configured"),
    )  # fmt: skip
    note = (
        "One-way delay minus the direct path's median in the same cell. Mean minus configured: the mean delay minus "
        "the direct path's mean and the configured delay."
    )
    return measured(
        run,
        Ask(
            "emulated_delay",
            "Emulated delay",
            measures,
            note,
            counted="Beds" if run.sessions > 1 else "Parts of trials",
        ),
    )


def lost(run: Run) -> Table:
    """Return the share of the stream's frames that the emulator lost."""
    measures = (Measure("emulated_loss", "ratio", "Lost"),)
    note = (
        "From the sequence numbers of the stream's frames; the CI is Clopper and Pearson's over packets, or Korn and "
        "Graubard's over beds where there are several."
    )
    asked = {one["cell"] for one in checks_of(run) if one["check"].startswith("loss")}
    where = pl.col("cell").is_in(sorted(asked)) | (pl.col("estimate") > 0)
    return measured(
        run,
        Ask("emulated_loss", "Emulated loss", measures, note, where, counted="Beds" if run.sessions > 1 else "Packets"),
    )


def keys(run: Run) -> list[Key]:
    """Return the checks, the error of departures, the error from outside, and the loss."""
    found = checks_of(run)
    if not found:
        return []
    tally = {name: sum(one["verdict"] == name for one in found) for name in ("pass", "fail", "inconclusive")}
    said = (f"{count(tally['fail'])} fail", f"{count(tally['inconclusive'])} inconclusive")
    keys_ = [Key("Checks passed", f"{count(tally['pass'])} of {count(len(found))}", "", said)]
    for quantity, what in (
        ("emulation_error", "emulation error, emulator's log"),
        ("emulation_error_outside", "delay error, from outside"),
    ):
        for statistic, title in (("p50", "median"), ("p99", "99th percentile")):
            worst = _worst(run, quantity, statistic)
            if worst:
                cell = run.cell_of(worst)
                title_ = f"{worst['device']}: {what}, {title}"
                lines = (f"worst cell: {cell.short}" if cell else "", *(WIDE_SAYS if _is_wide(worst) else ()))
                keys_.append(delays.key_of(worst, title_, *lines))
    return [*keys_, *_loss_key(found)]


WIDE = 10.0
WIDE_SAYS = ("too few packets for a narrower interval",)


def _is_wide(row: dict[str, Any]) -> bool:
    """Return whether the interval is many times as wide as the estimate is large."""
    low, high = row["ci_low"], row["ci_high"]
    return low is not None and high is not None and high - low > WIDE * abs(row["estimate"])


def _loss_key(found: list[dict[str, Any]]) -> list[Key]:
    """Return the loss ratio from outside that is least likely by chance."""
    several = [one for one in found if one["check"] == "loss" and one["of"] == "streams" and one["p"] is not None]
    if not several:
        return []
    worst = min(several, key=lambda one: float(one["p"]))
    shown, configured, _ = shown_of(worst)
    lines = (
        f"95 % CI {shown.interval}",
        f"configured: {configured} %, p {worst['p']:.2g}",
        "of all loss ratios, the least likely",
    )
    return [Key(f"{worst['device']}: lost", shown.text, "%", lines, str(worst["device"]))]


def _worst(run: Run, quantity: str, statistic: str) -> dict[str, Any] | None:
    """Return the worst of the cells whose departure times are judged."""
    timed = sorted({one["cell"] for one in checks_of(run) if one["check"].endswith(", median")})
    rows = run.rows(quantity, statistic).drop_nulls("estimate").filter(pl.col("cell").is_in(timed))
    return rows.sort(pl.col("estimate").abs(), descending=True).row(0, named=True) if rows.height else None


def how(run: Run) -> list[str]:
    """Return how it was measured."""
    lines = words(
        run,
        "Each cell has a pipe, which is configured before each trial without losing a packet. In every cell the same "
        "stream is also sent over the direct path; that path's delay is subtracted, so that the rest is the "
        "emulator's. No check tests the departure time of packets with a configured delay below 100 µs; the figures "
        "show their delay nevertheless.",
        unit=UNIT,
    )
    return [*lines, *_replays(run), ALARM]


UNIT = (
    "The unit is the part of a trial: trials are cut into parts, about twenty in all where there are enough packets, "
    "and intervals are over parts. Paths and cells follow each other in random and then mirrored order."
)
ALARM = (
    "For an emulator without faults, a check fails by chance in at most one run in a hundred; all checks share that "
    "probability equally. A check with too few packets is inconclusive: it has not passed."
)


def _replays(run: Run) -> list[str]:
    found = [one for one in run.log if one.get("event") == "emulator-replay"]
    return [
        f"Replay: the same engine handled the {count(one.get('packets') or 0)} logged arrivals again, with the same "
        "seed, in virtual time. Dispositions, drawn delays and intended departures were "
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
