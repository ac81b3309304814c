"""Build valid frames, captures and messages, byte by byte, with correct lengths and checksums.

`scripts/make_corpus.py` writes them into the corpus. Files of real runs are built elsewhere.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import ipaddress
import struct
import zlib
from itertools import starmap

ETHERNET = bytes.fromhex("027700000102 027700000101")
V4 = (ipaddress.ip_address("10.0.0.1").packed, ipaddress.ip_address("10.0.0.2").packed)
V6 = (ipaddress.ip_address("fd00::1").packed, ipaddress.ip_address("fd00::2").packed)
UDP, TCP, ICMP, ICMPV6, GRE = 17, 6, 1, 58, 47


def checksum(octets: bytes) -> int:
    """Return the Internet checksum."""
    total: int = sum(struct.unpack(f">{(len(octets) + 1) // 2}H", octets + bytes(len(octets) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(kind: int, payload: bytes, tags: tuple[tuple[int, int], ...] = ()) -> bytes:
    """Build a frame without FCS, padded to 60 octets."""
    tagged = b"".join(starmap(lambda of, tag: struct.pack(">HH", of, tag), tags))
    return (ETHERNET + tagged + struct.pack(">H", kind) + payload).ljust(60, b"\0")


def v4(protocol: int, payload: bytes, *, fragment: int = 0, options: bytes = b"", tos: int = 0) -> bytes:
    """Build an IPv4 packet; `fragment` is the field of flags and fragment offset."""
    head = struct.pack(
        ">BBHHHBBH", 0x45 + len(options) // 4, tos, 20 + len(options) + len(payload), 7, fragment, 64, protocol, 0
    )
    head += b"".join(V4) + options
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def v6(protocol: int, payload: bytes) -> bytes:
    """Build an IPv6 packet."""
    return struct.pack(">IHBB", 0x60000000, len(payload), protocol, 64) + b"".join(V6) + payload


def udp(payload: bytes, addresses: tuple[bytes, bytes], ports: tuple[int, int] = (40000, 7708)) -> bytes:
    """Build a UDP datagram."""
    head = struct.pack(">HHHH", *ports, 8 + len(payload), 0)
    return head[:6] + struct.pack(">H", _over(UDP, head + payload, addresses) or 0xFFFF) + payload


def tcp(payload: bytes, addresses: tuple[bytes, bytes], flags: int = 0x18, options: bytes = b"") -> bytes:
    """Build a TCP segment."""
    words = 5 + len(options) // 4
    head = struct.pack(">HHIIHHHH", 40000, 5201, 1000, 2000, words << 12 | flags, 501, 0, 0) + options
    return head[:16] + struct.pack(">H", _over(TCP, head + payload, addresses)) + head[18:] + payload


def echo(kind: int, payload: bytes, addresses: tuple[bytes, bytes] | None = None, number: int = 3) -> bytes:
    """Build an ICMP message with identifier and sequence number; ICMPv6 if addresses are given."""
    message = struct.pack(">BBHHH", kind, 0, 0, 77, number) + payload
    right = checksum(message) if addresses is None else _over(ICMPV6, message, addresses)
    return message[:2] + struct.pack(">H", right) + message[4:]


def _over(protocol: int, octets: bytes, addresses: tuple[bytes, bytes]) -> int:
    return checksum(b"".join(addresses) + struct.pack(">IHBB", len(octets), 0, 0, protocol) + octets)


SYN_OPTIONS = bytes.fromhex("020405b4 0402080a 00000001 00000000 01030307")
STAMPS = bytes.fromhex("0101080a 00000005 00000003")


def frames() -> list[bytes]:
    """Build one frame of each kind that the parsers distinguish."""
    datagram, six = udp(bytes(range(30)), V4), udp(bytes(range(30)), V6)
    inner = ethernet(0x0800, v4(UDP, datagram))
    extended = bytes([44, 0, 1, 4, 0, 0, 0, 0]) + struct.pack(">BBHI", TCP, 0, 0, 9) + tcp(b"x" * 40, V6)
    arp = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + ETHERNET[6:] + V4[0] + bytes(6) + V4[1]
    return [
        ethernet(0x0806, arp),
        inner,
        ethernet(0x0800, v4(TCP, tcp(b"", V4, 0x02, SYN_OPTIONS))),
        ethernet(0x0800, v4(TCP, tcp(b"data" * 20, V4, options=STAMPS), tos=2)),
        ethernet(0x0800, v4(ICMP, echo(8, bytes(40)))),
        ethernet(0x0800, v4(UDP, datagram[:24], fragment=0x2000)),
        ethernet(0x0800, v4(UDP, datagram[24:], fragment=3)),
        ethernet(0x0800, v4(UDP, datagram, options=bytes.fromhex("94040000"))),
        ethernet(0x86DD, v6(UDP, six)),
        ethernet(0x86DD, v6(0, extended)),
        ethernet(0x86DD, v6(ICMPV6, echo(128, bytes(40), V6))),
        ethernet(0x0800, v4(UDP, datagram), ((0x8100, 7),)),
        ethernet(0x86DD, v6(UDP, six), ((0x88A8, 100), (0x8100, 7))),
        ethernet(0x0800, v4(GRE, bytes.fromhex("00006558") + inner)),
        ethernet(0x0800, v4(UDP, udp(bytes.fromhex("0800000000000500") + inner, V4, (40000, 4789)))),
        ethernet(0x8847, bytes.fromhex("00010140") + v4(UDP, datagram)),
    ]


def large() -> list[bytes]:
    """Build super-frames, which receive offload has merged and which exceed the usual MTU."""
    data = bytes(range(256)) * 12
    return [
        ethernet(0x0800, v4(TCP, tcp(data, V4, options=STAMPS))),
        ethernet(0x86DD, v6(TCP, tcp(data, V6))),
        ethernet(0x0800, v4(UDP, udp(data[:2000], V4))),
        ethernet(0x0800, v4(TCP, tcp(data[:1600], V4, 0x19)), ((0x8100, 7),)),
        ethernet(0x86DD, v6(UDP, udp(data[:1500], V6))),
    ]


def captures(of: list[bytes]) -> list[bytes]:
    """Build captures of these frames: pcap in both units and byte orders, pcapng with one interface and with three."""
    made = []
    for order, magic in (("<", 0xA1B2C3D4), (">", 0xA1B2C3D4), ("<", 0xA1B23C4D)):
        file = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262144, 1)
        rows = (
            struct.pack(f"{order}IIII", 1_700_000_000 + at, at, len(one), len(one) + at % 3) + one
            for at, one in enumerate(of)
        )
        made.append(file + b"".join(rows))
    return [*made, _pcapng(of, "<", 1), _pcapng(of, ">", 1), _pcapng(of, "<", 3)]


def _pcapng(of: list[bytes], order: str, interfaces: int) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        length = len(body) + 12
        return struct.pack(f"{order}II", kind, length) + body + struct.pack(f"{order}I", length)

    def option(code: int, value: bytes) -> bytes:
        return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)

    made = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    for number in range(interfaces):
        about = option(2, b"eth%d" % number) + option(9, bytes([(6, 9, 0x8A)[number % 3]])) + option(0, b"")
        made += block(1, struct.pack(f"{order}HHI", 1, 0, 262144) + about)
    for at, one in enumerate(of):
        head = struct.pack(f"{order}IIIII", at % interfaces, 0x60000, at, len(one), len(one))
        said = option(1, b"a comment") + option(2, bytes(4)) + option(0, b"") if at % 2 else b""
        made += block(6, head + one + bytes(-len(one) % 4) + said)
    if interfaces > 1:
        made += block(3, struct.pack(f"{order}I", len(of[0])) + of[0]) + block(0x0BAD, b"unknown")
    return made


def packed(octets: bytes) -> bytes:
    """Return the octets in gzip format, uncompressed, so that the result does not depend on zlib's version."""
    return gzip.compress(octets, 0, mtime=0)


