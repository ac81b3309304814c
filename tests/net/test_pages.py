"""Every command of README.md, the guide, docs/users and the help's examples is run as a reader would type it.

A page's commands run in their order, in one folder, over real frames: `here` and `there` are hosts with an interface
eth1, and between them stands a box with eth1 and eth2, which is a bridge, but on the pages about emulation and devices.
What takes both ports (`emulate eth1 eth2`) runs on the box, and where that is a bridge, on a host with two other ports.
What README or the page of commands has from another page of the guide is run for that. Commands that need minutes, a
terminal or another machine stand in `INSTEAD` with what is run instead; a command that is new on a page runs as it
stands. Commands that serve (`SERVES`) run beside those that follow. Commands by which an administrator installs
something (SECURITY.md, docs/reference/rights.md) see an /etc and a /usr/local of their own.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from scripts.command_tree import asked_of_instrument, of_instrument, tree
from sojourn import studies
from sojourn.analysis import analyse
from sojourn.cli.commands import PUBLISHED
from sojourn.plan import load_plan
from tests.net.busy_machine import await_that, idle_ends
from tests.net.here import sojourn_here

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces by name, and programs in the kernel")

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference/commands.md"
HELP = Path("help")
"""Stands for what programs print for `--help`, whose examples are a page's commands here."""

BY_ADMINISTRATORS = [ROOT / "SECURITY.md", ROOT / "docs/reference/rights.md"]
PAGES = [
    ROOT / "README.md",
    HELP,
    *BY_ADMINISTRATORS,
    *(
        path
        for of in ("guide", "users")
        for path in sorted((ROOT / "docs" / of).glob("*.md"))
        if path.name != "README.md"
    ),
]
OWN_PROGRAMS = ROOT / "docs/guide/python.md"
"""tests/net/test_lab_python.py runs its programs; those of other pages run here, after the page's commands."""

EXAMPLES = ("rules.sh", "filter.sh", "rules-500.nft", "router.sh")
"""Of docs/guide/examples, what pages say to copy."""
PATIENCE_SECONDS = 120.0

THERE_MAC = "02:00:00:00:00:02"
TESTS = "tests/"
MINUTES = "--dry-run"
"""What a study that takes minutes gets. Of a built-in one only the name is looked up here, test_own_files.py runs it.

Of a plan file the plan is read, its bed and its time are worked out, and nothing is measured.
"""

FEW = f"--set sessions=1 --set pairs.rounds=2 --set probe.icmp_bytes=64 {' '.join(idle_ends())} --no-report"
"""What is enough of a study for a page: that its devices are built and measured."""

ENGINES = "tests/unit/test_match_engines.py::test_matching_a_data_set_equals_matching_its_records"
OF_DATA_SETS = {
    "match --engine local out/data/run=c/tap=eth1 out/data/run=c/tap=eth2": ENGINES,
    "match out/data/run=monday/tap=eth1 out/data/run=monday/tap=eth2 -o out/m": ENGINES,
    "match out/data/run=monday/tap=eth1 out/data/run=monday/tap=eth2 --engine local -o out/m": ENGINES,
    (
        "match --engine spark --master spark://HOST:7077 out/data/run=monday/tap=eth1 out/data/run=monday/tap=eth2"
        " -o out/m"
    ): "tests/unit/test_spark.py::test_matching_on_two_executors_equals_one_pass",
}
"""Commands over two taps' data sets, each with the test that runs it."""

MEASURED_ELSEWHERE = {
    "bufferbloat": ("bufferbloat", "tests/net/test_tcp_load.py"),
    "cubic-region": ("bufferbloat", "tests/net/test_tcp_load.py"),
    "rtt-fairness": ("bufferbloat", "tests/net/test_tcp_load_round_trips.py"),
    "short-flows": ("short-flows", "tests/net/test_short_flows.py"),
    "tcp-hypotheses": ("bufferbloat", "tests/net/test_tcp_load.py"),
    "tcp-methodology": ("tcp-methodology", "tests/net/test_tcp_windows.py"),
}
"""Of these studies a page's command is read and planned. The test beside measures on real frames the study that is
named, which has the same method; test_own_files.py, in `make proof`, measures each whole."""

