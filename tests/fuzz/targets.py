"""Fuzz targets for every Python reader of untrusted bytes: any bytes are accepted or raise a short SojournError.

`tests/unit/test_foreign_bytes.py` tries mutated seeds in every test run; `scripts/fuzz.sh` searches by coverage.
"""

from __future__ import annotations

import json
import struct
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from sojourn.bed.device_cpu import DeviceCpu
from sojourn.bed.look import parse, unfit
from sojourn.bed.real_hosts import ports_found
from sojourn.bed.state import Mark, State
from sojourn.cli.boots import is_of
from sojourn.cli.compare import compare_runs
from sojourn.cli.translate import in_words, translate
from sojourn.conduct import counters
from sojourn.errors import SojournError
from sojourn.export import Request, convert
from sojourn.export.prometheus import exposition
from sojourn.export.running import FINISHED
from sojourn.history import entry_of
from sojourn.instruments import capture, conversation, tcp_capture
from sojourn.methods.emulator.analyse.seen import header_of
from sojourn.plan.load import load_plan
from sojourn.plan.real_bed import load_real_bed
from sojourn.records import RunFolder, read_table
from sojourn.records.log import read_log
from sojourn.records.pcap import ETHERNET, PACKET, Block, read_capture, tcp_of, write_block
from sojourn.records.reader import arrow_schema
from sojourn.records.so_far import SoFar
from sojourn.report.beside.files import result_of
from sojourn.report.budgets import budget_tables, in_a_line, read_budgets
from sojourn.report.run import Run
from sojourn.report.tcplog import page
from sojourn.report.tcplog.log import Log as ReportedLog
from sojourn.report.tcplog.words import _dispositions, _unasked, facts_of
from sojourn.studies import names, text
from sojourn.timeline.frames import with_segments
from sojourn.timeline.sacks import blocks_of
from tests.fuzz import frames, machine, own_files, tables
from tests.fuzz.chosen import examples, one_of
from tests.fuzz.hosts import HOST_ANSWERS, QUESTIONS, AnsweringHost
from tests.unit.made_up_tcp import Log, MadeFlow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Target:
    """A reader of untrusted bytes, and valid inputs to start from."""

    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]


def once(target: Target, octets: bytes) -> None:
    """Run the target once. Any error except SojournError is a defect."""
    try:
        target.read(octets)
    except SojournError as error:
        require_a_sentence(error)


def require_a_sentence(refused: SojournError) -> None:
    """A refusal is short, and on one line."""
    sentence = str(refused)
    if len(sentence) > 2000 or "\n" in sentence.strip():
        raise AssertionError(f"a refusal of {len(sentence)} characters: {sentence[:200]}") from refused


def plan(octets: bytes) -> None:
    """Load a plan file."""
    with _file(octets, "plan.toml") as path:
        load_plan(path)


def set_value(octets: bytes) -> None:
    """Parse a value of `--set`."""
    load_plan("bridge-latency", sets=[octets.decode(errors="replace")])


def capture_file(octets: bytes) -> None:
    """Read echo requests and TCP segments from a tcpdump capture as the conductor does, which refuses other captures.
    Then read it to its end with the same parser, parse its TCP headers, and write its packets with a comment."""
    with _file(octets, "foreign.pcap") as path, (path.parent / "out").open("wb") as out:
        for rows in (capture.read_pcap(path, 37), tcp_capture.read_segments(path, 5201, 0, 37)):
            try:
                list(rows)
            except SojournError as error:
                require_a_sentence(error)
        for block in read_capture(path):
            tcp_of(block)
            write_block(out, block, "fuzz" if block.at_ns is not None and block.packet else None)


def log_lines(octets: bytes) -> None:
    """Read a run's log."""
    with _file(octets, "log.jsonl") as path:
        read_log(path)


def records(octets: bytes) -> None:
    """Read a table of probes."""
    with _file(octets, "probes-000.arrow") as path:
        read_table(path.parent, "probes")


def answer(octets: bytes) -> None:
    """Parse a line of an instrument's output."""
    said = conversation.parse(octets)
    assert str(conversation.error_of(*conversation.refusal_of(said)))


def device_cpu(octets: bytes) -> None:
    """Parse where a device's packets are processed."""
    DeviceCpu.parse(octets.decode(errors="replace"))


def mark(octets: bytes) -> None:
    """Parse the mark of a namespace, whose name anyone may have chosen."""
    Mark.parse(octets.decode(errors="replace"))


