"""A run's figures as Prometheus' own client reads them: names, units, types, values, labels with any character."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sojourn.errors import RequestError
from sojourn.export.prometheus import exposition
from sojourn.records import RunFolder
from sojourn.records.results import read_results
from tests.unit.in_process import sojourn
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from pathlib import Path

STRANGE = 'dut:a "b"\\c\nd'


def row(quantity: str, unit: str, estimate: float | None, **more: Any) -> dict[str, Any]:
    ends = {"ci_low": None if estimate is None else estimate - 1, "ci_high": None, "statistic": "p50", "cell": 3}
    return (
        {"quantity": quantity, "unit": unit, "estimate": estimate, "device": "bridge", "reference": None} | ends | more
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path / "run")
    for one in (found.records, found.analysis):
        one.mkdir(parents=True)
    found.plan.write_text("")
    rows = [
        row("rtt", "ns", 12_500.0), row("rtt", "ns", 13_500.0, device=STRANGE), row("throughput_bps", "bit/s", 8e6),
        row("loss_ratio", "ratio", 0.25, statistic="ratio"), row("received_pps", "1/s", 1e4), row("rtt", "ns", None),
        row("responsiveness", "1/min", 600.0),
    ]  # fmt: skip
    found.results.write_text(json.dumps(rows))
    words = {"name": "a", "where": "", "sentence": "b"}
    findings = [words | {"severity": one} for one in ("note", "doubtful", "note")]
    said = {"run": "run", "study": "made-up", "verdict": "doubtful", "findings": findings}
    found.verdict.write_text(json.dumps(said))
    events = [{"event": "started", "run": "run", "study": "made-up", "blocks": 7}, {"event": "block", "block": 3}]
    found.log.write_text("".join(f"{json.dumps(one)}\n" for one in [*events, {"event": "finished"}]))
    return found


def test_prometheus_metrics_have_base_units(folder: RunFolder) -> None:
    text = exposition(folder)
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert all(one.type == "gauge" and one.documentation.endswith(".") for one in families.values())
    assert families.keys() == {
        "sojourn_run_info", "sojourn_run_ended", "sojourn_run_state", "sojourn_run_last_event_timestamp_seconds",
        "sojourn_run_trials", "sojourn_run_findings", "sojourn_rtt_seconds", "sojourn_throughput_bytes_per_second",
        "sojourn_loss_ratio", "sojourn_received_per_second", "sojourn_responsiveness_per_second",
    }  # fmt: skip
    of = {(one.labels["device"], one.labels["bound"]): one.value for one in families["sojourn_rtt_seconds"].samples}
    assert of == {
        ("bridge", "estimate"): pytest.approx(12.5e-6), ("bridge", "low"): pytest.approx(12.499e-6),
        (STRANGE, "estimate"): pytest.approx(13.5e-6), (STRANGE, "low"): pytest.approx(13.499e-6),
    }  # fmt: skip
    assert families["sojourn_responsiveness_per_second"].samples[0].value == pytest.approx(10)
    (rate, _) = families["sojourn_throughput_bytes_per_second"].samples
    assert rate.value == 1e6
    assert rate.labels == {"run": "run", "device": "bridge", "statistic": "p50", "cell": "3", "bound": "estimate"}
    assert {one.labels["severity"]: one.value for one in families["sojourn_run_findings"].samples} == {
        "invalid": 0, "doubtful": 1, "note": 2,
    }  # fmt: skip
    (info,) = families["sojourn_run_info"].samples
    assert (info.labels["verdict"], info.value) == ("doubtful", 1.0)


def test_prometheus_export_writes_a_file_once_and_refuses_impossible_requests(
    folder: RunFolder, tmp_path: Path
) -> None:
    file = tmp_path / "sojourn.prom"
    argv = ["export", str(folder.path), "--to", "prometheus", "-o", str(file)]
    done = sojourn(*argv, "--json")
    assert done.returncode == 0
    assert printed("export", done.stdout) == {
        "file": str(file), "format": "prometheus", "lines": len(file.read_text().splitlines())
    }  # fmt: skip
    assert "standard output can hold only one" in sojourn("export", str(folder.path), "--json").stderr
    assert file.read_text() == exposition(folder)
    assert sojourn(*argv).returncode == 2, "it is there already"
    assert sojourn("export", str(folder.path)).stdout == file.read_text()
    assert sojourn("export", str(folder.path), "--to", "graphite").returncode == 2
    folder.verdict.unlink()
    with pytest.raises(RequestError, match=r"has no analysis: sojourn report .* makes it"):
        exposition(folder)


def names_of(text: str) -> set[str]:
    return {one.name for one in text_string_to_metric_families(text)}


def test_figures_are_exported_only_with_the_verdict_of_the_same_analysis(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another analysis ends between two reads: results of the one and the verdict of the other are no figures."""

    def overtaken(path: Path) -> Any:
        found = read_results(path)
        draft = folder.analysis / "draft"
        draft.write_bytes(folder.verdict.read_bytes().replace(b"doubtful", b"invalid"))
        draft.replace(folder.verdict)
        return found

    with monkeypatch.context() as patched:
        patched.setattr("sojourn.export.prometheus.read_results", overtaken)
        names = names_of(exposition(folder, is_served=True))
    assert not {"sojourn_rtt_seconds", "sojourn_run_findings"} & names
    assert {"sojourn_rtt_seconds", "sojourn_run_findings"} <= names_of(exposition(folder, is_served=True))
    folder.verdict.unlink()
    assert "sojourn_rtt_seconds" not in names_of(exposition(folder, is_served=True)), "results before their verdict"


@pytest.mark.parametrize("one", [{"unit": 5}, {"quantity": ["a"]}, {"estimate": "1"}, {"cell": {}}, {"ci_low": "x"}])
def test_results_of_another_shape_are_refused(folder: RunFolder, one: dict[str, Any]) -> None:
    """A unit that was a number ended the export, and the page of `sojourn watch`, in a traceback."""
    folder.results.write_text(json.dumps([row("rtt", "ns", 5.0) | one]))
    with pytest.raises(RequestError, match=r"results\.json cannot be read: row 0: \w+ is of another type"):
        exposition(folder)


def test_names_of_metrics_are_of_the_letters_that_the_format_has(folder: RunFolder) -> None:
    folder.results.write_text(
        json.dumps([row("dél ai", "µs", 5.0), {"quantity": "b", "statistic": "p50", "estimate": 1}])
    )
    names = {one.name for one in text_string_to_metric_families(exposition(folder))}
    assert {"sojourn_d_l_ai__s", "sojourn_b_"} <= names


def test_run_has_the_name_of_its_folder(folder: RunFolder) -> None:
    renamed = RunFolder(folder.path.rename(folder.path.with_name("renamed")))
    families = text_string_to_metric_families(exposition(renamed))
    assert {sample.labels["run"] for one in families for sample in one.samples} == {"renamed"}