def probe_headers() -> list[bytes]:
    """Build probe requests and replies with user data."""
    made = []
    for kind, word, at, clock in (
        (1, 64, 0, 0),
        (1, 0, 0, 0),
        (1, 9216, 0, 0),
        (2, 1500, 10**18, 0),
        (2, 2**55, 5, 77),
    ):
        head = b"SOJ2" + struct.pack(">QI", 0x0123456789ABCDEF, 7) + bytes([kind]) + word.to_bytes(7, "big")
        head += struct.pack(">q", at)
        made.append(head + struct.pack(">II", zlib.crc32(head), clock) + bytes(range(20)))
    return made


def stamps() -> list[bytes]:
    """Build STAMP packets (RFC 8762, 8972): open, of authenticated length, with padding, with other TLVs."""
    opened = struct.pack(">IQHH", 1, 0xE0000000_80000000, 0x8A07, 9).ljust(44, b"\0")
    other = struct.pack(">I12xQHH", 1, 0x65000000_00000005, 0xC105, 9).ljust(112, b"\0")
    tlvs = [struct.pack(">BBH", flags, kind, len(value)) + value for flags, kind, value in TLVS]
    return [opened, other, *(opened + one for one in tlvs), opened + b"".join(tlvs), other + tlvs[0]]


TLVS = ((0x80, 1, bytes(16)), (0x80, 4, b"\x2e\0\0\0"), (0xC0, 9, b""))


