"""The log of TCP's state: what it costs beside itself switched off, how much it takes in, how small it is at rest.

The study does the first (`sojourn run tcplog-cost`), slice beside slice; this holds its figures to targets. The rest is
done here: a log of both ends of as many small packets as this machine makes, one that is read back and converted, and
one that was killed and becomes records.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.compare import Row, Target, What, ratio
from bench.goals import BY_IPERF
from sojourn.bed import BedSpec, build_bed
from sojourn.conduct.tcp_hosts import set_tcp, size_packets
from sojourn.errors import MachineError
from sojourn.export.convert import Request, convert
from sojourn.export.log import TcpLog
from sojourn.instruments import find_instrument
from sojourn.instruments.iperf import Iperf, Traffic
from sojourn.instruments.ping import pinned
from sojourn.instruments.tcplog import LogInstrument, log_argv
from sojourn.methods.tcp_cost.measure import rows_of_costs
from sojourn.plan import DIRECT, load_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sojourn.bed import Bed
    from sojourn.instruments.tcplog import Mode

FLOWS = (1, 100)
PAIRS_A_REPETITION = 5
"""Pairs of slices of each cell, for each repetition that the bench is asked for."""

LONGEST_SECONDS = 1800
INVALID = 4
SUSTAINED_SECONDS = 30.0
SUSTAINED_FLOWS = 8
KEPT_SECONDS = 3.0
READINGS = 7
"""The lowest and the highest of this many readings enclose the median in more than 95 % of cases."""

ITSELF = "itself, switched off"
LEAST_LEFT = {("gso", 1): 0.95, ("gso", 100): 0.95, ("mtu", 1): 0.90, ("mtu", 100): 0.92}
"""The least share of the throughput that must remain with every packet logged."""
PATHS = {"gso": "packets up to 64 kB", "mtu": "packets of one segment"}
SAME = Target("at most", 0.02)
SETS = ("all", "siftr")
"""The sets of fields of TCP's state that are logged."""

STATISTICS_SECONDS = 0.1
SLICES = 8
"""Slices of each set of fields, over one bed."""

IPERF_PAIRS = 6
IPERF_INTERVAL = re.compile(r"\[ *(?P<who>\d+|SUM)\].* (?P<rate>[\d.]+) Mbits/sec(?!.*(?:sender|receiver))")
"""iperf3's line of an interval: of one connection, or of all."""

LEAST_TURNS = 6
"""The lowest and the highest of this many turns enclose the median in 96.9 % of cases."""

NANOSECONDS = {("logged", "in"): 200.0, ("logged", "out"): 250.0, ("decimated", "in"): 50.0, ("decimated", "out"): 50.0}

Found = dict[str, Any]


