"""tcplog over a real kernel: every packet in exactly one count, whatever the flows, the options and the reader do.

The kernel's own counters are the judge: a namespace's Tcp InSegs and OutSegs, and segs_in and segs_out of each socket.
"""

from __future__ import annotations

import os
import signal
import time
from itertools import product
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.net.tcplog_bed import A4, A6, B4, B6, PORT, WAYS, Bed, logging, made_bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

TOTAL = 8_000_000
"""Bytes of all flows together: bounded, and enough for thousands of packets."""

INFINITE = 2**31 - 1


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        yield made


@pytest.mark.parametrize("ppl", [1, 7])
@pytest.mark.parametrize("flows", [1, 10, 100])
def test_every_packet_has_exactly_one_disposition(bed: Bed, tmp_path: Path, flows: int, ppl: int) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--ppl", str(ppl)) as logger:
        bed.serve()
        bed.send(flows, TOTAL // flows).close()
        log = logger.end()
    log.expect_law()
    log.expect_every(ppl)
    assert log.flows.height == 2 * flows
    assert log.count("seen") > 10 * flows
    assert log.count("full") == log.gaps.height == 0
    assert log.count("decimated") == 0 or ppl > 1


def test_sampling_can_count_segments(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--ppl", "7", "--ppl-by", "segment") as logger:
        bed.serve()
        bed.send(4, TOTAL // 4).close()
        log = logger.end()
    log.expect_law()
    assert log.count("seen", what="segments") > log.count("seen"), "no packet was segmented: the test proves nothing"
    for flow, way in product(log.flows["flow"], WAYS):
        # A packet of n segments is logged if a multiple of 7 lies in its row: no multiple is without a packet.
        segments, logged = (
            log.count(disposition, way, flow=flow, what="segments") for disposition in ("seen", "logged")
        )
        assert 0 < log.count("logged", way, flow=flow) <= -(-segments // 7) <= logged


@pytest.mark.parametrize("ppl", [1, 7])
def test_accounting_agrees_with_kernel_counters(bed: Bed, tmp_path: Path, ppl: int) -> None:
    before = {host: bed.snmp(host) for host in "ab"}
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--ppl", str(ppl)) as logger:
        bed.serve()
        sending = bed.send(10, TOTAL // 10)
        told = {flow["local_port"]: flow for flow in logger.flows() if flow["local_address"] == A4}
        for one in sending.sockets:
            flow = told[one["port"]]
            assert (flow["segments_in"], flow["segments_out"]) == (one["segs_in"], one["segs_out"])
        sending.close()
        bed.await_rest()  # the last acknowledgement is under way
        after = {host: bed.snmp(host) for host in "ab"}
        log = logger.end()
    log.expect_law()
    grown = {name: sum(after[host][name] - before[host][name] for host in "ab") for name in after["a"]}
    assert log.count("seen", "in") == grown["InSegs"]  # the kernel counts packets here, whatever the name
    assert log.count("seen", "out", what="segments") == grown["OutSegs"] + grown["RetransSegs"]


def test_ipv6_packets_are_accounted_for(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup) as logger:
        bed.serve(address=B6)
        sending = bed.send(3, TOTAL // 3, address=B6)
        told = {flow["local_port"]: flow for flow in logger.flows() if flow["local_address"] == A6}
        assert {one["port"]: one["segs_out"] for one in sending.sockets} == {
            port: flow["segments_out"] for port, flow in told.items()
        }
        sending.close()
        log = logger.end()
    log.expect_law()
    log.expect_every(1)
    ends = set(log.flows.select("local_address", "remote_address").iter_rows())
    assert ends == {(A6, B6), (B6, A6)}
    data = log.of_packets.filter(pl.col("point") == "out", pl.col("payload_bytes") > 0)
    assert (data["packet_bytes"] - data["payload_bytes"]).min() >= 60  # type: ignore[operator]


@pytest.mark.parametrize(("slots", "pause_ms"), [(16_384, 0), (1024, 20)], ids=["room", "slots-again-and-again"])
def test_thousand_short_connections_are_accounted_for(bed: Bed, tmp_path: Path, slots: int, pause_ms: int) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--flows", str(slots)) as logger:
        bed.serve()
        bed.short(1000, 4, pause_ms)
        bed.await_rest()
        log = logger.end()
    log.expect_law()
    log.expect_every(1)
    assert log.count("no-room") == 0
    clients = log.flows.filter(pl.col("remote_port") == PORT)
    servers = log.flows.filter(pl.col("local_port") == PORT)
    assert (clients.height, servers.height) == (1000, 1000)
    # A client's SYN, its acknowledgement, a request, a FIN and the acknowledgement of the other one, at the least.
    for flow in clients["flow"].to_list()[::50]:
        assert log.count("seen", "out", flow) >= 4
        states = log.samples.filter(pl.col("flow") == flow).sort("time_ns")["state"]
        assert states[0] == 2, "its SYN is there, in SYN_SENT"
    assert clients["ended_ns"].null_count() == 0


def test_flows_beyond_the_table_size_are_counted(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--flows", "8") as logger:
        bed.serve()
        bed.send(20, 20_000).close()
        log = logger.end()
    log.expect_law()
    assert log.count("no-room") > 0
    assert log.count("full") == 0


@pytest.mark.parametrize("ppl", [1, 7])
def test_stalled_reader_conserves_accounting_and_records_gaps(bed: Bed, tmp_path: Path, ppl: int) -> None:
    with logging(
        tmp_path / "t", "--attach", bed.cgroup, "--ring", "64KiB", "--ppl", str(ppl), "--sample", "both"
    ) as logger:
        bed.serve()
        bed.send(2, 50_000).close()
        logger.process.send_signal(signal.SIGSTOP)
        bed.send(10, 8 * TOTAL // 10).close()
        logger.process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        bed.send(2, 50_000).close()
        log = logger.end()
    log.expect_law()
    log.expect_gaps()
    assert log.count("full") > 0
    assert log.gaps["missing"].sum() == log.count("full") + log.footer["events_full"]
    between = log.gaps.drop_nulls(["after_ns", "before_ns"])  # the last one of a processor has nothing behind it
    # A program that interrupts another may take its number first and its time last.
    assert (between["before_ns"] - between["after_ns"] > -1_000_000).all()
    assert log.footer["gaps"] == log.gaps.height


def test_namespaces_with_the_same_addresses_are_distinguished(bed: Bed, tmp_path: Path) -> None:
    for host in "cd":
        bed.host(host)
    bed.cable("c", "d")
    with logging(tmp_path / "t", "--attach", bed.cgroup) as logger:
        for server, client in (("b", "a"), ("d", "c")):
            bed.serve(server)
            bed.send(3, 100_000, host=client).close()
        log = logger.end()
    log.expect_law()
    assert log.flows["netns_cookie"].n_unique() == 4
    assert log.flows["socket_cookie"].n_unique() == log.flows.height == 12
    by_netns = log.flows.group_by("netns_cookie").agg(pl.col("local_address").unique(), pl.len())
    assert sorted(addresses[0] for addresses in by_netns["local_address"]) == [A4, A4, B4, B4]
    assert by_netns["len"].to_list() == [3, 3, 3, 3]


def test_filter_selects_one_namespace(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--netns", f"{bed.name}-a") as logger:
        bed.serve()
        bed.send(3, 100_000).close()
        log = logger.end()
    log.expect_law()
    logged = log.flows.filter(pl.col("flow").is_in(log.samples["flow"].unique().implode()))
    assert set(logged["local_address"]) == {A4}
    assert log.count("filtered") > 0


def test_samples_agree_with_tcp_info(bed: Bed, tmp_path: Path) -> None:
    """Before and after the fact; every field that the header calls present has values, every absent one none."""
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--sample", "both", "--private", "1") as logger:
        bed.serve()
        sending = bed.send(1, TOTAL)
        [one] = sending.sockets
        sending.close()
        log = logger.end()
    log.expect_law()
    log.expect_gaps()
    assert {"in", "out", "rtt", "state", "destroy"} <= set(log.samples["point"].unique())
    for name in log.header["absent"]:
        assert log.samples[name].is_null().all(), name
    assert len(log.header["fields"]) >= 40
    empty = [name for name in log.header["fields"] if log.samples[name].is_null().all()]
    assert empty == [], empty
    [flow] = log.flows.filter(pl.col("local_port") == one["port"])["flow"]
    rows = log.samples.filter(pl.col("flow") == flow).sort("time_ns")
    assert rows["segs_out"].max() >= one["segs_out"] > 0
    assert rows["sent_bytes"].max() >= TOTAL  # type: ignore[operator]
    assert rows["mss_bytes"].max() <= 1460  # type: ignore[operator]
    assert (rows["snd_ssthresh"] == INFINITE).any()
    out = rows.filter(pl.col("point") == "out", pl.col("payload_bytes") > 0)
    early = (out["seq"] == out["snd_nxt"] % 2**32).sum()
    assert early > 0.9 * out.height, "a packet on its way out is not accounted for yet"
    assert log.private.height > 0
    assert set(log.private["algorithm"]) == set(log.flows["algorithm"])
    assert not set(log.private["field"]) <= {"bytes"}, "the private state has no names: no BTF of it"
    assert {way for way in WAYS if log.count("logged", way)} == set(WAYS)
