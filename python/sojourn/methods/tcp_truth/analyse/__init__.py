"""Method "tcp-truth": the log of TCP's state against TCP_INFO, a packet capture, and the congestion control algorithms.

Every comparison is a check (`analysis.checks` defines when one passes). Where nothing is random (a field at a quiet
moment, a captured packet, a threshold after a back-off), a single wrong value fails. A check that fails is a fault of
the log; it does not make the measurement doubtful.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.checks import FAIL, INCONCLUSIVE, Asked, Checks
from sojourn.analysis.finding import Finding
from sojourn.analysis.rows import Row
from sojourn.analysis.samples import Sample, shared
from sojourn.analysis.study import Study
from sojourn.analysis.surroundings import contended
from sojourn.analysis.tcp_trials import Done, by_cell, interrupted, of_block, readings_of, samples_of, trials_of
from sojourn.analysis.wording import counted, fixed, percent
from sojourn.methods.tcp_truth.analyse import backoff, cubic, oracle, reno, witness
from sojourn.statistics.interval import Interval
from sojourn.statistics.proportion import clopper_pearson, korn_graubard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sojourn.analysis.run import Run

LAW_ZONE = 0.05
"""The maximum deviation of an estimate from the algorithm's value, relative to that value."""

LEAST_GROWTH = 0.98
"""The minimum share of steps in which Reno's window grows by what was delivered; the kernel has further rules."""

TICK_US = 4000.0
"""The tick of a kernel with 250 Hz."""

CURVES = 8
"""The maximum number of stretches in a figure."""

POINTS = 120
FEW_POINTS = 30

CELL = {"cell": (pl.String, "The cell, in words.")}
DIRECTION = {"direction": (pl.String, "out or in.")}
COUNTED = {
    "pairs": (pl.Int64, "Values that were compared."),
    "agree": (pl.Int64, "Values that agree."),
    "quiet": (pl.Int64, "Values at quiet moments."),
    "quiet_agree": (pl.Int64, "Of these, values that agree."),
}
FIELD = {
    "field": (pl.String, "The field of TCP's state."),
    "law": (pl.String, "How the log's value follows from TCP_INFO's."),
}
ENDS = {
    "low": (pl.Float64, "The lower end of the interval of the share that agrees; null without one."),
    "high": (pl.Float64, "The upper end of that interval."),
}
STRETCH = {**CELL, "stretch": (pl.Int64, "The stretch of congestion avoidance; only the longest are drawn.")}
SAMPLES = {
    "oracle": Sample(
        "A field of the log in a cell against TCP_INFO.",
        {
            **CELL,
            "kind": (pl.String, "The kind of trial."),
            **FIELD,
            **{name: COUNTED[name] for name in ("pairs", "agree")},
            **ENDS,
            **{name: COUNTED[name] for name in ("quiet", "quiet_agree")},
        },
    ),
    "agreement": Sample(
        "A field of the log against TCP_INFO, over all trials of a kind.",
        {"kind": (pl.String, "The kind of trial; null: over all."), **FIELD, **COUNTED, **ENDS},
    ),
    "witness": Sample(
        "A direction in a cell: packets of the log against those of a capture.",
        {
            **CELL,
            **DIRECTION,
            "logged": (pl.Int64, "Packets logged."),
            "captured": (pl.Int64, "Packets captured."),
            "missing": (pl.Int64, "Packets captured and not logged."),
            "more": (pl.Int64, "Packets logged and not captured."),
            "skipped": (pl.Int64, "Packets that the log counts as skipped."),
            "dropped": (pl.Int64, "Packets that the capture dropped."),
            "swapped": (pl.Int64, "Packets in another order than captured."),
            "too_early": (pl.Int64, "Packets whose times are in the wrong order."),
        },
    ),
    "apart": Sample(
        "A point of the distribution of the time between log and capture.",
        {
            **CELL,
            **DIRECTION,
            **shared("exceedance"),
            "apart_ns": (pl.Float64, "From the log to the capture for packets out, the reverse for packets in."),
        },
    ),
    "back_offs": Sample(
        "A back-off of a congestion window; windows are in segments.",
        {
            **CELL,
            "before": (pl.Int64, "The window before it."),
            "threshold": (pl.Int64, "The slow-start threshold that it set."),
            "after": (pl.Int64, "The window after recovery; null where recovery did not end."),
            "factor": (pl.Float64, "The algorithm's factor."),
        },
    ),
    "reno_windows": Sample(
        "A point of a stretch under Reno; thinned.",
        {
            **STRETCH,
            "round_trips": (pl.Float64, "Round trips since its begin."),
            "grown": (pl.Float64, "The growth of the window since then, in segments."),
        },
    ),
    "reno_slopes": Sample(
        "A stretch under Reno.", {**CELL, "slope": (pl.Float64, "The window's growth in segments a round trip.")}
    ),
    "cubic_windows": Sample(
        "A point of a stretch under CUBIC; thinned.",
        {
            **STRETCH,
            "seconds": (pl.Float64, "Seconds since its begin."),
            "window": (pl.Float64, "The window, in segments."),
            "law": (pl.Float64, "The window by CUBIC's curve."),
        },
    ),
}


