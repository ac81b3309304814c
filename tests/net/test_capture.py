"""`sojourn capture` over real frames: what it sees is what tcpdump sees, and what the interfaces count.

Two hosts, `a` and `b`, and between them a box `x` with a kernel bridge, on whose ports the taps are. All is in network
namespaces of the tests' own. What is judged is counted, not timed.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.errors import RequestError
from sojourn.instruments import find_instrument
from sojourn.instruments.tap import TapInstrument, tap_argv
from sojourn.records import read_table
from sojourn.records.pcap import read_packets
from tests.children import Child
from tests.net.busy_machine import await_that, thrice, undisturbed
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
NAME = f"sojourn-capture-{os.getpid()}"
PATIENCE_SECONDS = 60
HOSTS = ("a", "b", "x")
PINGS = 300
BURST = 1_000_000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")


def inside(host: str, *argv: str) -> list[str]:
    """A command as it runs on one of the hosts."""
    return ["ip", "netns", "exec", f"{NAME}-{host}", *argv]


def run(*argv: str) -> str:
    """A command that must not fail."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    for name in HOSTS:
        run("ip", "netns", "add", f"{NAME}-{name}")
    try:
        for host, port in (("a", "eth1"), ("b", "eth2")):
            there = ["type", "veth", "peer", "name", port, "netns", f"{NAME}-x"]
            run("ip", "link", "add", "eth1", "netns", f"{NAME}-{host}", *there)
        for host in HOSTS:  # no frames that nobody asked for
            run(*inside(host, "sysctl", "-q", "net.ipv6.conf.all.disable_ipv6=1"))
            run(*inside(host, "sysctl", "-q", "net.ipv6.conf.default.disable_ipv6=1"))
        run(*inside("x", "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"))
        for dev in ("br0", "eth1", "eth2"):
            run(*inside("x", "ip", "link", "set", dev, "up", *([] if dev == "br0" else ["master", "br0"])))
        for number, host in enumerate(("a", "b"), start=1):
            run(*inside(host, "ip", "link", "set", "eth1", "address", f"02:00:00:00:00:0{number}", "up"))
            run(*inside(host, "ip", "address", "add", f"10.0.0.{number}/24", "dev", "eth1"))
            other = 3 - number
            neighbour = ["ip", "neighbor", "replace", f"10.0.0.{other}", "lladdr", f"02:00:00:00:00:0{other}"]
            run(*inside(host, *neighbour, "dev", "eth1", "nud", "permanent"))
        await_that(forwards, "the bridge forwards")
        yield
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", f"{NAME}-{name}"], check=False)


def forwards() -> bool:
    done = subprocess.run(inside("a", "ping", "-c", "1", "-W", "1", "10.0.0.2"), capture_output=True, check=False)
    return done.returncode == 0


def ping(*options: str) -> None:
    """Pings, of which none may be lost."""
    said = run(*inside("a", "ping", "-q", *options, "10.0.0.2"))
    assert " 0% packet loss" in said, said


@contextmanager
def capturing(out: Path, *options: str, interfaces: tuple[str, ...] = ("eth1", "eth2")) -> Iterator[dict[str, Any]]:
    """A capture on the box while something happens; its summary is there afterwards."""
    argv = inside("x", find_instrument(), "capture", *interfaces, "-o", str(out), "--json", *options)
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        if "capturing" not in line:
            pytest.fail(line)
        told: dict[str, Any] = {}
        yield told
        process.send_signal(signal.SIGINT)
        said, problem = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, problem
    told |= printed("capture", said)
    assert told == json.loads((out / "capture.json").read_text())


@contextmanager
def tcpdump(port: str, file: Path, *expression: str) -> Iterator[None]:
    """The witness."""
    options = [
        "-i",
        port,
        "-n",
        "-U",
        "-s",
        "2048",
        "-B",
        "16384",
        "--immediate-mode",
        "--time-stamp-precision=nano",
        "-w",
        str(file),
        "-Z",
        "root",
    ]
    argv = inside("x", "tcpdump", *options, *expression)
    with Child(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "listening on" not in (line := process.stderr.readline()):
            assert line, "tcpdump does not listen"
        yield
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)


def packets(file: Path) -> list[tuple[int | None, int, bytes]]:
    """When each packet of a capture was stamped, how long it was, and what is kept of it."""
    return [(packet.at_ns, packet.original, packet.packet) for packet in read_packets(file)]


