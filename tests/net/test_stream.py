"""Streams over real frames: each engine and schedule, conserved to the packet against the interfaces' own counters.

A switch joins three hosts: `a` sends, `b` and `c` receive. A further pair joins `a` and `b` without it. All is in
network namespaces of the tests' own. What is judged is counted, not timed: the machine may be busy.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from scipy.stats import binomtest

from sojourn.instruments import find_instrument
from sojourn.records import read_table
from tests.children import Child
from tests.net.busy_machine import await_standstill, await_that, retried, thrice, undisturbed
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
NAME = f"sojourn-stream-{os.getpid()}"
LINKS = Path(__file__).parents[2] / "crates/port/tests/links/links.py"
PATIENCE_SECONDS = 60
MACS = {"a0": "02:77:00:00:09:01", "b0": "02:77:00:00:09:02", "c0": "02:77:00:00:09:03"}
MACS |= {"a1": "02:77:00:00:08:01", "b1": "02:77:00:00:08:02"}
KEY = "0123456789abcdef"
GROUP = "01:00:5e:4d:00:09"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

Told = dict[str, Any]


def inside(host: str, *argv: str) -> list[str]:
    """A command as it runs on one of the hosts."""
    return ["ip", "netns", "exec", f"{NAME}-{host}", *argv]


def run(*argv: str) -> str:
    """A command that must not fail."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    names = ["a", "b", "c", "switch"]
    for name in names:
        run("ip", "netns", "add", f"{NAME}-{name}")
    try:
        build()
        yield
    finally:
        for name in names:
            run("ip", "netns", "del", f"{NAME}-{name}")


def build() -> None:
    """The switch and its three links, and the pair beside it."""
    run(*inside("switch", "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"))
    run(*inside("switch", "ip", "link", "set", "br0", "up"))
    for number, host in enumerate("abc", start=1):
        dev, peer = f"{host}0", f"s{host}"
        ends = ["netns", f"{NAME}-switch", "type", "veth", "peer", "name", dev, "netns", f"{NAME}-{host}"]
        run("ip", "link", "add", peer, *ends)
        run(*inside("switch", "ip", "link", "set", peer, "master", "br0", "up"))
        configure(host, dev, f"10.79.9.{number}", f"fd79::9:{number}")
    run("ip", "link", "add", "a1", "netns", f"{NAME}-a", "type", "veth", "peer", "name", "b1", "netns", f"{NAME}-b")
    configure("a", "a1", "10.79.8.1", "fd79::8:1")
    configure("b", "b1", "10.79.8.2", "fd79::8:2")


def configure(host: str, dev: str, ipv4: str, ipv6: str) -> None:
    """Address an end and switch it on."""
    run(*inside(host, "ip", "link", "set", dev, "address", MACS[dev], "up"))
    run(*inside(host, "ip", "link", "set", "lo", "up"))
    run(*inside(host, "ip", "address", "add", f"{ipv4}/24", "broadcast", "+", "dev", dev))
    run(*inside(host, "ip", "address", "add", f"{ipv6}/112", "dev", dev, "nodad"))


def stream(host: str, *words: str, status: int = 0) -> Told:
    """`sojourn stream ...` on a host, told as JSON."""
    argv = inside(host, find_instrument(), "stream", *words, "--json")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == status, done.stderr
    told: Told = printed(f"stream-{words[0]}", done.stdout)
    return told


class Receiver:
    """A running `sojourn stream recv`."""

    def __init__(self, host: str, *words: str) -> None:
        argv = inside(host, find_instrument(), "stream", "recv", *words, "--json")
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        assert said.startswith("receiving"), said + self.process.stderr.read()

    def told(self, status: int = 0) -> Told:
        """What it tells in the end."""
        out, said = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == status, said
        told: Told = printed("stream-recv", out)
        return told


@contextmanager
def receiving(host: str, *words: str) -> Iterator[Receiver]:
    """A receiver that is ended in any case."""
    receiver = Receiver(host, *words)
    try:
        yield receiver
    finally:
        if receiver.process.poll() is None:
            receiver.process.kill()
            receiver.process.communicate()


def counter(host: str, dev: str, name: str) -> int:
    """What an interface counted since it was made."""
    shown = json.loads(run(*inside(host, "ip", "-s", "-j", "link", "show", "dev", dev)))[0]
    direction, _, what = name.partition("_")
    return int(shown["stats64"][direction][what])


def one(told: Told) -> Told:
    """The only flow."""
    flow: Told
    (flow,) = told["flows"]
    return flow


