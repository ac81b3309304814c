"""Judges what guests with other kernels have brought back, and prints a table: check by kernel.

A guest only writes down what happened (`checks`); what should have happened is said here. A log before Linux 6.1 has
times by CLOCK_MONOTONIC: they are moved to those of TCP_INFO's readings by what its header says.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from scripts.proof_figures import ROOT, commit
from sojourn.binary import find_instrument
from sojourn.errors import SojournError
from sojourn.export import Chosen, Request, convert
from sojourn.methods.tcp_truth.analyse import oracle
from sojourn.records import read_table
from tests.kernels import datagrams
from tests.net.tcplog_bed import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOOR = (5, 15)
LIVE_SINCE = (5, 18)
TAI_SINCE = (6, 1)
INNER_NUMBERS_SINCE = (6, 10)
COLUMNS_SINCE = {"total_rto": (6, 7), "received_ce": (6, 18)}
"""Columns that not every kernel since the floor has; all others have to be there."""

MESSAGES = ("v4-cubic-messages", "v6-reno-messages")
BULK = ("v4-cubic-bulk", "v6-reno-bulk", "v4-bbr-bulk")
INNER = "v4-cubic-inner"
BULK_BYTES, MESSAGE_BYTES, PORT = 600_000, 1000, 5201
SYN_SENT, ESTABLISHED = 2, 1
TOO_SLOW = "124"
"""What `timeout` ends with."""


class NotDoneError(Exception):
    """A check that was not asked for, or for which the emulated processor was too slow."""


class Guest:
    """What a guest has brought."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.out = name, folder / "out"
        self.version = tuple(int(part) for part in name.partition("-")[0].split("."))

    def text(self, name: str) -> str:
        """A file's text; where the guest never came so far, there is nothing to judge."""
        path = self.out / name
        if not path.is_file():
            raise NotDoneError(name)
        return path.read_text(errors="replace").strip()

    def told(self, name: str) -> Any:
        """A file of JSON."""
        return json.loads(self.text(name))

    def log(self, name: str) -> Log:
        """A log that ended well."""
        assert self.text(f"logs/{name}.status") == "0", self.text(f"logs/{name}.said")
        return Log(self.out / "logs" / name)


# --- tcplog ----------------------------------------------------------------------------------------------------------


def loads(guest: Guest) -> str:
    """It logs, or refuses in a sentence where the kernel is too old."""
    said, status = guest.text("first.said"), guest.text("first.status")
    if guest.version >= FLOOR:
        assert status == "0", said
        return ""
    assert status == "3", status
    assert said.count("\n") == 0, said
    assert "refuses a program of ours; Linux 5.15 and later" in said, said
    return "refused"


def objects(guest: Guest) -> str:
    """Both compilations of the programs pass the verifier."""
    return _tests(guest, "sojourn_tcplog")


def programs(guest: Guest) -> str:
    """The tests of the programs in the kernel."""
    return _tests(guest, "kernel")


def suite(guest: Guest) -> str:
    """The suite that the simulated twin passes too."""
    return _tests(guest, "kernel_suite")


def live(guest: Guest) -> str:
    """The tests of live frames, where the kernel makes such."""
    return _tests(guest, "live") if guest.version >= LIVE_SINCE else ""


def _tests(guest: Guest, name: str) -> str:
    status, seconds = guest.text(f"tests/{name}.status").split()
    if status == TOO_SLOW:
        raise NotDoneError(f"not done within {seconds} s")
    log = guest.text(f"tests/{name}.log")
    passed = re.findall(r"test result: ok\. (\d+) passed", log)
    assert status == "0", log[-600:]
    assert passed, log[-600:]
    assert passed[-1] != "0", log[-600:]
    assert "skipped" not in log, log[-600:]
    return f"{passed[-1]} tests"


def computed(guest: Guest) -> str:
    """Simulated probes and streams, an emulation and a match are what they are on this machine, byte for byte."""
    assert guest.text("computed.status") == "0", guest.text("computed.said")
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        datagrams.write(Path(folder) / "in.pcap")
        own = Path(folder) / "own"
        own.mkdir()
        instrument = Path(find_instrument()).resolve()
        subprocess.run(["sh", here / "computed", instrument, "../in.pcap"], cwd=own, check=True)
        expected, found = _contents(own), _contents(guest.out / "computed")
    differing = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    assert not differing, differing
    return f"{len(found)} files"


