"""A log that goes to another host while it is recorded: the same records there, and what is skipped is counted."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.instruments import find_instrument
from tests.net.busy_machine import PATIENCE_SECONDS, await_that
from tests.net.tcplog_bed import A4, B4, Bed, Log, logging, made_bed, run, sojourn_says
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

SOME = 300_000
MUCH = 30_000_000
RECORD_BYTES = 300


class Receiver:
    """`tcplog receive` at a free port."""

    def __init__(self, out: Path, address: str, *words: str, inside: tuple[str, ...] = ()) -> None:
        self.out = out
        argv = [*inside, find_instrument(), "tcplog", "receive", f"{address}:0", "--out", str(out), "--json", *words]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"waits for a log at (\S+),", line)
        assert found, line + self.process.stderr.read()
        self.at = found[1]

    def ended(self, status: int = 0) -> Log:
        said, told = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == status, f"{self.process.returncode}: {told}"
        self.told = told
        footer = printed("tcplog-receive", said)
        log = Log(self.out)
        assert log.footer == footer
        return log


@contextmanager
def receiving(out: Path, address: str = "127.0.0.1", *words: str, inside: tuple[str, ...] = ()) -> Iterator[Receiver]:
    receiver = Receiver(out, address, *words, inside=inside)
    try:
        yield receiver
    finally:
        if receiver.process.poll() is None:
            receiver.process.send_signal(signal.SIGCONT)
            receiver.process.kill()
        receiver.process.wait(PATIENCE_SECONDS)
        for pipe in (receiver.process.stdout, receiver.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        made.serve()
        yield made


def within(bed: Bed, host: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", f"{bed.name}-{host}")


def expect_same(ours: Log, theirs: Log) -> None:
    for table in ("samples", "flows", "account", "gaps", "private"):
        assert getattr(ours, table).equals(getattr(theirs, table)), table
    for name in ("totals", "records", "events", "privates", "flows", "why", "missing", "conserved"):
        assert ours.footer[name] == theirs.footer[name], name
    assert sorted(ours.footer["flow_list"]) == sorted(theirs.footer["flow_list"])


def test_the_received_log_is_the_local_one(bed: Bed, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with receiving(theirs) as receiver:
        with logging(ours, "--attach", bed.cgroup, "--sample", "both", "--export", receiver.at) as logger:
            for _ in range(5):
                bed.send(4, SOME).close()
            log = logger.end()
        received = receiver.ended()
    assert log.samples.height > 200
    log.expect_law()
    received.expect_law()
    expect_same(log, received)
    export = log.footer["export"]
    assert (export["sent"], export["skipped"], export["problem"]) == (log.samples.height + log.privates.height, 0, None)
    assert not list(theirs.glob("spool-*"))
    both = [sojourn_says("tcplog", "summary", str(out), "--json").stdout for out in (ours, theirs)]
    assert both[0] == both[1]
    assert both[0]
    for out in (ours, theirs):
        assert sojourn_says("tcplog", "convert", str(out), "--to", "csv").returncode == 0


def test_the_export_does_not_log_itself(bed: Bed, tmp_path: Path) -> None:
    """Both ends of the export are in the cgroup that is logged."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    inside = tuple(bed.inside("b"))
    with receiving(theirs, B4, "--allow", A4, inside=inside) as receiver:
        words = ["tcplog", "run", "--attach", str(bed.cgroup), "--out", str(ours), "--export", receiver.at]
        # `ip netns exec` would hide the cgroups.
        join = f'echo $$ > {bed.cgroup}/a/cgroup.procs; exec nsenter --net=/run/netns/{bed.name}-a "$@"'
        argv = ["sh", "-c", join, "sh", find_instrument(), *words]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            await_that(lambda: (ours / "control.sock").exists() or process.poll() is not None, "a log")
            assert process.poll() is None, process.communicate()
            bed.send(2, SOME).close()
            # Flows that have ended are written down a second later.
            time.sleep(2.5)
            spool = theirs / "spool-000.tcplog"
            length = spool.stat().st_size
            time.sleep(3)
            assert spool.stat().st_size == length, "nothing passes but the export's own packets"
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, told
        finally:
            process.kill()
            process.communicate()
        received = receiver.ended()
    log = Log(ours)
    log.expect_law()
    received.expect_law()
    expect_same(log, received)
    assert log.count("filtered") > 0
    port = int(receiver.at.rsplit(":", 1)[1])
    own = log.flows.filter((pl.col("local_port") == port) | (pl.col("remote_port") == port))["flow"]
    assert log.samples.filter(pl.col("flow").is_in(own.implode())).is_empty()


