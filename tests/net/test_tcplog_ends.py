"""How a log of tcplog begins and ends when things go wrong: kills, full disks, missing rights, bad input.

Nothing of ours stays in the kernel, what was logged is readable, and a person gets one sentence.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.instruments import find_instrument
from sojourn.records import read_table
from tests.net.busy_machine import PATIENCE_SECONDS, await_that
from tests.net.tcplog_bed import (
    B4,
    BPF,
    PORT,
    TRAFFIC,
    Bed,
    Log,
    argv_of,
    environment,
    expect_gone,
    held_by,
    logging,
    made_bed,
    present,
    run,
    sojourn_says,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

SOME = 400_000
LOAD, ATTACH, QUERY = 5, 8, 16
CGROUP_SKB, INGRESS, MULTI = 8, 0, 2
KERNEL_TYPES = Path("/sys/kernel/btf/vmlinux")


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        made.serve()
        yield made


def refused(done: subprocess.CompletedProcess[str], status: int) -> str:
    """The one sentence, under the status that it should have."""
    assert done.returncode == status, done.stderr
    assert "panicked" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.strip().partition(": ")[2]


def log_here(bed: Bed, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return sojourn_says("tcplog", "run", "--attach", bed.cgroup, "--duration", "200ms", *words)


@pytest.mark.parametrize("moment", ["busy", "idle"])
def test_a_killed_log_leaves_nothing_in_the_kernel_and_is_readable(bed: Bed, tmp_path: Path, moment: str) -> None:
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup) as logger:
        held = held_by(logger.process.pid)
        assert held["link"]
        assert held["map"]
        held["program"] |= programs_of(bed.cgroup)
        sending = bed.send(3, SOME)
        if moment == "idle":
            await_writing(out)
        else:
            sending.close()
        logger.process.kill()
        logger.process.wait(PATIENCE_SECONDS)
    expect_gone(held)
    assert not (out / "records").is_dir() or not list((out / "records").glob("*.arrow"))
    run(find_instrument(), "tcplog", "recover", out)
    samples = read_table(out / "records", "tcp_samples")
    assert not samples.truncated
    if moment == "idle":
        assert samples.frame["flow"].n_unique() == 6
        log = Log(out)
        assert any("killed" in one for one in log.footer["problems"])
        log.expect_law(is_whole=False)
        log.expect_gaps()
    assert not list(out.glob("spool-*"))


def test_a_killed_log_loses_a_second_at_most(bed: Bed, tmp_path: Path) -> None:
    """Connections come one after the other; after the kill they still do, so that the last sample's time says it."""
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup) as logger:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            bed.short(5, 1)
        killed_ns = time.clock_gettime_ns(time.CLOCK_TAI)
        logger.process.kill()
        logger.process.wait(PATIENCE_SECONDS)
    run(find_instrument(), "tcplog", "recover", out)
    last_ns: Any = read_table(out / "records", "tcp_samples").frame["time_ns"].max()
    assert killed_ns - 1_000_000_000 <= last_ns <= killed_ns + 100_000_000


def await_writing(out: Path) -> None:
    """Until whatever a log writes from time to time has been written of what was sent before: it did so twice since."""
    [spool] = out.glob("spool-*.tcplog")
    for _ in range(3):
        await_that(partial(is_written, spool, spool.stat().st_mtime_ns), "the log writes")


def is_written(spool: Path, since_ns: int) -> bool:
    """Whether it was; a log to which nothing comes writes no more than the file's time."""
    return spool.stat().st_mtime_ns > since_ns


def test_a_log_that_ends_leaves_nothing_in_the_kernel(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup) as logger:
        held = held_by(logger.process.pid)
        bed.send(1, SOME).close()
        logger.end()
    expect_gone(held)
    assert sorted(one.name for one in (tmp_path / "t").iterdir()) == ["footer.json", "header.json", "records"]