SESSION, SECRET = 0x0123456789ABCDEF, b"\x09" * 32
NOW_S = 1_800_000_000
"""As in tests/fuzz/src/replies.rs: the session, the key, and the second of the first probe and of the streams."""


def tag(octets: bytes) -> bytes:
    """Return the tag of a message (HMAC-SHA-256, the first 16 octets)."""
    return hmac.new(SECRET, octets, hashlib.sha256).digest()[:16]


def _probe(kind: int, word: int, at: int, seq: int) -> bytes:
    """Return a header of ours: a request (kind 1, for `word` octets) or a reply (kind 2)."""
    head = b"SOJ2" + struct.pack(">QI", SESSION, seq) + bytes([kind]) + word.to_bytes(7, "big")
    head += struct.pack(">q", at)
    return head + struct.pack(">II", zlib.crc32(head), 0 if kind == 1 else 77)


def probe_replies() -> list[bytes]:
    """Build a reply to a prober for each framing and protocol, each behind the settings of the prober."""
    reply, request = _probe(2, 1500, 10**18, 2), _probe(1, 60, 0, 4)
    # The ICMP number of the fifth probe of block 7.
    number = (7 * 40_503 >> 3) + 4 & 0xFFFF
    short = _probe(1, 60, 0, 4).ljust(60, b"\x2a")
    raw = bytes.fromhex("020000000001 020000000002 88b5") + reply.ljust(60, b"\0")
    keyed = (reply + tag(reply)).ljust(60, b"\0")
    ntp = NOW_S + 2_208_988_800 << 32
    opened = struct.pack(">IQHHQIQH2xB3x", 9, ntp + 7, 0x8A07, 0, ntp + 5, 0, ntp, 1, 64)
    covered = struct.pack(">I12xQHH4xQ8xI12xQH6xB15x", 9, ntp + 7, 0xCA07, 0, ntp + 5, 0, ntp, 1, 64)
    return [
        b"\x00" + reply.ljust(60, b"\0"),
        b"\x00" + reply.ljust(200, b"\x01"),
        b"\x08" + keyed,
        b"\x01" + raw,
        b"\x02" + echo(0, request.ljust(60, b"\0"), number=number),
        b"\x03" + echo(129, short, V6, number),
        b"\x04" + opened,
        b"\x04" + opened + struct.pack(">BBH", 0, 1, 4) + bytes(4),
        b"\x0c" + covered + tag(covered),
    ]


def _turn(frame: bytes, what: int = 0, who: int = 0, port: int = 40_000) -> bytes:
    """Return a frame behind what a responder's target does to it: its time, its sender, its length."""
    return struct.pack(">BBBHH", what, 1, who, port, len(frame)) + frame


def requests_to_responders() -> list[bytes]:
    """Build what arrives at a responder of probes: requests, again, from other hosts, in many sessions, and replies."""
    many, group, named, broadcast = 5, 2, 1, 7

    def arriving(head: bytes, is_keyed: bool = False) -> bytes:
        opened = [_probe(1, 60, 0, seq) for seq in range(4)]
        whole = [head + (one + (tag(one) if is_keyed else b"")).ljust(64, b"\x2a") for one in opened]
        first, second, third, last = whole
        return b"".join((
            *map(_turn, (first, first, last, second)), _turn(third, group), _turn(third, who=broadcast),
            _turn(third, port=1900), _turn(head + _probe(1, 1400, 0, 9).ljust(64, b"\0"), who=named),
            _turn(head + _probe(2, 5, 10**18, 0).ljust(64, b"\0")), _turn(first, many, who=0x35), _turn(third[:30]),
        ))  # fmt: skip

    raw, other = (bytes.fromhex(f"020000000002 0200000000{who} 88b5") for who in ("01", "09"))
    return [
        b"\x00" + arriving(b""),
        b"\x01" + arriving(b"", is_keyed=True),
        b"\x02" + arriving(raw),
        b"\x03" + arriving(raw, is_keyed=True),
        b"\x0c" + arriving(b""),
        b"\x0e" + arriving(other),
        b"\x30" + arriving(b""),
    ]