@dataclass
class Found:
    """The results of the run, collected step by step."""

    checks: Checks = field(default_factory=Checks)
    rows: list[Row] = field(default_factory=list)
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    trials: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    """For each field and kind and each trial: the number of values that agree with TCP_INFO, and the total."""

    def row(self, done: Done, quantity: str, statistic: str, value: Interval, unit: str) -> None:
        """Add a figure of a cell."""
        self.rows.append(Row(done.label, quantity, statistic, value, unit, clock="TAI", source="kernel"))

    def sample(self, name: str, **columns: Any) -> None:
        """Add a row to a sample."""
        self.samples.setdefault(name, []).append(columns)

    def frames(self) -> dict[str, pl.DataFrame]:
        """Return the samples as they are declared."""
        return {name: pl.DataFrame(rows, schema=SAMPLES[name].own) for name, rows in self.samples.items()}


def study(run: Run) -> Study:
    """Return the checks with their verdicts, the results, and the samples of the figures."""
    found, records = Found(), run.folder.records
    for cell in by_cell(trials_of(run)):
        witnessed(found, records, cell)
        if cell[0].kind in ("messages", "direct"):
            asked(found, records, cell)
        if cell[0].kind == "law":
            lawful(found, records, cell)
    agreed(found)
    checks = found.checks.answered()
    _surroundings(run, found)
    return Study(found.rows, found.findings, sentence(checks), samples=found.frames(), checks=checks)


def asked(found: Found, records: Path, cell: Sequence[Done]) -> None:
    """Compare the log with TCP_INFO, by field."""
    several, pairs, quiet = [], 0, 0
    for done in cell:
        samples = samples_of(records, done.block, [*oracle.FIELDS, *oracle.OF_PACKET])
        beside = oracle.pairs(readings_of(records, done.block), samples)
        pairs, quiet = pairs + beside.height, quiet + int(beside["quiet"].sum())
        several.append(oracle.agreements(beside, TICK_US))
    told = oracle.pooled(several)
    for one in told:
        trials = [trial for each in several for trial in each if trial.field == one.field]
        counts = [(trial.agree, trial.pairs) for trial in trials]
        found.trials.setdefault((one.field, cell[0].kind), []).extend(counts)
        share = by_trial(counts)
        found.sample(
            "oracle",
            cell=cell[0].label,
            kind=cell[0].kind,
            field=one.field,
            law=one.law,
            pairs=one.pairs,
            agree=one.agree,
            low=share.low,
            high=share.high,
            quiet=one.quiet,
            quiet_agree=one.quiet_agree,
        )
    breaks = {one.field: one.quiet - one.quiet_agree for one in told if one.quiet_agree < one.quiet}
    said = f", first {next(iter(breaks))}" if breaks else ""
    what = f"values that differ from TCP_INFO, in {len(told)} fields at {quiet} quiet moments{said}"
    check = Asked("quiet moments", "TCP_INFO", 0.0, "values", what, exact=sum(breaks.values()), n=quiet * len(told))
    found.checks.add(cell[0].label, cell[0].cell, cell[0].pipe, [check])
    each = [(sum(one.agree for one in trial), sum(one.pairs for one in trial)) for trial in several]
    found.row(cell[0], "tcp_info_agreement", "ratio", by_trial(each), "ratio")
    found.row(cell[0], "tcp_info_pairs", "count", Interval(pairs, None, None, 1.0, pairs), "1")


def agreed(found: Found) -> None:
    """Add the agreement of each field over all trials of a kind, and over all trials (kind null)."""
    sums: dict[tuple[str, str | None], dict[str, Any]] = {}
    for one in found.samples.get("oracle", []):
        for kind in (one["kind"], None):
            own = sums.setdefault((one["field"], kind), {"law": one["law"], **dict.fromkeys(COUNTS, 0)})
            for name in COUNTS:
                own[name] += one[name]
    for (name, kind), own in sums.items():
        share = by_trial(
            [one for at, trials in found.trials.items() if at[0] == name and kind in (None, at[1]) for one in trials]
        )
        found.sample("agreement", kind=kind, field=name, **own, low=share.low, high=share.high)


