"""What the instrument prints where no frame is needed, held against its published schemas: simulations, files, logs.

Commands that need frames are held against theirs by the helpers of tests/net, in every test that runs them. The same
members come with and without losses, steps of clocks, keys and damage, as each of those has some of its own.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import tarfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.cli.printed import schemas
from sojourn.instruments import find_instrument
from tests.unit.made_up_taps import Box, write_taps
from tests.unit.printed_json import held, printed, printed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
EMULATOR = ROOT / "crates/emulate"
CONFIGURATIONS = EMULATOR / "tests/corpus/configurations.txt"

LINE = {"forward": {"constant_ns": 5_000}, "backward": {"normal": {"mean_ns": 7e3, "sd_ns": 50.0}}}
PATH = {"delay": {"constant_ns": 5_000}, "clocks": {"receiver": {"offset_ns": 1_000, "skew_ppm": 3.0}}}


def instrument(*words: str | Path, status: int = 0, text: str | None = None, cwd: Path | None = None) -> str:
    """What the instrument prints."""
    argv = [find_instrument(), *map(str, words)]
    done = subprocess.run(
        argv, input=text, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == status, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", schemas())
def test_every_schema_is_valid_and_lists_all_its_members(name: str) -> None:
    open_records = list(left_open(schemas()[name]))
    assert open_records == (OPEN.get(name, [])), "say in OPEN why"


OPEN = {
    "run": ["checks"], "run-dry-run": [""], "history-study": ["figures"],
    "why": ["in_flight", "account"],
}  # fmt: skip
"""Records of Python's commands whose members belong to a method, a figure or another program."""


def left_open(schema: Any, name: str = "") -> Iterator[str]:
    """Records that say nothing of members that they do not name."""
    if isinstance(schema, list):
        for one in schema:
            yield from left_open(one, name)
    if isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties", True) is True:
            yield name
        for key, one in schema.items():
            yield from left_open(one, name if key in {"items", "anyOf", "properties"} else key)


@pytest.mark.parametrize(
    "line", [LINE, LINE | {"loss": 0.2, "duplicate": 0.1, "reorder": 0.1, "reorder_ns": 2_000_000}]
)
@pytest.mark.parametrize("options", [(), ("--schedule", "poisson"), ("--schedule", "closed-loop", "--as", "udp6")])
def test_json_of_probes_follows_its_schema(line: dict[str, Any], options: tuple[str, ...]) -> None:
    words = ("probe", "sim", "--line", json.dumps(line), *options, "-c", "1100", "-i", "1ms", "--timeout", "5ms")
    told = printed("probe", instrument(*words, "--json"))
    assert ("anderson_darling" in told) == ("poisson" in options)
    assert (told["lost"] > 0) == ("loss" in line)


@pytest.mark.parametrize("more", [{}, {"loss": 0.1, "duplicate": 0.1, "corrupt": 1e-4}, {"clocks": {"shared": True}}])
@pytest.mark.parametrize("options", [(), ("--schedule", "poisson"), ("--schedule", "flood")])
def test_json_of_streams_follows_its_schema(more: dict[str, Any], options: tuple[str, ...]) -> None:
    rate = () if "flood" in options else ("--rate", "10kpps")
    words = ("stream", "sim", "--path", json.dumps(PATH | more), *rate, *options, "--count", "1200")
    told = printed("stream-sim", instrument(*words, "--json"))
    assert told["received"][0]["one_way_delay"] is not None


@pytest.mark.parametrize("more", [{}, {"step": {"at_ns": 250_000_000, "by_ns": 1_000_000}}, {"count": 5}])
def test_json_of_clock_sim_follows_its_schema(more: dict[str, Any]) -> None:
    truth = json.dumps({"count": 500, "interval_ns": 1_000_000} | more)
    one = printed("clock-sim", instrument("clock", "sim", "--truth", truth, "--points", "3", "--json"))
    assert (one["event"], len(one["points"])) == ("simulated", 3)
    assert bool(one["estimate"]["findings"]) == bool(more), "the corresponding finding is one of the members"
    several = printed("clock-sim", instrument("clock", "sim", "--truth", truth, "--repeat", "3", "--json"))
    assert (several["event"], several["estimates"]) == ("repeated", 3)


def test_json_of_the_clock_of_this_host_follows_its_schema() -> None:
    [told] = printed_lines("clock", instrument("clock", "--json"))
    assert told["event"] == "local"