def tap_of(told: dict[str, Any], interface: str) -> dict[str, Any]:
    tap: dict[str, Any] = next(tap for tap in told["taps"] if tap["interface"] == interface)
    return tap


def test_capture_has_the_same_packets_and_timestamps_as_tcpdump(tmp_path: Path) -> None:
    witnesses = {port: tmp_path / f"{port}.pcap" for port in ("eth1", "eth2")}
    out = tmp_path / "c"
    with capturing(out) as told, tcpdump("eth1", witnesses["eth1"]), tcpdump("eth2", witnesses["eth2"]):
        ping("-f", "-c", str(PINGS))
        ping("-c", "3", "-i", "0.01", "-s", "4000")
    for port, witness in witnesses.items():
        ours, theirs = packets(out / f"{port}.pcapng"), packets(witness)
        assert len(ours) >= 2 * PINGS
        assert ours == theirs
        tap = tap_of(told, port)
        assert tap["frames_in"] + tap["frames_out"] == len(ours)
        assert tap["fragments"] == 3 * 2 * 3
        assert tap["sources"] == {"kernel": len(ours)}


def test_tap_records_agree_with_frames_and_digests_match_behind_the_bridge(tmp_path: Path) -> None:
    out = tmp_path / "c"
    with capturing(out):
        ping("-f", "-c", str(PINGS))
        ping("-c", "3", "-i", "0.01", "-s", "4000")
    seen = read_table(out, "taps").frame
    counts = {row["tap"]: row for row in read_table(out, "tap_counts").frame.to_dicts()}
    rows = {port: seen.filter(pl.col("who") == port) for port in ("eth1", "eth2")}
    for port, frames in ((port, packets(out / f"{port}.pcapng")) for port in rows):
        table = rows[port]
        ahead = {time - (at or 0) for time, (at, _, _) in zip(table["time_ns"], frames, strict=True)}
        assert all(seconds % 1_000_000_000 == 0 for seconds in ahead), "TAI is ahead by whole seconds"
        assert len(ahead) == 1
        assert table["length_bytes"].to_list() == [length for _, length, _ in frames]
        assert table["time_source"].unique().to_list() == ["kernel"]
        assert table["fragment"].sum() == 18
        assert not (table["super_packet"] | table["truncated"]).any()
        assert [counts[port][of] for of in ("seen", "recorded", "dropped")] == [len(frames), len(frames), 0]
    for into, behind in (("eth1", "eth2"), ("eth2", "eth1")):
        came = rows[into].filter(pl.col("direction") == "in")
        left = rows[behind].filter(pl.col("direction") == "out")
        assert came["digest"].to_list() == left["digest"].to_list()
        assert came["digest"].n_unique() == len(came)
        assert (left["time_ns"] > came["time_ns"]).all()


def test_taps_around_a_bridge_match_every_packet(tmp_path: Path) -> None:
    out = tmp_path / "c"
    with capturing(out):
        ping("-f", "-c", str(PINGS))
    matched = printed(
        "match", run(SOJOURN, "match", *(str(out / f"taps-{port}-000.arrow") for port in ("eth1", "eth2")), "--json")
    )
    pair = matched["pairs"][0]
    assert pair["clocks"]["relation"] == "one"
    for direction in pair["directions"]:
        counts = direction["counts"]
        assert [counts[of] for of in ("matched", "lost", "duplicated", "unexpected", "ambiguous")] == [
            PINGS,
            0,
            0,
            0,
            0,
        ]


def expect_each_in_one_count(told: dict[str, Any]) -> None:
    """All pings and answers, and nothing else, were seen at each tap."""
    for tap in told["taps"]:
        account = tap["account"]
        assert account["conserved"], account
        assert (account["difference"], account["dropped"], account["unread"]) == (0, 0, 0)
        assert account["seen"] == account["interface"] == 2 * PINGS
        assert (tap["frames_in"], tap["frames_out"]) == (PINGS, PINGS)


def test_each_frame_is_in_exactly_one_counter(tmp_path: Path) -> None:
    with capturing(tmp_path / "c") as told:
        ping("-f", "-c", str(PINGS))
    expect_each_in_one_count(told)


