"""Everyday traffic through the emulating bridge: what a network carries, and what happens to a network.

Three namespaces of the tests' own: `a` and `b` talk, `box` between them runs `sojourn emulate`. Peers are real: ping,
iperf3, dnsmasq, tcpdump, trafgen. What is judged is counted, or bounded by physics from below; how exact times are is
judged elsewhere (`sojourn emulate verify`, `make bench`), for the machine may be busy.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.instruments import find_instrument
from sojourn.records.pcap import read_packets
from tests.children import Child
from tests.net.busy_machine import await_standstill, await_that, retried, thrice, undisturbed
from tests.unit.printed_json import held, printed, printed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = f"sojourn-emulate-{os.getpid()}"
PATIENCE_SECONDS = 60
MACS = {"a0": "02:77:00:00:0b:01", "b0": "02:77:00:00:0b:02"}
ENDED = "ended"
OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

Told = dict[str, Any]


def inside(host: str, *argv: str) -> list[str]:
    """A command as it runs on one of the hosts."""
    return ["ip", "netns", "exec", f"{NAME}-{host}", *argv]


def run(*argv: str) -> str:
    """A command that must not fail."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"
    return done.stdout


@pytest.fixture(autouse=True)
def hosts() -> Iterator[None]:
    """Two hosts and a box with two ports, new for each test: one of them pulls a port out."""
    names = ["a", "b", "box"]
    for name in names:
        run("ip", "netns", "add", f"{NAME}-{name}")
    try:
        for number, host in enumerate("ab", start=1):
            port = "left" if host == "a" else "right"
            ends = ["netns", f"{NAME}-box", "type", "veth", "peer", "name", f"{host}0", "netns", f"{NAME}-{host}"]
            run("ip", "link", "add", "name", port, *ends)
            run(*inside(host, "ip", "link", "set", "lo", "up"))
            run(*inside(host, "ip", "link", "set", f"{host}0", "address", MACS[f"{host}0"], "up"))
            run(*inside(host, "ip", "address", "add", f"10.79.11.{number}/24", "dev", f"{host}0"))
            run(*inside("box", "sysctl", "-q", "-w", f"net.ipv6.conf.{port}.disable_ipv6=1"))
            run(*inside("box", "ip", "link", "set", port, "up"))
        yield
    finally:
        for name in names:
            for pid in subprocess.run(
                ["ip", "netns", "pids", f"{NAME}-{name}"], check=False, capture_output=True, text=True
            ).stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "del", f"{NAME}-{name}")


