"""The history: what is kept of a run, that it is kept whole, by several at once, and what the runs say together."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from sojourn.analysis import analyse
from sojourn.bed import machine
from sojourn.cli.conclude import keep
from sojourn.errors import MachineError
from sojourn.history import Entry, Figure, History, entry_of, find_history, over_runs
from sojourn.history.entry import is_kept
from sojourn.history.over_runs import standard_error
from sojourn.history.place import FILE, is_of_root
from sojourn.records import RunFolder
from tests.unit.in_process import sojourn
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAY_NS = 86_400_000_000_000
BEGAN_NS = 20_000 * DAY_NS
BED = {
    "hash": "c0ffee",
    "stable": {
        "machine": {"kernel": {"release": "6.1.0"}, "clocks": {"tai_minus_utc_s": 37}},
        "sojourn": {"version": "0.1.0"},
        "bed": {"spec": {"backend": "netns"}},
    },
    "parts": [{"before": {"boot_id": "one"}}, {"before": {"boot_id": "one"}}],
}


@pytest.fixture
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A history of this test alone."""
    monkeypatch.setenv("SOJOURN_DATA", str(tmp_path / "data"))
    return find_history()


def figure(estimate: float, half: float = 30.0, **changed: Any) -> Figure:
    made = Figure(
        "device_latency", "pooled", "bridge", "direct", '{"probe": "icmp"}',
        estimate, estimate - half, estimate + half, 0.95, "ns", 30, None,
    )  # fmt: skip
    return replace(made, **changed)


def entry(number: int, estimate: float = 1300.0, **changed: Any) -> Entry:
    began = BEGAN_NS + number * 3_600_000_000_000
    made = Entry(
        "made-up", f"run-{number}", began, "trusted", "bed", "boot", "6.1.0", "0.1.0",
        simulated=False, figures=(figure(estimate),),
    )  # fmt: skip
    return replace(made, **changed)


def over_boots(seed: int, boots: int = 8, each: int = 4, between: float = 60.0, within: float = 40.0) -> list[Entry]:
    """Runs on several boots, each boot on a day of its own."""
    rng = np.random.default_rng(seed)
    shifts = rng.normal(0, between, boots)
    return [
        entry(24 * boot + run, 1300 + shifts[boot] + rng.normal(0, within), boot=f"boot-{boot}")
        for boot in range(boots)
        for run in range(each)
    ]


def test_a_run_is_kept_with_its_leading_figures(synthetic: Callable[..., Any]) -> None:
    path = synthetic(rounds=8, bed=BED, log=({"event": "started", "tai_ns": 37_000_000_005},)).write()
    analyse(path)
    kept = entry_of(RunFolder(path))
    assert (kept.study, kept.run, kept.bed, kept.boot) == ("made-up", path.name, "c0ffee", "one")
    assert (kept.kernel, kept.version, kept.simulated, kept.began_ns) == ("6.1.0", "0.1.0", False, 5)
    rows = json.loads((path / "analysis/results.json").read_text())
    [pooled] = [one for one in kept.figures if one.of[:3] == ("device_latency", "pooled", "bridge")]
    [row] = [one for one in rows if (one["quantity"], one["statistic"], one["device"]) == pooled.of[:3]]
    [headline] = [one for one in kept.figures if one.headline]
    assert (headline.statistic, headline.device, headline.row["icmp_bytes"]) == ("mean", "bridge", 64)
    assert [pooled.estimate, pooled.ci_low, pooled.ci_high] == [row["estimate"], row["ci_low"], row["ci_high"]]
    assert all(pooled.row[name] == row[name] for name in ("reference", "probe", "interval_ns", "schedule", "unit"))
    assert not [one for one in kept.figures if one.quantity == "rtt" and one.statistic != "mean"]


def test_run_over_two_boots_is_stored_without_a_boot(synthetic: Callable[..., Any]) -> None:
    parts = [{"before": {"boot_id": "one"}}, {"before": {"boot_id": "two"}}]
    path = synthetic(rounds=8, bed=BED | {"parts": parts}).write()
    analyse(path)
    assert entry_of(RunFolder(path)).boot is None