class Figure(NamedTuple):
    """An estimate with its interval and the number of values."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 1


def rows(repetitions: int, seed: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """Return the lines of the table."""
    tell(f"tcplog: its cost, {repetitions * PAIRS_A_REPETITION} pairs of slices of each setting")
    results = studied(repetitions * PAIRS_A_REPETITION, seed, scratch)
    lines = [*throughputs(results), *skips(results), *nanoseconds(results)]
    tell("tcplog: its cost with the fields of SIFTR alone")
    slim = {"costs.fields": "siftr", "costs.path": "mtu", "costs.packets_per_log": "1"}
    lines += throughputs(studied(repetitions * PAIRS_A_REPETITION, seed, scratch, slim), ", fields=siftr")
    for flows in FLOWS:
        lines.append(by_iperf(flows, repetitions, seed, tell))
    tell("tcplog: time a packet, all fields and those of SIFTR in turn")
    lines += by_fields(max(repetitions, LEAST_TURNS))
    with ready_bed() as bed:
        tell(f"tcplog: both ends of small packets for {SUSTAINED_SECONDS:.0f} s")
        lines += sustained(bed, scratch)
        tell("tcplog: a log at rest")
        lines += at_rest(bed, scratch)
        tell("tcplog: a killed log becomes records")
        lines += settled(bed, scratch)
    return lines


# --- by the study ----------------------------------------------------------------------------------------------------


def studied(pairs: int, seed: int, scratch: Path, more: dict[str, str] | None = None) -> list[Found]:
    """Return the results of one run of the study; `more` holds further keys of its plan."""
    asked = {
        "costs.packets_per_log": "1,10",
        "costs.flows": ",".join(map(str, FLOWS)),
        "costs.where": "sender",
        "costs.controls": "disabled",
        "costs.repetitions": str(pairs),
        "costs.at_once": "5",
        "costs.seed": str(seed),
    } | (more or {})
    sets = [word for key, value in asked.items() for word in ("--set", f"{key}={value}")]
    out = ["--out", str(scratch / f"tcplog-cost{len(more or {})}"), "--json", "--no-report"]
    argv = [sys.executable, "-c", "from sojourn.cli import main; main()", "run", "tcplog-cost", *sets, *out]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode not in (0, INVALID):
        raise MachineError(f"the study tcplog-cost failed: {done.stderr.strip()[-300:]}")
    found: list[Found] = json.loads(done.stdout.splitlines()[-1])["results"]
    return found


def throughputs(results: list[Found], fields: str = "") -> Iterator[Row]:
    """Yield the lines of throughput: every packet logged against its target, the other settings against no change."""
    for path, words in PATHS.items():
        for flows in FLOWS:
            task = f"throughput, {flows} flow{'s' if flows > 1 else ''}, {words}{fields}"
            for name, device, each in (
                ("every packet logged", "on", 1), ("one packet in ten logged", "on", 10),
                ("attached, disabled", "disabled", None), ("without it again", "a/a", None),
            ):  # fmt: skip
                found = pick(results, "throughput_ratio", device=device, path=path, flows=flows, packets_per_log=each)
                if found is None:
                    continue
                if each == 1:
                    yield line(task, name, "share", figure_of(found), Target("at least", LEAST_LEFT[path, flows]))
                else:
                    target = None if device == "a/a" else SAME
                    yield line(task, f"{name}: change", "share", distance(figure_of(found)), target)


def distance(found: Figure) -> Figure:
    """Return the absolute distance of a ratio from one, with its interval."""
    value = abs(found.value - 1)
    if found.low is None or found.high is None:
        return Figure(value, n=found.n)
    ends = sorted((abs(found.low - 1), abs(found.high - 1)))
    return Figure(value, 0.0 if found.low <= 1 <= found.high else ends[0], ends[1], found.n)


def skips(results: list[Found]) -> Iterator[Row]:
    """Yield the count of packets without a record, over all cells with the same number of flows."""
    for flows in FLOWS:
        counted = [one for one in results if one["quantity"] == "skipped" and one["flows"] == flows]
        if not counted:
            raise MachineError(
                f"the study tells nothing of packets skipped with {flows} flow{'s' if flows > 1 else ''}"
            )
        skipped = sum(one["estimate"] for one in counted)
        name = f"skipped packets, {flows} flow{'s' if flows > 1 else ''}"
        yield line("what is skipped", name, "1", Figure(skipped, n=len(counted)), Target("at most", 0.0))


def nanoseconds(results: list[Found]) -> Iterator[Row]:
    """Yield the time a packet takes in the kernel, over all traffic."""
    for (what, way), limit in NANOSECONDS.items():
        found = pick(results, "program_time", device=what, statistic=way, path=None)
        if found is not None:
            name = f"{what}, {'comes' if way == 'in' else 'goes'}"
            yield line("time a packet in the kernel", name, "ns", figure_of(found), Target("at most", limit))


def pick(results: list[Found], quantity: str, **wanted: Any) -> Found | None:
    """Return the first row of this kind, or None."""
    return next(
        (one for one in results
         if one["quantity"] == quantity and all(one.get(key) == value for key, value in wanted.items())),
        None,
    )  # fmt: skip


def figure_of(found: Found) -> Figure:
    """Return a row of the results as a figure."""
    return Figure(float(found["estimate"]), found["ci_low"], found["ci_high"], int(found["n"]))


# --- by iperf3 -------------------------------------------------------------------------------------------------------


def by_iperf(flows: int, repetitions: int, seed: int, tell: Callable[[str], None]) -> Row:
    """Return the throughput that is left by iperf3's own figures; the study has that of the kernel's counters."""
    order, found = random.Random(seed), list[tuple[float, float]]()
    for number in range(1, repetitions + 1):
        tell(f"tcplog: throughput by iperf3 itself, {flows} flows, repetition {number}/{repetitions}")
        with ready_bed() as bed:
            found.append(carried(bed, flows, order))
    task = f"{BY_IPERF}, {flows} flow{'s' if flows > 1 else ''}, packets of one segment"
    what = What(task, "the log switched off", "every packet logged", "bit/s")
    return ratio(what, found, Target("at least", LEAST_LEFT["mtu", flows]))


def carried(bed: Bed, flows: int, order: random.Random) -> tuple[float, float]:
    """Return bits a second of one iperf3 run with every packet logged at the sender, and with the log off.

    The latter is the median; the former is that, times the median of the ratios of pairs.

    iperf3 prints a figure each second, of many connections some 0.3 s late: so the log is switched as a figure comes,
    the next one is left out, and the one after it counts. Which of a pair is logged is decided by chance.
    """
    cores, to = sorted(os.sched_getaffinity(0)), bed.topology.link("direct").b_ip4
    serve = [*pinned(bed, "b", cores[-1]), "iperf3", "-s", "-1", "-i", "0"]
    ask = [*pinned(bed, "a", cores[0]), "iperf3", "-c", to, "-P", str(flows), "-f", "m", "--forceflush"]
    ask += ["-i", "1", "-t", str(2 + 4 * IPERF_PAIRS)]
    with ExitStack() as stack:
        server = bed.backend.start("b", serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(server.kill)
        log = LogInstrument(bed.backend.beside, log_argv(find_instrument(), bed.backend.cgroup("a")))
        stack.callback(log.kill)
        records = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log.begin(1, "off", records=records, who="a", options={"ppl": 1}, keep=False)
        time.sleep(0.3)
        client: subprocess.Popen[str] = bed.backend.start(
            "a", ask, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        stack.callback(client.kill)
        assert client.stdout is not None
        next_figure(client.stdout, flows)  # the first second is slow start's
        found: dict[Mode, list[float]] = {"on": [], "off": []}
        for _ in range(IPERF_PAIRS):
            for mode in order.sample([*found], 2):
                log.be(mode)
                next_figure(client.stdout, flows)
                found[mode].append(next_figure(client.stdout, flows))
        account = log.end()["account"]
    if any(account[way].get(why, 0) for way in ("in", "out") for why in ("full", "broken")):
        raise MachineError("a log that was to hold every packet lost some")
    left = median(on / off for on, off in zip(found["on"], found["off"], strict=True))
    return left * median(found["off"]), median(found["off"])


def next_figure(lines: Iterable[str], flows: int) -> float:
    """Return the bits a second of iperf3's next interval, over all its connections."""
    said = ""
    for line in lines:
        said = line.strip() or said
        found = IPERF_INTERVAL.match(line)
        if found and (found["who"] == "SUM") == (flows > 1):
            return float(found["rate"]) * 1e6
    raise MachineError(f"iperf3 ended early: {said}")