def by_trial(counts: Sequence[tuple[int, int]]) -> Interval:
    """Return the share of values that agree, with the trial as the unit; `counts` has agreeing and total of each."""
    agree, of = np.array(counts, dtype=np.float64).reshape(-1, 2).T
    return korn_graubard(agree, of)


COUNTS = ("pairs", "agree", "quiet", "quiet_agree")


def witnessed(found: Found, records: Path, cell: Sequence[Done]) -> None:
    """Compare the log with the capture, packet by packet; drops by the capture are not attributed to the log."""
    for direction in ("out", "in"):
        several, skipped, dropped = [], 0, 0
        for done in cell:
            samples = samples_of(records, done.block, witness.HEADER[2:])
            both = witness.compare(samples, of_block(records, "tcp_captures", done.block))
            several.append(next(one for one in both if one.direction == direction))
            skipped += _skipped(done, direction)
            dropped += done.capture_dropped
        _of_direction(found, cell[0], several, (skipped, dropped))


def _of_direction(found: Found, done: Done, several: Sequence[witness.Compared], apart_from: tuple[int, int]) -> None:
    skipped, dropped = apart_from
    direction = several[0].direction
    captured, logged = sum(one.captured for one in several), sum(one.logged for one in several)
    missing, more = sum(one.only_captured for one in several), sum(one.only_logged for one in several)
    apart = np.concatenate([one.apart_ns for one in several])
    compared = 0 if skipped else logged  # # a skipped packet shifts copies of a header: order and time are unknown
    said = f" (without {counted(skipped, 'packet')} that the log counts as skipped)" if skipped else ""
    found.checks.add(done.label, done.cell, done.pipe, [
        Asked(f"packets {direction}, missing", "capture", 0.0, "packets", f"packets captured and not logged{said}",
              exact=max(0, missing - skipped), n=captured),
        Asked(f"packets {direction}, too many", "capture", 0.0, "packets", "packets logged and not captured",
              exact=max(0, more - dropped), n=logged),
        Asked(f"packets {direction}, order", "capture", 0.0, "packets", "packets in another order than captured",
              exact=0 if skipped else sum(one.swapped for one in several), n=compared),
        Asked(f"packets {direction}, time", "capture", 0.0, "packets", "packets whose time contradicts the capture",
              exact=0 if skipped else sum(one.too_early for one in several), n=compared),
    ])  # fmt: skip
    found.sample(
        "witness", cell=done.label, direction=direction, logged=logged, captured=captured, missing=missing, more=more,
        skipped=skipped, dropped=dropped, swapped=sum(one.swapped for one in several),
        too_early=sum(one.too_early for one in several),
    )  # fmt: skip
    if not len(apart):
        return
    for share in (0.5, 0.99):
        value = Interval(float(np.quantile(apart, share)), None, None, 0.95, len(apart))
        found.row(done, f"apart_{direction}", f"p{share * 100:g}", value, "ns")
    for above in np.geomspace(1.0, max(1 / len(apart), 1e-5), POINTS):
        found.sample("apart", cell=done.label, direction=direction, exceedance=float(above),
                     apart_ns=float(np.quantile(apart, 1 - above)))  # fmt: skip


def _skipped(done: Done, direction: str) -> int:
    """Return the number of packets of a trial that the log counts as skipped."""
    account = ((done.logged or {}).get("account") or {}).get(direction) or {}
    return sum(int(account.get(name, 0)) for name in SKIPS)


SKIPS = ("full", "broken", "no-socket", "no-state", "control", "unparsed", "no-room", "late")


def lawful(found: Found, records: Path, cell: Sequence[Done]) -> None:
    """Compare the log with the algorithm of Reno or CUBIC, over all connections of the cell's trials."""
    done = cell[0]
    offs: list[backoff.BackOff] = []
    several: list[backoff.Stretch] = []
    several_curves: list[cubic.Curve] = []
    for one in cell:
        rows = samples_of(records, one.block, backoff.COLUMNS).filter(pl.col("point").is_in(["in", "out"]))
        private = of_block(records, "tcp_private", one.block) if done.congestion == "cubic" else pl.DataFrame()
        for _, own in rows.group_by("socket_cookie", maintain_order=True):
            offs += backoff.back_offs(own)
            stretched = list(backoff.stretches(own))
            several += stretched
            if private.height:
                several_curves += cubic.curves(cubic.private_of(own, private), stretched)
    fraction = reno.HALF if done.congestion == "reno" else cubic.BETA
    found.checks.add(done.label, done.cell, done.pipe, [*_back_off(found, done, offs, fraction)])
    if done.congestion == "reno":
        found.checks.add(done.label, done.cell, done.pipe, _reno(found, done, several))
    else:
        found.checks.add(done.label, done.cell, done.pipe, _cubic(found, done, several_curves))


