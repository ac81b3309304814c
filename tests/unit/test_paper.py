"""`sojourn export --to latex`: structure, figures, units and captions of tables for papers, of archived runs.

Here the structure that booktabs and siunitx need is parsed; tests/golden/test_latex.py, of `make proof`, runs LaTeX. A
figure that differs from results.json by more than its last digit fails.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sojourn.analysis import analyse
from sojourn.report.contents import all_tables
from sojourn.report.paper import heading_of
from sojourn.report.run import Run
from sojourn.report.siunitx import NUMBER
from sojourn.report.table import Column, Entry, Table, text
from tests.unit.in_process import sojourn

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[1] / "golden"
LATENCY = ("device", "reference", "latency", "ci")


class Parsed(NamedTuple):
    """A table read back from its LaTeX."""

    shapes: list[str]
    heads: list[str]
    rows: list[list[str]]
    caption: str


def parsed(tex: str) -> Parsed:
    """The table; fails where a row has another number of entries than the table has columns."""
    assert tex.count("{") - tex.count(r"\{") == tex.count("}") - tex.count(r"\}")
    assert re.findall(r"\\(begin|end)\{(\w+)\}", tex) == [
        ("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table"),
    ]  # fmt: skip
    shape = re.search(r"\\begin\{tabular\}\{(.*)\}$", tex, re.MULTILINE)
    assert shape is not None
    shapes = re.findall(r"[lr]|S\[table-format=-?\d+(?:\.\d+)?\]", shape[1])
    assert "".join(shapes) == shape[1]
    head, _, body = tex.partition(r"\midrule")
    lines = [line.strip() for line in body.partition(r"\bottomrule")[0].strip().splitlines()]
    assert all(line.endswith(r" \\") for line in lines)
    rows = [re.split(r" (?<!\\)& ", line.removesuffix(r" \\")) for line in lines]
    heads = re.split(r" (?<!\\)& ", head.strip().splitlines()[-1].strip().removesuffix(r" \\"))
    for row in [*rows, heads]:
        assert len(row) == len(shapes), row
    for row in rows:
        for one, form in zip(row, shapes, strict=True):
            assert not form.startswith("S") or NUMBER.fullmatch(one) or re.fullmatch(r"\{.*\}", one), one
    caption = re.search(r"\\caption\{(.*)\}$", tex, re.MULTILINE)
    assert caption is not None
    return Parsed(shapes, heads, rows, caption[1])


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """An archived run by its name, analysed once."""
    folder, done = tmp_path_factory.mktemp("paper"), set()

    def unpack(name: str) -> Path:
        if name not in done:
            with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
                archive.extractall(folder, filter="data")
            analyse(folder / name)
            done.add(name)
        return folder / name

    return unpack


def exported(run: Path, *words: str) -> str:
    done = sojourn("export", str(run), "--to", "latex", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def latencies(run: Path) -> list[dict[str, Any]]:
    rows = json.loads((run / "analysis/results.json").read_text())
    return [row for row in rows if (row["quantity"], row["statistic"]) == ("device_latency", "mean")]


@pytest.mark.parametrize(
    ("unit", "ns", "macro"), [("us", 1e3, r"\micro"), ("ns", 1.0, r"\nano"), ("ms", 1e6, r"\milli")]
)
def test_table_values_equal_the_results_in_the_requested_unit(
    run_of: Callable[[str], Path], unit: str, ns: float, macro: str
) -> None:
    run = run_of("bridge-latency-real")
    table = parsed(exported(run, "--columns", ",".join(LATENCY), "--units", unit))
    assert len(table.rows) == len(latencies(run)) == 4
    assert table.heads[2] == rf"{{Device latency (\unit{{{macro}\second}})}}"
    for words, row in zip(table.rows, latencies(run), strict=True):
        assert words[:2] == [row["device"], row["reference"]]
        for printed, key in zip(words[2:5], ("estimate", "ci_low", "ci_high"), strict=True):
            last = 10.0 ** -len(printed.partition(".")[2])
            assert abs(float(printed) * ns - row[key]) <= 0.51 * last * ns, (printed, row[key])
            assert last * ns <= 0.1 * (row["ci_high"] - row["ci_low"])  # ten per cent of the interval would be seen
        assert int(words[5]) == row["n"]


def test_interval_level_and_n_are_always_included(run_of: Callable[[str], Path]) -> None:
    run = run_of("bridge-latency-real")
    asked = exported(run, "--columns", "device,reference,latency", "--where", "reference=wire")
    table = parsed(asked)
    assert [table.heads[-3].split()[0], table.heads[-2].split()[0], table.heads[-1]] == ["{Low", "{High", "{n}"]
    assert r"\multicolumn{2}{c}{95 \% CI}" in asked
    assert len(table.rows) == 1
    varied = parsed(
        exported(run, "--columns", "device,reference,statistic,level", "--where", "statistic=hodges_lehmann")
    )
    assert [row[3] for row in varied.rows] == ["95.1"] * 4


def test_differing_confidence_levels_get_a_column(run_of: Callable[[str], Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(run_of("bridge-latency-real"), tmp_path / "run"))
    results = run / "analysis/results.json"
    rows = json.loads(results.read_text())
    next(row for row in rows if row["quantity"] == "device_latency")["level"] = 0.9
    results.write_text(json.dumps(rows))
    asked = exported(run)
    table = parsed(asked)
    assert r"\multicolumn{2}{c}{CI}" in asked
    assert {row[table.heads.index(r"{Level (\unit{\percent})}")] for row in table.rows} == {"90", "95"}
    assert "their level in the table" in table.caption


def test_caption_states_only_what_all_figures_have_in_common(run_of: Callable[[str], Path]) -> None:
    run = run_of("bridge-latency-real")
    caption = parsed(exported(run)).caption
    row = latencies(run)[0]
    for said in (f"frame {row['frame_bytes']} B", "250 \\textmu{}s", "statistic mean", f"{row['sessions']} beds"):
        assert said in caption
    assert "95 \\% confidence" in caption
    assert "measured on 2026-11-27" in caption
    assert ", Linux 6." in caption
    assert "CPUs, verdict trusted" in caption
    assert "reference" not in caption
    assert "Simulated" not in caption
    assert parsed(exported(run_of("bridge-latency"))).caption.startswith("Simulated, not measured")
    doubtful = parsed(exported(run_of("rfc2544"), "--quantity", "latency_typical"))
    assert "verdict doubtful: contended heavily" in doubtful.caption
    assert "No figure has an interval." in doubtful.caption


def test_ratio_is_printed_in_percent_or_plain(run_of: Callable[[str], Path]) -> None:
    words = ("--quantity", "loss_ratio", "--where", "device=bridge", "--columns", "device,frame_bytes", "--units")
    share, percent = (parsed(exported(run_of("throughput"), *words, one)).rows for one in ("1", "%"))
    for one, other in zip(share, percent, strict=True):
        assert float(other[2]) == pytest.approx(100 * float(one[2]), abs=0.06)
        assert 70 < float(other[2]) < 90


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--columns device,latency",
            "rows differ in reference, which is no column: name it in --columns, or choose by",
        ),
        ("--columns devise", "no column devise (did you mean device?)"),
        ("--units furlong", "--units furlong: device_latency is in ns: expected ns or us or ms or s"),
        ("--quantity device_latencies", "no device_latencies (did you mean device_latency?)"),
        ("--where device=switch", "--where device=switch: no figure; device is a/a or wire or bridge"),
        ("--where device", "expected COLUMN=VALUE"),
        ("--columns device_latency,rtt", "a table has one quantity"),
        ("--to prometheus --units us", "--units is an option of --to latex"),
    ],
)
def test_impossible_requests_are_one_sentence(run_of: Callable[[str], Path], words: str, said: str) -> None:
    to = () if "--to" in words else ("--to", "latex")
    done = sojourn("export", str(run_of("bridge-latency-real")), *to, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("name", ["bridge-latency-real", "rfc2544", "tcplog-cost"])
def test_tables_of_a_report_have_as_many_entries_as_columns(run_of: Callable[[str], Path], name: str) -> None:
    for table in all_tables(Run.read(run_of(name))):
        found = parsed(table.latex())
        assert len(found.rows) == len(table.rows), table.name


@pytest.mark.parametrize(
    ("name", "heading"),
    [("pdr", "PDR"), ("ndr_bps", "NDR bps"), ("rtt_idle", "RTT idle"), ("device_latency", "Device latency")],
)
def test_abbreviations_keep_their_capitals(name: str, heading: str) -> None:
    assert heading_of(name) == heading


def test_text_entries_are_not_aligned_as_numbers() -> None:
    columns = (Column(("a",), "A & B", "µs"), Column(("b",), "CI", "µs"), Column(("c",), "n"))
    rows = (
        (Entry("\u2212 1".replace(" ", "")), Entry("\u22120.02 to 0.05"), Entry("48 rounds")),
        (Entry("1\u202f234.5"), Entry("1.24\u20131.38"), text("\u2013")),
    )
    table = parsed(Table("t", "50 % of_it", columns, rows).latex())
    assert table.shapes == ["S[table-format=-4.1]", "r", "r"]
    assert table.heads[0] == r"{A \& B (\unit{\micro\second})}"
    assert table.rows == [["-1", r"\numrange{-0.02}{0.05}", "48 rounds"], ["1234.5", r"\numrange{1.24}{1.38}", "--"]]
    assert table.caption == r"50 \% of\_it"
