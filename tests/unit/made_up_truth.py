"""A made-up analysis of "tcp-truth": as its study would have found it of a log that is true, for the report alone."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

from sojourn.analysis import analyse
from sojourn.analysis.checks import Asked
from sojourn.analysis.study import Study
from sojourn.analysis.tcp_trials import Done
from sojourn.methods.tcp_truth.analyse import Found, agreed, by_trial, sentence
from sojourn.plan import load_plan
from sojourn.plan.effective import effective_toml
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = ("state", "snd_cwnd", "srtt_us", "segs_in", "pacing_rate_bps")
PAIRS, QUIET = 200, 150


def write(path: Path) -> Path:
    """The run folder, analysed."""
    path.joinpath("records").mkdir(parents=True)
    (path / "plan.toml").write_text(effective_toml(load_plan("tcplog-truth", quick=True)))
    (path / "bed.json").write_text("{}")
    (path / "log.jsonl").write_text('{"event": "undisturbed"}\n{"event": "finished"}\n')
    found = Found()
    for cell, (kind, congestion, pipe) in enumerate((
        ("messages", "reno", "delay 2ms"), ("direct", "reno", "direct"),
        ("law", "reno", "delay 10ms loss 0.3%"), ("law", "cubic", "delay 100ms loss 0.1%"),
    )):  # fmt: skip
        done = Done(cell, kind, cell, congestion, pipe, "emulate", 0, "on", (), None, 0)
        captured(found, done)
        if kind == "law":
            lawful(found, done)
        else:
            asked(found, done)
    agreed(found)
    checks = found.checks.answered()
    made = Study(found.rows, found.findings, sentence(checks), samples=found.frames(), checks=checks)
    with patch("sojourn.methods.tcp_truth.analyse.study", lambda run: made):
        analyse(path)
    return path


def asked(found: Found, done: Done) -> None:
    """Fields beside TCP_INFO: at quiet moments all agree, amid a bulk some do not."""
    for place, name in enumerate(FIELDS):
        agree = PAIRS - (20 * place if done.kind == "direct" else 0)
        trials = [(agree // 4, PAIRS // 4)] * 4
        share = by_trial(trials)
        found.trials.setdefault((name, done.kind), []).extend(trials)
        found.sample(
            "oracle", cell=done.label, kind=done.kind, field=name, law="same", pairs=PAIRS, agree=agree, low=share.low,
            high=share.high, quiet=QUIET, quiet_agree=QUIET,
        )  # fmt: skip
    quiet = Asked("quiet moments", "TCP_INFO", 0.0, "values", "five fields", exact=0, n=QUIET * len(FIELDS))
    found.checks.add(done.label, done.cell, done.pipe, [quiet])


def captured(found: Found, done: Done) -> None:
    """Every packet is in both, some microseconds apart."""
    for direction, apart in (("out", 800.0), ("in", 2_000.0)):
        missing = Asked(
            f"packets {direction}, missing", "capture", 0.0, "packets", "captured and not logged", exact=0, n=5_000
        )
        found.checks.add(done.label, done.cell, done.pipe, [missing])
        zeros = dict.fromkeys(("missing", "more", "skipped", "dropped", "swapped", "too_early"), 0)
        found.sample("witness", cell=done.label, direction=direction, logged=5_000, captured=5_000, **zeros)
        for statistic, factor in (("p50", 1.0), ("p99", 4.0)):
            value = Interval(factor * apart, None, None, 0.95, 5_000)
            found.row(done, f"apart_{direction}", statistic, value, "ns")
        for above in np.geomspace(1.0, 1e-3, 50):
            found.sample("apart", cell=done.label, direction=direction, exceedance=float(above),
                         apart_ns=apart * float(1 - np.log(above)))  # fmt: skip


def lawful(found: Found, done: Done) -> None:
    """Windows that follow their law."""
    reno = done.congestion == "reno"
    factor = 0.5 if reno else 717 / 1024
    for before in range(20, 400, 19):
        found.sample("back_offs", cell=done.label, before=before, threshold=int(before * factor),
                     after=int(before * factor), factor=factor)  # fmt: skip
    found.row(done, "back_off_factor", "mean", Interval(factor, 0.99 * factor, 1.01 * factor, 0.95, 20), "1")
    name, law = ("growth, over time", 1.0) if reno else ("curve, by the windows", 0.4)
    value = Interval(law, 0.99 * law, 1.01 * law, 0.95, 100)
    found.row(done, *(("reno_slope", "hl") if reno else ("cubic_constant", "window")), value, "1")
    found.checks.add(done.label, done.cell, done.pipe, [
        Asked(name, "law", law, "1", "as its law says", reading=lambda alpha: value, zone=(0.95 * law, 1.05 * law),
              limit=0.05 * law, n=100),
    ])  # fmt: skip
    for stretch in range(3):
        for at in np.linspace(0.0, 6.0, 25):
            if reno:
                found.sample("reno_windows", cell=done.label, stretch=stretch, round_trips=float(at), grown=float(at))
            else:
                window = 0.4 * (at - 3 - stretch) ** 3 + 100
                found.sample("cubic_windows", cell=done.label, stretch=stretch, seconds=float(at), window=window,
                             law=window)  # fmt: skip