def state(octets: bytes) -> None:
    """Read a bed's state file, which anyone with access to its folder may have replaced."""
    with _file(octets, "state.json") as path:
        try:
            State.read(path)
        except ValueError:
            return


def interface_counters(octets: bytes) -> None:
    """Parse the kernel's table of interfaces with untrusted names."""
    head = "Inter-|\n face |\n"
    counters.parse(head + "".join(f"{name}: " + "1 " * 16 + "\n" for name in octets.decode(errors="replace").split()))


def real_bed(octets: bytes) -> None:
    """Load a file of real hosts."""
    with _file(octets, "bed.toml") as path:
        load_real_bed(path)


def looked(octets: bytes) -> None:
    """Parse a host's description of itself."""
    try:
        found = parse(octets.decode(errors="replace"), 0, 1000)
    except (KeyError, IndexError, ValueError):
        return
    assert found.kernel is not None
    for name in [*found.links, "eth9"]:
        unfit(found, name)
    assert all(one.name in found.links for one in ports_found(found))


def results(octets: bytes) -> None:
    """Read an untrusted results.json for a report, the history and a comparison."""
    _read_run(octets, RunFolder(Path()).results)


def tool_result(octets: bytes) -> None:
    """Parse a result file of another tool."""
    result_of(octets, "somebody's")


def verdict(octets: bytes) -> None:
    """Read an untrusted verdict.json."""
    _read_run(octets, RunFolder(Path()).verdict)


def bed_facts(octets: bytes) -> None:
    """Read an untrusted bed.json."""
    _read_run(octets, RunFolder(Path()).bed)


def budgets(octets: bytes) -> None:
    """Read an untrusted budgets.json: build the report's tables, and a line of each budget for the terminal."""
    _read_run(octets, RunFolder(Path()).budgets)


def _read_run(octets: bytes, name: Path) -> None:
    """Read a run with one untrusted file; each reader may refuse it."""
    refused: SojournError | None = None
    with _file(PLAN, "plan.toml") as path:
        folder = RunFolder(path.parent)
        folder.analysis.mkdir()
        folder.records.mkdir()
        for file, whole in (
            (folder.results, RESULTS), (folder.verdict, VERDICT), (folder.bed, BED), (folder.budgets, BUDGETS),
        ):  # fmt: skip
            file.write_bytes(whole)
        (folder.path / name).write_bytes(octets)
        for read in (
            lambda: entry_of(folder),
            lambda: Run.read(folder.path),
            lambda: compare_runs(folder.path, folder.path, history=False),
            lambda: _told_of_budgets(Run.read(folder.path)),
            lambda: exposition(folder, SoFar(end=FINISHED)),
        ):
            try:
                read()
            except SojournError as error:
                refused = error
    if refused is not None:
        raise refused


def _told_of_budgets(run: Run) -> None:
    """Build all output from budgets."""
    for one in read_budgets(run):
        assert in_a_line(one)
        assert not any(is_of(row, one) for row in run.entries) or one["name"] is not None
    for table in budget_tables(run):
        assert all(len(row) == len(table.columns) for row in table.rows)


def sacks(octets: bytes) -> None:
    """Parse heads of frames in an emulator's log, each preceded by its length: TCP segments, all at once and one by
    one, and the SACK blocks in their options."""
    heads = []
    while octets:
        heads.append(octets[1 : 1 + octets[0]])
        octets = octets[1 + octets[0] :]
        flow, number = header_of(heads[-1])
        assert (flow is None) == (number is None)
    rows = pl.DataFrame({"head": heads, "nth": range(len(heads))}, schema={"head": pl.Binary, "nth": pl.Int64})
    at_once = {row["nth"]: row for row in with_segments(rows).iter_rows(named=True)}
    for nth, head in enumerate(heads):
        found = tcp_of(Block(b"", "<", PACKET, 5, ETHERNET, head, len(head)))
        blocks = blocks_of(found.options if found is not None else head)
        assert all(0 <= low < 1 << 32 and 0 <= high < 1 << 32 for low, high in blocks)
        assert 8 * len(blocks) + 2 <= max(2, len(head))
        row = at_once.get(nth)
        if found is not None and row is not None and (found.source, len(head)) == (row["source"], min(len(head), 128)):
            assert (found.sport, found.dport, found.seq) == (row["sport"], row["dport"], row["seq"])