def conserved(sent: Told, received: Told) -> None:
    """Every frame that was asked for is in exactly one count, at either end."""
    assert sent["asked"] == sent["sent"] + sent["refused"] + sent["unsent"]
    accounted = received["first"] + received["corrupted"] + received["local_drops"] + received["lost"]
    assert received["sent"] == sent["sent"] == accounted


def names(told: Told) -> set[str]:
    """The names of what was found."""
    return {found["name"] for found in told["findings"]}


SCHEDULES = [
    ("--schedule", "regular", "--rate", "2kpps"),
    ("--schedule", "poisson", "--rate", "2kpps"),
    ("--schedule", "burst:50", "--rate", "2kpps"),
    ("--schedule", "ramp:500-2000"),
]
ENGINES = {
    "packet": (("--dev", "a0", "--to", MACS["b0"]), ("--dev", "b0")),
    "udp": (("--udp", "10.79.9.2"), ("--udp",)),
    "udp6": (("--udp", "fd79::9:2"), ("--udp", "--ipv6")),
    "xdp": (("--dev", "a1", "--to", MACS["b1"], "--engine", "xdp"), ("--dev", "b1", "--engine", "xdp")),
}
RECEIVED_BY = {"packet": "AF_PACKET recvmmsg", "udp": "UDP recvmmsg", "udp6": "UDP recvmmsg", "xdp": "AF_XDP"}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda words: words[1])
@pytest.mark.parametrize("engine", ENGINES)
@retried
def test_every_frame_of_every_schedule_is_accounted_for(engine: str, schedule: tuple[str, ...]) -> None:
    there, here = ENGINES[engine]
    with receiving("b", *here) as receiver:
        sent = one(stream("a", "send", *there, *schedule, "--count", "500"))
        told = receiver.told()
    received = one(told)
    assert [name.startswith(RECEIVED_BY[engine]) for name in told["engines"]] == [True], told["engines"]
    conserved(sent, received)
    assert (sent["sent"], received["first"], received["lost"]) == (500, 500, 0)
    assert (received["duplicated"], received["corrupted"]) == (0, 0)
    with undisturbed():  # a sender that is moved to another processor may overtake what it left on the first
        assert received["reordered"] == 0
    clock = received["one_way_delay"]["clock"]
    assert (clock["source"], clock["bound_ns"]) == ("shared", 0), "one host has one clock, and it is said"
    assert received["one_way_delay"]["from_send_call"]["min_ns"] >= 0
    # A sender calls ahead by what the way to the wire takes: single frames may be early, but not half by a whole way.
    assert received["one_way_delay"]["from_intended"]["p50_ns"] > 0
    if schedule[1] == "poisson":
        assert sent["anderson_darling"]["n"] > 100


@pytest.mark.parametrize("size", ["64", "512", "1518"])
def test_frames_have_the_requested_length_and_are_conserved(size: str) -> None:
    def counters() -> list[int]:
        return [counter("a", "a1", "tx_packets"), counter("b", "b1", "rx_packets"), counter("b", "b1", "rx_bytes")]

    before = await_standstill(counters)
    with receiving("b", "--dev", "b1") as receiver:
        words = ["--dev", "a1", "--to", MACS["b1"], "--size", size, "--clock", "none"]
        sent = one(stream("a", "send", *words, "--rate", "20kpps", "--count", "5000"))
        told = receiver.told()
    received = one(told)
    conserved(sent, received)
    after = await_standstill(counters)
    left, came, octets = (now - then for now, then in zip(after, before, strict=True))
    ports = told["ports"][0]
    # Beside the stream there are frames of its end, and neighbours that the kernel asks for.
    assert left == came
    assert sent["asked"] == 5000
    assert came >= sent["sent"] + ports["control"] > 4000  # on a busy machine the sender's own port refuses some
    assert came - sent["sent"] - ports["control"] < 20
    assert octets >= sent["sent"] * (int(size) - 4)
    assert received["frame_bytes"] == sent["frame_bytes"] == int(size)
    assert "one_way_delay" not in received or received["one_way_delay"] is None


@pytest.mark.parametrize("engine", ["packet", "xdp", "live"])
def test_maximum_rate_stream_is_conserved(engine: str) -> None:
    with receiving("b", "--dev", "b1", "--engine", engine) as receiver:
        words = ["--dev", "a1", "--to", MACS["b1"], "--size", "64", "--schedule", "flood", "--count", "200000"]
        sent = one(stream("a", "send", *words, "--engine", engine))
        received = one(receiver.told())
    conserved(sent, received)
    assert sent["sent"] == 200_000
    assert sent["achieved_pps"] > 20_000
    assert received["first"] > 0