def test_json_of_every_emulator_word_follows_its_schema(tmp_path: Path) -> None:
    """Those that the emulator's own tests have as examples, as far as they are understood."""
    cases = [line.partition(": ") for line in CONFIGURATIONS.read_text().splitlines()]
    seen = 0
    for (kind, _, text), (answer, _, _) in pairwise(cases):
        if not answer.startswith("=") or kind not in {"words", "toml"}:
            continue
        (file := tmp_path / "asked.toml").write_text(text.replace("\\n", "\n"))
        words = ["--config", str(file)] if kind == "toml" else ["--forward", text]
        done = subprocess.run(
            [find_instrument(), "emulate", "explain", *words, "--json"],
            cwd=EMULATOR, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == 0:  # some words are pipes alone that no pair of ports can have
            told = printed("emulate-explain", done.stdout)
            seen += len(told["pipes"])
    assert seen > 100, seen


def test_json_of_emulate_kernel_follows_its_schema() -> None:
    words = ("emulate", "kernel", "eth1", "eth2", "--delay", "20ms", "--forward", "loss 1%")
    told = printed("emulate-kernel", instrument(*words, "--json"))
    assert all(command[:3] == ["tc", "qdisc", "replace"] for command in told["commands"])
    assert [command[3:] for command in told["undo"]] == [["dev", "eth2", "root"], ["dev", "eth1", "root"]]
    text = instrument(*words)
    assert [line.split() for line in text.splitlines() if not line.startswith("#")] == told["commands"]


def capture_of(path: Path, lengths: tuple[int, ...]) -> None:
    """A capture of frames between two hosts, of which none has more than 96 octets kept."""
    octets = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1)
    for number, length in enumerate(lengths):
        frame = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5]).ljust(min(length, 96), bytes([number]))
        octets += struct.pack("<IIII", 1_700_000_000, 1_000 * number, len(frame), length) + frame
    path.write_bytes(octets)


def test_json_of_offline_emulation_follows_its_schema(tmp_path: Path) -> None:
    capture_of(tmp_path / "in.pcap", (60, 1514) * 20)
    words = ("--delay", "1ms", "--rate", "10Mbit/s", "--queue", "5", "--loss", "10%", "-o", tmp_path / "out.pcapng")
    told = printed("emulate-offline", instrument("emulate", "offline", tmp_path / "in.pcap", *words, "--json"))
    assert told["frames"] == 40
    assert told["cut"] == 20


