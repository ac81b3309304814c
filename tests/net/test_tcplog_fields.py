"""A log of SIFTR's fields alone, held against TCP_INFO of a connection at rest; what was not asked is null."""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.records import TABLES
from tests.net.tcplog_bed import B4, PORT, Bed, line_of, logging, made_bed, sojourn_says

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

COLUMNS = list(TABLES["tcp_samples"])
STATE = COLUMNS[COLUMNS.index("state") :]
ALONG = {"snd_una", "snd_nxt", "rcv_nxt"}
"""Columns of fields that others of SIFTR's are made of."""

SIFTR = {
    *("state", "snd_cwnd", "snd_ssthresh", "mss_bytes", "snd_wnd_bytes", "rcv_wnd_bytes", "snd_wscale", "rcv_wscale"),
    *("srtt_us", "rto_us", "sndbuf_bytes", "snd_queued_bytes", "rcvbuf_bytes", "rcv_queued_bytes", "in_flight_bytes"),
    *("flags", "ca_state", "num_sacks"),
}
OFTEN_NULL = {"srtt_us"}
"""Null until it is measured."""

TIMESTAMPS, SACK, WINDOW_SCALING = 1, 2, 4
"""Of TCP_INFO's options, and of our flags: the same bits."""

CLIENT = """
import json, socket, sys, time
LAST_BYTES = 7
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
    one.sendall(bytes(400_000))
    while one.recv(1) != b"!":
        pass
    time.sleep(0.3)  # the peer's last acknowledgement has come, and no timer runs
    told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 512).hex()
    buffers = [one.getsockopt(socket.SOL_SOCKET, name) for name in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    one.sendall(bytes(LAST_BYTES))
    one.shutdown(socket.SHUT_WR)
    one.recv(1)
    print(json.dumps({"info": told, "buffers": buffers, "port": one.getsockname()[1]}), flush=True)
"""
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    one, _ = server.accept()
    left = 400_000
    while left:
        left -= len(one.recv(left))
    one.sendall(b"!")
    while one.recv(1 << 16):
        pass
"""
LAST_BYTES = 7
OWN_PORT = PORT + 3


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        yield made


def test_siftr_fields_equal_tcp_info_and_the_others_are_null(bed: Bed, tmp_path: Path) -> None:
    with logging(
        tmp_path / "t", "--attach", bed.cgroup, "--port", str(OWN_PORT), "--fields", "siftr", "--private", "4"
    ) as logger:
        server = bed.start("b", sys.executable, "-c", SERVER, B4, str(OWN_PORT))
        assert line_of(server) == "ready"
        told = json.loads(line_of(bed.start("a", sys.executable, "-c", CLIENT, B4, str(OWN_PORT))))
        status = logger.status()
        bed.await_rest()
        log = logger.end()
    log.expect_law()
    log.expect_every(1)
    assert status["options"]["fields"] == log.footer["fields"] == ["siftr"]
    header = json.loads((tmp_path / "t" / "header.json").read_text())
    assert set(header["fields"]) == SIFTR | ALONG
    assert set(header["unasked"]) | SIFTR | ALONG == set(STATE) - (set(header["absent"]) - set(header["unasked"]))

    samples = log.of_packets
    for name in STATE:
        nulls = samples[name].null_count()
        if name not in SIFTR | ALONG:
            assert nulls == samples.height, name
        elif name not in OFTEN_NULL:
            assert nulls == 0, name

    ((flow,),) = log.flows.filter(local_port=told["port"]).select("flow").iter_rows()
    mine = samples.filter(pl.col("flow") == flow, pl.col("point") == "out", pl.col("payload_bytes") == LAST_BYTES)
    expect_info(mine.row(0, named=True), bytes.fromhex(told["info"]), told["buffers"])


def expect_info(sample: dict[str, int], info: bytes, buffers: list[int]) -> None:
    """The sample of the packet that ended the rest says what TCP_INFO said of it."""

    def word(at: int) -> int:
        return int(struct.unpack_from("=I", info, at)[0])

    assert (sample["state"], sample["ca_state"]) == (info[0], info[1])
    assert (sample["snd_wscale"], sample["rcv_wscale"]) == (info[6] & 15, info[6] >> 4)
    options = TIMESTAMPS | SACK | WINDOW_SCALING
    assert sample["flags"] & options == info[5] & options
    assert sample["rto_us"] == word(8)
    assert sample["mss_bytes"] == word(16)
    assert word(24) == sample["in_flight_bytes"] == 0
    assert sample["snd_queued_bytes"] == LAST_BYTES, "it is queued, and not in flight yet"
    assert sample["rcv_queued_bytes"] == 0
    assert int(sample["srtt_us"]) == word(68)
    assert sample["snd_ssthresh"] == word(76)
    assert sample["snd_cwnd"] == word(80)
    assert [sample["sndbuf_bytes"], sample["rcvbuf_bytes"]] == buffers
    assert sample["snd_wnd_bytes"] > 0
    assert sample["rcv_wnd_bytes"] > 0


def test_unknown_field_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    for words, said in (
        (("--fields", "sifter"), 'srtt_us, total_retrans (did you mean "siftr"?)'),
        (("--fields", "siftr,total_retrams"), 'did you mean "total_retrans"?'),
        (("--fields", "siftr", "--flight", "10"), "--flight-on rto: --fields siftr leaves out total_rto,retransmits"),
    ):  # fmt: skip
        done = sojourn_says("tcplog", "run", *words, "--out", tmp_path / "refused", "--duration", "1s")
        assert done.returncode == 2
        assert said in done.stderr
        assert not (tmp_path / "refused").exists()


def test_a_running_log_keeps_its_fields(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--fields", "siftr,lost") as logger:
        refused = sojourn_says("tcplog", "set", tmp_path / "t", "--fields", "all")
        assert refused.returncode == 2
        assert "--fields all: a log keeps the fields that it began with (siftr,lost)" in refused.stderr
        assert sojourn_says("tcplog", "set", tmp_path / "t", "--ppl", "2").returncode == 0
        logger.end()