def _contents(folder: Path) -> dict[str, bytes]:
    """Every file, without the number of the machine's clock, which is another at every boot."""
    found = {}
    for one in filter(Path.is_file, folder.rglob("*")):
        octets = one.read_bytes()
        if one.suffix == ".arrow" and "clock_id" in (frame := pl.read_ipc_stream(one)).columns:
            written = io.BytesIO()
            frame.drop("clock_id").write_ipc_stream(written)
            octets = written.getvalue()
        found[str(one.relative_to(folder))] = re.sub(rb'"clock_id": \d+', b"", octets)
    return found


def fields(guest: Guest) -> str:
    """What this kernel lacks is absent, null, and nothing else is."""
    log = guest.log(BULK[0])
    lacking = {name for name, since in COLUMNS_SINCE.items() if guest.version < since}
    assert set(log.header["absent"]) == lacking, log.header["absent"]
    assert all(log.samples[name].null_count() == log.samples.height for name in lacking)
    own = log.samples.filter(pl.col("state") == ESTABLISHED)
    for name in ("snd_cwnd", "snd_una", "srtt_us", "rcv_wnd_bytes", "mss_bytes", "segs_out", "pacing_rate_bps"):
        assert own[name].drop_nulls().len() > 0, name
    assert log.header["clock"] == ("TAI" if guest.version >= TAI_SINCE else "MONOTONIC"), log.header["clock"]
    return f"{len(log.header['fields'])} columns"


def law(guest: Guest) -> str:
    """Every packet in one count, and every record that was counted is there."""
    seen = 0
    for name in (*MESSAGES, *BULK, INNER):
        log = guest.log(name)
        log.expect_law()
        assert not log.gaps.height, name
        seen += log.count("seen")
    assert seen > len((*MESSAGES, *BULK, INNER)) * 50, seen
    return f"{seen} packets"


def sequence(guest: Guest) -> str:
    """The samples of a sender's packets hold every byte that it sent, from its SYN on; acknowledgements only grow."""
    again = 0
    for name in (*MESSAGES, *BULK):
        log = guest.log(name)
        _, samples = _sender(log)
        out = samples.filter(pl.col("point") == "out")
        assert out["state"][0] == SYN_SENT, name
        first = int(out["seq"][0]) + 1
        data = out.filter(pl.col("payload_bytes") > 0)
        at = ((data["seq"] - first) % 2**32).to_list()
        end = 0
        for begin, length in sorted(zip(at, data["payload_bytes"].to_list(), strict=True)):
            assert begin <= end, f"{name}: bytes {end} to {begin} are in no sample"
            end = max(end, begin + length)
        assert end == BULK_BYTES if name in BULK else end > 0 and end % MESSAGE_BYTES == 0, f"{name}: {end}"
        acknowledged = ((samples.filter(pl.col("state") == ESTABLISHED)["snd_una"] - first) % 2**32).cast(pl.Int64)
        assert acknowledged.diff().drop_nulls().min() >= 0, name  # type: ignore[operator]
        again += int(samples["total_retrans"].max() or 0)  # type: ignore[arg-type]
    return f"{again} sent again"


def private_state(guest: Guest) -> str:
    """CUBIC's and BBR's own fields have names; Reno keeps none."""
    found = {}
    for name in BULK:
        log, algorithm = guest.log(name), name.split("-")[1]
        flow, _ = _sender(log)
        own = log.private.filter(pl.col("flow") == flow["flow"])
        names = set(own["field"].unique().to_list())
        assert set(own["algorithm"].unique().to_list()) <= {algorithm}, name
        found[algorithm] = names
    assert {"cnt", "last_max_cwnd", "bic_K"} <= found["cubic"], found["cubic"]
    assert {"mode", "min_rtt_us"} <= found["bbr"], found["bbr"]
    return f"cubic {len(found['cubic'])}, bbr {len(found['bbr'])}"


def tcp_info(guest: Guest) -> str:
    """At quiet moments each field is what TCP_INFO says, or follows from it exactly."""
    quiet = 0
    for name in MESSAGES:
        log = guest.log(name)
        readings = read_table(guest.out / "logs" / f"{name}.read", "tcp_readings").frame
        samples = log.samples.join(log.flows.select("flow", "socket_cookie"), on="flow")
        if log.header["clock"] == "MONOTONIC":
            samples = samples.with_columns(pl.col("time_ns") + log.header["tai_minus_monotonic_ns"])
        told = oracle.agreements(oracle.pairs(readings, samples.sort("time_ns")), 1e6 / log.header["hz"])
        wrong = [f"{one.field} {one.quiet_agree} of {one.quiet}" for one in told if one.quiet_agree < one.quiet]
        assert not wrong, f"{name}: {wrong}"
        assert len(told) > 30, f"{name}: {len(told)} fields"
        quiet += told[0].quiet
    assert quiet > 0, "no quiet moment"
    return f"{quiet} moments"


