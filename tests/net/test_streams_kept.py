"""What stays from one stream of a search to the next: ports and programs in the kernel, whose account begins anew.

Counted, not timed: sockets by the kernel's list of packet sockets, programs by the numbers that it gives them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import BedSpec, build_bed
from sojourn.errors import SojournError
from sojourn.instruments import StreamInstrument, find_instrument
from sojourn.instruments.conversation import no_tick
from sojourn.instruments.stream import serve_argv
from tests.net.busy_machine import await_that, retried

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.bed import Bed

COUNT = 500

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to hang programs on interfaces")


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with build_bed(BedSpec(), f"kept{os.getpid()}") as built:
        yield built


class Pair:
    """A sender and a receiver over the direct link."""

    def __init__(self, bed: Bed, folder: Path, stack: ExitStack, *options: str) -> None:
        self.bed, self.link = bed, bed.topology.link("direct")

        def start(host: Any) -> StreamInstrument:
            argv = serve_argv(find_instrument(), folder, 0, host, options)
            one = StreamInstrument(lambda argv, **popen: bed.backend.start(host, argv, **popen), argv)
            stack.callback(one.kill)
            return one

        self.a, self.b = start("a"), start("b")

    def stream(self, block: int, via: str, *, stays: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
        """One stream, all of it counted before it is ended: what was sent of it, and received."""
        head = {"block": block, "keep": "histograms", "stay_open": stays}
        port = {"port": 0, "via": via, "dev": self.link.b_dev}
        self.b.receive(head | {"ports": [port], "flows": [1], "late_after_ns": 1e9})
        sent = self.send(block, via, stays=stays)
        await_that(lambda: self.b.arrived(block) == COUNT, "all frames to arrive")
        told = [{"flow": 1, "sent": sent["sent"], "next": sent["next"]}]
        return sent, self.b.finish_receiving(block, told, no_tick)["flows"][0]

    def send(
        self, block: int, via: str, *, stays: bool = True, rate_pps: float = 20_000.0, payload_bytes: int = 46
    ) -> dict[str, Any]:
        """Sends, whoever receives."""
        head = {"block": block, "keep": "histograms", "stay_open": stays}
        to = {"via": via, "dev": self.link.a_dev, "mac": self.link.b_mac}
        shape = {"schedule": "regular", "rate_pps": rate_pps, "count": COUNT, "payload_bytes": payload_bytes}
        self.a.send(head | {"flows": [{"flow": 1, "to": to} | shape], "stamps": "none", "clock": "shared"})
        flow: dict[str, Any] = self.a.sent(no_tick)["flows"][0]
        return flow

    def open_now(self) -> dict[str, Any]:
        """The packet sockets and the programs of both ends, and the processes themselves."""
        ends = {"a": self.a.pid, "b": self.b.pid}
        return {host: (pid, *held(pid)) for host, pid in ends.items()}


def held(pid: int) -> tuple[list[str], list[str], dict[str, int]]:
    """A process's packet sockets, its programs and maps, and the programs that hang in its network namespace."""
    lines = Path(f"/proc/{pid}/net/packet").read_text().splitlines()[1:]
    links = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
    programs = [number for one in Path(f"/proc/{pid}/fdinfo").iterdir() for number in numbers(one)]
    words = ["nsenter", "-t", str(pid), "-n", "ip", "-j", "link", "show"]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    hang = {one["ifname"]: one["xdp"]["prog"]["id"] for one in told if "prog" in one.get("xdp", {})}
    own = [one.removeprefix("socket:[").removesuffix("]") for one in links if one.startswith("socket:[")]
    return sorted(line.split()[-1] for line in lines if line.split()[-1] in own), sorted(programs), hang


def taps(netns: int) -> dict[str, int]:
    """The taps that hold programs in a network namespace, and their indexes."""
    words = ["nsenter", f"--net=/proc/self/fd/{netns}", "ip", "-j", "link", "show"]
    told = json.loads(subprocess.run(words, capture_output=True, check=True, pass_fds=[netns]).stdout)
    return {one["ifname"]: one["ifindex"] for one in told if one["ifname"].startswith("sojourn")}


def within(pid: int, *words: str) -> None:
    subprocess.run(["nsenter", "-t", str(pid), "-n", *words], check=True)


def numbers(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line.startswith(("prog_id:", "map_id:"))]


@pytest.mark.parametrize("via", ["live", "packet", "xdp"])
def test_search_trials_open_no_sockets_load_no_programs_and_start_no_processes(
    bed: Bed, tmp_path: Path, via: str
) -> None:
    with ExitStack() as stack:
        pair = Pair(bed, tmp_path, stack)
        pair.stream(1, via)
        before = pair.open_now()
        assert all(sockets or programs for _, sockets, programs, _ in before.values()), before
        if via == "live" and Path("/dev/net/tun").exists():  # else a run has the kernel write its dispatcher anew
            assert any(name.startswith("sojourn") for name in before["a"][3]), before
        for block in range(2, 6):
            sent, received = pair.stream(block, via)
            # Each account is of its own block.
            assert (sent["sent"], received["first"], received["duplicated"], received["lost"]) == (COUNT, COUNT, 0, 0)
            assert received["unexpected"] == 0
            assert pair.open_now() == before


