"""Readers of Sojourn's own files and of its own programs' answers: of another version, cut by a kill, or replaced."""

from __future__ import annotations

import io
import json
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console

from sojourn.bed import held
from sojourn.cli import tcplog_top
from sojourn.conduct import until
from sojourn.errors import MachineError
from sojourn.history.entry import Entry, Figure
from sojourn.history.store import History
from sojourn.instruments import emulator, matching
from sojourn.methods.emulator.analyse.pipe import Pipe
from sojourn.methods.emulator.analyse.seen import first_pipes
from sojourn.plan.load import load_plan
from sojourn.watch import place
from sojourn.watch.follow import Follower
from sojourn.watch.guard import Guard
from sojourn.watch.runs import Runs
from tests.fuzz.chosen import Reader

_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class _Held(held.Held):
    """What a journal is of."""

    journal, what = "journal", "the frequency"


def _journal(octets: bytes) -> None:
    """Give back what a dead run held, as its journal says; nothing is written."""

    def checked(found: dict[str, str]) -> list[str]:
        assert {type(one) for one in (*found, *found.values())} <= {str}
        return []

    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        (Path(folder) / _Held.journal).write_bytes(octets)
        with (
            patch.object(held, "state_folder", lambda: Path(folder)),
            patch.object(held, "boot_id", lambda: "b"),
            patch.object(held, "pid_namespace", lambda: "p"),
            patch.object(held, "_give_back", checked),
        ):
            given_back, stays = held.recovered(_Held)
            assert len(given_back) + len(stays) <= 1