def test_bridge_loses_no_frame_while_taps_attach_and_detach(tmp_path: Path) -> None:
    with Child(
        inside("a", "ping", "-q", "-i", "0.001", "-c", "3000", "10.0.0.2"), stdout=subprocess.PIPE, text=True
    ) as pings:
        taps = serve()
        try:
            seen = 0
            for number in range(8):
                taps.start(tmp_path / f"c{number}", both())
                ping("-i", "0.002", "-c", "50")
                stopped = taps.stop()
                assert all(tap["account"]["conserved"] for tap in stopped["taps"])
                seen += sum(tap["account"]["seen"] for tap in stopped["taps"])
        finally:
            taps.finish()
        said, _ = pings.communicate(timeout=PATIENCE_SECONDS)
    assert "3000 received, 0% packet loss" in said, said
    assert seen >= 8 * 2 * 2 * 50, "eight times both ways at both ports"


@pytest.mark.proof
@thrice
def test_burst_of_200_000_frames_per_second_is_captured_completely(tmp_path: Path) -> None:
    run(*inside("x", "ip", "link", "set", "eth1", "nomaster"))  # what is measured is the tap
    try:
        with capturing(tmp_path / "c", interfaces=("eth1",)) as told:
            flood = ["--schedule", "flood", "--count", str(BURST), "--size", "64"]
            run(*inside("a", find_instrument(), "stream", "send", "--dev", "eth1", "--to", "02:00:00:00:00:77", *flood))
    finally:
        run(*inside("x", "ip", "link", "set", "eth1", "master", "br0"))
    tap = told["taps"][0]
    rate = tap["frames_in"] / (tap["last_ns"] - tap["first_ns"]) * 1e9
    cpu = told["processor_time_ns"] / tap["frames_in"]
    print(f"{rate:.0f} frames a second, {tap['account']['dropped']} dropped, {cpu:.0f} ns of a processor for each")
    assert tap["account"]["conserved"]
    assert tap["account"]["difference"] == 0
    with undisturbed():
        assert rate >= 200_000
        assert tap["account"]["dropped"] == 0
        assert tap["frames_in"] >= BURST


def test_filter_selects_matching_frames_with_vlan_tags_as_on_the_wire(tmp_path: Path) -> None:
    with capturing(tmp_path / "c", "--filter", "vlan 7 and ether src 02:00:00:00:00:01", "--snap", "100") as told:
        ping("-f", "-c", "20")
        for vlan in (7, 8):
            send(bytes.fromhex(f"02000000000202000000000181000{vlan:03x}88b5") + bytes(200))
    seen = packets(tmp_path / "c/eth1.pcapng")
    assert [(length, len(kept), kept[12:18].hex()) for _, length, kept in seen] == [(218, 100, "8100000788b5")]
    assert (tap_of(told, "eth1")["cut"], tap_of(told, "eth1")["account"]["difference"]) == (1, None)


def test_one_direction_is_captured_on_request(tmp_path: Path) -> None:
    for way, counts in (("in", (20, 0)), ("out", (0, 20))):
        with capturing(tmp_path / way, "--direction", way) as told:
            ping("-f", "-c", "20")
        for tap in told["taps"]:
            assert (tap["frames_in"], tap["frames_out"]) == counts
            assert (tap["account"]["conserved"], tap["account"]["difference"]) == (True, 0)


def test_capture_can_be_limited_to_headers_and_anonymised(tmp_path: Path) -> None:
    with capturing(tmp_path / "headers", "--headers") as told:
        ping("-f", "-c", "20", "-s", "300")
    seen = packets(tmp_path / "headers/eth1.pcapng")
    assert {(length, len(kept)) for _, length, kept in seen} == {(342, 42)}
    assert tap_of(told, "eth1")["cut"] == 40
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    key.chmod(0o600)
    nobody = ["--anonymise", str(key), "--format", "pcapng", "--filter", "icmp or host 192.0.2.7"]
    with capturing(tmp_path / "nobody", *nobody) as told:
        ping("-f", "-c", "20", "-s", "300")
    changed = {kept[26:34] for _, _, kept in packets(tmp_path / "nobody/eth1.pcapng")}
    there, back = sorted(changed)
    assert there == back[4:] + back[:4], "the same address becomes the same"
    assert there[:3] == there[4:7], "a common prefix stays one"
    assert bytes([10, 0, 0]) not in there
    assert (tmp_path / "nobody/eth1.pcapng").read_bytes().count(bytes([10, 0, 0, 1])) == 0
    for file in (tmp_path / "nobody").iterdir():
        assert b"192.0.2.7" not in file.read_bytes(), f"{file.name}: an address that the filter names"
    assert b"addresses anonymised" in (tmp_path / "nobody/eth1.pcapng").read_bytes()