@pytest.mark.parametrize("via", ["live", "packet", "xdp"])
def test_packets_between_two_streams_count_in_neither(bed: Bed, tmp_path: Path, via: str) -> None:
    with ExitStack() as stack:
        pair = Pair(bed, tmp_path, stack)
        pair.stream(1, via)
        pair.send(2, via)  # while nobody receives
        received = pair.stream(3, via)[1]
        assert (received["first"], received["duplicated"], received["unexpected"]) == (COUNT, 0, 0)


@retried
def test_threads_in_which_the_kernel_makes_frames_do_not_run_in_real_time(bed: Bed, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pair = Pair(bed, tmp_path, stack, "--fifo")
        pair.stream(1, "live")  # whose receiver has a program in the kernel, which live frames need
        a, link = pair.a, pair.link
        threads = Path(f"/proc/{a.pid}/task")
        before = {one.name for one in threads.iterdir()}
        assert os.sched_getscheduler(a.pid) == os.SCHED_FIFO
        to = {"via": "live", "dev": link.a_dev, "mac": link.b_mac}
        shape = {"schedule": "regular", "rate_pps": COUNT / 2, "count": COUNT, "payload_bytes": 46}
        head = {"block": 2, "keep": "histograms", "stay_open": False}
        a.send(head | {"flows": [{"flow": 1, "to": to} | shape], "stamps": "none", "clock": "shared"})
        await_that(lambda: busy(threads, before) == {os.SCHED_OTHER}, "a thread sends, and not in real time")
        assert a.sent(no_tick)["flows"][0]["sent"] == COUNT


def busy(threads: Path, before: set[str]) -> set[int]:
    """The scheduling classes of new threads that have run for 100 ms or more."""
    found = set()
    for one in threads.iterdir():
        with suppress(OSError):  # it has ended
            used = int((one / "schedstat").read_text().split()[0]) if one.name not in before else 0
            if used > 100_000_000:
                found.add(os.sched_getscheduler(int(one.name)))
    return found


@pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="needs what makes taps")
def test_tun_device_is_kept_between_streams_and_removed_with_its_process(bed: Bed, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pair = Pair(bed, tmp_path, stack)
        pair.stream(1, "live")
        netns = os.open(f"/proc/{pair.a.pid}/ns/net", os.O_RDONLY)
        stack.callback(os.close, netns)
        before = taps(netns)
        assert before
        pair.stream(2, "live", stays=False)
        assert taps(netns) == before
        with pytest.raises(SojournError, match="frames"):  # refused when it is to be sent
            pair.send(3, "live", rate_pps=50.0)
        with pytest.raises(SojournError, match="bytes"):  # refused when the sender is aimed
            pair.send(4, "live", payload_bytes=4000)
        assert taps(netns) == before
        pair.stream(5, "live")
        assert taps(netns) == before
        os.kill(pair.a.pid, signal.SIGKILL)
        await_that(lambda: not taps(netns), "the tap to go")


@pytest.mark.parametrize("via", ["live", "packet", "xdp"])
def test_port_is_reopened_when_its_interface_has_changed(tmp_path: Path, via: str) -> None:
    with build_bed(BedSpec(), f"anew{os.getpid()}") as own, ExitStack() as stack:
        pair = Pair(own, tmp_path, stack)
        pair.stream(1, via)
        a, b = pair.link.a_dev, pair.link.b_dev
        for dev, pid in ((b, pair.b.pid), (a, pair.a.pid)):
            within(pid, "ip", "link", "set", "dev", dev, "down")
            within(pid, "ip", "link", "set", "dev", dev, "up")
        assert pair.stream(2, via)[1]["first"] == COUNT
        within(pair.a.pid, "ip", "link", "del", a)
        words = f"ip link add {a} address {pair.link.a_mac} type veth peer name {b} address {pair.link.b_mac}"
        within(pair.a.pid, *words.split(), "netns", str(pair.b.pid))
        for dev, pid in ((b, pair.b.pid), (a, pair.a.pid)):
            within(pid, "ip", "link", "set", "dev", dev, "up")
        assert pair.stream(3, via)[1]["first"] == COUNT


def test_kept_receiver_is_closed_before_another_backend_receives(bed: Bed, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pair = Pair(bed, tmp_path, stack)
        pair.stream(1, "live")
        assert pair.link.b_dev in pair.open_now()["b"][3]
        # A counter would take the frames from a socket.
        for block, via in enumerate(["packet", "live", "xdp", "packet"], start=2):
            assert pair.stream(block, via)[1]["first"] == COUNT
        pair.stream(6, "packet", stays=False)
        assert pair.open_now()["b"][1:] == ([], [], {})
