"""The state of runs in progress, for Prometheus: how far each is, whether it has ended, percentiles so far.

The log is the only source (records/so_far.py); no record is read. `sojourn watch` reads only the new part of a log.
`sojourn export` starts Python and reads the whole log each time, and occupies a processor meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.records.log import read_log
from sojourn.records.so_far import ONE_WAY, QUANTILES, RTT, SoFar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from sojourn.records.so_far import PathSoFar

Samples = list[tuple[dict[str, Any], float]]

GOING_ON, FINISHED = "going_on", "finished"
STATES = (GOING_ON, FINISHED, "interrupted", "failed")

WORDS = {
    "sojourn_run_info": "The run, its study, and its verdict once it has one; always 1.",
    "sojourn_run_ended": "1: the run has measured all that it should; 0: it has not, and its figures may still change.",
    "sojourn_run_state": "1 for the state that the run's log tells; a run that was killed tells going_on.",
    "sojourn_run_last_event_timestamp_seconds": "When the run last wrote into its log: long ago, and it was killed.",
    "sojourn_run_trials": "Trials of the run that are planned, and those that have ended.",
    "sojourn_so_far_frames": "Probes and frames of trials that have ended: sent, and lost.",
    "sojourn_so_far_delays": "Delays that the percentiles so far are of.",
    "sojourn_so_far_rtt_seconds": "Percentile of round trips so far, to 1/64 of it: no interval, all cells of a path.",
    "sojourn_so_far_one_way_delay_seconds": "The same of one-way delays, where both hosts have one clock.",
}
"""The help text of each family, in the order of output."""

DELAYS = {RTT: "sojourn_so_far_rtt_seconds", ONE_WAY: "sojourn_so_far_one_way_delay_seconds"}


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a run."""

    run: str
    study: str
    state: str
    done: int
    planned: int
    changed_s: float
    """When its log last changed, in seconds since 1970; 0 without a log."""
    verdict: str = ""
    paths: Mapping[str, PathSoFar] = field(default_factory=dict)


def so_far_of(log: Path) -> SoFar:
    """Return what the log contains so far."""
    found = SoFar()
    for entry in read_log(log):
        found.take(entry)
    return found


def standing_of(run: str, so_far: SoFar, log: Path, verdict: str = "") -> Standing:
    """Return the state of a log's run."""
    changed = log.stat().st_mtime if log.is_file() else 0.0
    state = so_far.end or GOING_ON
    return Standing(run, so_far.study, state, len(so_far.done), so_far.planned, changed, verdict, so_far.paths)


def families(runs: Iterable[Standing]) -> dict[str, tuple[str, Samples]]:
    """Return the families of these runs by name: the help text and the samples."""
    found: dict[str, Samples] = {name: [] for name in WORDS}
    for one in runs:
        with suppress(ArithmeticError):  # an impossible number in a damaged log: the run's further samples are left out
            of_run(one, found)
    return {name: (WORDS[name], samples) for name, samples in found.items() if samples}


def of_run(one: Standing, found: dict[str, Samples]) -> None:
    """Add the samples of one run."""
    run = {"run": one.run}
    about = {"study": one.study} | ({"verdict": one.verdict} if one.verdict else {})
    found["sojourn_run_info"].append((run | about, 1.0))
    found["sojourn_run_ended"].append((run, float(one.state == FINISHED)))
    found["sojourn_run_state"] += [(run | {"state": state}, float(state == one.state)) for state in STATES]
    if one.changed_s:
        found["sojourn_run_last_event_timestamp_seconds"].append((run, one.changed_s))
    trials = (("ended", one.done), ("planned", one.planned))
    found["sojourn_run_trials"] += [(run | {"trials": name}, float(count)) for name, count in trials]
    if one.state == FINISHED:
        return  # its results have the figures, with intervals
    for name, path in one.paths.items():
        labels = run | {"device": name}
        for what, count in (("sent", path.sent), ("lost", path.lost)):
            found["sojourn_so_far_frames"].append((labels | {"outcome": what}, float(count)))
        for quantity, counts in path.delays.items():
            told = path.quantiles(quantity)
            if told:
                found["sojourn_so_far_delays"].append((labels | {"quantity": quantity}, float(counts.total())))
            samples = [(labels | {"quantile": f"{QUANTILES[at][0]:g}"}, value / 1e9) for at, value in told.items()]
            found[DELAYS[quantity]] += samples