LIVE = "tests/net/test_match_live.py::test_live_matching_equals_matching_of_captures"
VERIFIED = (
    "tests/net/test_emulate_net.py::test_verify_prints_configured_and_measured_values_and_fails_impossible_limits"
)

INTERRUPTED = "tests/net/test_kill_readers.py::test_killed_replay_or_recovery_of_an_emulator_log_can_be_repeated"
UPLINK = "tests/net/test_uplink.py::test_uplink_is_emulated_and_the_machine_is_restored"

INSTEAD = {
    "make demo": "tests/bare/test_bare.py::test_demo_runs_on_a_bare_machine",
    "match eth1 eth2 --live": LIVE,
    "match eth1 eth2 --live --for 10s": LIVE,
    "bed clean": (  # here it would end what other tests leave behind on purpose
        "tests/net/test_conduct_net.py::test_killed_run_leaves_only_a_resumable_folder_and_does_not_disturb_another"
    ),
    "make setup": "tests/bare/test_bare.py::test_demo_runs_on_a_bare_machine",
    "run --resume out/x": "tests/net/test_conduct_net.py::test_interrupted_run_resumes_where_it_stopped",
    "run published": "run published --dry-run",  # test_published.py runs it, in `make proof`
    "run my-bridge.toml": f"run my-bridge.toml {MINUTES}",
    "run bridge-modes --quick --set devices=wire,bridge,bridge:qos": (
        "run bridge-modes --quick --set devices=wire,bridge --set rounds=2 --set sessions=1 --no-report"
    ),
    "run anomalies --quick --set devices=bridge": (
        "run anomalies --quick --set devices=bridge --set interval=500us --set probes=2500 --no-report"
    ),
    "run bridge-latency --quick": f"run bridge-latency --quick {FEW}",
    "emulate verify --delay 1ms": VERIFIED,
    "emulate verify --delay 20ms --loss 1%": VERIFIED,
    "lab --delay 20ms": "tests/net/test_lab.py::test_without_a_command_both_ends_get_a_shell",
    "uplink eth0 --take-over --delay 20ms": UPLINK,
    "uplink eth0 --take-over --delay 20ms --loss 1% --for 10min": UPLINK,
    'uplink eth0 --take-over --forward "rate 2Mbit/s queue 50" --backward "rate 20Mbit/s delay 15ms"': UPLINK,
    "emulate show --watch": "emulate show",  # until Ctrl-C
    **dict.fromkeys(("emulate replay DIR", "emulate replay runs/log"), "emulate replay log"),
    "emulate recover runs/log -o runs/recovered": INTERRUPTED,
    """echo '{"do": "show"}' | ssh br.lab sojourn-instrument emulate ask""": (
        """echo '{"do": "show"}' | sojourn-instrument emulate ask"""
    ),
    'lab --delay 20ms --loss 1% --peer "iperf3 -s" -- iperf3 -c 10.77.1.2': (
        'lab --delay 20ms --loss 1% --peer "iperf3 -s" -- iperf3 -c 10.77.1.2 -t 1'
    ),
    "probe raw --dev eth1 --to 02:77:00:00:01:02": f"probe raw --dev eth1 --to {THERE_MAC} -c 100 -i 1ms",
    "sojourn-instrument tcp send 10.0.0.2:5201 --congestion cubic --for 10s --read-every 10ms": (
        "sojourn-instrument tcp send 10.0.0.2:5202 --congestion cubic --for 1s --read-every 10ms"
    ),  # at 5201 is iperf3
    "tcplog recover out/t": (
        "tests/net/test_tcplog_ends.py::test_a_killed_log_leaves_nothing_in_the_kernel_and_is_readable"
    ),
    "tcplog top": "tcplog top --once",
    "watch": "watch out",
    "watch runs": "watch out",
    "export RUN --to prometheus": "export out/x --to prometheus",
    "export runs/2026-11-20T101500Z-bridge-latency-3f9c --to prometheus -o sojourn.prom": (
        "export out/x --to prometheus -o sojourn.prom"
    ),
    "stream recv --dev b0": "stream recv --dev eth1",
    "stream send --dev a0 --to MAC": f"stream send --dev eth1 --to {THERE_MAC} --count 100",
    "stream send --dev eth1 --to 02:77:00:00:01:02 --rate 10kpps": (
        f"stream send --dev eth1 --to {THERE_MAC} --rate 10kpps --count 100"
    ),
    "stream send --dev eth1 --to 01:00:5e:00:00:07 --rate 100pps": (
        "stream send --dev eth1 --to 01:00:5e:00:00:07 --rate 100pps --count 100"
    ),
    "clock 10.0.0.2": "clock 10.0.0.2 --for 1s",
    "bed new a.lab b.lab --device br.lab > bed.toml": (
        "tests/net/test_real_hosts.py::test_bed_new_drafts_a_file_from_the_hosts_and_the_bed_works"
    ),
    "bed check bed.toml": "tests/net/test_real_hosts.py::test_missing_parts_of_a_bed_are_reported_before_the_start",
    "run bridge-latency --quick --bed bed.toml": (
        "tests/net/test_real_hosts.py::test_study_runs_on_hosts_reachable_only_by_ssh"
    ),
    "run bridge-latency --bed bed.toml --set adaptive_rx=false --set rx_usecs=0 --set governor=performance": (
        "tests/net/test_settings.py::test_settings_are_read_back_reported_and_restored"
    ),
    "dataset out/c -o out/data --run monday": (
        "tests/unit/test_dataset.py::test_data_set_has_every_packet_once_in_tap_order"
    ),
    **{f"run {study} --quick": f"run {study} --quick {MINUTES}" for study in MEASURED_ELSEWHERE},
    # Runs of these names are there already, for other pages.
    **{f"run bridge-latency --quick --out out/{day}": f"run bridge-latency {FEW}" for day in ("monday", "tuesday")},
    "run aqm --quick": (
        "run aqm --quick --set sessions=1 --set rounds=2 --set emulate.spin=false --no-report"
        ' --set load.pipe="rate 20Mbit/s delay 5ms queue 100,rate 20Mbit/s delay 5ms queue 100 codel"'
    ),  # whole: tests/net/test_own_files.py, in `make proof`
    "run coexistence --quick": (
        "run coexistence --quick --set sessions=1 --set rounds=2 --set congestion=cubic+reno --set load.duration=600ms"
        " --set emulate.spin=false --no-report"
    ),  # whole: tests/net/test_own_files.py, in `make proof`
    **dict.fromkeys(
        (
            'run rrul --set load.pipe="rate 50Mbit/s delay 10ms queue 200" --out out/r',
            "why out/r --flow 3 --at 2.4s",
            "timeline out/r --to perfetto",
        ),
        "tests/net/test_tcp_load.py::test_why_and_timeline_work_on_the_run_folder",
    ),
    **dict.fromkeys(
        ("run bufferbloat --device ./my-box.sh --out out/box", "why out/box --flow 1 --at 2.4s"),
        "tests/net/test_tcp_box.py::test_loss_in_a_box_is_located_by_taps_outside_it",
    ),
    **dict.fromkeys(
        (
            "sojourn-instrument tcp send 10.81.1.2:5201 --for 5s --read-before-send --record out/writes",
            "capture eth1 eth2 -o out/taps --headers",
            "timeline out/t --to csv --records out/emulator --records out/taps --records out/writes",
        ),
        "tests/net/test_timeline_net.py::test_all_instruments_agree_on_every_segment",
    ),
    **dict.fromkeys(
        (
            "tcplog receive 10.0.0.9:8862 --allow 10.0.0.1 --out out/received",
            "tcplog receive 127.0.0.1:8862 --out out/t",
            "tcplog run --export 10.0.0.9:8862 --out out/sent -- iperf3 -c 10.0.0.2",
        ),
        "tests/net/test_tcplog_export.py::test_the_received_log_is_the_local_one",
    ),
    **dict.fromkeys(
        (
            "timeline out/t --to html --records out/emulator --records out/taps",
            "timeline out/t --to html --records out/emulator",
        ),
        "timeline out/t --to html",
    ),
    **OF_DATA_SETS,
    **{
        f"why out/t {moment} --records out/{where}": "why out/t --flow 2 --at 100ms"
        for moment, where in (
            ("--flow 1 --at 2.4s", "e"),
            ("--flow 1 --at 2.5s", "emulator"),
            ("--flow 3 --at 2.4s", "emulator"),
        )
    },
    **{
        f"timeline out/t --to perfetto --records out/{where}": "timeline out/t --to perfetto"
        for where in ("e", "emulator")
    },  # with an emulator's log: tests/net/test_why_net.py
    "why out/t --flow 1 --at 2.4s": "why out/t --flow 2 --at 100ms",
    "timeline out/t --to perfetto --flow 1 --since 2s --until 3s --records out/emulator -o second.json": (
        "timeline out/t --to perfetto --since 200ms --until 800ms -o second.json"
    ),
    "timeline out/t --to parquet --flow 1 --records out/emulator -o way.parquet": (
        "timeline out/t --to parquet --flow 2 -o way.parquet"
    ),
}
"""By the words behind `sojourn`: what is run instead, or the test that runs it elsewhere (`path::name`)."""

