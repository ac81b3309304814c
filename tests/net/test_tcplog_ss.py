"""What `top` and `summary` say of flows, held against `ss`: connections that stand idle after they have sent."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.net.busy_machine import PATIENCE_SECONDS
from tests.net.tcplog_bed import B4, PORT, Bed, line_of, logging, made_bed, run, sojourn_says
from tests.unit.printed_json import printed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

SENT = 3_000_000
FLOWS = 2
FIN = 1

ASKED, ANSWERED = 1, 1
"""Bytes with which a sender asks whether all has arrived, and its peer answers."""


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        # Segments as packets, so that both count the same.
        for host in "ab":
            run(*made.inside(host, "ethtool", "-K", "p0", "tso", "off", "gso", "off", "gro", "off"))
        made.serve()
        yield made


def ss(bed: Bed) -> dict[int, dict[str, str]]:
    """What `ss` says of each connection of host a to the server, by its local port."""
    lines = run(*bed.inside("a", "ss", "-tinHO", "dst", f":{PORT}")).stdout.splitlines()
    found = {}
    for line in lines:
        port = int(line.split()[3].rpartition(":")[2])
        found[port] = dict(re.findall(r"(\w+):(\S+)", line))
    return found


def test_top_shows_packets_sent_not_those_in_flight(bed: Bed, tmp_path: Path) -> None:
    """All is acknowledged, so that nothing is in flight: the column stood at 0."""
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--port", str(PORT)) as logger:
        sending = bed.send(FLOWS, SENT)
        bed.await_rest()
        seen = {flow["local_port"]: flow for flow in logger.flows()}
        told = sojourn_says("tcplog", "top", tmp_path / "t", "--once", COLUMNS="400").stdout.splitlines()
        by_ss = ss(bed)
        sending.close()
        logger.end()
    heads = told[1].split()
    assert len(by_ss) == FLOWS
    shown = {int(row[heads.index("local")].rpartition(":")[2]): row for row in map(str.split, told[2:-1])}
    for port, said in by_ss.items():
        assert seen[port]["segments_out"] == int(said["segs_out"])
        packets, cell = seen[port]["packets_out"], shown[port][heads.index("out▾")]
        assert packets > 20
        assert float(cell.rstrip("k")) * (1000 if "k" in cell else 1) == pytest.approx(packets, rel=0.01)


def test_summary_agrees_with_ss(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--port", str(PORT)) as logger:
        sending = bed.send(FLOWS, SENT)
        bed.await_rest()
        by_ss = ss(bed)
        sending.close()
        logger.end()
    told = sojourn_says("tcplog", "summary", tmp_path / "t", "--json").stdout
    flows = {row["local_port"]: row for row in printed_lines("tcplog-summary", told)}
    for port, said in by_ss.items():
        mine = flows[port]
        # ss counts the SYN, and later the FIN, as a byte each; the summary counts user data.
        assert mine["acked_bytes"] == SENT + ASKED == pytest.approx(int(said["bytes_acked"]), abs=2)
        assert mine["received_bytes"] == ANSWERED
        assert mine["retransmitted_segments"] == int(said.get("retrans", "0/0").partition("/")[2])
        assert mine["kernel_rtt_min_us"] <= round(float(said["minrtt"]) * 1000)
        assert mine["rtt_min_us"] <= mine["rtt_p50_us"] <= mine["rtt_p95_us"] <= mine["rtt_max_us"]
        assert sum(mine[name] for name in mine if name.startswith("limited_by_")) == pytest.approx(
            mine["span_s"], rel=0.05
        )


READER = """
import socket, sys, time
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    print("{}", flush=True)
    one, _ = server.accept()
    while one.recv(16384):
        time.sleep(float(sys.argv[3]))
"""
WRITER = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
    for _ in range(int(sys.argv[5])):
        one.sendall(bytes(int(sys.argv[3])))
        time.sleep(float(sys.argv[4]))
    one.shutdown(socket.SHUT_WR)
    assert not one.recv(1)  # the last sample is of the peer's FIN, behind all acknowledgements
print("{}", flush=True)
"""


