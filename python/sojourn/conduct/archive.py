"""Make run folders and keep their log: one JSON object per line with both clocks, flushed at once.

The layout itself is declared in records/folder.py.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sojourn.backends import load as load_backend
from sojourn.conduct.cores import choose_cores
from sojourn.errors import MachineError, RequestError
from sojourn.plan import Plan, effective_toml
from sojourn.plan.settings import asked
from sojourn.records import RunFolder
from sojourn.records.decode import text_of
from sojourn.records.lost import CLOSED, LOST
from sojourn.records.whole_file import continued, sync_folder, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

RUNS = Path("runs")


def folder_of(plan: Plan) -> Path:
    """Return the folder of a run whose user named none."""
    return RUNS / new_name(plan)


def create_folder(plan: Plan, out: Path) -> RunFolder:
    """Make a new run folder with its plan; `out` may be an empty folder, but nothing else that exists.

    A plan that names missing cores, a processor frequency that cannot be set, or settings that this machine lacks, is
    refused before anything is made.
    """
    choose_cores(plan)
    if "variance" in plan.sections and "frequency" in plan.variance.factors:
        load_backend(plan.bed.backend).require_frequency()
    if wanted := asked(plan.settings):
        load_backend(plan.bed.backend).require_settings(wanted)
    folder = RunFolder(out)
    if out.exists() and not is_empty_folder(out):
        raise RequestError(
            f"{out} exists and is not an empty folder: choose another --out, or go on with --resume {out}"
        )
    try:
        missing = [one for one in (folder.records, *folder.records.parents) if not one.exists()]
        folder.records.mkdir(parents=True)
        write_whole(folder.plan, effective_toml(plan))
        for one in missing:
            sync_folder(one.parent)
    except OSError as error:
        raise MachineError(f"{folder.path} cannot be made ({error.strerror}): choose another --out") from error
    return folder


def new_name(plan: Plan) -> str:
    """Return time, study, and four random digits: 2026-11-20T101500Z-bridge-latency-3f9c."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}-{plan.study.name}-{secrets.token_hex(2)}"


def is_empty_folder(path: Path) -> bool:
    """Return whether the path is an empty folder."""
    return path.is_dir() and next(path.iterdir(), None) is None


ASKED = "# asked: "
FINISHED = "finished"
SYNCED = frozenset({FINISHED, CLOSED, LOST})
"""Events that a resumed run relies on when it counts trials as measured: each is synced to disk at once."""
"""FINISHED is the last event of a complete run: from then on its folder survives a loss of power."""


def asked_in(plan: Path) -> list[str]:
    """Return what the user asked for, from comments of the effective plan."""
    lines = text_of(plan).splitlines()
    return [line.removeprefix(ASKED) for line in lines if line.startswith(ASKED)]


class Log:
    """The log of a run; a line that a crash cut stays as it is, and the next one begins on a new line."""

    def __init__(self, path: Path, heard: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._heard = heard
        """Called with each entry after it is written."""
        self._file = continued(path)
        sync_folder(path.parent)

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one event."""
        entry = {"tai_ns": time.clock_gettime_ns(time.CLOCK_TAI), "monotonic_raw_ns": monotonic_raw_ns()}
        entry |= {"event": event} | fields
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        if event in SYNCED:
            os.fsync(self._file.fileno())
        if self._heard is not None:
            self._heard(entry)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(OSError):  # on a full disk the last entries are lost; the run has reported this
            self._file.close()


def monotonic_raw_ns() -> int:
    """Return CLOCK_MONOTONIC_RAW, which is never adjusted: steps of CLOCK_TAI are visible against it."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
