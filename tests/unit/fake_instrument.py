#!/usr/bin/env python3
"""A double of `sojourn-instrument probe blocks` that fails on demand: it speaks the protocol and writes whole records.

FAKE_SCHEMA names a file of the tables; FAKE_DIE_AT=block, FAKE_ERROR_AT=block:status:message, FAKE_BLOCK_SECONDS=s are
the demands. Its times mean nothing. It imports nothing of Sojourn, so that it starts at once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

KINDS = {"bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", nargs=2)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--part", type=int, default=0)
    arguments, _ = parser.parse_known_args()
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    ready = {"event": "ready", "version": "0", "profile": "release", "wait": "sleep", "fifo": False, "cpu": None}
    say(ready | {"memory_locked": False})
    tables = {
        name: Table(arguments.record / f"{name}-{arguments.part:03}.arrow", name) for name in ("probes", "blocks")
    }
    for line in sys.stdin:
        if (status := measure(json.loads(line), tables)) is not None:
            return status
    for table in tables.values():
        table.close()
    return 0


def measure(request: dict[str, Any], tables: dict[str, Table]) -> int | None:
    block = request["block"]
    if os.environ.get("FAKE_DIE_AT") == str(block):
        print("sojourn-instrument: the fan fell off", file=sys.stderr)
        return 3
    error = os.environ.get("FAKE_ERROR_AT", "").split(":", 2)
    if error[0] == str(block):
        say({"event": "error", "block": block, "status": int(error[1]), "message": error[2]})
        return None
    time.sleep(float(os.environ.get("FAKE_BLOCK_SECONDS", "0")))
    count = request["count"]
    for seq in range(count):
        tables["probes"].put({"block": block, "seq": seq, "replies": 1})
    tables["probes"].flush()
    tables["blocks"].put({**request, "sent": count, "received": count})
    tables["blocks"].flush()
    say({"event": "block", "block": block, "sent": count, "received": count, "lost": 0, "rtt": None, "elapsed_ns": 1})
    return None


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


class Table:
    def __init__(self, path: Path, name: str) -> None:
        fields = json.loads(Path(os.environ["FAKE_SCHEMA"]).read_text())[name]
        self.schema = pa.schema(
            [pa.field(one, KINDS.get(kind, pa.string()), nullable) for one, kind, nullable in fields]
        )
        self.file = path.open("wb")
        self.stream = pa.ipc.new_stream(self.file, self.schema)
        self.rows: list[dict[str, Any]] = []

    def put(self, row: dict[str, Any]) -> None:
        empty = {"bool": False, "int32": 0, "int64": 0, "string": ""}
        self.rows.append({field.name: row.get(field.name, empty[str(field.type)]) for field in self.schema})

    def flush(self) -> None:
        self.stream.write_batch(pa.RecordBatch.from_pylist(self.rows, self.schema))
        self.file.flush()
        self.rows.clear()

    def close(self) -> None:
        self.stream.close()
        self.file.close()


if __name__ == "__main__":
    sys.exit(main())