class Emulator:
    """`sojourn emulate` in the box, from ready until stopped."""

    def __init__(self, control: Path, *words: str) -> None:
        self.control = control
        argv = [find_instrument(), "emulate", "run", "left", "right", "--json", "--control", str(control), *words]
        self.process = subprocess.Popen(
            inside("box", *argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.ready = self.line()
        assert self.ready["event"] == "ready", self.ready

    def line(self) -> Told:
        """What it says next."""
        assert self.process.stdout is not None
        found, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
        assert found, "it says nothing"
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.process.stderr.read() if self.process.stderr else ''}"
        said: Told = printed("emulate-run", line)
        return said

    def ask(self, **request: Any) -> Told:
        """One request at the control socket."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE_SECONDS)
            line.connect(str(self.control))
            line.sendall(json.dumps(request).encode() + b"\n")
            answer: Told = json.loads(line.makefile().readline())
        if request == {"do": "show"}:
            held("emulate-show", answer)
        return answer

    def close(self) -> None:
        """Take what it has left to say, and its status."""
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()
        self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> Told:
        """End it well; its summary."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, (self.process.returncode, err)
        last: Told = printed_lines("emulate-run", out)[-1]
        assert last["event"] == ENDED
        return last


@contextmanager
def emulating(folder: Path, *words: str) -> Iterator[Emulator]:
    """An emulator for the time of a block of code."""
    emulator = Emulator(folder / "control", *words)
    try:
        yield emulator
    finally:
        if emulator.process.poll() is None:
            emulator.process.kill()
        emulator.close()


@pytest.fixture(params=["xdp", "packet"])
def engine(request: pytest.FixtureRequest) -> list[str]:
    """Both ways to move frames."""
    return ["--engine", str(request.param)]


def ping(count: int, *words: str) -> list[float]:
    """Round-trip times in milliseconds, from a to b; while a busy machine delays an answer, more requests are sent."""
    paced = ["-c", str(count), "-i", "0.02", "-w", "30"]
    out = run(*inside("a", "ping", "-n", *paced, *words, "10.79.11.2"))
    found = re.findall(r"icmp_seq=(\d+) ttl=.* time=([0-9.]+) ms", out)
    assert {int(number) for number, _ in found} == set(range(1, count + 1)), out
    return [float(time) for _, time in found]


def losses(report: Told) -> dict[str, int]:
    """What was lost in all pipes, by cause."""
    total: dict[str, int] = {}
    for pipe in report["pipes"]:
        for cause, count in pipe["lost"].items():
            total[cause] = total.get(cause, 0) + count
    return total


def dropped(report: Told) -> dict[str, int]:
    """The same without what was on its way as the emulator ended: `ping -w` may ask once more than is answered."""
    return {cause: count for cause, count in losses(report).items() if cause != "ended"}


def test_ping_and_arp_pass_and_are_delayed(tmp_path: Path, engine: list[str]) -> None:
    with emulating(tmp_path, "--delay", "5ms", *engine) as emulator:
        times = ping(20)
        assert min(times) >= 9.9, "only the cost of sending is subtracted from its time"
        report = emulator.stop()["report"]
    assert not sum(dropped(report).values())


def test_iperf3_over_tcp_with_all_offloads_on(tmp_path: Path, engine: list[str]) -> None:
    """Super-frames and unfinished checksums are what a veth gives by default."""
    with emulating(tmp_path, *engine), iperf_server():
        done = iperf("-t", "2")
    assert done["end"]["sum_received"]["bytes"] > 5_000_000


@pytest.mark.parametrize(("rate_mbps", "delay_ms"), [(10, 5), (50, 2)])
@retried
def test_bulk_flow_gets_the_rate_of_the_link(tmp_path: Path, rate_mbps: int, delay_ms: int) -> None:
    words = f"rate {rate_mbps}Mbit/s delay {delay_ms}ms"
    with emulating(tmp_path, "--forward", words, "--backward", f"delay {delay_ms}ms"), iperf_server():
        done = iperf("-t", "3", "-O", "1")
    received = done["end"]["sum_received"]["bits_per_second"]
    most = rate_mbps * 1e6 * 1448 / 1514
    with undisturbed():  # a link that stood still makes up for it, or gives less than it has
        assert received <= most * 1.01, "faster than the link"
        assert received >= most * 0.7, "a queue of bandwidth times delay keeps a Reno or Cubic flow busy"


@retried
def test_udp_below_the_link_rate_loses_nothing_and_above_it_the_excess(tmp_path: Path) -> None:
    with emulating(tmp_path, "--forward", "rate 10Mbit/s queue 100") as emulator, iperf_server():
        below = iperf("-u", "-b", "5M", "-l", "1200", "-t", "2")
        with undisturbed():  # a sender that was held up for 0.2 s sends as much at once as the queue holds
            assert below["end"]["sum"]["lost_packets"] == 0
        above = iperf("-u", "-b", "20M", "-l", "1200", "-t", "2")
        report = emulator.stop()["report"]
    share = 1 - 10 / (20 * 1242 / 1200)
    with undisturbed():
        assert above["end"]["sum"]["lost_percent"] == pytest.approx(100 * share, abs=8)
    assert losses(report)["full"] > 0


@pytest.mark.parametrize(
    ("queue", "least_ms", "most_ms"),
    [
        ("", 150, 205),  # 200 packets of 1,242 bytes take 199 ms; without this row the others would show nothing
        ("red 0.002/5/15/0.1", 4, 35),  # thresholds of 5 and 15 packets of 1 ms each
        # Above the upper threshold the drop probability rises up to twice that threshold.
        pytest.param("gred 0.002/5/15/0.1", 4, 45, marks=pytest.mark.proof),
        ("pie", 5, 40),  # target 15 ms
        ("dualpi2", 5, 40),  # target 15 ms
    ],
)
@retried
def test_aqm_limits_the_delay_under_overload(tmp_path: Path, queue: str, least_ms: float, most_ms: float) -> None:
    """Load that does not react, a quarter more than the link carries: all of it is lost, and the queue stays short.

    How much more comes of what arrived: on a busy machine iperf3 catches up in bursts, or lacks its server's counts.
    """
    with emulating(tmp_path, "--forward", f"rate 10Mbit/s queue 200 {queue}") as emulator, iperf_server():
        done = iperf("-u", "-b", "12M", "-l", "1200", "-t", "5")
        forward = emulator.stop()["report"]["pipes"][0]
    delay_ms = forward["queueing_delay"]["p50_ns"] / 1e6
    lost = forward["lost"]
    arrived = forward["sent"] + sum(lost.values())
    carried = 10e6 * done["end"]["sum"]["seconds"] / (8 * 1242)
    print(f"{queue or 'fifo'}: median queueing delay {delay_ms:.1f} ms; {arrived} arrived; lost {lost}")
    with undisturbed():
        assert least_ms <= delay_ms <= most_ms
        assert arrived > 1.15 * carried
        assert sum(lost.values()) == pytest.approx(arrived - carried, abs=0.06 * arrived)
        assert lost["managed"] > 5 * lost["full"] if queue else lost["managed"] == 0


@retried
def test_dualpi2_serves_l4s_traffic_first_and_marks_it(tmp_path: Path) -> None:
    """Echo requests with ECT(1) go past a queue of classic traffic, and are marked as that load is dropped."""
    with emulating(tmp_path, "--forward", "rate 10Mbit/s queue 200 dualpi2") as emulator, iperf_server():
        load = inside("a", "iperf3", "-c", "10.79.11.2", "-u", "-b", "12M", "-l", "1200", "-t", "8")
        process = subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(2)
            l4s = echo_times("-Q", "1")
            classic = echo_times("-Q", "0")
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
            process.wait()
        forward = emulator.stop()["report"]["pipes"][0]
    print(f"ECT(1) {median(l4s):.1f} ms, not ECT {median(classic):.1f} ms, marked {forward['marked']}")
    with undisturbed():
        assert median(l4s) < median(classic) / 2
        assert 0 < forward["marked"] <= forward["sent"]


def block_of_the_guide(kind: str) -> str:
    """A file that docs/guide/emulate.md shows."""
    page = Path(__file__).parents[2] / "docs/guide/emulate.md"
    [block] = re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return str(block)


@thrice
def test_ipfw_file_is_emulated_as_written(tmp_path: Path) -> None:
    (tmp_path / "dummynet.ipfw").write_text(block_of_the_guide("ipfw"))
    with emulating(tmp_path, "-C", str(tmp_path / "dummynet.ipfw")) as emulator:
        times = ping(10, "-i", "0.05")
        asks = (
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('10.79.11.2', 4000))"
        )
        run(*inside("a", sys.executable, "-c", asks))
        await_that(lambda: emulator.ask(do="show")["report"]["lost_by_rules"] == 1, "a rule drops UDP to port 4000")
        report = emulator.stop()["report"]
    # 20 ms and the link's time for 98 bytes there, 5 ms back.
    assert min(times) >= 25.0 + 98 * 8 / 10e3
    with undisturbed():
        assert median(times) < 27.0
    assert [pipe["name"] for pipe in report["pipes"]] == ["1", "2"]
    assert [pipe["sent"] for pipe in report["pipes"]] >= [10, 10]