def packets_to_reflectors() -> list[bytes]:
    """Build what arrives at a session-reflector: packets in order and not, again, with TLVs, and reflected ones."""
    ntp = NOW_S + 2_208_988_800 << 32
    many, group, broadcast = 5, 2, 7
    tlvs = [struct.pack(">BBH", flags, kind, len(value)) + value for flags, kind, value in TLVS]

    def opened(seq: int) -> bytes:
        return struct.pack(">IQHH", seq, ntp + (seq << 28), 0x8A07, 9).ljust(44, b"\0")

    def keyed(seq: int) -> bytes:
        covered = struct.pack(">I12xQHH", seq, ntp + (seq << 28), 0x8A07, 9).ljust(96, b"\0")
        return covered + tag(covered)

    def arriving(packets: list[bytes], reflected: bytes) -> bytes:
        first, second, third, last = packets
        return b"".join((
            *map(_turn, (first, first, last, second, third + tlvs[0], third + b"".join(tlvs))), _turn(third, group),
            _turn(third, who=broadcast), _turn(third, port=862), _turn(reflected), _turn(first, many, who=0x35),
            _turn(third[:30]),
        ))  # fmt: skip

    reply = struct.pack(">IQHHQIQH2xB3x", 9, ntp + 7, 0x8A07, 0, ntp + 5, 0, ntp, 1, 64)
    covered = struct.pack(">I12xQHH4xQ8xI12xQH6xB15x", 9, ntp + 7, 0xCA07, 0, ntp + 5, 0, ntp, 1, 64)
    without = arriving([opened(seq) for seq in range(4)], reply)
    with_key = arriving([keyed(seq) for seq in range(4)], covered + tag(covered))
    return [*(bytes([one]) + without for one in (0, 2, 4, 0x30)), *(bytes([one]) + with_key for one in (1, 3))]


def stream_replies() -> list[bytes]:
    """Build what arrives at the sender of streams: replies of exchanges, answers, messages with another key or tag."""
    sync_reply, follow_up, answer, end_ack, greeting_reply, data = 6, 8, 2, 4, 10, 1

    def payload(kind: int, seq: int, key: int = SESSION, flow: int = 1, sent_ns: int = 5_000) -> bytes:
        at = NOW_S * 10**9
        head = b"SOJ3" + struct.pack(">BBHQ", kind, 1, flow, key) + seq.to_bytes(6, "big")
        head += struct.pack(">qq", at, at + sent_ns)
        tail = bytes((at * 167 + 13) & 0xFF for at in range(42, 60))
        if kind in (sync_reply, follow_up):
            tail = (77).to_bytes(6, "big") + bytes([2, 1])
        return head + struct.pack(">I", zlib.crc32(head)) + tail

    def arriving(*payloads: bytes, raw: bool = False, is_corrected: bool = False) -> bytes:
        link = bytes.fromhex("020000000001 020000000002 88b6") if raw else b""
        frames = [link + one for one in payloads]
        return b"".join(struct.pack(">BBH", is_corrected, 1, len(one)) + one for one in frames)

    exchange = [payload(sync_reply, 0), payload(follow_up, 0, sent_ns=9_000), payload(sync_reply, 1)]
    answers = [payload(answer, seq, flow=flow) for seq, flow in ((0, 1), (2, 1), (1, 1), (1, 1), (0, 2), (5, 3))]
    foreign = [payload(kind, 0, SESSION ^ 1) for kind in (answer, sync_reply, end_ack, greeting_reply, data)]
    sealed = [one + tag(one) for one in exchange]
    return [
        b"\x00" + arriving(*exchange, *answers),
        b"\x01" + arriving(*answers, *exchange, raw=True),
        b"\x02" + arriving(*sealed, *exchange, *answers),
        b"\x03" + arriving(*(one + bytes(16) for one in exchange), *sealed, raw=True),
        b"\x08" + arriving(*answers, *foreign, is_corrected=True),
        b"\x14" + arriving(*exchange, *foreign),
    ]


