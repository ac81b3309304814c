"""Sends forged, replayed, truncated and random frames as fast as it can until its input ends, then tells how many.

A program of its own, run on the attacker's host. It knows formats, addresses and ports, and no session key. What it
replays it was given in a capture, or records itself: frames of sessions that are over by then.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import socket
import struct
import sys
import time
import zlib
from collections import deque
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA, ANSWER, END, END_ACK, SYNC, SYNC_REPLY, LIVE, FOLLOW_UP, GREETING, GREETING_REPLY = range(1, 11)
SHARED = {"shared": True, "reference_ns": 0, "offset_ns": 0, "skew_ppb": 0, "bound_ns": 0, "error95_ns": 0}
OWN_MAC = "02:77:00:00:ee:01"
LAST = {"sent": 2**64 - 1, "clock": SHARED}


AGAIN, ACCEPTED = 1, 2

PLACES = {"stream": (0x88B6, 14, b"SOJ3", 8), "probe": (0x0800, 14 + 20 + 8, b"SOJ2", 4)}
"""Of a recorded frame: EtherType, where our header begins, how it begins, and where in it the session key is."""
KEY_BYTES = 8
FIRST, LAST_OF_ALL = 48, 16
"""Of a session so many frames are kept: it begins with greetings and times, and ends with its end."""
MOST_REPLAYED = 128
"""Frames of earlier sessions that are sent again in each pass."""


def main() -> None:
    asked = [json.loads(each) for each in sys.argv[1:]]
    alone = {"handshake": handshake, "impersonation": impersonate, "groups": greet_groups}.get(asked[0]["kind"])
    if alone is None:
        flood(asked)
    else:
        alone(asked[0])


def flood(asked: list[dict[str, Any]]) -> None:
    """Sends the frames of each kind in random order, over and over, with the pause that is asked for in between.

    Each request is for a kind, one port and one victim.
    """
    rng = random.Random(1)
    make = {"stream": stream_frames, "probe": probe_frames, "any": any_frames}
    order: list[tuple[socket.socket, str, bytes | Callable[[], bytes]]] = []
    recorders: list[tuple[socket.socket, Recorder]] = []
    for each in asked:
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        port.bind((each["dev"], 0))
        order += [(port, kind, frame) for kind, frames in make[each["kind"]](each, rng).items() for frame in frames]
        if each.get("carrier") == "stamp":
            order += [(port, "guessed", partial(guessed_stamp, each, rng))] * 100
        if "record" in each:
            recorders.append((port, Recorder(each["kind"], each["record"])))
    rng.shuffle(order)
    counts = {kind: 0 for _, kind, _ in order} | ({"replayed": 0} if recorders else {})
    print("attacking", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for port, kind, frame in order:
            counts[kind] += sent(port, frame if isinstance(frame, bytes) else frame())
        time.sleep(asked[0].get("pause_seconds", 0))
        for port, recorder in recorders:
            counts["replayed"] += sum(sent(port, frame) for frame in recorder.replays())
    print(json.dumps(counts), flush=True)


def sent(port: socket.socket, frame: bytes) -> bool:
    """Send a frame; whether the interface took it."""
    try:
        port.send(frame)
    except OSError:
        return False
    return True


class Sessions:
    """Frames by their session key: those of the newest session may still be counted, those of earlier ones are over.

    A copy of a frame whose session goes on is a duplicate and no replay: whoever sees a key can repeat it.
    """

    def __init__(self, kind: str) -> None:
        _, self._begin, self._magic, self._key_at = PLACES[kind]
        self._now: bytes | None = None
        self._ended: set[bytes] = set()
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque(maxlen=LAST_OF_ALL)
        self.over: list[bytes] = []
        """Frames of sessions that are over, those of the latest one first."""

    def take(self, frame: bytes, *, is_early: bool = False) -> None:
        """Note a frame in the order in which they come.

        A session with an early frame is never replayed: it may be the answer to what another attacker replays, who
        came before this one.
        """
        header = frame[self._begin :]
        key = header[self._key_at : self._key_at + KEY_BYTES]
        if not header.startswith(self._magic) or len(key) < KEY_BYTES or key in self._ended:
            return
        if is_early:
            self._ended.add(key)
            return
        if key != self._now:
            self.over = [*self._first, *self._last, *self.over][:MOST_REPLAYED]
            self._ended |= set() if self._now is None else {self._now}
            self._now = key
            self._first.clear()
            self._last.clear()
        (self._first if len(self._first) < FIRST else self._last).append(frame)


class Recorder:
    """Records at a victim's interface what its own peer sends it; the attacker's other frames have other addresses."""

    def __init__(self, kind: str, asked: dict[str, Any]) -> None:
        self._sessions = Sessions(kind)
        self._early_until = time.monotonic() + asked.get("early_seconds", 0)
        with at_host_of(asked["process"]):
            self._port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self._port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, WAITING_BYTES)
            only_from(self._port, bytes.fromhex(asked["from_mac"].replace(":", "")))
            self._port.bind((asked["dev"], PLACES[kind][0]))
        self._port.settimeout(0)

    def replays(self) -> list[bytes]:
        """Return frames of sessions that are over by now."""
        while True:
            try:
                frame, place = self._port.recvfrom(2048)
            except OSError:
                return self._sessions.over
            if place[2] == socket.PACKET_HOST:
                self._sessions.take(frame, is_early=time.monotonic() < self._early_until)


@contextmanager
def at_host_of(process: str) -> Iterator[None]:
    """In the network namespace of another process: sockets that are made there stay there."""
    own, there = (os.open(f"/proc/{one}/ns/net", os.O_RDONLY) for one in ("self", process))
    enter = ctypes.CDLL(None, use_errno=True).setns  # Python has it from 3.12 on
    try:
        if enter(there, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        yield
    finally:
        enter(own, CLONE_NEWNET)
        os.close(own)
        os.close(there)


CLONE_NEWNET, SO_ATTACH_FILTER, SO_RCVBUFFORCE = 0x40000000, 26, 33
WAITING_BYTES = 16 << 20
"""What comes during a pause must not be lost: a session that was missed would seem new when its frames are replayed."""


def only_from(port: socket.socket, mac: bytes) -> None:
    """Have the kernel pass this sender's frames alone: a flood would fill the socket's buffer."""
    high, low = struct.unpack(">IH", mac)
    load, load_half, equal, done = 0x20, 0x28, 0x15, 0x06  # linux/bpf_common.h
    program = [
        (load, 0, 0, 6), (equal, 0, 3, high), (load_half, 0, 0, 10), (equal, 0, 1, low), (done, 0, 0, 1 << 16),
        (done, 0, 0, 0),
    ]  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    port.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(code)))


def handshake(asked: dict[str, str]) -> None:
    """Greets from its own address and sends the cookie back, as senders do; then a packet of 1970, and the end."""
    key, cookie, counts = random.getrandbits(64), bytes(8), {"greetings": 0, "streams": 0}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.connect((asked["to"], 7708))
        port.settimeout(0.02)
        print("attacking", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            try:
                port.send(header(GREETING, 1, key) + cookie + b"\0")
                counts["greetings"] += 1
                reply = port.recv(2000)
                if reply[4] != GREETING_REPLY:
                    continue
                if reply[50] == AGAIN:
                    cookie = reply[42:50]
                elif reply[50] == ACCEPTED:
                    port.send(header(DATA, 1, key))
                    port.send(header(END, 1, key) + json.dumps(LAST | {"sent": 1000}).encode())
                    counts["streams"] += 1
            except OSError:
                continue
    print(json.dumps(counts), flush=True)


def impersonate(asked: dict[str, str]) -> None:
    """Greets from its own address, and sends the cookie that it hears back as another host, and exchanges of times."""
    key, counts = random.getrandbits(64), {"greetings": 0, "exchanges": 0, "greeting_octets": 0}
    greeting, exchange = header(GREETING, 1, key), header(SYNC, 1, key) + bytes(6) + b"\2\1"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as other,
    ):
        own.connect((asked["to"], 7708))
        own.settimeout(0.02)
        other.bind((asked["dev"], 0))
        print("attacking", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            with suppress(OSError):
                own.send(greeting + bytes(9))
                forged = greeting + own.recv(2000)[42:50] + b"\0"
                counts["greetings"] += sent(other, udp(asked, 7708, forged))
                counts["exchanges"] += sent(other, udp(asked, 7708, exchange))
                counts["greeting_octets"] += len(forged)
    print(json.dumps(counts), flush=True)


GROUPS = ("10.78.9.255", "255.255.255.255", "224.0.0.1", "239.77.0.1")


def greet_groups(asked: dict[str, str]) -> None:
    """Greets by broadcast and by multicast, and tells how many replies there were to each."""
    counts, own = {"greetings": 0} | dict.fromkeys(GROUPS, 0), socket.inet_aton(asked["from"])
    print("attacking", flush=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        port.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, asked["dev"].encode())
        port.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        port.settimeout(0.2)
        while not select.select([sys.stdin], [], [], 0)[0]:
            for key, group in enumerate(GROUPS):
                port.sendto(header(GREETING, 1, key) + bytes(9), (group, 7708))
            counts["greetings"] += 1
            # A reply has the key of its greeting, however late it comes.
            with suppress(OSError):
                while reply := port.recv(2000):
                    counts[GROUPS[int.from_bytes(reply[8:16])]] += 1
    print(json.dumps(counts), flush=True)


def header(kind: int, flow: int, key: int) -> bytes:
    """The header of a stream's first frame, which left when TAI began."""
    head = struct.pack(">4sBBHQ", b"SOJ3", kind, 0, flow, key) + bytes(6 + 16)
    return head + struct.pack(">I", zlib.crc32(head))


