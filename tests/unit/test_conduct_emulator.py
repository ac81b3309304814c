"""Emulators while a run goes on, over a double of the instrument: when they are set, what is asked, every early end.

The double answers on a real socket; no bed is built, so that this needs no rights: a site of doubles stands for it.
"""

from __future__ import annotations

import json
import math
import random
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from sojourn.bed import LinkSpec, Topology
from sojourn.bed.backends.local import LocalMachine
from sojourn.conduct.archive import Log
from sojourn.conduct.cores import Cores
from sojourn.conduct.emulators import Emulators, refuse_wrong_words
from sojourn.conduct.part import Part
from sojourn.conduct.pipes import LONGEST_NS, RARE, longest_ns
from sojourn.errors import MachineError, RequestError
from sojourn.instruments.emulator import Settings, emulate_argv
from sojourn.plan import load_plan
from sojourn.records import RunFolder
from sojourn.records.log import read_log

if TYPE_CHECKING:
    from collections.abc import Iterator

FAKE = Path(__file__).with_name("fake_instrument.py")
MS = 1_000_000

LOGS: dict[str, Log] = {}

PLAN = """
[study]
name = "made-up"
method = "emulator"
[bed]
devices = ["emulate"]
[stream]
frame_bytes = [102]
pipe = ["delay 5ms", "delay 250ms"]
"""


class FakeBed:
    """A topology."""

    device_core = None

    def __init__(self, topology: Topology, folder: Path) -> None:
        self.topology = topology
        self.backend = FakeBackend(folder)


class FakeBackend(LocalMachine):
    """This machine, with sockets in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def socket(self, name: str) -> str:
        return str(self._folder / f"{name}.sock")


class FakeSite:
    """Programs start right here."""

    simulated: ClassVar[bool] = False

    def __init__(self, bed: FakeBed) -> None:
        self.bed = bed

    def start(self, host: str) -> Any:
        assert host == "d"
        return subprocess.Popen


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    program = tmp_path / "sojourn-instrument"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore {FAKE} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("FAKE_ASKED", str(tmp_path / "asked"))
    with Log(tmp_path / "log.jsonl") as LOGS[str(tmp_path)]:
        yield str(program)
    del LOGS[str(tmp_path)]


def emulators(tmp_path: Path, program: str, text: str = PLAN, **topology: Any) -> Emulators:
    (tmp_path / "plan.toml").write_text(text)
    plan = load_plan(tmp_path / "plan.toml")
    folder = RunFolder(tmp_path)
    folder.records.mkdir(exist_ok=True)
    site: Any = FakeSite(FakeBed(Topology.of(plan.bed.devices, **topology), tmp_path))
    log = LOGS[str(tmp_path)]
    return Emulators(Part(plan, folder, 0, [], 0), site, Cores(0, 1), program, log)


def asked(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]


def events(tmp_path: Path, event: str) -> list[dict[str, Any]]:
    return [entry for entry in read_log(tmp_path / "log.jsonl") if entry["event"] == event]


def test_trial_configures_starts_and_summarises_the_emulator(tmp_path: Path, fake: str) -> None:
    with emulators(tmp_path, fake) as running:
        before = len(asked(tmp_path))
        with running.during("emulate", 12, "delay 250ms"):
            pass
        with running.during("direct", 13, "delay 250ms"):
            pass
    said = [(one["do"], one.get("words"), one.get("block"), one.get("keep")) for one in asked(tmp_path)[before:]]
    assert said == [
        ("set", "delay 250ms", None, None),
        ("begin", None, 12, True),
        ("begin", None, -1, True),
        ("show", None, None, None),  # whether its log goes on
        ("stop", None, None, None),
    ]
    both = events(tmp_path, "emulator-set")
    assert [(one["pipe"], one["to"]["delay"]["constant"], one["words"]) for one in both] == [
        ("forward", 250 * MS, "delay 250ms"),
        ("backward", 250 * MS, "delay 250ms"),
    ]
    assert [(one["block"], one["device"], one["emulator"]) for one in events(tmp_path, "emulator")] == [
        (12, "emulate", "emulate")
    ]
    assert [one["identical"] for one in events(tmp_path, "emulator-replay")] == [True]
    assert len(events(tmp_path, "emulator-ended")) == 1
    assert not list(tmp_path.glob("*.pid"))


def test_trial_waits_for_packets_still_in_its_pipe(tmp_path: Path, fake: str) -> None:
    with emulators(tmp_path, fake) as running:
        assert running.longest_ns("emulate", "delay 5ms") == 5 * MS
        assert running.longest_ns("emulate", "delay 250ms") == 250 * MS
        assert running.longest_ns("emulate", "") == 0
        assert running.longest_ns("direct", "delay 250ms") == 0


def test_invalid_pipe_ends_the_run_before_it_starts(tmp_path: Path, fake: str) -> None:
    with pytest.raises(RequestError, match="nonsense: expected a word"):
        emulators(tmp_path, fake, PLAN.replace("delay 5ms", "nonsense")).__enter__()
    assert alive(tmp_path) == []


def test_emulator_that_fails_to_start_is_reported_with_its_own_message(
    tmp_path: Path, fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DIE_AT", "start")
    with pytest.raises(MachineError, match=r"^the port is in use$"):
        emulators(tmp_path, fake).__enter__()
    assert alive(tmp_path) == []


def test_emulator_that_dies_is_reported_with_its_own_message(
    tmp_path: Path, fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DIE_AT", "begin:3")
    with (
        pytest.raises(MachineError, match=r"^the port is gone$"),
        emulators(tmp_path, fake) as running,
        running.during("emulate", 3, "delay 5ms"),
    ):
        pass
    assert alive(tmp_path) == []


def alive(tmp_path: Path) -> list[str]:
    """Doubles of this test that still run."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace") if folder.name.isdigit() else ""
        except OSError:
            continue
        if str(tmp_path) in command:
            found.append(command)
    return found


