"""SIGKILL at random moments of every command that opens anything: nothing of it stays, and nothing else was touched.

Hosts of the tests' own: `a` and `b` with a cable each to `m`, which joins them. What a command may leave is looked for
where the kernel keeps it: processes, programs, links, qdiscs, filters, control groups; interfaces are as they were.
Files stay, a control socket's name among them: who comes next takes it over (crates/instrument/tests/emulate.rs).
What builds a bed is killed with nothing beside it: of the whole machine, interfaces, network namespaces and control
groups are then as they were, and the bed's files are gone.
"""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed.clean import marked_processes
from sojourn.bed.state import state_folder
from sojourn.instruments import find_instrument
from tests.children import Child
from tests.net.busy_machine import await_that
from tests.net.tcplog_bed import MAIN, expect_gone, held_by
from tests.net.test_bed_kill import links, namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

NAME = f"sojourn-killed-{os.getpid()}"
PORT = 7719
STAMP = 8862
TCP = 5220
MOST_SECONDS = 0.6
"""Until when a command is killed: it has begun by then, and is at work."""
KILLS = pytest.mark.parametrize("kills", [1, pytest.param(15, marks=pytest.mark.proof)])
STUDIES = 12
GROUPS = Path("/sys/fs/cgroup")

SET_UP = f"""
for host in a b m; do ip netns add {NAME}-$host; ip -n {NAME}-$host link set lo up; done
ip link add eth0 netns {NAME}-a type veth peer name left netns {NAME}-m
ip link add eth0 netns {NAME}-b type veth peer name right netns {NAME}-m
for port in left right; do ip -n {NAME}-m link set $port up; done
ip -n {NAME}-a link set eth0 address 02:77:00:00:0c:01 up
ip -n {NAME}-b link set eth0 address 02:77:00:00:0c:02 up
ip -n {NAME}-a address add 10.79.9.1/24 dev eth0
ip -n {NAME}-b address add 10.79.9.2/24 dev eth0
ip -n {NAME}-a neigh add 10.79.9.2 lladdr 02:77:00:00:0c:02 dev eth0
ip netns exec {NAME}-m tc qdisc add dev left clsact
ip netns exec {NAME}-m tc qdisc add dev right clsact
for way in "left right" "right left"; do
    set -- $way
    all="protocol all prio 1 u32 match u32 0 0"
    ip netns exec {NAME}-m tc filter add dev $1 ingress $all action mirred egress redirect dev $2
done
ip link add port0 netns {NAME}-m type veth peer name far0 netns {NAME}-m
ip link add port1 netns {NAME}-m type veth peer name far1 netns {NAME}-m
for port in port0 port1 far0 far1; do ip -n {NAME}-m link set $port up; done
"""

TO_B = ["--dev", "eth0", "--to", "02:77:00:00:0c:02"]
LONG = ["--rate", "1kpps", "--duration", "60s"]
CONTROL = ["--control", "{out}/control.sock"]
LOG = ["--duration", "60s", "--", "sleep", "60"]

TERMS = json.dumps(
    {"window_ns": 1, "ahead_ns": 0, "memory_bytes": 1_000_000, "ways": 2, "last_ns": None}
    | {"came_first_ns": [None, None], "left_last_ns": [None, None]}
)

