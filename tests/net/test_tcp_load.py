"""Study "bufferbloat" on real frames: round trips grow by a drop-tail queue of known size, and iperf3 gets as much."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.bed import cgroups
from sojourn.conduct import Screen, conduct, create_folder, tcp_hosts
from sojourn.methods.tcp_load.measure import Loads
from sojourn.plan import load_plan
from sojourn.records.log import read_log
from sojourn.statistics.interval import student_t
from tests.net.busy_machine import await_that, retried, undisturbed
from tests.net.here import sojourn_here
from tests.unit.chrome_trace import checked
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sojourn.bed import Bed
    from sojourn.plan.trial import Trial

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name"),
    pytest.mark.skipif(shutil.which("iperf3") is None, reason="no iperf3 on this machine"),
]

RATE_BPS, QUEUE = 20e6, 100
MSS, FRAME = 1448, 1514
FULL_NS = QUEUE * FRAME * 8e9 / RATE_BPS
SETS = (
    "emulate.words=rate 20Mbit/s delay 10ms queue 100", "emulate.spin=false", "bed.sessions=1", "load.rounds=6",
    "load.direction=down",
    "load.idle=500ms", "load.start_up=1s", "load.duration=2s", "load.pause=50ms", "load.at_most=2min",
)  # fmt: skip
PORT = 5201
FAKE = Path(__file__).parents[1] / "unit/fake_tcplog.py"


def iperf_bps(bed: Bed, path: str) -> float:
    """What iperf3 at A receives of iperf3 at B over a path, without its first second."""
    backend, address = bed.backend, bed.topology.paths[path].b_ip4
    server = backend.start("b", ["iperf3", "-s", "-1", "-p", str(PORT)], stdout=subprocess.DEVNULL)
    try:
        await_that(lambda: f":{PORT} " in backend.run("b", ["ss", "-ltnH"]), "iperf3 listens")
        asked = [
            "iperf3",
            "-c",
            address,
            "-p",
            str(PORT),
            "-R",
            "-t",
            "2",
            "-O",
            "1",
            "-M",
            "1460",
            "-C",
            "cubic",
            "-J",
        ]
        client = backend.start("a", asked, stdout=subprocess.PIPE)
        told, _ = client.communicate(timeout=60)
        assert client.returncode == 0, told[-500:]
        return float(json.loads(told)["end"]["sum_received"]["bits_per_second"])
    finally:
        server.kill()
        server.wait()


@retried
def test_rtt_grows_by_the_queue_and_goodput_agrees_with_iperf3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs: list[float] = []
    ours = Loads.measure

    def measure(loads: Loads, trial: Trial[Any]) -> None:
        ours(loads, trial)
        theirs.append(iperf_bps(loads.session.site.bed, trial.path))

    folder = create_folder(load_plan("bufferbloat", sets=SETS), tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Loads, "measure", measure)
        conduct(load_plan("bufferbloat", sets=SETS), folder, Screen(io.StringIO()))
    analyse(folder.path)
    rows = {(row["quantity"], row["statistic"]): row for row in json.loads(folder.results.read_text())}
    findings = {one["name"] for one in json.loads(folder.verdict.read_text())["findings"]}
    assert not findings & {"incomplete", "impossible"}
    with undisturbed():
        assert "path_not_filled" not in findings
    print({key: (row["estimate"], row["ci_low"], row["ci_high"]) for key, row in rows.items()}, theirs)

    # CUBIC backs off to 0.7 of a window of queue and path: the queue is never below 0.6 of its size, nor above it.
    with undisturbed():
        assert 0.5 * FULL_NS <= rows["rtt_increase", "p50"]["estimate"] <= FULL_NS + 3e6
        assert rows["rtt_idle", "p50"]["estimate"] <= 22e6
    assert rows["rtt_idle", "p50"]["estimate"] >= 20e6
    goodput, used = rows["goodput", "down"], rows["utilisation", "down"]["estimate"]
    capacity = RATE_BPS * MSS / FRAME
    with undisturbed():
        assert 0.9 * capacity <= goodput["estimate"] <= 1.01 * capacity
        assert 0.9 <= used <= 1.0 + 1e-2
        assert 0 < rows["retransmitted", "down"]["estimate"] < 0.05

    iperf = student_t(np.array(theirs))
    assert iperf.half_width is not None
    half = (goodput["ci_high"] - goodput["ci_low"]) / 2
    with undisturbed():  # held up at the end of its omitted second, iperf3 counts more than the link carries
        assert abs(goodput["estimate"] - iperf.estimate) <= np.hypot(half, iperf.half_width) + 0.01 * capacity


@retried
def test_flows_with_ecn_are_marked_and_lose_almost_nothing(tmp_path: Path) -> None:
    """The same queue marks with ECN and drops without; the host's own setting is as before."""
    before = Path("/proc/sys/net/ipv4/tcp_ecn").read_text()
    found = {}
    for asks in ("true", "false"):
        sets = [*SETS, "load.direction=up", "load.rounds=2", "load.logged=0", f"load.ecn={asks}", "host.fifo=false",
                "emulate.words=rate 20Mbit/s delay 10ms queue 200 codel ecn"]  # fmt: skip
        folder = create_folder(load_plan("bufferbloat", sets=sets), tmp_path / asks)
        conduct(load_plan("bufferbloat", sets=sets), folder, Screen(io.StringIO()))
        analyse(folder.path)
        rows = json.loads(folder.results.read_text())
        found[asks] = {(row["quantity"], row["statistic"]): row["estimate"] for row in rows}
    with_ecn, without = found["true"], found["false"]
    print(with_ecn, without)
    assert with_ecn["marked", "up"] > 0
    assert with_ecn["ecn_echoed", "up"] > 0
    assert with_ecn["retransmitted", "up"] == 0
    assert with_ecn["losses", "up retransmitted"] == 0
    assert with_ecn["ssthresh_changes", "up"] > 0
    assert with_ecn["dropped", "up"] < 0.003  # probes and acknowledgements ask for no mark
    assert without["marked", "up"] == without["ecn_echoed", "up"] == 0
    assert without["losses", "up retransmitted"] > 0
    with undisturbed():
        assert with_ecn["standing_queue", "up"] < 20e6
    assert Path("/proc/sys/net/ipv4/tcp_ecn").read_text() == before