@thrice
def test_live_frames_are_paced_and_each_is_accounted_for() -> None:
    with receiving("b", "--dev", "b1", "--engine", "live") as receiver:
        words = ["--dev", "a1", "--to", MACS["b1"], "--size", "512", "--rate", "5kpps", "--count", "5000"]
        told = stream("a", "send", *words, "--engine", "live")
        received = one(receiver.told())
    sent = one(told)
    (clock,) = told["clock"]
    assert clock["shared"], "exchanged over a socket beside, before and after"
    conserved(sent, received)
    with undisturbed():  # answers may come too late, and a ring of 256 frames fill up that nobody has time to empty
        assert clock["exchanges"] > 300
        assert received["lost"] == 0
    assert (received["first"], received["frame_bytes"]) == (5000, 512)
    assert received["one_way_delay"]["from_send_call"]["n"] == 5000
    assert received["one_way_delay"]["from_intended"] is None
    assert "live frames" in sent["engine"]


@pytest.mark.parametrize("words", [("--schedule", "poisson"), ("--schedule", "burst:10")])
def test_unsupported_options_of_live_frames_are_refused(words: tuple[str, ...]) -> None:
    argv = inside(
        "a", find_instrument(), "stream", "send", "--dev", "a1", "--to", MACS["b1"], "--engine", "live", *words
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 2
    assert "another engine" in done.stderr


@thrice
def test_local_drops_of_a_small_buffer_are_reported_with_the_setting_to_raise() -> None:
    with receiving("b", "--dev", "b1", "--buffer-bytes", "4096") as receiver:
        words = ["--dev", "a1", "--to", MACS["b1"], "--size", "1518", "--schedule", "flood", "--count", "100000"]
        sent = one(stream("a", "send", *words))
        told = receiver.told()
    received = one(told)
    conserved(sent, received)
    assert received["local_drops"] > 0
    with undisturbed():  # a processor's backlog of 1,000 frames fills up when nobody has time to empty it
        assert received["lost"] == 0, "a path of two veth ends loses nothing by itself"
    assert {"local_drops", "buffer_too_small"} <= names(told)
    assert "net.core.rmem_max" in " ".join(found["sentence"] for found in told["findings"])


@pytest.mark.parametrize(
    ("to", "group"),
    [("ff:ff:ff:ff:ff:ff", ()), (GROUP, ("--group", GROUP))],
    ids=["broadcast", "multicast"],
)
def test_each_of_several_receivers_of_one_sender_has_its_own_delays(to: str, group: tuple[str, ...]) -> None:
    with receiving("b", "--dev", "b0", *group) as first, receiving("c", "--dev", "c0", *group) as second:
        sent = one(stream("a", "send", "--dev", "a0", "--to", to, "--rate", "2kpps", "--count", "400"))
        both = [one(first.told()), one(second.told())]
    assert sent["asked"] == 400
    for received in both:
        conserved(sent, received)
        assert received["lost"] == 0
        assert received["first"] == received["one_way_delay"]["from_send_call"]["n"] > 200


@pytest.mark.parametrize(("group", "six"), [("239.77.0.9", ()), ("ff15::77:9", ("--ipv6",))])
def test_udp_multicast_reaches_joined_receivers(group: str, six: tuple[str, ...]) -> None:
    with receiving("b", "--udp", "--dev", "b0", "--group", group, *six) as receiver:
        sent = one(stream("a", "send", "--udp", group, "--dev", "a0", "--rate", "1kpps", "--count", "200"))
        received = one(receiver.told())
    conserved(sent, received)
    assert received["first"] == 200


def test_several_senders_to_one_receiver_are_counted_separately() -> None:
    with receiving("b", "--dev", "b0", "--flow", "1", "--flow", "2") as receiver:
        words = ["--to", MACS["b0"], "--rate", "2kpps", "--count", "400", "--json"]
        argvs = [
            inside(host, find_instrument(), "stream", "send", "--dev", f"{host}0", "--flow", flow, *words)
            for host, flow in (("a", "1"), ("c", "2"))
        ]
        senders = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for argv in argvs]
        sent = [one(printed("stream-send", sender.communicate(timeout=PATIENCE_SECONDS)[0])) for sender in senders]
        flows = {flow["flow"]: flow for flow in receiver.told()["flows"]}
    for number, flow in enumerate(sent, start=1):
        conserved(flow, flows[number])
        assert flows[number]["first"] == 400