def test_records_not_read_by_a_stalled_receiver_are_counted(bed: Bed, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with receiving(theirs) as receiver:
        with logging(ours, "--attach", bed.cgroup, "--sample", "both", "--export", receiver.at) as logger:
            bed.send(2, SOME).close()
            receiver.process.send_signal(signal.SIGSTOP)
            for _ in range(400):
                bed.send(4, MUCH).close()
                if logger.status()["records"] * RECORD_BYTES > 60 << 20:
                    break
            receiver.process.send_signal(signal.SIGCONT)
            log = logger.end()
        received = receiver.ended()
    log.expect_law()
    received.expect_law()
    export = log.footer["export"]
    assert export["skipped_full"] > 0
    assert (export["skipped_lost"], export["problem"]) == (0, None)
    assert export["sent"] + export["skipped"] == log.samples.height + log.privates.height
    assert export["sent"] == received.samples.height + received.privates.height
    assert received.footer["skipped_on_the_way"] == export["skipped"]
    assert log.count("logged") == received.count("logged") + received.count("broken")
    assert log.count("broken") == 0


def test_killed_receiver_leaves_the_local_log_complete(bed: Bed, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with receiving(theirs) as receiver:
        with logging(ours, "--attach", bed.cgroup, "--export", receiver.at) as logger:
            bed.send(4, SOME).close()
            await_that(lambda: (theirs / "spool-000.tcplog").stat().st_size > 20_000, "records")
            receiver.process.kill()
            receiver.process.wait()
            time.sleep(0.2)
            bed.send(4, SOME).close()
            log = logger.end(4)
        log.expect_law()
        assert "the export has ended" in logger.said
        export = log.footer["export"]
        assert export["problem"]
        assert export["skipped_lost"] > 0
        assert export["sent"] + export["skipped"] == log.samples.height + log.privates.height
        run(find_instrument(), "tcplog", "recover", theirs)
        recovered = Log(theirs)
        assert 0 < recovered.samples.height <= export["sent"]
        assert recovered.footer["conserved"] is False


def test_killed_sender_leaves_the_received_records(bed: Bed, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with receiving(theirs) as receiver:
        with logging(ours, "--attach", bed.cgroup, "--export", receiver.at) as logger:
            bed.send(4, SOME).close()
            time.sleep(1)
            logger.process.kill()
            logger.process.wait()
        received = receiver.ended(4)
        assert "the log is not whole" in receiver.told
    run(find_instrument(), "tcplog", "recover", ours)
    recovered = Log(ours)
    assert (received.footer["why"], received.footer["conserved"]) == ("connection lost", False)
    assert received.samples.height == recovered.samples.height > 100
    assert not list(theirs.glob("spool-*"))


def test_unusable_receiver_address_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "t"
    log = (find_instrument(), "tcplog", "run", "--simulated", "1", "--duration", "1s", "--out", out)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    done = run(*log, "--export", f"127.0.0.1:{port}", check=False)
    assert (done.returncode, out.exists()) == (3, False)
    assert "no `sojourn tcplog receive` is reached there" in done.stderr
    assert run(*log, "--export", "nowhere", check=False).returncode == 2


BEGINS = b"SJTCPLOG" + (4).to_bytes(4, sys.byteorder)
STRANGERS = {
    b"": "it sends none",
    b"GET / HTTP/1.1\r\n\r\n" * 9: "it sends none",
    b"SJTCPLOG" + b"\xff" * 64: "it sends none",
    BEGINS + b"\xff" * 64: "its header is longer than any",
    BEGINS + (5).to_bytes(4, sys.byteorder) + b"hello1234": "its header is damaged",
}


def test_unknown_and_silent_senders_do_not_end_a_receiver(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with receiving(theirs) as receiver, ExitStack() as silent:
        at = ("127.0.0.1", int(receiver.at.rsplit(":", 1)[1]))
        for _ in range(70):  # more than may wait
            silent.enter_context(socket.create_connection(at, source_address=("127.0.0.2", 0)))
        for sent in STRANGERS:
            with socket.create_connection(at) as peer, suppress(OSError):  # it may be closed before all is sent
                peer.sendall(sent)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(64):
                    pass
        log = ("tcplog", "run", "--simulated", "1", "--duration", "1s", "--out", ours, "--export", receiver.at)
        run(find_instrument(), *log)
        received = receiver.ended()
    expect_same(Log(ours), received)
    for why in STRANGERS.values():
        assert why in receiver.told
    assert "others wait" in receiver.told


def test_receiver_without_a_sender_ends_with_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "t"
    with receiving(out, "127.0.0.1", "--duration", "1s") as receiver:
        with socket.create_connection(("127.0.0.1", int(receiver.at.rsplit(":", 1)[1]))):
            _, told = receiver.process.communicate(timeout=PATIENCE_SECONDS)
        assert receiver.process.returncode == 4
        assert told.splitlines()[-1].count("no log came") == 1
        assert list(out.iterdir()) == []


@pytest.mark.parametrize("address", ["0.0.0.0", "[::]", "10.99.0.1"])
def test_non_loopback_receiver_requires_allowed_senders(address: str, tmp_path: Path) -> None:
    done = run(find_instrument(), "tcplog", "receive", f"{address}:0", "--out", tmp_path / "t", check=False)
    assert done.returncode == 2
    assert "--allow" in done.stderr
    assert not (tmp_path / "t").exists()
    with receiving(tmp_path / "t", "0.0.0.0", "--allow", "any", "--duration", "1s") as receiver:
        assert receiver.process.wait(PATIENCE_SECONDS) == 4


def test_sender_that_is_not_allowed_is_refused_and_the_duration_ends_the_receiver(tmp_path: Path) -> None:
    out = tmp_path / "t"
    with receiving(out, "127.0.0.1", "--allow", "10.0.0.0/8", "--duration", "2s") as receiver:
        with socket.create_connection(("127.0.0.1", int(receiver.at.rsplit(":", 1)[1]))) as peer:
            assert peer.recv(1) == b""
        _, told = receiver.process.communicate(timeout=PATIENCE_SECONDS)
        assert (receiver.process.returncode, list(out.iterdir())) == (4, [])
        assert "not among those that --allow names" in told


def test_a_limit_ends_the_received_log(tmp_path: Path) -> None:
    out, theirs = tmp_path / "t", tmp_path / "theirs"
    with receiving(theirs, "127.0.0.1", "--log-limit", "256KiB") as receiver:
        done = run(
            find_instrument(), "tcplog", "run", "--simulated", "3", "--duration", "15s", "--out", out,
            "--export", receiver.at, check=False,
        )  # fmt: skip
        assert done.returncode == 4, done.stderr
        received = receiver.ended(4)
    assert received.footer["why"] == "log limit"
    footer = json.loads((out / "footer.json").read_text())
    assert footer["conserved"] is True
    assert footer["export"]["skipped_lost"] > 0
