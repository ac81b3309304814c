"""The layout of a run folder, the only thing that both halves of Sojourn know.

It names places and nothing else: it makes no folder, and reads nothing that is in one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run folder at `path`: what was asked, what was there, what happened, what was seen, what we made of it."""

    path: Path

    @property
    def plan(self) -> Path:
        """What was asked, every effective value."""
        return self.path / "plan.toml"

    @property
    def bed(self) -> Path:
        """What the machines were."""
        return self.path / "bed.json"

    @property
    def log(self) -> Path:
        """What happened, one JSON object a line; complete when one has the event "finished"."""
        return self.path / "log.jsonl"

    @property
    def records(self) -> Path:
        """What the instruments saw, written once."""
        return self.path / "records"

    @property
    def boxes(self) -> Path:
        """What the programs of the user's own boxes wrote, a file each; there where there are any."""
        return self.path / "boxes"

    @property
    def analysis(self) -> Path:
        """What we made of it: may be deleted and made again."""
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
        """Whether to trust it, and why."""
        return self.analysis / "verdict.json"

    @property
    def samples(self) -> Path:
        """What the report's figures draw."""
        return self.analysis / "samples"

    @property
    def report(self) -> Path:
        """What we say: may be deleted and made again."""
        return self.path / "report"


def open_folder(path: Path) -> RunFolder:
    """An existing run folder."""
    folder = RunFolder(path)
    if not path.exists():
        raise RequestError(f"{path} is not there: expected a run folder, which holds plan.toml and records/")
    if not folder.plan.is_file() or not folder.records.is_dir():
        raise RequestError(f"{path} is no run folder: expected one that holds plan.toml and records/")
    return folder