@contextmanager
def capturing(file: Path, dev: str, count: int, *what: str) -> Iterator[None]:
    """An independent capture at host b, until it has seen so many frames."""
    argv = inside("b", "tcpdump", "-i", dev, "-w", str(file), "-U", "-c", str(count), *what)
    with Child(argv, stderr=subprocess.PIPE, text=True) as listener:
        try:
            assert listener.stderr is not None
            while "listening on" not in listener.stderr.readline():
                assert listener.poll() is None
            yield
            listener.wait(PATIENCE_SECONDS)
        finally:
            listener.kill()


def test_the_priority_of_a_vlan_tag_is_on_the_wire(tmp_path: Path) -> None:
    capture = tmp_path / "b1.pcap"
    with capturing(capture, "b1", 50, "vlan", "77"), receiving("b", "--dev", "b1") as receiver:
        words = ["--dev", "a1", "--to", MACS["b1"], "--vlan", "77", "--pcp", "5", "--count", "100"]
        sent = one(stream("a", "send", *words))
        received = one(receiver.told())
    conserved(sent, received)
    assert received["first"] == 100
    shown = run("tcpdump", "-r", str(capture), "-e", "-n")
    assert shown.count("vlan 77, p 5") == 50, shown


def test_a_dscp_is_on_the_wire(tmp_path: Path) -> None:
    capture = tmp_path / "b0.pcap"
    with capturing(capture, "b0", 20, "udp", "dst", "port", "7708"), receiving("b", "--udp") as receiver:
        stream("a", "send", "--udp", "10.79.9.2", "--dscp", "46", "--count", "50")
        assert one(receiver.told())["first"] == 50
    assert run("tcpdump", "-r", str(capture), "-v", "-n").count("tos 0xb8") == 20


def test_one_way_delay_equals_the_difference_in_records_of_both_ends(tmp_path: Path) -> None:
    with receiving("b", "--dev", "b0", "--record", str(tmp_path)) as receiver:
        words = ["--dev", "a0", "--to", MACS["b0"], "--rate", "2kpps", "--count", "400", "--record", str(tmp_path)]
        stream("a", "send", *words)
        received = one(receiver.told())
    sends = pl.read_ipc_stream(tmp_path / "sends-a-000.arrow")
    both = sends.join(pl.read_ipc_stream(tmp_path / "arrivals-b-000.arrow"), on="seq", suffix="_there")
    delays = both["arrival_ns"] - both["departure_ns"]
    one_way = received["one_way_delay"]
    assert one_way["from_departure"]["mean_ns"] == pytest.approx(delays.mean(), abs=1.0)
    early = both.filter(pl.col("sent_ns") < pl.col("intended_ns"))
    most = (early["intended_ns"] - early["sent_ns"]).max() or 0
    assert one_way["sent_early"] == {"n": early.height, "most_ns": most}
    low, high = binomtest(received["lost"], received["sent"]).proportion_ci(0.95, "wilson")
    assert received["loss_ratio_ci95"] == pytest.approx([low, high], abs=1e-6)


def test_records_of_both_ends_are_one_table(tmp_path: Path) -> None:
    with receiving("b", "--dev", "b0", "--record", str(tmp_path)) as receiver:
        words = ["--dev", "a0", "--to", MACS["b0"], "--rate", "2kpps", "--count", "300", "--record", str(tmp_path)]
        stream("a", "send", *words)
        receiver.told()
    sends, arrivals = read_table(tmp_path, "sends").frame, read_table(tmp_path, "arrivals").frame
    assert (sends.height, arrivals.height) == (300, 300)
    joined = sends.join(arrivals, on=["block", "flow", "seq"])
    assert joined.height == 300
    assert (joined["intended_ns"] == joined["intended_ns_right"]).all()
    assert (joined["arrival_ns"] >= joined["send_call_ns"]).all()
    streams = read_table(tmp_path, "streams").frame
    assert sorted(streams.select("who", "role").rows()) == [("a", "send"), ("b", "receive")]
    assert streams["clock_id"].n_unique() == 1
    assert read_table(tmp_path, "clock_lines").frame["shared"].to_list() == [True]
    assert set(read_table(tmp_path, "exchanges").frame["phase"]) >= {"before", "after"}
    assert not [part for name in ("sends", "arrivals", "streams") for part in read_table(tmp_path, name).truncated]