def test_capture_files_rotate_and_the_oldest_are_removed_on_request(tmp_path: Path) -> None:
    out = tmp_path / "all"
    with capturing(out, "--rotate-size", "64KiB", "--compress", interfaces=("eth1",)) as told:
        ping("-f", "-c", "2000", "-s", "1000")
    assert tap_of(told, "eth1")["account"]["seen"] == 4000
    names = sorted(path.name for path in out.glob("taps-*"))
    assert len(names) > 2
    assert names[:2] == ["taps-eth1-000000.arrow", "taps-eth1-000001.arrow"]
    assert len(list(out.glob("eth1-*.pcapng.lz4"))) == len(names)
    assert sorted(told["files"]) == sorted(path.name for path in out.iterdir() if path.name != "capture.json")
    rows, counts = read_table(out, "taps").frame, read_table(out, "tap_counts").frame
    assert (len(rows), counts["recorded"].sum(), counts["seen"].sum(), len(counts)) == (4000, 4000, 4000, len(names))
    assert rows["time_ns"].is_sorted()

    out = tmp_path / "newest"
    options = ["--rotate-size", "64KiB", "--budget", "1MiB", "--remove-oldest", "--format", "pcapng"]
    with capturing(out, *options, interfaces=("eth1",)) as told:
        ping("-f", "-c", "2000", "-s", "1000")
    assert tap_of(told, "eth1")["account"]["seen"] == 4000
    files = sorted(out.glob("eth1-*.pcapng"))
    assert told["removed"] > 10
    assert sum(path.stat().st_size for path in files) <= 1 << 20
    last = [length for file in files for _, length, _ in packets(file)]
    assert len(last) > 500
    assert set(last) == {1042}

    argv = inside("x", find_instrument(), "capture", "eth1", "-o", str(tmp_path / "end"), "--budget", "1MiB", "--json")
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        ping("-f", "-c", "2000", "-s", "1000")
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, printed("capture", said)["why"]) == (0, "budget")