def process_numbers(guest: Guest) -> str:
    """A sender's number is the one that it has where the log was started, or unknown where kernels cannot ask."""
    for name in (*MESSAGES, *BULK):
        assert _sender(guest.log(name))[0]["process"] == int(guest.text(f"logs/{name}.process")), name
    inner = _sender(guest.log(INNER))[0]["process"]
    if guest.version >= INNER_NUMBERS_SINCE:
        assert inner == int(guest.text(f"logs/{INNER}.process")), inner
        return "inner too"
    assert inner is None, inner
    return "inner: null"


def killed(guest: Guest) -> str:
    """`kill -9` takes the programs away, and what was written is readable."""
    counts = [int(guest.text(f"killed.{when}")) for when in ("before", "during", "after")]
    assert counts[0] == counts[2] == 0, counts
    assert counts[1] >= 1, counts
    assert guest.text("killed.recovered") in {"0", "4"}
    log = Log(guest.out / "logs/killed")
    log.expect_law(is_whole=False)
    return f"{log.samples.height} records"


def converts(guest: Guest) -> str:
    """The log is read and written in the formats of others."""
    guest.text(f"logs/{BULK[0]}.status")
    with tempfile.TemporaryDirectory() as folder:
        for form in ("siftr", "csv", "qlog"):
            path = Path(folder) / form
            told = convert(Request(guest.out / "logs" / BULK[0], form, path, Chosen()))
            assert told.records > 0, form
            assert path.stat().st_size > told.records, form
    return ""


def _sender(log: Log) -> tuple[dict[str, Any], pl.DataFrame]:
    """The flow of the end that sends, and its samples in the order of time."""
    flow = log.flows.filter(pl.col("remote_port") == PORT).row(0, named=True)
    return flow, log.samples.filter(pl.col("flow") == flow["flow"]).sort("time_ns", "number")


# --- emulate --backend kernel ----------------------------------------------------------------------------------------


def netem_refuses(guest: Guest) -> str:
    """What cannot be is refused in a sentence, and nothing is configured then."""
    for name, status, part in (
        ("unbridged", "3", "it is in no bridge"),
        ("refused", "2", "only loses at random or by gemodel"),
        ("logged", "2", "--log: the kernel's netem tells nobody"),
        ("without", "3", "this kernel may have no netem"),
    ):
        if name == "without" and not (guest.out / "netem/without.status").exists():
            continue  # it is built in
        said = guest.text(f"netem/{name}.said")
        assert guest.text(f"netem/{name}.status") == status, f"{name}: {said}"
        assert part in said, f"{name}: {said}"
        assert said.count("\n") == 0, said
    assert not _netem(guest, "refused.right")
    return ""


def netem_configures(guest: Guest) -> str:
    """The commands that are printed make the qdisc that was asked for, as the kernel shows it, and take it away."""
    count = 0
    for number in range(1, 1 + len(list((guest.out / "netem").glob("asked-*.words")))):
        name = f"asked-{number}"
        words = guest.text(f"netem/{name}.words")
        assert guest.text(f"netem/{name}.status") == "0", f"{words}: {guest.text(f'netem/{name}.said')}"
        shown = _netem(guest, f"{name}.right")
        assert shown, f"{words}: no netem"
        wrong = [what for what, holds in _wanted(words, shown) if not holds]
        assert not wrong, f"{words}: {wrong} of {shown}"
        assert not _netem(guest, f"{name}.left"), words
        assert not _netem(guest, f"{name}.undone.right"), words
        count += 1
    if not count:
        raise NotDoneError("nothing was asked")
    return f"{count} pipes"


UNITS = {"%": 0.01, "us": 1e-6, "ms": 1e-3, "s": 1.0, "Mbit/s": 1e6 / 8, "Gbit/s": 1e9 / 8}


ASKED: dict[str, tuple[str, ...]] = {
    r"\bdelay ([\d.]+\S+)": ("delay", "delay"),
    r"\bdelay \S+ ([\d.]+ms)": ("delay", "jitter"),
    r"\bloss ([\d.]+%)": ("loss-random", "loss"),
    r"\bgemodel ([\d.]+%)": ("loss-gemodel", "p"),
    r"\bgemodel \S+ ([\d.]+%)": ("loss-gemodel", "r"),
    r"\bduplicate ([\d.]+%)": ("duplicate", "duplicate"),
    r"\breorder ([\d.]+%)": ("reorder", "reorder"),
    r"\bgap (\d+)": ("gap",),
    r"\brate ([\d.]+\S+)": ("rate", "rate"),
    r"\boverhead (\d+)": ("rate", "packetoverhead"),
    r"\bcell (\d+)": ("rate", "cellsize"),
    r"\bcell \d+ (\d+)": ("rate", "celloverhead"),
}
"""A word's number, and where `tc -j qdisc show` has it: in seconds, shares, bytes a second."""


