"""`sojourn watch` without a browser: the log as it grows, who is answered, what a look at the records says, rights."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from sojourn.errors import MachineError, RequestError
from sojourn.records import RunFolder
from sojourn.records.so_far import NUMBERED
from sojourn.watch.follow import BUILDING, FAILED, FINISHED, MEASURING, WAITING, Follower
from sojourn.watch.giving_way import GivingWay
from sojourn.watch.guard import Guard
from sojourn.watch.look import looked
from sojourn.watch.place import remember, remembered
from sojourn.watch.runs import MOST, MOST_FOLLOWED, UNREAD, Runs
from sojourn.watch.server import MOST_STREAMS, Pages, listen, serve
from tests.children import Child
from tests.net.busy_machine import await_that
from tests.unit.in_process import sojourn
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN, PORT = "k" * 32, 4711
SECOND = 10**9
GOLDEN = Path(__file__).parents[1] / "golden"


def line(second: float, event: str, **fields: Any) -> str:
    return json.dumps({"tai_ns": 1_800 * 10**15 + int(second * SECOND), "event": event, **fields}) + "\n"


def block(second: float, number: int, device: str, p50_ns: float, lost: int = 0) -> str:
    rtt = {"n": 100, "p50_ns": p50_ns, "p90_ns": p50_ns + 10, "p99_ns": p50_ns + 20}
    return line(second, "block", device=device, block=number, sent=100, received=100 - lost, lost=lost, rtt=rtt)


def stream(second: float, trial: int | None, device: str, **fields: Any) -> str:
    sent = [{"sent": 1000, "pacing_error_ns": {"p99": 700}}]
    received = [{"port": 0, "lost": 10, "throughput_bps": 2e8, "delay_ns": {"p50": 5000, "p99": 9000}}]
    told = {
        "block": round(second),
        "sent": sent,
        "received": received,
        "clock": [{"shared": True}],
        "kept": True,
        "trial": trial,
    }
    return line(second, "stream-trial", device=device, **(told | fields))


def test_a_log_is_followed_line_by_line_as_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    follower = Follower(log)
    assert not follower.poll()
    log.write_text(line(0, "started", study="made-up", blocks=10, bed=0, part=0))
    assert follower.poll()
    assert (follower.state, follower.total) == (BUILDING, 10)
    with log.open("a") as file:
        for number in range(4):
            file.write(
                block(1 + number, number, "bridge" if number % 2 else "direct", 1000.0 * (number + 1), lost=number)
            )
        whole = block(5, 4, "direct", 9_000.0)
        file.write(whole[:40])
        file.flush()
        assert follower.poll()
        assert len(follower.done) == 4, "an incomplete line is not read"
        assert follower.left_s() == pytest.approx(6.0)
        file.write(whole[40:])
    assert follower.poll()
    told = follower.told()
    assert (told["state"], told["done"], told["elapsed_s"]) == (MEASURING, 5, 5.0)
    direct = told["paths"]["direct"]
    assert (direct["trials"], direct["sent"], direct["lost"]) == (3, 300, 2)
    assert direct["middle"]["rtt_p50_ns"] == 3000.0
    assert direct["points"]["rtt_p50_ns"] == [(1.0, 1000.0), (3.0, 3000.0), (5.0, 9000.0)]
    assert direct["middle"]["loss"] == 0.0
    with log.open("a") as file:
        file.write(line(6, "contended", sentence="others took 0.7 cores") + line(7, "finished", part=0))
    assert follower.poll()
    assert not follower.poll()
    told = follower.told()
    assert (told["state"], told["left_s"]) == (FINISHED, None)
    assert told["notes"] == [{"at_s": 6.0, "sentence": "others took 0.7 cores"}]
    log.unlink()
    log.write_text(line(0, "started", blocks=3) + line(1, "failed", message="the disk is full") + line(2, "started"))
    follower.poll()
    assert (follower.state, len(follower.done)) == (BUILDING, 0), "a recreated log is read from its start"


def test_replaced_or_truncated_log_is_read_from_its_start(tmp_path: Path) -> None:
    log, again = tmp_path / "log.jsonl", tmp_path / "again"
    follower = Follower(log)
    log.write_text(line(0, "started", study="old", blocks=3) + block(1, 2, "wire", 1.0))
    assert follower.poll()
    was_behind = follower.behind
    assert not was_behind
    log.write_text(line(9, "started", study="new", blocks=7) + block(10, 0, "wire", 1.0) + block(11, 1, "wire", 1.0))
    assert follower.behind
    assert follower.poll()
    assert (follower.study, follower.done) == ("new", {0, 1}), "same number, more bytes"
    again.write_text(line(20, "started", study="later", blocks=7))
    again.replace(log)
    assert follower.behind, "another file, fewer bytes"
    assert follower.poll()
    assert (follower.study, follower.state, follower.done) == ("later", BUILDING, set())
    log.write_bytes(b"")
    assert follower.behind
    assert follower.poll(), "removal of the old log is reported"
    assert (follower.study, follower.state, follower.behind) == ("", WAITING, False)


def test_endless_line_takes_no_memory_and_later_ones_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sojourn.watch.follow.MOST_BYTES", 1000)
    log = tmp_path / "log.jsonl"
    log.write_text(line(0, "started", study="bridge-latency", blocks=3))
    follower = Follower(log)
    for _ in range(20):
        with log.open("a") as file:
            file.write("x" * 700)
        follower.poll()
        assert len(follower._rest) <= 1000
    with log.open("a") as file:
        file.write("\n" + block(1, 0, "direct", 2000) + '{"ev')
    while follower.behind:
        follower.poll()
    assert (follower.told()["done"], follower.study) == (1, "bridge-latency")
    with log.open("a") as file:
        file.write('ent"}\n' + block(2, 1, "direct", 2000))
    follower.poll()
    assert follower.told()["done"] == 2


def test_run_recreated_under_its_name_is_listed_anew(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "same")
    folder.records.mkdir(parents=True)
    folder.plan.write_text("")
    folder.log.write_text(line(0, "started", study="old", blocks=3) + block(1, 2, "wire", 1.0))
    runs = Runs(tmp_path)
    assert [(one["study"], one["done"]) for one in runs.told()] == [("old", 1)]
    (tmp_path / "draft").write_text(line(5, "started", study="new", blocks=9))
    (tmp_path / "draft").replace(folder.log)
    assert [(one["study"], one["state"], one["done"]) for one in runs.told()] == [("new", BUILDING, 0)]


def test_stream_lines_show_loss_rate_and_delay_of_counted_trials(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    apart = [{"shared": False, "lines": []}]
    log.write_text(
        line(0, "started", blocks=9) + line(0, "bed", backend="sim")
        + stream(1, None, "direct") + stream(2, 0, "direct") + stream(3, 1, "direct", kept=False)
        + stream(4, 2, "bridge", clock=apart) + line(5, "failed", message="no")
    )  # fmt: skip
    follower = Follower(log)
    follower.poll()
    told = follower.told()
    assert (told["done"], told["state"], told["sentence"], follower.simulated) == (2, FAILED, "no", True)
    assert told["paths"]["direct"]["middle"] == {
        "loss": 0.01, "throughput_bps": 2e8, "pacing_p99_ns": 700.0, "delay_p50_ns": 5000.0, "delay_p99_ns": 9000.0,
    }  # fmt: skip
    assert "delay_p50_ns" not in told["paths"]["bridge"]["middle"], (
        "of two clocks a single delay has their offset in it"
    )
    assert told["joined"]


def test_trials_that_log_no_result_count_when_their_batch_is_closed(tmp_path: Path) -> None:
    """So slices of `tcplog-cost` are logged; batches are closed some time after their last trial."""
    log = tmp_path / "log.jsonl"
    slices = [line(10 + 2 * one, "begun", part=0, trial=one) for one in range(4)]
    log.write_text(line(0, "started", study="tcplog-cost", blocks=8, bed=0, part=0) + "".join(slices))
    follower = Follower(log)
    follower.poll()
    assert (follower.state, follower.done, follower.left_s()) == (MEASURING, set(), None)
    with log.open("a") as file:
        file.write(line(20, "closed", part=0, trials=[0, 1, 2, 3]))
    follower.poll()
    assert (follower.done, follower.so_far.done) == ({0, 1, 2, 3}, {0, 1, 2, 3})
    assert follower.left_s() == pytest.approx(10.0), "four trials took 10 s since the first began"
    with log.open("a") as file:
        file.write(line(21, "closed", part=0, trials=[3, "4", None, -1]) + line(22, "closed", part=0, trials="567"))
    follower.poll()
    assert (follower.done, follower.so_far.done) == ({0, 1, 2, 3}, {0, 1, 2, 3})


@pytest.mark.parametrize("name", ["bridge-latency-real", "rrul", "short-flows"])
def test_closed_trials_of_a_real_log_are_those_that_ended_in_it(name: str, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extract(f"{name}/log.jsonl", tmp_path, filter="data")
    whole, closed = tmp_path / name / "log.jsonl", tmp_path / "closed.jsonl"
    lines = whole.read_text().splitlines(keepends=True)
    closed.write_text("".join(one for one in lines if json.loads(one)["event"] not in NUMBERED))
    found = []
    for log in (whole, closed):
        follower = Follower(log)
        while follower.poll():
            pass
        assert (follower.state, follower.so_far.done) == (FINISHED, follower.done)
        found.append(follower.done)
    assert len(found[0]) > 0
    assert found[0] == found[1]


KEYS = ["sent", "received", "lost", "rtt", "p50_ns", "clock", "trial", "device", "middle"]
EVENTS = ["started", "block", "stream-trial", "search-result", "begun", "closed", "failed", "bed"]


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=8,
), st.sampled_from(EVENTS))  # fmt: skip
def test_malformed_line_does_not_stop_reading(value: Any, event: str) -> None:
    fields = (
        value
        if isinstance(value, dict)
        else dict.fromkeys(["block", "trial", "trials", "sent", "device", "blocks"], value)
    )
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        strange = json.dumps({"tai_ns": value, **fields, "event": event}) + "\n"
        log.write_text("no JSON\n[1]\n" + strange + block(1, 3, "wire", 77.0))
        follower = Follower(log)
        follower.poll()
        told = follower.told()
    assert 3 in follower.done
    assert told["paths"]["wire"]["middle"]["rtt_p50_ns"] == 77.0
    json.dumps(told, allow_nan=False)


def asked(path: str, host: str | None = f"127.0.0.1:{PORT}", method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Status, headers and text of what the guard lets through, or does not."""
    said: list[Any] = []

    async def pages(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse(f"inside {scope['path']}")(scope, receive, send)

    async def send(message: Any) -> None:
        said.append(message)

    headers = [] if host is None else [(b"host", host.encode())]
    scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}
    asyncio.run(Guard(pages, TOKEN, PORT)(scope, None, send))  # type: ignore[arg-type]
    known = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], known, said[1]["body"].decode()