def types_of_kernel() -> list[bytes]:
    """Build BTF of a structure with members of several types; one has bit fields, one a nested structure."""
    strings = b"\0u32\0bictcp\0cnt\0last_cwnd\0inner\0u8\0array\0"
    at = {
        word: strings.index(b"\0" + word.encode() + b"\0") + 1
        for word in ("u32", "bictcp", "cnt", "last_cwnd", "inner")
    }
    number = [at["u32"], 1 << 24, 4, 32]

    def structure(name: int, size: int, members: list[tuple[int, int, int]], flag: int = 0) -> list[int]:
        return [name, flag << 31 | 4 << 24 | len(members), size, *(word for one in members for word in one)]

    two = [(at["cnt"], 1, 0), (at["last_cwnd"], 1, 32)]
    made = [
        [*number, *structure(at["bictcp"], 8, two)],
        [*number, *structure(at["inner"], 8, two), *structure(at["bictcp"], 12, [(at["cnt"], 1, 0), (0, 2, 32)])],
        [*number, 0, 3 << 24, 0, 1, 1, 4, *structure(at["bictcp"], 20, [(at["cnt"], 1, 0), (at["last_cwnd"], 2, 32)])],
        [*number, *structure(at["bictcp"], 4, [(at["cnt"], 1, 4 << 24), (at["last_cwnd"], 1, 4 << 24 | 4)], 1)],
        [*number, at["u32"], 8 << 24, 1, *structure(at["bictcp"], 8, [(at["cnt"], 2, 0), (at["last_cwnd"], 1, 32)])],
    ]
    return [_btf(words, strings) for words in made]


def _btf(words: list[int], strings: bytes) -> bytes:
    size = 4 * len(words)
    return (
        struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, size, size, len(strings))
        + struct.pack(f"={len(words)}I", *words)
        + strings
    )


SAMPLE_BYTES, PRIVATE_BYTES, FLOW_BYTES, TOTALS_BYTES = 320, 160, 576, 464
"""As in crates/tcplog/src/layout.rs: the test of the corpus fails if they differ."""


def ring_records() -> list[bytes]:
    """Build records of the kernel's rings: samples of received, sent and no packets, and private states."""
    samples = [bytes([1, point, 0, 0]) + bytes(range(1, 253)) + bytes(64) for point in (0, 1, 2)]
    private = [bytes([2]) + bytes(PRIVATE_BYTES - 1), bytes([2, 0, 0, 0]) + b"\x07" * (PRIVATE_BYTES - 4)]
    return [one.ljust(SAMPLE_BYTES, b"\0") for one in samples] + private


def spools() -> list[bytes]:
    """Build spools of a TCP log: complete ones, a truncated one, a later part, one that reached its limit."""
    header = b'{"hz":250,"fields":["snd_cwnd"]}'
    begin = b"SJTCPLOG" + struct.pack("=II", 4, len(header)) + header + struct.pack("=I", zlib.crc32(header))

    def frame(kind: int, of: int, payload: bytes) -> bytes:
        head = struct.pack("=III", kind, of, len(payload))
        return head + struct.pack("=I", zlib.crc32(head + payload)) + payload

    events = b"".join(struct.pack("=HH", len(one), 0) + one for one in ring_records())
    flow, totals, end = frame(2, 3, bytes(FLOW_BYTES)), frame(3, 0, bytes(TOTALS_BYTES)), frame(7, 0, b"")
    logged = frame(1, 0, events) + frame(1, 1, events)
    gap = frame(4, 1, struct.pack("=QQQQ", 4, 2, 2**64 - 1, 9))
    account = frame(6, 0, struct.pack("=QQQQ", 5, 0, 0, 0) + struct.pack("=QIIQQ", 0, 0, 0, 5, 5))
    gone = frame(8, 3, bytes(FLOW_BYTES)) + frame(9, 1, struct.pack("=QQQQQ", 7, 1, 1, 0, 0))
    return [
        begin + logged + flow + totals + frame(5, 0, b"ring of CPU 1 was full") + end,
        begin + logged + gap + gone + totals + account + end,
        begin + frame(11, 1, struct.pack("=12Q", *range(12))) + totals + flow + logged + end,
        begin + logged + frame(10, 0, struct.pack("=Q", 2)) + account + end,
        begin + flow + totals + (logged + end)[:700],
    ]


def streams_of_logs() -> list[bytes]:
    """Build logs as sent to another host: spools with the frame that states how they ended; a truncated one."""
    footer = b'{"why":"signal","records":4}'
    head = struct.pack("=III", 12, 0, len(footer))
    told = head + struct.pack("=I", zlib.crc32(head + footer)) + footer
    end = struct.pack("=III", 7, 0, 0)
    end += struct.pack("=I", zlib.crc32(end))
    return [one.removesuffix(end) + told + end for one in spools()[:2]] + spools()[4:]