def host_answers(octets: bytes) -> None:
    """Run a query on a simulated SSH host: the input holds the query's name and the answers in order."""
    asked, *answers = octets.split(b"\f")
    question = QUESTIONS.get(asked.decode(errors="replace"))
    if question is not None and answers:
        question(AnsweringHost(answers))


def log_header(octets: bytes) -> None:
    """Convert a TCP log with an untrusted header to other formats."""
    _export(octets, "header.json")


def log_footer(octets: bytes) -> None:
    """Convert a TCP log with an untrusted footer."""
    _export(octets, "footer.json")


def lines_of_others(octets: bytes) -> None:
    """Translate lines of tc or ipfw; another target parses the instrument's configuration strings."""

    def explained(options: list[str]) -> dict[str, Any]:
        pipe = {"delay": {"jitter": 1, "constant": 10**6}, "link": {"rate_bps": 10**6}}
        named = zip(options[::2], options[1::2], strict=True)
        pipes = [{"name": name.lstrip("-"), "words": words} for name, words in named]
        return {"pipes": pipes, "config": {"pipes": [pipe] * len(pipes)}}

    in_words(translate(octets.decode(errors="replace"), explained))


def log_samples(octets: bytes) -> None:
    """Convert a TCP log with untrusted samples."""
    _export(octets, "records/tcp_samples-tcplog-000.arrow")


def _export(octets: bytes, name: str) -> None:
    refused: SojournError | None = None
    with tempfile.TemporaryDirectory(dir=_MEMORY) as spare:
        log = Path(spare) / "log"
        (log / "records").mkdir(parents=True)
        for file, whole in _made_log().items():
            (log / file).write_bytes(octets if file == name else whole)
        for form in ("siftr", "jsonl", "qlog"):
            try:
                convert(Request(log, form, Path(spare) / form))
            except SojournError as error:
                refused = error
        try:
            _told_of_log(ReportedLog.read(log))
        except SojournError as error:
            refused = error
    if refused is not None:
        raise refused


def _told_of_log(log: ReportedLog) -> None:
    """Write what a figure of a log says."""
    assert isinstance(page._facts(log, 5) + page._warning(log), str)
    for flow in log.flows:
        assert facts_of(flow, log)
        assert all([*_dispositions(flow, log), *_unasked(log)])


class _file:  # noqa: N801
    """A file with these bytes in a temporary folder."""

    def __init__(self, octets: bytes, name: str) -> None:
        self.octets, self.name = octets, name

    def __enter__(self) -> Path:
        self.folder = tempfile.TemporaryDirectory(dir=_MEMORY)
        path = Path(self.folder.name) / self.name
        path.write_bytes(self.octets)
        return path

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()


_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def _plans() -> list[bytes]:
    return [text(name).encode() for name in names()]


