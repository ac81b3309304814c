"""A processor goes offline under what runs on it, where the machine allows: nothing ends, nothing is lost in silence.

The kernel moves threads that were pinned to it elsewhere. Times suffer, and are not judged here.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.net.tcplog_bed import Bed, logging, made_bed
from tests.net.test_conduct_net import BLOCKS, PLAN, SLOW, await_blocks, begin, blocks_of, left_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSOR = max(os.sched_getaffinity(0))
ONLINE = Path(f"/sys/devices/system/cpu/cpu{PROCESSOR}/online")

pytestmark = [
    pytest.mark.proof,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="takes a processor offline, and needs root for it"),
    pytest.mark.skipif(not PROCESSOR, reason="there is no second processor"),
]


@contextmanager
def offline() -> Iterator[None]:
    """One processor less, for the time of a block of code."""
    try:
        ONLINE.write_text("0")
    except OSError as why:
        pytest.skip(f"processor {PROCESSOR} cannot be taken offline here: {why}")
    try:
        assert PROCESSOR not in os.sched_getaffinity(0)
        yield
    finally:
        ONLINE.write_text("1")


def test_a_run_goes_on_while_a_processor_is_offline(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    out = tmp_path / "run"
    udp = ("--set", "probe=udp/ping-pong", "--set", f"host.responder_cpu={PROCESSOR}", "--set", "host.prober_cpu=0")
    process = begin("run", tmp_path / "plan.toml", "--json", "--no-report", "--out", out, *SLOW, *udp)
    await_blocks(process, out, 6)
    with offline():
        await_blocks(process, out, 12)
    _, told = process.communicate(timeout=300)
    assert process.returncode in {0, 4}, told
    assert sorted(blocks_of(out)) == list(range(BLOCKS)), "each block once"
    assert left_of(process.pid) == []


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        yield made


def test_every_packet_is_in_one_count_while_a_processor_is_offline(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--ppl", "1") as logger:
        bed.serve()
        bed.send(4, 1_000_000).close()
        with offline():
            bed.send(4, 1_000_000).close()
            time.sleep(0.1)
        bed.send(4, 1_000_000).close()
        log = logger.end()
    log.expect_law()
    assert log.flows.height == 24
    assert log.count("seen") > 100
