"""Match taps of a Parquet data set: the instrument reads them as records through pipes.

Memory is that of the instrument and of one batch of each tap. The instrument chooses the engine.
"""

from __future__ import annotations

import errno
import os
import subprocess
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sojourn.bed.ssh import OUR_INSTRUMENT, reading
from sojourn.binary import find_instrument
from sojourn.errors import MachineError, RequestError
from sojourn.records.decode import json_value
from sojourn.records.reader import arrow_schema
from sojourn.records.schema import TABLES
from sojourn.records.scratch import scratch
from sojourn.records.taps import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from sojourn.records.taps import ParquetTap

BATCH_ROWS = 1 << 16
NAMES = {"time_source": ["hardware", "kernel", "user", "simulated", "bpf"], "direction": ["in", "out"]}
"""The dictionaries of the table's name columns, as the instrument writes them."""


def match(inputs: Sequence[str], taps: Mapping[str, ParquetTap], options: Sequence[str]) -> int:
    """Run `match` on these inputs; those in `taps` are partitions of a data set. Return its exit status."""
    return _run(inputs, taps, options, None).returncode


def terms(inputs: Sequence[str], taps: Mapping[str, ParquetTap], options: Sequence[str]) -> dict[str, Any]:
    """Return the parameters for matching slices of these taps, which the instrument derives from their beginnings."""
    done = _run(inputs, taps, [*options, "--terms"], subprocess.PIPE)
    if done.returncode != 0:
        sentence = done.stderr.strip().partition(": ")[2]
        raise (MachineError if done.returncode == MachineError.status else RequestError)(sentence)
    with reading("match --terms", OUR_INSTRUMENT):
        return dict(json_value(done.stdout))


def _run(
    inputs: Sequence[str], taps: Mapping[str, ParquetTap], options: Sequence[str], to: int | None
) -> subprocess.CompletedProcess[str]:
    with scratch("match") as folder:
        # A pipe has one reader: a tap that is given twice has two pipes.
        given = {place: taps[name] for place, name in enumerate(inputs) if name in taps}
        pipes = {place: _pipe(folder / str(place), tap) for place, tap in given.items()}
        titles = [word for name in inputs for word in ("--title", name)]
        argv = [
            "sojourn",
            "match",
            *(str(pipes.get(place, name)) for place, name in enumerate(inputs)),
            *titles,
            *options,
        ]
        failures: list[Exception] = []
        threads = [Thread(target=_fill, args=(pipes[place], tap, failures)) for place, tap in given.items()]
        for thread in threads:
            thread.start()
        try:
            done = subprocess.run(argv, executable=find_instrument(), check=False, stdout=to, stderr=to, text=True)
        finally:
            for pipe, thread in zip(pipes.values(), threads, strict=True):
                _release(pipe, thread)
    if failures and done.returncode == 0:
        raise failures[0]
    return done


def _pipe(folder: Path, tap: ParquetTap) -> Path:
    """Make a named pipe with the name of a tap's records, and beside it the tap's drop count."""
    folder.mkdir()
    if tap.about["dropped"]:
        schema = arrow_schema("tap_counts", "sojourn")
        told = {"tap": tap.about["tap"], "dropped": int(tap.about["dropped"])}
        columns = [pa.array([told.get(one.name, 0)], one.type) for one in schema]
        with (
            pa.OSFile(str(folder / "tap_counts-tap-000.arrow"), "wb") as file,
            pa.ipc.new_stream(file, schema) as stream,
        ):
            stream.write_batch(pa.record_batch(columns, schema=schema))
    path = folder / "taps-tap-000.arrow"
    os.mkfifo(path, 0o600)
    return path


def _release(pipe: Path, thread: Thread) -> None:
    """Let the writer of a pipe detect that its reader has ended, even while it waits for one."""
    while thread.is_alive():
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        thread.join(0.01)


def _fill(pipe: Path, tap: ParquetTap, failures: list[Exception]) -> None:
    """Write a tap's packets as records into a pipe, until its reader stops."""
    try:
        with pipe.open("wb") as file:
            schema = records_schema(tap)
            with pa.ipc.new_stream(file, schema) as stream:
                for batch in read_packets(tap):
                    stream.write_batch(as_records(batch, schema))
    except pa.ArrowException as error:
        failures.append(RequestError(f"{tap.folder} is damaged: {str(error)[:80]}"))
    except OSError as error:
        if error.errno is None:  # pyarrow's own error for inconsistent pages
            failures.append(RequestError(f"{tap.folder} is damaged: {str(error)[:80]}"))
        elif error.errno != errno.EPIPE:  # the reader itself reports how it ended
            failures.append(MachineError(f"{tap.folder}: {error.strerror}"))


def records_schema(tap: ParquetTap) -> pa.Schema:
    """Return the schema of the records of a tap's packets."""
    schema = arrow_schema("taps", "sojourn", simulated=tap.about.get("clock") == "simulated")
    about = {name: tap.about.get(name, "") for name in KEPT}
    return schema.with_metadata({**(schema.metadata or {}), **about})


def read_packets(tap: ParquetTap) -> Iterator[pa.RecordBatch]:
    """Yield a tap's packets in order, in bounded memory: the pages of a row group, not all of it."""
    for path in tap.files:
        file = pq.ParquetFile(path, pre_buffer=False)
        yield from file.iter_batches(BATCH_ROWS, columns=[*TABLES["taps"]], use_threads=False)


def as_records(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows of a data set to those of our records."""
    columns: list[pa.Array[Any]] = []
    for one in schema:
        column = batch.column(one.name)
        if one.name in NAMES:
            names = pa.array(NAMES[one.name])
            places = pc.index_in(column, value_set=names).cast(pa.int8())
            column = pa.DictionaryArray.from_arrays(places, names)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
