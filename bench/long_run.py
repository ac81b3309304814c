"""The time until a day-long run resumes: from `sojourn run --resume` to its first trial.

The run is synthetic: plan, log and records are those of a simulated `bridge-latency` of 10⁸ probes in 8,000 blocks,
without the last two rounds. Of the probes only the block numbers have values; everything else is zeros, which take no
space on the disk and are not read before a run resumes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.compare import Row, Target, What, alone
from sojourn.conduct import create_folder
from sojourn.errors import MachineError
from sojourn.plan import load_plan
from sojourn.records import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from io import FileIO

    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder

ROUNDS, PROBES = 336, 12_500
SETS = ("icmp_bytes=[64, 1480]", "interval=250us,1ms", "bed.twins=false", "bed.sessions=10", "block_at_most=1h",
        "pairs.at_most=100h", "pairs.a_a=false")  # fmt: skip
OWED_ROUNDS = 2
TASK, PEER = "a run of 10⁸ probes goes on", "reading its log"
PATIENCE_S = 600.0


def rows(repetitions: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """Return the line of the table."""
    tell(f"resume: making up a run of {ROUNDS} rounds")
    run = made_up(scratch / "long")
    found = []
    for number in range(1, repetitions + 1):
        tell(f"resume: repetition {number}/{repetitions}")
        began = time.monotonic()
        entries = [json.loads(line) for line in run.log.read_text(encoding="utf-8").splitlines()]
        found.append((seconds_to_go_on(run, sum(one["event"] == "begun" for one in entries)), time.monotonic() - began))
    return [alone(What(TASK, PEER, "to the first trial", "s"), found, Target("at most", 10))]


def seconds_to_go_on(run: RunFolder, begun: int) -> float:
    """Return the time from the start of the command to the first trial; the run is then interrupted."""
    argv = [str(Path(sys.executable).with_name("sojourn")), "run", "--resume", str(run.path)]
    began, place = time.monotonic(), run.log.stat().st_size
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while (took := time.monotonic() - began) < PATIENCE_S and process.poll() is None:
            with run.log.open("rb") as log:
                log.seek(place)
                if b'"event": "begun"' in log.read():
                    process.send_signal(signal.SIGINT)
                    process.communicate()
                    return took
            time.sleep(0.02)
        process.kill()
        said = process.communicate()[1]
    raise MachineError(f"{run.path} did not go on after {begun} trials: {said.strip()}")


def made_up(path: Path, rounds: int = ROUNDS, probes: int = PROBES) -> RunFolder:
    """Return a run that was interrupted two rounds before its end."""
    sets = [*SETS, f"rounds={rounds}", f"probes_per_block={probes}"]
    plan = load_plan("bridge-latency", backend="sim", sets=sets)
    folder = create_folder(plan, path)
    trials = [one for one in plan.expand() if one.round < rounds - OWED_ROUNDS]
    sessions = plan.bed.sessions
    each = -(-rounds // sessions)
    with folder.log.open("w", encoding="utf-8") as log:
        for part in range(sessions):
            own = [one for one in trials if one.round // each == part]
            write_part(folder, part, own)
            for entry in entries_of(plan, part, own, len(plan.expand()) if part == 0 else 0):
                log.write(json.dumps({"tai_ns": 0, "monotonic_raw_ns": 0} | entry) + "\n")
        log.write(json.dumps({"tai_ns": 0, "monotonic_raw_ns": 0, "event": "interrupted"}) + "\n")
    return folder


def entries_of(plan: Plan, part: int, trials: Iterable[Trial[Any]], every: int) -> Iterable[dict[str, Any]]:
    """Return the log's entries of a part."""
    draw = {"seed": part, "run_seed": 1, "held": []}
    yield {"event": "started", "part": part, "bed": part, "run": "long", "study": plan.study.name, "blocks": every,
           "draw": draw}  # fmt: skip
    classes = [[value, 100] for value in range(9_000, 15_000, 256)]
    for one in trials:
        yield {"event": "begun", "part": part, "trial": one.block}
        rtt = {"n": one.count, "p50_ns": 1, "p90_ns": 2, "p99_ns": 3}
        counts = {"sent": one.count, "received": one.count, "lost": 0}
        yield {"event": "block", "device": one.device, "block": one.block, "rtt": rtt, "rtt_classes": classes} | counts
        yield {"event": "closed", "part": part, "trials": [one.block]}


class Sparse:
    """A file that leaves holes where only zeros are written."""

    HOLE = 1 << 12

    def __init__(self, file: FileIO) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        """Write, or leave a hole."""
        view = memoryview(data).cast("B")
        if len(view) >= self.HOLE and not any(view[:64]) and bytes(view).count(0) == len(view):
            self._file.seek(len(view), 1)
        else:
            self._file.write(view)
        return len(view)

    closed = False

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()


def write_part(folder: RunFolder, part: int, trials: list[Trial[Any]]) -> None:
    """The records of one part: a batch for each block."""
    for name in ("probes", "blocks"):
        schema = arrow_schema(name, "0", simulated=True)
        with (folder.records / f"{name}-{part:03}.arrow").open("wb", buffering=0) as file:
            sparse: Any = Sparse(file)
            sink = pa.PythonFile(sparse, mode="w")
            with pa.ipc.new_stream(sink, schema) as stream:
                for one in trials:
                    stream.write_batch(batch_of(name, schema, one))


def batch_of(name: str, schema: pa.Schema, trial: Trial[Any]) -> pa.RecordBatch:
    """Return one block: its probes, or its own line."""
    several = int(trial.count or 0) if name == "probes" else 1
    known = {"block": trial.block, "round": trial.round, "count": trial.count, "sent": trial.count}
    columns = [column(field.type, several, known.get(field.name, 0)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def column(kind: Any, rows_: int, value: int | None) -> pa.Array[Any]:
    """Return a column with one value repeated."""
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(pa.array([0] * rows_, pa.int8()), pa.array(["software"]))
    if pa.types.is_string(kind):
        return pa.array(["bridge"] * rows_)
    if pa.types.is_boolean(kind):
        return pa.array([False] * rows_)
    found: pa.Array[Any] = pa.array(np.full(rows_, value or 0), kind)
    return found