def test_request_with_token_and_local_host_name_is_answered() -> None:
    status, headers, text = asked(f"/{TOKEN}/run/events")
    assert (status, text) == (200, "inside /run/events")
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert asked(f"/{TOKEN}/", f"LOCALHOST:{PORT}")[0] == 200
    assert asked(f"/{TOKEN}")[0] == 307


@pytest.mark.parametrize(
    ("path", "host", "method", "status"),
    [
        ("/", f"127.0.0.1:{PORT}", "GET", 404),
        (f"/{TOKEN[:-1]}/", f"127.0.0.1:{PORT}", "GET", 404),
        (f"/{TOKEN}x/", f"127.0.0.1:{PORT}", "GET", 404),
        ("/\udcff/", f"127.0.0.1:{PORT}", "GET", 404),
        (f"/{TOKEN}/", f"rebound.example:{PORT}", "GET", 421),
        (f"/{TOKEN}/", "127.0.0.1:80", "GET", 421),
        (f"/{TOKEN}/", None, "GET", 421),
        (f"/{TOKEN}/", f"127.0.0.1:{PORT}", "POST", 405),
    ],
)  # fmt: skip
def test_other_requests_are_refused(path: str, host: str | None, method: str, status: int) -> None:
    found, _, text = asked(path, host, method)
    assert found == status
    assert "inside" not in text