def test_run_with_an_unknown_bed_is_stored(synthetic: Callable[..., Any]) -> None:
    path = synthetic(rounds=8).write()
    analyse(path)
    kept = entry_of(RunFolder(path))
    assert (kept.bed, kept.boot, kept.kernel) == ("", None, "")


def test_figure_at_a_load_specific_to_this_run_is_not_stored() -> None:
    row = {"quantity": "loss_ratio", "statistic": "ratio", "estimate": 0.1, "rate_pps": None, "rate_share": 0.5}
    assert is_kept(row)
    assert not is_kept(row | {"rate_pps": 504_684.4})


def test_boot_id_is_a_changing_fact_not_a_stable_one() -> None:
    noted = machine.moment()["boot_id"]
    assert noted == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert "boot_id" not in json.dumps(machine.stable())


def test_history_entries_round_trip(own_history: History) -> None:
    entries = [entry(1, boot=None), entry(2, figures=(figure(1.0), figure(2.0, reference=None, sessions=8)))]
    assert own_history.read() == []
    for one in reversed(entries):
        own_history.append(one)
    own_history.append(replace(entries[0], study="another"))
    assert own_history.read("made-up") == entries, "the earliest first"
    assert len(own_history.read()) == 3


def test_resumed_run_is_stored_once(own_history: History) -> None:
    own_history.append(entry(1, 1000.0))
    own_history.append(entry(1, 1100.0, verdict="doubtful"))
    assert own_history.read() == [entry(1, 1100.0, verdict="doubtful")]


def test_history_file_is_private(own_history: History) -> None:
    own_history.append(entry(1))
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (own_history.path.parent, own_history.path)]
    assert modes == [0o700, 0o600]
    assert [path.name for path in own_history.path.parent.iterdir()] == [FILE], "nothing is left beside it"


def append_many(path: str, who: int, count: int) -> None:
    for number in range(count):
        History(Path(path)).append(entry(1000 * who + number))


def test_concurrent_runs_are_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "data" / FILE
    context = multiprocessing.get_context("spawn")
    several = [context.Process(target=append_many, args=(str(path), who, 20)) for who in range(2)]
    for process in several:
        process.start()
    for process in several:
        process.join(120)
    assert [process.exitcode for process in several] == [0, 0]
    kept = History(path).read()
    assert len(kept) == 40
    assert {len(one.figures) for one in kept} == {1}


def test_run_is_stored_completely_or_not_at_all(own_history: History) -> None:
    own_history.append(entry(1))
    broken = replace(figure(1.0), unit=None)  # type: ignore[arg-type]
    with pytest.raises(MachineError):
        own_history.append(entry(1, figures=(figure(5.0), broken)))
    assert own_history.read() == [entry(1)]


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def raise_version(file: Path) -> None:
    import sqlite3

    with closing(sqlite3.connect(file)) as later:
        later.execute("PRAGMA user_version = 7")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "is damaged": lambda file: file.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40),
    "file is not a database": lambda file: file.write_text("Dear history, " * 100),
    "is of version 7": raise_version,
    "cannot be": make_folder,
}


