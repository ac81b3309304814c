"""The layout of a run folder, the only knowledge that both halves of Sojourn share.

It names paths and nothing else: it makes no folder, and reads no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run folder at `path`: the plan, the machines, the events, the records, and the analysis."""

    path: Path

    @property
    def plan(self) -> Path:
        """The plan, with every effective value."""
        return self.path / "plan.toml"

    @property
    def bed(self) -> Path:
        """The facts of the machines."""
        return self.path / "bed.json"

    @property
    def log(self) -> Path:
        """The events, one JSON object per line; the run is complete if one is "finished"."""
        return self.path / "log.jsonl"

    @property
    def records(self) -> Path:
        """The records of the instruments, written once."""
        return self.path / "records"

    @property
    def boxes(self) -> Path:
        """The output of the user's own boxes' programs, one file each, if there are any."""
        return self.path / "boxes"

    @property
    def analysis(self) -> Path:
        """The analysis, which may be deleted and made again."""
        return self.path / "analysis"

    @property
    def results(self) -> Path:
        """The tidy table of every reported figure."""
        return self.analysis / "results.json"

    @property
    def budgets(self) -> Path:
        """The uncertainty budgets of the headline figures."""
        return self.analysis / "budgets.json"

    @property
    def verdict(self) -> Path:
        """The verdict, with its reasons."""
        return self.analysis / "verdict.json"

    @property
    def samples(self) -> Path:
        """The samples that the report's figures draw."""
        return self.analysis / "samples"

    @property
    def report(self) -> Path:
        """The report, which may be deleted and made again."""
        return self.path / "report"


def open_folder(path: Path) -> RunFolder:
    """Return an existing run folder; raises RequestError for any other path."""
    folder = RunFolder(path)
    if not path.exists():
        raise RequestError(f"{path} is not there: expected a run folder, which holds plan.toml and records/")
    if not folder.plan.is_file() or not folder.records.is_dir():
        raise RequestError(f"{path} is no run folder: expected one that holds plan.toml and records/")
    return folder