NOT_RUN = {
    "sudo systemctl daemon-reload": "asks the machine's own systemd, which a test neither starts nor changes",
}
"""Commands that no test can run, each with the reason."""

SHORTER = [
    (r"--duration 10s", "--duration 1s"),
    (r"--for (10m|10s|60s)", "--for 1s"),
    (r"-- iperf3 -c (…|10\.0\.0\.2)$", "-- iperf3 -c 10.0.0.2 -t 1 -b 20M"),  # unlimited, it is a million segments
    (r"^run (?!.*(--quick|--dry-run))(.*)", rf"run \2 {MINUTES}"),
    (r"^(run bridge-latency --quick .*(devices=|--device).*)", rf"\1 {FEW}"),
    (r"^(emulate eth1 eth2 .*--jitter.*)", r"\1 --log log"),
]
SERVES = re.compile(
    r"(watch out|emulate eth1|probe respond(?! --help)|stamp reflect|stream recv|sojourn-instrument tcp receive|"
    r"tcplog run --port (5201 --out out/live|443 ))"
)

LISTS = {"README.md", "commands.md", HELP.name}
"""Pages that repeat commands of others."""

PIPED = " | "
INSTRUMENT = "sojourn-instrument "
TAKES_BOTH = "emulate eth1 eth2 "
"""What takes two ports for itself."""