def _back_off(found: Found, done: Done, offs: Sequence[backoff.BackOff], fraction: tuple[int, int]) -> list[Asked]:
    wanted = fraction[0] / fraction[1]
    wrong = sum(not backoff.lawful(one, *fraction) for one in offs)
    between = backoff.bounds(offs)
    value = backoff.factor(offs)
    found.row(done, "back_off_factor", "mean", value, "1")
    if between is not None:
        middle = (between[0] + between[1]) / 2
        found.row(done, "back_off_factor", "bounds", Interval(middle, *between, 1.0, len(offs)), "1")
    for one in offs:
        found.sample("back_offs", cell=done.label, before=one.before, threshold=one.threshold, after=one.after,
                     factor=wanted)  # fmt: skip
    name = f"{wanted:.4g}" if fraction[1] != 1024 else f"{fraction[0]}/1024"
    return [
        Asked("back-off, to the segment", "law", 0.0, "back-offs",
              f"back-offs whose threshold is not {name} of the window, rounded down to a segment", exact=wrong,
              n=len(offs)),
        Asked("back-off, factor", "law", wanted, "1", "window after recovery over window before it",
              reading=lambda alpha: backoff.factor(offs, 1 - alpha), zone=_zone(wanted), limit=LAW_ZONE * wanted,
              n=len(offs)),
    ]  # fmt: skip


def _zone(wanted: float) -> tuple[float, float]:
    return wanted * (1 - LAW_ZONE), wanted * (1 + LAW_ZONE)


def _reno(found: Found, done: Done, several: Sequence[backoff.Stretch]) -> list[Asked]:
    grown = [reno.growth(one) for one in several]
    steps = sum(one.steps for one in grown)
    slopes = reno.slopes(several)
    found.row(done, "reno_slope", "hl", reno.mean_slope(slopes), "1")
    found.row(done, "reno_growth_exact", "ratio", _exact(grown), "ratio")
    for place, one in enumerate(sorted(several, key=lambda one: -len(one.seconds))[:CURVES]):
        thin = np.unique(np.linspace(0, len(one.seconds) - 1, FEW_POINTS).astype(int))
        trips, window = one.round_trips, one.window + one.counted / np.maximum(one.window, 1)
        for at in thin:
            found.sample("reno_windows", cell=done.label, stretch=place, round_trips=float(trips[at]),
                         grown=float(window[at] - window[0]))  # fmt: skip
    for value in slopes:
        found.sample("reno_slopes", cell=done.label, slope=value)
    return [
        Asked("growth, to the segment", "law", 1.0, "ratio", "steps that grew by exactly what was delivered",
              reading=lambda alpha: _exact(grown, 1 - alpha), zone=(LEAST_GROWTH, 1.0),
              limit=1 - LEAST_GROWTH, n=steps),
        Asked("growth, over time", "law", 1.0, "1", "segments per round trip, over all stretches",
              reading=lambda alpha: reno.mean_slope(slopes, 1 - alpha), zone=_zone(1.0), limit=LAW_ZONE, n=len(slopes)),
    ]  # fmt: skip


def _exact(grown: Sequence[reno.Growth], level: float = 0.95) -> Interval:
    """Return the share of steps that are exact, with the stretch as the unit where any is not.

    Where all are exact, there is no scatter: as for any rule without randomness, each step then counts separately.
    """
    exact, steps = (np.array([getattr(one, name) for one in grown], dtype=np.float64) for name in ("exact", "steps"))
    if exact.sum() == steps.sum():
        return clopper_pearson(int(exact.sum()), int(steps.sum()), level)
    return korn_graubard(exact[steps > 0], steps[steps > 0], level)


