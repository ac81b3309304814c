"""Summaries of two logs side by side, as Parquet, and of logs that are cut or none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from sojourn.cli import main
from sojourn.export import TcpLog
from sojourn.export.summary import summarised
from sojourn.export.summary_pairs import BY_ENDS, BY_ORDER, compared, paired
from tests.unit.made_up_tcp import Log, MadeFlow
from tests.unit.printed_json import printed_lines

if TYPE_CHECKING:
    from pathlib import Path


def test_flows_of_two_logs_are_paired_by_endpoints_or_order(tmp_path: Path) -> None:
    """The first flow of each has the same ends; of the others the ports differ; one has no counterpart."""
    for name, rounds, port in (("a", 20, 41000), ("b", 40, 42000)):
        more = [MadeFlow(rounds=10, local_port=port + at) for at in range(2 if name == "a" else 3)]
        Log((MadeFlow(rounds=rounds), *more)).write(tmp_path / name)
    a, b = (summarised(TcpLog.open(tmp_path / name)) for name in "ab")
    rows = paired(a, b)
    assert rows.select("paired_by", "a_flow", "b_flow").rows() == [
        (BY_ENDS, 1, 1),
        (BY_ORDER, 2, 2),
        (BY_ORDER, 3, 3),
        (None, None, 4),
    ]
    first = rows.row(0, named=True)
    ours, theirs = a["acked_bytes"][0], b["acked_bytes"][0]
    assert first["difference_acked_bytes"] == theirs - ours > 0
    assert first["ratio_acked_bytes"] == pytest.approx(theirs / ours)
    assert max(map(len, compared(a, b).splitlines())) <= 80


def test_a_summary_is_written_as_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log().write(tmp_path / "t")
    into = tmp_path / "s.parquet"
    assert sojourn(monkeypatch, tmp_path / "t", "-o", into) == 0
    assert_frame_equal(pl.read_parquet(into), summarised(TcpLog.open(tmp_path / "t")))
    assert sojourn(monkeypatch, tmp_path / "t", "-o", into) == 2, "what is there stays"
    assert sojourn(monkeypatch, tmp_path / "t", "-o", into, "--force") == 0


def test_two_logs_give_one_json_object_per_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        Log().write(tmp_path / name)
    assert sojourn(monkeypatch, tmp_path / "a", tmp_path / "b", "--json") == 0
    (pair,) = printed_lines("tcplog-summary-pairs", capsys.readouterr().out)
    assert (pair["paired_by"], pair["difference_samples"], pair["ratio_samples"]) == (BY_ENDS, 0, 1)


@pytest.mark.parametrize("left", [0, 100, 200_000])
def test_truncated_log_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], left: int
) -> None:
    Log().write(tmp_path / "t")
    with (tmp_path / "t/records/tcp_samples-tcplog-000.arrow").open("r+b") as file:
        file.truncate(left)
    assert sojourn(monkeypatch, tmp_path / "t") == 4
    assert "ends before its end" in capsys.readouterr().err


def sojourn(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The status of `sojourn tcplog summary …`."""
    monkeypatch.setattr(sys, "argv", ["sojourn", "tcplog", "summary", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)
