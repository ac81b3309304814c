"""What `sojourn watch` and `sojourn export` say to Prometheus of a run that goes on, by Prometheus' own parser."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sojourn.export.prometheus import exposition
from sojourn.records import RunFolder
from sojourn.records.so_far import RTT
from sojourn.watch.runs import Runs
from tests.unit.in_process import sojourn
from tests.unit.test_watch import cut_short, run, served

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import Metric

__all__ = ["run"]


def parsed(text: str) -> dict[str, Metric]:
    found = {one.name: one for one in text_string_to_metric_families(text)}
    assert len(found) == text.count("# TYPE "), "each family is there once"
    return found


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    several = [one.value for one in families[name].samples if labels.items() <= one.labels.items()]
    assert len(several) == 1, (name, labels, families[name].samples)
    return several[0]


def test_a_run_that_goes_on_says_that_it_has_not_ended_and_its_percentiles_so_far(run: Path, tmp_path: Path) -> None:
    half = cut_short(run, tmp_path / "half")
    done = sojourn("export", str(half), "--to", "prometheus")
    assert done.returncode == 0, done.stderr
    families = parsed(done.stdout)
    assert value(families, "sojourn_run_ended") == 0
    assert value(families, "sojourn_run_state", state="going_on") == 1
    assert value(families, "sojourn_run_state", state="finished") == 0
    ended, planned = (value(families, "sojourn_run_trials", trials=one) for one in ("ended", "planned"))
    assert 0 < ended < planned
    assert "verdict" not in families["sojourn_run_info"].samples[0].labels
    changed = (half / "log.jsonl").stat().st_mtime
    assert value(families, "sojourn_run_last_event_timestamp_seconds") == pytest.approx(changed)
    assert not {"sojourn_rtt_seconds", "sojourn_run_findings"} & families.keys(), "nothing that the analysis says"
    blocks = [one for one in map(json.loads, (half / "log.jsonl").read_text().splitlines()) if one["event"] == "block"]
    several = sum(one["rtt"]["n"] for one in blocks if one["device"] == "bridge")
    assert value(families, "sojourn_so_far_delays", device="bridge", quantity=RTT) == several
    least, most = (
        end(one["rtt"][f"{which}_ns"] for one in blocks if one["device"] == "bridge") / 1e9
        for end, which in ((min, "min"), (max, "max"))
    )
    name = "sojourn_so_far_rtt_seconds"
    low, high = (value(families, name, device="bridge", quantile=one) for one in ("0.5", "0.99"))
    assert least * 63 / 64 <= low <= high <= most * 65 / 64
    with (half / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps({"event": "interrupted"}) + "\n")
    families = parsed(exposition(RunFolder(half)))
    assert (value(families, "sojourn_run_ended"), value(families, "sojourn_run_state", state="interrupted")) == (0, 1)


def test_figures_of_a_run_that_goes_on_are_told_only_while_nothing_was_measured_since(
    run: Path, tmp_path: Path
) -> None:
    half = RunFolder(cut_short(run, tmp_path / "half"))
    assert sojourn("report", str(half.path)).returncode in {0, 4}
    families = parsed(exposition(half))
    assert {"sojourn_rtt_seconds", "sojourn_so_far_rtt_seconds"} <= families.keys()
    assert value(families, "sojourn_run_ended") == 0
    later = half.verdict.stat().st_mtime_ns + 1
    os.utime(half.log, ns=(later, later))
    assert "sojourn_rtt_seconds" not in parsed(exposition(half))


def test_an_ended_run_says_so_and_has_no_figures_without_interval(run: Path) -> None:
    families = parsed(exposition(RunFolder(run)))
    assert value(families, "sojourn_run_ended") == 1
    assert not [name for name in families if "so_far" in name]
    assert "sojourn_rtt_seconds" in families


def test_a_server_answers_prometheus_of_a_run_and_of_a_folder_of_runs(run: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    cut_short(run, runs / "goes-on")
    (runs / "whole").mkdir()
    for name in ("plan.toml", "bed.json", "log.jsonl"):
        (runs / "whole" / name).write_bytes((run / name).read_bytes())
    for name in ("records", "analysis"):
        (runs / "whole" / name).symlink_to(run / name)
    with served(runs, tmp_path / "state", "--no-looks") as (address, _):
        with urllib.request.urlopen(f"{address}metrics", timeout=30) as answer:
            assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            families = parsed(answer.read().decode())
        assert value(families, "sojourn_run_ended", run="goes-on") == 0
        assert value(families, "sojourn_run_ended", run="whole") == 1
        assert {one.labels["run"] for one in families["sojourn_so_far_rtt_seconds"].samples} == {"goes-on"}
        with urllib.request.urlopen(f"{address}goes-on/metrics", timeout=30) as answer:
            own = parsed(answer.read().decode())
        assert own["sojourn_so_far_rtt_seconds"].samples
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}nothing/metrics", timeout=30)


def test_a_folder_in_which_a_run_has_just_begun_has_metrics(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.records.mkdir(parents=True)
    folder.plan.write_text("")
    families = parsed(exposition(folder))
    assert (value(families, "sojourn_run_ended"), value(families, "sojourn_run_trials", trials="ended")) == (0, 0)
    assert [(one.run, one.state) for one in Runs(tmp_path).standing()] == [("run", "going_on")]
