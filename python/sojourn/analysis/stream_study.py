"""What every method of streams shares: its trials, packets, common rows, findings and samples, each computed once.

A method adds rows and samples of its own to a `Gathered` and ends with `conclude`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.instances import apart, control_findings, instance_rows
from sojourn.analysis.packets import (
    ACTUAL,
    INTENDED,
    Values,
    answers_of,
    binned_values,
    delay_values,
    gap_values,
    ordered,
    packets_of,
    variation_values,
)
from sojourn.analysis.rates import tester_limits, zero_loss_rows
from sojourn.analysis.run import A_A
from sojourn.analysis.stream_findings import several_modes, sound, stream_findings
from sojourn.analysis.stream_rows import (
    added_rows,
    binned_summaries,
    count_rows,
    delay_rows,
    departure_rows,
    pacing_errors,
    stamp,
    summaries,
)
from sojourn.analysis.stream_samples import common_samples
from sojourn.analysis.streams import flows_of, trials_of
from sojourn.analysis.study import Study

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.analysis.finding import Finding, Place
    from sojourn.analysis.hypotheses import Outcome
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run


@dataclass(frozen=True)
class Gathered:
    """A run of streams, read once, with its rows, findings and samples so far."""

    run: Run
    rows: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    hypotheses: list[Outcome] = field(default_factory=list)
    samples: dict[str, pl.DataFrame] = field(default_factory=dict)
    overloads: set[Place] = field(default_factory=set)
    """Places where more was offered than the sender or the path can do: a load that is missed there is a note."""

    @cached_property
    def flows(self) -> pl.DataFrame:
        """One row per trial, flow and receiving port."""
        return flows_of(self.run)

    @cached_property
    def trials(self) -> pl.DataFrame:
        """One row per trial and receiving port."""
        return trials_of(self.flows)

    @cached_property
    def packets(self) -> pl.DataFrame:
        """One row per packet that arrived undamaged."""
        return packets_of(self.run, self.flows)

    @cached_property
    def answers(self) -> pl.DataFrame:
        """One row per response that arrived undamaged."""
        return answers_of(self.run, self.flows)

    @cached_property
    def binned(self) -> list[Values]:
        """The values that were recorded in bins only."""
        return list(binned_values(self.run, self.flows))

    @cached_property
    def delays(self) -> list[Values]:
        """One-way delays from the actual departure, of every path, cell and receiver."""
        binned = [one for one in self.binned if one.measure == ACTUAL]
        return ordered(self.run, [*delay_values(self.packets, self.flows), *binned])

    @cached_property
    def intended(self) -> list[Values]:
        """One-way delays from the intended departure."""
        return ordered(self.run, list(delay_values(self.packets, self.flows, INTENDED)))

    @cached_property
    def variations(self) -> list[Values]:
        """IPDV, PDV and times between arrivals."""
        binned = [one for one in self.binned if one.measure != ACTUAL]
        return ordered(self.run, [*variation_values(self.packets), *gap_values(self.packets), *binned])

    @cached_property
    def errors(self) -> pl.DataFrame:
        """Pacing errors of every recorded packet."""
        return pacing_errors(self.run, self.flows)

    @cached_property
    def summaries(self) -> pl.DataFrame:
        """Mean and median delay of every trial."""
        kept = summaries(self.packets, self.flows)
        binned = binned_summaries([one for one in self.binned if one.measure == ACTUAL], self.flows)
        return pl.concat([kept, binned.select(kept.columns)], how="vertical_relaxed")

    def begin(self, *, flood: bool = False) -> None:
        """Add the rows that every method has; without delays for a flood, whose queue is always full."""
        counted = count_rows(self.run, self.trials)
        delays = [] if flood else delay_rows(self.run, [*self.delays, *self.intended, *self.variations])
        self.rows.extend([*counted, *delays, *departure_rows(self.run, self.flows), *zero_loss_rows(self.run)])

    def add_devices(self, cells: Iterable[int]) -> None:
        """Add what each device adds in these cells, from pairs of trials with and without it."""
        several = list(cells)
        self.rows.extend(added_rows(self.run, self.summaries, several))
        self.add_instances(several)

    def add_instances(self, cells: Iterable[int]) -> None:
        """Add the differences of the paths' second links from their first in these cells, by mean delays."""
        found = apart(self.run, self.summaries, "mean", list(cells), share=False)
        self.rows.extend(instance_rows(self.run, found, "ns", "mean one-way delays"))
        if A_A not in self.run.devices:
            self.findings.extend(control_findings(found, "ns"))

    def add_instances_of(self, column: str, what: str, *, share: bool) -> None:
        """Add the same by a column of trials, relative to its mean or absolute; with the A/A control's finding."""
        found = apart(self.run, self.trials, column, list(self.run.cells), share=share)
        self.rows.extend(instance_rows(self.run, found, "1", what))
        self.findings.extend(control_findings(found, "1"))

    def conclude(
        self, sentence: str, *, limits: bool = False, takes_delays: bool = True, headline: Row | None = None
    ) -> Study:
        """Findings, timestamp sources and common samples; `limits`: add where the tester was the limit.

        Without `takes_delays` frames are counted alone, and clocks that could not be compared are no matter.
        `headline` is the row of the sentence's first figure, where a device is compared with a wire.
        """
        run = self.run
        found = [
            *stream_findings(run, self.flows, self.packets, self.errors, self.overloads, takes_delays=takes_delays),
            *sound(self.rows),
        ]
        found += [*several_modes(self.delays), *(tester_limits(run, self.trials, self.overloads) if limits else [])]
        stamp(run, self.rows, self.packets)
        samples = common_samples(self) | self.samples
        return Study(self.rows, [*found, *self.findings], sentence, self.hypotheses, samples, headline=headline)