# Where it runs, and its words; `{out}` is a folder of its own.
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "probe-respond": ("b", ["probe", "respond", "--udp", "9001", "--raw", "eth0"]),
    "probe-udp": ("a", ["probe", "udp", f"10.79.9.2:{PORT}", "-c", "100000", "-i", "1ms", "--record", "{out}"]),
    "clock": ("a", ["clock", f"10.79.9.2:{PORT}", "--until-interrupted", "--record", "{out}"]),
    "stamp-reflect": ("b", ["stamp", "reflect", "--port", "8863"]),
    "stamp-send": ("a", ["stamp", "send", f"10.79.9.2:{STAMP}", "-c", "100000", "-i", "1ms"]),
    "stream-recv": ("b", ["stream", "recv", "--dev", "eth0", "--record", "{out}"]),
    "stream-recv-xdp": ("b", ["stream", "recv", "--dev", "eth0", "--engine", "xdp"]),
    "stream-send": ("a", ["stream", "send", *TO_B, *LONG]),
    "stream-send-xdp": ("a", ["stream", "send", *TO_B, "--engine", "xdp", *LONG]),
    "stream-send-live": ("a", ["stream", "send", *TO_B, "--engine", "live", *LONG]),
    "emulate-xdp": ("m", ["emulate", "run", "port0", "port1", "--engine", "xdp", "--forward", "delay 1ms", *CONTROL]),
    "emulate-packet": ("m", ["emulate", "run", "port0", "port1", "--engine", "packet", "--log", "{out}", *CONTROL]),
    "emulate-redirect": ("m", ["emulate", "run", "port0", "port1", "--redirect", *CONTROL]),
    "probe-icmp": ("a", ["probe", "icmp", "10.79.9.2", "-c", "100000", "-i", "1ms", "--record", "{out}"]),
    "probe-raw": ("a", ["probe", "raw", *TO_B, "-c", "100000", "-i", "1ms", "--record", "{out}"]),
    "tcp-send": ("a", ["tcp", "send", f"10.79.9.2:{TCP}", "--for", "60s"]),
    "tcp-receive": ("b", ["tcp", "receive", "5219"]),
    "match-live": ("m", ["match", "left", "right", "--live", "-o", "{out}/m"]),
    "tcplog-run": ("a", ["tcplog", "run", "--out", "{out}/t", *LOG]),
    "tcplog-watch": ("a", ["tcplog", "watch"]),
    "tcplog-serve": ("a", ["tcplog", "serve"]),
    "tcplog-receive": ("b", ["tcplog", "receive", "127.0.0.1:0", "--out", "{out}/t"]),
    "capture": ("m", ["capture", "left", "right", "-o", "{out}/c", "--for", "60s"]),
    "capture-serve": ("m", ["capture", "serve"]),
    "probe-blocks": ("a", ["probe", "blocks", "--record", "{out}"]),
    "stream-serve": ("b", ["stream", "serve", "--record", "{out}", "--name", "b"]),
    "tcp-serve": ("b", ["tcp", "serve", "--record", "{out}", "--name", "b"]),
    "match-slice": ("m", ["match-slice", TERMS]),
}


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    try:
        subprocess.run(["sh", "-e", "-c", SET_UP], check=True, capture_output=True, text=True)
        yield
    finally:
        for host in "abm":
            subprocess.run(["ip", "netns", "del", f"{NAME}-{host}"], check=False)


def inside(host: str, *argv: str) -> list[str]:
    """A command as it runs on one of the hosts, with the mounts of this machine."""
    return ["nsenter", f"--net=/run/netns/{NAME}-{host}", *argv]


@contextmanager
def answering(*words: str) -> Iterator[None]:
    """Whoever answers at b, for as long as commands that ask are killed."""
    argv = inside("b", find_instrument(), *words, "--json", "--until-eof")
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"
        yield
        process.stdin.close()


@contextmanager
def receiving() -> Iterator[None]:
    """Whoever receives over TCP at b, one connection after another."""
    process = subprocess.Popen(inside("b", sys.executable, "-c", RECEIVE, str(TCP)))
    try:
        listening = inside("b", "ss", "-Hltn", f"sport = :{TCP}")
        await_that(lambda: bool(subprocess.run(listening, check=True, capture_output=True).stdout), "b listens")
        yield
    finally:
        process.terminate()
        process.wait()


RECEIVE = """
import socket, sys
server = socket.create_server(("", int(sys.argv[1])))
while True:
    connection, _ = server.accept()
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass
    connection.close()
"""


