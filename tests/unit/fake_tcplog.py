#!/usr/bin/env python3
"""A double of `sojourn-instrument tcplog serve`: it speaks the protocol, attaches nothing, and counts made-up packets.

FAKE_ASKED names a file that gets every request; FAKE_DIE_AT=block, FAKE_ERROR_AT=block:status:message and
FAKE_INTERRUPT_AT=block (somebody took its programs away) are the demands. It imports nothing of Sojourn, so that it
starts at once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

SEEN = {"in": 100, "out": 60}
RUN_NS = {"on": 250, "disabled": 70, "empty": 60, "placebo": 250}


def main() -> int:
    if sys.argv[1:3] != ["tcplog", "serve"]:
        return 2
    say({"event": "ready", "ready": True, "version": "0", "attach": sys.argv[-1]})
    log = Log()
    for line in sys.stdin:
        request = json.loads(line)
        keep(request)
        number = request.get("block")
        if os.environ.get("FAKE_DIE_AT") == str(number):
            print("sojourn-instrument: the programs are gone", file=sys.stderr)
            return 3
        error = os.environ.get("FAKE_ERROR_AT", "").split(":", 2)
        if error[0] == str(number):
            say({"event": "error", "block": number, "status": int(error[1]), "message": error[2]})
        else:
            say(log.carry_out(request))
    return 0


class Log:
    """What is in force, and what was counted."""

    def __init__(self) -> None:
        self.mode, self.each, self.runs = "off", 1, 0
        self.block = -1
        self.total = nothing()

    def carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "begin":
                self.mode, self.total, self.block = request["mode"], nothing(), request["block"]
                return {"event": "begun", "block": request["block"]}
            case "set":
                self.each = request["options"]["ppl"]
            case "mode":
                self.mode = request["mode"]
            case "status":
                count(self.total, self.mode, self.each)
                return {"event": "status", "totals": self.total}
            case "cost":
                self.runs += 1000
                ns = RUN_NS.get(self.mode, 0)
                programs = [{"name": f"packet_{way}", "runs": self.runs, "run_ns": self.runs * ns} for way in SEEN]
                return {"event": "cost", "programs": programs}
            case "end":
                self.mode = "off"
                is_cut = os.environ.get("FAKE_INTERRUPT_AT") == str(self.block)
                gap = {"why": "the program `packet_in` was detached", "after_ns": 1, "before_ns": 2} if is_cut else None
                return {"event": "ended", "account": self.total, "records": 0, "interruption": gap}
        return {"event": request["do"]}


def nothing() -> dict[str, Any]:
    ways = {way: dict.fromkeys(("seen", "logged", "decimated", "full"), 0) for way in SEEN}
    return ways | {"segments": {way: {"seen": 0} for way in SEEN}}


def count(total: dict[str, Any], mode: str, each: int) -> None:
    """Every packet seen since the last look was logged or decimated; one was skipped."""
    for way, seen in SEEN.items() if mode == "on" else ():
        logged = seen // each
        for disposition, packets in (("seen", seen), ("logged", logged - 1), ("decimated", seen - logged), ("full", 1)):
            total[way][disposition] += packets
        total["segments"][way]["seen"] += 3 * seen


def keep(request: dict[str, Any]) -> None:
    if "FAKE_ASKED" in os.environ:
        with Path(os.environ["FAKE_ASKED"]).open("a") as file:
            file.write(json.dumps({"attach": sys.argv[-1], **request}) + "\n")


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