def test_port_is_reused_and_specific_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pwd.getpwuid", lambda _: type("Home", (), {"pw_dir": str(tmp_path)}))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert remembered(tmp_path) == 0
    remember(tmp_path, 4712)
    assert remembered(tmp_path) == 4712
    assert remembered(tmp_path / "other") == 0
    (file,) = (tmp_path / ".local/state/sojourn/watch").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {"port": 4712}, "no token is written down"
    file.chmod(0o622)
    assert remembered(tmp_path) == 0, "another user who may write it could choose the port"


def test_port_is_written_to_a_new_file_that_nobody_can_have_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    remember(tmp_path, 4712)
    (file,) = (tmp_path / "sojourn/watch").iterdir()
    opened = file.with_name(f".{file.name}.{os.getpid()}")
    opened.write_text("theirs")
    remember(tmp_path, 4713)
    assert remembered(tmp_path) == 4713
    assert opened.read_text() == "theirs"


def test_port_in_use_is_refused_if_requested_and_skipped_otherwise() -> None:
    with listen(0, 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match=rf"port {port} of 127.0.0.1 cannot be had: it is taken"):
            listen(port, 0)
        with listen(0, port) as other:
            assert other.getsockname()[1] not in (0, port)
    with listen(0, port) as again:
        assert again.getsockname() == ("127.0.0.1", port)


