"""Method "tcp-perturbation": connections over the same path with the log, without it, and without it again."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.connections import Applications, open_applications, whole_connections
from sojourn.conduct.slice_records import RowWriter
from sojourn.plan.tcp import ON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.methods.tcp_perturbation.ask import PerturbationPlan
    from sojourn.plan.tcp import Connections
    from sojourn.plan.trial import Trial


@dataclass(frozen=True, slots=True)
class Perturbed(Bench):
    """Connections with the log or without; there is no capture, as it would affect them too."""

    applications: Applications
    asked: PerturbationPlan

    def measure(self, trial: Trial[Connections]) -> None:
        """Measure one trial over a path whose random events start from the same seed again."""
        own, emulators, asked = self.applications, self.applications.session.emulators, self.asked
        with_log = trial.factors.setting == ON
        emulators.start_anew(trial.path)
        with emulators.during(trial.path, trial.block, trial.factors.pipe):
            if with_log:
                own.begin_log(trial, {"ppl": asked.packets_per_log}, keep=False)
            traffic = {"duration_ns": asked.duration_ns, "connections": 1, "read_every_ns": asked.read_every_ns}
            came = own.connect(trial, traffic)
            logged = own.end_log() if with_log else None
        own.tell(trial, came, logged)
        time.sleep(asked.pause_ns / 1e9)


@contextmanager
def open_bench(session: Session, clock: Clock) -> Iterator[Bench]:
    """Yield the bench with the applications and the log."""
    del clock
    with (
        open_applications(session, session.plan.perturbation) as applications,
        RowWriter(session.part.folder, "tcp_captures", session.part.number),  # # the table exists, but has no rows
    ):
        yield Perturbed(applications, session.plan.perturbation)


MEASURE = Measure(open_bench, whole_connections)