# --- by itself -------------------------------------------------------------------------------------------------------


@contextmanager
def ready_bed() -> Iterator[Bed]:
    """Yield a bed with cgroups, both ends set up as in the study, with packets of one segment."""
    with build_bed(BedSpec(cgroups=True), f"benchlog{time.monotonic_ns() % 1_000_000}") as bed:
        asked = load_plan("tcplog-cost").costs
        set_tcp(bed, asked.send_buffer_bytes, asked.receive_buffer_bytes,
                tcp_congestion_control=asked.congestion_control)  # fmt: skip
        size_packets(bed, bed.topology.paths[DIRECT], "mtu", checksums=True)
        yield bed


@contextmanager
def logging(bed: Bed, attach: str) -> Iterator[LogInstrument]:
    """Yield a log with connections that it logs."""
    costs = load_plan("tcplog-cost").costs
    address = bed.topology.link("direct").b_ip4
    asked = Traffic(address, SUSTAINED_FLOWS, LONGEST_SECONDS, costs.mss_bytes, costs.congestion_control)

    with ExitStack() as stack:
        log = LogInstrument(bed.backend.beside, log_argv(find_instrument(), attach))
        stack.callback(log.kill)
        stack.enter_context(Iperf(bed, asked))
        time.sleep(1.0)
        yield log