def test_path_that_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not there: expected a run folder, or a folder that holds some"):
        serve(tmp_path / "nothing", 0, looks=False, say=print)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of `bridge-latency` on the simulated bed, in a folder of runs."""
    out = tmp_path_factory.mktemp("runs") / "short"
    sets = ["pairs.rounds=8", "pairs.probes_per_block=24", "probe.icmp_bytes=[64, 1480]"]
    done = sojourn("run", "bridge-latency", "--quick", "--bed", "sim", "--no-history", "--no-report",
                   *(word for one in sets for word in ("--set", one)), "--out", str(out))  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


def test_interim_page_agrees_with_the_report_and_shows_unfinished_runs(run: Path, tmp_path: Path) -> None:
    told = looked(run)
    verdict = json.loads((run / "analysis/verdict.json").read_text())
    assert (told["final"], told["verdict"], told["sentence"]) == (True, verdict["verdict"], verdict["sentence"])
    assert {one["done"] == one["planned"] > 0 for one in told["cells"]} == {True}
    results = json.loads((run / "analysis/results.json").read_text())
    added = [row for row in told["figures"] if (row["device"], row["quantity"]) == ("bridge", "device_latency")]
    expected = [row for row in results if (row["device"], row["quantity"], row["statistic"], row["reference"])
                == ("bridge", "device_latency", "mean", "direct") and row["cell"] is not None]  # fmt: skip
    assert [row["ci_low"] for row in added if row["reference"] == "direct"] == [row["ci_low"] for row in expected]
    places = {(row["cell"], row["device"]) for row in told["figures"]}
    assert {(one["cell"], one["device"]) for one in told["cells"]} == places, "each row of the table has figures"
    half = cut_short(run, tmp_path / "half")
    before = {path: path.stat().st_mtime_ns for path in half.rglob("*")}
    told = looked(half)
    assert {path: path.stat().st_mtime_ns for path in half.rglob("*")} == before, "it writes nothing"
    assert not told["final"]
    assert 0 < sum(one["done"] for one in told["cells"]) < sum(one["planned"] for one in told["cells"])
    assert not {one["name"] for one in told["findings"]} & {"truncated_record", "incomplete"}
    assert any(row["ci_low"] is not None for row in told["figures"]), "its figures have intervals already"
    with (half / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(line(10**6, "failed", message="the disk is full"))
    assert "incomplete" in {one["name"] for one in looked(half)["findings"]}, "it does not go on"
    with (half / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(line(10**6 + 1, "started", study="bridge-latency", blocks=99))
    assert "incomplete" not in {one["name"] for one in looked(half)["findings"]}, "somebody has resumed it"


def cut_short(run: Path, into: Path) -> Path:
    """What the folder of a run holds when all of its beds but the last were measured."""
    (into / "records").mkdir(parents=True)
    for name in ("plan.toml", "bed.json"):
        (into / name).write_bytes((run / name).read_bytes())
    log = (run / "log.jsonl").read_text().splitlines(keepends=True)
    last = max(place for place, one in enumerate(log) if '"event": "started"' in one)
    (into / "log.jsonl").write_text("".join(log[:last]))
    part = json.loads(log[last])["part"]
    for file in (run / "records").iterdir():
        if not file.name.endswith(f"-{part:03}.arrow"):
            (into / "records" / file.name).write_bytes(file.read_bytes())
    return into


def test_folder_of_runs_lists_each_and_follows_no_symbolic_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to(run)
    (tmp_path / "empty").mkdir()
    assert Runs(tmp_path).told() == []
    (told,) = Runs(run.parent).told()
    assert (told["name"], told["state"], told["study"]) == ("short", FINISHED, "bridge-latency")
    assert told["done"] == told["total"] > 0
    assert told["verdict"] == json.loads(RunFolder(run).verdict.read_text())["verdict"]


def test_the_latest_runs_are_listed_if_there_are_too_many(tmp_path: Path) -> None:
    for number in range(MOST + 2):
        folder = RunFolder(tmp_path / f"r{number:03}")
        folder.records.mkdir(parents=True)
        folder.plan.touch()
        folder.log.touch()
        os.utime(folder.log, (1_000 - number,) * 2)
    assert Runs(tmp_path).names() == [f"r{number:03}" for number in range(MOST)]
    assert len(Runs(tmp_path).told()) == MOST


async def streams_opened(app: Any, several: int) -> list[int]:
    """The statuses of streams that are opened at once, of one when they are open, and of one when they have ended."""
    over = asyncio.Event()

    async def opened(status: asyncio.Future[int]) -> None:
        is_asked = False

        async def receive() -> Any:
            nonlocal is_asked
            if is_asked:
                await over.wait()
                return {"type": "http.disconnect"}
            is_asked = True
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                status.set_result(message["status"])

        headers: list[Any] = []
        await app({"type": "http", "method": "GET", "path": "/events", "headers": headers}, receive, send)

    async def wait_for(several: int) -> list[int]:
        statuses = [asyncio.get_running_loop().create_future() for _ in range(several)]
        tasks.extend(asyncio.create_task(opened(one)) for one in statuses)
        return [await one for one in statuses]

    tasks: list[asyncio.Task[None]] = []
    found = await wait_for(several) + await wait_for(1)
    over.set()
    await asyncio.gather(*tasks)
    over.clear()
    found += await wait_for(1)
    over.set()
    await asyncio.gather(*tasks)
    return found


def test_streams_above_the_limit_are_refused_until_others_have_ended(tmp_path: Path) -> None:
    found = asyncio.run(streams_opened(Pages(tmp_path, None).app(), MOST_STREAMS + 3))
    assert found == [200] * MOST_STREAMS + [503] * 3 + [503] + [200]


def test_only_new_lines_of_a_growing_log_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MOST_FOLLOWED + 1):
        folder = RunFolder(tmp_path / f"r{number:02}")
        folder.records.mkdir(parents=True)
        folder.plan.write_text("")
        folder.log.write_text(line(0, "started", study="made-up", blocks=9) + block(1, 0, "wire", 1.0))
        os.utime(folder.log, (1_000 + number, 1_000 + number))
    runs = Runs(tmp_path)
    assert {one["done"] for one in runs.told()} == {1}
    taken: list[bytes] = []
    take = Follower._take

    def noted(follower: Follower, said: bytes) -> None:
        taken.append(said)
        take(follower, said)

    monkeypatch.setattr(Follower, "_take", noted)
    runs.told()
    assert taken == [], "nothing has changed"
    with RunFolder(tmp_path / "r01").log.open("a") as log:
        log.write(block(2, 1, "wire", 1.0))
    assert next(one for one in runs.told() if one["name"] == "r01")["done"] == 2
    assert len(taken) == 1
    with RunFolder(tmp_path / "r01").log.open("a") as log:
        log.write(line(3, "finished"))
    assert next(one for one in runs.told() if one["name"] == "r01")["state"] == FINISHED
    assert (len(taken), len(runs._followed)) == (2, MOST_FOLLOWED - 1), "an ended run is not followed any longer"


def test_list_is_shown_before_all_logs_are_read_and_is_complete_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes a second, and a read eight lines' worth: logs come one after the other."""
    monkeypatch.setattr("sojourn.watch.follow.MOST_BYTES", 2048)
    for number in range(MOST_FOLLOWED + 4):
        folder = RunFolder(tmp_path / f"r{number:02}")
        folder.records.mkdir(parents=True)
        folder.plan.write_text("")
        begun = line(0, "started", study="made-up", blocks=20, bed=0, part=0)
        folder.log.write_text(begun + "".join(block(at, at, "wire", 1.0) for at in range(20)) + line(30, "finished"))
    runs, seconds = Runs(tmp_path), iter(range(10**6))
    monkeypatch.setattr("sojourn.watch.runs.time.monotonic", lambda: float(next(seconds)))
    unread = [sum(one["state"] == UNREAD for one in runs.told(4.0)) for _ in range(60)]
    assert unread[0] >= MOST_FOLLOWED
    assert unread == sorted(unread, reverse=True)
    assert unread[-1] == 0
    assert {(one["done"], one["state"]) for one in runs.told()} == {(20, FINISHED)}
    assert not runs._followed