@contextmanager
def captured(bed: Bed, path: str, into: Path) -> Iterator[None]:
    """A capture of what arrives at host B over a path meanwhile, and of what leaves it."""
    argv = ["tcpdump", "-i", bed.topology.paths[path].b_dev, "-s", "64", "-U", "-w", str(into), "ip"]
    process = bed.backend.start("b", argv, stderr=subprocess.DEVNULL)
    try:
        await_that(into.exists, "tcpdump captures")
        yield
        process.terminate()
        process.wait(20)
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="no tcpdump on this machine")
@retried
def test_probes_and_flows_carry_their_dscp_in_both_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flows BE and AF42 down: data, acknowledgements, requests and answers of probes are seen at B."""
    ours = Loads.measure
    captures: list[Path] = []
    from_b: list[bytes] = []

    def measure(loads: Loads, trial: Trial[Any]) -> None:
        captures.append(tmp_path / f"{trial.block}.pcap")
        from_b.append(socket.inet_aton(loads.session.site.bed.topology.paths[trial.path].b_ip4))
        with captured(loads.session.site.bed, trial.path, captures[-1]):
            ours(loads, trial)

    sets = [*SETS, "load.rounds=2", "load.logged=0", "load.flows=2", "load.direction=down", "load.dscp=BE,AF42",
            "load.beside=udp/ping-pong EF,icmp CS1", "host.fifo=false"]  # fmt: skip
    folder = create_folder(load_plan("bufferbloat", sets=sets), tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Loads, "measure", measure)
        conduct(load_plan("bufferbloat", sets=sets), folder, Screen(io.StringIO()))
    analyse(folder.path)
    found = json.loads(folder.results.read_text())
    rows = {(row["quantity"], row["statistic"], row["probe"], row.get("dscp")): row for row in found}
    assert {(probe, dscp) for name, _, probe, dscp in rows if name == "rtt_working"} == {
        ("icmp", None), ("udp/ping-pong", "EF"), ("icmp", "CS1")}  # fmt: skip
    for probe in (("icmp", None), ("udp/ping-pong", "EF"), ("icmp", "CS1")):
        assert rows["rtt_idle", "p50", *probe]["estimate"] >= 20e6
        assert rows["rtt_increase", "mean", *probe]["estimate"] > 0
        assert rows["rtt_working", "mean", *probe]["n"] == 2
    by_dscp = [rows["goodput_by_dscp", f"down {name}", "icmp", None]["estimate"] for name in ("BE", "AF42")]
    assert sum(by_dscp) == pytest.approx(rows["goodput", "down", "icmp", None]["estimate"], rel=0.05)
    assert min(by_dscp) > 0
    packets = [(packet, of) for file, of in zip(captures, from_b, strict=True) for packet in packets_of(file)]
    seen = {(packet[23], packet[15] >> 2, packet[26:30] == of) for packet, of in packets}
    # TCP: data from B, acknowledgements to it; UDP and ICMP: requests to B, answers from it.
    expected = {(6, 0), (6, 36), (17, 46), (1, 0), (1, 8)}
    assert seen == {(*one, way) for one in expected for way in (False, True)}


def packets_of(file: Path) -> list[bytes]:
    """The frames of a capture file of this machine's byte order."""
    data, at, found = file.read_bytes(), 24, []
    while at + 16 <= len(data):
        length = int.from_bytes(data[at + 8 : at + 12], sys.byteorder)
        found.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return [packet for packet in found if len(packet) > 23]