@pytest.mark.parametrize(
    ("reads_after", "writes", "limit"),
    [("0.01", ("3000000", "0", "1"), "receiver"), ("0", ("20000", "0.05", "30"), "application")],
    ids=["a reader that is slow", "a writer that pauses"],
)
def test_summary_names_what_limits_a_flow(
    bed: Bed, tmp_path: Path, reads_after: str, writes: tuple[str, ...], limit: str
) -> None:
    port = PORT + 1
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--port", str(port)) as logger:
        line_of(reader := bed.start("b", sys.executable, "-c", READER, B4, str(port), reads_after))
        line_of(bed.start("a", sys.executable, "-c", WRITER, B4, str(port), *writes))
        assert reader.wait(PATIENCE_SECONDS) == 0
        bed.await_rest()
        logger.end()
    flows = [*printed_lines("tcplog-summary", sojourn_says("tcplog", "summary", tmp_path / "t", "--json").stdout)]
    (sender,) = (row for row in flows if row["remote_port"] == port)
    assert sender["acked_bytes"] == int(writes[0]) * int(writes[2])
    limits = {name: lasts for name, lasts in sender.items() if name.startswith("limited_by_")}
    assert limits[f"limited_by_{limit}_s"] > 0.7 * sum(limits.values()), limits
    table = sojourn_says("tcplog", "summary", tmp_path / "t").stdout.splitlines()
    assert max(map(len, table)) <= 80
    assert str(sender["local_port"]) in table[1]


def test_sequence_numbers_in_samples_agree_with_the_packets(bed: Bed, tmp_path: Path) -> None:
    """A new packet begins at snd_nxt, which counts it only afterwards; acknowledgements have reached snd_una."""
    with logging(tmp_path / "t", "--attach", bed.cgroup / "a", "--port", str(PORT)) as logger:
        bed.send(1, SENT).close()
        log = logger.end()
    data = log.of_packets.filter(pl.col("point") == "out", pl.col("payload_bytes") > 0)
    new = data.filter(pl.col("total_retrans") == 0).sort("number")
    assert new.height > 20
    assert (new["snd_nxt"] == new["seq"]).all()
    ahead = (new["snd_nxt"] - new["snd_una"]) % 2**32
    assert ((ahead >= 0) & (ahead < 2**31)).all()
    assert (ahead > 0).any(), "some were sent before earlier ones were acknowledged"
    acks = log.of_packets.filter(pl.col("point") == "in").sort("number")
    behind = (acks["ack"] - acks["snd_una"]) % 2**32
    assert (behind < 2**31).all(), "an acknowledgement is of what snd_una has not passed yet"


def test_the_mean_deviation_is_what_ss_calls_rttvar(bed: Bed, tmp_path: Path) -> None:
    """Held at the FIN, the next packet after `ss` has looked at a connection at rest: nothing was measured since."""
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--port", str(PORT)) as logger:
        sending = bed.send(1, SENT)
        bed.await_rest()
        ((port, said),) = ss(bed).items()
        sending.close()
        log = logger.end()
    srtt, deviation = (float(part) * 1000 for part in said["rtt"].split("/"))
    ((flow,),) = log.flows.filter(local_port=port).select("flow").iter_rows()
    mine = log.of_packets.filter(pl.col("flow") == flow, pl.col("point") == "out", pl.col("tcp_flags") & FIN > 0)
    sample = mine.row(0, named=True)
    # Each says whole microseconds, or three decimals of a millisecond, of what the kernel keeps as 8 srtt and 4 mdev.
    assert sample["mdev_us"] == pytest.approx(deviation, abs=1)
    assert sample["srtt_us"] == pytest.approx(srtt, abs=1)
    assert sample["rtt_min_us"] == pytest.approx(float(said["minrtt"]) * 1000, abs=1)
    assert sample["rttvar_us"] >= 50_000 > deviation


def test_a_flow_has_one_number_while_it_is_logged_and_afterwards(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--port", str(PORT), "--ppl", "3") as logger:
        sending = bed.send(5, 50_000)
        bed.short(20, 4)
        bed.await_rest()
        ends = ("local_address", "local_port", "remote_address", "remote_port")
        live = {tuple(flow[end] for end in ends): flow["flow"] for flow in logger.flows()}
        sending.close()
        log = logger.end()
    logged = {row[:4]: row[4] for row in log.flows.select(*ends, "flow").iter_rows()}
    assert len(live) >= 10
    assert live.items() <= logged.items()
    assert sorted(logged.values()) == list(range(1, len(logged) + 1))


def test_impossible_logs_are_refused_and_an_empty_log_is_reported(bed: Bed, tmp_path: Path) -> None:
    for words, said in (
        (("--congestion", "cubik"), "did you mean cubic?"),
        (("--process", "4194305"), "no such process runs"),
    ):
        done = sojourn_says("tcplog", "run", *words, "--out", tmp_path / "refused", "--duration", "1s")
        assert done.returncode == 2
        assert said in done.stderr
        assert not (tmp_path / "refused").exists()
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--port", "1") as logger:
        bed.send(1, 1000).close()
        log = logger.end()
    assert re.search(r"! nothing was logged: of \d+ packets the filters kept out \d+", logger.said)
    assert "the filters kept out" in log.footer["warning"]