def test_json_of_emulator_replay_follows_its_schema(tmp_path: Path) -> None:
    with tarfile.open(ROOT / "tests/golden/emulator-delay.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    words = ("emulate", "replay", tmp_path / "emulator-delay/records", "--json")
    done = subprocess.run([find_instrument(), *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode == 2:
        pytest.fail(done.stderr)
    assert printed_lines("emulate-replay", done.stdout)


BOX = Box(packets=2_000)


@pytest.mark.parametrize(
    "box", [BOX, replace(BOX, offset_ns=5_000_000_000), replace(BOX, unlabelled=True, backward=0.0)]
)
@pytest.mark.parametrize(
    "options", [(), ("--engine", "local"), ("--same-clock", "--subtract-serialisation", "1Gbit/s")]
)
def test_json_of_match_follows_its_schema(box: Box, options: tuple[str, ...], tmp_path: Path) -> None:
    [first], [second] = write_taps(box, tmp_path / "taps")
    told = printed("match", instrument("match", first, second, "--window", "2ms", *options, "--json"))
    assert told["pairs"][0]["directions"]


def request(block: int, **more: Any) -> dict[str, Any]:
    """A block of probes."""
    return {
        "block": block, "device": "wire", "round": 0, "visit": 0, "cell": 0, "to": {"via": "sim", "line": LINE},
        "kind": "icmp", "request_payload_bytes": 56, "response_payload_bytes": 56, "schedule": "regular",
        "interval_ns": 1_000_000, "count": 44, "warmup": 4, "timeout_ns": 200_000_000, "seed": 42,
    } | more  # fmt: skip


def simulation(block: int, **more: Any) -> dict[str, Any]:
    """A stream over a simulated path."""
    return {
        "do": "simulate", "block": block, "device": "wire", "round": 0, "visit": 0, "cell": 0, "purpose": "measure",
        "path": PATH, "clock": "exchange", "keep": "packets",
        "flows": [{"flow": 1, "schedule": "poisson", "rate_pps": 1e4, "count": 500, "payload_bytes": 46, "seed": 1}],
        "receive": {"keep": "packets", "late_after_ns": 1e9, "room": 1000},
    } | more  # fmt: skip


def lines(*requests: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in requests)


def test_json_protocols_of_probes_and_streams_follow_their_schemas(tmp_path: Path) -> None:
    lost = LINE | {"loss": 1.0}
    asked = lines(request(1), request(2, to={"via": "sim", "line": lost}), request(3, count=0))
    told = printed_lines(
        "probe-blocks", instrument("probe", "blocks", "--simulated", "--record", tmp_path / "p", text=asked)
    )
    assert [one["event"] for one in told] == ["ready", "block", "block", "error"]
    asked = lines(simulation(1), simulation(2, clock="shared"), simulation(3, path=PATH | {"loss": 1.0}), {"do": "x"})
    serving = ("stream", "serve", "--simulated", "--name", "s")
    told = printed_lines("stream-serve", instrument(*serving, "--record", tmp_path / "s", text=asked))
    assert [one["event"] for one in told] == ["ready", *["simulated"] * 3, "error"]


class Log:
    """A log of a simulated TCP, as long as the tests of it last."""

    def __init__(self, out: Path, *words: str) -> None:
        self.out = out
        argv = [find_instrument(), "tcplog", "run", "--simulated", "3", "--out", str(out), *words, "--json"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        end = time.monotonic() + PATIENCE_SECONDS
        while not (out / "control.sock").exists():
            assert self.process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)

    def end(self, number: int) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=PATIENCE_SECONDS)[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="a log is made with the rights of its caller, who is root here")
def test_json_of_tcplog_run_follows_its_schema(tmp_path: Path) -> None:
    log = Log(tmp_path / "t", "--flight", "100ms")
    try:
        assert printed("tcplog-set", instrument("tcplog", "set", log.out, "--ppl", "2", "--json"))["ppl"] == 2
        both = printed_lines("tcplog-set", instrument("tcplog", "set", log.out, "--ppl", "1", "--dump", "--json"))
        assert [one.get("event") for one in both] == [None, "dumped"]
        watched = instrument("tcplog", "watch", log.out, "--count", "2", "--interval", "100ms")
        assert all(one["flows"] for one in printed_lines("tcplog-watch", watched))
        assert printed("tcplog-status", instrument("tcplog", "status", log.out, "--json"))["ok"]
    finally:
        footer = printed("tcplog-run", log.end(signal.SIGINT))
    assert footer["conserved"]
    assert printed("tcplog-status", instrument("tcplog", "status", log.out, "--json")) == footer
    killed = Log(tmp_path / "k")
    time.sleep(0.3)
    killed.end(signal.SIGKILL)
    assert printed("tcplog-recover", instrument("tcplog", "recover", killed.out, "--json"))["why"] == "killed"
    told = printed("tcplog-status", instrument("tcplog", "status", killed.out, "--json"))
    assert told["why"] == "killed"
    with pytest.raises(AssertionError, match="tcplog-run"):
        held("tcplog-run", told)


def test_json_protocol_of_tcp_logs_follows_its_schema(tmp_path: Path) -> None:
    begin = {"do": "begin", "block": 1, "who": "a", "records": str(tmp_path / "r"), "mode": "disabled"}
    asked: list[dict[str, Any]] = [
        begin, {"do": "mode", "mode": "on"}, {"do": "set", "options": {"ppl": 3}}, {"do": "statistics", "on": True},
        {"do": "cost"}, {"do": "status"}, {"do": "flows"}, {"do": "dump"}, begin, {"do": "end"}, {"do": "end"},
    ]  # fmt: skip
    told = printed_lines("tcplog-serve", instrument("tcplog", "serve", "--simulated", "1", text=lines(*asked)))
    assert [one["event"] for one in told] == [
        *("ready", "begun", "mode", "set", "statistics", "cost", "status", "flows", "dumped", "error", "ended", "error")
    ]


def test_json_protocol_of_taps_follows_its_schema() -> None:
    told = printed_lines("capture-serve", instrument("capture", "serve", text=lines({"do": "counts"}, {"do": "stop"})))
    assert [one["event"] for one in told] == ["ready", "error", "error"]