TICK = 1.1e-6
"""tc shows times in whole µs, cut off behind netem's ticks of 64 ns: 15 µs are shown as 14; in seconds."""


def _wanted(words: str, shown: dict[str, Any]) -> list[tuple[str, bool]]:
    """What the words say, each beside whether the kernel says it too."""
    words = words.replace("atm", "cell 48 5")
    found = []
    for pattern, place in ASKED.items():
        if said := re.search(pattern, words):
            there: Any = shown
            for key in place:
                there = (there or {}).get(key)
            wanted = _plain(said[1])
            finest = TICK if place[0] == "delay" else 1e-6 * max(abs(wanted), 1e-3)
            is_it = there is not None and abs(float(there) - wanted) <= finest
            found.append((" ".join(place), is_it))
    if queue := re.search(r"\bqueue (\d+)", words):
        found.append(("limit", shown.get("limit") == int(queue[1]) + 1))  # netem counts the one on the link too
    return found or [("words that are understood here", False)]


def _plain(number: str) -> float:
    """A number without its unit."""
    value, unit = re.fullmatch(r"([\d.]+)(\S*)", number).groups()  # type: ignore[union-attr]
    return float(value) * UNITS.get(unit, 1.0)


def netem_path(guest: Guest) -> str:
    """20 ms and 10 % a way, by ping; gone afterwards."""
    _ran(guest, "floor")
    _ran(guest, "path")
    floor, path = (_ping(guest.text(f"netem/{name}.said")) for name in ("floor", "path"))
    assert 40.0 <= path["min"] <= 44.0 + floor["min"], path
    lost, expected = path["lost"] / path["sent"], 1 - 0.9**2
    spread = (expected * (1 - expected) / path["sent"]) ** 0.5
    assert abs(lost - expected) <= 4 * spread, path
    return f"{path['min']:.1f} ms, {lost:.0%}"


def netem_link(guest: Guest) -> str:
    """8 Mbit/s under TCP: never more, and most of it."""
    _ran(guest, "link")
    sent = json.loads(guest.text("netem/link.said").splitlines()[-1])["connection"]
    rate = sent["moved_bytes"] * 8e9 / (sent["ended_ns"] - sent["started_ns"])
    assert 4e6 <= rate <= 8e6, sent
    return f"{rate / 1e6:.1f} Mbit/s"


def netem_killed(guest: Guest) -> str:
    """After SIGKILL it is gone; where the shell was killed too, once the next one has begun. Somebody else's stays."""
    for way in ("alone", "both"):
        for port in ("left", "right"):
            assert _netem(guest, f"killed-{way}.during.{port}"), f"{way}: no netem at {port}"
            stays = bool(_netem(guest, f"killed-{way}.after.{port}"))
            assert stays == (way == "both"), f"{way}: netem at {port}: {stays}"
    assert [guest.text(f"netem/killed-{way}.records") for way in ("alone", "both")] == ["0", "2"]
    assert guest.text("netem/next.status") == "0", guest.text("netem/next.said")
    assert not any(_netem(guest, f"next.after.{port}") for port in ("left", "right"))
    said = guest.text("netem/others.said")
    assert guest.text("netem/others.status") == "3", said
    assert "right: the port has a queueing discipline of somebody else (netem 5abc:)" in said, said
    assert [bool(_netem(guest, f"others.after.{port}")) for port in ("left", "right")] == [False, True]
    return ""


def _ran(guest: Guest, name: str) -> None:
    assert guest.text(f"netem/{name}.ended") == "0", guest.text(f"netem/{name}.events")
    for port in ("left", "right"):
        assert _netem(guest, f"{name}.during.{port}"), f"{name}: no netem at {port}"
        assert not _netem(guest, f"{name}.after.{port}"), f"{name}: netem stays at {port}"


def _netem(guest: Guest, name: str) -> dict[str, Any]:
    """The options of the netem at a port; none: empty."""
    shown = guest.told(f"netem/{name}")
    return next((dict(one["options"]) for one in shown if one["kind"] == "netem"), {})