def by_fields(turns: int) -> Iterator[Row]:
    """Yield the time a packet takes in the kernel with all fields and with SIFTR's, alternating, over fresh beds."""
    found: dict[tuple[str, str], list[float]] = {(fields, way): [] for fields in SETS for way in ("in", "out")}
    for turn in range(turns):
        with ready_bed() as bed:
            for key, took in in_turn(bed, SETS[turn % len(SETS)]).items():
                found[key].append(took)
    task = "time a packet in the kernel, both ends, all fields and SIFTR's in turn"
    for way, verb in (("in", "comes"), ("out", "goes")):
        every, siftr = found["all", way], found["siftr", way]
        limit = Target("at most", NANOSECONDS["logged", way])
        yield line(task, f"fields=all, {verb}", "ns", middle_of(every))
        yield line(task, f"fields=siftr, {verb}", "ns", middle_of(siftr), limit)
        ratios = [one / other for one, other in zip(siftr, every, strict=True)]
        yield line(task, f"fields=siftr over fields=all, {verb}", "ratio", middle_of(ratios))


def in_turn(bed: Bed, first: str = SETS[0]) -> dict[tuple[str, str], float]:
    """Return the nanoseconds a logged packet takes each way with each set of fields, less those of an empty program.

    Each is the median of slices that alternate in both orders, so other load on the machine affects both sets alike.
    The set whose programs are loaded `first` seems some nanoseconds faster: beds take turns.
    """
    above, found = str(Path(bed.backend.cgroup("a")).parent), dict[tuple[str, str], list[float]]()
    with ExitStack() as stack:
        (second,) = (one for one in SETS if one != first)
        logs = {first: stack.enter_context(logging(bed, above))}
        logs[second] = LogInstrument(bed.backend.beside, log_argv(find_instrument(), above))
        stack.callback(logs[second].kill)
        for number, (fields, log) in enumerate(logs.items()):
            records = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            asked = {"ppl": 1, "fields": [fields]}
            log.begin(number, "off", records=records, who=fields, options=asked, keep=False)
        for slice_ in range(SLICES):
            for fields in SETS if slice_ % 2 == 0 else reversed(SETS):
                empty, logged = (statistics(logs[fields], mode) for mode in ("empty", "on"))
                for way in ("in", "out"):
                    found.setdefault((fields, way), []).append(logged[way] - empty[way])
        for log in logs.values():
            log.end()
    return {key: median(took) for key, took in found.items()}


def statistics(log: LogInstrument, mode: Mode) -> dict[str, float]:
    """Return the nanoseconds that a run of the programs takes at packets each way, in a mode of the log."""
    log.be(mode)
    log.take_statistics(on=True)
    before = log.costs()
    time.sleep(STATISTICS_SECONDS)
    ran = rows_of_costs(0, "", before, log.costs())
    log.take_statistics(on=False)
    log.be("off")
    spent = {way: [one for one in ran if one["direction"] == way] for way in ("in", "out")}
    return {
        way: sum(one["cpu_time_ns"] for one in of) / max(1, sum(one["runs"] for one in of)) for way, of in spent.items()
    }


def middle_of(values: list[float]) -> Figure:
    """Return the median with the lowest and the highest value."""
    return Figure(median(values), min(values), max(values), len(values))


def sustained(bed: Bed, scratch: Path) -> Iterator[Row]:
    """As many records as this machine makes: both ends of every packet, attached above both."""
    records = scratch / "sustained"
    records.mkdir()
    with logging(bed, str(Path(bed.backend.cgroup("a")).parent)) as log:
        log.begin(1, "on", records=records, who="both", options={"ppl": 1}, keep=False)
        began = time.monotonic()
        time.sleep(SUSTAINED_SECONDS)
        seconds = time.monotonic() - began
        footer = log.end()
    ways = [footer["account"][way] for way in ("in", "out")]
    logged = sum(one.get("logged", 0) for one in ways)
    lost = sum(one.get("full", 0) + one.get("broken", 0) for one in ways)
    task = f"records of {SUSTAINED_SECONDS:.0f} s, {SUSTAINED_FLOWS} flows of small packets, both ends"
    yield line(task, "records a second", "1/s", Figure(logged / seconds), Target("at least", 350_000))
    yield line(task, "lost", "1", Figure(float(lost)), Target("at most", 0.0))
    if "logger_cpu_s" in footer:
        yield line(task, "processor time of the log's process", "share", Figure(footer["logger_cpu_s"] / seconds))


