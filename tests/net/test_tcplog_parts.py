"""A log of several parts: rotation by size and by time, a budget, the oldest parts removed; read as one."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.instruments import find_instrument
from tests.net.busy_machine import PATIENCE_SECONDS
from tests.net.tcplog_bed import Bed, Log, Logger, logging, made_bed, run, sojourn_says

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

BY_SIZE = ("--rotate-size", "64KiB")
SOME = 300_000
KIB = 1024


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        made.serve()
        yield made


@contextmanager
def filled(bed: Bed, out: Path, parts: int, *words: str) -> Iterator[Logger]:
    """A log that goes on, and has begun so many parts."""
    with logging(out, "--attach", bed.cgroup, "--sample", "both", *words) as logger:
        fill(bed, logger, parts)
        yield logger


def fill(bed: Bed, logger: Logger, parts: int) -> None:
    for _ in range(200):
        bed.send(4, SOME).close()
        if logger.status()["parts"] >= parts:
            break


def expect_rest(log: Log) -> None:
    """Of each flow with a row every packet is there or counts as forgotten; other flows had ended in removed parts."""
    is_partly = False
    for flow, way in itertools.product(log.flows["flow"], ("in", "out")):
        there = log.of_packets.filter(pl.col("flow") == flow, pl.col("point") == way)["packet"].to_list()
        seen, forgotten, full = (log.count(one, way, flow=flow) for one in ("seen", "forgotten", "full"))
        assert len(set(there)) == len(there) == seen - forgotten - full, f"flow {flow}, {way}"
        assert all(0 <= number < seen for number in there)
        is_partly |= forgotten > 0 and len(there) > 0
    assert is_partly, "the flow that lasted"
    assert log.footer["flows_removed"] > 0
    assert log.footer["flows"] == log.flows.height + log.footer["flows_removed"]
    of_flows = log.account.drop_nulls("flow").filter(pl.col("disposition") == "forgotten")["packets"].sum()
    assert 0 < of_flows < log.count("forgotten")


def files(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob("spool-*.tcplog"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--rotate-size", "63KiB"), "--rotate-size: expected 64 KiB or more"),
        (("--rotate-time", "10ms"), "--rotate-time: expected 1 s or more"),
        (("--budget", "100KiB"), "--budget: expected at least 256 KiB"),
        (("--budget", "1MiB", "--remove-oldest"), "--remove-oldest: nothing is older than another"),
        (("--remove-oldest", *BY_SIZE), "--budget"),
        (("--budget", "1MiB", "--log-limit", "1MiB"), "--log-limit"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    out = tmp_path / "t"
    done = run(find_instrument(), "tcplog", "run", "--simulated", "1", "--out", out, *words, check=False)
    assert (done.returncode, out.exists()) == (2, False)
    assert sentence in done.stderr


def test_a_log_of_several_parts_is_read_as_one(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    with filled(bed, out, 4, *BY_SIZE) as logger:
        there = files(out)
        assert len(there) >= 4
        assert there[:2] == ["spool-000.tcplog", "spool-001.tcplog"]
        # A part is looked at every 20 ms.
        assert all((out / name).stat().st_size >= 64 * KIB for name in there[:-1])
        log = logger.end()
    log.expect_law()
    log.expect_every(1)
    assert (log.footer["parts"], log.footer["parts_removed"]) == (len(there), 0)
    assert files(out) == []
    flows = [json.loads(line) for line in sojourn_says("tcplog", "summary", str(out), "--json").stdout.splitlines()]
    assert len(flows) == log.flows.height
    converted = sojourn_says("tcplog", "convert", str(out), "--to", "csv", "--json")
    assert json.loads(converted.stdout)["records"] == log.samples.height
    assert sojourn_says("tcplog", "plot", str(out)).returncode == 0


def test_parts_are_rotated_by_time(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup, "--rotate-time", "1s") as logger:
        began = time.monotonic()
        for _ in range(200):
            bed.send(1, SOME).close()
            if logger.status()["parts"] >= 3:
                break
        lasted = time.monotonic() - began
        log = logger.end()
    log.expect_law()
    assert lasted >= 1.5, "the third begins 2 s after the log"
    assert 3 <= log.footer["parts"] <= 3 + lasted


def test_oldest_parts_are_removed_and_their_records_counted(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    budget = 300 * KIB
    words = (*BY_SIZE, "--budget", "300KiB", "--remove-oldest")
    with logging(out, "--attach", bed.cgroup, "--sample", "both", *words) as logger:
        lasting = bed.send(1, SOME)
        fill(bed, logger, 12)
        told = logger.status()
        assert told["parts_removed"] >= 6
        # One look's records may come on top.
        assert sum((out / name).stat().st_size for name in files(out)) <= budget + 128 * KIB
        assert f"spool-{told['parts_removed'] - 1:03}.tcplog" not in files(out)
        lasting.close()
        log = logger.end()
    log.expect_law()
    assert log.footer["why"] == "signal"
    assert log.footer["parts_removed"] >= 6
    assert log.count("forgotten") > log.count("logged") > 0
    assert log.footer["events"] == log.samples.height - log.of_packets.height
    expect_rest(log)
    # What is left is the end of the log.
    assert sojourn_says("tcplog", "summary", str(out)).returncode == 0
    ended = log.flows.filter(pl.col("flow").is_in(log.samples["flow"].unique().implode()))["last_ns"].max()
    assert ended == log.flows["last_ns"].max()


def test_a_budget_ends_the_log_with_a_sentence(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup, "--sample", "both", *BY_SIZE, "--budget", "600KiB") as logger:
        for _ in range(200):
            bed.send(4, SOME).close()
            if logger.process.poll() is not None:
                break
        log = logger.ended()
    log.expect_law()
    assert log.footer["why"] == "log limit"
    assert log.footer["parts"] >= 3
    assert "the log reached its --budget" in log.footer["warning"]
    assert log.samples.height > 0


@pytest.mark.parametrize("words", [(), ("--budget", "300KiB", "--remove-oldest")])
def test_a_killed_log_loses_no_part(bed: Bed, tmp_path: Path, words: tuple[str, ...]) -> None:
    out = tmp_path / "t"
    with filled(bed, out, 6, *BY_SIZE, *words) as logger:
        bed.await_rest()
        time.sleep(1.5)
        told = logger.status()
        logger.process.send_signal(signal.SIGKILL)
        logger.process.wait(PATIENCE_SECONDS)
        there = files(out)
        assert len(there) == told["parts"] - told["parts_removed"]
        assert run(find_instrument(), "tcplog", "recover", out).returncode == 0
    log = Log(out)
    assert log.footer["why"] == "killed"
    log.expect_law(is_whole=False)
    # Nothing had come for a second: the account that it left is the last.
    counted = ("totals", "flows", "flows_removed", "parts", "parts_removed")
    assert {name: log.footer[name] for name in counted} == {name: told[name] for name in counted}
    # All that came long before the kill is there.
    assert log.samples.height == told["records"]
    assert files(out) == []


def test_unreadable_part_does_not_affect_others(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    with filled(bed, out, 4, *BY_SIZE) as logger:
        bed.await_rest()
        time.sleep(1.5)
        told = logger.status()
        logger.process.send_signal(signal.SIGKILL)
        logger.process.wait(PATIENCE_SECONDS)
    spoilt = out / "spool-001.tcplog"
    spoilt_bytes = bytearray(spoilt.read_bytes())
    spoilt_bytes[20] ^= 1
    spoilt.write_bytes(spoilt_bytes)
    done = run(find_instrument(), "tcplog", "recover", out)
    assert "expected a spool of tcplog" in done.stderr
    assert "spool-001.unread" in done.stderr
    log = Log(out)
    log.expect_law(is_whole=False)
    assert (log.footer["parts"], log.footer["parts_unread"]) == (told["parts"], 1)
    assert log.count("seen") == sum(told["totals"][way]["seen"] for way in ("in", "out"))
    # Nothing had come for a second: what is not there is what the part had.
    assert log.count("broken") > 0
    assert log.count("logged") + log.count("broken") == sum(told["totals"][way]["logged"] for way in ("in", "out"))
    assert (out / "spool-001.unread").read_bytes() == spoilt_bytes
    assert files(out) == []


def test_idle_log_starts_no_new_part(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup, "--rotate-time", "1s") as logger:
        sending = bed.send(20, 1_000)
        bed.await_rest()
        time.sleep(2.5)
        before = (logger.status()["parts"], sum((out / name).stat().st_size for name in files(out)))
        time.sleep(3)
        assert (logger.status()["parts"], sum((out / name).stat().st_size for name in files(out))) == before
        sending.close()
        log = logger.end()
    log.expect_law()