def _ping(said: str) -> dict[str, float]:
    counts = re.search(r"(\d+) packets transmitted, (\d+) (?:packets )?received", said)
    times = re.search(r"= ([\d.]+)/([\d.]+)/", said)
    assert counts, said
    assert times, said
    sent, received = float(counts[1]), float(counts[2])
    return {"sent": sent, "lost": sent - received, "min": float(times[1]), "mean": float(times[2])}


def locked(guest: Guest) -> str:
    """Under lockdown all goes on but the log of TCP, which says why where the kernel keeps its memory to itself."""
    for how in ("integrity", "confidentiality"):
        assert f"[{how}]" in guest.text(f"locked/{how}.state")
        for name in ("emulate", "captured"):
            assert guest.text(f"locked/{how}.{name}.status") == "0", guest.text(f"locked/{how}.{name}")
    assert guest.text("locked/integrity.tcplog.status") == "0", guest.text("locked/integrity.tcplog")
    said = guest.text("locked/confidentiality.tcplog")
    assert guest.text("locked/confidentiality.tcplog.status") == "3", said
    assert said.count("\n") == 0, said
    assert "is locked down (confidentiality)" in said, said
    return ""


# --- the table -------------------------------------------------------------------------------------------------------

CHECKS: dict[str, Callable[[Guest], str]] = {
    "loads": loads,
    "both objects": objects,
    "tests of programs": programs,
    "suite": suite,
    "live frames": live,
    "computed alike": computed,
    "columns": fields,
    "the law": law,
    "sequence": sequence,
    "private state": private_state,
    "beside TCP_INFO": tcp_info,
    "process numbers": process_numbers,
    "kill -9": killed,
    "convert": converts,
    "netem: refusals": netem_refuses,
    "netem: as asked": netem_configures,
    "netem: path": netem_path,
    "netem: link": netem_link,
    "netem: killed": netem_killed,
    "lockdown": locked,
}
OF_OLD = ("loads",)
"""What there is to judge below the floor, where no program loads; netem is another matter."""


def judged(guest: Guest, name: str, check: Callable[[Guest], str]) -> tuple[str, str]:
    """A cell of the table, and what is wrong."""
    if guest.version < FLOOR and name not in OF_OLD and not name.startswith("netem"):
        return "", ""
    try:
        return check(guest) or "ok", ""
    except NotDoneError as why:
        return "not done", f"{guest.name}: {name}: not done: {why}"
    except (
        AssertionError,
        LookupError,
        ValueError,
        OSError,
        TypeError,
        SojournError,
        pl.exceptions.PolarsError,
    ) as why:
        return "FAILED", f"{guest.name}: {name}: {type(why).__name__}: {why}"


def columns(guests: list[Guest], table: dict[str, list[tuple[str, str]]]) -> Iterator[tuple[Guest, list[str]]]:
    """Each guest with its cells."""
    return ((guest, [row[place][0] for row in table.values()]) for place, guest in enumerate(guests))


def summed(guest: Guest, cells: list[str]) -> dict[str, str | int]:
    """What the proof page says of a kernel (scripts/write_proof.py)."""
    failed, not_done, nothing = cells.count("FAILED"), cells.count("not done"), cells.count("")
    passed = len(cells) - failed - not_done - nothing
    return {"kernel": guest.name, "passed": passed, "failed": failed, "not_done": not_done}


def main(argv: list[str]) -> int:
    """Prints the table, keeps its sums beside what was judged, prints what is wrong; 1 where a check failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("kernels", nargs="+")
    parser.add_argument("--not-run", nargs="*", default=[], help="kernels that this machine cannot boot")
    asked = parser.parse_args(argv)
    guests = [Guest(kernel, asked.work / kernel) for kernel in asked.kernels]
    table = {name: [judged(guest, name, check) for guest in guests] for name, check in CHECKS.items()}
    wide = max(16, *(len(cell) + 2 for row in table.values() for cell, _ in row))
    print(f"{'':20}" + "".join(f"{guest.name:<{wide}}" for guest in guests).rstrip())
    for name, row in table.items():
        print(f"{name:20}" + "".join(f"{cell:<{wide}}" for cell, _ in row).rstrip())
    for kernel in asked.not_run:
        print(f"{kernel:20}not run")
    for row in table.values():
        for _, why in filter(lambda cell: cell[1], row):
            print(why, file=sys.stderr)
    sums = [summed(guest, column) for guest, column in columns(guests, table)]
    told = {"commit": commit(ROOT), "kernels": sums + [{"kernel": kernel} for kernel in asked.not_run]}
    (asked.work / "judged.json").write_text(json.dumps(told, indent=1) + "\n")
    return int(any(cell == "FAILED" for row in table.values() for cell, _ in row))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