@contextmanager
def served(folder: Path, home: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address that a server prints, and the server."""
    argv = [sys.executable, "-c", "from sojourn.cli import main; main()", "watch", str(folder), *options]
    own = {**os.environ, "XDG_STATE_HOME": str(home)}
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline().strip()
            address = printed("watch", line)["address"] if "--json" in options else line
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address), process.communicate()
            yield address, process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()


def first_event(address: str) -> dict[str, Any]:
    """What a page gets first."""
    with urllib.request.urlopen(f"{address}events", timeout=30) as events:
        while not (words := events.readline().decode()).startswith("data: "):
            assert words
        told: dict[str, Any] = json.loads(words.removeprefix("data: "))
        return told


def test_folder_without_runs_is_reported_and_shows_a_run_once_started(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    with served(folder.path, tmp_path / "state", "--no-looks") as (address, _):
        assert first_event(address) == {"runs": [], "begun": False, "unread": 0}
        with urllib.request.urlopen(address, timeout=30) as page:
            assert "There is no run in this folder so far" in page.read().decode()
        folder.records.mkdir()
        folder.plan.write_text("")
        assert first_event(address)["state"] == WAITING == "not begun"
        folder.log.write_text(line(0, "started", study="made-up", blocks=9))
        assert first_event(address)["state"] == BUILDING


def test_server_can_read_only_necessary_files_in_etc(run: Path, tmp_path: Path) -> None:
    """Under sudo it could read all of it: a private key of the machine, the passwords."""
    secret, here = Path("/etc/sojourn-test-secret"), tmp_path / "here"
    here.mkdir()
    secret = secret if os.geteuid() == 0 else Path("/etc/hostname")
    if os.geteuid() == 0:
        secret.write_text("secret", encoding="utf-8")
        secret.chmod(0o600)
    try:
        said = confined(
            f"open({str(secret)!r}).read()", "open('/etc/shadow').read()", "__import__('time').localtime()",
            "__import__('hashlib').sha256(b'x').hexdigest()", "__import__('pyarrow').array([1])",
            f"open({str(run / 'plan.toml')!r}).read()", readable=run,
        )  # fmt: skip
    finally:
        if os.geteuid() == 0:
            secret.unlink()
    assert said == ["PermissionError", "PermissionError", "done", "done", "done", "done"]


def confined(*tried: str, readable: Path) -> list[str]:
    """What becomes of each expression in a program that has given up its rights."""
    program = f"""
from pathlib import Path
from sojourn.confine import only_read
if only_read([Path({str(readable)!r})]) is not None:
    print("no landlock")
for one in {tried!r}:
    try:
        eval(one)
        print("done")
    except Exception as error:
        print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said = done.stdout.split("\n")[:-1]
    if said[0] == "no landlock":
        pytest.skip("this kernel has no Landlock")
    return said


def opened(address: str, **headers: str) -> int:
    """The status of what is answered."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return refusal.code


def test_server_gives_up_its_capabilities_and_ends_orderly(run: Path, tmp_path: Path) -> None:
    with served(run.parent, tmp_path, "--no-looks") as (address, process):
        lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
        status = {name: words.split() for name, _, words in (one.partition(":") for one in lines)}
        assert status["NoNewPrivs"] == ["1"]
        if os.geteuid() == 0:
            assert status["Uid"] == ["65534"] * 4
            assert {int(status[name][0], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {1 << 2}
        assert opened(address) == opened(f"{address}short/") == 200
        assert opened(f"{address}away/") == opened(f"{address}..%2Fshort/") == opened(f"{address}short/x") == 404
        assert opened(address, Host="rebound.example") == 421
        with urllib.request.urlopen(f"{address}short/events", timeout=30) as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            while not (words := events.readline().decode()).startswith("data: "):
                assert words
            told = json.loads(words.removeprefix("data: "))
            assert (told["state"], told["done"]) == (FINISHED, told["total"])
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert time.monotonic() - began < 15, "an open page does not keep it"


def test_restarted_server_keeps_its_port_with_a_new_token(run: Path, tmp_path: Path) -> None:
    with served(run.parent, tmp_path, "--no-looks", "--json") as (before, _):
        assert opened(before) == 200
    with served(run.parent, tmp_path, "--no-looks") as (address, _):
        port, token = address.rstrip("/").rpartition("/")[::2]
        assert before.startswith(f"{port}/"), "a tunnel to it stays right"
        assert opened(before) == 404, "an open page may have sent the old token to another user of the port"
        assert opened(address) == 200
        kept = [file.read_text() for file in tmp_path.rglob("*.json")]
        assert len(kept) == 1
        assert token not in kept[0]


def going_on(run: Path, into: Path) -> Path:
    """A run of which a bed is to go, on links that can be disturbed."""
    half = cut_short(run, into)
    log = half / "log.jsonl"
    log.write_text(log.read_text().replace('"backend": "sim"', '"backend": "netns"'), encoding="utf-8")
    return half


def test_looks_at_a_run_in_progress_have_a_session_of_the_lowest_weight(run: Path, tmp_path: Path) -> None:
    half = going_on(run, tmp_path / "half")
    with served(half, tmp_path) as (address, process):
        assert first_event(address)["state"] == MEASURING
        [starter] = children(process.pid)
        await_that(lambda: weight(starter) in {"nice 19", ""}, "what starts looks lowers the weight of its session")
        assert os.getsid(starter) == starter != os.getsid(process.pid), "Ctrl-C ends the server alone, and that ends it"
        if weight(process.pid):
            assert autogroup(process.pid) == autogroup(os.getpid()) != autogroup(starter), "others keep their weight"
        look = look_of(starter)
        await_that(lambda: os.sched_getscheduler(look) == os.SCHED_IDLE, "it gives way in its own session, too")
        assert autogroup(look) == autogroup(starter)
        await_that(lambda: bool(first_event(address)["look"].get("cells")), "the page has its figures")
        told = first_event(address)["look"]
        expected = json.loads(json.dumps(looked(half)))
        assert {name: told[name] for name in expected} == expected
        if os.geteuid() == 0:
            status = Path(f"/proc/{starter}/status").read_text(encoding="utf-8")
            rights = re.findall(r"^(?:NoNewPrivs|CapEff|Uid):\s+(\S+)", status, re.MULTILINE)
            assert rights == ["65534", f"{1 << 2:016x}", "1"], "it has given up what the server has"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0
        await_that(lambda: not is_there(starter), "it ends with the server")


def test_a_killed_server_ends_the_look_under_way(run: Path, tmp_path: Path) -> None:
    with served(going_on(run, tmp_path / "half"), tmp_path) as (address, process):
        assert first_event(address)["state"] == MEASURING
        [starter] = children(process.pid)
        look = look_of(starter)
        os.kill(look, signal.SIGSTOP)
        process.kill()
        await_that(lambda: not is_there(starter) and not is_there(look), "neither stays")


def test_the_next_look_follows_one_whose_program_was_killed(run: Path, tmp_path: Path) -> None:
    half, others = going_on(run, tmp_path / "half"), children(os.getpid())

    async def answers() -> list[bytes]:
        giving_way = GivingWay(half)
        [starter] = own_children(others)
        os.kill(starter, signal.SIGKILL)
        try:
            return [await giving_way.looked(half), await giving_way.looked(half)]
        finally:
            giving_way.close()

    lost, found = asyncio.run(answers())
    assert lost == b""
    assert json.loads(found)["cells"]
    await_that(lambda: not any(map(is_there, own_children(others))), "it ends with the server")


def test_the_next_look_follows_one_that_is_too_long(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raised an error of its own, and its rest was taken for the next look's."""
    half, others = going_on(run, tmp_path / "half"), children(os.getpid())

    async def answers() -> list[bytes]:
        giving_way = GivingWay(half)
        try:
            with monkeypatch.context() as patch:
                patch.setattr("sojourn.watch.giving_way.MOST_BYTES", 64)
                too_long = await giving_way.looked(half)
            return [too_long, await giving_way.looked(half)]
        finally:
            giving_way.close()

    lost, found = asyncio.run(answers())
    assert lost == b""
    assert len(found) > 2 * 64
    assert json.loads(found)["cells"]
    await_that(lambda: not any(map(is_there, own_children(others))), "it ends with the server")


def own_children(others: list[int]) -> list[int]:
    """This process's children, without those that earlier tests left to it."""
    return [one for one in children(os.getpid()) if one not in others]


def look_of(starter: int) -> int:
    """The look that a program starts, once it is there."""
    await_that(lambda: bool(children(starter)), "a look begins")
    [look] = children(starter)
    command = Path(f"/proc/{look}/cmdline")
    # Until then who started it waits in vfork, and stays there if it is stopped.
    await_that(lambda: b"sojourn.watch.look" in command.read_bytes(), "it is executed")
    return look


def is_there(pid: int) -> bool:
    """Whether a process runs, or could again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def autogroup(pid: int) -> str:
    """The kernel's name of the session that a process is weighed with, and its weight; empty without such a feature."""
    file = Path(f"/proc/{pid}/autogroup")
    return file.read_text(encoding="ascii").strip() if file.exists() else ""


def weight(pid: int) -> str:
    return autogroup(pid).partition(" ")[2]