def test_spool_truncated_anywhere_can_be_recovered(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup) as logger:
        bed.send(3, SOME).close()
        await_writing(out)
        logger.process.kill()
        logger.process.wait(PATIENCE_SECONDS)
    [spool] = out.glob("spool-*.tcplog")
    whole = spool.read_bytes()
    heights = []
    for share in (0.2, 0.5, 0.77, 1.0):
        copy = tmp_path / f"t{share}"
        shutil.copytree(out, copy, ignore=shutil.ignore_patterns("*.sock"))
        (copy / spool.name).write_bytes(whole[: int(len(whole) * share)])
        done = run(find_instrument(), "tcplog", "recover", copy, check=False)
        assert done.returncode in {0, 4}, done.stderr
        heights.append(read_table(copy / "records", "tcp_samples").frame.height)
    assert heights == sorted(heights)
    assert heights[-1] > heights[0]


def test_full_disk_ends_the_log_and_keeps_the_accounting_correct(bed: Bed, tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        out = disk / "t"
        with logging(out, "--attach", bed.cgroup) as logger:
            held = held_by(logger.process.pid)
            for _ in range(40):
                if logger.process.poll() is not None:
                    break
                bed.send(10, SOME).close()
            else:
                logger.process.send_signal(signal.SIGINT)
            said = logger.process.communicate(timeout=PATIENCE_SECONDS)[1]
            assert logger.process.returncode in {3, 4}, said
        assert "space" in said.lower() or "full" in said.lower(), said
        assert "panicked" not in said
        expect_gone(held)


@contextmanager
def tiny_disk(at: Path) -> Iterator[Path]:
    at.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", at)
    try:
        yield at
    finally:
        run("umount", "-l", at)


def test_removal_of_a_running_log_is_detected(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup) as logger:
        held = held_by(logger.process.pid)
        [spool] = out.glob("spool-*.tcplog")
        spool.unlink()
        bed.send(3, SOME).close()
        said = logger.process.communicate(timeout=PATIENCE_SECONDS)[1]
        assert logger.process.returncode in {3, 4}, said
    assert "removed" in said or "gone" in said, said
    expect_gone(held)


@pytest.mark.parametrize("missing", ["cap_bpf", "cap_net_admin", "cap_perfmon"])
def test_missing_capability_is_named(bed: Bed, tmp_path: Path, missing: str) -> None:
    argv = [find_instrument(), "tcplog", "run", "--out", tmp_path / "t", "--duration", "100ms", "--attach", bed.cgroup]
    inner = " ".join(map(str, argv))
    done = run("capsh", f"--drop={missing},cap_sys_admin", "--", "-c", f"exec {inner}", check=False)
    said = refused(done, 3)
    assert missing.upper() in said
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--ppl", "0"), 2, "ppl"),
        (("--ppl=-1",), 2, "ppl"),
        (("--ppl", "many"), 2, "many"),
        (("--port", "65536"), 2, "65536"),
        (("--prefix", "10.0.0.0/33"), 2, "10.0.0.0/33"),
        (("--netns", "there-is-none"), 2, "there-is-none"),
        (("--cgroup", "/there/is/none"), 2, "/there/is/none"),
        (("--on-change", "colour"), 2, "colour"),
        (("--sample", "during"), 2, "during"),
        (("--min-interval", "5parsec"), 2, "5parsec"),
        (("--ring", "much"), 2, "much"),
        (("--flows", "0"), 2, "flows"),
        (("--one-in", "0"), 2, "one-in"),
        (("--process", "0"), 2, "process"),
        (("--flight", "10", "--flight-on", "rain"), 2, "rain"),
        (("--flight", "10", "--flight-on", "rtoo"), 2, 'did you mean "rto"?'),
        (("--btf", "/there/is/none"), 2, "/there/is/none"),
        (("--nonsense",), 2, "nonsense"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    bed: Bed, tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    done = log_here(bed, "--out", tmp_path / "t", *words)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "panicked" not in done.stderr
    assert done.stderr.startswith(("sojourn: ", "error: ", "sojourn-instrument: "))
    assert not (tmp_path / "t").exists()


def test_unusable_log_folders_and_cgroups_are_refused(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file" in refused(log_here(bed, "--out", tmp_path / "file" / "t"), 2)
    done = sojourn_says("tcplog", "run", "--attach", tmp_path, "--duration", "100ms", "--out", tmp_path / "t")
    assert str(tmp_path) in refused(done, 3)
    for words in (("status",), ("set", "--ppl", "2"), ("recover",)):
        refused(sojourn_says("tcplog", words[0], tmp_path / "none", *words[1:]), 2)
    with logging(tmp_path / "t", "--attach", bed.cgroup) as logger:
        assert "ppl" in refused(sojourn_says("tcplog", "set", logger.out, "--ppl", "0"), 2)
        assert "t" in refused(log_here(bed, "--out", logger.out), 2)
        logger.end().expect_law()


def test_a_field_that_this_kernel_lacks_is_absent_and_never_0(bed: Bed, tmp_path: Path) -> None:
    """Types of a kernel that has never heard of some fields, although it is this one in all other respects."""
    types = tmp_path / "btf"
    renamed = KERNEL_TYPES.read_bytes()
    lacking = {"rcv_ooopack": b"rcv_ooopakk", "reord_seen": b"reord_seem", "dsack_dups": b"dsack_dupz"}
    for name, other in lacking.items():
        assert b"\0" + name.encode() + b"\0" in renamed
        renamed = renamed.replace(b"\0" + name.encode() + b"\0", b"\0" + other + b"\0")
    types.write_bytes(renamed)
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--btf", types) as logger:
        bed.send(2, SOME).close()
        log = logger.end()
    log.expect_law()
    assert set(lacking) <= set(log.header["absent"])
    for name in lacking:
        assert log.samples[name].is_null().all()
    assert log.samples["snd_cwnd"].null_count() == 0


def test_existing_bpf_program_on_the_cgroup_keeps_working(bed: Bed, tmp_path: Path) -> None:
    with foreign_program(bed.cgroup, MULTI) as theirs:
        with logging(tmp_path / "t", "--attach", bed.cgroup) as logger:
            assert theirs in programs_of(bed.cgroup)
            assert len(programs_of(bed.cgroup)) == 2
            bed.send(2, SOME).close()
            log = logger.end()
        await_that(lambda: programs_of(bed.cgroup) == {theirs}, "only theirs")
    log.expect_law()
    assert log.count("logged") > 0


def test_bpf_program_that_allows_no_other_is_named(bed: Bed, tmp_path: Path) -> None:
    with foreign_program(bed.cgroup, 0) as theirs:
        said = refused(log_here(bed, "--out", tmp_path / "t"), 3)
        assert str(theirs) in said
        assert programs_of(bed.cgroup) == {theirs}
    assert not (tmp_path / "t").exists()


def test_two_concurrent_logs_record_the_same(bed: Bed, tmp_path: Path) -> None:
    with logging(tmp_path / "x", "--attach", bed.cgroup) as one, logging(tmp_path / "y", "--attach", bed.cgroup) as two:
        bed.send(3, SOME).close()
        bed.await_rest()
        first, second = one.end(), two.end()
    for log in (first, second):
        log.expect_law()
    assert [first.count("seen", way) for way in ("in", "out")] == [second.count("seen", way) for way in ("in", "out")]


def test_command_exit_status_is_returned_and_its_end_ends_the_log(bed: Bed, tmp_path: Path) -> None:
    for number, (command, status) in enumerate(((("sh", "-c", "exit 7"), 7), (("true",), 0), (("none-such",), 2))):
        out = tmp_path / f"t{number}"
        done = sojourn_says("tcplog", "run", "--attach", bed.cgroup, "--out", out, "--", *command)
        assert done.returncode == status, done.stderr
        if status != 2:
            assert json.loads((out / "footer.json").read_text())["command_status"] == status


def test_ctrl_c_ends_command_and_log_orderly(bed: Bed, tmp_path: Path) -> None:
    argv = argv_of("tcplog", "run", "--attach", bed.cgroup, "--out", tmp_path / "t", "--", "sleep", "60")
    process = subprocess.Popen(argv, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True)
    await_that((tmp_path / "t" / "control.sock").exists, "the log goes on")
    bed.send(1, SOME).close()
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert "panicked" not in said
    log = Log(tmp_path / "t")
    log.expect_law()
    assert log.count("logged") > 0


def bpf(command: int, attributes: bytes) -> int:
    """The system call."""
    kernel = ctypes.CDLL(None, use_errno=True)
    attribute = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    result: int = kernel.syscall(BPF, command, attribute, 128)
    assert result >= 0, os.strerror(ctypes.get_errno())
    answers.append(attribute.raw)
    return result


answers: list[bytes] = []


@contextmanager
def foreign_program(cgroup: Path, flags: int) -> Iterator[int]:
    """Somebody else's program on the cgroup's incoming packets, which lets all pass: its number."""
    before = present("program")
    code = ctypes.create_string_buffer(struct.pack("<BBhi", 0xB7, 0, 0, 1) + struct.pack("<BBhi", 0x95, 0, 0, 0))
    licence = ctypes.create_string_buffer(b"GPL")
    head = struct.pack("<IIQQ", CGROUP_SKB, 2, ctypes.addressof(code), ctypes.addressof(licence))
    program = bpf(LOAD, head.ljust(68, b"\0") + struct.pack("<I", INGRESS))
    folder = os.open(cgroup, os.O_RDONLY)
    try:
        bpf(ATTACH, struct.pack("<IIII", folder, program, INGRESS, flags))
        [number] = programs_of(cgroup)
        assert number not in before
        yield number
    finally:
        bpf(ATTACH + 1, struct.pack("<IIII", folder, program, INGRESS, 0))
        os.close(folder)
        os.close(program)


def programs_of(cgroup: Path) -> set[int]:
    """The programs on a cgroup's incoming packets."""
    room = (ctypes.c_uint32 * 16)()
    folder = os.open(cgroup, os.O_RDONLY)
    try:
        bpf(QUERY, struct.pack("<IIIIQI", folder, INGRESS, 0, 0, ctypes.addressof(room), 16))
    finally:
        os.close(folder)
    return set(room[: struct.unpack_from("<I", answers[-1], 24)[0]])


def test_commands_of_the_first_page_log_an_iperf3_port(bed: Bed, tmp_path: Path) -> None:
    """The issue's own commands, as somebody would type them who has just read the first page."""
    server = bed.start("b", "iperf3", "-s", "-1", "-p", str(PORT + 1))
    client = bed.inside("a", "iperf3", "-c", B4, "-p", str(PORT + 1), "-n", "5M")
    listening = ("ip", "netns", "exec", f"{bed.name}-b", "ss", "-Hltn")
    await_that(lambda: f":{PORT + 1}" in run(*listening).stdout, "iperf3 listens")
    words = ("tcplog", "run", "--port", str(PORT + 1), "--out", "out/t", "--", *client)
    done = sojourn_says(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert server.wait(PATIENCE_SECONDS) == 0
    log = Log(tmp_path / "out/t")
    log.expect_law()
    assert log.count("logged") > 0
    # The server made its socket before the log began: only the client's maker is known.
    assert set(log.flows.filter(pl.col("wanted"))["command"]) == {"iperf3", None}
    done = sojourn_says("tcplog", "plot", "out/t", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "out/t/plot.html\n"), done.stderr
    done = sojourn_says("tcplog", "convert", "out/t", "--to", "siftr", "-o", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("enable_time_secs=")
    assert lines[-1].startswith("disable_time_secs=")
    assert all(len(line.split(",")) == 27 for line in lines[1:-1])
    talking = bed.start("a", sys.executable, TRAFFIC, "short", B4, str(PORT), "5000", "1", "10")
    done = sojourn_says("tcplog", "top", "--once", "--port", str(PORT), COLUMNS="100")
    assert done.returncode == 0, done.stderr
    assert talking.poll() is None
    assert f"{B4}:{PORT}" in done.stdout