def test_rated_links_have_emulators_of_their_own(tmp_path: Path, fake: str) -> None:
    text = '[study]\nname = "x"\nmethod = "one-way"\n[bed]\ndevices = ["bridge"]\n[stream]\n'
    links = {"bridge": LinkSpec((None, 10_000_000), (0, 2 * MS), 100_000)}
    with emulators(tmp_path, fake, text, links=links) as running:
        assert running.longest_ns("bridge", "") == 80 * MS + 2 * MS
        assert running.longest_ns("direct", "") == 0
        with running.during("bridge", 1, ""):
            pass
    ready = events(tmp_path, "emulator-ready")
    assert [(one["role"], one["emulator"], one["device"]) for one in ready] == [("link", "lbridge2", "bridge")]
    argv = ready[0]["ready"]["argv"]
    words = argv[argv.index("--forward") + 1]
    assert words == argv[argv.index("--backward") + 1] == "rate 10000000bit/s overhead 24 queue 100000B delay 2000000ns"
    assert argv[2:4] == ["l-bridge-2l", "l-bridge-2r"]
    assert [one["do"] for one in asked(tmp_path)] == ["show", "stop"]


def test_each_emulator_label_has_its_own_settings(tmp_path: Path, fake: str) -> None:
    text = (
        '[study]\nname = "x"\n[bed]\ndevices = ["emulate:bare", "emulate:idle", "emulate:zero"]\n[probe]\n'
        '[emulate]\nseed = 9\n[emulate.idle]\nwords = ""\n[emulate.zero]\nforward = "delay 0ms"\nengine = "packet"\n'
    )
    with emulators(tmp_path, fake, text):
        pass
    argv = {one["emulator"]: one["ready"]["argv"] for one in events(tmp_path, "emulator-ready")}
    assert set(argv) == {"bare", "idle", "zero"}
    assert "--forward" not in argv["bare"]
    assert argv["idle"][argv["idle"].index("--backward") + 1] == ""
    assert "--backward" not in argv["zero"]
    assert argv["zero"][argv["zero"].index("--engine") + 1] == "packet"
    assert all(one[one.index("--seed") + 1] == "9" for one in argv.values())


def test_command_line_has_only_the_requested_options() -> None:
    plain = emulate_argv("i", ["l", "r"], "/s", Settings("n"))
    assert plain == ["i", "emulate", "run", "l", "r", "--json", "--die-with-parent", "--name", "n", "--part", "0",
                     "--seed", "1", "--control", "/s", "--sleep", "--idle", "sleep"]  # fmt: skip
    full = emulate_argv("i", ["l", "r"], "/s", Settings("n", "", "loss 1%", engine="xdp", cpu=3, spin=True, fifo=True))
    given = ["--forward", "", "--backward", "loss 1%", "--engine", "xdp", "--cpu", "3", "--spin"]
    assert full[len(plain) - 3 :] == given