def _history(octets: bytes) -> None:
    """Read a history, and add a run to it."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        file = History(Path(folder) / "history.sqlite")
        file.path.write_bytes(octets)
        assert all(isinstance(entry, Entry) for entry in file.read())
        file.append(ENTRY)


def _log(octets: bytes) -> None:
    """Follow the log of a run: all at once, and in two parts; list the run with a verdict of the same bytes."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        run = Path(folder) / "run"
        (run / "records").mkdir(parents=True)
        (run / "analysis").mkdir()
        (run / "plan.toml").touch()
        log = run / "log.jsonl"
        follower = Follower(log)
        for part in (octets[: len(octets) // 2], octets):
            log.write_bytes(part)
            follower.poll()
            json.dumps(follower.told())
        (run / "analysis/verdict.json").write_bytes(octets)
        [line] = Runs(Path(folder)).told()
        json.dumps(line)
        Runs(Path(folder)).standing()


def _asked(octets: bytes) -> None:
    """Refuse requests without the token: method, path, and headers, each on a line."""
    method, path, *lines = [*octets.split(b"\n"), b""][: 1 << 10]
    headers = [tuple(line.partition(b": ")[::2]) for line in lines]
    scope: dict[str, Any] = {
        "type": "http", "method": method.decode("latin-1"), "path": path.decode(errors="replace"), "headers": headers,
    }  # fmt: skip
    refused = Guard(None, "token", 80)._refusal(scope)  # type: ignore[arg-type]
    is_of_token = scope["path"].lstrip("/").startswith("token")
    assert refused is not None or (is_of_token and scope["method"] in {"GET", "HEAD"})


def _looked(octets: bytes) -> None:
    """Show what the look at a run's records says."""

    class Ended:
        stdout, stderr, returncode = octets, octets, 0

    class Run:
        path = Path("run")

    with patch.object(subprocess, "run", lambda *_, **__: Ended()):
        told = until.look(Run())  # type: ignore[arg-type]
    assert until.forecast(told, _plan(), 2, 60.0, 100.0)


@cache
def _plan() -> Any:
    return load_plan("bridge-latency", sets=['study.until="1us"', 'study.budget="1h"'])


def _watched(octets: bytes) -> None:
    """Draw the lines of `tcplog watch`."""

    class Watch:
        stdout = io.StringIO(octets.decode(errors="replace"))

    console = Console(file=io.StringIO(), width=100)
    for told in tcplog_top.lines_of(Watch()):  # type: ignore[arg-type]
        console.print(tcplog_top.View().draw(told, console))


def _explained(octets: bytes) -> None:
    """Read what our instrument says of options and of taps."""

    class Done:
        stdout, stderr, returncode = octets.decode(errors="replace"), "", 0

    with patch.object(subprocess, "run", lambda *_, **__: Done()):
        assert isinstance(emulator.explain("instrument", []), dict)
    with patch.object(matching, "_run", lambda *_: Done()):
        assert isinstance(matching.terms([], {}, []), dict)


def _answered(octets: bytes) -> None:
    """Read the answer of a running emulator, and whether its log has ended."""

    class Running(emulator.EmulatorInstrument):
        def __init__(self) -> None:
            self._unread = bytearray()
            self._said = self  # type: ignore[assignment]

        def cut(self) -> None: ...

        def _connected(self) -> Any:
            return self

        def sendall(self, _: bytes) -> None: ...

        def fileno(self) -> int:
            return 0

        def _error(self, status: int, message: str) -> Any:
            return MachineError(f"{status}: {message}"[:200])

    with patch.object(emulator, "line_of", lambda *_: octets):
        running = Running()
        running.require_log(running.show())


def _port(octets: bytes) -> None:
    """Read the remembered port of a watched folder."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        file = Path(folder) / "port.json"
        file.write_bytes(octets)
        file.chmod(0o600)
        with patch.object(place, "_file", lambda _: file):
            assert 0 <= place.remembered(Path(folder)) < 1 << 16


def _emulation(octets: bytes) -> None:
    """Read the pipes that an emulator began with, from the first line of its log, and evaluate what checks read."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        path = Path(folder) / "emulation-000.jsonl"
        path.write_bytes(octets)
        pipes = [Pipe(told) for told in first_pipes(path)]
    for pipe in pipes:
        assert pipe.describe()
        assert pipe.keeps_order in {True, False}
        assert isinstance(pipe.scheduler.name, str)
        assert 0 <= pipe.delay_cdf(np.zeros(1))[0] <= 1
        assert pipe.is_plain_link in {True, False}
        assert pipe.bits(np.array([64]))[0] >= 0
        for stage in ("before", "after"):
            with suppress(ValueError):  # no chain has such probabilities
                pipe.chain(stage, 1e6)
            pipe.corruption(stage)
            pipe.periodic(stage)


FIGURE = Figure(
    quantity="device_latency", statistic="mean", device="bridge", reference="direct", factors="{}", estimate=1300.0,
    ci_low=1290.0, ci_high=1310.0, level=0.95, unit="ns", n=20, sessions=2, headline=True,
)  # fmt: skip
ENTRY = Entry(
    study="toy", run="one", began_ns=5, verdict="trusted", bed="a1", boot="b", kernel="6.1", version="0.3.0",
    simulated=False, figures=(FIGURE,),
)  # fmt: skip


@cache
def _database() -> bytes:
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        file = History(Path(folder) / "history.sqlite")
        file.append(ENTRY)
        return file.path.read_bytes()


JOURNAL = (
    b'{"boot":"b","pids":"p","pid":4194304,"started_ticks":5,'
    b'"found":{"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":"powersave"}}\n'
)
LOG = (
    b'{"event":"started","tai_ns":1000000000,"study":"toy","blocks":4,"bed":0}\n'
    b'{"event":"bed","tai_ns":2000000000,"backend":"netns"}\n{"event":"begun","tai_ns":2100000000,"block":0}\n'
    b'{"event":"block","tai_ns":3000000000,"block":0,"device":"bridge","sent":40,"lost":1,"rtt":{"p50_ns":21000,"p99_ns":40000}}\n'
    b'{"event":"stream-trial","tai_ns":4000000000,"block":1,"device":"bridge"}\n{"event":"finished","tai_ns":5000000000}\n'
)
LOOK = b'{"sentence":"1.3 us, of 1.2 to 1.4","enough":false,"needed":9,"half_width":0.1}'
WATCHED = (
    b'{"time_ns":5,"flows":[{"flow":1,"local_address":"10.0.0.1","local_port":5201,"remote_address":"10.0.0.2",'
    b'"remote_port":40000,"algorithm":"cubic","state":1,"snd_cwnd":10,"srtt_us":200,"in":{"seen":4},"out":{"seen":9}}]}\n'
)
EMULATION = (
    b'{"event":"start","config":{"pipes":[{"name":"forward","before":{"loss":[{"gilbert-elliott":{"p":0.01,"r":0.1,'
    b'"h":0.0,"k":1.0}}],"duplication":null,"corruption":{"bit-error-rate":1e-6}},"link":{"rate_bps":10000000,"overhead_bytes":0,'
    b'"cell":{"bytes":53,"overhead_bytes":5}},"delay":{"constant":20000000,"jitter":{"normal":{"sd":1000000}},"half_life":5000,'
    b'"order":"kept","reorder":{"probability":0.1,"gap":2}},"queue":{"limit":{"bytes":null,"slots":50},"scheduler":"fifo",'
    b'"drop":"tail","classes":[{"name":"a","weight":3}]},"after":{"loss":[{"every":{"every":50,"first":1}}]}}]}}\n'
)
READERS = (
    Reader(_journal, (JOURNAL,)),
    Reader(_history, ()),
    Reader(_log, (LOG,)),
    Reader(_asked, (b"GET\n/token/runs\nhost: 127.0.0.1:80\naccept: */*", b"POST\n/other\nhost: a.example")),
    Reader(_looked, (LOOK, b'{"problem":"no records"}')),
    Reader(_watched, (WATCHED,)),
    Reader(_explained, (b'{"config":{"pipes":[]},"pipes":[{"name":"both","words":"delay 2ms"}]}',)),
    Reader(_answered, (b'{"ok":true,"report":{"log":{"stopped":null}}}',)),
    Reader(_port, (b'{"port": 8123}',)),
    Reader(_emulation, (EMULATION,)),
)
HISTORY = 1
"""The place of the history among the readers; its example is a whole SQLite file."""


def examples() -> list[bytes]:
    """Return the history's example: a database is too long to be written here."""
    return [bytes([HISTORY]) + _database()]
