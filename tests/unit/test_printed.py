"""Every command that prints JSON has a published schema, and what it really prints is held against that.

Those of Python: that all have one is in test_printed_index.py, what the instrument prints in
test_printed_instrument.py. `bridge` in tests/net/test_host_bridge.py; `history`, `dataset`, `timeline`, `watch`,
`tcplog convert` and `plot` where their own tests are.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sojourn.bed import LinkSpec, Topology, clean
from sojourn.bed.clean import Cleaning
from sojourn.bed.drawing import drawing
from sojourn.plan import studies
from tests.unit.in_process import sojourn
from tests.unit.printed_json import SCHEMAS, printed


def test_a_schema_refuses_what_is_not_printed() -> None:
    with pytest.raises(AssertionError, match="question"):
        printed("list", '[{"name": "x"}]')
    with pytest.raises(AssertionError, match="more"):
        printed("list", '[{"name": "x", "question": "?", "more": 1}]')


def test_json_of_lists_beds_and_plans_follows_its_schema() -> None:
    assert len(printed("list", sojourn("list", "--json").stdout)) > 20
    shown = printed("bed-show", sojourn("bed", "show", "--json").stdout)
    assert [one["id"] for one in shown["nodes"][:2]] == ["a", "b"]
    assert shown["text"].startswith("host A")
    held = Topology.of(("bridge",), links={"bridge": LinkSpec((10**9,), (0,), 10_000)})
    printed("bed-show", json.dumps(drawing(held)))
    for study, _ in studies():
        plan = printed("run-dry-run", sojourn("run", study, "--dry-run", "--json").stdout)
        assert plan["study"] == study
        assert plan["total_ns"] >= plan["measuring_ns"] > 0
    several = printed("run-published-dry-run", sojourn("run", "published", "--dry-run", "--json").stdout)
    assert several["total_ns"] == sum(several["studies"].values())


def test_json_of_bed_clean_follows_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "clean", lambda: Cleaning(removed=["Ended process 1."], live=[], left=["That stays."]))
    assert printed("bed-clean", sojourn("bed", "clean", "--json").stdout)["left"] == ["That stays."]
    assert sojourn("bed", "clean").stdout == "Ended process 1.\nThat stays.\n"


def test_json_of_run_report_and_compare_follows_its_schema(tmp_path: Path) -> None:
    for name, rounds in (("one", 3), ("two", 4)):
        asked = ("--bed", "sim", "--quick", "--set", f"rounds={rounds}", "--no-report", "--no-history", "--out", name)
        done = sojourn("run", "bridge-latency", *asked, "--json", cwd=tmp_path)
        assert printed("run", done.stdout)["run"] == name
    said = sojourn("compare", "one", "two", "--json", "--fail-if", "device_latency > +50%", cwd=tmp_path)
    compared = printed("compare", said.stdout)
    assert compared["limits"][0]["figures"]
    assert {one["key"] for one in compared["plan"]} >= {"pairs.rounds"}


def test_json_of_new_follows_its_schema(tmp_path: Path) -> None:
    told = printed("new", sojourn("new", "device", "patch", "--json", cwd=tmp_path).stdout)
    there = [path for path in (tmp_path / told["folder"]).rglob("*") if path.is_file()]
    assert told["files"] == sorted(str(path.relative_to(tmp_path)) for path in there)


def test_json_of_doctor_follows_its_schema() -> None:
    said = sojourn("doctor", "--json")
    assert printed("doctor", said.stdout)["status"] == said.returncode


def test_every_schema_is_compared_with_output_somewhere() -> None:
    tests = "\n".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    names = [path.stem for path in SCHEMAS.glob("*.json")]
    assert len(names) > 40
    assert [name for name in names if f'"{name}"' not in tests] == []
