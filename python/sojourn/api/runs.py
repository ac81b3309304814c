"""A finished run for programs: its figures with their intervals, its findings, its tables and its charts.

Reads a run folder, and analyses it where nobody has yet. Loads nothing that measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import polars as pl

from sojourn.errors import RequestError, did_you_mean
from sojourn.records.bed import read_bed
from sojourn.records.folder import RunFolder, open_folder
from sojourn.records.results import read_parquet, read_verdict
from sojourn.records.schema import TABLES

if TYPE_CHECKING:
    import os

    from sojourn.report.figure import Figure


class Estimate(NamedTuple):
    """A figure and its confidence interval; `low` and `high` are None where there is no interval."""

    value: float | None
    """None: infinite, since so many frames were lost, or not known."""
    low: float | None
    high: float | None
    unit: str
    level: float | None = None
    n: int | None = None
    """How many pairs, rounds or trials the interval is over; never packets."""


class Finding(NamedTuple):
    """Something that bears on what the run is worth."""

    name: str
    severity: Literal["note", "doubtful", "invalid"]
    where: str
    sentence: str


@dataclass(frozen=True)
class Run:
    """A run folder."""

    folder: RunFolder

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder.path

    @property
    def verdict(self) -> Literal["trusted", "doubtful", "invalid"]:
        """Whether to trust it."""
        found: Literal["trusted", "doubtful", "invalid"] = self._verdict["verdict"]
        return found

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        return str(self._verdict["sentence"])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found, whether it casts doubt or not."""
        keys = Finding._fields
        return tuple(Finding(*(one[key] for key in keys)) for one in self._verdict["findings"])

    @property
    def headline(self) -> Estimate | None:
        """The first figure of the sentence: what a device adds, the first rate that a suite of searches found, …

        None where the sentence begins with no one row of `results`: streams without a wire, checks of an emulator, the
        cost of a log over all numbers of flows. `estimate` gives any row.
        """
        pairs = self._verdict["pairs"]
        if pairs["estimate"] is None:
            return None
        return Estimate(pairs["estimate"], pairs["ci_low"], pairs["ci_high"], pairs["unit"])

    @cached_property
    def results(self) -> pl.DataFrame:
        """Every reported figure, a row each; docs/reference/results.md lists the columns."""
        return read_parquet(self.folder.analysis / "results.parquet")

    def estimate(self, quantity: str, **columns: str | float | None) -> Estimate:
        """The one figure of a quantity that has these values in the columns of `results` (None: is null).

        Raises RequestError where there is none, or more than one.
        """
        conditions = [pl.col(name).eq_missing(pl.lit(value)) for name, value in columns.items()]
        if unknown := next((name for name in columns if name not in self.results.columns), None):
            raise RequestError(f"results have no column {unknown}{did_you_mean(unknown, self.results.columns)}")
        found = self.results.filter(pl.col("quantity") == quantity, *conditions)
        if found.height != 1:
            raise RequestError(self._not_one(quantity, columns, found))
        row = found.row(0, named=True)
        return Estimate(row["estimate"], row["ci_low"], row["ci_high"], row["unit"], row["level"], row["n"])

    @cached_property
    def samples(self) -> dict[str, pl.DataFrame]:
        """What the report's figures draw: distributions, time series and pairs, thinned, by name."""
        return {path.stem: read_parquet(path) for path in sorted(self.folder.samples.glob("*.parquet"))}

    def records(self, table: str) -> pl.DataFrame:
        """A table of what the instruments saw, whole: "probes", "streams", …; docs/reference/records.md lists them."""
        from sojourn.records import read_table

        if table not in TABLES:
            raise RequestError(f"no table {table}: expected one of {', '.join(TABLES)}{did_you_mean(table, TABLES)}")
        return read_table(self.folder.records, table).frame

    @property
    def charts(self) -> dict[str, Any]:
        """The report's figures as Altair charts, by name; `chart.save("x.svg")` and notebooks take them as they are."""
        import altair as alt

        return {figure.name: alt.Chart.from_json(figure.file()) for figure in self._figures()}

    def _figures(self) -> list[Figure]:
        from sojourn.report.contents import all_figures
        from sojourn.report.run import Run as Reported

        return all_figures(Reported.read(self.path))

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What was asked, every effective value."""
        from sojourn.records.asked import read_run_plan

        return read_run_plan(self.folder.plan)

    @cached_property
    def bed(self) -> dict[str, Any]:
        """What the machine was; empty for a run that was ended before it was looked at."""
        return read_bed(self.folder.bed)

    @cached_property
    def _verdict(self) -> dict[str, Any]:
        return read_verdict(self.folder.verdict)

    def _not_one(self, quantity: str, columns: dict[str, Any], found: pl.DataFrame) -> str:
        asked = ", ".join([quantity, *(f"{name}={value!r}" for name, value in columns.items())])
        if found.height == 0:
            known = self.results["quantity"].unique().sort().to_list()
            return f"no figure is {asked}{did_you_mean(quantity, known)}: quantities are {', '.join(known)}"
        differ = [name for name in found.columns[:-1] if found[name].n_unique() > 1]
        telling = [name for name in differ if name not in {"estimate", "ci_low", "ci_high", "n", "probes", "q_value"}]
        return f"{found.height} figures are {asked}: say which by {', '.join(telling)}"


def open(run: str | os.PathLike[str]) -> Run:  # noqa: A001 - as modules of the standard library have it
    """A run folder, analysed if nobody has yet; raises RequestError where it is none."""
    folder = open_folder(Path(run))
    if not folder.verdict.is_file() or not (folder.analysis / "results.parquet").is_file():
        from sojourn.analysis import analyse
        from sojourn.cli.private import private_run

        with private_run(folder.path):
            analyse(folder.path)
    return Run(folder)
