"""Every option of tcplog that can change while it runs: filters, rhythm, on and off, and the flight recorder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.children import Child
from tests.net.tcplog_bed import A4, B4, B6, PORT, Bed, Log, Logger, logging, made_bed
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

SOME = 200_000
KEPT = 20


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        made.serve()
        yield made


def totals(logger: Logger) -> dict[str, int]:
    """What the log has counted so far, both ways together, by disposition."""
    told = logger.status()["totals"]
    return {
        disposition: told["in"].get(disposition, 0) + told["out"].get(disposition, 0)
        for disposition in {*told["in"], *told["out"]}
    }


def grown(bed: Bed, logger: Logger, **how: object) -> dict[str, int]:
    """By what the counts of dispositions grow with some traffic."""
    before = totals(logger)
    bed.send(2, SOME).close()
    bed.await_rest()
    after = totals(logger)
    return {
        disposition: n - before.get(disposition, 0)
        for disposition, n in after.items()
        if n != before.get(disposition, 0)
    }


def test_disabled_counts_nothing_and_enabled_counts_again(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--disabled") as logger:
        assert grown(bed, logger) == {}
        logger.ask("set", "--enable")
        assert grown(bed, logger)["logged"] > 0
        logger.ask("set", "--disable")
        assert grown(bed, logger) == {}
        log = logger.end()
    log.expect_law()
    assert log.flows.height == 4


FILTERS = [
    (("--port", "9"), "filtered"),
    (("--port", str(PORT)), "logged"),
    (("--prefix", "192.0.2.0/24"), "filtered"),
    (("--prefix", f"{B4}/32"), "logged"),
    (("--prefix", "fd81::/16"), "filtered"),
    (("--congestion", "reno-that-is-none"), "filtered"),
    (("--process", "1"), "filtered"),
    (("--one-in", "1"), "logged"),
]


@pytest.mark.parametrize(("words", "disposition"), FILTERS)
def test_filter_can_be_set_and_removed(bed: Bed, tmp_path: Path, words: tuple[str, str], disposition: str) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup) as logger:
        assert set(grown(bed, logger)) <= {"seen", "logged", "no-state"}
        if words[0] == "--congestion":
            words = (words[0], "reno" if "reno" not in algorithms(logger) else "cubic")
        logger.ask("set", *words)
        dispositions = set(grown(bed, logger)) - {"seen", "no-state"}
        assert dispositions == {disposition}
        logger.ask("set", words[0], "1" if words[0] == "--one-in" else "all")
        assert set(grown(bed, logger)) <= {"seen", "logged", "no-state"}
        log = logger.end()
    log.expect_law()


def algorithms(logger: Logger) -> set[str]:
    return {flow["algorithm"] for flow in logger.flows()}


def test_filters_select_a_cgroup_or_a_process(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--cgroup", bed.cgroup / "a") as logger:
        bed.send(2, SOME).close()
        sending = bed.send(2, SOME)
        logger.ask("set", "--cgroup", "all", "--process", str(sending.process.pid))
        before = totals(logger)
        sending.close()
        bed.await_rest()
        assert totals(logger)["logged"] > before["logged"]
        log = logger.end()
    log.expect_law()
    logged = log.flows.filter(pl.col("flow").is_in(log.samples["flow"].unique().implode()))
    assert set(logged["local_address"]) == {A4}
    assert set(logged["process"]) >= {sending.process.pid}
    assert log.count("filtered") > 0


def test_one_in_three_flows_is_logged(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--one-in", "3") as logger:
        bed.send(60, 2000).close()
        log = logger.end()
    log.expect_law()
    for flow in log.flows["flow"]:
        dispositions = {disposition for disposition in ("logged", "filtered") if log.count(disposition, flow=flow)}
        assert len(dispositions) == 1, "flows are complete or absent"
    chosen = log.samples["flow"].n_unique()
    assert 15 < chosen < 70, f"{chosen} of 120"


def test_sampling_options_can_be_changed_during_a_flow(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--ppl", "1000000") as logger:
        first = grown(bed, logger)
        assert first["decimated"] > first.get("logged", 0)
        logger.ask("set", "--ppl", "1")
        assert set(grown(bed, logger)) <= {"seen", "logged", "no-state"}
        logger.ask("set", "--min-interval", "10s")
        assert grown(bed, logger)["early"] > 0
        logger.ask("set", "--min-interval", "0s", "--on-change", "cwnd,ssthresh")
        unchanged = grown(bed, logger)
        assert unchanged["unchanged"] > 0
        assert unchanged["logged"] > 0
        logger.ask("set", "--on-change", "all", "--ppl", "5", "--ppl-by", "segment")
        assert grown(bed, logger)["decimated"] > 0
        logger.ask("set", "--ppl", "1", "--ppl-by", "packet", "--sample", "post")
        assert grown(bed, logger)["filtered"] > 0
        log = logger.end()
    log.expect_law()


def test_only_changes_are_logged(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--on-change", "cwnd") as logger:
        bed.send(1, 20 * SOME).close()
        log = logger.end()
    log.expect_law()
    for flow in log.flows["flow"]:
        rows = log.of_packets.filter(pl.col("flow") == flow).sort("time_ns")
        # Between the look for a change and the sample, the other processor may change it once more.
        assert (rows["snd_cwnd"].diff().drop_nulls() == 0).sum() <= 1 + rows.height // 100


def test_minimum_interval_between_samples_holds(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--min-interval", "5ms") as logger:
        bed.send(4, 20 * SOME).close()
        log = logger.end()
    log.expect_law()
    assert log.count("early") > 0
    for flow in log.flows["flow"]:
        times = log.of_packets.filter(pl.col("flow") == flow)["time_ns"].sort()
        assert (times.diff().drop_nulls() >= 5_000_000).all()


def test_the_flight_recorder_writes_only_what_went_wrong(bed: Bed, tmp_path: Path) -> None:
    words = ("--flight", str(KEPT), "--flight-on", "rto,reset")
    with logging(tmp_path / "t", "--attach", bed.cgroup, *words) as logger:
        bed.send(5, SOME).close()
        bed.short(-2, 1)  # one of them ends with a reset
        bed.await_rest()
        log = logger.end()
    log.expect_law()
    written = {flow: log.samples.filter(pl.col("flow") == flow) for flow in log.samples["flow"].unique()}
    was_reset = [flow for flow, rows in written.items() if {"reset-in", "reset-out"} & set(rows["point"])]
    assert 1 <= len(was_reset) <= 2, "the two ends of the connection that was reset"
    for flow, rows in written.items():
        # On a busy machine an acknowledgement may be late enough for a timeout, which is written, too.
        timeouts = max(rows["total_rto"].fill_null(0))
        assert flow in was_reset or timeouts > 0, rows
        assert 0 < rows.height <= KEPT * ((flow in was_reset) + timeouts)
    assert log.count("forgotten") > 0


def test_the_flight_recorder_writes_at_a_timeout(bed: Bed, tmp_path: Path) -> None:
    words = ("--flight", str(KEPT), "--flight-on", "rto", "--port", str(PORT))
    with logging(tmp_path / "t", "--attach", bed.cgroup, *words) as logger:
        code = (
            "import socket, sys\n"
            f"one = socket.create_connection(('{B4}', {PORT})); one.sendall(b'x' * 1000); print('up', flush=True)\n"
            "sys.stdin.readline(); one.sendall(b'y' * 1000); print('sent', flush=True); sys.stdin.readline()\n"
        )
        talker = bed.start("a", sys.executable, "-c", code)
        assert talker.stdout is not None
        assert talker.stdin is not None
        assert talker.stdout.readline() == "up\n"
        bed.await_rest()
        bed.ip("b", "link", "set", "p0", "down")
        talker.stdin.write("go\n")
        talker.stdin.flush()
        assert talker.stdout.readline() == "sent\n"
        time.sleep(1.5)
        bed.ip("b", "link", "set", "p0", "up")
        log = logger.end()
    log.expect_law()
    [flow] = log.samples["flow"].unique()
    rows = log.samples.filter(pl.col("flow") == flow)
    timeouts = rows["total_rto"].max()
    assert log.footer["flight_triggers"] == {"rto": timeouts}
    before = rows.filter(pl.col("total_rto") == 0)
    assert before.filter(pl.col("payload_bytes") == 1000).height >= 2, "both writes; the second may be probed for"


def test_the_flight_recorder_writes_on_demand(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--flight", str(KEPT)) as logger:
        sending = bed.send(3, SOME)
        logger.ask("set", "--dump")
        time.sleep(0.3)
        sending.close()
        log = logger.end()
    log.expect_law()
    assert log.samples["flow"].n_unique() == 6


def test_control_socket_is_private_and_answers_json(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup) as logger:
        path = out / "control.sock"
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(path))
            asked = one.makefile("rw")
            for request in (
                {"do": "status"},
                {"do": "set", "ppl": 3},
                {"do": "nonsense"},
                {"do": "set", "ppl": 0},
                {"do": "flows"},
            ):
                asked.write(json.dumps(request) + "\n")
                asked.flush()
                assert isinstance(json.loads(asked.readline()), dict)
        bed.send(1, SOME).close()
        log = logger.end()
    log.expect_law()
    log.expect_every(3)
    assert not path.exists()


def test_watch_without_a_log_leaves_nothing(bed: Bed) -> None:
    """Programs of its own, of this cgroup alone; flows with their state, and no file."""
    from sojourn.instruments import find_instrument

    argv = [find_instrument(), "tcplog", "watch", "--attach", str(bed.cgroup), "--interval", "200ms"]
    with Child(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert printed("tcplog-watch", process.stdout.readline())["flows"] == []
            sending = bed.send(2, SOME)
            flows = []
            for line in process.stdout:
                flows = printed("tcplog-watch", line)["flows"]
                if len(flows) == 4 and all(flow["sample"] for flow in flows):
                    break
            assert {flow["sample"]["state"] for flow in flows} == {1}
            assert all(flow["sample"]["snd_cwnd"] >= 1 for flow in flows)
            sending.close()
        finally:
            process.terminate()
        assert process.wait(30) == 0


def test_filter_accepts_ipv6_prefixes(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--prefix", f"{B6}/128") as logger:
        bed.serve(address=B6, port=PORT + 1)
        bed.send(1, SOME, address=B6, port=PORT + 1).close()
        bed.send(1, SOME).close()
        log: Log = logger.end()
    log.expect_law()
    logged = log.flows.filter(pl.col("flow").is_in(log.samples["flow"].unique().implode()))
    assert logged.height == 2
    assert log.count("filtered") > 0
