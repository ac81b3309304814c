"""The live table of flows: what it says of each, what a narrow terminal leaves out, and how it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import sojourn
from sojourn.cli import flows
from sojourn.cli.tcplog_top import View
from sojourn.errors import RequestError

MAIN = "import sys; from sojourn.cli import main; sys.argv[0] = 'sojourn'; main()"
PACKAGE = Path(sojourn.__file__).parent.parent
PATIENCE_SECONDS = 30


def told(*changes: dict[str, Any]) -> dict[str, Any]:
    """A line as `tcplog watch` writes it."""
    found = []
    for number, change in enumerate(changes, start=1):
        sample = {
            "state": 1,
            "snd_cwnd": 42,
            "snd_ssthresh": flows.INFINITE,
            "srtt_us": 20_125.0,
            "rtt_min_us": 19_800,
            "in_flight_bytes": 14_480,
            "delivery_rate_bps": 93.4e6,
            "total_retrans": 0,
            "mss_bytes": 1448,
            "packets_out": 7,
        }
        flow = {
            "flow": number,
            "local_address": "10.0.0.1",
            "local_port": 40_000 + number,
            "remote_address": "10.0.0.2",
            "remote_port": 5201,
            "command": "iperf3",
            "algorithm": "cubic",
            "ended": False,
            "wanted": True,
            "packets_in": 100 * number,
            "packets_out": 1000 * number,
            "skipped": 0,
            "sample": sample,
        }
        own = {name: value for name, value in change.items() if name not in sample}
        sample |= {name: value for name, value in change.items() if name in sample}
        found.append(flow | own)
    return {"event": "flows", "time_ns": 1, "flows": found}  # fmt: skip


def drawn(line: dict[str, Any], width: int = 200, **view: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(View(**view).draw(line, console))
    assert isinstance(console.file, io.StringIO)
    return [text.rstrip() for text in console.file.getvalue().splitlines()]


def test_a_wide_terminal_shows_everything() -> None:
    title, heads, row, units = drawn(told({}))
    assert title == "1 flow"
    assert " ".join(heads.split()) == (
        "flow local remote command state cc cwnd ssthr flight srtt min rate retr in out▾ skip"
    )
    assert " ".join(row.split()) == (
        "1 10.0.0.1:40001 10.0.0.2:5201 iperf3 ESTAB cubic 42 ∞ 14.5k 20.1ms 19.8ms 93.4M 0 100 1000 0"
    )
    assert "segments" in units


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132])
@pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8:ffff:ffff:ffff:ffff:ffff:1"])
def test_narrow_terminal_shows_the_most_important_columns(width: int, address: str) -> None:
    lines = drawn(told({"local_address": address}, {}), width=width)
    assert max(map(len, lines)) <= width
    heads = lines[1].split()
    assert {"local", "remote"} <= set(heads)
    if width >= 80:
        assert {"cwnd", "srtt", "retr"} <= set(heads)
    assert len(lines[2:4]) == 2


def test_columns_unknown_for_all_flows_are_omitted() -> None:
    """Without a log flows have no numbers; sockets older than the watching have no command."""
    unknown: dict[str, Any] = {"flow": 0, "command": None}
    assert drawn(told(unknown, unknown))[1].split()[:3] == ["local", "remote", "state"]
    both = drawn(told(unknown, {}))
    assert both[1].split()[:4] == ["flow", "local", "remote", "command"]
    assert sorted(row.split()[0] for row in both[2:4]) == ["2", "–"]


def test_units_are_shown_for_the_visible_columns() -> None:
    narrow = " ".join(drawn(told({}), width=60)[3:])
    assert "cwnd" in narrow
    assert "flight" not in narrow
    assert "flight: bytes" in drawn(told({}))[3]


def test_an_empty_machine_has_an_empty_table() -> None:
    assert drawn(told())[0] == "0 flows"


def test_flows_can_be_sorted_by_any_column_with_unknown_last() -> None:
    line = told({"srtt_us": 5.0}, {"srtt_us": 50_000.0}, {"sample": None}, {"srtt_us": 700.0})
    assert [row.split()[0] for row in drawn(line, sort="srtt")[2:6]] == ["2", "4", "1", "3"]
    assert [row.split()[0] for row in drawn(line, sort="local")[2:6]] == ["1", "2", "3", "4"]
    assert [row.split()[0] for row in drawn(line, sort="out", rows=2)[2:4]] == ["4", "3"]
    assert drawn(line, sort="out", rows=2)[0] == "4 flows, 2 shown"
    with pytest.raises(RequestError, match="--sort colour: expected one of flow, local"):
        View("colour")
    with pytest.raises(RequestError, match=r"\(did you mean out\?\)"):
        View("ouut")


def test_filtered_flows_are_not_shown() -> None:
    assert drawn(told({"wanted": False}, {}))[0] == "1 flow"


def test_an_ended_flow_is_closed_and_a_new_one_has_no_numbers_yet() -> None:
    assert "CLOSED" in drawn(told({"ended": True}))[2]
    assert "–" in drawn(told({"sample": None}))[2]


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "–"), (-1, "–"), (0, "0"), (999, "999"), (9999, "9999"), (10_000, "10.0k"), (999_949, "1000k"),
     (1e6, "1.00M"), (93.4e6, "93.4M"), (9.996e9, "10.0G"), (123e9, "123G"), (2e12, "2.00T")],
)  # fmt: skip
def test_counts_are_abbreviated(value: float | None, said: str) -> None:
    assert flows.short(value) == said


@pytest.mark.parametrize(
    ("us", "said"),
    [(None, "–"), (0, "–"), (2**32 - 1, "–"), (0.5, "0.50µs"), (999, "999µs"), (1000, "1.00ms"), (20_125, "20.1ms"),
     (999_999, "1.00s"), (3e6, "3.00s")],
)  # fmt: skip
def test_times_are_abbreviated(us: float | None, said: str) -> None:
    assert flows.duration(us) == said


FAKE = """#!{python}
import json, os, signal, sys, time
open({argv!r}, "w").write(json.dumps([os.getpid(), *sys.argv[1:]]))
if "--port=none" in sys.argv:
    print("sojourn-instrument: none is no port", file=sys.stderr)
    sys.exit(2)
