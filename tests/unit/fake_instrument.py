#!/usr/bin/env python3
"""A double of `sojourn-instrument probe blocks` and `stream serve` that fails on demand: it speaks the protocols and
writes whole records.

FAKE_SCHEMA names a file of the tables; FAKE_DIE_AT=block, FAKE_ERROR_AT=block:status:message, FAKE_BLOCK_SECONDS=s and
FAKE_STOP_AT=block (it stands still) are the demands. A simulated stream loses what is above its path's serialiser, and
its sender misses loads above FAKE_MISS_ABOVE, and the first load of all with FAKE_MISS_FIRST; with FAKE_STALL_FIRST it
makes a burst of it. FAKE_LOSE_EVERY=n: each n-th trial loses a frame by accident. `emulate run` answers on its control
socket, writes what it is asked into FAKE_ASKED, and dies with FAKE_DIE_AT=begin:<block>. Its times mean nothing. It
imports nothing of Sojourn, and pyarrow only where it writes a record, so that it starts at once.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", nargs=2)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--name", default="")
    parser.add_argument("--control")
    parser.add_argument("--forward")
    parser.add_argument("--backward")
    arguments, _ = parser.parse_known_args()
    if arguments.mode == ["emulate", "run"]:
        return emulate(arguments)
    if arguments.mode == ["emulate", "explain"]:
        return explain(arguments)
    if arguments.mode == ["emulate", "replay"]:
        say({"event": "replayed", "identical": True, "packets": 0, "dispositions": 0, "drawn": 0, "intended": 0})
        return 0
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    import pyarrow as pa  # noqa: F401 - before it says that it is ready

    ready = {"event": "ready", "version": "0", "profile": "release", "wait": "sleep", "fifo": False, "cpu": None}
    say(ready | {"memory_locked": False})
    if arguments.mode == ["stream", "serve"]:
        return End(Table(arguments.record / f"streams-{arguments.name}-{arguments.part:03}.arrow", "streams")).serve()
    tables = {
        name: Table(arguments.record / f"{name}-{arguments.part:03}.arrow", name) for name in ("probes", "blocks")
    }
    for line in sys.stdin:
        if (status := measure(json.loads(line), tables)) is not None:
            return status
    for table in tables.values():
        table.close()
    return 0


class End:
    """One end of streams; nothing is really sent."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.trials = 0
        self.receiving: dict[Any, dict[str, Any]] = {}

    def serve(self) -> int:
        for line in sys.stdin:
            request = json.loads(line)
            block = request.get("block")
            if os.environ.get("FAKE_DIE_AT") == str(block):
                print("sojourn-instrument: the fan fell off", file=sys.stderr)
                return 3
            error = os.environ.get("FAKE_ERROR_AT", "").split(":", 2)
            if error[0] == str(block):
                say({"event": "error", "block": block, "status": int(error[1]), "message": error[2]})
                continue
            self.carry_out(request)
        self.table.close()
        return 0

    def carry_out(self, request: dict[str, Any]) -> None:
        block = request.get("block")
        match request["do"]:
            case "receive":
                self.receiving[block] = request
                say({"event": "receiving", "block": block, "ports": request["ports"]})
            case "finish":
                flows = [received_flow(one["flow"], one["sent"], 0) for one in request["sent"]]
                self.keep({"flows": flows, **self.receiving.pop(block, request)}, "receive")
                say({"event": "received", "block": block, "flows": flows, "stepped": False})
            case "send":
                time.sleep(float(os.environ.get("FAKE_BLOCK_SECONDS", "0")))
                self.keep(request)
                flows = [sent_flow(flow, missing=False) for flow in request["flows"]]
                say({"event": "sent", "block": block, "flows": flows})
            case "simulate":
                self.simulate(request)

    def simulate(self, request: dict[str, Any]) -> None:
        time.sleep(float(os.environ.get("FAKE_BLOCK_SECONDS", "0")))
        self.trials += 1
        stalls = self.trials == 1 and "FAKE_STALL_FIRST" in os.environ
        missing = self.trials == 1 and "FAKE_MISS_FIRST" in os.environ
        sent, received = [], []
        for flow in request["flows"]:
            missing = missing or flow["rate_pps"] > float(os.environ.get("FAKE_MISS_ABOVE", "inf"))
            sent.append(sent_flow(flow, missing=missing))
            sent[-1]["pacing_error_ns"]["p99"] = 5_000_000 * stalls
            capacity = request["path"].get("serialiser", {}).get("rate_pps", float("inf"))
            share = min(1.0, capacity / flow["rate_pps"])
            every = int(os.environ.get("FAKE_LOSE_EVERY", "0"))
            lost = round(sent[-1]["sent"] * (1 - share)) + (every > 0 and self.trials % every == 0)
            received.append(received_flow(flow["flow"], sent[-1]["sent"], lost))
        self.keep(request)
        self.keep(request, "receive")
        say({"event": "simulated", "block": request["block"], "sent": sent, "received": received, "clock": None})

    def keep(self, request: dict[str, Any], role: str = "send") -> None:
        for flow in request["flows"]:
            number = flow if isinstance(flow, int) else flow["flow"]
            asked = 0 if isinstance(flow, int) else flow.get("count", 0)
            self.table.put({**request, "role": role, "flow": number, "asked": asked})
        self.table.flush()