def stream_frames(asked: dict[str, str], rng: random.Random) -> dict[str, list[bytes]]:
    """Frames of streams, over UDP and by themselves."""
    kinds: dict[str, list[bytes]] = {
        "forged": [],
        "truncated": [],
        "random": [],
        "replayed": recorded(asked["recorded"]),
    }

    def over_udp(payload: bytes) -> bytes:
        return udp(asked, 7708, payload)

    def over_ethernet(payload: bytes) -> bytes:
        return ethernet(asked, 0x88B6, payload)

    for wrap in (over_udp, over_ethernet):
        forged = [stream(rng, kind, flow) for kind in range(1, 11) for flow in (1, 1, 2, 999) for _ in range(8)]
        kinds["forged"] += [wrap(payload) for payload in forged]
        kinds["truncated"] += [wrap(payload[: rng.randrange(len(payload))]) for payload in forged]
        kinds["random"] += [wrap(rng.randbytes(rng.randrange(1, 400))) for _ in range(100)]
        # Past magic and kind, with a wrong check.
        kinds["random"] += [wrap(b"SOJ3" + bytes([kind]) + rng.randbytes(60)) for kind in range(12) for _ in range(5)]
    return kinds


def stream(rng: random.Random, kind: int, flow: int) -> bytes:
    """A frame of a stream with a key that is guessed, and everything else right."""
    seq, intended, sent = rng.choice((0, 5, 2**48 - 1)), rng.getrandbits(60), rng.getrandbits(60)
    key = rng.choice((0, 1, rng.getrandbits(64)))
    head = (
        struct.pack(">4sBBHQ", b"SOJ3", kind, rng.choice((0, 3)), flow, key)
        + seq.to_bytes(6)
        + struct.pack(">QQ", intended, sent)
    )
    check = zlib.crc32(head)
    if kind == LIVE:
        words = key ^ seq ^ intended ^ sent
        check = (words >> 32 ^ words ^ kind << 24 ^ head[5] << 16 ^ flow) & 0xFFFFFFFF
    tails: dict[int, Callable[[], bytes]] = {
        END: lambda: json.dumps(LAST | {"sent": rng.choice((0, 1, 5, 2**64 - 1))}).encode(),
        GREETING: lambda: rng.choice((0, rng.getrandbits(64))).to_bytes(8) + b"\0",
        SYNC: lambda: rng.randbytes(6) + b"\2\1",
    }
    tail = tails.get(kind, lambda: rng.randbytes(20))()
    return head + struct.pack(">I", check) + tail