@pytest.mark.parametrize(
    ("says", "given"),
    [("", []), ("[host]\nfifo = true", ["--fifo"]), ("[host]\nfifo = true\n[emulate]\nfifo = false", ["--no-fifo"]),
     ("[emulate]\nfifo = true", ["--fifo"]), ("[host]\nfifo = false", ["--no-fifo"])],
)  # fmt: skip
def test_real_time_priority_is_forced_only_by_an_explicit_plan_setting(
    says: str, given: list[str], tmp_path: Path, fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With "auto" it is taken where it is permitted, by the emulator itself: --fifo makes it fail elsewhere."""
    started: list[list[str]] = []
    start = subprocess.Popen

    def keep(argv: list[str], **options: Any) -> Any:
        started.append(argv)
        return start(argv, **options)

    monkeypatch.setattr(FakeSite, "start", lambda _site, _host: keep)
    with emulators(tmp_path, fake, f"{PLAN}{says}"):
        pass
    sleeps = [argv for argv in started if "--sleep" in argv]
    assert sleeps, started
    assert all([word for word in argv if word in {"--fifo", "--no-fifo"}] == given for argv in sleeps), started


@pytest.mark.parametrize(
    ("jitter", "draw"),
    [
        ({"uniform": {"spread": MS}}, lambda r: r.uniform(-MS, MS)),
        ({"normal": {"sd": MS}}, lambda r: r.gauss(0, MS)),
        ({"exponential": {"mean": MS}}, lambda r: r.expovariate(1 / MS)),
        ({"pareto": {"scale": MS, "shape": 2.5}}, lambda r: MS * (r.random() ** (-1 / 2.5) - 1)),
        ({"gamma": {"shape": 4.0, "scale": MS}}, lambda r: r.gammavariate(4.0, MS)),
        ({"gamma": {"shape": 0.3, "scale": MS}}, lambda r: r.gammavariate(0.3, MS)),
        ({"empirical": {"points": [[0.0, 0], [1.0, MS]], "file": ""}}, lambda r: r.uniform(0, MS)),
    ],
)
def test_grace_period_exceeds_almost_all_jitter_delays(jitter: dict[str, Any], draw: Any) -> None:
    longest = longest_ns({"delay": {"constant": 3 * MS, "jitter": jitter}})
    seed = 20031202
    chance = random.Random(seed)
    drawn = [draw(chance) for _ in range(100_000)]
    assert sum(3 * MS + one > longest for one in drawn) <= 5, f"seed {seed}"
    assert longest < 3 * MS + 400 * max(abs(one) for one in drawn)


def test_grace_period_includes_queues_and_traces() -> None:
    assert longest_ns({}) == 0
    link = {"rate_bps": 10_000_000}
    held = 50 * 1518 + 1518
    assert longest_ns({"link": link}) == held * 800
    assert longest_ns({"link": link, "queue": {"limit": {"slots": 10}}}) == 11 * 1518 * 800
    assert longest_ns({"link": link, "queue": {"limit": {"slots": 10, "bytes": 3000}}}) == (3000 + 1518) * 800
    classes = [{"limit": {"slots": 10}}, {"limit": None}]
    both = 10 * 1518 + held
    assert longest_ns({"link": link, "queue": {"limit": {}, "classes": classes}}) == both * 800
    own = {"scheduler": {"fq-codel": {"quantum": 1514}}}
    assert longest_ns({"link": link, "queue": own}) == (1_250_000 + 1518) * 800
    assert longest_ns({"link": link, "delay": {"constant": 1000 * MS}}) == 1000 * MS + (1_250_000 + 1518) * 800
    assert longest_ns({"link": {"outages": [{"at": 0, "lasts": 7 * MS}]}}) == 7 * MS
    points = [{"at": 0, "rate_bps": 1_000_000, "delay": 2 * MS}, {"at": 5, "rate_bps": 0, "delay": None}]
    assert longest_ns({"link": {"trace": {"points": {"points": points}}}}) == 2 * MS + held * 8000
    assert longest_ns({"link": {"trace": {"opportunities": {"at": [1], "period": 2}}}}) == LONGEST_NS
    assert longest_ns({"delay": {"constant": 3600 * 1000 * MS}}) == LONGEST_NS
    assert math.isclose(RARE, 1e-6)


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ('[stream]\npipe = ["delay 5ms", "nonsense 5"]', 'stream.pipe "nonsense 5": nonsense: expected'),
        ('[emulate]\nbackward = "nonsense"', 'emulate "nonsense": nonsense: expected'),
        ('[emulate]\nconfig = "nonsense.toml"', "emulate.config: nonsense: expected"),
    ],
)
def test_invalid_configuration_strings_are_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, where: str
) -> None:
    program, plan = tmp_path / "instrument", tmp_path / "plan.toml"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("SOJOURN_INSTRUMENT", str(program))
    plan.write_text(f'[study]\nname = "made-up"\nmethod = "emulator"\n[bed]\ndevices = ["emulate"]\n{section}\n')
    with pytest.raises(RequestError) as refused:
        refuse_wrong_words(load_plan(str(plan)))
    assert str(refused.value).startswith(where)
    plan.write_text(plan.read_text().replace("nonsense", "delay"))
    refuse_wrong_words(load_plan(str(plan)))
