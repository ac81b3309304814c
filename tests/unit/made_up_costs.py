"""Made-up runs of method tcp-cost: slices of a machine that drifts and jitters, and a log whose cost is known."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.conduct.meter import Reading
from sojourn.conduct.slice_records import RowWriter
from sojourn.methods.tcp_cost.ask import Slice
from sojourn.methods.tcp_cost.measure import NOTHING, row_of
from sojourn.plan import effective_toml, load_plan
from sojourn.plan.sessions import batches_of
from sojourn.records import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.methods.tcp_cost.ask import Setting
    from sojourn.plan.trial import Trial

Rows = list[dict[str, Any]]
START = 1_795_000_000_000_000_000
NS = {"on": {"in": 190.0, "out": 290.0}, "empty": {"in": 0.0, "out": 0.0}, "disabled": {"in": 4.0, "out": 5.0}}
DECIMATED_NS = 60.0
CLOCK_NS = 60.0


@dataclass
class Machine:
    """What passes without the log, how it wanders, and the share that is left with each setting."""

    bps: float = 10e9
    noise: float = 0.08
    drift: float = 0.0
    """Over the whole run, as a share of the beginning."""
    wave: float = 0.0
    left: dict[Any, float] = field(default_factory=dict)
    """By packets per log or by mode; 1 where nothing is said."""
    skipped: int = 0
    collapses: dict[str, float] = field(default_factory=dict)
    """How many windows collapse in a slice, on average, with the log on and off."""
    seed: int = 1
    bed_sd: float = 0.0
    """By how much what is left differs between beds, as a logarithm."""

    def share(self, setting: Setting) -> float:
        """What a setting leaves."""
        return self.left.get(setting.packets_per_log if setting.mode == "on" else setting.mode, 1.0)


def write(path: Path, machine: Machine, sets: list[str] | None = None) -> RunFolder:
    """A run folder of the study, as measured on that machine."""
    plan = load_plan("tcplog-cost", sets=["bed.sessions=1", *(sets or [])])
    folder = RunFolder(path)
    folder.records.mkdir(parents=True)
    folder.plan.write_text(effective_toml(plan))
    folder.log.write_text(json.dumps({"event": "undisturbed"}) + "\n" + json.dumps({"event": "finished"}) + "\n")
    folder.bed.write_text(json.dumps({"parts": [{"part": 0, "before": {}, "after": {}}]}))
    trials, rng = plan.expand(), np.random.default_rng(machine.seed)
    batches, beds = batches_of(trials), np.random.default_rng([machine.seed, 1])
    for part in range(plan.bed.sessions):
        own = batches[part * len(batches) // plan.bed.sessions : (part + 1) * len(batches) // plan.bed.sessions]
        bed = replace(machine, left={key: value * np.exp(machine.bed_sd * beds.standard_normal())
                                     for key, value in machine.left.items()})  # fmt: skip
        several = [trial for batch in own for trial in batch]
        slices: Rows = [slice_of(bed, trial, len(trials), rng) for trial in several]
        costs: Rows = []
        for batch in own:
            under_statistics(batch[0].batch, batch[0].factors.setting, rng, (slices, costs))
        for name, rows in (("tcp_slices", slices), ("tcp_costs", costs)):
            with RowWriter(folder, name, part) as file:  # all at once: a batch for each row takes half of a test
                file.write(rows)
    return folder


def slice_of(machine: Machine, trial: Trial[Slice], slices: int, rng: np.random.Generator) -> dict[str, Any]:
    """One slice: the machine's level at its time, noise of its own, and what the setting leaves."""
    setting, mode = trial.factors.setting, trial.factors.mode
    at = trial.block / slices
    level = machine.bps * (1 + machine.drift * at + machine.wave * np.sin(40 * at))
    left = machine.share(setting) if mode == setting.mode and mode != "off" else 1.0
    bps = level * np.exp(machine.noise * rng.standard_normal()) * left
    row = row_of(trial.block, trial.factors, trial.batch, *readings(trial.block, bps))
    row["timeouts"] = (
        int(rng.poisson(machine.collapses.get(mode, machine.collapses.get("off", 0.0)))) if machine.collapses else 0
    )
    packets = int(bps / 8 / 30_000 * 0.15)
    each = setting.packets_per_log or 1
    counted = NOTHING | {"in_force_s": 0.19, "packets_in": packets, "packets_out": packets, "segments_in": packets,
                         "segments_out": 20 * packets, "logged": 2 * packets // each, "decimated": 0,
                         "skipped": machine.skipped, "skipped_full": machine.skipped}  # fmt: skip
    own = {"pair": trial.block // 2, "repetition": trial.round, "cell": trial.cell, "visit": trial.visit}
    found: dict[str, Any] = row | (counted if mode == "on" else NOTHING) | own
    return found


def readings(block: int, bps: float) -> tuple[Reading, Reading]:
    """Counters at the beginning and the end of a slice of 150 ms."""
    began = START + block * 200_000_000
    octets = int(bps / 8 * 0.15)
    before = Reading(began, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)
    return before, Reading(began + 150_000_000, octets, octets // 30_000, 3, 0.3, 0.14, 0.13, 0.01)


def under_statistics(transfer: int, setting: Setting, rng: np.random.Generator, into: tuple[Rows, Rows]) -> None:
    """Slices under the kernel's statistics, with the times of NS."""
    slices, costs = into
    for turn in range(2):
        for place, (mode, each) in enumerate((("on", 1), ("on", 1_000_000_000), ("empty", None), ("disabled", None))):
            block = 1_000_000 + 8 * transfer + 4 * turn + place
            asked = replace(setting, where="both", mode=mode, packets_per_log=each)
            before = Reading(START, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)
            after = Reading(START + 150_000_000, 10**8, 10**4, 0, 0.3, 0.1, 0.1, 0.0)
            row = row_of(block, Slice(asked, mode), transfer, before, after, statistics=True) | NOTHING
            slices.append(row | {"pair": -1, "repetition": turn, "cell": -1, "visit": 0})
            for host in ("a", "b"):
                for way in ("in", "out"):
                    own = DECIMATED_NS if each == 1_000_000_000 else NS[mode][way]
                    ns = CLOCK_NS + own * (1 + 0.02 * rng.standard_normal())
                    costs.append({"block": block, "host": host, "program": f"packet_{way}", "direction": way,
                                  "runs": 20_000, "cpu_time_ns": int(20_000 * ns)})  # fmt: skip