CALLED = r"(run|report|compare|dataset|why|timeline|tcplog (plot|convert|top)) "
"""What is called within the tests' own process; `list`, `history`, `doctor`, `bed` and `bridge` are programs."""

PREPARED = {
    "commands.md": ["there$ sojourn probe respond"],
    HELP.name: [
        "there$ sojourn probe respond --udp 7707 --raw eth1",
        "there$ sojourn-instrument tcp receive 5202",
        "sojourn tcplog run --port 5201 --out out/t -- iperf3 -c 10.0.0.2",
    ],
    "two-runs.md": ["sojourn run bridge-latency --quick"],
    "timeline.md": ["sojourn tcplog run --port 5201 --out out/t -- iperf3 -c 10.0.0.2"],
}
MEMBER = "setpriv --reuid nobody --regid nogroup"
INSTALLED = {
    "SECURITY.md": [
        "/usr/local/bin/sojourn-instrument --version",
        "for unit in responder emulator@ tcplog; do test -f /etc/systemd/system/sojourn-$unit.service; done",
    ],
    "rights.md": [
        f"{MEMBER} --init-groups /usr/local/libexec/sojourn-instrument probe icmp 10.0.0.2 -c 10 -i 1ms",
        # By a shell: setpriv keeps the capabilities of root until it has executed a program.
        f"! {MEMBER} --clear-groups sh -c 'exec /usr/local/libexec/sojourn-instrument --version' 2>/dev/null",
    ],
}
"""What holds once a page of `BY_ADMINISTRATORS` was followed, by the user whom it names (`$USER`, here nobody)."""

FILES = [
    ("paths.toml", "emulate.md", "toml"),
    ("dummynet.ipfw", "emulate.md", "ipfw"),
    ("radio.profile", "emulate.md", "profile"),
    ("my-bridge.toml", "plans.md", "toml"),
]
"""Files that commands name: the first block of a kind on a page."""

