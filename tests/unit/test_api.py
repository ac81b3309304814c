"""The package for programs: `import sojourn` loads nothing, a finished run is opened, a study is run."""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import altair as alt
import polars as pl
import pytest

import sojourn
from sojourn.api.measure import spelled
from sojourn.api.tcplog import TcpLog
from sojourn.errors import RequestError
from sojourn.records.results import read_parquet
from sojourn.records.whole_file import write_table

GOLDEN = Path(__file__).parents[1] / "golden/bridge-latency.tar.xz"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> sojourn.Run:
    """A recorded run, which nobody has analysed."""
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN) as packed:
        packed.extractall(folder, filter="data")
    return sojourn.open(folder / "bridge-latency")


def test_package_exports_all_names_lazily() -> None:
    loading = "import sys; before = set(sys.modules); import sojourn; print(sorted(set(sys.modules) - before))"
    loaded = ast.literal_eval(subprocess.check_output([sys.executable, "-c", loading], text=True))
    assert loaded == ["__future__", "sojourn", "sojourn.lazy", "sojourn.version"]
    for name in sojourn.__all__:
        assert getattr(sojourn, name)
    with pytest.raises(AttributeError, match="module 'sojourn' has no attribute 'measure'"):
        _ = sojourn.measure  # type: ignore[attr-defined]


def test_a_run_has_its_verdict_and_its_headline(golden: sojourn.Run) -> None:
    verdict = json.loads(golden.folder.verdict.read_text())
    assert (golden.verdict, golden.sentence) == ("trusted", verdict["sentence"])
    assert golden.headline is not None
    assert golden.headline.value == pytest.approx(verdict["pairs"]["estimate"])
    assert golden.headline.low is not None
    assert golden.headline.high is not None
    assert golden.headline.low < verdict["pairs"]["estimate"] < golden.headline.high
    assert golden.headline.unit == "ns"
    assert golden.findings == ()
    assert golden.plan["study"]["method"] == "pairs"
    assert golden.bed == json.loads(golden.folder.bed.read_text())


def test_the_headline_of_a_suite_is_the_first_rate_of_its_sentence(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN.with_name("rfc2544.tar.xz")) as packed:
        packed.extractall(tmp_path, filter="data")
    run = sojourn.open(tmp_path / "rfc2544")
    assert run.headline is not None
    assert run.headline.unit == "1/s"
    assert f"{run.headline.value:,.0f} frames/s".replace(",", "\u202f") in run.sentence
    assert run.headline.value == run.estimate("pdr", statistic="rate").value


def test_findings_equal_those_of_the_verdict(golden: sojourn.Run) -> None:
    verdict = json.loads(golden.folder.verdict.read_text())
    one = {"name": "drift", "severity": "note", "where": "bridge", "sentence": "it drifts", "value": 1.0, "places": []}
    golden.folder.verdict.write_text(json.dumps({**verdict, "findings": [one]}))
    assert sojourn.open(golden.path).findings == (sojourn.Finding("drift", "note", "bridge", "it drifts"),)
    golden.folder.verdict.write_text(json.dumps(verdict))


def test_estimate_is_selected_by_its_columns(golden: sojourn.Run) -> None:
    rows = json.loads(golden.folder.results.read_text())
    assert golden.results.height == len(rows)
    asked = {"quantity": "device_latency", "device": "bridge", "reference": "direct", "statistic": "pooled"}
    row = next(row for row in rows if all(row[name] == value for name, value in asked.items()))
    found = golden.estimate("device_latency", device="bridge", reference="direct", statistic="pooled")
    assert found == (row["estimate"], row["ci_low"], row["ci_high"], "ns", 0.95, row["n"])