def at_rest(bed: Bed, scratch: Path) -> Iterator[Row]:
    """Bytes of a record as Parquet, and how fast a log is read."""
    records = scratch / "kept" / "records"
    records.mkdir(parents=True)
    with logging(bed, bed.backend.cgroup("a")) as log:
        log.begin(1, "on", records=records, who="a", options={"ppl": 1}, keep=True)
        time.sleep(KEPT_SECONDS)
        log.end()
    count = sum(one.height for one in TcpLog.open(records.parent).batches({"number"}))
    file = scratch / "kept.parquet"
    convert(Request(records.parent, "parquet", file))
    task = f"a log of {KEPT_SECONDS:.0f} s of the sender"
    yield line(task, "bytes of a record as Parquet", "1", Figure(file.stat().st_size / count), Target("at most", 20))
    for name, columns in (("all columns", None), ("what SIFTR had", SIFTR)):
        speeds = sorted(count / reading_seconds(records.parent, columns) for _ in range(READINGS))
        middle = Figure(speeds[READINGS // 2], speeds[0], speeds[-1], READINGS)
        yield line(task, f"records read a second, {name}", "1/s", middle, Target("at least", 3_500_000))


def settled(bed: Bed, scratch: Path) -> Iterator[Row]:
    """How fast the spool of a killed log becomes records: each time the same one."""
    killed, instrument = scratch / "killed", find_instrument()
    argv = [instrument, "tcplog", "run", "--attach", bed.backend.cgroup("a"), "--out", str(killed)]
    with logging(bed, bed.backend.cgroup("b")):
        log = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.0 + KEPT_SECONDS)
        log.kill()
        log.wait()
    found = sorted(settling(instrument, killed, scratch / "again") for _ in range(READINGS))
    task = f"a killed log of {KEPT_SECONDS:.0f} s of the sender becomes records"
    for at, name in enumerate(("records a second", "records a second of processor time")):
        speeds = sorted(one[at] for one in found)
        yield line(task, name, "1/s", Figure(speeds[READINGS // 2], speeds[0], speeds[-1], READINGS), SETTLED[at])


def settling(instrument: str, killed: Path, again: Path) -> tuple[float, float]:
    """Records a second of one recovery of a copy, and records a second of its processor time."""
    shutil.rmtree(again, ignore_errors=True)
    shutil.copytree(killed, again, ignore=shutil.ignore_patterns("*.sock"))
    # The spool of a killed log has long been on the disk, and a fresh copy has not.
    os.sync()
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    argv = [instrument, "tcplog", "recover", str(again), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise MachineError(f"tcplog recover failed: {done.stderr.strip()[-300:]}")
    records: int = json.loads(done.stdout)["records"]
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return records / took, records / processor


SETTLED = (Target("at least", 3_000_000), None)

SIFTR = {
    *("flow", "point", "time_ns", "snd_ssthresh", "snd_cwnd", "flags", "snd_wnd_bytes", "rcv_wnd_bytes"),
    *("snd_wscale", "rcv_wscale", "state", "mss_bytes", "srtt_us", "rto_us", "sndbuf_bytes", "snd_queued_bytes"),
    *("rcvbuf_bytes", "rcv_queued_bytes", "in_flight_bytes", "num_sacks"),
}
"""The columns that SIFTR's own text is made from."""


def reading_seconds(path: Path, columns: set[str] | None) -> float:
    """How long it takes to read a whole log."""
    began = time.monotonic()
    for _ in TcpLog.open(path).batches(columns):
        pass
    return time.monotonic() - began


def line(task: str, name: str, unit: str, found: Figure, target: Target | None = None) -> Row:
    """A figure as a line of the table."""
    return Row(
        task=task,
        peer=ITSELF,
        name=name,
        unit=unit,
        ours=found.value,
        theirs=1.0 if unit == "share" and "change" not in name else found.value,
        is_ratio=False,
        measured=found.value,
        ci_low=found.low,
        ci_high=found.high,
        level=0.95,
        n=found.n,
        target=target,
    )
