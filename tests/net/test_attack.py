"""A stranger on the same network sends forged, replayed, truncated and random frames: figures stay as they are.

Hosts `a` and `b` measure, `m` attacks as fast as it can; a switch joins them, in network namespaces of the tests' own.
The attacker shares the processors with what it attacks: what is judged is what was counted and who ended what,
not how long frames took.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.bed.clean import marked_processes
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.instruments import find_instrument
from sojourn.plan import load_plan
from sojourn.records import read_table
from tests.children import Child
from tests.net.attacked import (
    ADDRESSES,
    MACS,
    PATIENCE_SECONDS,
    SECONDS,
    Told,
    attack,
    attacker,
    inside,
    is_ours,
    recording,
    run,
    switched_hosts,
    udp_port_of,
)
from tests.net.attacker import GREETING_REPLY, GROUPS, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")
spans = pytest.mark.parametrize("seconds", [SECONDS["short"], pytest.param(SECONDS["long"], marks=pytest.mark.proof)])
SOJOURN = Path(sys.executable).with_name("sojourn")


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    with switched_hosts():
        yield


@contextmanager
def receiver(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A running `stream recv` at b."""
    argv = inside("b", find_instrument(), "stream", "recv", *words, "--json")
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("receiving")
            yield process
        finally:
            process.kill()


def told_by(process: subprocess.Popen[str]) -> Told:
    """What a program tells in the end, which it comes to by itself."""
    out, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    told: Told = json.loads(out)
    return told


