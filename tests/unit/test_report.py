"""The report, from made-up runs: what a person reads, what a program reads, and that one cannot break the other."""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from sojourn.analysis import analyse
from sojourn.errors import RequestError
from sojourn.report import glossary, render_terminal, write_report
from sojourn.report.contents import all_figures
from sojourn.report.published import LAYOUTS, published_tables, read_published
from sojourn.report.run import Run
from sojourn.report.shapes import SHAPES, shapes
from tests.unit import vega_lite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

HOSTILE = "</script><b>*_&|%$#{}~^\\ \u00b5"


MADE: dict[str, Path] = {}
"""Writing a report with all its figures takes seconds: one serves every test that only reads."""


@pytest.fixture
def reported(synthetic: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reported run of a wire, a bridge and two, at two sizes and two intervals; not to be changed."""
    if "run" not in MADE:
        run = synthetic(
            rounds=8,
            icmp_bytes=(64, 1480),
            intervals_ns=(1_000_000, 2_000_000),
            latency_ns={"wire": 400.0, "bridge": 1300.0, "bridge*2": 2600.0},
            per_byte_ns={"bridge": 0.4, "bridge*2": 0.8},
            count=24,
        )
        path = tmp_path_factory.mktemp("reported") / "run"
        shutil.copytree(run.write(), path)
        plan = path / "plan.toml"
        names = ", ".join(f'"{name}"' for name in LAYOUTS)
        plan.write_text(plan.read_text().replace('name = "made-up"', f'name = "made-up"\npublished = [{names}]'))
        analyse(path)
        write_report(path, vector=True)
        MADE["run"] = path
    return MADE["run"]


@pytest.fixture
def page(reported: Path) -> str:
    """The page of that run."""
    return (reported / "report" / "index.html").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An analysed run by hand, without samples (so without figures), to be changed at will."""
    _write_by_hand(tmp_path)
    return tmp_path


def test_report_is_complete(reported: Path) -> None:
    folder = reported
    figures = {"rtt_cdf", "rtt_over_time", "size_lines", "paired_differences", "a_a_control", "pacing_error"}
    assert {path.stem for path in (folder / "report" / "figures").glob("*.svg")} == figures
    assert {path.stem for path in (folder / "report" / "figures").glob("*.pdf")} == figures
    for path in (folder / "report" / "figures").iterdir():
        assert path.stat().st_size > 2000, path
        assert "var(--" not in path.read_text(errors="replace"), f"{path} needs the page's style"
    tables = {path.name for path in (folder / "report" / "tables").iterdir()}
    for stem in ("device_latency", "rtt", "lines", "conservation", "departures", "published_bridge2003_rtt"):
        assert {f"{stem}.csv", f"{stem}.md", f"{stem}.tex"} <= tables


def test_the_page_leads_with_the_verdict(reported: Path, page: str) -> None:
    verdict = json.loads((reported / "analysis" / "verdict.json").read_text())
    body = page.replace("\u00a0", " ").partition("<body>")[2]
    assert body.index(verdict["sentence"].partition(";")[0]) < body.index("<h2")
    assert f'<span class="badge">{verdict["verdict"]}</span>' in body


def test_reasons_for_doubt_are_at_the_top(folder: Path) -> None:
    _change_verdict(folder, verdict="doubtful", findings=[_finding("sender_late", "9 % left late")])
    body = _read(write_report(folder)).partition("<body>")[2]
    top = body.partition("<h2")[0]
    assert "doubtful" in top
    assert "9 % left late" in top
    assert "sender late" in top


def test_content_security_policy_allows_exactly_our_scripts(page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    allowed = set(re.findall(r"sha256-([\w+/=]+)", policy[1].replace("&#39;", "'")))
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert digests == allowed
    assert "default-src 'none'" in policy[1].replace("&#39;", "'")
    assert "unsafe-eval" not in policy[1]


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    without_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r"""(?:src|href)=["'](?!#|data:|\.\./|figures/|tables/)""", without_scripts) == []
    assert re.findall(r"url\(|@import", without_scripts) == []


def test_every_link_leads_to_a_file(reported: Path, page: str) -> None:
    links = re.findall(r'href="((?:\.\./|figures/|tables/)[^"]+)"', page)
    assert len(links) > 20
    assert [link for link in links if not (reported / "report" / link).is_file()] == []


def test_every_specification_is_valid_vega_lite(reported: Path) -> None:
    for figure in all_figures(Run.read(reported)):
        for panel in figure.panels:
            vega_lite.check(panel.page())


def test_html_in_names_is_escaped(folder: Path) -> None:
    _change_verdict(folder, sentence=HOSTILE, findings=[_finding(HOSTILE, HOSTILE)])
    plan = folder / "plan.toml"
    plan.write_text(plan.read_text().replace('title = "By hand"', f"title = '{HOSTILE}'"))
    (folder / "bed.json").write_text(json.dumps({HOSTILE: {HOSTILE: HOSTILE}, "drawing": _drawing(HOSTILE)}))
    page = write_report(folder).read_text()
    assert "<b>" not in page.partition("<body>")[2].partition('<script type="module">')[0]
    tex = (folder / "report" / "tables" / "findings.tex").read_text()
    assert r"\textless{}/script\textgreater{}" in tex
    assert r"\_\&\textbar{}\%\$\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in tex
    markdown = (folder / "report" / "tables" / "findings.md").read_text()
    assert [line.replace("\\|", "").count("|") for line in markdown.splitlines() if line.startswith("|")] == [5, 5, 5]
    assert not re.search(r"(?<!\\)<b>", markdown)


def test_csv_equals_results_json(reported: Path) -> None:
    folder = reported
    rows = list(csv.DictReader(io.StringIO((folder / "report" / "tables" / "device_latency.csv").read_text())))
    results = json.loads((folder / "analysis" / "results.json").read_text())
    wanted = [row for row in results if row["quantity"] == "device_latency" and row["statistic"] in ("pooled", "mean")]
    assert len(rows) == len(wanted)
    pooled = next(r for r in wanted if (r["device"], r["reference"], r["statistic"]) == ("bridge", "wire", "pooled"))
    row = next(
        r for r in rows if (r["device"], r["reference"]) == ("bridge", "wire") and r["cell"].startswith("pooled")
    )
    for key, source in (("device_latency_us", "estimate"), ("ci_low_us", "ci_low"), ("ci_high_us", "ci_high")):
        assert float(row[key]) == pytest.approx(pooled[source] / 1000, rel=1e-9)


def test_published_figures_stand_beside_ours(reported: Path) -> None:
    run = Run.read(reported)
    tables = {table.name: table for table in published_tables(run).tables}
    beside = ("bridge2003_rtt", "dummynet2003_rtt", "bridge2003_quantiles", "atlas2000_latency_fits")
    assert set(tables) == {"shapes", *(f"published_{name}" for name in beside)}, "tables without a figure of ours"
    assert len(published_tables(run).unmatched) == len(LAYOUTS) - len(beside)
    ping = tables["published_bridge2003_rtt"]
    keys = [column.keys[0] for column in ping.columns]
    row = next(row for row in ping.rows if row[1].text == "bridge, 200 MHz" and row[3].text == "2")
    assert row[keys.index("published_rtt_avg_us")].text == "126"
    assert row[keys.index("our_interval_ms")].text == "2", "their 500 pps stands beside our 2 ms"
    assert 1.1 < float(row[keys.index("our_latency_us")].values[0] or 0) < 1.6
    shaped = next(row for row in ping.rows if "dummynet" in row[1].text)
    assert shaped[keys.index("our_latency_us")].values[0] is None, "no path of ours is a shaped one"
    fits = tables["published_atlas2000_latency_fits"]
    assert any(row[5].text.startswith("bridge*2, whole path") for row in fits.rows)


def test_latency_added_by_captures_is_shown_beside_the_published_values(synthetic: Callable[..., Any]) -> None:
    path = synthetic(
        icmp_bytes=(64,), intervals_ns=(20_000_000,), latency_ns={"bridge": 1300.0, "bridge:tcpdump": 2400.0},
        per_byte_ns={}, hypotheses=(), plan_extra='reference = "bridge"',
    ).write()  # fmt: skip
    plan = path / "plan.toml"
    named = 'name = "made-up"\npublished = ["bridge2003_capture_cost"]'
    plan.write_text(plan.read_text().replace('name = "made-up"', named))
    analyse(path)
    (table,) = published_tables(Run.read(path)).tables
    keys = [column.keys[0] for column in table.columns]
    first = dict(zip(keys, (entry.text for entry in table.rows[0]), strict=True))
    assert (first["bytes"], first["published_added_us"], first["device"]) == ("64", "4", "bridge:tcpdump")
    assert float(first["our_added_us"]) == pytest.approx(1.1, abs=0.05)
    none = dict(zip(keys, (entry.text for entry in table.rows[2]), strict=True))
    assert (none["bytes"], none["our_added_us"]) == ("1480", "–"), "the run has no such size"


def test_published_ratios_equal_the_published_tables() -> None:
    pings = read_published("bridge2003_rtt")

    def of(table: str, device: str, key: str, mhz: str = "") -> list[float]:
        wanted = [row for row in pings if (row["table"], row["device"]) == (table, device)]
        return [float(row[key]) for row in wanted if mhz in ("", row["cpu_mhz"])]

    def span(over: list[float], under: list[float]) -> list[float]:
        return [above / below for above in over for below in under]

    latency = "bridge_latency_us"
    found = {
        "RTT with the bridge over without, 64 B": [
            ratio for t in "35" for ratio in span(of(t, "bridge", "rtt_avg_ms"), of(t, "none", "rtt_avg_ms"))],
        "RTT with the bridge over without, 1480 B": [
            ratio for t in "46" for ratio in span(of(t, "bridge", "rtt_avg_ms"), of(t, "none", "rtt_avg_ms"))],
        "Latency of the bridge, 1480 B over 64 B": [
            ratio for small, large in ("34", "56") for mhz in ("100", "200")
            for ratio in span(of(large, "bridge", latency, mhz), of(small, "bridge", latency, mhz))],
        "Latency of the bridge, 500/s over 50/s, 64 B": [
            ratio for mhz in ("100", "200")
            for ratio in span(of("5", "bridge", latency, mhz), of("3", "bridge", latency, mhz))],
        "Latency of the bridge, 500/s over 50/s, 1480 B": [
            ratio for mhz in ("100", "200")
            for ratio in span(of("6", "bridge", latency, mhz), of("4", "bridge", latency, mhz))],
    }  # fmt: skip
    for shape in SHAPES:
        if shape.published == "bridge2003_rtt":
            ratios = found[shape.words]
            assert shape.theirs == pytest.approx((min(ratios), max(ratios)), rel=4e-3), shape.words


def test_our_ratios_have_bounds(reported: Path) -> None:
    table = shapes(Run.read(reported))
    rows = {row[0].text: row for row in table.rows}
    ratio = float(rows["Latency of the bridge, 1480 B over 64 B"][3].values[0] or 0)
    assert ratio == pytest.approx((1300 + 0.4 * 1518) / (1300 + 0.4 * 102), rel=0.05), "what the run was made with"
    twice = rows["Two switches over one: the constant"]
    low, high = (float(end or 0) for end in twice[4].values)
    assert low < 2 < high


def test_a_run_without_samples_or_bed_still_makes_a_page(folder: Path) -> None:
    page = write_report(folder)
    assert 'id="figures"' not in page.read_text()
    assert list((folder / "report" / "figures").iterdir()) == []


def test_report_is_reproducible(reported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(reported, folder)
    first = (folder / "report" / "index.html").read_bytes()
    (folder / "report" / "figures" / "stale.svg").write_text("of an earlier report")
    assert write_report(folder, vector=True).read_bytes() == first
    assert not (folder / "report" / "figures" / "stale.svg").exists()


def test_figures_are_separate_files_only_on_request(reported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(reported, folder)
    page = write_report(folder).read_text()
    assert list((folder / "report" / "figures").iterdir()) == []
    assert "figures/rtt_cdf.svg" not in page
    assert "sojourn report run --vector" in page.replace("\u00a0", " ")


def test_a_folder_without_analysis_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"results\.json is missing"):
        write_report(tmp_path)


def test_a_term_links_to_its_meaning_on_the_page(folder: Path) -> None:
    write_report(folder)
    page = _read(folder / "report" / "index.html")
    used = set(re.findall(r'class="term" href="#([\w-]+)"', page))
    explained = set(re.findall(r'<dt id="([\w-]+)">', page))
    assert {"term-a-a-control"} <= used <= explained


def test_only_unambiguous_terms_are_linked_to_the_glossary() -> None:
    linked = str(glossary.link("Round by round, path MTU of a block device: run it; pacing errors, device under test"))
    assert re.findall(r">([^<]+)</a>", linked) == ["pacing errors", "device under test"]
    assert set(glossary.LINKED.values()) <= glossary.glossary().keys()


def test_terminal_output_is_as_recorded(folder: Path, snapshot: SnapshotAssertion) -> None:
    file = io.StringIO()
    render_terminal(folder, Console(file=file, width=80, force_terminal=False))
    printed = file.getvalue().replace(str(folder), "RUN")
    assert max(len(line) for line in printed.splitlines()) <= 80
    assert "\n".join(line.rstrip() for line in printed.splitlines()) == snapshot


def test_latency_table_is_as_recorded_in_every_format(folder: Path, snapshot: SnapshotAssertion) -> None:
    write_report(folder)
    for kind in ("md", "tex", "csv"):
        assert (folder / "report" / "tables" / f"device_latency.{kind}").read_text() == snapshot(name=kind)


def _read(page: Path) -> str:
    """The page with its no-break spaces as plain ones."""
    return page.read_text().replace("\u00a0", " ")


def _finding(name: str, sentence: str) -> dict[str, Any]:
    return {"name": name, "severity": "doubtful", "where": "the whole run", "sentence": sentence, "value": 0.09}


def _drawing(word: str) -> dict[str, Any]:
    link = {"path": word, "from": "a", "to": "b", "from_port": word, "to_port": word}
    return {"nodes": [{"id": "x", "label": word, "kind": "bridge", "path": word}], "links": [link]}


def _change_verdict(folder: Path, **changes: Any) -> None:
    path = folder / "analysis" / "verdict.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _write_by_hand(folder: Path) -> None:
    """A run of one device at two sizes, with numbers that are easy to follow by eye."""
    (folder / "analysis").mkdir()
    (folder / "plan.toml").write_text(
        '[study]\nname = "by-hand"\ntitle = "By hand"\nmethod = "pairs"\n[bed]\ndevices = ["bridge"]\n'
        '[probe]\nprobe = ["icmp"]\nicmp_bytes = [64, 1480]\n'
    )
    rows = [
        _row("bridge", "pooled", (1600.0, 1560.0, 1640.0)),
        _row("a/a", "pooled", (-4.0, -50.0, 42.0), level=0.9990),
        _row("a/a", "pooled", (50.0, None, None), quantity="resolution"),
        _row("bridge", "mean", (1330.0, 1260.0, 1400.0), size=64, cell=0),
        _row("bridge", "mean", (1890.0, 1820.0, 1960.0), size=1480, cell=1),
        _row("a/a", "mean", (0.0, -64.0, 64.0), size=64, cell=0),
        _row("a/a", "mean", (-9.0, None, None), size=1480, cell=1),
        _row("bridge", "fit", (1310.0, 1240.0, 1380.0), quantity="latency_intercept"),
        _row("bridge", "fit", (0.4, 0.371, 0.429), quantity="latency_slope", unit="ns/byte"),
    ]
    hypotheses = [
        {"hypothesis": "constant-plus-per-byte", "outcome": "supported", "sentence": "a line leaves nothing over"}
    ]
    verdict = {
        "run": "by-hand",
        "study": "by-hand",
        "verdict": "doubtful",
        "sentence": "The bridge adds 1.31 µs.",
        "hypotheses": hypotheses,
        "findings": [_finding("sender_late", "9 % of departures were late.")],
    }
    (folder / "analysis" / "results.json").write_text(json.dumps(rows))
    (folder / "analysis" / "verdict.json").write_text(json.dumps(verdict))


def _row(
    device: str,
    statistic: str,
    value: tuple[float, float | None, float | None],
    quantity: str = "device_latency",
    unit: str = "ns",
    size: int | None = None,
    cell: int | None = None,
    level: float = 0.95,
) -> dict[str, Any]:
    estimate, low, high = value
    sizes = {} if size is None else {"icmp_bytes": size, "payload_bytes": size - 8, "response_payload_bytes": size - 8}
    return {
        "device": device, "reference": "direct", "probe": "icmp", "schedule": "regular", "interval_ns": 1_000_000,
        "quantity": quantity, "statistic": statistic, "estimate": estimate, "ci_low": low, "ci_high": high,
        "level": level, "unit": unit, "n": 12, "probes": 960, "cell": cell, "clock": "TAI", "source": "kernel",
        "findings": [], **sizes,
    }  # fmt: skip


def test_report_imports_no_measuring_code() -> None:
    """`sojourn report` works where nothing can be measured: no orchestrator, bed or instrument is imported."""
    code = (
        "import sys; from sojourn.cli import main; sys.argv = ['sojourn', 'report', 'nowhere']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "from sojourn.analysis import analyse; from sojourn.report import render_terminal, write_report\n"
        "import sojourn.report.write, sojourn.report.terminal\n"
        "print(sorted({one.split('.')[1] for one in sys.modules if one.startswith('sojourn.')}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not {"conduct", "bed", "instruments"} & set(ast.literal_eval(done.stdout.splitlines()[-1])), done
