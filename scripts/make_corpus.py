"""Write the seeds `made-NN` of the fuzz corpus: tests/fuzz/corpus/TARGET, and tests/fuzz/corpus/python/TARGET.

They are whole: each is understood by its reader (tests/fuzz/tests/corpus.rs, tests/unit/test_corpus.py). They come from
recorded runs (tests/golden), from the seeds that the targets declare, and from frames with right lengths and checksums
(tests/fuzz/frames.py). Two calls write the same bytes. What searches have found stays (`scripts/fuzz.sh keep`).

    python -m scripts.make_corpus
"""

from __future__ import annotations

import json
import re
import struct
import sys
import tarfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import tomlkit

from sojourn.records.reader import arrow_schema
from tests.fuzz import frames, kernel, tables
from tests.fuzz.hosts import HOST_ANSWERS
from tests.fuzz.targets import BUDGETS, REAL_BED, RESULTS, TARGETS, VERDICT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]
FUZZ = ROOT / "tests/fuzz"
CORPUS = FUZZ / "corpus"
RUNS = ("bridge-latency", "emulator-delay", "rfc2544", "tcplog-cost", "throughput")
MOST_BYTES, LEAST, MOST = 400_000, 3, 20
"""The bytes of all seeds together; the numbers of seeds of a target."""

MOST_FOUND_BYTES, LONGEST_FOUND, MOST_FOUND = 4_000_000, 8_192, 300
"""The bytes of all files that searches have found, and of one of them; the number of such files of a target."""

Seeds = list[bytes]


def main(corpus: Path = CORPUS) -> int:
    """Write all seeds anew, and print their number."""
    for name, seeds in made():
        folder = corpus / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("made-*"):
            old.unlink()
        for number, seed in enumerate(seeds):
            (folder / f"made-{number:02}").write_bytes(seed)
        print(f"{name:24}{len(seeds):3} seeds{sum(map(len, seeds)):8} bytes")
    return 0


def made() -> Iterator[tuple[str, Seeds]]:
    """Return each target with its seeds, those of Rust first."""
    for name, of in RUST.items():
        yield name, of()
    for name, of in PYTHON.items():
        yield f"python/{name}", of()


def rust_targets() -> list[str]:
    """The names of the targets that tests/fuzz/src declares."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((FUZZ / "src").glob("*.rs")))
    return sorted(re.findall(r'Target \{ name: "([a-z-]+)"', text))


# --- what recorded runs hold ------------------------------------------------------------------------------------------


@cache
def recorded(run: str, name: str) -> bytes:
    """Return a file of a recorded run."""
    with tarfile.open(ROOT / f"tests/golden/{run}.tar.xz") as archive:
        file = archive.extractfile(f"{run}/{name}")
        assert file is not None, name
        return file.read()


def table(run: str, name: str) -> pa.Table:
    """A table of records."""
    return pa.ipc.open_stream(recorded(run, f"records/{name}.arrow")).read_all()


def heads() -> Seeds:
    """Return the frames that the emulator of a recorded run sent: of each length, the first three."""
    found: dict[int, Seeds] = {}
    for head in table("emulator-delay", "packets-emulate-000").column("head").to_pylist():
        assert isinstance(head, bytes)
        same = found.setdefault(len(head), [])
        if len(same) < 3:
            same.append(head)
    return [head for same in found.values() for head in same]


def slices(run: str, name: str, rows: int = 3) -> Seeds:
    """Return some rows of a table, five times, as files."""
    whole = table(run, name)
    at = [whole.num_rows * nth // 5 for nth in range(5)]
    return [stream(whole.schema, [whole.slice(place, rows)]) for place in at]


def stream(schema: pa.Schema, tables: list[pa.Table]) -> bytes:
    """Tables as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for one in tables:
            writer.write_table(one)
    return bytes(sink.getvalue().to_pybytes())