count = int(sys.argv[sys.argv.index("--count") + 1]) if "--count" in sys.argv else 10**9
for _ in range(count):
    print({line!r}, flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """An instrument that tells of one flow, again and again; returns where it says how it was called."""
    called, program = tmp_path / "called.json", tmp_path / "instrument"
    program.write_text(FAKE.format(python=sys.executable, argv=str(called), line=json.dumps(told({}))))
    program.chmod(0o755)
    return called


def environment(fake: Path, **more: str) -> dict[str, str]:
    program = fake.with_name("instrument")
    return {**os.environ, "PYTHONPATH": str(PACKAGE), "SOJOURN_INSTRUMENT": str(program), **more}


def top(fake: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", MAIN, "tcplog", "top", *words]
    env = environment(fake, COLUMNS="100")
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=env)


def test_once_prints_one_table_and_ends(fake: Path) -> None:
    done = top(fake, "--once", "--port", "5201", "--port", "80", "--congestion", "bbr", "--sort", "retrans", "out/t")
    assert (done.returncode, done.stderr) == (0, "")
    assert "10.0.0.1:40001" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stdout.count("10.0.0.1:40001") == 1
    [_, *words] = json.loads(fake.read_text())
    assert words == ["tcplog", "watch", "out/t", "--interval=10ms", "--port=5201", "--port=80", "--congestion=bbr",
                     "--count", "1"]  # fmt: skip


def test_refusal_of_the_instrument_is_returned(fake: Path) -> None:
    done = top(fake, "--once", "--port", "none")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "sojourn: none is no port\n")


def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(fake: Path) -> None:
    """In a terminal of its own: the other screen is entered and left, the cursor is back, and nothing runs on."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "tcplog", "top"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment(fake, TERM="xterm-256color"),
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while b"10.0.0.2:5201" not in said:
            assert time.monotonic() < deadline, said
            said += os.read(ours, 65_536)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # the other end is closed
            while chunk := os.read(ours, 65_536):
                said += chunk
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert said.count(b"\x1b[?1049h") == said.count(b"\x1b[?1049l") == 1
    assert said.rindex(b"\x1b[?25h") > said.rindex(b"\x1b[?25l")
    assert b"Traceback" not in said
    pid = json.loads(fake.read_text())[0]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_control_characters_in_process_names_are_not_printed() -> None:
    line = told({"command": "\x1b[2Jx\x07\u009b"})
    text = "\n".join(drawn(line))
    assert "?[2Jx??" in text
    assert "\x1b[2J" not in text