def probe_frames(asked: dict[str, Any], rng: random.Random) -> dict[str, list[bytes]]:
    """Requests and replies of probes: to who answers, or as if from there to who asks."""
    carrier = asked.get("carrier", "udp")
    replayed = recorded(asked.get("recorded"))
    if carrier in {"udp", "stamp"}:
        replayed = [to_port(frame, int(asked["port"])) for frame in replayed]
    kinds: dict[str, list[bytes]] = {"forged": [], "truncated": [], "random": [], "replayed": replayed}
    forge, wrap = (stamp if carrier == "stamp" else probe), CARRIERS[carrier]
    for _ in range(300):
        payload = forge(rng)
        kinds["forged"].append(wrap(asked, payload))
        kinds["truncated"].append(wrap(asked, payload[: rng.randrange(len(payload))]))
        kinds["random"].append(wrap(asked, rng.randbytes(rng.randrange(1, 300))))
    if asked.get("with_errors"):
        kinds["errors"] = icmp_errors(asked)
    return kinds


UNDELIVERED = [*((3, code) for code in range(16)), (11, 0), (11, 1), (12, 0)]
"""Types and codes of ICMP's errors (RFC 792, RFC 1122, RFC 1812)."""
NEXT_MTU = 600


def icmp_errors(asked: dict[str, Any]) -> list[bytes]:
    """What tells who asks that its requests to who answers were not delivered, for each reason."""
    is_icmp = asked["carrier"] == "icmp"
    ports = struct.pack(">HH", int(asked["port"]), int(asked["from_port"]))
    request = struct.pack(">BBHHH", 8, 0, 0, 0, 0) if is_icmp else ports + bytes(4)
    quoted = ipv4_packet(asked["to"], asked["from"], 1 if is_icmp else 17, request)
    errors = []
    for kind, code in UNDELIVERED:
        message = struct.pack(">BBHHH", kind, code, 0, 0, NEXT_MTU) + quoted
        errors.append(ipv4(asked, 1, message[:2] + checksum(message) + message[4:]))
    return errors