class Serve:
    """A running `stream serve`, asked line by line."""

    def __init__(self, host: str, folder: Path, name: str) -> None:
        argv = inside(
            host, find_instrument(), "stream", "serve", "--record", str(folder), "--name", name, "--die-with-parent"
        )
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.answer()["event"] == "ready"

    def ask(self, request: Told) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Told:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer: Told = printed("stream-serve", line)
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_SECONDS) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def serving(host: str, folder: Path, name: str) -> Iterator[Serve]:
    """An end that is ended in any case."""
    end = Serve(host, folder, name)
    try:
        yield end
        end.end()
    finally:
        if end.process.poll() is None:
            end.process.kill()
            end.process.communicate()


def sending(block: int, **flow: Any) -> Told:
    """A request to send one flow."""
    to = {"via": "packet", "dev": "a0", "mac": MACS["b0"], "qdisc_bypass": True}
    usual = {"flow": 1, "to": to, "schedule": "regular", "rate_pps": 2000.0, "count": 200, "payload_bytes": 46}
    head = {
        "do": "send",
        "block": block,
        "key": KEY,
        "device": "wire",
        "round": 0,
        "visit": 0,
        "cell": 0,
        "purpose": "measure",
    }
    return head | {"flows": [usual | flow], "keep": "packets", "stamps": "all", "clock": "shared"}


def test_receivers_reply_to_each_request_with_their_node_number(tmp_path: Path) -> None:
    with (
        serving("a", tmp_path, "a") as a,
        serving("b", tmp_path, "b") as b,
        serving("c", tmp_path, "c") as c,
        serving("a", tmp_path, "a2") as answers,
    ):
        head = {
            "do": "receive",
            "block": 3,
            "key": KEY,
            "flows": [1],
            "keep": "packets",
            "late_after_ns": 1e9,
            "room": 1000,
        }
        answers.ask(head | {"ports": [{"port": 0, "via": "packet", "dev": "a0"}]})
        assert answers.answer()["event"] == "receiving"
        for node, (end, dev) in enumerate(((b, "b0"), (c, "c0")), start=1):
            port = {"port": node, "via": "packet", "dev": dev, "groups": [GROUP], "answer": node}
            end.ask(head | {"ports": [port], "answer_payload_bytes": 100})
            assert end.answer()["event"] == "receiving"
        to = {"via": "packet", "dev": "a0", "mac": GROUP}
        a.ask(sending(3, to=to))
        sent = a.answer()["flows"][0]
        assert sent["sent"] == 200
        time.sleep(0.2)
        for end in (b, c):
            end.ask({"do": "finish", "block": 3, "sent": [{"flow": 1, "sent": 200}]})
            assert end.answer()["flows"][0]["first"] == 200
        answers.ask({"do": "finish", "block": 3, "sent": [{"flow": 1, "sent": 200}]})
        nodes = {flow["node"]: flow["first"] for flow in answers.answer()["flows"] if flow["node"]}
        assert nodes == {1: 200, 2: 200}
    arrivals = read_table(tmp_path, "arrivals").frame
    assert arrivals.filter(who="a2").group_by("node").len().sort("node").rows() == [(1, 200), (2, 200)]
    roles = set(read_table(tmp_path, "streams").frame.filter(who="a2")["role"])
    assert "answer" in roles


def test_stopped_stream_counts_its_unsent_packets(tmp_path: Path) -> None:
    with serving("a", tmp_path, "a") as a:
        before = counter("a", "a0", "tx_packets")
        a.ask(sending(1, count=1_000_000))
        await_that(lambda: counter("a", "a0", "tx_packets") > before + 100, "a hundred frames")
        a.ask({"do": "stop"})
        flow = a.answer()["flows"][0]
        assert 0 < flow["sent"] < 1_000_000
        assert flow["asked"] == flow["sent"] + flow["refused"] + flow["unsent"] == 1_000_000
        a.ask(sending(2))
        assert a.answer()["flows"][0]["sent"] == 200, "a stop is for one stream"
    assert read_table(tmp_path, "sends").frame.filter(block=2).height == 200