def send(seconds: float, *words: str) -> Told:
    """`stream send` from a, told."""
    own = ["stream", "send", *words, "--rate", "1kpps", "--duration", f"{seconds}s", "--json"]
    done = subprocess.run(
        inside("a", find_instrument(), *own), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    told: Told = json.loads(done.stdout)
    return told


def dropped_on_the_way() -> int:
    """How many frames the port of the switch towards b has dropped."""
    argv = inside("switch", "cat", "/sys/class/net/sb/statistics/tx_dropped")
    return int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


WAYS = {
    "udp": (("--udp", ADDRESSES["b"]), ("--udp",)),
    "packet": (("--dev", "eth0", "--to", MACS["b"]), ("--dev", "eth0")),
    "xdp": (("--dev", "eth0", "--to", MACS["b"]), ("--dev", "eth0", "--engine", "xdp")),
    "live": (("--dev", "eth0", "--to", MACS["b"]), ("--dev", "eth0", "--engine", "live")),
}


@pytest.mark.parametrize("way", WAYS)
@spans
def test_attack_does_not_change_counts_of_a_manual_stream(way: str, seconds: int, tmp_path: Path) -> None:
    there, here = WAYS[way]
    frames = tmp_path / "frames.pcap"
    listener = subprocess.Popen(
        inside("b", "tcpdump", "-i", "eth0", "-w", str(frames), "-U", "ether src " + MACS["a"]),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert listener.stderr is not None
    while "listening on" not in listener.stderr.readline():
        assert listener.poll() is None
    # Programs at the interface take frames before a capture sees them.
    with receiver(*(WAYS["packet"][1] if way in ("live", "xdp") else here)) as process:
        send(0.3, *there)
        before = told_by(process)
    listener.terminate()
    listener.communicate()
    (alone,) = before["flows"]
    listening = (*here, "--for", f"{seconds + 60}s", "--record", str(tmp_path / "records"))
    dropped_before = dropped_on_the_way()
    with receiver(*listening) as process, attack("stream", "b", frames) as attacked:
        sent = send(seconds, *there)
        told = told_by(process)
    (flow,) = told["flows"]
    (out,) = sent["flows"]
    assert flow["sent"] == out["sent"] == 1000 * seconds - out["refused"], "it ended with its own sender's word"
    assert flow["first"] + flow["corrupted"] + flow["local_drops"] + flow["lost"] == flow["sent"]
    assert (flow["corrupted"], flow["duplicated"], flow["excess"]) == (0, 0, 0)
    # Frames of the flood that our own queues had no room for are counted as ours. On the way those alone are lost that
    # the kernel's queue of a processor had no room for, which the port towards b counts.
    dropped = dropped_on_the_way() - dropped_before
    assert flow["first"] + flow["local_drops"] + dropped >= 0.99 * flow["sent"], flow
    assert dropped or flow["loss_ratio_ci95"][0] <= alone["lost"] / alone["sent"] + 0.01
    clock = flow["one_way_delay"]["clock"]
    assert (clock["source"], clock["bound_ns"]) == ("shared", 0)
    unexpected = told["ports"][0]["unexpected_of"]
    assert sum(attacked.values()) > 1000 * seconds, attacked
    assert sum(unexpected.values()) == told["ports"][0]["unexpected"] > 1000, unexpected
    for kind in ("packets", "ends", "exchanges", "greetings", "foreign"):
        assert unexpected[kind] > 0, unexpected
    assert "unexpected_frames" in {found["name"] for found in told["findings"]}
    streams = pl.read_ipc_stream(tmp_path / "records" / "streams-b-000.arrow")
    kinds = ["packets", "exchanges", "ends", "greetings"]
    assert streams.select(f"unexpected_{kind}" for kind in kinds).row(0) == tuple(unexpected[kind] for kind in kinds)
    print(f"{way}: {attacked} sent, {unexpected} counted")


@pytest.mark.parametrize(("kind", "words"), [("stream", ()), ("handshake", ("--allow", ADDRESSES["a"]))])
def test_an_attack_that_began_before_the_stream_takes_no_flow(kind: str, words: tuple[str, ...]) -> None:
    with receiver("--udp", *words) as process, attack(kind, "b"):
        time.sleep(0.5)
        sent = send(0.5, "--udp", ADDRESSES["b"])
        told = told_by(process)
    (flow,) = told["flows"]
    assert flow["sent"] == sent["flows"][0]["sent"], "it ended with its own sender's word"
    assert flow["first"] + flow["local_drops"] >= 0.99 * flow["sent"]
    assert flow["from"].startswith(ADDRESSES["a"] + ":")
    assert told["ports"][0]["unexpected_of"]["greetings"] > 0


@pytest.mark.parametrize("way", WAYS)
def test_receiver_that_ends_before_its_sender_reports_no_excess_or_duplicates(way: str) -> None:
    there, here = WAYS[way]
    argv = inside("a", find_instrument(), "stream", "send", *there, "--rate", "1kpps", "--duration", "3s")
    with receiver(*here, "--for", "2s") as process, Child(argv, stdout=subprocess.DEVNULL) as sender:
        told = told_by(process)
        sender.wait(PATIENCE_SECONDS)
    (flow,) = told["flows"]
    assert flow["sent"] is None
    assert (flow["excess"], flow["duplicated"]) == (0, 0)
    assert flow["first"] > 200, "it began while it was listened to"
    assert "counts_contradict" not in {found["name"] for found in told["findings"]}


def test_attacker_that_claims_a_stream_is_named_with_status_4() -> None:
    with receiver("--udp") as process, attack("handshake", "b"):
        out, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 4
    assert "implausible_delay" in said
    told = json.loads(out)
    assert "implausible_delay" in {found["name"] for found in told["findings"]}
    assert told["flows"][0]["from"].startswith(ADDRESSES["m"] + ":")


def test_a_cookie_heard_at_one_address_begins_no_stream_in_the_name_of_another(tmp_path: Path) -> None:
    heard = tmp_path / "heard.pcap"
    with receiver("--udp") as process:
        with recording("a", heard), attack("impersonation", "b", as_host="a") as forged:
            time.sleep(1)
        sent = send(0.5, "--udp", ADDRESSES["b"])
        told = told_by(process)
    print(f"impersonation: {forged} sent, {told['ports']} counted")
    assert forged["greetings"] > 10, forged
    answers = [frame[42:] for frame in recorded(str(heard)) if frame[34:36] == (7708).to_bytes(2)]
    assert 0 < len(answers) <= forged["greetings"], "whom a greeting names is told the cookie, once"
    assert {answer[4] for answer in answers} == {GREETING_REPLY}, "and gets nothing else"
    assert sum(map(len, answers)) <= forged["greeting_octets"]
    (flow,) = told["flows"]
    assert flow["from"].startswith(ADDRESSES["a"] + ":")
    assert flow["sent"] == sent["flows"][0]["sent"], "the flow was free"
    assert told["ports"][0]["unexpected_of"]["exchanges"] >= 0.9 * forged["exchanges"]


@pytest.mark.parametrize("joined", [(), ("239.77.0.1",)])
def test_receiver_replies_to_no_group_that_it_did_not_join(joined: tuple[str, ...]) -> None:
    words = [word for group in joined for word in ("--group", group)]
    with receiver("--udp", "--dev", "eth0", *words) as process:
        with attack("groups", "b") as sent:
            time.sleep(2)
        send(0.3, "--udp", ADDRESSES["b"])
        told = told_by(process)
    print(f"groups: {sent} answered, {told['ports']} counted")
    assert sent["greetings"] > 1
    for group in GROUPS:
        assert sent[group] == (sent["greetings"] if group in joined else 0), group
    # A port with a group of its own receives no other; without one it receives what every host does.
    reached = sent["greetings"] * (2 if joined else 3)
    assert told["ports"][0]["unexpected_of"]["to_group"] == told["ports"][0]["unexpected"] == reached
    assert told["flows"][0]["from"].startswith(ADDRESSES["a"] + ":")


def test_allowed_peers_of_another_address_family_are_refused() -> None:
    for words in (("--udp", "--allow", MACS["a"]), ("--dev", "eth0", "--allow", ADDRESSES["a"])):
        argv = inside("b", find_instrument(), "stream", "recv", *words)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert done.returncode == 2
        assert "nobody sends from there" in done.stderr


def test_a_second_sender_is_refused_and_changes_nothing() -> None:
    with receiver("--udp") as process:
        words = ["stream", "send", "--udp", ADDRESSES["b"], "--rate", "1kpps", "--count", "1500", "--json"]
        with Child(inside("a", find_instrument(), *words), stdout=subprocess.PIPE, text=True) as first:
            time.sleep(1.0)
            second = subprocess.run(inside("m", find_instrument(), *words), capture_output=True, text=True, check=False)
            (out,) = json.loads(first.communicate(timeout=PATIENCE_SECONDS)[0])["flows"]
        told = told_by(process)
    assert second.returncode == 4, second.stdout
    assert "another sender's frames as flow 1" in second.stderr
    assert "--flow" in second.stderr
    (flow,) = told["flows"]
    assert (flow["sent"], flow["first"], flow["duplicated"]) == (out["sent"], 1500, 0)
    assert told["ports"][0]["unexpected_of"]["greetings"] == 1


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A key that only its owner can read."""
    file = tmp_path / "stream.key"
    file.write_text("hex:" + 32 * "5a" + "\n")
    file.chmod(0o600)
    return file


def test_with_a_shared_key_only_senders_that_have_it_are_counted(key_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    other.write_text(32 * "x")
    other.chmod(0o600)
    with receiver("--udp", "--key", str(key_file)) as process, attack("stream", "b"):
        for keys, said in (((), "only senders that have its key"), (("--key", str(other)), "that has this key")):
            argv = inside("a", find_instrument(), "stream", "send", "--udp", ADDRESSES["b"], "--count", "9", *keys)
            stranger = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
            assert (stranger.returncode, stranger.stdout) == (4, ""), stranger
            assert said in stranger.stderr, stranger
        sent = send(1, "--udp", ADDRESSES["b"], "--key", str(key_file))
        told = told_by(process)
    assert sent["receiver_heard_the_end"]
    (flow,) = told["flows"]
    assert flow["sent"] == sent["flows"][0]["sent"]
    assert flow["first"] + flow["local_drops"] >= 0.99 * flow["sent"]
    assert flow["one_way_delay"]["clock"]["source"] == "shared"
    assert told["ports"][0]["unexpected_of"]["greetings"] > 2


def test_key_at_only_one_end_is_reported_by_both_ends(key_file: Path) -> None:
    with receiver("--udp", "--key", str(key_file), "--for", "4s") as process:
        argv = inside(
            "a", find_instrument(), "stream", "send", "--udp", ADDRESSES["b"], "--rate", "1kpps", "--count", "9"
        )
        sent = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert sent.returncode == 4
    assert "the receiver counts only senders that have its key" in sent.stderr
    assert process.returncode == 4
    assert "with the same key or none" in said
    with receiver("--udp", "--for", "4s"):
        sent = subprocess.run(
            [*argv, "--key", str(key_file)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    assert sent.returncode == 4
    assert "no receiver answered that has this key" in sent.stderr


def test_sender_without_a_receiver_ends_on_a_signal() -> None:
    argv = inside("a", find_instrument(), "stream", "send", "--udp", ADDRESSES["m"], "--rate", "1kpps", "--count", "9")
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(0.5)
        told = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert time.monotonic() - told < 0.8
    assert process.returncode == 4
    assert "no frame was sent" in said


def test_a_key_that_others_can_read_is_refused(key_file: Path) -> None:
    key_file.chmod(0o640)
    for words in (("recv", "--udp"), ("send", "--udp", ADDRESSES["b"])):
        argv = inside("a", find_instrument(), "stream", *words, "--key", str(key_file))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert done.returncode == 2
        assert "chmod 600" in done.stderr


PAUSE_SECONDS = 0.02
"""Between some 2,000 frames of each path, where beds are attacked: that need not take every processor."""


@contextmanager
def attacked_bed(kinds: Sequence[str] = ("stream",), pause_seconds: float = PAUSE_SECONDS) -> Iterator[list[Told]]:
    """Attacks each bed of a study from within its hosts, from when they serve streams until they are gone."""
    over, told = threading.Event(), list[Told]()

    def run_attacks() -> None:
        while not over.is_set():
            beds = serving()
            if not beds:
                time.sleep(0.05)
                continue
            with suppress(AssertionError, OSError, ValueError), ExitStack() as attackers:
                for near, far in (way for one, other in beds for way in ((one, other), (other, one))):
                    asked = [one for kind in kinds for one in requests(near, far, kind, pause_seconds)]
                    told.append(attackers.enter_context(attacker(["nsenter", "-t", near, "-n"], asked)))
                while not over.is_set() and beds == serving():
                    time.sleep(0.05)

    thread = threading.Thread(target=run_attacks)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


def serving() -> list[tuple[str, str]]:
    """The two processes of each bed that serve a study's streams, where both have ports."""
    found: dict[str, list[str]] = {}
    for process, mark in marked_processes():
        with suppress(OSError):
            if (
                is_ours(mark.controller.pid)
                and b"stream\0serve" in Path("/proc", str(process.pid), "cmdline").read_bytes()
            ):
                found.setdefault(str(mark), []).append(str(process.pid))
    pairs = [(one, other) for one, other, *_ in (sorted(ends) for ends in found.values() if len(ends) > 1)]
    return sorted(pair for pair in pairs if len({end[0]["address"] for end in map(links, pair) if end}) == 2)


def requests(near: str, far: str, kind: str, pause_seconds: float) -> list[Told]:
    """What an attacker at the host of a process is asked for: each path to the host of another one."""
    common = {
        "kind": kind, "to": "10.0.0.9", "from": "10.0.0.8", "from_port": 40_000, "recorded": None,
        "pause_seconds": pause_seconds,
    }  # fmt: skip
    paths = zip(links(near), links(far), strict=False)
    return [
        {**common, "dev": own["ifname"], "mac": other["address"]}
        | ({"record": recorded_at(far, other, own)} if kind == "stream" else {})
        for own, other in paths
    ]


def recorded_at(far: str, other: Told, own: Told) -> Told:
    """Where the attacker records what it replays: at the far end of a path, what comes from this end.

    Raw senders pass by every capture at their own end.
    """
    return {"process": far, "dev": other["ifname"], "from_mac": own["address"]}


def links(process: str) -> list[Told]:
    """The links of a process's host that carry frames."""
    words = ["nsenter", "-t", process, "-n", "ip", "-j", "link", "show", "up"]
    shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=False).stdout or "[]")
    return [link for link in shown if link.get("ifname", "lo") != "lo"]


