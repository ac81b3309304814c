"""Where tcplog is tested: two namespaces with a cable, programs in a cgroup of their own, and a log of that cgroup.

Attached to a cgroup of the tests', a log sees nothing of what else this machine does, and every packet that it sees is
one of ours: so counts can be exact. What was made is removed, also on failure.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import sojourn
from sojourn.cli import is_by_hand
from sojourn.instruments import find_instrument
from sojourn.records import read_table
from tests.net.busy_machine import PATIENCE_SECONDS, await_standstill, await_that
from tests.net.here import sojourn_here
from tests.unit.printed_json import printed, printed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

MAIN = "import sys; from sojourn.cli import main; sys.argv[0] = 'sojourn'; main()"
PACKAGE = Path(sojourn.__file__).parent.parent
TRAFFIC = Path(__file__).with_name("tcp_traffic.py")
GONE_SECONDS = 30.0
A4, B4, A6, B6 = "10.81.1.1", "10.81.1.2", "fd81::1", "fd81::2"
PORT = 5201
WAYS = ("in", "out")
COUNTED = ("packets", "segments")
NEXT = {"program": 11, "map": 12, "link": 31}
BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
numbers = itertools.count()

Told = dict[str, Any]


def run(*argv: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A command that must not fail, unless it may."""
    done = subprocess.run(list(map(str, argv)), check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert not check or done.returncode == 0, f"{argv}: {done.returncode}: {done.stdout[-500:]}{done.stderr[-800:]}"
    return done


def cgroup_root() -> Path:
    """Where cgroup2 is mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] == "cgroup2":
            return Path(before.split()[4])
    raise AssertionError("no cgroup2 is mounted")


def argv_of(*words: str | Path) -> list[str]:
    """`sojourn …`, of the tree that is tested."""
    return [sys.executable, "-c", MAIN, *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    """For `sojourn`."""
    return {**os.environ, "PYTHONPATH": str(PACKAGE), **more}


def sojourn_says(*words: str | Path, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run it and wait: what the instrument does not do itself, within this process."""
    if not is_by_hand(list(map(str, words))):
        return sojourn_here(*words, cwd=cwd, env=more)
    return subprocess.run(
        argv_of(*words), capture_output=True, text=True, check=False, cwd=cwd, env=environment(**more),
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip


class Bed:
    """Namespaces a and b, joined by veths with addresses of both families; a cgroup with a folder for each."""

    def __init__(self) -> None:
        self.name = f"sojourn-tcplog-{os.getpid()}-{next(numbers)}"
        self.cgroup = cgroup_root() / self.name
        self.processes: list[subprocess.Popen[str]] = []
        self.hosts: list[str] = []

    def host(self, name: str) -> None:
        """A namespace and its cgroup."""
        run("ip", "netns", "add", f"{self.name}-{name}")
        self.hosts.append(name)
        (self.cgroup / name).mkdir(parents=True)
        self.ip(name, "link", "set", "lo", "up")

    def cable(self, a: str = "a", b: str = "b") -> None:
        """A veth from a to b."""
        ends = ["netns", f"{self.name}-{a}", "type", "veth", "peer", "name", "p0", "netns", f"{self.name}-{b}"]
        run("ip", "link", "add", "name", "p0", *ends)
        for host, four, six in ((a, A4, A6), (b, B4, B6)):
            self.ip(host, "address", "add", f"{four}/24", "dev", "p0")
            self.ip(host, "address", "add", f"{six}/64", "dev", "p0", "nodad")
            self.ip(host, "link", "set", "p0", "up")

    def ip(self, host: str, *words: str) -> None:
        """`ip` within a host."""
        run("ip", "-n", f"{self.name}-{host}", *words)

    def inside(self, host: str, *argv: str | Path) -> list[str]:
        """A command as it runs on a host, in its cgroup."""
        join = f'echo $$ > {self.cgroup / host}/cgroup.procs; exec "$@"'
        return ["sh", "-c", join, "sh", "ip", "netns", "exec", f"{self.name}-{host}", *map(str, argv)]

    def start(self, host: str, *argv: str | Path) -> subprocess.Popen[str]:
        """A program on a host, with pipes."""
        process = subprocess.Popen(
            self.inside(host, *argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.processes.append(process)
        return process

    def serve(self, host: str = "b", address: str = B4, port: int = PORT) -> subprocess.Popen[str]:
        """The end that receives, ready."""
        process = self.start(host, sys.executable, TRAFFIC, "serve", address, str(port))
        assert line_of(process) == "ready"
        return process

    def send(self, flows: int, total: int, host: str = "a", address: str = B4, port: int = PORT) -> Sending:
        """Connections that have sent everything and are still there."""
        process = self.start(host, sys.executable, TRAFFIC, "send", address, str(port), str(flows), str(total))
        return Sending(process, json.loads(line_of(process)))

    def short(self, count: int, at_once: int, pause_ms: int = 0) -> None:
        """Short connections from a to b, all over."""
        numbers = map(str, (PORT, count, at_once, pause_ms))
        process = self.start("a", sys.executable, TRAFFIC, "short", B4, *numbers)
        assert json.loads(line_of(process)) == {"connections": abs(count)}
        assert process.wait(PATIENCE_SECONDS) == 0

    def snmp(self, host: str) -> dict[str, int]:
        """What the kernel has counted of TCP in a namespace."""
        text = run("ip", "netns", "exec", f"{self.name}-{host}", "cat", "/proc/net/snmp").stdout
        names, values = (line.split()[1:] for line in text.splitlines() if line.startswith("Tcp:"))
        return dict(zip(names, map(int, values), strict=True))

    def await_rest(self) -> None:
        """Until nothing is under way any more: no host's TCP has anything more to count."""
        await_standstill(lambda: [self.snmp(host) for host in self.hosts])

    def remove(self) -> None:
        """Everything that was made."""
        for process in self.processes:
            process.kill()
            process.communicate()
        for host in self.hosts:
            for pid in run("ip", "netns", "pids", f"{self.name}-{host}", check=False).stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "del", f"{self.name}-{host}", check=False)
        deadline = time.monotonic() + GONE_SECONDS
        for folder in [*(self.cgroup / host for host in self.hosts), self.cgroup]:
            while folder.is_dir() and time.monotonic() < deadline:
                with suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.05)


@contextmanager
def made_bed() -> Iterator[Bed]:
    """Two hosts and a cable."""
    bed = Bed()
    try:
        for host in "ab":
            bed.host(host)
        bed.cable()
        yield bed
    finally:
        bed.remove()


@dataclass
class Sending:
    """Connections that stand idle after they have sent; `sockets`: what TCP has counted on each."""

    process: subprocess.Popen[str]
    sockets: list[Told]

    def close(self) -> None:
        """Close them all and wait until they are."""
        assert self.process.stdin is not None
        self.process.stdin.write("close\n")
        self.process.stdin.flush()
        assert self.process.wait(PATIENCE_SECONDS) == 0


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a program says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{process.args!r}: ended with {process.wait(PATIENCE_SECONDS)}"
    return line.strip()


class Logger:
    """A log that runs: `sojourn-instrument tcplog run`, a child of ours, with its control socket there."""

    def __init__(self, out: Path, *words: str | Path, ready: bool = True) -> None:
        self.out = out
        argv = [find_instrument(), "tcplog", "run", "--out", str(out), *map(str, words)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if ready:
            self.wait_until((out / "control.sock").exists)

    def wait_until(self, holds: Any) -> None:
        """Until something holds, while the log runs."""

        def holds_while_it_runs() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.process.communicate()[1]}")
            return bool(holds())

        await_that(holds_while_it_runs, "what a log does at once")

    def ask(self, *words: str) -> str:
        """`tcplog status` or `set` of it."""
        return run(find_instrument(), "tcplog", words[0], str(self.out), *words[1:]).stdout

    def status(self) -> Told:
        """Its account so far."""
        told: Told = printed("tcplog-status", self.ask("status", "--json"))
        return told

    def flows(self, *words: str) -> list[Told]:
        """One line of `watch`."""
        argv = [find_instrument(), "tcplog", "watch", str(self.out), "--count", "1", "--interval", "50ms", *words]
        told: Told = printed_lines("tcplog-watch", run(*argv).stdout)[0]
        flows: list[Told] = told["flows"]
        return flows

    def end(self, status: int = 0) -> Log:
        """End it as Ctrl-C does; its log."""
        self.process.send_signal(signal.SIGINT)
        return self.ended(status)

    def ended(self, status: int = 0) -> Log:
        """Wait for its end; its log."""
        _, self.said = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == status, f"{self.process.returncode}: {self.said}"
        return Log(self.out)


@contextmanager
def logging(out: Path, *words: str | Path, **how: Any) -> Iterator[Logger]:
    """A log that does not outlive the test."""
    logger = Logger(out, *words, **how)
    try:
        yield logger
    finally:
        if logger.process.poll() is None:
            logger.process.send_signal(signal.SIGCONT)
            logger.process.kill()
        logger.process.wait(PATIENCE_SECONDS)
        for pipe in (logger.process.stdout, logger.process.stderr):
            if pipe is not None:
                pipe.close()


class Log:
    """A log that is over."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.header: Told = json.loads((out / "header.json").read_text())
        self.footer: Told = printed("tcplog-status", (out / "footer.json").read_text())
        records = out / "records"
        self.samples = read_table(records, "tcp_samples").frame
        self.flows = read_table(records, "tcp_flows").frame
        self.account = read_table(records, "tcp_account").frame
        self.gaps = read_table(records, "tcp_gaps").frame
        self.private = read_table(records, "tcp_private").frame

    @property
    def of_packets(self) -> pl.DataFrame:
        """The samples that belong to packets."""
        return self.samples.filter(pl.col("point").is_in(WAYS))

    def count(self, disposition: str, way: str | None = None, flow: int | None = None, what: str = "packets") -> int:
        """How many packets or segments met a disposition: of a flow, or of all."""
        of = pl.col("flow").is_null() if flow is None else pl.col("flow") == flow
        rows = self.account.filter(of, pl.col("disposition") == disposition)
        rows = rows if way is None else rows.filter(pl.col("direction") == way)
        return int(rows[what].sum())

    def expect_law(self, *, is_whole: bool = True) -> None:
        """Of all and of each flow, both ways, packets and segments: seen is exactly the sum of the dispositions."""
        assert self.footer["conserved"] is is_whole, self.footer
        dispositions = self.account.filter(pl.col("disposition") != "seen")
        seen = self.account.filter(pl.col("disposition") == "seen")
        keys = ["flow", "direction"]
        sums = dispositions.group_by(keys).agg(pl.col(*COUNTED).sum())
        both = seen.join(sums, on=keys, how="full", nulls_equal=True, suffix="_told")
        odd = both.filter(
            pl.any_horizontal(pl.col(one).ne_missing(pl.col(f"{one}_told").fill_null(0)) for one in COUNTED)
            & (pl.col("packets").fill_null(0) + pl.col("packets_told").fill_null(0) > 0)
        )
        assert odd.is_empty(), odd
        for way in WAYS:
            totals = self.footer["totals"][way]
            assert (
                totals["seen"]
                == sum(n for disposition, n in totals.items() if disposition != "seen")
                == self.count("seen", way)
            )
            self._expect_flows_in_totals(way)
        self._expect_records()

    def _expect_flows_in_totals(self, way: str) -> None:
        """What flows met is what all packets met, but for dispositions that have no flow."""
        flows = self.account.drop_nulls("flow").filter(pl.col("direction") == way)
        by_disposition = dict(flows.group_by("disposition").agg(pl.col("packets").sum()).iter_rows())
        is_less = self.footer.get("flows_removed", 0) > 0
        for disposition in ("logged", "decimated", "unchanged", "early", "filtered", "forgotten", "full", "unparsed"):
            of_flows, total = by_disposition.get(disposition, 0), self.count(disposition, way)
            # Flows that had ended in parts that were removed have no row.
            is_so = of_flows <= total if is_less and disposition != "logged" else of_flows == total
            assert is_so, f"{way} {disposition}: {of_flows} of {total}"

    def _expect_records(self) -> None:
        """A record for each packet that was logged: of each flow, each way."""
        keys = ["flow", "point"]
        rows = self.of_packets.group_by(keys).agg(pl.len().cast(pl.Int64).alias("packets"))
        logged = self.account.drop_nulls("flow").filter(pl.col("disposition") == "logged", pl.col("packets") > 0)
        logged = logged.select("flow", pl.col("direction").alias("point"), "packets")
        assert rows.sort(keys).rows() == logged.sort(keys).rows()
        assert self.footer["records"] == self.samples.height
        if "events" in self.footer and not self.count("forgotten"):  # what the flight recorder let go was an event, too
            assert self.samples.height == self.count("logged") + self.footer["events"]

    def expect_every(self, ppl: int) -> None:
        """Of each flow just the packets whose number is a multiple, each way."""
        for flow, way in itertools.product(self.flows["flow"], WAYS):
            mine = (pl.col("flow") == flow) & (pl.col("point") == way)
            logged = self.of_packets.filter(mine)["packet"].sort().to_list()
            seen = self.count("seen", way, flow=flow)
            assert logged == list(range(0, seen, ppl)), f"flow {flow}, {way}: of {seen}"

    @property
    def privates(self) -> pl.DataFrame:
        """The samples that private state belongs to: a record each, with a number of its own."""
        return self.private.select("cpu", "number").unique()

    def expect_gaps(self) -> None:
        """The record numbers of each CPU have no hole but those that a gap tells of, and those of private state."""
        for cpu in self.samples["cpu"].unique():
            have = set(self.samples.filter(pl.col("cpu") == cpu)["number"])
            gaps = self.gaps.filter(pl.col("cpu") == cpu)
            told = {one + i for one, n in gaps.select("number", "missing").iter_rows() for i in range(n)}
            assert not have & told
            holes = set(range(max(have | told) + 1)) - have - told
            privates = self.privates.filter(pl.col("cpu") == cpu).height
            assert privates - 1 <= len(holes) <= privates, "the last record may be one of private state"


def held_by(pid: int) -> dict[str, set[int]]:
    """What of BPF a process holds by its descriptors, by kind: links, programs, maps."""
    found: dict[str, set[int]] = {"link": set(), "program": set(), "map": set()}
    names = {"link_id": "link", "prog_id": "program", "map_id": "map"}
    for one in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(OSError):
            for name, number in re.findall(r"^(link_id|prog_id|map_id):\s+(\d+)$", one.read_text(), re.MULTILINE):
                found[names[name]].add(int(number))
    return found


def present(kind: str) -> set[int]:
    """Every program, map or link that the kernel holds, whoever made it."""
    kernel, found = ctypes.CDLL(None, use_errno=True), set[int]()
    attribute = (ctypes.c_uint32 * 32)()
    while kernel.syscall(BPF, NEXT[kind], attribute, 12) == 0:
        found.add(attribute[1])
        attribute[0] = attribute[1]
    return found


def expect_gone(held: dict[str, set[int]]) -> None:
    """The kernel frees what nobody holds some time after."""
    deadline = time.monotonic() + GONE_SECONDS
    for kind, ids in held.items():
        while left := ids & present(kind):
            assert time.monotonic() < deadline, f"{kind}s {left}"
            time.sleep(0.05)