def test_interrupt_ends_a_stream_with_its_summary() -> None:
    before = counter("b", "b0", "rx_packets")
    words = ["--dev", "a0", "--to", MACS["b0"], "--rate", "1kpps", "--count", "1000000", "--json"]
    argv = inside("a", find_instrument(), "stream", "send", *words)
    with (
        receiving("b", "--dev", "b0") as receiver,
        Child(argv, stdout=subprocess.PIPE, text=True) as sender,
    ):
        # Beyond the exchanges that come first.
        await_that(lambda: counter("b", "b0", "rx_packets") >= before + 1000, "a thousand frames")
        sender.send_signal(signal.SIGINT)
        sent = one(printed("stream-send", sender.communicate(timeout=PATIENCE_SECONDS)[0]))
        received = one(receiver.told())
    assert sender.returncode == 0
    assert 0 < sent["sent"] < 1_000_000
    conserved(sent, received)


@pytest.mark.parametrize("does", ["detach", "replace"])
@pytest.mark.parametrize("engine", ["xdp", "live"])
def test_frames_missed_by_a_detached_receiver_are_not_counted_as_lost(engine: str, does: str) -> None:
    """Somebody takes the receiver's program off its interface while frames come."""
    before = counter("b", "b1", "rx_packets")
    words = ["--dev", "a1", "--to", MACS["b1"], "--rate", "1kpps", "--count", "1000000", "--json"]
    argv = inside("a", find_instrument(), "stream", "send", *words)
    with (
        receiving("b", "--dev", "b1", "--engine", engine) as receiver,
        Child(argv, stdout=subprocess.PIPE, text=True) as sender,
    ):
        await_that(lambda: counter("b", "b1", "rx_packets") >= before + 1000, "a thousand frames")
        at = json.loads(run(*inside("b", "ip", "-j", "link", "show", "dev", "b1")))[0]["ifindex"]
        run(*inside("b", sys.executable, "-I", str(LINKS), str(receiver.process.pid), does, "xdp", str(at)))
        sender.send_signal(signal.SIGINT)
        sender.communicate(timeout=PATIENCE_SECONDS)
        receiver.process.send_signal(signal.SIGINT)
        out, said = receiver.process.communicate(timeout=PATIENCE_SECONDS)
    assert receiver.process.returncode == 4, (out, said)
    assert "b1: the program that takes or counts its frames was detached or replaced meanwhile" in said


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("send", "--dev", "a0", "--too", MACS["b0"]), 2, ["--too", "did you mean --to?"]),
        (("send", "--dev", "a0", "--to", MACS["b0"], "--duration", "-5ms"), 2, ["negative"]),
        (("send", "--dev", "a0", "--to", MACS["b0"], "--size", "60"), 2, ["fewer", "46"]),
        (("send", "--dev", "a0", "--to", MACS["b0"], "--size", "1519"), 2, ["MTU"]),
        (("send", "--dev", "a0", "--to", "banana"), 2, ["banana", "MAC"]),
        (("send", "--dev", "a0", "--to", MACS["b0"], "--schedule", "flood", "--rate", "1kpps"), 2, ["--rate", "flood"]),
        (("send", "--dev", "a0", "--to", MACS["b0"], "--count", "0"), 2, ["0 packets"]),
        (("send", "--dev", "a0", "--to", MACS["b0"], "--rate", "10"), 2, ["10kpps", "100Mbit/s"]),
        (("send", "--dev", "a0", "--to", MACS["b0"], "--schedule", "often"), 2, ["often", "poisson"]),
        (("send", "--dev", "nosuch0", "--to", MACS["b0"]), 2, ["nosuch0", "no such interface"]),
        (("recv", "--dev", "nosuch0"), 2, ["nosuch0", "no such interface"]),
        (("recv", "--dev", "a0", "--group", MACS["b0"]), 2, ["not of a group"]),
        (("recv", "--udp", "--group", "10.0.0.1"), 2, ["no group"]),
        (("recv",), 2, ["--dev", "--udp"]),
        (("recv", "--dev", "a0", "--for", "200ms"), 4, ["no frame of a stream arrived", "--group"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_impossible_requests_are_refused_in_one_sentence(words: tuple[str, ...], status: int, said: list[str]) -> None:
    argv = inside("a", SOJOURN, "stream", *words)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    sentence = done.stderr.strip().splitlines()[-1]
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert sentence.startswith("sojourn: ")
    assert all(word in sentence for word in said), sentence


def test_port_in_use_is_reported() -> None:
    with receiving("b", "--udp"):
        argv = inside("b", SOJOURN, "stream", "recv", "--udp")
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 3, done.stderr
    assert "in use" in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_calls_the_command_by_its_own_name() -> None:
    for command in ("probe", "stream"):
        shown = run(SOJOURN, command, "--help")
        assert f"Usage: sojourn {command}" in shown
        assert "sojourn-instrument" not in shown