def sent_flow(flow: dict[str, Any], *, missing: bool) -> dict[str, Any]:
    sent = flow["count"] * 9 // 10 if missing else flow["count"]
    rate = flow["rate_pps"]
    return {
        "flow": flow["flow"], "asked": flow["count"], "sent": sent, "next": sent, "refused": 0,
        "unsent": flow["count"] - sent,
        "asked_pps": rate, "intended_pps": rate, "achieved_pps": rate, "within_1us": 1.0, "within_10us": 1.0,
        "pacing_error_ns": {"p50": 0, "p99": 0, "max": 0}, "anderson_darling": None,
        "first_ns": 0, "last_ns": round((sent - 1) * 1e9 / rate) if rate else 0,
    }  # fmt: skip


def received_flow(flow: int, sent: int, lost: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("duplicated", "reordered", "late", "corrupted", "unexpected", "local_drops"), 0)
    delay = {"min": 1, "p50": 2, "p99": 3, "max": 4, "mean": 2.0}
    return {"flow": flow, "port": 0, "node": 0, "first": sent - lost, "lost": lost, "delay_ns": delay, **nothing}


def measure(request: dict[str, Any], tables: dict[str, Table]) -> int | None:
    block = request["block"]
    if os.environ.get("FAKE_STOP_AT") == str(block):
        os.kill(os.getpid(), signal.SIGSTOP)
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


def emulate(arguments: argparse.Namespace) -> int:
    """Moves no frame; pipes are what `delay Nms` says of them, and "nonsense" is refused."""
    if os.environ.get("FAKE_DIE_AT") == "start":
        print("sojourn-instrument: the port is in use", file=sys.stderr)
        return 3
    pipes = {"forward": arguments.forward, "backward": arguments.backward}
    config = {"pipes": [pipe_of(words, way) for way, words in pipes.items() if words is not None]}
    with socket.socket(socket.AF_UNIX) as listening, Path(os.environ["FAKE_ASKED"]).open("a") as asked:
        listening.bind(arguments.control)
        listening.listen()
        say({"event": "ready", "engine": "none", "control": arguments.control, "argv": sys.argv[1:]})
        connection, _ = listening.accept()
        with connection, connection.makefile("rw") as control:
            for line in control:
                request = json.loads(line)
                asked.write(json.dumps({"name": arguments.name, **request}) + "\n")
                asked.flush()
                if os.environ.get("FAKE_DIE_AT") == f"begin:{request.get('block')}":
                    print("sojourn-instrument: the port is gone", file=sys.stderr)
                    return 3
                control.write(json.dumps(emulator_answer(request, config)) + "\n")
                control.flush()
                if request["do"] == "stop":
                    break
    say({"event": "ended", "report": {"pipes": []}})
    return 0


def explain(arguments: argparse.Namespace) -> int:
    """A pipe's JSON stands for its words, so that a test says what was understood."""
    options = [word.removeprefix("--").replace("=", " ", 1) for word in sys.argv[3:] if word != "--json"]
    words = arguments.forward or " ".join(options)
    if "nonsense" in words:
        print("sojourn-instrument: pipe forward: nonsense: expected a word such as delay", file=sys.stderr)
        return 2
    pipe = json.loads(os.environ.get("FAKE_PIPE", "{}")) or pipe_of(words, "forward")
    names = ("forward", "backward")
    config = {"pipes": [pipe | {"name": name} for name in names]}
    say({"event": "config", "config": config, "pipes": [{"name": name, "words": words} for name in names]})
    return 0


def emulator_answer(request: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "set" if "nonsense" in request["words"]:
            return {"error": "nonsense: expected a word such as delay"}
        case "set":
            pipes = [pipe_of(request["words"], pipe["name"]) for pipe in config["pipes"]]
            return {"ok": True, "number": 7, "at_ns": 8, "to": pipes[0], "pipes": pipes}
        case "begin":
            return {"ok": True, "block": request["block"], "summary": {"pipes": []}}
        case "show":
            return {"ok": True, "report": {"pipes": []}, "config": config}
    return {"ok": True}


def pipe_of(words: str, name: str) -> dict[str, Any]:
    found = re.search(r"delay (\d+)ms", words)
    return {"name": name, "delay": {"constant": int(found[1]) * 1_000_000 if found else 0}}


class Table:
    def __init__(self, path: Path, name: str) -> None:
        import pyarrow as pa

        kinds = {"bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64(), "float64": pa.float64()}
        fields = json.loads(Path(os.environ["FAKE_SCHEMA"]).read_text())[name]
        self.schema = pa.schema(
            [pa.field(one, kinds.get(kind, pa.string()), nullable) for one, kind, nullable in fields]
        )
        empty = {"bool": False, "int32": 0, "int64": 0, "double": 0.0, "string": ""}
        self.empty = {field.name: empty[str(field.type)] for field in self.schema}
        self.batch = pa.RecordBatch.from_pylist
        self.file = path.open("wb")
        self.stream = pa.ipc.new_stream(self.file, self.schema)
        self.rows: list[dict[str, Any]] = []

    def put(self, row: dict[str, Any]) -> None:
        self.rows.append({name: row.get(name, nothing) for name, nothing in self.empty.items()})

    def flush(self) -> None:
        self.stream.write_batch(self.batch(self.rows, self.schema))
        self.file.flush()
        self.rows.clear()

    def close(self) -> None:
        self.stream.close()
        self.file.close()


if __name__ == "__main__":
    sys.exit(main())