def _cubic(found: Found, done: Done, several: Sequence[cubic.Curve]) -> list[Asked]:
    of_state = [one.of_state for one in several if one.of_state is not None and one.of_state > 0]
    if of_state:
        found.row(done, "cubic_constant", "state", cubic.state_constant_of(of_state), "1")
    found.row(done, "cubic_stretches", "count", Interval(len(several), None, None, 1.0, len(several)), "1")
    cut = sum(one.is_cut for one in several)
    found.row(done, "cubic_stretches_cut", "count", Interval(cut, None, None, 1.0, len(several)), "1")
    by_state = Asked(
        "curve, by private state", "law", cubic.C, "1", "C from the kernel's K and its two windows",
        reading=lambda alpha: cubic.state_constant_of(of_state, 1 - alpha), zone=_zone(cubic.C),
        limit=LAW_ZONE * cubic.C, n=len(of_state),
    )  # fmt: skip
    asks = [by_state] if of_state else []
    fit = cubic.fitted(several)
    if fit is None:
        return asks
    without = cubic.jackknifed(several, fit)
    found.row(done, "cubic_constant", "window", cubic.constant_of(fit, without), "1")
    _draw_cubic(found, done, several, fit)
    by_window = Asked(
        "curve, by the windows", "law", cubic.C, "1", "C of the curve fitted to the windows of all stretches",
        reading=lambda alpha: cubic.constant_of(fit, without, 1 - alpha), zone=_zone(cubic.C),
        limit=LAW_ZONE * cubic.C, n=len(without),
    )  # fmt: skip
    return [by_window, *asks]


def _draw_cubic(found: Found, done: Done, several: Sequence[cubic.Curve], fit: cubic.Fit) -> None:
    """Add the longest stretches, each with CUBIC's curve as the kernel counts: C is 0.4, the rest is fitted."""
    lawful = cubic.Fit(cubic.C, fit.delay_rtt, fit.offset)
    for place, one in enumerate(sorted(several, key=lambda one: -one.seconds[-1])[:CURVES]):
        law = cubic.predicted(one, lawful, one.seconds)
        for at in np.unique(np.linspace(0, len(one.seconds) - 1, FEW_POINTS).astype(int)):
            found.sample("cubic_windows", cell=done.label, stretch=place, seconds=float(one.seconds[at]),
                         window=float(one.window[at]), law=float(law[at]))  # fmt: skip


def _surroundings(run: Run, found: Found) -> None:
    """Add findings: packets that the log counts as skipped, trials with an incomplete log, and load by other
    programs."""
    several = trials_of(run)
    full = sum(_skipped(one, way) for one in several for way in ("in", "out"))
    if full:
        said = f"the log skipped {counted(full, 'packet')} and counted them; they are not compared"
        found.findings.append(Finding("local_drops", said, float(full), grade="note"))
    found.findings += [*interrupted(run), *contended(run)]


def sentence(checks: Sequence[dict[str, Any]]) -> str:
    """Return whether the log agrees with the references, and which check failed first."""
    if not checks:
        return "Nothing was measured to compare the log with"
    failed = [one for one in checks if one["verdict"] == FAIL]
    undecided = sum(one["verdict"] == INCONCLUSIVE for one in checks)
    if failed:
        first = failed[0]
        said = (
            f"The log is wrong in places: {len(failed)} of {counted(len(checks), 'check')} fail, first "
            f"{first['check']} ({first['device']})"
        )
    else:
        true = "No check contradicts the log" if undecided else "The log is correct in every check"
        said = f"{true}: {len(checks) - undecided} of {counted(len(checks), 'check')} pass, none fails"
    if undecided:
        first = next(one for one in checks if one["verdict"] == INCONCLUSIVE)
        named = f"{first['check']} ({first['device']})"
        said += f", {undecided} inconclusive: {named}" + (" and others" if undecided > 1 else "")
    return said + _exactness(checks)


def _exactness(checks: Sequence[dict[str, Any]]) -> str:
    values = [one for one in checks if one["check"] == "quiet moments"]
    packets = [one for one in checks if one["check"].endswith(", missing")]
    broken = sum(one["measured"] or 0 for one in values)
    parts = []
    if values:
        of = sum(one["n"] for one in values)
        agree = "all agree" if not broken else f"{percent(1 - broken / of)} agree"
        parts.append(f"of {fixed(of, 0)} values at quiet moments {agree} with TCP_INFO")
    if packets:
        lacking = sum(one["measured"] or 0 for one in packets)
        lacks = "none is missing" if not lacking else f"{fixed(lacking, 0)} are missing"
        parts.append(f"of {fixed(sum(one['n'] for one in packets), 0)} captured packets {lacks}")
    for name, what in (("growth, over time", "Reno's slope"), ("curve, by the windows", "CUBIC's constant")):
        one = next((one for one in checks if one["check"] == name and one["ci_low"] is not None), None)
        if one:
            said = f"95 % CI {one['ci_low']:.3g}–{one['ci_high']:.3g}; expected {one['configured']:.3g}"
            parts.append(f"{what} is {one['measured']:.3g} ({said} ± {percent(LAW_ZONE)})")
    return "; " + ", ".join(parts) if parts else ""
