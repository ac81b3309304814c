"""Write a log as a folder with one file per flow, and their list `flows.csv`.

CSV and JSON lines are split in one pass, with one file open at a time, however many flows there are. The other formats
have a beginning and an end: for them the log is read once for each flow. The folder is written completely or not at
all. A flow's hash depends on its endpoints alone: it is the same in every log, and at both ends of a connection.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import polars as pl

from sojourn.errors import RequestError
from sojourn.export import tables
from sojourn.export.flow_hash import hash_of
from sojourn.export.log import TcpLog
from sojourn.export.output import Told
from sojourn.records.whole_file import give_to_caller, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from sojourn.export.convert import Request

    Write = Callable[[Request, TcpLog, BinaryIO, Told], None]

ENDS = ("local_address", "local_port", "remote_address", "remote_port")
DIVIDED = {"csv": tables.csv_rows, "jsonl": tables.json_rows}
LIST = "flows.csv"
COLUMNS = ("file", "flow", "flow_hash", *ENDS, "records")


def convert_per_flow(request: Request, folder: Path, suffix: str, write: Write) -> Told:
    """Write the folder, which must not exist. Flows without selected records have no file."""
    if folder.exists() or folder.is_symlink():
        raise RequestError(f"{folder} is there already: --per-flow makes a new folder")
    if not folder.parent.is_dir():
        raise RequestError(f"{folder.parent} is no folder: make it, or name another place with --per-flow")
    log = TcpLog.open(request.log, request.chosen)
    flows = {int(one["flow"]): one for one in log.logged_flows.select("flow", *ENDS).sort("flow").iter_rows(named=True)}
    hashes = {flow: hash_of(request.log, ends) for flow, ends in flows.items()}
    names = {flow: _name(ends, suffix) for flow, ends in flows.items()}
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name[:200]}.", dir=folder.parent))
    found = _Found()
    try:
        with _Draft(draft) as files:
            if request.to in DIVIDED:
                _divide(request, log, names, files, found)
            else:
                _each(request, names, write, files, found)
            if not found.counts:
                why = "; ".join([f"nothing of {request.log} is left to write", *found.sentences])
                raise RequestError(why if flows else str(log.nothing_logged()))
            listed = [
                {**flows[flow], "file": names[flow], "flow_hash": hashes[flow], "records": count}
                for flow, count in sorted(found.counts.items())
            ]
            with files.open(LIST, "wb") as file:
                file.write(pl.DataFrame(listed).select(*COLUMNS).write_csv().encode())
            files.settle(folder.parent)
        draft.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    told = Told(str(folder), sum(found.counts.values()), cut=bool(found.cut))
    told.sentences += [*found.sentences, f"{len(found.counts)} flows, a file each; {folder / LIST} lists them"]
    if found.cut:
        cut = ", ".join(sorted(found.cut))
        told.sentences.append(f"{cut} ends before its end: what lay before the cut was converted")
    return told


@dataclass
class _Found:
    """The result: records by flow, truncated files, and sentences that a person must read."""

    counts: dict[int, int] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    sentences: list[str] = field(default_factory=list)


class _Draft:
    """The folder in the making: its files are opened by its descriptor, even if its name is replaced meanwhile."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)

    @contextmanager
    def open(self, name: str, mode: Literal["ab", "wb"]) -> Iterator[BinaryIO]:
        """Open a file in it, readable only by the owner."""

        def within(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_NOFOLLOW, 0o600, dir_fd=self._folder)

        with open(name, mode, opener=within) as file:
            yield file

    def remove(self, name: str) -> None:
        """Remove a file in it."""
        os.unlink(name, dir_fd=self._folder)

    def settle(self, parent: Path) -> None:
        """Sync all files, and under sudo give them and the folder to the calling user."""
        for name in os.listdir(self._folder):  # noqa: PTH208 - by the descriptor
            with self.open(name, "ab") as file:
                give_to_caller(file.fileno(), parent)
                os.fsync(file.fileno())
        give_to_caller(self._folder, parent)
        os.fsync(self._folder)


def _name(ends: Mapping[str, Any], suffix: str) -> str:
    """Return a name such as `flow-000001-10.0.0.1-40000-10.0.0.2-5201.csv`; some systems allow no colon in names."""
    spelled = "-".join(str(ends[name]).replace(":", "_") for name in ENDS)
    return f"flow-{ends['flow']:06d}-{spelled}{suffix}"


def _divide(request: Request, log: TcpLog, names: Mapping[int, str], files: _Draft, found: _Found) -> None:
    """Write all flows in one pass over the log, each in the order of time."""
    write = DIVIDED[request.to]
    for samples in tables.named(log):
        for (flow,), rows in samples.group_by("flow", maintain_order=True):
            number = int(str(flow))
            if number not in names:
                raise RequestError(f"{request.log} is damaged: it has samples of flow {number}, and no such flow")
            with files.open(names[number], "ab") as file:
                if number not in found.counts and request.to == "csv":
                    file.write(tables.CSV_HEAD)
                write(rows, file)
            found.counts[number] = found.counts.get(number, 0) + rows.height
    found.cut |= {str(one) for one in log.cut}


def _each(request: Request, names: Mapping[int, str], write: Write, files: _Draft, found: _Found) -> None:
    """Read the log once for each flow."""
    for flow, name in names.items():
        chosen = replace(request.chosen, flows=frozenset({flow}))
        told, log = Told(name), TcpLog.open(request.log, chosen)
        with files.open(name, "wb") as file:
            write(replace(request, chosen=chosen, output=Path(name)), log, file, told)
        found.cut |= {str(one) for one in log.cut}
        found.sentences += [f"flow {flow}: {one}" for one in told.sentences]
        if told.records:
            found.counts[flow] = told.records
        else:
            files.remove(name)