def probe(rng: random.Random) -> bytes:
    """A probe of 56 bytes with a key that is guessed, and everything else right: a request or a reply."""
    words = rng.choice((0, rng.getrandbits(64))), rng.getrandbits(10)
    head = struct.pack(">4sQI", b"SOJ2", *words) + bytes([rng.choice((1, 2))]) + rng.randbytes(7) + rng.randbytes(8)
    return head + struct.pack(">I", zlib.crc32(head)) + rng.randbytes(20)


def stamp(rng: random.Random) -> bytes:
    """A packet of STAMP: a sender's or a reflector's, whose copy of the sender's time is guessed."""
    receive, sender_time = rng.choice((0, rng.getrandbits(64))), rng.getrandbits(64)
    own = struct.pack(">IQHH", rng.getrandbits(10), rng.getrandbits(64), 0x8001, rng.choice((0, rng.getrandbits(16))))
    sender = struct.pack(">IQHHBBH", rng.getrandbits(10), sender_time, 0x8001, 0, 64, 0, 0)
    return own + struct.pack(">Q", receive) + sender


NTP_TO_UNIX_SECONDS = 2_208_988_800
GUESSED_NS = 10_000
"""How far from now the time is of a packet that the attacker claims to have received."""


def guessed_stamp(asked: dict[str, Any], rng: random.Random) -> bytes:
    """A reflector's packet that copies a sender's time of now, as near as who has a clock as good can guess it."""
    now = time.time_ns() + rng.randint(-GUESSED_NS, GUESSED_NS)
    ntp = (now // 10**9 + NTP_TO_UNIX_SECONDS << 32) + (now % 10**9 << 32) // 10**9
    seq = rng.randrange(MOST_GUESSED)
    own = struct.pack(">IQHHQ", seq, ntp, 0x8001, 0, ntp)
    return udp(asked, int(asked["port"]), own + struct.pack(">IQHHBBH", seq, ntp, 0x8001, 0, 64, 0, 0))


MOST_GUESSED = 2000
"""Of the sequence numbers those are guessed: a sender of the tests comes to them within its first seconds."""


def any_frames(asked: dict[str, Any], rng: random.Random) -> dict[str, list[bytes]]:
    """Frames of every sort to no port of ours: whole, with lengths that are wrong, cut off, tagged, and random ones."""
    kinds: dict[str, list[bytes]] = {"forged": [], "truncated": [], "random": [], "tagged": []}
    for _ in range(300):
        whole = udp(asked, rng.randrange(1, 7000), rng.randbytes(rng.randrange(18, 1200)))
        kinds["forged"].append(whole)
        kinds["truncated"].append(whole[: rng.randrange(15, len(whole))].ljust(60, b"\0"))
        kinds["random"].append(
            ethernet(asked, rng.choice((0x0800, 0x86DD, 0x0806)), rng.randbytes(rng.randrange(1400)))
        )
        kinds["tagged"].append(whole[:12] + rng.choice((1, 2, 5)) * struct.pack(">HH", 0x8100, 7) + whole[12:])
    return kinds


def recorded(file: str | None) -> list[bytes]:
    """The frames of a capture (pcap)."""
    if file is None:
        return []
    data, frames, at = Path(file).read_bytes(), list[bytes](), 24
    while at + 16 <= len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return frames


def to_port(frame: bytes, port: int) -> bytes:
    """A recorded UDP datagram in IPv4 for the port that its receiver has now, without a checksum."""
    is_udp = frame[12:14] == b"\x08\x00" and frame[23:24] == b"\x11"
    return frame[:36] + port.to_bytes(2) + frame[38:40] + bytes(2) + frame[42:] if is_udp else frame


def udp(asked: dict[str, Any], port: int, payload: bytes) -> bytes:
    """A UDP datagram in IPv4, with whatever sender was asked for."""
    return ipv4(asked, 17, struct.pack(">HHHH", int(asked["from_port"]), port, 8 + len(payload), 0) + payload)


def echo(asked: dict[str, Any], payload: bytes) -> bytes:
    """An ICMP echo message: a reply with the identifier that is known, or a request."""
    identifier = asked.get("identifier")
    kind, identifier = (8, 7) if identifier is None else (0, identifier)
    head = struct.pack(">BBHHH", kind, 0, 0, identifier, random.getrandbits(9))
    return ipv4(asked, 1, head[:2] + checksum(head + payload) + head[4:] + payload)


def ipv4(asked: dict[str, Any], protocol: int, message: bytes) -> bytes:
    return ethernet(asked, 0x0800, ipv4_packet(asked["from"], asked["to"], protocol, message))


def ipv4_packet(source: str, destination: str, protocol: int, message: bytes) -> bytes:
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(message), 0, 0, 64, protocol, 0) + addresses
    return header[:10] + checksum(header) + header[12:] + message


def checksum(octets: bytes) -> bytes:
    """The Internet's (RFC 1071)."""
    octets += bytes(len(octets) % 2)
    total: int = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2)


def ethernet(asked: dict[str, str], ethertype: int, payload: bytes) -> bytes:
    addresses = [bytes.fromhex(one.replace(":", "")) for one in (asked["mac"], asked.get("own_mac", OWN_MAC))]
    return b"".join(addresses) + ethertype.to_bytes(2) + payload.ljust(46, b"\0")


CARRIERS: dict[str, Callable[[dict[str, Any], bytes], bytes]] = {
    "udp": lambda asked, payload: udp(asked, int(asked["port"]), payload),
    "stamp": lambda asked, payload: udp(asked, int(asked["port"]), payload),
    "raw": lambda asked, payload: ethernet(asked, 0x88B5, payload),
    "icmp": echo,
}


if __name__ == "__main__":
    main()