@thrice
def test_profile_delays_each_packet_by_one_of_its_values(tmp_path: Path) -> None:
    (tmp_path / "radio.profile").write_text(block_of_the_guide("profile"))
    words = f'profile "{tmp_path}/radio.profile"'
    with emulating(tmp_path, "--forward", words):
        times = ping(60, "-i", "0.04")
    assert len(times) == 60
    assert min(times) >= 10.0 + 98 * 8 / 10e3
    with undisturbed():
        short = [time for time in times if time < 15.0]
        # Half of sixty, five standard deviations about.
        assert 11 <= len(short) <= 49, times
        usual = [time for time in times if time < 12.0 or 20.0 <= time < 33.0]
        assert len(usual) >= 57, times  # three may have waited for a processor


def echo_times(*words: str) -> list[float]:
    """Round-trip times in milliseconds of the echo requests that were answered, of a hundred."""
    argv = inside("a", "ping", "-n", "-c", "100", "-i", "0.02", "-W", "1", *words, "10.79.11.2")
    out = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout
    times = [float(one) for one in re.findall(r"time=([0-9.]+) ms", out)]
    assert len(times) > 20, out
    return times


@contextmanager
def iperf_server() -> Iterator[None]:
    """iperf3 at b."""
    process = subprocess.Popen(inside("b", "iperf3", "-s"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_port("b", 5201)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def wait_for_port(host: str, port: int) -> None:
    """Until somebody listens there."""
    end = time.monotonic() + PATIENCE_SECONDS
    while f":{port} " not in run(*inside(host, "ss", "-Htuln")):
        assert time.monotonic() < end, f"nobody listens at {port}"
        time.sleep(0.05)


def iperf(*words: str) -> Told:
    """One measurement from a to b."""
    done: Told = json.loads(run(*inside("a", "iperf3", "-c", "10.79.11.2", "-J", *words)))
    return done


def test_dns_is_answered_through_a_lossy_path(tmp_path: Path) -> None:
    assert shutil.which("dnsmasq"), "dnsmasq is missing: make setup"
    answers = ["--no-daemon", "--no-resolv", "--no-hosts", "--address=/box.example/192.0.2.7", "--user=root"]
    server = subprocess.Popen(
        inside("b", "dnsmasq", *answers, "--pid-file="), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_port("b", 53)
        with emulating(tmp_path, "--delay", "2ms", "--loss", "20%"):
            assert run(*inside("a", sys.executable, "-c", ASK)).strip().endswith("c0000207")
    finally:
        server.kill()
        server.wait()


ASK = """
import socket
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.settimeout(0.3)
question = bytes.fromhex("123401000001000000000000") + b"\\x03box\\x07example\\x00\\x00\\x01\\x00\\x01"
for _ in range(40):
    line.sendto(question, ("10.79.11.2", 53))
    try:
        print(line.recv(512).hex())
        break
    except TimeoutError:
        pass
"""


def test_jumbo_frames_pass(tmp_path: Path) -> None:
    for host, dev in (("a", "a0"), ("b", "b0"), ("box", "left"), ("box", "right")):
        run(*inside(host, "ip", "link", "set", dev, "mtu", "9000"))
    with emulating(tmp_path, "--delay", "1ms") as emulator:
        assert ping(5, "-M", "do", "-s", "8900"), emulator.ready


def test_tagged_frames_keep_their_tag_and_stp_and_multicast_pass(tmp_path: Path, engine: list[str]) -> None:
    source = bytes.fromhex(MACS["a0"].replace(":", ""))
    payload = bytes(range(60))
    frames = {
        "tagged": bytes.fromhex(MACS["b0"].replace(":", "")) + source + bytes.fromhex("8100a06408005b") + payload,
        "twice": bytes.fromhex(MACS["b0"].replace(":", "")) + source + bytes.fromhex("88a8000181000002fff0") + payload,
        "stp": bytes.fromhex("0180c2000000") + source + bytes.fromhex("0026424203") + payload,
        "multicast": bytes.fromhex("01005e4d0001") + source + bytes.fromhex("88b7") + payload,
    }
    with emulating(tmp_path, "--forward", "delay 1ms", *engine):
        capture = tmp_path / "b.pcap"
        with capturing("b", "b0", capture):
            for frame in frames.values():
                run(*inside("a", sys.executable, "-c", SEND, "a0", frame.hex(), "3"))
            ours = [frame.hex() for frame in frames.values()]
            await_that(lambda: sum(one.hex() in ours for one in captured(capture)) >= 12, "twelve frames")
            time.sleep(0.2)  # for those that came once too often
        seen = list(captured(capture))
    for name, frame in frames.items():
        assert seen.count(frame) == 3, name


SEND = """
import socket, sys
line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
line.bind((sys.argv[1], 0))
for _ in range(int(sys.argv[3])):
    line.send(bytes.fromhex(sys.argv[2]))
"""


@contextmanager
def capturing(host: str, dev: str, file: Path) -> Iterator[None]:
    """tcpdump on a port, for the time of a block of code."""
    argv = ["tcpdump", "-i", dev, "-n", "-Q", "in", "-U", "--immediate-mode", "-Z", "root", "-w", str(file)]
    process = subprocess.Popen(inside(host, *argv), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "listening on" not in (line := process.stderr.readline()):
        assert line, "tcpdump ended"
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)


def captured(file: Path) -> Iterator[bytes]:
    """The frames of a capture, which may still be written."""
    return (block.packet for block in read_packets(file))


def test_a_broadcast_storm_is_accounted_for_to_the_frame(tmp_path: Path) -> None:
    storm = 200_000
    with emulating(tmp_path, "--forward", "rate 50Mbit/s queue 100", "--memory", "4MiB") as emulator:
        before = handed_over("a0")
        frame = "{ eth(da=ff:ff:ff:ff:ff:ff, sa=02:77:00:00:0b:01, proto=0x88b7), fill(0, 46) }"
        run(*inside("a", "trafgen", "-o", "a0", "-n", str(storm), "-P", "1", frame))
        came = handed_over("a0") - before
        await_standstill(lambda: counted(emulator.ask(do="show")["report"]))
        report = emulator.stop()["report"]
    forward, own = counted(report)
    assert came >= storm * 0.9, "trafgen sent next to nothing"
    assert forward["arrived"] + own == pytest.approx(came, abs=50), "a few frames of the stack's own beside"
    assert forward["arrived"] == forward["sent"] + sum(forward["lost"].values())
    assert forward["lost"]["full"] > 0
    assert not any(count for cause, count in forward["lost"].items() if cause not in ("full", "memory"))


@pytest.mark.parametrize("seconds", [1.0, pytest.param(60.0, marks=(pytest.mark.proof, pytest.mark.alone))])
def test_malformed_and_random_frames_are_forwarded_like_others(
    tmp_path: Path, engine: list[str], seconds: float
) -> None:
    request = {
        "kind": "stream", "dev": "a0", "mac": MACS["b0"], "to": "10.79.11.2", "from": "10.79.11.1",
        "from_port": 40_000, "recorded": None,
    }  # fmt: skip
    argv = inside("a", sys.executable, str(Path(__file__).with_name("attacker.py")), json.dumps(request))
    with emulating(tmp_path, "--delay", "1ms", *engine) as emulator:
        before = handed_over("a0")
        with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as attacker:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == "attacking\n"
            time.sleep(seconds)
            sent = sum(json.loads(attacker.communicate(timeout=PATIENCE_SECONDS)[0]).values())
        await_standstill(lambda: counted(emulator.ask(do="show")["report"]))
        came = handed_over("a0") - before
        times = ping(5)
        report = emulator.stop()["report"]
    forward, own = counted(report)
    assert sent > 1000
    # What the box's port had no room for its neighbour refuses to hand over, or the box counts as its own.
    assert forward["arrived"] + own == pytest.approx(came, abs=50), "a few frames of the stack's own beside"
    assert forward["arrived"] == forward["sent"] + forward["held"] + sum(forward["lost"].values())
    # A flood that is faster than the emulator fills its memory, which it says; no frame is lost for what it holds.
    assert not any(count for cause, count in forward["lost"].items() if cause != "memory")
    assert min(times) >= 1.9


def counted(report: Told) -> tuple[Told, int]:
    """The forward pipe's counts, and what the ports had no room for."""
    forward = next(pipe for pipe in report["pipes"] if pipe["name"] == "forward")
    counts = {name: forward[name] for name in ("arrived", "sent", "held", "lost")}
    return counts, sum(port["local_drops"] for port in report["ports"])


def handed_over(dev: str) -> int:
    """How many frames a's port has handed to the box: those that the box's port had no room for are not among them."""
    (link,) = json.loads(run(*inside("a", "ip", "-s", "-j", "link", "show", "dev", dev)))
    return int(link["stats64"]["tx"]["packets"])


def test_a_port_that_goes_down_and_up_comes_back(tmp_path: Path, engine: list[str]) -> None:
    with emulating(tmp_path, "--delay", "1ms", *engine) as emulator:
        assert ping(3)
        run(*inside("box", "ip", "link", "set", "right", "down"))
        subprocess.run(
            inside("a", "ping", "-c", "5", "-i", "0.02", "-W", "1", "10.79.11.2"), check=False, capture_output=True
        )
        run(*inside("box", "ip", "link", "set", "right", "up"))
        end = time.monotonic() + PATIENCE_SECONDS
        while subprocess.run(
            inside("a", "ping", "-c", "1", "-W", "1", "10.79.11.2"), check=False, capture_output=True
        ).returncode:
            assert time.monotonic() < end, "it does not come back"
        emulator.stop()


def test_deleted_port_ends_the_emulator_with_one_sentence(tmp_path: Path, engine: list[str]) -> None:
    with emulating(tmp_path, "--delay", "1ms", *engine) as emulator:
        run(*inside("box", "ip", "link", "del", "right"))
        out, err = emulator.process.communicate(timeout=PATIENCE_SECONDS)
        assert emulator.process.returncode == 4, (out, err)
        assert len(err.strip().splitlines()) == 1
        assert "right" in err
    assert "xdp" not in run(*inside("box", "ip", "link", "show", "dev", "left"))


def test_mtu_change_is_followed(tmp_path: Path) -> None:
    with emulating(tmp_path, "--delay", "1ms"):
        assert ping(3, "-s", "1400")
        for host, dev in (("a", "a0"), ("b", "b0"), ("box", "left"), ("box", "right")):
            run(*inside(host, "ip", "link", "set", dev, "mtu", "1300"))
        assert ping(3, "-M", "do", "-s", "1200")


def test_full_memory_drops_packets_and_is_reported(tmp_path: Path) -> None:
    with emulating(tmp_path, "--forward", "delay 20s", "--memory", "1MiB") as emulator:
        frame = (bytes.fromhex("ffffffffffff") + bytes.fromhex(MACS["a0"].replace(":", "")) + b"\x88\xb7").hex()
        run(*inside("a", sys.executable, "-c", SEND, "a0", frame + "5a" * 1400, "3000"))
        await_standstill(lambda: counted(emulator.ask(do="show")["report"]))
        report = emulator.ask(do="show")
        forward = next(pipe for pipe in report["report"]["pipes"] if pipe["name"] == "forward")
        assert forward["lost"]["memory"] > 1000
        assert report["report"]["memory"]["held_bytes"] <= 1 << 20
        emulator.stop()


def test_parameters_change_while_packets_pass_and_none_is_lost(tmp_path: Path, engine: list[str]) -> None:
    order = random.Random(1)
    with emulating(tmp_path, "--delay", "3ms", *engine) as emulator:
        pinging = subprocess.Popen(
            inside("a", "ping", "-n", "-c", "300", "-i", "0.005", "-w", "120", "10.79.11.2"),
            stdout=subprocess.PIPE,
            text=True,
        )
        while pinging.poll() is None:
            words = order.choice(["delay 1ms", "delay 3ms", "rate 100Mbit/s", "delay 2ms rate 1Gbit/s"])
            assert emulator.ask(do="set", pipe=order.choice(["forward", "backward"]), words=words)["ok"]
            time.sleep(0.02)
        out, _ = pinging.communicate()
        # With `-w` it ends at the 300th answer; a few more may have come together with that one.
        assert int(re.findall(r"(\d+) received", out)[0]) >= 300, out[-300:]
        answered = {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl=", out)}
        # Those that were sent last, while a busy machine delayed an answer, may still be on their way.
        assert answered >= set(range(1, 281)), out[-300:]
        asked = ("set", "forward", "delay", "2ms", "--control", str(emulator.control))
        told = printed("emulate-set", run(find_instrument(), "emulate", *asked, "--json"))
        assert told["ports"] == ["left", "right"]
        (pipe,) = told["pipes"]
        assert pipe["name"] == "forward"
        assert "delay 2ms" in pipe["words"]
        assert f"  forward: {pipe['words']}\n" in run(find_instrument(), "emulate", *asked)
        refused = emulator.ask(do="set", pipe="forward", words="delay fast")
        assert "error" in refused
        assert len(refused["error"].splitlines()) == 1
        report = emulator.stop()["report"]
    assert not sum(dropped(report).values())


def test_nothing_is_left_after_sigkill(tmp_path: Path) -> None:
    with emulating(tmp_path, "--delay", "1ms") as emulator:
        assert (emulator.control.stat().st_mode & 0o777) == 0o600
        pids = run("ip", "netns", "pids", f"{NAME}-box").split()  # one of them removes the socket afterwards
        (child,) = (pid for pid in pids if b"remove-socket" not in Path("/proc", pid, "cmdline").read_bytes())
        os.kill(int(child), signal.SIGKILL)
        emulator.process.wait(PATIENCE_SECONDS)
    await_that(lambda: not left_on_ports(), "ports as they were")
    with emulating(tmp_path, "--delay", "1ms") as again:
        again.stop()


def test_log_of_an_emulator_is_private(tmp_path: Path, engine: list[str]) -> None:
    """While it is written and afterwards: it has addresses and payload."""
    log = tmp_path / "logs/one"
    before = os.umask(0o022)
    try:
        with emulating(tmp_path, *engine, "--delay", "1ms", "--log", str(log)) as emulator:
            ping(5)
            while_written = modes(log)
            emulator.stop()
    finally:
        os.umask(before)
    names = {"packets-emulate-000.arrow", "emulation-emulate-000.jsonl"}
    assert while_written == modes(log) == {".": 0o700} | dict.fromkeys(names, 0o600)


def modes(folder: Path) -> dict[str, int]:
    """The modes of a folder and of all that is in it, by their names."""
    every = (folder, *folder.rglob("*"))
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in every}


def left_on_ports() -> list[str]:
    """What an emulator has put on the ports of the box."""
    shown = [run(*inside("box", "ip", "link", "show", "dev", port)) for port in ("left", "right")]
    return [trace for text in shown for trace in ("xdp", "PROMISC") if trace in text]