def _captures() -> list[bytes]:
    """Build captures of a SYN over IPv4: pcap with nanoseconds and pcapng, each in both byte orders."""
    tcp = struct.pack(">HHIIHHHH", 40000, 5201, 1, 0, 5 << 12 | 2, 64240, 0, 0)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 40, 7, 0, 64, 6, 0) + bytes([10, 0, 0, 1, 10, 0, 0, 2])
    frame = bytes(12) + b"\x08\x00" + head + tcp
    made = []
    for order in "<>":
        file = struct.pack(f"{order}IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
        made.append(file + struct.pack(f"{order}IIII", 1_700_000_000, 5, len(frame), len(frame)) + frame)
        section = struct.pack(f"{order}IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
        interface = struct.pack(f"{order}IIHHIHHB3xHHI", 1, 32, 1, 0, 0, 9, 1, 9, 0, 0, 32)
        padded = frame + bytes(-len(frame) % 4)
        length = 32 + len(padded)
        packet = struct.pack(f"{order}IIIIIII", 6, length, 0, 1, 2, len(frame), len(frame)) + padded
        made.append(section + interface + packet + struct.pack(f"{order}I", length))
    return made


def _tables() -> list[bytes]:
    schema = arrow_schema("probes", "fuzz")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for rows in (5, 3):
            columns = [pa.array([_of(field.type)] * rows, field.type) for field in schema]
            stream.write_batch(pa.record_batch(columns, schema=schema))
    return [sink.getvalue().to_pybytes()]


def _of(kind: pa.DataType) -> object:
    if pa.types.is_boolean(kind):
        return True
    return "a" if pa.types.is_string(kind) or pa.types.is_dictionary(kind) else 7


def _hosts() -> list[bytes]:
    link = {
        "ifname": "eth1",
        "address": "02:00:00:00:00:01",
        "mtu": 1500,
        "flags": ["BROADCAST", "UP"],
        "operstate": "UP",
        "link_type": "ether",
        "master": None,
        "link": "eth0",
        "linkinfo": {"info_kind": "vlan"},
        "addr_info": [{"local": "10.0.0.2", "prefixlen": 24, "scope": "global"}],
    }
    route = {"dst": "default", "dev": "eth1", "protocol": "dhcp", "nexthops": [{"dev": "eth0"}]}
    said = {
        "uid": "0", "boot": "boot", "kernel": "6.1.0-9\nversion\nx86_64", "distribution": "Debian", "cpu": "a",
        "cpus": "0-1,3", "memory": "1000", "clocksource": "tsc", "ssh": "10.0.0.9 5000 10.0.0.2 22", "tools": "ip\ntc",
        "links": json.dumps([link, link | {"ifname": "eth0", "link": None}]), "routes": json.dumps([route]),
        "routes6": "[]", "disk": "/dev/a 9 4 5 50% /", "sudo": "yes", "now": "1700000000000000000",
    }  # fmt: skip
    return ["".join(f"== {name}\n{words}\n" for name, words in said.items()).encode()]


@cache
def _made_log() -> dict[str, bytes]:
    """Write a short log and return its files."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as spare:
        log = Path(spare) / "log"
        Log((MadeFlow(rounds=2),)).write(log)
        return {str(path.relative_to(log)): path.read_bytes() for path in log.rglob("*") if path.is_file()}


LINES_OF_OTHERS = [
    (
        b"tc qdisc add dev eth0 root handle 1: netem delay 40ms 5ms 25% rate 1mbit limit 99 loss 1% reorder 1% gap 3\n"
        b"tc qdisc add dev eth1 root handle 1: tbf rate 1mbit burst 32kbit latency 400ms overhead 4\n"
        b"tc qdisc add dev eth1 parent 1:1 pfifo limit 50; sudo tc qdisc replace dev eth0 root netem slot 20ms ecn\n"
    ),
    b"netem delay 10ms distribution normal && netem loss 1%",
    b"ipfw pipe 1 config bw 1Mbit/s delay 20\nipfw add 100 pipe 1 ip from any to any 80 out via em0 log\n",
    b"dnctl pipe 1 config plr 0.1",
]
REAL_BED = b"""
[hosts.a]
address = "a.example"
folder = "/var/tmp/sojourn"

[hosts.b]
address = "b.example"
user = "lab"

[hosts.device]
address = "device.example"
sudo = false

[paths.direct]
a = "eth1"
b = "eth1"

[paths.bridge]
a = "eth3"
left = "eth1"
right = "eth2"
b = "eth3"

[paths."dut:box"]
a = "eth2"
b = "eth2"
"""
PLAN = b'[study]\nname = "toy"\nmethod = "pairs"\n'
RESULTS = json.dumps([
    {"device": "bridge", "reference": "direct", "quantity": "device_latency", "statistic": "mean", "cell": 0,
     "estimate": 1300.0, "ci_low": 1290.0, "ci_high": 1310.0, "level": 0.95, "unit": "ns", "n": 20, "findings": []},
]).encode()  # fmt: skip
VERDICT = json.dumps({
    "run": "one", "study": "toy", "verdict": "doubtful", "sentence": "It adds 1.3 us.", "hypotheses": [],
    "findings": [{"name": "few_pairs", "severity": "doubtful", "where": "bridge", "sentence": "few", "value": 1.0}],
    "pairs": {"device": "bridge", "reference": "direct", "cell": 0, "estimate": 1300.0}, "engines": {}, "checks": [],
}).encode()  # fmt: skip
BED = json.dumps({
    "hash": "a1", "stable": {"machine": {"clocks": {"tai_minus_utc_s": 37}, "kernel": {"release": "6.1"}}},
    "parts": [{"before": {"boot_id": "b"}}, {"before": {"boot_id": "b"}}],
}).encode()  # fmt: skip


BUDGETS = json.dumps([{
    "name": "latency that bridge adds", "device": "bridge", "reference": "direct", "quantity": "device_latency",
    "statistic": "mean", "cell": 0, "port": None, "factors": {"cell": 0}, "estimate": 1300.0, "unit": "ns",
    "components": [
        {"name": "scatter of the pairs", "state": "counted", "evaluation": "A", "standard_uncertainty": 4.8,
         "unit": "ns", "distribution": "student-t", "sensitivity": 1.0, "degrees_of_freedom": 19.0,
         "contribution": 4.8, "share": 1.0, "source": "the mean of 20 pairs"},
        {"name": "rate of the clock", "state": "unknown", "evaluation": "B", "standard_uncertainty": None,
         "unit": "1", "distribution": "rectangular", "sensitivity": 1300.0, "degrees_of_freedom": None,
         "contribution": None, "share": None, "source": "nobody compared it"},
    ],
    "combined": 4.8, "effective_degrees": 19.0, "coverage_factor": 2.09, "expanded": 10.0, "level": 0.95,
    "interval_half_width": 10.0, "interval_of": "the pairs", "not_covered": ["other boots"],
}]).encode()  # fmt: skip


def _heads() -> list[bytes]:
    """Build heads of frames with SACK and of others, each preceded by its length."""
    sack = bytes.fromhex("0101080a0000000500000003 0101050a 00000bb8 00000fa0".replace(" ", ""))
    some = [
        frames.ethernet(0x0800, frames.v4(frames.TCP, frames.tcp(b"", frames.V4, 0x10, sack))),
        frames.ethernet(0x86DD, frames.v6(frames.TCP, frames.tcp(b"x", frames.V6, 0x18, sack))),
        *frames.frames()[1:5],
    ]
    behind = [bytes([min(len(one), 128)]) + one[:128] for one in some]
    return [b"".join(behind), *behind[:2]]


def _lines() -> list[bytes]:
    events = [
        {"event": "started", "time_ns": 1},
        {"event": "block", "arm": "wire", "deep": [[{}]]},
        {"event": "finished"},
    ]
    return ["".join(json.dumps(event) + "\n" for event in events).encode()]


OTHER_TOOLS = Path(__file__).parents[1] / "unit/other_tools"
CORPUS = Path(__file__).parent / "corpus" / "python"
TARGETS = {
    "plan": Target(plan, _plans),
    "set": Target(set_value, lambda: [b"rounds=20", b"devices=wire,bridge", b'probe.interval="250us"']),
    "capture": Target(capture_file, _captures),
    "log": Target(log_lines, _lines),
    "records": Target(records, _tables),
    "answer": Target(answer, lambda: [b'{"event": "block", "rtt": {"p50_ns": 1}}\n']),
    "device-cpu": Target(device_cpu, lambda: [b"shared", b"loaded:50%"]),
    "mark": Target(mark, lambda: [b"run-1@123-456"]),
    "state": Target(state, lambda: [
        b'{"mark": "a@1-2", "boot": "b", "pids": "c", "holder": {"pid": 1, "started_ticks": 2}}'
    ]),
    "real-bed": Target(real_bed, lambda: [REAL_BED]),
    "look": Target(looked, _hosts),
    "host-answers": Target(host_answers, lambda: HOST_ANSWERS),
    "results": Target(results, lambda: [RESULTS]),
    "tool-result": Target(tool_result, lambda: [path.read_bytes() for path in sorted(OTHER_TOOLS.glob("*"))]),
    "verdict": Target(verdict, lambda: [VERDICT]),
    "bed-facts": Target(bed_facts, lambda: [BED]),
    "budgets": Target(budgets, lambda: [BUDGETS]),
    "sacks": Target(sacks, _heads),
    "log-header": Target(log_header, lambda: [_made_log()["header.json"]]),
    "log-footer": Target(log_footer, lambda: [_made_log()["footer.json"]]),
    "lines-of-others": Target(lines_of_others, lambda: LINES_OF_OTHERS),
    "log-samples": Target(log_samples, lambda: [_made_log()["records/tcp_samples-tcplog-000.arrow"]]),
    "counters": Target(interface_counters, lambda: [b"eth0 veth1", b"a:b c"]),
    "machine-text": Target(one_of(machine.READERS), lambda: examples(machine.READERS)),
    "own-files": Target(one_of(own_files.READERS), lambda: [*examples(own_files.READERS), *own_files.examples()]),
    "tables": Target(one_of(tables.READERS), tables.examples),
}  # fmt: skip
"""The targets by name. Their seeds are extended by the findings of searches in `corpus/python/NAME`."""


def seeds(name: str) -> Iterator[bytes]:
    """Yield the seeds of a target and the files of its corpus."""
    yield from TARGETS[name].seeds()
    for path in sorted((CORPUS / name).glob("*")):
        yield path.read_bytes()