@pytest.mark.parametrize("sentence", DAMAGES)
def test_damaged_history_is_one_sentence_and_does_not_fail_the_run(
    sentence: str, own_history: History, synthetic: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = synthetic(rounds=8, bed=BED).write()
    analyse(path)
    own_history.append(entry(1))
    DAMAGES[sentence](own_history.path)
    before = own_history.path.read_bytes() if own_history.path.is_file() else None
    keep(RunFolder(path))
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("sojourn: not in the history: the history in ")
    assert sentence in told.err
    assert told.err.count("\n") == 1
    assert before is None or own_history.path.read_bytes() == before, "nothing is repaired or deleted"
    done = sojourn("history", "made-up")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert sentence in done.stderr


def test_a_history_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SOJOURN_DATA", str(tmp_path / "file" / "data"))
    with pytest.raises(MachineError, match=r"cannot be written: (Not a directory|File exists)"):
        find_history().append(entry(1))
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with without_rights(tmp_path), pytest.raises(MachineError, match="cannot be written: Permission denied"):
        History(closed / "data" / FILE).append(entry(1))


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """As a user whom the folder does not belong to; nothing to do where we are no root."""
    if os.geteuid() != 0:
        yield
        return
    folder.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_history_folder_follows_the_xdg_specification(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SOJOURN_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert find_history().path == tmp_path / ".local/share/sojourn" / FILE
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert find_history().path == tmp_path / "xdg/sojourn" / FILE
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert find_history().path == tmp_path / ".local/share/sojourn" / FILE
    monkeypatch.setenv("SOJOURN_DATA", str(tmp_path / "own"))
    assert find_history().path == tmp_path / "own" / FILE


def test_root_does_not_write_into_folders_of_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As sudo with the invoking user's HOME would have it."""
    home = tmp_path / "alice"
    home.mkdir()
    monkeypatch.delenv("SOJOURN_DATA")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("sojourn.history.place.os.geteuid", lambda: 0)
    monkeypatch.setattr("sojourn.history.place.is_of_root", lambda folder: not folder.is_relative_to(home))
    assert find_history().path == Path("/root/.local/share/sojourn") / FILE
    monkeypatch.setenv("SOJOURN_DATA", str(home / "data"))
    with pytest.raises(MachineError, match="belongs to another user, and root leaves it alone"):
        find_history()


def test_folder_counts_as_owned_by_root_only_if_all_parents_are(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        assert not is_of_root(tmp_path)
        return
    assert is_of_root(tmp_path / "not" / "there" / "yet")
    (tmp_path / "alice" / "roots").mkdir(parents=True)
    os.chown(tmp_path / "alice", 65534, 65534)
    assert not is_of_root(tmp_path / "alice" / "roots")
    (tmp_path / "link").symlink_to(tmp_path / "alice")
    assert not is_of_root(tmp_path / "link" / "data")


def test_component_between_boots_is_recovered_from_a_history() -> None:
    found = []
    for seed in range(60):
        [bed] = over_runs(over_boots(seed))
        [series] = bed.series
        assert series.between is not None
        assert series.occasions == 8
        found.append(series.between.between**2)
    assert np.mean(found) == pytest.approx(3600, rel=0.2)


@pytest.mark.parametrize(
    ("unit", "estimate", "ends", "half"),
    [
        ("bit/s", 100.0, (70.0, 130.0), 30.0),
        ("bit/s", 100.0, (0.0, 230.0), 130.0),  # of -30 to 230
        ("1", 0.9, (0.7, 1.0), 0.2),  # of 0.7 to 1.1
        ("ns", 100.0, (80.0, 140.0), 30.0),  # one that leans
    ],
)
def test_standard_error_of_a_truncated_interval_is_that_of_the_full_one(
    unit: str, estimate: float, ends: tuple[float, float], half: float
) -> None:
    one = Figure("x", "mean", "bridge", None, "{}", estimate, *ends, 0.95, unit, 8, 8)
    assert standard_error(one) == pytest.approx(half / stats.t.ppf(0.975, 7))


def test_two_days_of_one_boot_are_two_occasions() -> None:
    entries = [entry(24 * day, 1300 + day) for day in range(6)]
    [bed] = over_runs(entries)
    assert bed.series[0].occasions == 6
    assert bed.series[0].between is not None
    [fewer] = over_runs(entries[:5])
    assert fewer.series[0].between is None


def test_control_limits_use_one_bed_and_exclude_invalid_runs() -> None:
    rng = np.random.default_rng(1)
    first = [entry(number, 1300 + rng.normal(0, 10)) for number in range(20)]
    wild = entry(20, 9000.0, verdict="invalid")
    jump = entry(21, 1500.0)
    elsewhere = [entry(30 + number, 5000.0, bed="other") for number in range(3)]
    beds = over_runs([*elsewhere, jump, wild, *first])
    assert [bed.bed for bed in beds] == ["bed", "other"]
    [series] = beds[0].series
    assert series.limits is not None
    assert series.limits.high < 1500
    assert [value.entry.run for value in series.values if value.is_outside] == ["run-21"]
    assert beds[1].series[0].limits is None


def test_a_study_is_shown_within_80_columns(own_history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    entries = over_boots(3)
    entries = [replace(one, figures=(replace(one.figures[0], headline=True),)) for one in entries]
    cells = [figure(1200, statistic="mean", factors=json.dumps({"payload_bytes": size})) for size in (64, 1472)]
    for one in [*entries[:-1], replace(entries[-1], figures=(figure(2500.0),), verdict="doubtful")]:
        own_history.append(replace(one, figures=(*one.figures, *cells)))
    done = sojourn("history", "made-up")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    lines = done.stdout.splitlines()
    assert lines[0] == "made-up: 32 runs on 1 bed, 8 boots"
    assert "Bed bed: kernel 6.1.0, Sojourn 0.1.0, 32 runs, 8 boots" in lines
    runs = [line for line in lines if line.startswith("  2024-")]
    assert len(runs) == 30
    assert runs == sorted(runs), "the newest last"
    assert runs[-1].endswith("outside, doubtful")
    assert any("2 earlier runs: see --json" in line for line in lines)
    assert any("between boots and days: sd " in line and ", 8 of them" in line for line in lines)
    assert len([line for line in sojourn("history", "made-up", "--all").stdout.splitlines() if "2024-" in line]) == 90


def test_fewer_than_six_boots_give_no_control_limits(own_history: History) -> None:
    for number in range(5):
        own_history.append(entry(number))
    said = sojourn("history", "made-up").stdout
    assert "control limits not known: 5 of at least 6 runs" in said
    assert "between boots and days: not known (1 of at least 6)" in said


def test_history_of_a_study_is_printed_as_json(own_history: History) -> None:
    for one in over_boots(3):
        own_history.append(one)
    said = printed("history-study", sojourn("history", "made-up", "--json").stdout)
    [bed] = said["beds"]
    [one] = bed["figures"]
    assert len(one["runs"]) == 32
    assert one["between_boots"]["sd"] > 0
    assert one["limits"]["low"] < 1300 < one["limits"]["high"]
    assert printed("history", sojourn("history", "--json").stdout) == [
        {"study": "made-up", "runs": 32, "last": one["runs"][-1]["began"][:16].replace("T", " ")}
    ]


def test_an_empty_history_is_one_sentence(own_history: History) -> None:
    for words in (("history",), ("history", "bridge-latency")):
        done = sojourn(*words)
        assert (done.returncode, done.stdout.count("\n")) == (0, 1)
        assert done.stdout.startswith("There are no runs in the history")
    own_history.append(entry(1))
    done = sojourn("history", "bridge-latency")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the history has no run of bridge-latency: it has made-up" in done.stderr


def test_runs_are_stored_unless_disabled(own_history: History, tmp_path: Path) -> None:
    asked = ("run", "bridge-latency", "--bed", "sim", "--quick", "--set", "rounds=8", "--no-report")
    assert sojourn(*asked, "--out", "unkept", "--no-history", cwd=tmp_path).returncode == 0
    assert not own_history.path.exists()
    assert sojourn(*asked, "--out", "kept", cwd=tmp_path).returncode == 0
    assert sojourn("run", "--resume", "kept", "--no-report", cwd=tmp_path).returncode == 0
    assert sojourn("report", "kept", cwd=tmp_path).returncode == 0
    [kept] = own_history.read()
    assert (kept.study, kept.run, kept.simulated) == ("bridge-latency", "kept", True)
    assert kept.boot == machine.moment()["boot_id"]
    own_history.path.write_text("damaged " * 100)
    done = sojourn(*asked, "--out", "again", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"] == "trusted"
    assert "sojourn: not in the history: " in done.stderr


def test_comparison_of_runs_includes_scatter_between_boots(own_history: History, synthetic: Callable[..., Any]) -> None:
    """Two bridges that differ by 80 ns, on boots that differ by some 60."""
    paths = []
    for boot, latency in (("one", 1300.0), ("two", 1380.0)):
        bed = BED | {"parts": [{"before": {"boot_id": boot}}]}
        started = {"event": "started", "tai_ns": BEGAN_NS}
        paths.append(synthetic(rounds=30, latency_ns={"bridge": latency}, bed=bed, log=(started,)).write())
        analyse(paths[-1])
    asked = ("compare", *map(str, paths), "--json")
    alone = json.loads(sojourn(*asked).stdout)
    assert alone["answer"] == "worse"
    made = entry_of(RunFolder(paths[0]))
    for number, shift in enumerate(np.random.default_rng(5).normal(0, 60, 8)):
        for run in range(2):
            began = BEGAN_NS + 2 * number * DAY_NS + run
            figures = tuple(replace(one, estimate=one.estimate + shift + run) for one in made.figures)
            name = f"{number}-{run}"
            own_history.append(replace(made, run=name, boot=f"boot-{number}", began_ns=began, figures=figures))
    told = printed("compare", sojourn(*asked).stdout)
    [pooled] = [row for row in told["results"] if (row["device"], row["statistic"]) == ("bridge", "pooled")]
    assert pooled["covers"] == "boots and days"
    assert pooled["between_boots"]["occasions"] == 8
    assert told["answer"] != "worse"
    assert json.loads(sojourn(*asked, "--no-history").stdout) == alone
    words = " ".join(sojourn(*asked[:-1]).stdout.split())
    assert "Between boots and days: the intervals contain the differences between 8 of them in the history" in words
    own_history.path.write_text("damaged " * 100)
    done = sojourn(*asked)
    assert json.loads(done.stdout) == alone
    assert done.stderr.startswith("sojourn: compared without the history: ")


@pytest.mark.parametrize(("others", "scatter"), [(6, None), (7, 0.0), (7, 90.0)])
def test_comparison_of_runs_of_one_day_includes_their_scatter(
    own_history: History, synthetic: Callable[..., Any], others: int, scatter: float | None
) -> None:
    """Two bridges that differ by 80 ns; the history has these two as well, which say nothing of what runs differ by."""
    paths = []
    for number, latency in enumerate((1300.0, 1380.0)):
        bed = BED | {"parts": [{"before": {"boot_id": "one"}}]}
        started = {"event": "started", "tai_ns": BEGAN_NS + number}
        paths.append(synthetic(rounds=30, latency_ns={"bridge": latency}, bed=bed, log=(started,)).write())
        analyse(paths[-1])
        own_history.append(entry_of(RunFolder(paths[-1])))
    made = entry_of(RunFolder(paths[0]))
    for number, shift in enumerate(np.random.default_rng(6).normal(0, scatter or 0.0, others)):
        figures = tuple(replace(one, estimate=one.estimate + shift) for one in made.figures)
        own_history.append(replace(made, run=f"other-{number}", began_ns=BEGAN_NS + 10 + number, figures=figures))
    told = printed("compare", sojourn("compare", *map(str, paths), "--json").stdout)
    [pooled] = [row for row in told["results"] if (row["device"], row["statistic"]) == ("bridge", "pooled")]
    assert (pooled["between_boots"], told["answer"] == "worse") == (None, not scatter)
    if scatter is None:
        assert pooled["between_runs"] is None, "six runs have five degrees of freedom"
    else:
        assert pooled["between_runs"]["degrees"] == 6
        assert pooled["between_runs"]["sd"] == pytest.approx(scatter, rel=0.7)


def test_history_contains_neither_user_nor_host(own_history: History, synthetic: Callable[..., Any]) -> None:
    path = synthetic(rounds=8, bed=BED).write()
    analyse(path)
    keep(RunFolder(path))
    written = own_history.path.read_bytes().decode("latin1")
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    for name in (os.uname().nodename, f"/{user}/", str(path.parent)):
        assert name not in written


def test_tests_do_not_use_the_history_of_the_user() -> None:
    assert "sojourn-tests-" in os.environ["SOJOURN_DATA"]
    told = subprocess.check_output([sys.executable, "-c", "import os; print(os.environ['SOJOURN_DATA'])"], text=True)
    assert told.strip() == os.environ["SOJOURN_DATA"]