def no_cgroups(patch: pytest.MonkeyPatch) -> str:
    """No folder of cgroups can be made, as where the hierarchy is mounted read-only."""
    patch.setattr(cgroups, "unified_root", lambda: Path("/sys"))
    return "cannot be made"


def no_programs(patch: pytest.MonkeyPatch) -> str:
    """The kernel refuses the log's programs when the only trial with the log begins."""
    patch.setattr(tcp_hosts, "log_argv", lambda _, attach: [sys.executable, str(FAKE), "tcplog", "serve", attach])
    patch.setenv("FAKE_ERROR_AT", "1:3:the kernel refuses the programs")
    return "the kernel refuses the programs"


@pytest.mark.parametrize("lacking", [no_cgroups, no_programs])
def test_machine_without_tcp_logging_can_still_measure(
    lacking: Callable[[pytest.MonkeyPatch], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why, plan = lacking(monkeypatch), load_plan("bufferbloat", sets=[*SETS, "load.rounds=2", "host.fifo=false"])
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    told = read_log(folder.log)
    assert [entry["logged"] for entry in told if entry["event"] == "load-trial"] == [None] * 3
    assert [why in entry["why"] for entry in told if entry["event"] == "unlogged"] == [True]
    analyse(folder.path)
    rows = {(row["quantity"], row["statistic"]): row for row in json.loads(folder.results.read_text())}
    assert rows["goodput", "down"]["n"] == 2
    assert rows["goodput", "down"]["estimate"] > 0


def test_why_and_timeline_work_on_the_run_folder(tmp_path: Path) -> None:
    """The trial with the log is in no figure, and has every segment of TCP at the emulator, too."""
    run, pipe = tmp_path / "run", "rate 50Mbit/s delay 10ms queue 200"
    few = [f"--set={words}" for words in ("sessions=1", "rounds=2", "emulate.spin=false", "host.fifo=false")]
    done = sojourn_here("run", "rrul", "--quick", f"--set=stream.pipe={pipe}", *few, "--out", run)
    assert done.returncode in {0, 4}, done.stderr
    rows = json.loads((run / "analysis" / "results.json").read_text())
    assert {row["n"] for row in rows if row["quantity"] == "goodput"} == {2}

    why = sojourn_here("why", run, "--flow", "3", "--at", "2.4s", "--json")
    assert why.returncode == 0, why.stderr
    told = printed("why", why.stdout)
    account = told["account"]
    print(told["limit"], told["cause"], account)
    # On one clock: each segment was seen at the emulator, and what it did not drop at the receiver.
    assert account["segments"] == account["at_emulator"] == account["emulator_packets"] > 100
    assert account["not_received"] == account["lost_at_emulator"] + account["unexplained"]
    assert account["receiver_unjoined"] == account["emulator_unjoined"] == 0
    assert account["written"] == account["segments"], "the sender records each call that writes data"
    assert told["limit"] != "inconclusive" or told["cause"] == "inconclusive"

    words = sojourn_here("timeline", run, "--to", "perfetto")
    assert words.returncode == 0, words.stderr
    events, _ = checked(run / "timeline.json")
    hosts = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert sum(name.startswith("host ") for name in hosts) == 2
    assert sum(name.startswith("emulator ") for name in hosts) == 1
    # Every segment of every flow is accounted for, and nothing but the emulator dropped any.
    ways = pl.read_parquet(run / "analysis" / "samples" / "load_conserved.parquet")
    print(ways)
    packets = pl.read_ipc_stream(run / "records" / "packets-emulate-000.arrow")
    of_data = packets.filter(pl.col("disposition") == "lost", pl.col("frame_bytes") > 200)
    assert ways.height == 8
    assert ways["dropped"].sum() == of_data.height > 0
    assert (ways["segments"] - ways["arrived"] == ways["before"]).all()
    findings = json.loads((run / "analysis" / "verdict.json").read_text())["findings"]
    assert not {"segments_not_conserved", "not_conserved"} & {one["name"] for one in findings}
    page = (run / "report" / "index.html").read_text()
    assert "Trials with the log of TCP" in page
