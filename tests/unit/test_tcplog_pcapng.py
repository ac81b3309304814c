"""Comments in captures: each packet has its own sample's, and what was captured is kept to the bit.

The captures are made of the same packets that a log was made of, by a writer of this file's own; comments are read back
by a reader of this file's own, and by tcpdump where there is one.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.errors import RequestError
from sojourn.export import Chosen, Request, convert
from sojourn.records.pcap import Block, read_capture, tcp_of
from tests.unit.made_up_tcp import TAI_MINUS_UTC_S, Log, MadeFlow

if TYPE_CHECKING:
    from pathlib import Path

FLOWS = (MadeFlow(rounds=30), MadeFlow(algorithm="cubic", family=6, rounds=20), MadeFlow(role="receiver", rounds=10))
LINKS = {"ethernet": 1, "vlan": 1, "cooked": 113, "cooked2": 276, "raw": 101, "loopback": 0}


def link_header(link: str, family: int) -> bytes:
    """What stands before the IP header."""
    kind = struct.pack(">H", 0x0800 if family == 4 else 0x86DD)
    return {
        "ethernet": bytes(12) + kind,
        "vlan": bytes(12) + b"\x81\x00\x00\x07" + kind,
        "cooked": bytes(14) + kind,
        "cooked2": kind + bytes(18),
        "raw": b"",
        "loopback": struct.pack("<I", 2),
    }[link]


def checksum(octets: bytes) -> int:
    """The Internet checksum."""
    total: int = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def packet(row: dict[str, Any], link: str) -> bytes:
    """A packet as on the wire, without the payload's bytes being anything."""
    ends = [(row["local_address"], row["local_port"]), (row["remote_address"], row["remote_port"])]
    (source, sport), (destination, dport) = ends if row["point"] == "out" else reversed(ends)
    family = 6 if ":" in source else 4
    addresses = b"".join(
        socket.inet_pton(socket.AF_INET6 if family == 6 else socket.AF_INET, one) for one in (source, destination)
    )
    tcp = struct.pack(
        ">HHIIHHHH", sport, dport, row["seq"], row["ack"], 8 << 12 | row["tcp_flags"], row["window"], 0xBEEF, 0
    )
    behind = tcp + bytes(12) + bytes(row["payload_bytes"])
    if family == 6:
        ip = struct.pack(">IHBB", 6 << 28, len(behind), 6, 64) + addresses
    else:
        head = struct.pack(">BBHHHBB", 0x45, row["tos"], 20 + len(behind), row["ip_id"], 0x4000, 64, 6)
        ip = head + struct.pack(">H", checksum(head + b"\0\0" + addresses)) + addresses
    return link_header(link, family) + ip + behind