def log_lines() -> Seeds:
    """The first events of each recorded run, and the last."""
    found = []
    for run in RUNS:
        lines = [line for line in recorded(run, "log.jsonl").splitlines(keepends=True) if len(line) < 800]
        found += [b"".join(lines[:3]), b"".join(lines[-2:])]
    return found


def shortened(value: Any) -> Any:
    """Return the value with two members of each list and six of each object."""
    if isinstance(value, dict):
        return {key: shortened(one) for key, one in list(value.items())[:6]}
    return [shortened(one) for one in value[:2]] if isinstance(value, list) else value


# --- what targets declare ---------------------------------------------------------------------------------------------


def declared(file: str, function: str) -> Seeds:
    """The raw strings of a function of tests/fuzz/src."""
    text = (FUZZ / "src" / file).read_text(encoding="utf-8")
    body = text[text.index(f"fn {function}()") :]
    return [one.encode() for one in re.findall(r'r#"(.*?)"#', body[: body.index("\n}\n")])]


def otherwise(texts: Seeds) -> Seeds:
    """Return equivalent JSON: members in reverse order, on several lines, with escaped letters."""
    found = []
    for text in texts:
        value = json.loads(text)
        turned = dict(reversed(value.items())) if isinstance(value, dict) else value
        found += [json.dumps(turned).encode(), json.dumps(value, indent=1).encode()]
        found.append(re.sub(rb'"([a-z])', lambda match: rb'"\u%04x' % match[1][0], text, count=2))
    return found[:MOST]


