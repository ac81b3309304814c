"""`sojourn capture --tap bpf` over real frames: it sees what tcpdump and a packet socket's tap see, counts drops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sojourn.instruments import find_instrument
from sojourn.records import read_table
from tests.children import Child
from tests.net.busy_machine import await_that
from tests.net.test_capture import (
    CLIENT,
    PATIENCE_SECONDS,
    PINGS,
    SERVER,
    both,
    capturing,
    expect_each_in_one_count,
    hosts,
    inside,
    packets,
    ping,
    run,
    send,
    serve,
    tap_of,
    tcpdump,
)
from tests.net.test_emulate_net import programs
from tests.unit.printed_json import printed

__all__ = ["hosts"]

BPF = ("--tap", "bpf")
LINKS = Path(__file__).parents[2] / "crates/port/tests/links/links.py"
FAST_CLOCK_NS = 2_000
"""The clock that a program in the kernel may read is close to the one of tcpdump's stamps, not the same."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")


def test_bpf_tap_has_the_same_packets_as_tcpdump_with_its_own_timestamps(tmp_path: Path) -> None:
    """A received frame after the kernel's stamp, a sent one before it."""
    out, witness = tmp_path / "c", tmp_path / "witness.pcap"
    with capturing(out, *BPF) as told, tcpdump("eth1", witness):
        ping("-f", "-c", str(PINGS))
        ping("-c", "3", "-i", "0.01", "-s", "4000")
    ours, theirs = packets(out / "eth1.pcapng"), packets(witness)
    assert len(ours) == 2 * PINGS + 3 * 2 * 3
    assert [one[1:] for one in ours] == [one[1:] for one in theirs]
    ways = read_table(out, "taps").frame
    ways = ways.filter(ways["who"] == "eth1")
    assert ways["time_source"].unique().to_list() == ["bpf"]
    later = [(mine or 0) - (other or 0) for (mine, _, _), (other, _, _) in zip(ours, theirs, strict=True)]
    for way, sign in (("in", 1), ("out", -1)):
        signed = [sign * ns for ns, told_way in zip(later, ways["direction"], strict=True) if told_way == way]
        assert len(signed) == len(ours) / 2
        assert min(signed) >= -FAST_CLOCK_NS
        assert sorted(signed)[len(signed) // 2] < 100_000
    assert tap_of(told, "eth1")["sources"] == {"bpf": len(ours)}


def test_vlan_tags_checksums_and_super_frames_equal_those_of_the_packet_tap(tmp_path: Path) -> None:
    with capturing(tmp_path / "bpf", *BPF) as mine, capturing(tmp_path / "ring") as other:
        ping("-f", "-c", "20")
        send(bytes.fromhex("02000000000202000000000181000007" + "88b5") + bytes(200))
        server = inside("b", sys.executable, "-c", SERVER)
        with Child(server, stdout=subprocess.PIPE, text=True) as taker:
            assert taker.stdout is not None
            taker.stdout.readline()
            run(*inside("a", sys.executable, "-c", CLIENT))
            assert taker.wait(PATIENCE_SECONDS) == 0
    for port in ("eth1", "eth2"):
        ours, theirs = (packets(tmp_path / kind / f"{port}.pcapng") for kind in ("bpf", "ring"))
        assert sorted(one[1:] for one in ours) == sorted(one[1:] for one in theirs)
        taps = [tap_of(told, port) for told in (mine, other)]
        counts = ("frames_in", "frames_out", "octets_in", "octets_out", "super_frames", "cut")
        assert [taps[0][of] for of in counts] == [taps[1][of] for of in counts]
        assert taps[0]["super_frames"] > 0
        assert all(tap["account"]["conserved"] for tap in taps)


def test_each_frame_is_in_exactly_one_counter_and_taps_around_a_bridge_match(tmp_path: Path) -> None:
    out = tmp_path / "c"
    with capturing(out, *BPF) as told:
        ping("-f", "-c", str(PINGS))
    expect_each_in_one_count(told)
    files = [str(out / f"taps-{port}-000.arrow") for port in ("eth1", "eth2")]
    matched = printed("match", run(find_instrument(), "match", *files, "--json"))
    for direction in matched["pairs"][0]["directions"]:
        counts = direction["counts"]
        assert [counts[of] for of in ("matched", "lost", "duplicated", "unexpected")] == [PINGS, 0, 0, 0]


def test_direction_and_snap_length_are_as_requested(tmp_path: Path) -> None:
    for way, counts in (("in", (20, 0)), ("out", (0, 20))):
        options = ("--direction", way, "--snap", "40", "--format", "pcapng")
        with capturing(tmp_path / way, *BPF, *options) as told:
            ping("-f", "-c", "20", "-s", "1000")
        for tap in told["taps"]:
            assert (tap["frames_in"], tap["frames_out"], tap["cut"]) == (*counts, 20)
            assert (tap["account"]["conserved"], tap["account"]["difference"]) == (True, 0)
        assert {(length, len(kept)) for _, length, kept in packets(tmp_path / way / "eth1.pcapng")} == {(1042, 40)}


def test_frames_that_do_not_fit_the_ring_are_counted(tmp_path: Path) -> None:
    """The reader stands still, while more frames come than the ring has room for; the traffic does not notice."""
    out = tmp_path / "c"
    argv = inside("x", find_instrument(), "capture", "eth1", "-o", str(out), *BPF, "--ring", "1MiB", "--json")
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGSTOP)
        ping("-f", "-c", "3000", "-s", "1000")
        process.send_signal(signal.SIGCONT)
        ping("-f", "-c", "20")
        process.send_signal(signal.SIGINT)
        said, problem = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, problem
    told = printed("capture", said)
    account = tap_of(told, "eth1")["account"]
    assert account["dropped"] > 1_000
    assert account["full"] >= 1
    assert account["conserved"]
    assert account["seen"] + account["dropped"] == account["accepted"] == account["interface"] == 2 * 3_020
    assert [one["name"] for one in told["findings"]] == ["local_drops"]


