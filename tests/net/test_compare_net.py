"""Runs of devices that differ by a known time, compared over real frames: the tests' relay is the device.

Three runs on beds of the same kind: the relay holds each frame for 20 µs, for as long again, and for 0.5 µs more. The
first two are alike; the third is told from the first by `sojourn compare`.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.cli.compare import compare_runs
from sojourn.conduct import create_folder
from sojourn.conduct import run as conducting
from sojourn.conduct.progress import Screen
from sojourn.conduct.site import Site, open_site
from sojourn.plan import load_plan
from tests.net.busy_machine import thrice, undisturbed
from tests.net.test_truth import relay, write_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLD_NS, MORE_NS = 20_000, 500
BEDS, ROUNDS = 8, 32


def measured(folder: Path, hold_ns: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, float]:
    """A run over the relay, on several beds; and by how long it truly held frames of the held path, on average."""
    folder.mkdir()
    numbers = count()

    @contextmanager
    def with_relay(*asked: Any) -> Iterator[Site]:
        with open_site(*asked) as site, relay(site, (hold_ns, hold_ns), folder / f"relay-{next(numbers)}.csv"):
            yield site

    file = write_plan(folder, ["wire", "bridge"], ["icmp"], rounds=ROUNDS, probes_per_block=44)
    plan = load_plan(str(file), sets=[f"bed.sessions={BEDS}"])
    run = create_folder(plan, folder / "run")
    with monkeypatch.context() as patch:
        patch.setattr(conducting, "open_site", with_relay)
        conducting.conduct(plan, run, Screen())
    analyse(run.path)
    logs = pl.concat([pl.read_csv(path).drop_nulls("left_ns") for path in folder.glob("relay-*.csv")])
    held = logs.filter(pl.col("near").str.contains("-bridge-")).select(pl.col("left_ns") - pl.col("arrived_ns"))
    return run.path, float(held.to_series().median())  # type: ignore[arg-type]  # a median of numbers is one


def over_wire(one: Path, two: Path) -> dict[str, Any]:
    """What `compare` says of the device's latency over the wire."""
    rows = compare_runs(one, two, history=False)["results"]
    wanted = ("bridge", "wire", "device_latency", "mean")
    keys = ("device", "reference", "quantity", "statistic")
    rows = [row for row in rows if tuple(row[key] for key in keys) == wanted]
    assert len(rows) == 1
    row: dict[str, Any] = rows[0]
    print(json.dumps(row))
    return row


@pytest.mark.proof  # three runs of eight beds each
@pytest.mark.usefixtures("relay_binary")
@thrice
def test_half_a_microsecond_more_is_told_apart_and_two_devices_alike_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, held), (alike, again), (slower, longer) = (
        measured(tmp_path / name, HOLD_NS + more, monkeypatch)
        for name, more in (("first", 0), ("alike", 0), ("slower", MORE_NS))
    )
    print(f"the relay held {held:.0f}, {again:.0f} and {longer:.0f} ns")
    with undisturbed():  # intervals of 95 %, on a machine that lets the relay keep its time
        assert abs(longer - held - MORE_NS) < MORE_NS / 4, "the relay did not keep its time"
        assert over_wire(first, slower)["answer"] == "worse"
        assert over_wire(slower, first)["answer"] == "better"
        assert over_wire(first, alike)["answer"] not in {"worse", "better"}
