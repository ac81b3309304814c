"""What stays from one stream of a search to the next: ports and programs in the kernel, whose account begins anew.

Counted, not timed: sockets by the kernel's list of packet sockets, programs by the numbers that it gives them.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import BedSpec, build_bed
from sojourn.instruments import StreamInstrument, find_instrument
from sojourn.instruments.conversation import no_tick
from sojourn.instruments.stream import serve_argv
from tests.net.busy_machine import await_that

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

    def __init__(self, bed: Bed, folder: Path, stack: ExitStack) -> None:
        self.bed, self.link = bed, bed.topology.link("direct")

        def start(host: Any) -> StreamInstrument:
            argv = serve_argv(find_instrument(), folder, 0, host, [])
            one = StreamInstrument(lambda argv, **popen: bed.backend.start(host, argv, **popen), argv)
            stack.callback(one.kill)
            return one

        self.a, self.b = start("a"), start("b")

    def stream(self, block: int, via: str, *, stays: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
        """One stream, all of it counted before it is ended: what was sent of it, and received."""
        head = {"block": block, "keep": "histograms", "stay_open": stays}
        port = {"port": 0, "via": via, "dev": self.link.b_dev}
        self.b.receive(head | {"ports": [port], "flows": [1], "late_after_ns": 1e9})
        to = {"via": via, "dev": self.link.a_dev, "mac": self.link.b_mac}
        flow = {"flow": 1, "to": to, "schedule": "regular", "rate_pps": 20_000.0, "count": COUNT, "payload_bytes": 46}
        self.a.send(head | {"flows": [flow], "stamps": "none", "clock": "shared"})
        sent = self.a.sent(no_tick)["flows"][0]
        await_that(lambda: self.b.arrived(block) == COUNT, "all frames to arrive")
        told = [{"flow": 1, "sent": sent["sent"], "next": sent["next"]}]
        return sent, self.b.finish_receiving(block, told, no_tick)["flows"][0]

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


def numbers(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line.startswith(("prog_id:", "map_id:"))]


@pytest.mark.parametrize("via", ["live", "packet", "xdp"])
def test_nothing_is_opened_loaded_or_started_for_a_trial_of_a_search(bed: Bed, tmp_path: Path, via: str) -> None:
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


def test_what_was_left_is_closed_where_another_way_to_receive_is_next(bed: Bed, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pair = Pair(bed, tmp_path, stack)
        pair.stream(1, "live")
        assert pair.link.b_dev in pair.open_now()["b"][3]
        # A counter would take the frames from a socket.
        for block, via in enumerate(["packet", "live", "xdp", "packet"], start=2):
            assert pair.stream(block, via)[1]["first"] == COUNT
        pair.stream(6, "packet", stays=False)
        assert pair.open_now()["b"][1:] == ([], [], {})