def gone(ours: set[int]) -> bool:
    """Whether the kernel holds none of these programs."""
    return not ours & programs()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_bpf_programs_are_detached_at_the_end_and_traffic_is_undisturbed(how: signal.Signals, tmp_path: Path) -> None:
    before = programs()
    with Child(
        inside("a", "ping", "-q", "-i", "0.001", "-c", "2000", "10.0.0.2"), stdout=subprocess.PIPE, text=True
    ) as pings:
        for number in range(3):
            argv = inside("x", find_instrument(), "capture", "eth1", "eth2", "-o", str(tmp_path / f"{number}"), *BPF)
            with Child(argv, stderr=subprocess.PIPE, text=True) as process:
                assert process.stderr is not None
                assert "capturing" in process.stderr.readline()
                ours = programs() - before  # others' may be among them
                assert len(ours) >= 4
                time.sleep(0.2)
                process.send_signal(how)
                process.communicate(timeout=PATIENCE_SECONDS)
            await_that(partial(gone, ours), "the programs are gone")
        said, _ = pings.communicate(timeout=PATIENCE_SECONDS)
    assert "2000 received, 0% packet loss" in said, said


def test_bpf_tap_gives_up_its_capabilities(tmp_path: Path) -> None:
    argv = inside("x", find_instrument(), "capture", "eth1", "-o", str(tmp_path / "c"), *BPF)
    with Child(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "capturing" in process.stderr.readline()
        told = Path(f"/proc/{process.pid}/status").read_text()
        status = dict(line.split(":\t", 1) for line in told.splitlines() if ":\t" in line)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert {status[of].strip("0") for of in ("CapEff", "CapPrm", "CapInh", "CapBnd")} <= {""}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_deleted_interface_ends_the_capture_and_keeps_its_frames(tmp_path: Path) -> None:
    run(*inside("x", "ip", "link", "add", "gone", "type", "veth", "peer", "name", "far"))
    for end in ("gone", "far"):
        run(*inside("x", "ip", "link", "set", end, "up"))
    argv = inside("x", find_instrument(), "capture", "gone", "-o", str(tmp_path / "c"), *BPF)
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        send(bytes.fromhex("02000000000202000000000188b5") + bytes(100), "x", "far")
        run(*inside("x", "ip", "link", "del", "gone"))
        _, problem = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, "the interface is gone" in problem) == (4, True), problem
    assert [length for _, length, _ in packets(tmp_path / "c/gone.pcapng")] == [114]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--filter", "udp"], "--tap bpf has no filter"),
        (["--source", "kernel"], "has timestamps of its own"),
        (["--source", "hardware"], "has timestamps of its own"),
    ],
)
def test_unsupported_options_are_refused_in_one_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    argv = inside("x", find_instrument(), "capture", "eth1", "-o", str(tmp_path / "c"), *BPF, *words)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert sentence in done.stderr
    assert not (tmp_path / "c").exists()


def test_tap_server_refuses_bpf_taps(tmp_path: Path) -> None:
    taps = serve()
    try:
        with pytest.raises(Exception, match="keeps no right to load programs"):
            taps.start(tmp_path / "c", both(tap="bpf"))
    finally:
        taps.finish()


def test_summary_names_the_kind_of_tap(tmp_path: Path) -> None:
    with capturing(tmp_path / "c", *BPF, interfaces=("eth1",)) as told:
        ping("-f", "-c", "5")
    kept: dict[str, Any] = json.loads((tmp_path / "c/capture.json").read_text())
    assert kept["taps"][0]["options"]["tap"] == told["taps"][0]["options"]["tap"] == "bpf"


@pytest.mark.parametrize("does", ["detach", "replace"])
def test_tap_whose_bpf_program_was_detached_ends_and_reports_it(does: str, tmp_path: Path) -> None:
    """What it does not see is not told as nothing that passed."""
    argv = inside("x", find_instrument(), "capture", "eth1", "-o", str(tmp_path / "c"), "--json", *BPF)
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "capturing" in process.stderr.readline()
        ping("-c", "3", "-i", "0.01")
        at = json.loads(run(*inside("x", "ip", "-j", "link", "show", "dev", "eth1")))[0]["ifindex"]
        run(*inside("x", sys.executable, "-I", str(LINKS), str(process.pid), does, "tcx-in", str(at)))
        out, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 4, (out, said)
    assert "eth1: the program of its tap was detached or replaced" in said