LIVE_LOG = "sojourn tcplog run --port 5201 --out out/live"


class Command(NamedTuple):
    """What a page says, and where."""

    host: str
    words: str
    line: int


def commands(page: Path) -> list[Command]:
    """What a reader would type, in its order: blocks without a language, and tables' first columns."""
    found: list[Command] = []
    if page == HELP:
        return [Command("", words, 0) for words in examples()]
    for fence in re.finditer(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        if fence[1] in {"", "sh", "console"}:
            first = page.read_text()[: fence.start()].count("\n") + 2
            found += typed(fence[2], first)
    if page.name == "commands.md":
        found += in_tables(page.read_text())
    return found


@functools.cache
def examples() -> list[str]:
    """The examples in the help of every command of both programs."""
    own = [one for one in of_instrument(asked_of_instrument()).commands if one.name == "tcp"]
    every = [command for program in (tree(), *own) for _, command in program.all()]
    return [
        " ".join(words.split())
        for command in every
        for words in re.findall(r"\bExample: (.+?)(?:\n\n|\Z)", command.help, re.DOTALL)
    ]


def programs(page: Path) -> list[str]:
    """The programs in Python of a page that run here."""
    if page in {HELP, OWN_PROGRAMS}:
        return []
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def typed(block: str, first: int) -> list[Command]:
    """The commands of a block: behind a prompt, or, in a block without one, every line."""
    prompted = re.compile(r"^(?:(here|box|there|each|peer)?\$|#) +(.*)$")
    lines = list(enumerate(block.splitlines(), start=first))
    matches = [(number, prompted.match(line)) for number, line in lines]
    if any(match for _, match in matches):
        return [Command(match[1] or "", match[2], number) for number, match in matches if match]
    plain = re.compile(r"^(\.venv/bin/sojourn|sojourn|make|sudo) ")
    return [Command("", line, number) for number, line in lines if plain.match(line)]


def in_tables(text: str) -> list[Command]:
    """The commands of tables; a bare name behind the first command of a row is another study."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("| `sojourn "):
            first, *others = re.findall(r"`([^`]+)`", line.split("|")[1])
            found.append(Command("", first, number))
            for other in others:
                words = other if other.startswith("sojourn ") else f"sojourn run {other}"
                found.append(Command("", words, number))
    return found


def key(command: Command) -> str:
    """The command's words behind `sojourn`; all words of what only a shell understands."""
    return command.words if PIPED in command.words else re.sub(r"^(\.venv/bin/)?sojourn ", "", command.words)


def as_run(command: Command) -> str:
    """The command's words as they are run here; none where another test runs it, or where none can."""
    words = key(command)
    instead = INSTEAD.get(words, words)
    if instead.startswith(TESTS) or words in NOT_RUN:
        return ""
    for pattern, shorter in SHORTER:
        instead = re.sub(pattern, shorter, instead)
    return instead


HOSTS = ("here", "box", "there", "ports")


class Lab:
    """Two hosts, a box between them, a host with two ports that lead nowhere, and a folder."""

    def __init__(self, folder: Path, page: str, finished: Path) -> None:
        self.folder = folder
        self.finished = finished
        self.page = page
        self._name = f"pages-{uuid.uuid4().hex[:6]}"
        self._serving: dict[tuple[str, str], subprocess.Popen[str]] = {}
        self.default = "box" if page in {"emulate.md", "capture.md", "devices.md"} else "here"
        self._has_bridge = page not in {"emulate.md", "devices.md", "emulation-user.md"}

    def build(self) -> None:
        """Namespaces, cables and addresses; the files that the page speaks of."""
        for host in HOSTS:
            ip("netns", "add", f"{self._name}-{host}")
        for port in ("eth1", "eth2"):
            ip("-netns", f"{self._name}-ports", "link", "add", port, "type", "veth", "peer", "name", f"far-{port}")
            for end in (port, f"far-{port}"):
                self._inside("ports", "ip", "link", "set", end, "up")
        self._cable("here", "eth1", "eth1")
        self._cable("there", "eth1", "eth2")
        for host, number in (("here", 1), ("there", 2)):
            self._inside(host, "ip", "link", "set", "eth1", "address", f"02:00:00:00:00:0{number}", "up")
            self._inside(host, "ip", "address", "add", f"10.0.0.{number}/24", "dev", "eth1")
        self._inside("there", "ip", "address", "add", "10.0.0.3/24", "dev", "eth1")
        if self._has_bridge:
            self._inside("box", "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
            for dev in ("br0", "eth1", "eth2"):
                self._inside("box", "ip", "link", "set", dev, "up", *(["master", "br0"] if dev != "br0" else []))
        self._write_files()

    def _cable(self, host: str, dev: str, port: str) -> None:
        ends = ["netns", f"{self._name}-{host}", "type", "veth", "peer", "name", port, "netns", f"{self._name}-box"]
        ip("link", "add", dev, *ends)
        for at, name in ((host, dev), (host, "lo"), ("box", port)):
            self._inside(at, "ip", "link", "set", name, "up")

    def _write_files(self) -> None:
        if self.page in INSTALLED:
            subprocess.run(["cp", "-a", "/etc", self.folder / "etc"], check=True)
            (self.folder / "local/bin").mkdir(parents=True)
        (self.folder / ".venv").symlink_to(ROOT / ".venv")
        for name, page, kind in FILES:
            text = (ROOT / "docs/guide" / page).read_text()
            blocks = re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
            (self.folder / name).write_text(blocks[0])
        (self.folder / "my-plan.toml").write_text((ROOT / "python/sojourn/studies/frame-size.toml").read_text())
        for name, example in (("my-box.sh", "rules.sh"), *((one, one) for one in EXAMPLES)):
            shutil.copy(ROOT / "docs/guide/examples" / example, self.folder / name)
        (self.folder / "in.pcapng").write_bytes(capture())
        for ending in ("pcap", "pcapng"):  # what a file holds is known by its first bytes
            (self.folder / f"before.{ending}").write_bytes(capture())
            (self.folder / f"after.{ending}").write_bytes(capture(later_us=7))
        (self.folder / "both.pcapng").write_bytes(capture_of_two())
        for name in ("capture.key", "probe.key", "stamp.key", "stream.key"):
            (self.folder / name).touch(mode=0o600)
            (self.folder / name).write_text("hex:" * (name == "stamp.key") + secrets.token_hex(32) + "\n")
        for name in ("x", "y", "monday", "tuesday"):
            shutil.copytree(self.finished, self.folder / "out" / name)

    def remove(self) -> None:
        """End what serves, and take all of it away."""
        try:
            for process in self._serving.values():
                self._end(process)
        finally:
            for host in HOSTS:
                ip("netns", "del", f"{self._name}-{host}")

    def host(self, command: Command, words: str) -> str:
        """Where a command of the page runs."""
        if self._has_bridge and words.startswith(TAKES_BOTH):
            return "ports"
        return re.sub("each|peer", "there", command.host) or self.default

    def run(self, host: str, words: str) -> str | None:
        """Run one command; why it failed."""
        if PIPED not in words and re.match(CALLED, words):
            net = Path("/run/netns", f"{self._name}-{host}")
            done = sojourn_here(
                *shlex.split(words), cwd=self.folder, net=net, env={"XDG_RUNTIME_DIR": str(self.folder)}
            )
        else:
            done = subprocess.run(  # type: ignore[call-overload]
                self._argv(host, words), **self._as(), timeout=PATIENCE_SECONDS, check=False
            )
        if PIPED in words and (done.stderr or not done.stdout):  # the status is that of the last program alone
            return f"it printed {done.stdout[-200:]!r}: {done.stderr.strip()[-400:]}"
        return None if done.returncode == 0 else f"status {done.returncode}: {done.stderr.strip()[-400:]}"

    def run_python(self, program: str) -> str | None:
        """Run a program of the page; why it failed."""
        argv = [sys.executable, "-c", program]
        done = subprocess.run(argv, **self._as(), timeout=PATIENCE_SECONDS, check=False)  # type: ignore[call-overload]
        return None if done.returncode == 0 else done.stderr.strip()[-400:]

    def serve(self, host: str, words: str) -> str | None:
        """Start what runs beside the next commands; another of its kind at the same host ends first."""
        kind = " ".join(words.split()[:2])
        if before := self._serving.pop((host, kind), None):
            self._end(before)
        process = subprocess.Popen(self._argv(host, words), **self._as())  # type: ignore[call-overload]
        self._serving[host, kind] = process
        time.sleep(1.0)  # each says in its own way that it is ready; the commands that follow have no way to wait
        for _ in range(50 if words.startswith("emulate eth1") else 0):  # on a busy machine later, seen by its socket
            if process.poll() is not None or any(self.folder.glob("emulate-*.sock")):
                break
            time.sleep(0.1)
        return (
            None if process.poll() in {None, 0} else f"status {process.returncode}: {process.communicate()[1][-400:]}"
        )

    def _end(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # what is left of the laboratory is removed all the same
            process.communicate()
            raise

    def _argv(self, host: str, words: str) -> list[str]:
        inside = ["ip", "netns", "exec", f"{self._name}-{host}"]
        if self.page in INSTALLED:
            mounts = f"mount --bind {self.folder}/etc /etc && mount --bind {self.folder}/local /usr/local"
            as_root = words.removeprefix("sudo ")  # whoever tests is root
            return [*inside, "unshare", "--mount", "bash", "-c", f'{mounts} && eval "$0"', as_root]
        if PIPED in words:
            return [*inside, "bash", "-c", words]
        called = words if words.startswith(INSTRUMENT) else f"sojourn {words}"
        return [*inside, *shlex.split(called)]

    def _as(self) -> dict[str, object]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(self.folder), "USER": "nobody"}
        return {"cwd": self.folder, "env": env, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    def _inside(self, host: str, *argv: str) -> None:
        ip("netns", "exec", f"{self._name}-{host}", *argv)

    def iperf_server(self) -> subprocess.Popen[bytes]:
        """iperf3 at the host there."""
        argv = ["ip", "netns", "exec", f"{self._name}-there", "iperf3", "-s"]
        server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        listening = ["ip", "netns", "exec", f"{self._name}-there", "ss", "-Htln"]
        await_that(lambda: b":5201" in subprocess.check_output(listening), "iperf3 listens")
        return server


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was measured once, and its analysis."""
    folder = tmp_path_factory.mktemp("finished")
    with tarfile.open(ROOT / "tests/golden/bridge-latency.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    analyse(folder / "bridge-latency")
    return folder / "bridge-latency"


@pytest.fixture
def lab(page: Path, tmp_path: Path, finished: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, page.name, finished)
    try:
        made.build()
        server = made.iperf_server()
        yield made
        server.kill()
        server.wait()
    finally:
        made.remove()


def is_run_elsewhere(page: Path, words: str) -> bool:
    """Whether README or the page of commands has it from the guide; what serves is needed by those that follow it."""
    return page.name in LISTS and not SERVES.match(words) and words in run_by_the_guide()


@functools.cache
def run_by_the_guide() -> set[str]:
    """What is run for any of its pages."""
    return {as_run(command) for page in PAGES if page.name not in LISTS for command in commands(page)}


def failure(lab: Lab, page: Path, command: Command) -> str | None:
    """Why a command failed; none where it succeeded, or is run elsewhere."""
    words = as_run(command)
    where = f"{page.name}:{command.line}: {command.words}"
    if command.words.startswith("make ") or not words:
        assert command.words in INSTEAD or not words, where
        return None
    if is_run_elsewhere(page, words):
        return None
    if study := re.fullmatch(rf"run ([\w-]+) {MINUTES}", words):
        assert study[1] in {*studies.names(), PUBLISHED}, f"{where}: no study {study[1]}"
        return None  # tests/net/test_own_files.py runs each study
    if re.match(r"tcplog (set|status)", words):
        words = words.replace("out/t", "out/live")
        if not (lab.folder / "out/live").exists():
            lab.serve(lab.default, LIVE_LOG.removeprefix("sojourn "))
            await_that(lambda: lab.run(lab.default, "tcplog status out/live") is None, "the log runs")
    why = (lab.serve if SERVES.match(words) else lab.run)(lab.host(command, words), words)
    return None if why is None else f"{where}\n  run as: {words}\n  {why}"


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem) for page in PAGES if any(map(as_run, commands(page)))]
)
def test_every_command_of_a_page_runs(lab: Lab, page: Path) -> None:
    for line in PREPARED.get(page.name, []):
        [command] = typed(line, 0)
        words = as_run(command)
        assert (lab.serve if SERVES.match(words) else lab.run)(lab.host(command, words), words) is None
    failed = [told for command in commands(page) if (told := failure(lab, page, command))]
    failed += [f"{page.name}: {program}\n  {why}" for program in programs(page) if (why := lab.run_python(program))]
    failed += [
        f"{page.name}: once it was followed: {words}\n  {why}"
        for words in INSTALLED.get(page.name, [])
        if (why := lab.run(lab.default, words))
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("where", sorted({where for where in INSTEAD.values() if where.startswith(TESTS)}))
def test_test_that_runs_a_command_elsewhere_exists(where: str) -> None:
    path, name = where.split("::")
    assert path != str(Path(__file__).relative_to(ROOT)), "a command that runs here runs as it stands"
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


@pytest.mark.parametrize("study", MEASURED_ELSEWHERE)
def test_test_that_measures_a_study_elsewhere_exists(study: str) -> None:
    other, path = MEASURED_ELSEWHERE[study]
    assert load_plan(study).study.method == load_plan(other).study.method
    assert f'load_plan("{other}"' in (ROOT / path).read_text()


def test_no_command_of_a_page_is_left_out() -> None:
    assert all(INSTEAD.values())
    assert all(NOT_RUN.values())


def test_each_command_with_a_replacement_or_a_reason_is_on_a_page() -> None:
    on_pages = {key(command) for page in PAGES for command in commands(page)}
    assert {*INSTEAD, *NOT_RUN} - on_pages == set()


def test_examples_are_those_of_the_reference() -> None:
    """As many as the page of the help has; the instrument's `tcp`, which is no command of `sojourn`, is not on it."""
    printed = " ".join(REFERENCE.read_text().split())
    by_sojourn = [words for words in examples() if not words.startswith(INSTRUMENT)]
    assert printed.count("Example: ") == len(by_sojourn)
    assert [words for words in by_sojourn if f"Example: {words}" not in printed] == []
    assert len(examples()) > len(by_sojourn) > 30


def test_programs_of_pages_are_run() -> None:
    found = {page.name for page in (ROOT / "docs").rglob("*.md") if "\n```python\n" in page.read_text()}
    assert found == {OWN_PROGRAMS.name, *(page.name for page in PAGES if programs(page))}


def test_pages_have_commands() -> None:
    counts = {page.name: len(commands(page)) for page in PAGES}
    assert all(counts.values()), counts
    assert counts["commands.md"] > 30, counts


UDP_FRAME = (
    bytes.fromhex("0200000000020200000000010800")
    + bytes.fromhex("4500002e000040004011 26bd 0a000001 0a000002 1234 1235 001a 0000".replace(" ", ""))
).ljust(60, b"\0")


def capture(later_us: int = 0) -> bytes:
    """Twenty UDP packets as a pcap file, 10 ms apart."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    times = [later_us + i * 10_000 for i in range(20)]
    return head + b"".join(struct.pack("<IIII", 1_700_000_000, time, 60, 60) + UDP_FRAME for time in times)


def capture_of_two() -> bytes:
    """The same packets as two interfaces saw them, 7 µs apart, as a pcapng file."""

    def block(kind: int, body: bytes) -> bytes:
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    def packet(interface: int, time_us: int) -> bytes:
        high, low = divmod(1_700_000_000_000_000 + time_us, 1 << 32)
        return block(6, struct.pack("<IIIII", interface, high, low, 60, 60) + UDP_FRAME)

    section = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    ports = [block(1, struct.pack("<HHIHH4s", 1, 0, 0, 2, 4, name)) for name in (b"eth1", b"eth2")]
    packets = [packet(0, i * 10_000) + packet(1, i * 10_000 + 7) for i in range(20)]
    return section + b"".join(ports) + b"".join(packets)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