def test_summary_lists_all_parts_of_a_capture_ended_by_its_budget(tmp_path: Path) -> None:
    out = tmp_path / "end"
    argv = inside(
        "x", find_instrument(), "capture", "eth1", "-o", str(out), "--rotate-size", "64KiB", "--budget", "512KiB"
    )
    with Child([*argv, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        ping("-f", "-c", "2000", "-s", "1000")
        said, problem = process.communicate(timeout=PATIENCE_SECONDS)
    told = printed("capture", said)
    assert (process.returncode, told["why"], told["removed"]) == (0, "budget", 0), problem
    assert sorted(told["files"]) == sorted(path.name for path in out.iterdir() if path.name != "capture.json")
    assert "eth1-000000.pcapng" in told["files"]
    counts = read_table(out, "tap_counts")
    assert counts.truncated == []
    assert counts.frame["recorded"].sum() == tap_of(told, "eth1")["account"]["seen"]


def test_super_frames_are_reported(tmp_path: Path) -> None:
    server = inside("b", sys.executable, "-c", SERVER)
    with capturing(tmp_path / "c") as told, Child(server, stdout=subprocess.PIPE, text=True) as taker:
        assert taker.stdout is not None
        taker.stdout.readline()
        run(*inside("a", sys.executable, "-c", CLIENT))
        assert taker.wait(PATIENCE_SECONDS) == 0
    assert told["taps"][0]["super_frames"] > 0
    longest = max(length for _, length, _ in packets(tmp_path / "c/eth1.pcapng"))
    assert longest > 1514


SERVER = """
import socket
server = socket.create_server(("10.0.0.2", 5002))
print("listening", flush=True)
connection, _ = server.accept()
while connection.recv(1 << 20):
    pass
"""
CLIENT = """
import socket
with socket.create_connection(("10.0.0.2", 5002)) as sender:
    sender.sendall(bytes(4 << 20))
"""


def test_capture_ends_at_its_count_or_duration_and_its_files_are_private(tmp_path: Path) -> None:
    out = tmp_path / "count"
    argv = inside("x", find_instrument(), "capture", "eth1", "eth2", "-o", str(out), "--count", "50", "--json")
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        ping("-f", "-c", "100")
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    told = printed("capture", said)
    assert (process.returncode, told["why"]) == (0, "count")
    assert sum(len(packets(out / f"{port}.pcapng")) for port in ("eth1", "eth2")) == 50
    text = run(*inside("x", find_instrument(), "capture", "eth1", "-o", str(tmp_path / "time"), "--for", "100ms"))
    assert text.startswith("eth1: frames: 0 in, 0 out, 0 dropped by this capture; timestamps: kernel\n"), text
    assert "the interface counted 0 in, 0 out: each was seen or dropped" in text
    for path in (out, *out.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_deleted_interface_ends_the_capture_and_keeps_its_frames(tmp_path: Path) -> None:
    run(*inside("x", "ip", "link", "add", "gone", "type", "veth", "peer", "name", "far"))
    for end in ("gone", "far"):
        run(*inside("x", "ip", "link", "set", end, "up"))
    argv = inside("x", SOJOURN, "capture", "gone", "-o", str(tmp_path / "c"))
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        send(bytes.fromhex("02000000000202000000000188b5") + bytes(100), "x", "far")
        run(*inside("x", "ip", "link", "set", "gone", "down"))
        time.sleep(0.3)
        assert process.poll() is None, "it is down, and may come up again"
        run(*inside("x", "ip", "link", "del", "gone"))
        _, problem = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, "the interface is gone" in problem) == (4, True), problem
    assert [length for _, length, _ in packets(tmp_path / "c/gone.pcapng")] == [114]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        ([], 2, "name an interface"),
        (["eth1"], 2, "name a folder"),
        (["eth1", "eth1", "-o", "OUT"], 2, "eth1: named twice"),
        ([*(f"eth{one}" for one in range(65)), "-o", "OUT"], 2, "65 interfaces: expected 1 to 64"),
        (["eth9", "-o", "OUT"], 2, "no such interface"),
        (["eth9", "-o", "OUT", "--filter", "udp"], 2, "no such interface"),
        (["eth1", "-o", "OUT", "--snap", "5"], 2, "less than an Ethernet header"),
        (["eth1", "-o", "OUT", "--ring", "1KiB"], 2, "expected 1 MiB to 1 GiB"),
        (["eth1", "-o", "OUT", "--filter", "udp porrt 53"], 2, "syntax error"),
        (["eth1", "-o", "OUT", "--source", "hardware"], 3, "takes no timestamps"),
        (["eth1", "-o", "OLD"], 2, "it holds an earlier capture"),
        (["eth1", "-o", "OUT", "--remove-oldest"], 2, "--budget"),
        (["eth1", "-o", "OUT", "--budget", "1MiB", "--remove-oldest"], 2, "without --rotate-size"),
        (["eth1", "-o", "OUT", "--rotate-size", "1KiB"], 2, "expected 64 KiB or more"),
        (["eth1", "-o", "OUT", "--anonymise", "KEY"], 2, "give --format pcapng"),
        (["eth1", "-o", "OUT", "--anonymise", "KEY", "--format", "pcapng"], 2, "others than its owner may use it"),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(
    words: list[str], status: int, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/capture.json").write_text("{}")
    (tmp_path / "key").write_text("0123456789abcdef")
    (tmp_path / "key").chmod(0o644)
    paths = {"KEY": str(tmp_path / "key"), "OUT": str(tmp_path / "out"), "OLD": str(tmp_path / "old")}
    argv = inside("x", SOJOURN, "capture", *(paths.get(word, word) for word in words))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
    assert sentence in done.stderr
    assert not (tmp_path / "out").exists()


def test_non_ethernet_interfaces_are_refused_and_down_interfaces_reported(tmp_path: Path) -> None:
    made = inside("x", "ip", "tuntap", "add", "dev", "tun7", "mode", "tun")
    if subprocess.run(made, check=False, capture_output=True).returncode == 0:
        argv = inside("x", SOJOURN, "capture", "tun7", "-o", str(tmp_path / "tun"), "--for", "100ms")
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.returncode, "its frames are not Ethernet's" in done.stderr) == (2, True), done.stderr
    run(*inside("x", "ip", "link", "add", "down7", "type", "veth", "peer", "name", "down8"))
    argv = inside("x", SOJOURN, "capture", "down7", "lo", "-o", str(tmp_path / "down"), "--for", "100ms")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[:2] == [
        "sojourn: down7 is down: nothing passes it until it is up",
        "sojourn: lo is down: nothing passes it until it is up",
    ]


def test_under_sudo_a_capture_belongs_to_the_calling_user_if_possible(tmp_path: Path) -> None:
    sudo = ["env", "SUDO_UID=1", "SUDO_GID=1", "SUDO_USER=daemon", "SUDO_COMMAND=sojourn"]
    with tempfile.TemporaryDirectory() as name:
        open_to_all = Path(name)
        open_to_all.chmod(0o777)
        captured_by(sudo, open_to_all / "c", 1)
        again = open_to_all / "again"  # a folder that is there already
        again.mkdir()
        os.chown(again, 1, 1)
        captured_by(sudo, again, 1)
    captured_by(sudo, tmp_path / "c", 0)


def captured_by(sudo: list[str], out: Path, owner: int) -> None:
    """A capture under sudo, whose files belong to this user."""
    run(*inside("x", *sudo, SOJOURN, "capture", "eth1", "-o", str(out), "--for", "100ms"))
    assert {path.stat().st_uid for path in (out, *out.iterdir())} == {owner}
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}


def test_without_libpcap_everything_works_except_filters(tmp_path: Path) -> None:
    hide = "for f in $(ldconfig -p | sed -n 's/.*libpcap.*=> //p'); do mount --bind /dev/null $f; done; exec \"$@\""
    argv = inside("x", "unshare", "--mount", "sh", "-c", hide, "sh", SOJOURN, "capture", "eth1", "--for", "100ms")
    done = subprocess.run([*argv, "-o", str(tmp_path / "c")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    filtered = [*argv, "-o", str(tmp_path / "d"), "--filter", "udp"]
    done = subprocess.run(filtered, capture_output=True, text=True, check=False)
    assert (done.returncode, "--filter needs libpcap" in done.stderr) == (3, True), done.stderr


def test_missing_capability_is_named_with_its_fix(tmp_path: Path) -> None:
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    argv = inside("x", *as_nobody, find_instrument(), "capture", "eth1", "-o", str(tmp_path / "c"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "Permission denied" in done.stderr and "setpriv" in done.stderr:
        pytest.skip("another user cannot reach the program here")
    assert (done.returncode, "CAP_NET_RAW" in done.stderr) == (3, True), done.stderr


def test_tap_server_counts_frames_and_refuses_wrong_requests(tmp_path: Path) -> None:
    taps = serve()
    try:
        assert taps.ready["filters"]
        with pytest.raises(RequestError, match="no tap is attached"):
            taps.stop()
        with pytest.raises(RequestError, match="no such interface"):
            taps.start(tmp_path / "c", [{"name": "one", "interface": "eth9"}])
        with pytest.raises(RequestError, match="letters and digits"):
            taps.start(tmp_path / "c", [{"name": "../one", "interface": "eth1"}])
        with pytest.raises(RequestError, match="unknown field"):
            taps.start(tmp_path / "c", [{"name": "one", "interface": "eth1", "options": {"snapp": 1}}])
        started = taps.start(tmp_path / "c", both(filter="icmp"), block=3)
        assert (started["block"], [tap["source"] for tap in started["taps"]]) == (3, ["kernel", "kernel"])
        with pytest.raises(RequestError, match="attached already"):
            taps.start(tmp_path / "d", both())
        ping("-f", "-c", "20")
        await_that(lambda: taps.seen() == 80, "the taps have seen all")
        stopped = taps.stop()
        assert [tap["account"]["seen"] for tap in stopped["taps"]] == [40, 40]
        with pytest.raises(RequestError, match="exists already"):
            taps.start(tmp_path / "c", both())
        taps.start(tmp_path / "d", both())
    finally:
        taps.finish()
    files = {f"{kind}-{name}-000.arrow" for kind in ("taps", "tap_counts") for name in ("near", "far")}
    assert {path.name for path in (tmp_path / "d").iterdir()} == files | {"near.pcapng", "far.pcapng"}


def serve() -> TapInstrument:
    """A server of taps on the box."""

    def start(argv: list[str], **popen: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(inside("x", *argv), **popen)

    return TapInstrument(start, tap_argv(find_instrument()))


def both(**options: Any) -> list[dict[str, Any]]:
    return [{"name": name, "interface": port, "options": options} for name, port in (("near", "eth1"), ("far", "eth2"))]


def send(frame: bytes, host: str = "a", dev: str = "eth1") -> None:
    """One frame out of an interface."""
    script = "import socket,sys; s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW); "
    script += "s.bind((sys.argv[1],0)); s.send(bytes.fromhex(sys.argv[2]))"
    run(*inside(host, sys.executable, "-c", script, dev, frame.hex()))
