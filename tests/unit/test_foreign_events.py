"""A run folder of somebody else: any event of its log, any key of its plan, any of its files may be something else.

Whatever is there is read, or refused in one sentence. Events whose shape is refused are the easy half: of those that
are drawn here, most pass that check, so that every reader of the log meets them.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import tarfile
import warnings
from functools import cache
from io import StringIO
from pathlib import Path
from shutil import copy2, copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import sojourn as package
from sojourn.analysis import analyse
from sojourn.cli.compare import compare_runs
from sojourn.cli.export import exported
from sojourn.history import entry_of
from sojourn.records import RunFolder
from sojourn.records.events import EVENTS
from sojourn.records.log import damage, read_log
from sojourn.records.shape import NEEDED
from sojourn.report import render_terminal, write_report
from sojourn.watch.follow import Follower
from tests.unit.in_process import sojourn
from tests.unit.test_foreign_runs import GOLDEN, places_of, put, refusal_of
from tests.unit.test_taps import made_up as made_up_taps
from tests.unit.test_tcp_windows import Truth
from tests.unit.test_tcp_windows import made_up as made_up_windows

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = settings(deadline=None, max_examples=max(3, settings.default.max_examples // 80))  # type: ignore[union-attr]
"""An analysis takes a second or more, and each of ten runs has these examples: few, and a dozen where a proof asks."""
VALUES: list[Any] = [
    None, True, 0, -1, 1, 7, 2**31, 2**40, 2**63, 2**70, 1e308, 1e-300, 0.5, "", "x", "\ud800", "../../x", "10ms", [],
    [[]], [1], [None], ["x"], {}, {"a": 1}, {"": {}}, {"0": {"factors": {}}},
]  # fmt: skip
"""What may stand where something else is meant."""

ADDED: list[dict[str, Any]] = [
    {"event": "settings-set", "part": 0, "rows": [
        {"host": "a", "port": "eth0", "setting": "irq_cpus", "value": "irq-7", "asked": "0-1", "before": "0",
         "in_force": "0,1", "ended": "0", "restored": "0"},
        {"host": "a", "port": "", "setting": "idle_latency", "value": "us", "asked": "5", "before": "9",
         "in_force": "4"},
    ]},
    {"event": "looked", "sessions": 2, "half": 2.0, "target": 1.0, "ends": None},
    {"event": "stopped", "by": "budget", "sessions": 2, "rounds": 2, "asked": 4},
    {"event": "time-is-up", "searches": 2, "rounds": 2, "asked": 3},
    {"event": "log-interrupted", "transfer": 1, "host": "a", "why": "detached"},
    {"event": "transfer", "transfer": 1, "link": 2},
    {"event": "path-throughput", "device": "bridge", "frame_bytes": 64, "pps": 1e6, "blocks": [1]},
    {"event": "device-broken", "device": "bridge", "session": 1, "sentence": "it broke"},
    {"event": "lost", "part": 0, "why": "gone", "trials": [{"block": 1, "round": 0, "path": "bridge", "cell": 0}]},
    {"event": "bed", "delaying": ["eth0 waits"], "left_out": {"frequency": "fixed"}},
    {"event": "emulator-ended", "device": "d", "emulator": "e", "report": {"said": ["a step"], "log": {"skipped": 0}}},
    {"event": "emulator-replay", "device": "d", "identical": None, "packets": None},
]  # fmt: skip
"""Events that no golden run has, as they are logged."""


@cache
def folder_of_tests() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="sojourn-foreign-")


@cache
def run_of(name: str) -> Path:
    """A whole run: a golden one, or one that is made up; analysed."""
    at = Path(folder_of_tests().name)
    if name == "taps":
        made_up_taps(at / name)
        repeat(at / name)
    elif name == "windows":
        made_up_windows(at / name, Truth())
    else:
        with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
            archive.extractall(at, filter="data")
    with (at / name / "log.jsonl").open("a") as log:
        log.writelines(json.dumps(one) + "\n" for one in ADDED)
    analyse(at / name)
    return at / name


def repeat(run: Path) -> None:
    """Let a cell have been repeated."""
    taps = [one for one in read_log(run / "log.jsonl") if one["event"] == "taps"]
    own = {device: [one["block"] for one in taps if one["device"] == device][:4] for device in ("bridge", "wire")}
    said = {"event": "repeated", "part": 0, "device": "bridge", "reference": "wire", "cell": 0, "by_ns": 1.0,
            "of_device": own["bridge"], "of_reference": own["wire"]}  # fmt: skip
    with (run / "log.jsonl").open("a") as log:
        log.write(json.dumps(said) + "\n")


RUNS = [*sorted({path.name.partition(".")[0] for path in GOLDEN.glob("*.tar.xz")}), "taps", "windows"]


def otherwise(data: st.DataObject, entry: dict[str, Any]) -> dict[str, Any]:
    """The event with another value somewhere; rather one that is not refused for its shape."""
    changed = entry
    for _ in range(6):
        place = data.draw(st.sampled_from(places_of(entry)))
        changed = put(entry, place, data.draw(st.sampled_from([..., ..., *VALUES])))
        if not isinstance(changed, dict) or damage(changed) is None:
            break
    return changed


def linked(run: Path, to: Path, *, but: str) -> None:
    """A run folder with the same files, but for one of its own."""
    copytree(run, to, copy_function=os.link, ignore=lambda *_: {"analysis", "report"})
    own = to / but
    own.unlink()
    copy2(run / but, own)


def read_all(run: Path, whole: Path) -> None:
    """Whatever reads a run reads this one; each may refuse it in one sentence."""
    folder = RunFolder(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = expect_sentence(lambda: analyse(run))
        if status == 0:
            for read in (
                lambda: write_report(run),
                lambda: render_terminal(run, Console(file=StringIO())),
                lambda: compare_runs(run, whole, history=False),
                lambda: entry_of(folder),
            ):
                expect_sentence(read)
        for form in ("prometheus", "hdr"):
            expect_sentence(lambda form=form: exported(run, form))
        follower = Follower(folder.log)
        follower.poll()
        json.dumps(follower.told())


def expect_sentence(read: Any) -> int:
    said, status = refusal_of(read)
    assert status in {0, 2, 3, 4}
    assert "\n" not in said
    return status


@pytest.mark.parametrize("name", RUNS)
@EXAMPLES
@given(data=st.data())
def test_arbitrary_events_in_a_log_are_read_or_refused(name: str, data: st.DataObject) -> None:
    run = run_of(name)
    lines = (run / "log.jsonl").read_text().splitlines()
    kinds: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        kinds.setdefault(json.loads(line)["event"], []).append(at)
    several = kinds[data.draw(st.sampled_from(sorted(kinds)))]
    at = data.draw(st.sampled_from(several[:3]))
    changed = otherwise(data, json.loads(lines[at]))
    with TemporaryDirectory() as spare:
        linked(run, Path(spare) / "run", but="log.jsonl")
        (Path(spare) / "run" / "log.jsonl").write_text("\n".join([*lines[:at], json.dumps(changed), *lines[at + 1 :]]))
        read_all(Path(spare) / "run", run)


@pytest.mark.parametrize("name", RUNS)
@EXAMPLES
@given(data=st.data())
def test_missing_or_repeated_kinds_of_events_are_read_or_refused(name: str, data: st.DataObject) -> None:
    run = run_of(name)
    lines = (run / "log.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["event"] for line in lines]
    kind, how = data.draw(st.sampled_from(sorted(set(kinds)))), data.draw(st.sampled_from(["none", "twice", "cut"]))
    if how == "cut":
        lines = lines[: kinds.index(kind)]
    else:
        lines = [
            line
            for line, one in zip(lines, kinds, strict=True)
            for _ in range(1 if one != kind else how == "twice" and 2)
        ]
    with TemporaryDirectory() as spare:
        linked(run, Path(spare) / "run", but="log.jsonl")
        (Path(spare) / "run" / "log.jsonl").write_text("\n".join(lines))
        read_all(Path(spare) / "run", run)


TOML = ["true", "0", "-1", "1", "7", "1e308", "nan", '""', '"x"', '"10ms"', "[]", '["x"]', "[1]", "[[]]", "{}",
        "{a = 1}", "9223372036854775807", "1979-05-27", '"direct"']  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
@EXAMPLES
@given(data=st.data())
def test_arbitrary_values_in_a_plan_are_read_or_refused(name: str, data: st.DataObject) -> None:
    run = run_of(name)
    lines = (run / "plan.toml").read_text().splitlines()
    keys = [at for at, line in enumerate(lines) if re.match(r"^[\w\"]+ = .*[^\[,]$", line)]
    at = data.draw(st.sampled_from(keys))
    value = data.draw(st.sampled_from(TOML))
    lines[at] = f"{lines[at].partition(' = ')[0]} = {value}" if data.draw(st.booleans()) else ""
    with TemporaryDirectory() as spare:
        linked(run, Path(spare) / "run", but="plan.toml")
        (Path(spare) / "run" / "plan.toml").write_text("\n".join(lines))
        read_all(Path(spare) / "run", run)


@pytest.mark.parametrize("name", RUNS)
@EXAMPLES
@given(data=st.data())
def test_truncated_damaged_or_foreign_files_of_a_run_are_read_or_refused(name: str, data: st.DataObject) -> None:
    run = run_of(name)
    files = sorted(
        str(path.relative_to(run)) for path in run.rglob("*")
        if path.is_file() and not {"analysis", "report"} & {*path.relative_to(run).parts}
    )  # fmt: skip
    chosen = data.draw(st.sampled_from(files))
    with TemporaryDirectory() as spare:
        linked(run, Path(spare) / "run", but=chosen)
        damage_file(data, Path(spare) / "run" / chosen, run / data.draw(st.sampled_from(files)))
        read_all(Path(spare) / "run", run)


def damage_file(data: st.DataObject, path: Path, other: Path) -> None:
    """Cut, flip bytes of, empty, replace or remove a file."""
    octets = path.read_bytes()
    how = data.draw(st.sampled_from(["cut", "flip", "empty", "other", "text", "gone"]))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    if how == "gone":
        path.unlink()
        return
    made = bytearray(octets)
    for _ in range(rng.randrange(1, 4) if how == "flip" and made else 0):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    changed = {
        "cut": octets[: rng.randrange(len(octets) + 1)], "flip": bytes(made), "empty": b"", "other": other.read_bytes(),
        "text": b'{"a": [1, 2]}\n',
    }  # fmt: skip
    path.write_bytes(changed[how])


@pytest.mark.parametrize("kind", sorted(EVENTS))
def test_event_without_required_fields_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(json.dumps({"event": kind}) + "\n")
    said, status = refusal_of(lambda: read_log(tmp_path / "log.jsonl"))
    shape = EVENTS[kind]
    assert (status == 2) == bool(isinstance(shape, dict) and shape.get(NEEDED)), said
    assert status == 0 or said.startswith(f"{tmp_path}/log.jsonl is damaged: line 1, an event '{kind}'")


@pytest.mark.parametrize("asked", [0, 0.5])
@pytest.mark.parametrize("kind", ["time-is-up", "stopped"])
def test_less_than_one_asked_round_is_refused(kind: str, asked: float, tmp_path: Path) -> None:
    """Found by the search above: what was planned is divided by it."""
    event = {"event": kind, "by": "budget", "sessions": 1, "rounds": 1, "asked": asked, "tai_ns": 1}
    (tmp_path / "log.jsonl").write_text(json.dumps(event) + "\n")
    said, status = refusal_of(lambda: read_log(tmp_path / "log.jsonl"))
    assert status == 2
    assert "asked" in said


def test_logged_events_equal_the_declared_events() -> None:
    """Of a name that is misspelt in the declaration nothing would be checked."""
    logged = set(logged_names())
    assert len(logged) > 40, logged
    assert not EVENTS.keys() - logged - {"cells"}, "declared, and logged by nobody; cells are of earlier versions"


def logged_names() -> Iterator[str]:
    """The names of all events that the left side logs."""
    for path in Path(package.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "log" not in text:
            continue
        tree = ast.parse(text)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name in {"log", "_log"} and call.args and isinstance(call.args[0], ast.Constant):
                yield str(call.args[0].value)
    yield from (
        "begun",
        "closed",
        "lost",
        "clock-trial",
        "contended",
        "undisturbed",
        "settings-set",
        "settings-restored",
    )


@pytest.mark.parametrize("name", ["report", "report/tables", "analysis"])
def test_nothing_is_written_through_a_link_that_lies_in_a_run(name: str, tmp_path: Path) -> None:
    """Whoever sent the folder may have put links into it."""
    run, theirs = tmp_path / "run", tmp_path / "theirs"
    copytree(run_of("bridge-latency"), run, ignore=lambda *_: {"analysis", "report"})
    for inner in ("tables", "figures", "samples"):
        (theirs / inner).mkdir(parents=True)
        (theirs / inner / "mine").write_text("mine")
    (run / "report").mkdir() if name == "report/tables" else None
    (run / name).symlink_to(theirs)
    done = sojourn("report", str(run))
    assert sorted(str(path.relative_to(theirs)) for path in theirs.rglob("mine")) == [
        f"{inner}/mine" for inner in ("figures", "samples", "tables")
    ]
    assert sum(1 for path in theirs.rglob("*") if path.is_file()) == 3
    # Root does not write in such a folder at all.
    assert done.returncode == (2 if name == "report" or os.geteuid() == 0 else 0), done.stderr
    assert "Traceback" not in done.stderr
