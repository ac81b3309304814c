"""What `sojourn watch` and `sojourn export` say to Prometheus of a run that goes on, by Prometheus' own parser."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from sojourn.export.prometheus import exposition
from sojourn.records import RunFolder
from sojourn.records.so_far import RTT
from sojourn.watch.runs import MOST_FOLLOWED, Runs
from sojourn.watch.server import Pages
from tests.unit.in_process import sojourn
from tests.unit.test_watch import block, cut_short, line, run, served

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import Metric
    from starlette.responses import Response

__all__ = ["run"]


def parsed(text: str) -> dict[str, Metric]:
    found = {one.name: one for one in text_string_to_metric_families(text)}
    assert len(found) == text.count("# TYPE "), "each family is there once"
    return found


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    several = [one.value for one in families[name].samples if labels.items() <= one.labels.items()]
    assert len(several) == 1, (name, labels, families[name].samples)
    return several[0]


def test_unfinished_run_has_state_running_and_interim_percentiles(run: Path, tmp_path: Path) -> None:
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


def test_figures_of_an_unfinished_run_are_served_only_while_current(run: Path, tmp_path: Path) -> None:
    half = RunFolder(cut_short(run, tmp_path / "half"))
    assert sojourn("report", str(half.path)).returncode in {0, 4}
    families = parsed(exposition(half))
    assert {"sojourn_rtt_seconds", "sojourn_so_far_rtt_seconds"} <= families.keys()
    assert value(families, "sojourn_run_ended") == 0
    later = half.verdict.stat().st_mtime_ns + 1
    os.utime(half.log, ns=(later, later))
    assert "sojourn_rtt_seconds" not in parsed(exposition(half))


def test_ended_run_has_state_ended_and_only_figures_with_an_interval(run: Path) -> None:
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


def made_up(folder: Path, name: str, *entries: str, at_s: int = 1_000) -> RunFolder:
    made = RunFolder(folder / name)
    made.records.mkdir(parents=True)
    made.plan.write_text("")
    made.log.write_text(line(0, "started", study="made-up", run=name, blocks=9) + "".join(entries))
    os.utime(made.log, (at_s, at_s))
    return made


def asked(folder: Path, pages: Pages, name: str = "") -> Response:
    request = Request({"type": "http", "path_params": {"name": name} if name else {}})
    return asyncio.run(pages.run_metrics(request) if name else pages.first_metrics(request))


def text(answer: Response) -> str:
    return bytes(answer.body).decode()


def test_ended_run_without_analysis_is_served_without_figures(tmp_path: Path) -> None:
    folder = made_up(tmp_path, "run", block(1, 0, "wire", 1.0), line(2, "finished"))
    pages = Pages(tmp_path, None)
    answer = asked(tmp_path, pages, "run")
    assert answer.status_code == 200, text(answer)
    families = parsed(text(answer))
    assert (value(families, "sojourn_run_ended"), value(families, "sojourn_run_trials", trials="ended")) == (1, 1)
    assert not {"sojourn_run_findings", "sojourn_rtt_seconds"} & families.keys()
    refused = sojourn("export", str(folder.path), "--to", "prometheus")
    assert refused.returncode == 2
    assert "has no analysis: sojourn report" in refused.stderr
    folder.analysis.mkdir()
    folder.results.write_text("[]")
    folder.verdict.write_text("{")
    answer = asked(tmp_path, pages, "run")
    assert (answer.status_code, "cannot be read" in text(answer)) == (503, True), "a damaged one is no missing one"


def test_metrics_of_a_folder_are_as_fast_as_its_list_and_complete_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes a tenth of a second, and a read is of eight lines."""
    monkeypatch.setattr("sojourn.watch.follow.MOST_BYTES", 2048)
    several = 2 * MOST_FOLLOWED
    for number in range(several):
        made_up(tmp_path, f"r{number:02}", *(block(at, at, "wire", 1.0) for at in range(20)), line(30, "finished"))
    pages, tenths = Pages(tmp_path, None), iter(range(10**6))
    monkeypatch.setattr("sojourn.watch.runs.time.monotonic", lambda: next(tenths) / 10)
    there = [len(parsed(told)["sojourn_run_ended"].samples) if (told := text(asked(tmp_path, pages))) else 0
             for _ in range(6 * several)]  # fmt: skip
    assert there[0] < 4
    assert there == sorted(there), "what was read once is there from then on"
    assert there[-1] == several


def test_long_log_is_read_in_parts_per_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a tenth of a second, and a read is of eight lines."""
    monkeypatch.setattr("sojourn.watch.follow.MOST_BYTES", 2048)
    made_up(tmp_path, "run", *(block(at, at, "wire", 1.0) for at in range(400)), line(500, "finished"))
    pages, tenths = Pages(tmp_path, None), iter(range(10**6))
    monkeypatch.setattr("sojourn.watch.watched.time.monotonic", lambda: next(tenths) / 10)
    answers = [asked(tmp_path, pages, "run") for _ in range(30)]
    unread = [answer for answer in answers if answer.status_code == 503]
    assert 2 <= len(unread) < 29
    assert all("still being read" in text(answer) for answer in unread)
    families = parsed(text(answers[-1]))
    assert value(families, "sojourn_run_trials", trials="ended") == 400


def test_latest_runs_have_percentiles_if_there_are_too_many(tmp_path: Path) -> None:
    said = line(1, "block", device="wire", block=0, sent=200, lost=0, rtt_classes=[[1000, 200]])
    for number in range(MOST_FOLLOWED + 3):
        made_up(tmp_path, f"r{number:02}", said, at_s=1_000 + number)
    runs = Runs(tmp_path)
    for _ in range(2):
        have = {one.run for one in runs.standing() if one.paths}
        assert have == {f"r{number:02}" for number in range(3, MOST_FOLLOWED + 3)}
    assert len(runs._followed) == MOST_FOLLOWED


def test_invalid_utf_8_in_one_run_does_not_hide_others_from_the_metrics(tmp_path: Path) -> None:
    made_up(tmp_path, "good", block(1, 0, "wire", 1.0))
    made_up(tmp_path, os.fsdecode(b"odd-\xff"), block(1, 0, "wire", 1.0))
    strange = made_up(tmp_path, "strange")
    strange.log.write_text(json.dumps({"event": "started", "study": "\ud800", "blocks": 9}) + "\n")
    answer = asked(tmp_path, Pages(tmp_path, None))
    families = parsed(text(answer))
    assert {one.labels["run"] for one in families["sojourn_run_ended"].samples} == {"good", "odd-?", "strange"}
    strange.log.write_text(json.dumps({"event": "started", "study": "huge", "blocks": 10**400}) + "\n")
    huge = parsed(text(asked(tmp_path, Pages(tmp_path, None))))
    assert value(huge, "sojourn_run_ended", run="strange") == 0
    assert value(huge, "sojourn_run_trials", run="strange", trials="ended") == 0
    (study,) = [one.labels["study"] for one in families["sojourn_run_info"].samples if one.labels["run"] == "strange"]
    assert study == "", "the event is left out"


def test_a_run_of_a_folder_has_one_name_on_both_pages(run: Path, tmp_path: Path) -> None:
    cut_short(run, tmp_path / "copied")
    pages = Pages(tmp_path, None)
    for answer in (asked(tmp_path, pages), asked(tmp_path, pages, "copied")):
        told = parsed(text(answer)).values()
        assert {sample.labels["run"] for one in told for sample in one.samples} == {"copied"}
