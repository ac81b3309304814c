"""`tcplog convert --per-flow`: all files together are what one file of all flows is, and the list names each."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.export.flow_hash import flow_hash
from tests.unit.in_process import sojourn
from tests.unit.made_up_tcp import Log, MadeFlow

if TYPE_CHECKING:
    from pathlib import Path

FLOWS = (MadeFlow(rounds=20), MadeFlow(rounds=30, family=6), MadeFlow(rounds=10, step=2))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    Log(FLOWS).write(tmp_path / "t")
    return tmp_path / "t"


def listed(folder: Path) -> list[dict[str, str]]:
    with (folder / "flows.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("to", ["csv", "jsonl", "siftr", "parquet", "qlog"])
def test_files_of_all_flows_together_equal_the_log(to: str, log: Path, tmp_path: Path) -> None:
    done = sojourn("tcplog", "convert", str(log), "--to", to, "--per-flow", str(tmp_path / "each"))
    assert done.returncode == 0, done.stderr
    rows = listed(tmp_path / "each")
    assert sorted(one.name for one in (tmp_path / "each").iterdir()) == sorted(
        ["flows.csv", *(row["file"] for row in rows)]
    )
    assert len(rows) == len(FLOWS) == len({row["flow_hash"] for row in rows})
    for row in rows:
        alone = tmp_path / f"alone-{row['flow']}"
        words = ("tcplog", "convert", str(log), "--to", to, "--flow", row["flow"], "-o", str(alone), "--json")
        one = sojourn(*words)
        assert f'"records": {row["records"]}' in one.stdout
        mine = tmp_path / "each" / row["file"]
        assert ":" not in row["file"]
        if to == "parquet":
            assert pl.read_parquet(mine).equals(pl.read_parquet(alone))
        elif to != "qlog":  # which has the time of its writing
            assert mine.read_bytes() == alone.read_bytes()
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_time_span_excludes_flows_without_samples_in_it(log: Path, tmp_path: Path) -> None:
    words = ("tcplog", "convert", str(log), "--to", "siftr", "--flow", "2", "--per-flow", str(tmp_path / "each"))
    assert sojourn(*words).returncode == 0
    assert [row["flow"] for row in listed(tmp_path / "each")] == ["2"]
    none = sojourn(*words[:5], "--since", "90s", "--per-flow", str(tmp_path / "none"))
    assert (none.returncode, none.stderr.count("\n")) == (2, 1)
    assert "nothing of" in none.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("to", ["csv", "siftr", "parquet", "qlog"])
def test_truncated_log_is_reported(to: str, log: Path, tmp_path: Path) -> None:
    for path in (log / "records").glob("tcp_samples-*.arrow"):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) - 8])
    done = sojourn("tcplog", "convert", str(log), "--to", to, "--per-flow", str(tmp_path / "each"))
    assert (done.returncode, "ends before its end" in done.stderr) == (4, True), done.stderr


def test_samples_of_a_flow_that_the_log_does_not_list_are_damage(log: Path, tmp_path: Path) -> None:
    for name in ("tcp_flows", "tcp_account"):
        for path in (log / "records").glob(f"{name}-*.arrow"):
            path.unlink()
    done = sojourn("tcplog", "convert", str(log), "--to", "csv", "--per-flow", str(tmp_path / "each"))
    assert done.returncode in (2, 4)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "each").exists()


def test_files_are_private(log: Path, tmp_path: Path) -> None:
    assert sojourn("tcplog", "convert", str(log), "--to", "csv", "--per-flow", str(tmp_path / "each")).returncode == 0
    assert (tmp_path / "each").stat().st_mode & 0o777 == 0o700
    assert {one.stat().st_mode & 0o777 for one in (tmp_path / "each").iterdir()} == {0o600}


def test_a_connection_has_one_hash_at_both_ends() -> None:
    ends = {"local_address": "10.0.0.1", "local_port": 40_000, "remote_address": "10.0.0.2", "remote_port": 5201}
    other = {"local_address": "10.0.0.2", "local_port": 5201, "remote_address": "10.0.0.1", "remote_port": 40_000}
    assert flow_hash(ends) == flow_hash(other)
    assert flow_hash(ends) != flow_hash(ends | {"local_port": 40_001})
    assert flow_hash(ends) != flow_hash(ends | {"local_port": 5201, "remote_port": 40_000})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--per-flow", "{there}"), "is there already: --per-flow makes a new folder"),
        (("--per-flow", "{there}/no/where"), "is no folder"),
        (("--per-flow", "{there}/x", "-o", "{there}/y"), "leave out -o"),
    ],
)
def test_a_wrong_request_is_one_sentence(words: tuple[str, ...], sentence: str, log: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    spelled = [word.format(there=tmp_path / "there") for word in words]
    done = sojourn("tcplog", "convert", str(log), "--to", "csv", *spelled)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert sentence in done.stderr
    assert list((tmp_path / "there").iterdir()) == []
