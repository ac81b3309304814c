"""A run's figures as Prometheus' own client reads them: names, units, types, values, labels with any character."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sojourn.errors import RequestError
from sojourn.export.prometheus import exposition
from sojourn.records import RunFolder
from tests.unit.in_process import sojourn

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
    ]  # fmt: skip
    found.results.write_text(json.dumps(rows))
    findings = [{"severity": "note"}, {"severity": "doubtful"}, {"severity": "note"}]
    said = {"run": "run", "study": "made-up", "verdict": "doubtful", "findings": findings}
    found.verdict.write_text(json.dumps(said))
    events = [{"event": "started", "run": "run", "study": "made-up", "blocks": 7}, {"event": "block", "block": 3}]
    found.log.write_text("".join(f"{json.dumps(one)}\n" for one in [*events, {"event": "finished"}]))
    return found


def test_prometheus_reads_every_figure_in_base_units(folder: RunFolder) -> None:
    text = exposition(folder)
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert all(one.type == "gauge" and one.documentation.endswith(".") for one in families.values())
    assert families.keys() == {
        "sojourn_run_info", "sojourn_run_ended", "sojourn_run_state", "sojourn_run_last_event_timestamp_seconds",
        "sojourn_run_trials", "sojourn_run_findings", "sojourn_rtt_seconds", "sojourn_throughput_bytes_per_second",
        "sojourn_loss_ratio", "sojourn_received_per_second",
    }  # fmt: skip
    of = {(one.labels["device"], one.labels["bound"]): one.value for one in families["sojourn_rtt_seconds"].samples}
    assert of == {
        ("bridge", "estimate"): pytest.approx(12.5e-6), ("bridge", "low"): pytest.approx(12.499e-6),
        (STRANGE, "estimate"): pytest.approx(13.5e-6), (STRANGE, "low"): pytest.approx(13.499e-6),
    }  # fmt: skip
    (rate, _) = families["sojourn_throughput_bytes_per_second"].samples
    assert rate.value == 1e6
    assert rate.labels == {"run": "run", "device": "bridge", "statistic": "p50", "cell": "3", "bound": "estimate"}
    assert {one.labels["severity"]: one.value for one in families["sojourn_run_findings"].samples} == {
        "invalid": 0, "doubtful": 1, "note": 2,
    }  # fmt: skip
    (info,) = families["sojourn_run_info"].samples
    assert (info.labels["verdict"], info.value) == ("doubtful", 1.0)


def test_the_command_writes_a_file_once_and_refuses_what_it_cannot(folder: RunFolder, tmp_path: Path) -> None:
    file = tmp_path / "sojourn.prom"
    argv = ["export", str(folder.path), "--to", "prometheus", "-o", str(file)]
    assert sojourn(*argv).returncode == 0
    assert file.read_text() == exposition(folder)
    assert sojourn(*argv).returncode == 2, "it is there already"
    assert sojourn("export", str(folder.path)).stdout == file.read_text()
    assert sojourn("export", str(folder.path), "--to", "graphite").returncode == 2
    folder.verdict.unlink()
    with pytest.raises(RequestError, match=r"has no analysis: sojourn report .* makes it"):
        exposition(folder)