def moments() -> random.Random:
    """When to kill; the seed is printed and can be given again."""
    seed = int(os.environ.get("SOJOURN_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    return random.Random(seed)


@KILLS
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("hosts")
def test_a_killed_command_leaves_nothing(command: str, kills: int, tmp_path: Path, proven: Callable[..., None]) -> None:
    host, words = COMMANDS[command]
    random_moments = moments()
    at_work = 0
    with ExitStack() as around:
        if command in {"probe-udp", "clock"}:
            around.enter_context(answering("probe", "respond", "--udp", str(PORT)))
        if command == "stamp-send":
            around.enter_context(answering("stamp", "reflect", "--port", str(STAMP)))
        if command == "probe-raw":
            around.enter_context(answering("probe", "respond", "--raw", "eth0"))
        if command == "tcp-send":
            around.enter_context(receiving())
        before, others, grouped = state(), processes(), groups()
        for number in range(kills):
            out = tmp_path / str(number)
            out.mkdir()
            argv = [word.replace("{out}", str(out)) for word in (find_instrument(), *words)]
            at_work += killed(inside(host, *argv), random_moments.uniform(0, MOST_SECONDS))
            await_that(lambda: processes() == others, f"no process of {command} is left")
            await_that(lambda: state() == before, f"{command} left interfaces as they were")
            if kills > 1:  # nothing runs beside it
                await_that(lambda: groups() <= grouped, f"no control group of {command} is left")
    print(f"{at_work} of {kills} were killed with programs in the kernel")
    proven("kills", "single commands, from `probe` to `tcplog`", kills=kills)


def killed(argv: list[str], after_seconds: float) -> bool:
    """Start a command and kill it; whether it held programs of the kernel, which are gone then."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(after_seconds)
    held = held_by(process.pid) if process.poll() is None else {}
    ended = process.poll()
    process.kill()
    _, said = process.communicate(timeout=60)
    assert ended is None, f"it ended by itself, status {ended}: {said.decode()}"
    expect_gone(held)
    return bool(held.get("program"))


def processes() -> set[int]:
    """All that run on the hosts."""
    script = "; ".join(f"ip netns pids {NAME}-{host}" for host in "abm")
    told = subprocess.run(["sh", "-ec", script], check=True, capture_output=True, text=True)
    return {int(line) for line in told.stdout.split()}


STATE = """
ip -d -j link; ip -j -4 address; ip -j neigh show nud permanent; tc -j qdisc; ss -Hanpe -f link
for dev in left right; do tc filter show dev $dev ingress 2> /dev/null || true; done
"""


def state() -> list[str]:
    """Each host's interfaces, addresses, fixed neighbours, qdiscs, sockets below IP and filters."""
    return [
        subprocess.run(inside(host, "sh", "-ec", STATE), check=True, capture_output=True, text=True).stdout
        for host in "abm"
    ]


def groups() -> set[str]:
    """Control groups of Sojourn's, whoever made them."""
    return {str(path) for path in GROUPS.rglob("*sojourn*") if path.is_dir()}


@pytest.mark.proof
@pytest.mark.alone
def test_a_killed_study_leaves_nothing(tmp_path: Path, proven: Callable[..., None]) -> None:
    random_moments, before = moments(), on_the_machine()
    argv = [sys.executable, "-c", MAIN, "run", "bridge-latency", "--quick", "--no-report", "--no-history"]
    were_seen = 0
    for number in range(STUDIES):
        out = tmp_path / str(number)
        with Child([*argv, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            time.sleep(random_moments.uniform(0.5, 12))
            assert run.poll() is None, "the study ended by itself"
            were_seen += processes_of(run.pid) > 0
            run.kill()
        expect_nothing_left_of(run.pid, before)
    assert were_seen > STUDIES // 2
    proven("kills", "runs of a study", kills=STUDIES)


# What builds a bed and is not a study: its words, and what the proof calls it.
BUILDERS = {
    "lab": (["lab", "--delay", "1ms", "--", "sleep", "60"], "labs"),
    "emulate-verify": (["emulate", "verify", "--delay", "1ms"], "`sojourn emulate verify`"),
}


@KILLS
@pytest.mark.alone
@pytest.mark.parametrize("builder", BUILDERS)
def test_a_killed_builder_of_a_bed_leaves_nothing(
    builder: str, kills: int, tmp_path: Path, proven: Callable[..., None]
) -> None:
    random_moments, before = moments(), on_the_machine()
    words, name = BUILDERS[builder]
    were_seen = 0
    for _ in range(kills):
        argv = [sys.executable, "-c", MAIN, *words]
        with Child(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=tmp_path) as process:
            await_that(functools.partial(is_built_by, process), f"the {builder} has a process")
            time.sleep(random_moments.uniform(0, 2 * MOST_SECONDS))
            assert process.poll() is None, f"the {builder} ended by itself"
            were_seen += processes_of(process.pid) > 0
            process.kill()
        expect_nothing_left_of(process.pid, before)
    assert were_seen == kills
    proven("kills", name, kills=kills)


@KILLS
@pytest.mark.alone
def test_a_killed_doctor_leaves_nothing(kills: int, proven: Callable[..., None]) -> None:
    """It opens what the other commands open, to try it: namespaces, a bed, programs in the kernel."""
    random_moments = moments()
    argv = [sys.executable, "-c", MAIN, "doctor"]
    for _ in range(2):  # the second finds its files in memory, as those that are killed do
        began = time.monotonic()
        subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=300)
        took = time.monotonic() - began
    before, at_work = on_the_machine(), 0
    for number in range(kills):
        own = f"{NAME}-{number}"
        known = os.environ | {OF_DOCTOR: own}
        with Child(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=known) as doctor:
            time.sleep(random_moments.uniform(0, 0.9 * took))
            at_work += doctor.poll() is None  # else it was faster than the one that was timed
            held = [one for pid in processes_with(own) for one in held_while_there(pid)]
            doctor.kill()
        await_that(functools.partial(lambda own: not processes_with(own), own), "no process of the doctor is left")
        for one in held:
            expect_gone(one)
        expect_nothing_left_of(doctor.pid, before)
    assert at_work > kills // 2
    proven("kills", "`sojourn doctor`", kills=at_work)


OF_DOCTOR = "SOJOURN_KILLED"
"""A variable that all that the doctor starts inherits."""


def processes_with(own: str) -> list[int]:
    """The processes that have this value of the variable, which are not ours."""
    entry, found = f"{OF_DOCTOR}={own}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def held_while_there(pid: int) -> list[dict[str, set[int]]]:
    """What of BPF a process holds; nothing if it has just ended."""
    with suppress(OSError):
        return [held_by(pid)]
    return []


@KILLS
@pytest.mark.usefixtures("hosts")
def test_a_killed_table_of_flows_leaves_nothing(kills: int, proven: Callable[..., None]) -> None:
    """`tcplog top`, whose programs in the kernel are those of the instrument that it starts."""
    random_moments = moments()
    before, others, grouped = state(), processes(), groups()
    argv = inside("a", sys.executable, "-c", MAIN, "tcplog", "top", "--interval", "100ms")
    at_work = 0
    for _ in range(kills):
        with Child(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as top:
            await_that(functools.partial(has_begun, top, others), "the table has its instrument")
            time.sleep(random_moments.uniform(0, MOST_SECONDS))
            held = [held_by(pid) for pid in processes() - others]
            at_work += any(one["program"] for one in held)
            top.kill()
        await_that(lambda: processes() == others, "no process of the table is left")
        for one in held:
            expect_gone(one)
        await_that(lambda: state() == before, "interfaces are as they were")
        await_that(lambda: groups() <= grouped, "no control group is left")
    print(f"{at_work} of {kills} were killed with programs in the kernel")
    proven("kills", "`sojourn tcplog top`", kills=kills)


def has_begun(top: subprocess.Popen[Any], others: set[int]) -> bool:
    """Whether it and its instrument run."""
    assert top.poll() is None, "it ended by itself"
    return len(processes() - others) > 1


def is_built_by(run: subprocess.Popen[Any]) -> bool:
    """Whether it has begun to build its bed."""
    assert run.poll() is None, "it ended by itself"
    return processes_of(run.pid) > 0


Kept = dict[str, set[str]]


def on_the_machine() -> Kept:
    """What of the whole machine a bed adds to while it stands."""
    return {"interfaces": links(), "network namespaces": namespaces(), "control groups": groups()}


def expect_nothing_left_of(controller: int, before: Kept) -> None:
    """Wait until nothing is left of a bed that this process built, who has been killed."""
    left: Kept = {}

    def is_gone() -> bool:
        left.clear()
        left.update({kind: now - before[kind] for kind, now in on_the_machine().items()})
        left["files"] = {str(path) for path in state_folder().glob(f"*@{controller}-*")}
        left["processes"] = {
            str(process.pid) for process, mark in marked_processes() if mark.controller.pid == controller
        }
        return not any(left.values())

    try:
        await_that(is_gone, f"nothing is left of {controller}")
    except AssertionError as why:
        raise AssertionError(f"{why}: {left}") from why


def processes_of(controller: int) -> int:
    """How many processes carry the mark of a bed that this process built; other tests have beds meanwhile."""
    return sum(mark.controller.pid == controller for _, mark in marked_processes())