def pcap(packets: list[tuple[int, bytes]], link: str) -> bytes:
    """A pcap file with stamps in ns."""
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, LINKS[link])
    records = (
        struct.pack("<IIII", at // 10**9, at % 10**9, len(octets), len(octets)) + octets for at, octets in packets
    )
    return head + b"".join(records)


def block(kind: int, body: bytes, order: str = ">") -> bytes:
    """A block of pcapng."""
    body = body.ljust(-len(body) // 4 * -4, b"\0")
    return struct.pack(f"{order}II", kind, len(body) + 12) + body + struct.pack(f"{order}I", len(body) + 12)


def pcapng(packets: list[tuple[int, bytes]], link: str) -> bytes:
    """A big-endian pcapng file with stamps in µs, options and blocks that nobody knows."""
    parts = [
        block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1)),
        block(1, struct.pack(">HHI", LINKS[link], 0, 0) + struct.pack(">HH4sHH", 2, 2, b"lo", 0, 0)),
        block(0x0BAD, b"nobody knows"),
    ]
    for at, octets in packets:
        us = at // 1000
        head = struct.pack(">IIIII", 0, us >> 32, us & 0xFFFFFFFF, len(octets), len(octets))
        options = struct.pack(">HH4sHH3sxHH", 2, 4, b"\0\0\0\1", 1, 3, b"old", 0, 0)
        parts.append(block(6, head + octets.ljust(-len(octets) // 4 * -4, b"\0") + options))
    return b"".join(parts)


def comments(path: Path) -> list[tuple[bytes, list[str]]]:
    """Each packet's bytes and comments, by a reader of our own; the file's order of bytes is that of its section."""
    octets, at, found = path.read_bytes(), 0, []
    order = "<" if octets[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
    while at < len(octets):
        kind, length = struct.unpack_from(f"{order}II", octets, at)
        assert struct.unpack_from(f"{order}I", octets, at + length - 4) == (length,)
        if kind == 6:
            captured = struct.unpack_from(f"{order}I", octets, at + 20)[0]
            texts: list[str] = []
            place = at + 28 + (captured + 3) // 4 * 4
            while place < at + length - 4:
                code, size = struct.unpack_from(f"{order}HH", octets, place)
                if code == 1:
                    texts.append(octets[place + 4 : place + 4 + size].decode())
                place += 4 + (size + 3) // 4 * 4
            found.append((octets[at + 28 : at + 28 + captured], texts))
        at += length
    assert at == len(octets)
    return found


def rows_of(truth: Any) -> list[dict[str, Any]]:
    """The log's packets with the addresses of their flows, in the order of time."""
    samples = truth.samples.filter(pl.col("point").is_in(["in", "out"])).sort("time_ns", maintain_order=True)
    rows: list[dict[str, Any]] = samples.join(truth.tables["tcp_flows"].drop("block"), on="flow").to_dicts()
    return rows


def stamp(row: dict[str, Any]) -> int:
    """When the packet is captured: a little later than it is sampled going out, a little sooner coming in; UTC."""
    at: int = row["time_ns"] - TAI_MINUS_UTC_S * 10**9
    return at + (3_000 if row["point"] == "out" else -3_000)


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
@pytest.mark.parametrize("link", LINKS)
def test_each_packet_has_the_comment_of_its_own_sample(tmp_path: Path, form: str, link: str) -> None:
    truth = Log(FLOWS).write(tmp_path / "t")
    rows = rows_of(truth)
    packets = [(stamp(row), packet(row, link)) for row in rows]
    write = pcap if form == "pcap" else pcapng
    (tmp_path / "c").write_bytes(write(packets, link))
    told = convert(Request(tmp_path / "t", "pcapng", tmp_path / "o.pcapng", capture=tmp_path / "c"))
    assert told.records == len(rows)
    found = comments(tmp_path / "o.pcapng")
    assert [octets for octets, _ in found] == [octets for _, octets in packets]
    for row, (_, texts) in zip(rows, found, strict=True):
        assert texts[0].startswith(f"tcplog {row['point']}, flow {row['flow']} packet {row['packet']}: ")
        assert f"cwnd {row['snd_cwnd']} segments ({row['snd_cwnd'] * row['mss_bytes']} bytes)" in texts[0]
        assert texts[1:] == (["old"] if form == "pcapng" else [])


def test_packets_seen_on_one_side_only_are_reported(tmp_path: Path) -> None:
    truth = Log((MadeFlow(rounds=10),), ppl=2).write(tmp_path / "t")
    whole = Log((MadeFlow(rounds=10),)).make()
    rows = rows_of(whole)[: whole.samples.height // 2]
    udp = bytearray(packet(rows[0], "ethernet"))
    udp[14 + 9] = 17
    packets = [(stamp(row), packet(row, "ethernet")) for row in rows]
    (tmp_path / "c").write_bytes(pcap([*packets, (packets[-1][0], bytes(udp)), (packets[-1][0], b"short")], "ethernet"))
    told = convert(Request(tmp_path / "t", "pcapng", tmp_path / "o.pcapng", capture=tmp_path / "c"))
    matched = sum(row["packet"] % 2 == 0 for row in rows)
    assert told.records == matched
    logged = truth.samples.height
    assert f"{matched} of {len(rows)} TCP packets" in told.sentences[0]
    sums = f"of {logged} logged packets {matched} are in the capture as they were logged, 0 in segments"
    assert told.sentences[1] == f"{sums}, {logged - matched} are not in it"
    assert told.sentences[2].startswith("2 packets of")
    found = comments(tmp_path / "o.pcapng")
    assert [bool(texts) for _, texts in found] == [row["packet"] % 2 == 0 for row in rows] + [False, False]


def test_loopback_packet_has_comments_of_both_ends(tmp_path: Path) -> None:
    truth = Log((MadeFlow(rounds=5),)).make()
    flows = truth.tables["tcp_flows"]
    swapped = {"local_address": "remote_address", "local_port": "remote_port"}
    renamed = swapped | {new: old for old, new in swapped.items()}
    other = flows.rename(renamed).select(flows.columns).with_columns(pl.lit(2, pl.Int32).alias("flow"))
    turned = truth.samples.with_columns(
        pl.lit(2, pl.Int32).alias("flow"),
        pl.when(pl.col("point") == "in").then(pl.lit("out")).otherwise(pl.lit("in")).alias("point"),
    )
    truth.tables["tcp_flows"] = pl.concat([flows, other])
    rows = rows_of(truth)
    truth.tables["tcp_samples"] = pl.concat([truth.samples, turned])
    truth.write_records(tmp_path / "t" / "records")
    (tmp_path / "c").write_bytes(pcap([(stamp(row), packet(row, "raw")) for row in rows], "raw"))
    convert(Request(tmp_path / "t", "pcapng", tmp_path / "o.pcapng", capture=tmp_path / "c"))
    for _, (text,) in comments(tmp_path / "o.pcapng"):
        assert [line.split(",")[0] for line in text.splitlines()] == ["tcplog out", "tcplog in"]


def test_identical_packets_match_the_nearest_in_time(tmp_path: Path) -> None:
    truth = Log((MadeFlow(rounds=30, family=6),)).write(tmp_path / "t")
    again = [row for row in rows_of(truth) if row["payload_bytes"]]
    by_seq = {row["seq"]: row for row in again}
    assert len(by_seq) < len(again)
    packets = [(stamp(row), packet(row, "raw")) for row in again]
    (tmp_path / "c").write_bytes(pcap(packets, "raw"))
    convert(Request(tmp_path / "t", "pcapng", tmp_path / "o.pcapng", capture=tmp_path / "c"))
    for row, (_, texts) in zip(again, comments(tmp_path / "o.pcapng"), strict=True):
        assert texts[0].startswith(f"tcplog out, flow 1 packet {row['packet']}: ")


def test_equally_many_identical_packets_and_samples_match_in_order(tmp_path: Path) -> None:
    truth = Log((MadeFlow(rounds=8, family=6),)).make()
    # The same acknowledgement five times, close together, and captured late: the nearest sample would be another's.
    again = truth.samples.filter(pl.col("point") == "in")[5]
    rows = [again.with_columns(pl.lit(at, pl.Int64).alias("packet"), pl.col("time_ns") + at * 1000) for at in range(5)]
    truth.tables["tcp_samples"] = pl.concat(rows)
    truth.write_records(tmp_path / "t" / "records")
    packets = [(stamp(row) + 2_500, packet(row, "raw")) for row in rows_of(truth)]
    (tmp_path / "c").write_bytes(pcap(packets, "raw"))
    told = convert(Request(tmp_path / "t", "pcapng", tmp_path / "o.pcapng", capture=tmp_path / "c"))
    assert told.sentences[1].endswith("0 are not in it")
    numbers = [texts[0].split("packet ")[1].split(":")[0] for _, texts in comments(tmp_path / "o.pcapng")]
    assert numbers == list("01234")


def test_a_sample_belongs_to_one_packet_only(tmp_path: Path) -> None:
    """149 resets that differ in nothing but their time had the comment of one sample."""
    truth = Log((MadeFlow(rounds=8, family=6),)).make()
    truth.tables["tcp_samples"] = truth.samples.filter(pl.col("point") == "in")[5]
    truth.write_records(tmp_path / "t" / "records")
    (row,) = rows_of(truth)
    packets = [(stamp(row) + 3_000 + (at - 70) * 1000 + 300, packet(row, "raw")) for at in range(149)]
    (tmp_path / "c").write_bytes(pcap(packets, "raw"))
    told = convert(Request(tmp_path / "t", "pcapng", tmp_path / "o.pcapng", capture=tmp_path / "c"))
    assert told.records == 1
    assert [at for at, (_, texts) in enumerate(comments(tmp_path / "o.pcapng")) if texts] == [70]
    assert told.sentences[0].endswith("have a comment, 148 are not in the log")


def test_packet_with_another_ip_identification_does_not_match(tmp_path: Path) -> None:
    """A retransmission's sample also stood at the original, which was not logged."""
    truth = Log((MadeFlow(rounds=8),)).make()
    truth.tables["tcp_samples"] = truth.samples.filter(pl.col("payload_bytes") > 0)[5]
    truth.write_records(tmp_path / "t" / "records")
    (row,) = rows_of(truth)
    original = row | {"ip_id": row["ip_id"] - 7}
    packets = [(stamp(row) - 91_000_000, packet(original, "raw")), (stamp(row), packet(row, "raw"))]
    (tmp_path / "c").write_bytes(pcap(packets, "raw"))
    convert(Request(tmp_path / "t", "pcapng", tmp_path / "o.pcapng", capture=tmp_path / "c"))
    assert [len(texts) for _, texts in comments(tmp_path / "o.pcapng")] == [0, 1]


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("start", [None, 2**32 - 5000])
def test_segments_have_the_sample_of_their_super_packet(tmp_path: Path, family: int, start: int | None) -> None:
    truth = Log((MadeFlow(rounds=20, family=family),)).make()
    shift = 0 if start is None else start - int(truth.samples.filter(pl.col("payload_bytes") > 0)["seq"][0])
    data = (pl.col("payload_bytes") > 0) & (pl.col("point") == "out")
    truth.tables["tcp_samples"] = truth.samples.filter(data).with_columns(
        pl.lit(3, pl.Int32).alias("segments"),
        ((pl.col("seq") + shift) % 2**32).alias("seq"),
        (pl.int_range(pl.len()).cast(pl.Int32) * (3 if family == 4 else 0)).alias("ip_id"),
    )
    truth.write_records(tmp_path / "t" / "records")
    rows = rows_of(truth)
    packets, expected = [], []
    for row in rows:
        size = -(-row["payload_bytes"] // 3)
        for turn in range(3):
            length = min(size, row["payload_bytes"] - turn * size)
            one = {"seq": (row["seq"] + turn * size) % 2**32, "payload_bytes": length}
            one |= {"ip_id": row["ip_id"] + turn, "tcp_flags": row["tcp_flags"] & ~8 if turn < 2 else row["tcp_flags"]}
            packets.append((stamp(row) + turn * 100, packet(row | one, "raw")))
            where = f"bytes {turn * size + 1} to {turn * size + length} of the {row['payload_bytes']}"
            expected.append(f"packet {row['packet']}, {where} of a super-packet of 3 segments: ")
    (tmp_path / "c").write_bytes(pcap(packets, "raw"))
    told = convert(Request(tmp_path / "t", "pcapng", tmp_path / "o.pcapng", capture=tmp_path / "c"))
    for (_, (text,)), part in zip(comments(tmp_path / "o.pcapng"), expected, strict=True):
        assert part in text
    assert told.sentences[1].endswith(f"{len(rows)} in segments, 0 are not in it")
    assert told.sentences[2].startswith(f"{3 * len(rows)} segments have the sample")


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="no tcpdump on this machine")
@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_tcpdump_reads_what_was_written(tmp_path: Path, form: str) -> None:
    truth = Log((MadeFlow(rounds=5),)).write(tmp_path / "t")
    rows = rows_of(truth)
    packets = [(stamp(row), packet(row, "ethernet")) for row in rows]
    (tmp_path / "c").write_bytes((pcap if form == "pcap" else pcapng)(packets, "ethernet"))
    convert(Request(tmp_path / "t", "pcapng", tmp_path / "o.pcapng", capture=tmp_path / "c"))
    read = [
        subprocess.run(["tcpdump", "-tt", "-n", "-r", path], capture_output=True, text=True, check=True).stdout
        for path in (tmp_path / "c", tmp_path / "o.pcapng")
    ]
    assert read[0].count("\n") == len(rows)
    assert read[0] == read[1]


def test_wrong_captures_are_one_sentence(tmp_path: Path) -> None:
    truth = Log((MadeFlow(rounds=5),)).write(tmp_path / "t")
    packets = [(stamp(row), packet(row, "ethernet")) for row in rows_of(truth)[:3]]
    (tmp_path / "text").write_text("no capture at all, this is")
    (tmp_path / "cut").write_bytes(pcap(packets, "ethernet")[:-9])
    (tmp_path / "cutng").write_bytes(pcapng(packets, "ethernet")[:-9])
    (tmp_path / "empty").write_bytes(b"")
    moved = bytearray(packets[0][1])
    moved[14 + 12 : 14 + 20] = bytes(8)
    (tmp_path / "foreign").write_bytes(pcap([(packets[0][0], bytes(moved))], "ethernet"))
    (tmp_path / "later").write_bytes(pcap([(packets[0][0] + 60 * 10**9, packets[0][1])], "ethernet"))
    (tmp_path / "nothing").write_bytes(pcap([(packets[0][0], b"no packet")], "ethernet"))
    wrong = {"foreign": "no address in common", "later": "though addresses agree", "nothing": "has no TCP packet"}
    wrong |= {"text": "neither", "cut": "not whole", "cutng": "not whole", "empty": "neither", "none": "is no file"}
    for name, words in wrong.items():
        with pytest.raises(RequestError, match=words):
            convert(Request(tmp_path / "t", "pcapng", tmp_path / "o", capture=tmp_path / name))
        assert not (tmp_path / "o").exists()
    for request in (
        Request(tmp_path / "t", "pcapng", tmp_path / "o"),
        Request(tmp_path / "t", "csv", tmp_path / "o", Chosen(), tmp_path / "cut"),
    ):
        with pytest.raises(RequestError, match="--capture"):
            convert(request)


@given(octets=st.binary(max_size=120), link=st.sampled_from([*LINKS.values(), 147]))
@settings(max_examples=300, deadline=None)
def test_foreign_packets_never_fail(octets: bytes, link: int) -> None:
    tcp_of(Block(b"", "<", 6, 1, link, octets))
    tcp_of(Block(b"", "<", 6, 1, 1, bytes(12) + b"\x08\x00\x45" + octets))
    tcp_of(Block(b"", "<", 6, 1, 1, bytes(12) + b"\x86\xdd\x60" + octets))


@given(octets=st.binary(max_size=200), start=st.sampled_from([b"", b"\x0a\x0d\x0d\x0a", b"\x4d\x3c\xb2\xa1"]))
@settings(max_examples=200, deadline=None)
def test_foreign_files_are_refused_or_read(
    octets: bytes, start: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "foreign"
    path.write_bytes(start + octets)
    try:
        for one in read_capture(path):
            tcp_of(one)
    except RequestError:
        pass


def test_too_short_packet_block_is_damage(tmp_path: Path) -> None:
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    interface = struct.pack("<IIHHII", 1, 20, 1, 0, 0, 20)
    (tmp_path / "short").write_bytes(section + interface + struct.pack("<III", 6, 12, 12))
    with pytest.raises(RequestError, match="too short"):
        list(read_capture(tmp_path / "short"))


def test_packet_with_an_impossible_time_has_no_comment(tmp_path: Path) -> None:
    truth = Log((MadeFlow(rounds=5),)).write(tmp_path / "t")
    row = rows_of(truth)[0]
    octets = packet(row, "ethernet")
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    interface = struct.pack("<IIHHI", 1, 32, 1, 0, 0) + struct.pack("<HHB3xHHI", 9, 1, 0, 0, 0, 32)
    room = (len(octets) + 3) & ~3
    block = struct.pack("<7I", 6, 32 + room, 0, 0xFFFF_FFFF, 0, len(octets), len(octets))
    block += octets.ljust(room, b"\0") + struct.pack("<I", 32 + room)
    usual = struct.pack("<HHI", 1, 0, 0)
    stamped = struct.pack("<7I", 6, 32 + room, 1, *divmod(stamp(row) // 1000, 1 << 32), len(octets), len(octets))
    stamped += octets.ljust(room, b"\0") + struct.pack("<I", 32 + room)
    second = struct.pack("<II", 1, 20) + usual + struct.pack("<I", 20)
    (tmp_path / "late").write_bytes(section + interface + second + block + stamped)
    convert(Request(tmp_path / "t", "pcapng", tmp_path / "o", capture=tmp_path / "late"))
    assert [len(texts) for _, texts in comments(tmp_path / "o")] == [0, 1]