@pytest.mark.parametrize(
    ("quantity", "columns", "sentence"),
    [
        ("device_latency", {"device": "bridge"}, r"7 figures are device_latency, .*: say which by .*statistic"),
        ("device_latenzy", {}, r"no figure is device_latenzy \(did you mean device_latency\?\)"),
        ("device_latency", {"devise": "bridge"}, r"results have no column devise \(did you mean device\?\)"),
        ("device_latency", {"device": None}, "no figure is device_latency, device=None"),
    ],
)
def test_ambiguous_or_missing_estimate_is_refused(
    golden: sojourn.Run, quantity: str, columns: dict[str, str | None], sentence: str
) -> None:
    with pytest.raises(sojourn.RequestError, match=sentence):
        golden.estimate(quantity, **columns)


def test_tables_are_frames_and_figures_are_charts(golden: sojourn.Run, tmp_path: Path) -> None:
    assert {"timeline", "pairs", "rtt_quantiles"} <= golden.samples.keys()
    assert all(isinstance(frame, pl.DataFrame) for frame in golden.samples.values())
    assert set(golden.records("probes")["block"].unique()) == set(golden.records("blocks")["block"].unique())
    with pytest.raises(sojourn.RequestError, match=r"no table probe: expected one of .* \(did you mean probes\?\)"):
        golden.records("probe")
    charts = golden.charts
    assert isinstance(charts["rtt_cdf"], alt.TopLevelMixin)
    charts["rtt_cdf"].save(tmp_path / "x.svg")
    assert "Round-trip time" in (tmp_path / "x.svg").read_text()


def test_files_written_on_opening_are_private(golden: sojourn.Run, tmp_path: Path) -> None:
    shutil.copytree(golden.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/analysis")
    before = os.umask(0o022)
    try:
        found = sojourn.open(tmp_path / "run")
    finally:
        os.umask(before)
    written = [found.folder.analysis, *found.folder.analysis.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o700, 0o600}


def test_opening_a_run_imports_no_measuring_code(golden: sojourn.Run) -> None:
    left = "('plan', 'bed', 'instruments', 'conduct', 'studies', 'labs')"
    program = (
        f"import sys, sojourn; run = sojourn.open({str(golden.path)!r}); run.charts; run.results; "
        f"print([one for one in sys.modules if one.startswith(tuple('sojourn.' + name for name in {left}))])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_malformed_verdict_is_refused_as_by_compare(golden: sojourn.Run, tmp_path: Path) -> None:
    shutil.copytree(golden.folder.path, tmp_path / "run")
    (tmp_path / "run/analysis/verdict.json").write_text('{"verdict": "trusted", "findings": [7]}')
    with pytest.raises(sojourn.RequestError, match="findings is no array of tables"):
        _ = sojourn.open(tmp_path / "run").verdict


@pytest.mark.parametrize("octets", [b"a =", b"a = [", b"\xff", b"study = 5"])
def test_damaged_plan_is_refused(golden: sojourn.Run, tmp_path: Path, octets: bytes) -> None:
    shutil.copytree(golden.folder.path, tmp_path / "copy")
    (tmp_path / "copy/plan.toml").write_bytes(octets)
    with pytest.raises(RequestError, match=r"plan\.toml (is damaged|cannot be read)"):
        _ = sojourn.open(tmp_path / "copy").plan


@pytest.mark.parametrize("octets", [b"[]", b"{", b'{"parts": 5}'])
def test_damaged_bed_facts_are_refused(golden: sojourn.Run, tmp_path: Path, octets: bytes) -> None:
    shutil.copytree(golden.folder.path, tmp_path / "copy")
    (tmp_path / "copy/bed.json").write_bytes(octets)
    with pytest.raises(RequestError, match=r"bed\.json (is damaged|cannot be read)"):
        _ = sojourn.open(tmp_path / "copy").bed


def test_texts_that_are_stored_once_each_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run/analysis/samples/some.parquet"
    path.parent.mkdir(parents=True)
    write_table(path, pl.DataFrame({"a": pl.Series(["x", "y", None, "x"], dtype=pl.Categorical)}))
    assert read_parquet(path)["a"].to_list() == ["x", "y", None, "x"]


def test_program_that_refuses_a_table_ends_with_its_own_status(tmp_path: Path) -> None:
    """Arrow's threads read on of a file that Python has opened, and aborted a third of such programs at their end."""
    path = tmp_path / "times.parquet"
    pl.DataFrame({"at": [0]}).select(pl.col("at").cast(pl.Datetime)).write_parquet(path)
    code = f"""
import sys
from pathlib import Path
from sojourn.errors import RequestError
from sojourn.records.results import read_parquet
try:
    read_parquet(Path({str(path)!r}))
except RequestError:
    sys.exit(2)
"""
    ended = [subprocess.run([sys.executable, "-c", code], check=False).returncode for _ in range(8)]
    assert set(ended) == {2}


def test_damaged_tables_of_an_analysis_are_refused(golden: sojourn.Run, tmp_path: Path) -> None:
    """polars panics on some of these, which no program can handle."""
    shutil.copytree(golden.folder.path, tmp_path / "copy")
    file, whole = tmp_path / "copy/analysis/results.parquet", golden.folder.analysis / "results.parquet"
    assert sojourn.open(tmp_path / "copy").results.equals(pl.read_parquet(whole))
    rng, octets = random.Random(1), whole.read_bytes()
    refused = []
    for _ in range(200):
        damaged = bytearray(octets)
        damaged[rng.randrange(len(octets) - 8000 if len(octets) > 16_000 else 0, len(octets))] = rng.randrange(256)
        file.write_bytes(damaged)
        try:
            _ = sojourn.open(tmp_path / "copy").results
        except RequestError as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert all("results.parquet cannot be read: " in said for said in refused)


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (None, "has no account: its footer.json is missing"),
        (b"[]", "is damaged: it is not"),
        (b'{"conserved": "yes"}', "conserved is not"),
    ],
)
def test_account_of_a_log_without_its_footer_is_one_sentence(tmp_path: Path, octets: bytes | None, said: str) -> None:
    if octets is not None:
        (tmp_path / "footer.json").write_bytes(octets)
    with pytest.raises(RequestError, match=said):
        _ = TcpLog(tmp_path).account


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sojourn.RequestError, match="is no run folder"):
        sojourn.open(tmp_path)


