"""The command line: words in, words out, exit statuses; instant help; `probe` handed on before anything is loaded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from sojourn.analysis import analyse
from sojourn.cli import main
from sojourn.cli.compare import compare_runs, print_comparison, whole_links
from sojourn.cli.dry_run import expansion, words
from sojourn.cli.figures import label, sizes
from sojourn.cli.groups import GROUPS, Grouped
from sojourn.cli.shallow import for_word
from sojourn.errors import RequestError
from sojourn.methods import packages
from sojourn.plan import load_plan
from sojourn.records.results import RESULTS
from tests.unit.in_process import sojourn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAIN = "import sys; from sojourn.cli import main; sys.argv[0] = 'sojourn'; main()"


def program(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`sojourn` as a process of its own, where it becomes another program."""
    argv = [sys.executable, "-c", MAIN, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | env, timeout=120)


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence on standard error."""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("sojourn: ")
    return lines[0].removeprefix("sojourn: ")


def test_help_names_every_command() -> None:
    done = sojourn("--help")
    for command in ("run", "report", "compare", "list", "doctor", "probe", "bed"):
        assert f"\n  {command} " in done.stdout


def test_help_groups_the_commands_by_task() -> None:
    """Each stands once, in the order of its group, and none is left for the group of all others."""
    sections = sojourn("--help").stdout.split("\n\n")[3:]
    listed = {one.partition(":")[0]: tuple(re.findall(r"^  ([a-z]+)  ", one, re.MULTILINE)) for one in sections}
    assert listed == GROUPS


def test_a_command_that_is_in_no_group_is_listed_at_the_end() -> None:
    app = typer.Typer(cls=Grouped, rich_markup_mode=None)
    for name in ("unheard-of", "report", "run"):
        app.command(name, short_help=f"Do {name}.")(lambda: None)
    words = CliRunner().invoke(app, ["--help"]).stdout.split("\n\n")[2:]
    assert [one.split() for one in words] == [
        ["Measure:", "run", "Do", "run."], ["Runs", "and", "reports:", "report", "Do", "report."],
        ["Others:", "unheard-of", "Do", "unheard-of."],
    ]  # fmt: skip


HEAVY = {"polars", "pyarrow", "numpy", "scipy", "altair", "tomlkit", "jinja2", "rich", "vl_convert"}

LOADS = "import sys; before = set(sys.modules)\n{}\nprint(*sorted(set(sys.modules) - before), file=sys.stderr)"

CALLS = "sys.argv = 'sojourn {}'.split()\ntry:\n  from sojourn.cli import main; main()"


def loaded_by(program: str) -> set[str]:
    """The modules that a program has loaded when it is over, beyond those of Python's own start."""
    argv = [sys.executable, "-c", LOADS.format(program)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    return set(done.stderr.split())


def ours(modules: set[str]) -> set[str]:
    """Of modules, those of Sojourn, without its name."""
    return {one.removeprefix("sojourn.") for one in modules if one.startswith("sojourn.")}


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_by(f"{CALLS.format('--help')}\nexcept SystemExit: 0")
    assert not HEAVY & loaded
    assert {one for one in ours(loaded) if not one.startswith("cli")} == {
        "caller",
        "errors",
        "lazy",
        "units",
        "version",
    }


@pytest.mark.parametrize(
    "words",
    ["probe icmp 10.0.0.2", "stamp send", "stream recv", "capture eth1", "emulate a b", "tcplog watch", "clock x"],
)
def test_instrument_commands_are_executed_before_other_imports(words: str) -> None:
    """Not `typing`, `re`, `pathlib` or `subprocess` either: Python alone takes as long as all of this."""
    handed = "class Gone(BaseException): ...\ndef gone(*_): raise Gone\nimport os; os.execv = gone"
    loaded = loaded_by(f"{handed}\n{CALLS.format(words)}\nexcept Gone: 0")
    assert ours(loaded) == {"cli", "cli.become", "cli.who_called", "binary", "errors", "lazy", "version"}
    assert loaded - {"sojourn", "errno", "__future__"} == {f"sojourn.{one}" for one in ours(loaded)}


def test_packages_import_their_modules_lazily() -> None:
    assert ours(loaded_by("import sojourn.bed, sojourn.instruments")) == {"bed", "instruments", "lazy", "version"}
    assert "bed.build" not in ours(loaded_by("from sojourn.bed import Host; from sojourn.bed.state import Mark"))
    refused = subprocess.run([sys.executable, "-c", "from sojourn.bed import Bad"], capture_output=True, text=True)  # noqa: PLW1510
    assert "ImportError: cannot import name 'Bad'" in refused.stderr


def test_options_of_other_commands_are_not_constructed() -> None:
    """Their names and their lines of help are: the program's own help is as it would be with them."""
    from sojourn.cli.commands import app

    whole, shallow = typer.main.get_command(app), typer.main.get_command(for_word(app, "report"))
    assert isinstance(whole, TyperGroup)
    assert isinstance(shallow, TyperGroup)
    told = [{name: one.get_short_help_str() for name, one in group.commands.items()} for group in (whole, shallow)]
    assert told[0] == told[1]
    assert [one.name for one in shallow.commands["report"].params] == ["run", "vector", "beside", "pdf", "as_json"]
    assert [name for name, one in shallow.commands.items() if one.params] == ["report"]
    assert len([name for name, one in whole.commands.items() if one.params]) > 5


def test_probe_execs_the_instrument_and_returns_its_status(tmp_path: Path) -> None:
    double = tmp_path / "instrument"
    double.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    double.chmod(0o755)
    done = program("probe", "icmp", "10.0.0.2", "-c", "5", "--help", SOJOURN_INSTRUMENT=str(double))
    assert (done.returncode, done.stdout) == (3, "probe icmp 10.0.0.2 -c 5 --help\n")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (["run"], "no study is named: try `sojourn list`, then `sojourn run NAME`"),
        (["run", "bridge-latancy"], "no study or plan file bridge-latancy: did you mean bridge-latency?"),
        (["run", "nowhere.toml"], "nowhere.toml: cannot be read: No such file or directory"),
        (["run", "bridge-latency", "--set", "x=1"], "--set x=1: unknown key x: expected one of the sections"),
        (
            ["run", "bridge-latency", "--bed", "moon"],
            '--bed moon: bed.backend = "moon": expected "netns" or "ssh" or "sim"',
        ),
        (
            ["run", "ping-wait", "--bed", "sim", "--dry-run"],
            'expected "netns" for departures: ping and a capture need a real kernel',
        ),
        (
            ["run", "--resume", "nowhere"],
            "nowhere is not there: expected a run folder, which holds plan.toml and",
        ),
        (["run", "bridge-latency", "--resume", "x"], "--resume continues with the run's own plan: leave out a study"),
        (["report", "nowhere"], "nowhere is not there: expected a run folder"),
        (["compare", "nowhere", "there"], "nowhere is not there: expected a run folder"),
        (["compare", "/", "there"], "/ is no run folder: expected one that holds plan.toml and records/"),
        (["report", "/"], "/ is no run folder: expected one that holds plan.toml and records/"),
        (["bed", "show", "nowhere"], "no study or plan file nowhere"),
        (["measure"], "no such command 'measure': see `sojourn --help`"),
        (["report"], "missing argument 'RUN': see `sojourn report --help`"),
        (["run", "--fast"], "no such option: --fast"),
        (["run", "bridge-latency", "--set", "prober_cpu=999"], "host.prober_cpu = 999: expected one of the cores"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_status_2(
    asked: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sojourn", *asked])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.err.startswith("sojourn: ")
    assert said.err.count("\n") == 1
    assert sentence in said.err
    assert said.out == ""


def test_a_plan_is_refused_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('[study]\nname = "mine"\n[probe]\nicmp_bytes = [64]\nintervall = ["1ms"]\n')
    done = sojourn("run", "my.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert told(done) == "my.toml, line 5: unknown key probe.intervall: expected probe.interval"


def test_an_existing_folder_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    done = sojourn("run", "bridge-latency", "--bed", "sim", "--quick", "--out", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "out exists and is not an empty folder" in told(done)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_dry_run_shows_the_matrix_and_makes_nothing(tmp_path: Path) -> None:
    done = sojourn("run", "bridge-latency", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0
    assert "fragments" in done.stdout
    assert "8000 blocks" in done.stdout
    assert "h of measuring" in done.stdout
    assert list(tmp_path.iterdir()) == []
    shown = json.loads(sojourn("run", "bridge-latency", "--dry-run", "--quick", "--json", cwd=tmp_path).stdout)
    assert [cell["icmp_bytes"] for cell in shown["cells"]] == [64, 772, 1480]
    assert shown["measuring_ns"] < 50e9


def test_dry_run_says_which_time_limit_its_beds_exceed(tmp_path: Path) -> None:
    given = ("run", "loss", "--quick", "--dry-run", "--json")
    shown = [json.loads(sojourn(*given, "--set", one, cwd=tmp_path).stdout) for one in ("at_most=1s", "at_most=1h")]
    sessions = load_plan("loss", quick=True).bed.sessions
    told = f"trials.at_most = 1s is too short: at least {2 * sessions} rounds are measured on {sessions} beds"
    assert [one.get("over_limit") for one in shown] == [told, None]
    short, long = (one["measuring_ns"] for one in shown)
    assert 1e9 < short <= long


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("list nope", "no study is called nope: `sojourn list` shows them all"),
        ("list bridge-latecy", "no study is called bridge-latecy (did you mean bridge-latency?)"),
        ("export somewhere --to prometeus", "expected prometheus or hdr or latex (did you mean prometheus?)"),
        ("export somewhere --to hdrr", "expected prometheus or hdr or latex (did you mean hdr?)"),
    ],
)
def test_mistyped_name_gets_a_suggestion(words: str, said: str) -> None:
    done = sojourn(*words.split())
    assert done.returncode == 2
    assert said in done.stderr


def test_one_study_is_listed_by_its_name() -> None:
    assert [study["name"] for study in json.loads(sojourn("list", "frame-size", "--json").stdout)] == ["frame-size"]
    assert sojourn("list", "published").stdout.startswith("published  What does each")


def test_studies_are_listed_and_beds_drawn(tmp_path: Path) -> None:
    assert "bridge-latency       How long" in sojourn("list").stdout
    listed = {study["name"] for study in json.loads(sojourn("list", "--json").stdout)}
    emulators = {f"emulator-{what}" for what in ("delay", "delay-rate", "loss", "overhead", "throughput")}
    rated = {f"rated-{what}" for what in ("frame-size", "queue", "fan-in", "throughput", "mixed", "phase")}
    several = {"pairs", "departures", "emulator", "taps", "tcp-cost", "tcp-truth", "tcp-perturbation", "tcp-load"}
    several |= {"tcp-windows"}
    methods = set(packages()) - several
    tcplog = {f"tcplog-{what}" for what in ("cost", "perturbation", "truth")}
    pairs = {"bridge-latency", "capture-cost", "frame-size", "ping-wait"}
    flows = {"bufferbloat", "rrul", "coexistence", "aqm", "tcp-methodology", "dummynet-tcp", "tcp-hypotheses"}
    flows |= {"rtt-fairness", "cubic-region"}
    taps = {"bridge-modes", "bridge-modes-tcp", "timestamp-accuracy"}
    assert listed == {"published", *taps, *pairs, *methods, *emulators, *rated, *tcplog, *flows}
    assert "[bridge]──[bridge]" in sojourn("bed", "show", "frame-size").stdout
    assert sojourn("--version").stdout.startswith("sojourn ")


def test_a_bed_is_drawn_with_its_further_ends_and_bypasses() -> None:
    shown = sojourn("bed", "show", "background").stdout
    assert "a-bridge-2" in shown
    assert "direct/bypass" in shown


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fan-in", ["senders", "flood", "trials, after", "in a random order and its mirror"]),
        ("background", ["90 % beside", "request-response"]),
        ("loss", ["unknown", "110 %"]),
        ("rfc2544", ["back-to-back", "mlrsearch", "0, 0.005", "searches"]),
    ],
)
def test_a_dry_run_of_streams_shows_what_varies(name: str, words: list[str]) -> None:
    shown = " ".join(sojourn("run", name, "--dry-run", COLUMNS="200").stdout.split())
    assert [word for word in words if word not in shown] == []
    whole = json.loads(sojourn("run", name, "--dry-run", "--json").stdout)
    assert whole["study"] == name
    assert whole["total_ns"] > whole["measuring_ns"] > 0
    assert len(whole.get("cells", whole.get("searches"))) > 1


def test_durations_are_formatted_for_people() -> None:
    assert [words(int(seconds * 1e9)) for seconds in (40.3, 150, 9000)] == ["40 s", "2 min", "2.5 h"]


def test_columns_of_the_matrix_have_units() -> None:
    cell = expansion(load_plan("frame-size"))["cells"][-1]
    assert cell["request_frame_bytes"] == 82
    assert cell["response_frame_bytes"] == 1518
    assert cell["interval_ns"] is None


def test_link_present_in_only_one_run_is_reported_once() -> None:
    link = "hosts.d.links.d-wire-1l"
    changes = [{"key": f"{link}.{fact}", "values": ["up", None]} for fact in ("flags", "mtu", "offloads.tx")]
    both = {"key": "hosts.d.links.d-bridge-1l.mtu", "values": [1500, 9000]}
    assert whole_links([*changes, both]) == [{"key": link, "values": ["there", None]}, both]


def test_label_of_compared_figures_includes_different_response_sizes() -> None:
    row = {"payload_bytes": 64, "response_payload_bytes": 1500}
    assert sizes(row) == "64 B for 1500 B"
    assert sizes(row | {"response_payload_bytes": 64}) == "64 B"


def test_compared_figures_that_differ_in_address_or_load_have_labels_of_their_own() -> None:
    row = dict.fromkeys(RESULTS) | {"device": "bridge", "quantity": "loss_ratio", "statistic": "ratio"}
    row |= {"engine": "packet", "frame_bytes": 64, "schedule": "poisson", "to": "unicast", "rate_share": 0.5}
    others: list[dict[str, Any]] = [
        {}, {"to": "unknown"}, {"rate_share": 1.0}, {"schedule": "flood"}, {"port": 1}, {"senders": 2},
    ]  # fmt: skip
    assert len({label(row | other) for other in others}) == len(others)
    assert "poisson at 50 % of the throughput, to unicast" in label(row)


def test_comparison_lists_the_differences_of_the_runs(synthetic: Callable[..., Any]) -> None:
    one = synthetic(rounds=8).write()
    two = synthetic(rounds=9, latency_ns={"bridge": 2600.0}).write()
    for number, path in enumerate((one, two)):
        analyse(path)
        stable = {"machine": {"kernel": {"release": f"6.{number}"}, "cores": 2}}
        (path / "bed.json").write_text(json.dumps({"stable": stable}))
    compared = compare_runs(one, two)
    assert compared["bed"] == [{"key": "machine.kernel.release", "values": ["6.0", "6.1"]}]
    assert {"key": "pairs.rounds", "values": [8, 9]} in compared["plan"]
    pooled = next(row for row in compared["results"] if (row["quantity"], row["statistic"], row["device"]) == (
        "device_latency", "pooled", "bridge"))  # fmt: skip
    first, second = (side["estimate"] for side in pooled["runs"])
    assert second - first == pytest.approx(1300, abs=150)
    done = sojourn("compare", str(one), str(two))
    assert done.returncode == 1, "the second bridge is slower"
    assert "machine.kernel.release: 6.0 → 6.1" in done.stdout
    words = " ".join(done.stdout.split())
    assert words.startswith("Worse (another bed is not covered): of ")
    assert "clearest: bridge over direct: latency" in words
    assert json.loads(sojourn("compare", str(two), str(one), "--json").stdout)["answer"] == "better"


def test_runs_without_a_figure_in_common_have_no_empty_table(
    synthetic: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = synthetic(rounds=8).write(), synthetic(rounds=8, icmp_bytes=(1000,)).write()
    for path in (one, two):
        analyse(path)
        (path / "bed.json").write_text("{}")
    compared = compare_runs(one, two)
    print_comparison(compared | {"results": [], "answer": "nothing in common"})
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("The runs have no figure in common: their devices, probes, sizes or intervals differ.")
    assert "figure first second" not in told
    assert "plan: 1 key differs" in told
    assert "bed: no difference" in told


def test_figures_of_an_earlier_version_are_not_dropped_in_silence(synthetic: Callable[..., Any]) -> None:
    old, new = synthetic(rounds=8).write(), synthetic(rounds=8).write()
    for path in (old, new):
        analyse(path)
        (path / "bed.json").write_text("{}")
    assert compare_runs(old, new)["bed"] == []
    results = old / "analysis/results.json"
    rows = json.loads(results.read_text())
    results.write_text(json.dumps([*rows, rows[0] | {"quantity": "knee"}]))
    with pytest.raises(RequestError, match=f"made by an earlier version: run `sojourn report {old}` first"):
        compare_runs(old, new)


def test_help_of_the_emulator_names_the_sojourn_command() -> None:
    assert "sojourn emulate verify" in program("emulate", "--help").stdout
