"""Super-frames of a virtual machine, whose segments nobody has counted, through an emulator within the kernel.

Such a frame comes in by a TAP with a virtio header that names the size of a segment and no number of segments.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sojourn.instruments import find_instrument
from tests.children import Child
from tests.net.busy_machine import await_that

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name"),
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="this kernel has no TAP"),
]

NAME = f"sojourn-super-{os.getpid()}"
SEGMENTS, FRAMES = 10, 20
FITS, EXCEEDS = 1428, 1448
"""Bytes of a segment over IPv6 with timestamps: of 1,500 bytes with headers, and of 1,520."""
GUEST = f"""
import fcntl, os, socket, struct, sys
TUNSETIFF, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x400454CA, 0x2, 0x1000, 0x4000
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH14x", b"left", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
os.system("ip link set left up")
print("ready", flush=True)
sys.stdin.readline()
count = {SEGMENTS}

def ones(octets):
    total = sum(struct.unpack(f">{{len(octets) // 2}}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total

def frame(family, number, size):
    tcp = struct.pack(">HHIIBBHHH", 40000, 5201, number * size * count, 0, 8 << 4, 0x10, 512, 0, 0)
    tcp += bytes([1, 1, 8, 10]) + bytes(8)  # timestamps
    data = bytes(size * count)
    if family == 4:
        addresses = socket.inet_aton("10.1.1.1") + socket.inet_aton("10.1.1.2")
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp) + len(data), number, 0x4000, 64, 6, 0) + addresses
        head = head[:10] + (~ones(head) & 0xFFFF).to_bytes(2, "big") + head[12:]
        kind, ethertype = 1, 0x0800
    else:
        addresses = socket.inet_pton(socket.AF_INET6, "fd00::1") + socket.inet_pton(socket.AF_INET6, "fd00::2")
        head = struct.pack(">IHBB", 6 << 28, len(tcp) + len(data), 6, 64) + addresses
        kind, ethertype = 4, 0x86DD
    pseudo = ones(addresses + struct.pack(">HH", 6, len(tcp) + len(data)))
    tcp = tcp[:16] + pseudo.to_bytes(2, "big") + tcp[18:]
    ethernet = bytes.fromhex("020000000002" "020000000001") + ethertype.to_bytes(2, "big")
    start = len(ethernet) + len(head)
    virtio = struct.pack("<BBHHHH", 1, kind, start + len(tcp), size, start, 16)
    return virtio + ethernet + head + tcp + data

for number in range({FRAMES}):
    os.write(tap, frame(4 if number % 2 else 6, number, {FITS}))
for number in range({FRAMES}):
    os.write(tap, frame(6, number, {EXCEEDS}))
print("sent", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def namespace() -> Iterator[None]:
    subprocess.run(["ip", "netns", "add", NAME], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "netns", "del", NAME], check=False)


def inside(*argv: str) -> list[str]:
    return ["ip", "netns", "exec", NAME, *argv]


def packets(port: str, way: str) -> int:
    said = subprocess.run(inside("ip", "-j", "-s", "link", "show", port), check=True, capture_output=True, text=True)
    return int(json.loads(said.stdout)[0]["stats64"][way]["packets"])


def test_each_segment_of_a_super_frame_of_a_virtual_machine_is_counted_and_compared_with_the_mtu() -> None:
    links = "ip link add right type veth peer name far; ip link set right up; ip link set far up"
    subprocess.run(inside("sh", "-ec", links), check=True)
    emulate = [find_instrument(), "emulate", "run", "left", "right", "--redirect", "--json", "--control", "none"]
    argv = inside(sys.executable, "-I", "-c", GUEST)
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as guest:
        assert guest.stdin is not None
        assert guest.stdout is not None
        assert guest.stdout.readline() == "ready\n"
        with Child(inside(*emulate), stdout=subprocess.PIPE, text=True) as emulator:
            assert emulator.stdout is not None
            ready = json.loads(emulator.stdout.readline())
            assert ready["event"] == "ready", ready
            before = packets("far", "rx")
            guest.stdin.write("go\n")
            guest.stdin.flush()
            assert guest.stdout.readline() == "sent\n"
            await_that(lambda: packets("far", "rx") - before >= FRAMES, "all frames have passed")
            emulator.send_signal(signal.SIGINT)
            out, _ = emulator.communicate(timeout=60)
    left, right = json.loads(out.splitlines()[-1])["report"]["ports"]
    assert left["engine"] == right["engine"] == "within the kernel (TC redirect)"
    # Beside them, what the kernel says of IPv6 by an interface that has just come up.
    assert 0 <= left["received"] - 2 * FRAMES * SEGMENTS < 20, left
    assert left["received"] - right["sent"] == FRAMES * SEGMENTS, "those that exceed the MTU are lost"