def configurations(*kinds: str) -> Seeds:
    """Return valid cases of the emulator's own corpus, combined to at most MOST seeds."""
    text = (ROOT / "crates/emulate/tests/corpus/configurations.txt").read_text(encoding="utf-8")
    lines = text.splitlines()
    found = [
        line.partition(":")[2].lstrip().replace("\\n", "\n")
        for line, following in pairwise(lines)
        if line.partition(":")[0] in kinds and not following.startswith("!") and "corpus/" not in line
    ]
    found = list(dict.fromkeys(one for one in found if one))
    return [one.encode() for one in found[:: max(1, len(found) // 12)]][:12]


# --- Rust -------------------------------------------------------------------------------------------------------------


def after(head: bytes) -> Callable[[Seeds], Seeds]:
    """Return seeds preceded by the bytes that a target reads as its own numbers."""
    return lambda seeds: [head + seed for seed in seeds]


def stream_headers() -> Seeds:
    """The user data of the streams of a recorded run."""
    return [head[14:] for head in heads()]


def echoes() -> Seeds:
    """ICMP's messages."""
    of = [frames.echo(kind, bytes(length)) for kind in (0, 8) for length in (0, 18, 56)]
    six = [frames.echo(kind, bytes(56), frames.V6) for kind in (128, 129)]
    return [*of, *six, frames.echo(3, frames.v4(frames.UDP, frames.udp(bytes(8), frames.V4)))]


def rows(name: str, instrument: str, values: dict[str, Any], count: int) -> bytes:
    """Rows of a declared table, with these values and zeros."""
    schema = arrow_schema(name, instrument)
    columns = []
    for field in schema:
        text = pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)
        zero: Any = "" if text else b"" if pa.types.is_binary(field.type) else 0
        zero = False if pa.types.is_boolean(field.type) else zero
        of = values.get(field.name, zero)
        columns.append(pa.array([of(nth) if callable(of) else of for nth in range(count)], field.type))
    return stream(schema, [pa.Table.from_arrays(columns, schema=schema)])


def tap_files() -> Seeds:
    """Files of taps, and of their counters: empty, of one packet, of fragments, of super-packets, without digests."""
    of: list[tuple[int, dict[str, Any]]] = [
        (0, {}),
        (1, {"direction": "in"}),
        (4, {"is_fragment": True, "direction": "out"}),
        (4, {"is_super_packet": lambda nth: nth % 2 == 0, "direction": None}),
        (6, {"digest": None, "is_truncated": True, "direction": None}),
    ]
    same: dict[str, Any] = {"time_ns": lambda nth: 1000 * nth, "time_source": "kernel", "length_bytes": 60, "digest": 7}
    counts = rows("tap_counts", "fuzz", {"tap": "a", "dropped": 3}, 1)
    return [*(rows("taps", "fuzz", same | other, count) for count, other in of), counts]


def packet_logs() -> Seeds:
    """An emulator's log, with the frames of a recorded one: sent, lost, marked, copied, unmatched."""
    all_heads = heads()
    same: dict[str, Any] = {
        "number": lambda nth: nth,
        "copy_of": None,
        "direction": lambda nth: ("forward", "backward")[nth % 2],
        "pipe": "both",
        "frame_bytes": 64,
        "head": lambda nth: all_heads[nth % len(all_heads)],
        "arrival_source": "kernel",
        "disposition": "sent",
        **{name: lambda nth: 1000 * nth for name in ("arrival_ns", "entered_ns", "intended_ns", "departure_ns")},
        **dict.fromkeys(("drawn_ns", "link_left_ns")),
    }
    lost = {"disposition": "lost", "cause": "before", "intended_ns": None, "departure_ns": None}
    unmatched = {"disposition": "unmatched", "pipe": ""}
    copied = {"copy_of": lambda nth: 0 if nth else None}
    return [
        rows("packets", "fuzz", same | other, count)
        for count, other in ((3, {}), (3, lost), (3, {"marked": True}), (3, copied), (2, unmatched))
    ]


def stream_controls() -> Seeds:
    """The user data of greetings, exchanges and ends."""
    greeting = struct.pack(">QQ", 0x0102030405060708, 5)
    texts = otherwise(declared("asked.rs", "controls"))
    return [greeting.ljust(length, b"\0") for length in (64, 200)] + texts


EMULATIONS = [
    (b"delay 2ms loss 5%", b"delay 1ms"),
    (b"rate 4Mbit/s queue 8 delay 3ms jitter 1ms duplicate 5%", b"rate 1Mbit/s"),
    (b"rate 1Mbit/s queue 12 codel ecn", b"queue 3"),
    (
        b"pipe 1 config bw 3Mbit/s delay 4\nadd 10 pipe 1 tcp from any to any\nadd 20 deny udp from any to any 7708\n",
        b"",
    ),
    (b"pipe 1 config bw 2Mbit/s mask dst-port 0xff\nadd 10 pipe 1 ip from any to any forward\n", b"delay 5ms"),
]
"""Configurations of an emulator, with strings that its pipes are then set to."""


def engines() -> Seeds:
    """Return configurations with frames, most unchanged; before every tenth one is refused, or something is changed."""
    whole = [one[:255] for one in frames.frames()]

    def turn(nth: int) -> bytes:
        frame = whole[nth % len(whole)]
        how = 2 | nth % 2 | (nth % 10 == 9) << 2 + nth // 10
        return struct.pack(">BHBBB", how, 100 * nth, 0, 0, len(frame)) + frame

    turns = b"".join(map(turn, range(12)))
    return [config + b"\0" + words + b"\0" + turns for config, words in EMULATIONS]


def emulation_logs() -> Seeds:
    """Return the logs that the target declares, with rows of packets that were sent, lost, and bridged unchanged."""
    start, *between, whole, stopped = declared("emulated.rs", "logs")
    sent = [struct.pack(">BBBBHIIBB", 10, 0b0010_1100, 0, 0, 64 + nth, 90_000, 10**6, nth % 5, 0) for nth in range(6)]
    others = [struct.pack(">BBBBHIIBB", what, 0, 0, 0, 60, 7_000, 0, 1, 0xFF) for what in (0, 6, 9)]
    rows = [b"".join(sent), b"".join(sent + others), b"".join(sent[:2] + others[2:])]
    return [b"\n".join((start, *between, end)) + b"\n\0" + some for end in (whole, stopped) for some in rows]


def slices_of_packets() -> Seeds:
    """Terms of `match-slice` with packets as they come on the standard input, and with turns that these are made of."""

    def packet(nth: int) -> bytes:
        tap = nth % 2
        return struct.pack("<qqQQIBBBB", 400 * nth, 400 * nth - tap, nth // 2, nth // 2, 60, 1, tap, 0, 0)

    raw = b"\0\0" + b"".join(map(packet, range(24)))
    turns = b"\0\1" + b"".join(struct.pack(">BHBBBBB", nth % 4, 50, 0, nth // 4, 0, 60, 2) for nth in range(40))
    return [terms + rest for terms in declared("matched.rs", "terms") for rest in (raw, turns)]


DEPARTURES = [
    b"0\n5\n10\n",
    b"+0\n+1000\n",
    b"".join(b"%d\n" % (nth * 10**6) for nth in range(40)),
    b"0",
    b"0\r\n0\r\n9\r\n",
]
KEYS = [
    b"sixteen octets!!",
    b"hex:" + b"00ff" * 32 + b"\n",
    b"k" * 64 + b"\n",
    b"with spaces in it, and more\n",
    bytes(range(1, 40)),
]
UNITS = [b"1s", b"0.5us", b"2h", b"1Gbit/s", b"9600bit/s", b"1.5MB", b"100%", b"0.25", b"1e3", b"7"]
TRUTHS = declared("asked.rs", "truths")

RUST: dict[str, Callable[[], Seeds]] = {
    "frame": lambda: [
        *after(struct.pack(">HHH", 1500, 34, 16))(frames.large() + heads()[:1]),
        *after(struct.pack(">HHH", 20, 34, 6))(frames.frames()[:13] + frames.frames()[15:]),
    ],
    "digest": lambda: after(struct.pack(">HH", 96, 0))(frames.frames() + heads()[:2]),
    "icmp": echoes,
    "headers": lambda: after(bytes([5, 64, 2]))(frames.frames()[:12]),
    "engine": engines,
    "emulation-log": emulation_logs,
    "match-slice": slices_of_packets,
    "serve-request": lambda: otherwise(declared("requests.rs", "serveds")[:6]),
    "capture": lambda: [
        *frames.captures(frames.frames()[:4]),
        *frames.captures(frames.frames()[4:9] + heads()[:1]),
        *map(frames.packed, frames.captures(frames.frames()[:2])[2:4]),
    ],
    "taps": tap_files,
    "pipe-file": lambda: [
        (ROOT / f"crates/emulate/tests/corpus/{name}").read_bytes()
        for name in ("delays", "losses", "mahimahi", "modem", "my.dist", "up link.csv")
    ],
    "spool": frames.spools,
    "log-stream": frames.streams_of_logs,
    "btf": frames.types_of_kernel,
    "stream-control": stream_controls,
    "tcp-request": lambda: otherwise(declared("asked.rs", "tcp_requests")),
    "clock-truth": lambda: otherwise(TRUTHS),
    "packet-log": packet_logs,
    "probe-header": frames.probe_headers,
    "stamp": frames.stamps,
    "stream-header": stream_headers,
    "probe-reply": frames.probe_replies,
    "stream-reply": frames.stream_replies,
    "responder": frames.requests_to_responders,
    "reflector": frames.packets_to_reflectors,
    "probe-request": lambda: otherwise(declared("requests.rs", "blocks")),
    "stream-request": lambda: otherwise(declared("requests.rs", "streams")),
    "emulator-request": lambda: otherwise(declared("requests.rs", "emulators")),
    "tcplog-request": lambda: otherwise(declared("requests.rs", "logs")),
    "key-file": lambda: KEYS,
    "departures": lambda: DEPARTURES,
    "log-ends": lambda: otherwise(declared("requests.rs", "ends_of_logs")),
    "pipe-words": lambda: configurations("words"),
    "configuration": lambda: configurations("toml", "lines"),
    "units": lambda: UNITS,
    "kernel-answers": kernel.answers,
    "rings": kernel.rings,
    "tool-answers": kernel.tools,
}
"""The targets of Rust, by name."""


# --- Python -----------------------------------------------------------------------------------------------------------


def of_json(name: str) -> Seeds:
    """Return the seeds of a target in equivalent notations."""
    return otherwise(TARGETS[name].seeds())


def results() -> Seeds:
    """The row that the target declares without a member, several with other numbers, and none."""
    row = json.loads(RESULTS)[0]
    without = [[{key: one for key, one in row.items() if key != name}] for name in ("findings", "level", "n")]
    several = [
        row | {"device": name, "estimate": estimate} for name, estimate in (("a", None), ("b", 1e99), ("c", -1.0))
    ]
    return [json.dumps(one).encode() for one in (*without, several, [])]


def verdicts() -> Seeds:
    """Return verdicts of each kind."""
    whole = json.loads(VERDICT)
    kinds = [whole | {"verdict": kind} for kind in ("trusted", "doubtful", "untrusted")]
    bare = {key: one for key, one in whole.items() if key != "pairs"}
    return [json.dumps(one).encode() for one in (*kinds, bare, whole | {"findings": whole["findings"] * 5})]


def budgets() -> Seeds:
    """Budgets of other figures: whose scatter is not known, with a share of none, several."""
    [whole] = json.loads(BUDGETS)
    unknown = whole | dict.fromkeys(("combined", "effective_degrees", "coverage_factor", "expanded"))
    bare = whole | {"components": whole["components"][1:], "not_covered": []}
    return [json.dumps(one).encode() for one in ([unknown], [bare, whole], [whole] * 3, [])]


def heads_of_log() -> Seeds:
    """Frames of a recorded emulator's log, and others, each behind its length."""
    some = [*heads()[:2], *(one[:128] for one in frames.frames() + frames.large())]
    return [b"".join(bytes([len(one)]) + one for one in some[at::4]) for at in range(4)]


def plan_of(path: Path) -> bytes:
    """The plan of a simulated scenario, of the method `pairs`."""
    plan = tomlkit.loads(path.read_text(encoding="utf-8"))["plan"].unwrap()
    plan["study"] = plan.get("study", {}) | {"name": path.stem, "method": "pairs"}
    return tomlkit.dumps(plan).encode()


def beds() -> Seeds:
    """Return the machines' facts of recorded runs, shortened."""
    return [json.dumps(shortened(json.loads(recorded(run, "bed.json")))).encode() for run in RUNS]


def real_beds() -> Seeds:
    """The file of real hosts with other users, folders, ports."""
    changes = [
        (b"a.example", b"10.0.0.1"),
        (b"eth3", b"enp1s0f1np1"),
        (b'"lab"', b'"root"'),
        (b"/var/tmp/sojourn", b"/srv"),
        (b'a = "eth3"\nleft = "eth1"', b'a = ["eth3", "eth4"]\nleft = ["eth1", "eth4"]'),
    ]
    return [REAL_BED, *(REAL_BED.replace(old, new) for old, new in changes)]


def looks() -> Seeds:
    """Return hosts that lack something."""
    [whole] = TARGETS["look"].seeds()
    changes = [
        (b"sudo\nyes", b"sudo\nno"),
        (b"Debian", b"Alpine"),
        (b"ip\ntc", b"ip"),
        (b"10.0.0.9 5000", b"fd00::9 5000"),
        (b"0-1,3", b"0"),
    ]
    return [whole.replace(old, new) for old, new in changes]


def tools() -> Seeds:
    """Results of other tools, with the first members of each list, and their members turned round."""
    texts = [one for one in TARGETS["tool-result"].seeds() if one.startswith(b"{")]
    short = [json.dumps(listed(json.loads(text))).encode() for text in texts]
    return [*short, *otherwise(short)[::3]]


def listed(value: Any) -> Any:
    """The same with four members of each list."""
    if isinstance(value, dict):
        return {key: listed(one) for key, one in value.items()}
    return [listed(one) for one in value[:4]] if isinstance(value, list) else value


def of_samples() -> Seeds:
    """Some of the last samples of the log that the target declares: its connections are established then."""
    [whole] = TARGETS["log-samples"].seeds()
    with pa.ipc.open_stream(whole) as reader:
        rows = reader.read_all()
    return [stream(rows.schema, [rows.slice(rows.num_rows - at, 2)]) for at in (2, 4, 6)]


def own_files() -> Seeds:
    """Return Sojourn's own files, without the database, which is long, and with the logs of recorded runs."""
    logs = [bytes([2]) + log for log in log_lines()[::3]]
    return [one for one in TARGETS["own-files"].seeds() if len(one) < 4096] + logs


LINES = [
    b"tc qdisc add dev eth0 root netem delay 10ms 1ms distribution normal loss 0.1%\n",
    b"tc qdisc change dev eth0 root netem rate 10mbit limit 1000\n",
    b"tc qdisc add dev eth0 root tbf rate 10mbit burst 32kbit limit 30000\n",
    b"ipfw pipe 2 config bw 10Mbit/s delay 5 queue 50\nipfw add 10 pipe 2 ip from any to any in\n",
    b"dnctl pipe 1 config bw 64Kbit/s plr 0.05 delay 100\n",
]
SETS = [b"rounds=3", b"devices=wire", b'probe.interval="1ms"', b"pairs.rounds=8", b'bed.devices=["wire"]', b"seed=7"]
ANSWERS = [
    b'{"event": "ready"}\n',
    b'{"event": "ended", "lost": 0}\n',
    b'{"event": "block", "block": 3, "answered": 40}\n',
]


NAMES = [b"lo", b"eth0 eth0.7 br-lan", b"veth@x", b"a" * 15, b"1 2 3"]
MARKS = [b"run-1@1-1", b"2026-11-20T101500Z-a-3f9c@77-12345", b"a.b_c@4194304-0", b"x@1-99999999999", b"A@2-3"]
CPUS = [b"shared", b"own", b"loaded:10%", b"loaded:95%", b"loaded:1%"]

PYTHON: dict[str, Callable[[], Seeds]] = {
    "plan": lambda: [plan_of(path) for path in sorted((ROOT / "tests/scenarios").glob("*.toml"))[::4]],
    "set": lambda: SETS,
    "capture": lambda: [
        *frames.captures(frames.frames()[2:5]),
        *(frames.captures([frames.frames()[at]] * 2)[2] for at in (2, 3, 4, 5, 8, 11)),
    ],
    "log": log_lines,
    "records": lambda: slices("bridge-latency", "probes-000"),
    "answer": lambda: ANSWERS,
    "device-cpu": lambda: CPUS,
    "mark": lambda: MARKS,
    "state": lambda: of_json("state"),
    "real-bed": real_beds,
    "look": looks,
    "results": results,
    "tool-result": tools,
    "verdict": verdicts,
    "budgets": budgets,
    "sacks": heads_of_log,
    "host-answers": lambda: HOST_ANSWERS[1:],
    "bed-facts": beds,
    "log-header": lambda: of_json("log-header"),
    "log-footer": lambda: of_json("log-footer"),
    "lines-of-others": lambda: LINES,
    "log-samples": of_samples,
    "counters": lambda: NAMES,
    "machine-text": lambda: TARGETS["machine-text"].seeds()[:MOST],
    "own-files": own_files,
    "tables": lambda: tables.examples()[::2],
}
"""The targets of Python, by name without `python/`."""


if __name__ == "__main__":
    sys.exit(main())
