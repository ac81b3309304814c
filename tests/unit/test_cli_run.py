"""The whole way in simulated time: plan in; records, results, report and exit status out. Needs the instrument."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.in_process import sojourn

TRUE_BRIDGE_NS = 1300 + 0.4 * (64 + 38)
"""What the study's own simulated bridge adds to a frame of 102 bytes, one way."""


def latency(results: list[dict[str, Any]], device: str, icmp_bytes: int) -> dict[str, Any]:
    return next(
        row
        for row in results
        if (row["quantity"], row["statistic"], row["device"], row["reference"], row["icmp_bytes"])
        == ("device_latency", "mean", device, "direct", icmp_bytes)
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    where = tmp_path_factory.mktemp("whole")
    asked = ("run", "bridge-latency", "--bed", "sim", "--quick", "--set", "rounds=12", "--out", "run", "--json")
    # In a process of its own, so that nothing else can be on its standard output.
    argv = [str(Path(sys.executable).with_name("sojourn")), *asked]
    return where, subprocess.run(argv, capture_output=True, text=True, check=False, cwd=where, timeout=300)


def test_latency_of_a_simulated_bridge_is_recovered(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = finished
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.keys() == {"run", "verdict", "sentence", "simulated", "checks", "results"}
    assert said["simulated"] is True
    assert (said["run"], said["verdict"]) == ("run", "trusted")
    assert said["sentence"].startswith("Simulated, not measured: The Linux bridge adds 0.9")
    row = latency(said["results"], "bridge", 64)
    assert row["ci_low"] - 30 < TRUE_BRIDGE_NS < row["ci_high"] + 30
    assert row["unit"] == "ns"


def test_progress_is_printed_only_on_standard_error(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = finished
    assert done.stderr.splitlines()[0] == "building the bed (sim)"
    assert done.stdout.count("\n") == 1


def test_run_folder_is_complete(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    where, _ = finished
    run = where / "run"
    for path in ("plan.toml", "bed.json", "log.jsonl", "analysis/results.json", "report/index.html"):
        assert (run / path).stat().st_size > 0
    assert "# asked: --set rounds=12" in (run / "plan.toml").read_text()


def test_a_finished_run_is_reported_again_and_not_measured_again(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    where, done = finished
    again = sojourn("run", "--resume", "run", "--json", cwd=where)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["results"] == json.loads(done.stdout)["results"]
    files = [path.name for path in sorted((where / "run/records").iterdir())]
    assert files == [
        f"{table}-{part:03}.arrow" for table in ("blocks", "probes") for part in range(6)
    ]  # a session each


def test_option_no_report_creates_no_report(tmp_path: Path) -> None:
    asked = ("run", "bridge-latency", "--bed", "sim", "--quick", "--set", "rounds=8", "--out", "run", "--no-report")
    done = sojourn(*asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "writing the report" not in done.stderr
    assert (tmp_path / "run/analysis/results.json").is_file()
    assert not (tmp_path / "run/report").exists()
    assert sojourn("report", "run", cwd=tmp_path).returncode == 0
    assert (tmp_path / "run/report/index.html").is_file()


def test_a_run_that_must_not_be_trusted_exits_4(tmp_path: Path) -> None:
    plan = tmp_path / "stepped.toml"
    line = "forward = { constant_ns = 5000 }\nbackward = { constant_ns = 5000 }\n"
    plan.write_text(
        '[study]\nname = "stepped"\n[bed]\nbackend = "sim"\ndevices = ["bridge"]\n[probe]\nicmp_bytes = [64]\n'
        f"[pairs]\nrounds = 8\n[bed.lines.direct]\n{line}"
        f"clock_step = {{ at_ns = 500000000, by_ns = 5000000 }}\n[bed.lines.bridge]\n{line}"
    )
    done = sojourn("run", "stepped.toml", "--out", "run", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["verdict"] == "invalid", done.stderr
    assert done.returncode == 4