def test_study_can_be_run_from_python(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    few = {"sessions": 1, "pairs.rounds": 6, "probe.icmp_bytes": [64], "devices": ["wire", "bridge"]}
    found = sojourn.run("bridge-latency", bed="sim", sets=few, out=tmp_path / "run", quick=True)
    assert found.path == tmp_path / "run"
    assert found.plan["bed"]["devices"] == ["wire", "bridge"]
    assert found.headline is not None
    assert not found.folder.report.exists()
    assert capfd.readouterr() == ("", "")
    with pytest.raises(sojourn.RequestError, match="unknown key"):
        sojourn.run("bridge-latency", sets={"x": 1})


def test_values_are_formatted_as_on_the_command_line() -> None:
    assert [spelled(one) for one in (True, ["wire", "bridge"], 20, "1ms", (64, 1480))] == [
        "true", "wire,bridge", "20", "1ms", "64,1480",
    ]  # fmt: skip


NOTED_FIRST = """#!/bin/sh
echo "sojourn-instrument: this kernel refuses the first programs: fewer fields" >&2
echo "sojourn-instrument: $WORD TCP's state at every packet, of sockets below /, into $4" >&2
echo "$@" >"$4.asked"
cat >/dev/null
"""


@pytest.mark.parametrize(("disabled", "word"), [(False, "logs"), (True, "will log, once enabled,")])
def test_log_that_first_reports_a_note_counts_as_started(
    disabled: bool, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a kernel with fewer features, for instance; an option without a value is given or not."""
    stub = tmp_path / "instrument"
    stub.write_text(NOTED_FIRST.replace("$WORD", word))
    stub.chmod(0o755)
    monkeypatch.setattr("sojourn.api.tcplog.find_instrument", lambda: str(stub))
    with sojourn.tcplog(tmp_path / "log", port=5201, disabled=disabled):
        pass
    asked = (tmp_path / "log.asked").read_text().split()
    assert "--port=5201" in asked
    assert ("--disabled" in asked) == disabled
    assert not any("True" in one or "False" in one for one in asked)