def sets(seconds: float) -> list[str]:
    own = ["trials.rounds=1", "trials.qualify=false", "trials.a_a=false", "bed.sessions=1", "payload_bytes=[46]"]
    return [*own, f'trials.duration="{seconds}s"', "engine=packet", "schedule=regular", 'interval=["1ms"]']


@pytest.mark.parametrize("seconds", [0.5, pytest.param(10, marks=(pytest.mark.proof, pytest.mark.alone))])
def test_attack_does_not_change_a_study_of_streams(seconds: float, tmp_path: Path) -> None:
    plan = load_plan("one-way", sets=sets(seconds))
    folder = create_folder(plan, tmp_path / "run")
    with attacked_bed() as attacked:
        conduct(plan, folder, Screen(io.StringIO()))
    expect_measured(folder.records, attacked)


@pytest.mark.proof
def test_attack_does_not_change_two_concurrent_studies(tmp_path: Path) -> None:
    words = [word for each in sets(1) for word in ("--set", each)]
    with attacked_bed() as attacked:
        both = [
            subprocess.Popen(
                [SOJOURN, "run", "one-way", *words, "--no-report", "--out", tmp_path / name],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for name in ("one", "other")
        ]  # fmt: skip
        for process in both:
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode in {0, 4}, said
    for name in ("one", "other"):
        expect_measured(tmp_path / name / "records", attacked)


def expect_measured(records: Path, attacked: list[Told]) -> None:
    """Every frame of a study is accounted for, none is damaged or doubled, and the attack's are counted apart."""
    table = read_table(records, "streams").frame.filter(purpose="measure")
    sent = table.filter(role="send").select("block", "flow", told="sent")
    received = table.filter(role="receive").join(sent, on=["block", "flow"])
    assert received.height > 1
    assert (received["told"] == received["sent"]).all()
    accounted = received["first"] + received["local_drops"]
    assert (accounted >= 0.99 * received["told"]).all(), received
    assert received["corrupted"].sum() == received["duplicated"].sum() == 0
    assert sum(sum(one.values()) for one in attacked) > 1000, attacked
    for kind in ("packets", "exchanges", "ends", "greetings"):
        assert received[f"unexpected_{kind}"].sum() > 0, received
    print(f"study: {attacked} sent, {received['unexpected'].sum()} counted as unexpected")


@contextmanager
def unlearned() -> Iterator[None]:
    """The switch does not take the attacker for those whose frames it replays."""
    port = inside("switch", "ip", "link", "set", "sm", "type", "bridge_slave", "learning")
    run(*port, "off")
    try:
        yield
    finally:
        run(*port, "on")


@spans
def test_attack_does_not_change_the_clock_estimate(seconds: int, tmp_path: Path) -> None:
    ahead = 1_500_000_000
    requests, replies = tmp_path / "requests.pcap", tmp_path / "replies.pcap"
    argv = inside("b", find_instrument(), "probe", "respond", "--json", "--until-eof", f"--pretend-clock={ahead},0")
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as responder:
        assert responder.stdin is not None
        assert responder.stdout is not None
        ready = json.loads(responder.stdout.readline())
        argv = inside("a", find_instrument(), "clock", ADDRESSES["b"], "--json", "--interval", "2ms", "--for")
        with recording("b", requests), recording("a", replies):
            run(*argv, "1s")
        with unlearned(), Child([*argv, f"{seconds}s"], stdout=subprocess.PIPE, text=True) as clock:
            time.sleep(0.3)
            port = udp_port_of(clock.pid)
            with (
                # It knows both ports, sends as if it were the responder, and replays an earlier measurement.
                attack("probe", "a", replies, as_host="b", port=port) as forged,
                attack("probe", "b", requests, port=7707) as asked,
            ):
                out, _ = clock.communicate(timeout=PATIENCE_SECONDS)
        assert clock.returncode == 0
        responder.stdin.close()
        counted = json.loads(responder.stdout.readlines()[-1])
    (peer,) = json.loads(out.splitlines()[-1])["peers"]
    now = peer["now"]
    wrong_by = abs(now["offset_ns"] - ahead)
    assert ready["pretended_clock"]["offset_ns"] == ahead
    assert not peer["shared"]
    assert wrong_by <= now["bound_ns"], now
    assert len(peer["steps"]) == 0, peer
    assert peer["exchanges"] + peer["lost"] == 500 * seconds
    assert peer["exchanges"] > 0.5 * 500 * seconds, "answers came in spite of it"
    for sent in (forged, asked):
        assert sum(sent.values()) > 500, sent
        assert sent["replayed"] > 0, sent
    # All that is sent to who asks is no reply of this session; its socket may have had no room for some of it.
    assert 100 < peer["unexpected"] <= sum(forged.values()), (peer["unexpected"], forged)
    assert counted["answered"] >= peer["exchanges"]
    assert counted["unexpected"] > 100, "frames that ask nothing were counted apart"
    print(f"clock: {forged} and {asked} sent, {counted} counted, wrong by {wrong_by} ns of {now}")
