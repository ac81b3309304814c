"""Truth in, reported number out, over real frames: a relay of known holds, the direct link, bridges one and several.

The relay stands where the bed has its devices: `wire` holds nothing, `bridge` holds each frame for a set time, and its
own log tells what it truly did. So what the report says of `bridge` against `wire` must be what the log says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.conduct import create_folder
from sojourn.conduct import run as conducting
from sojourn.conduct.progress import Screen
from sojourn.conduct.site import Site, open_site
from sojourn.plan import load_plan
from sojourn.records import RunFolder
from sojourn.statistics.signed_rank import hodges_lehmann
from tests.net.busy_machine import DisturbedError, idle_ends, thrice, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
RELAY = ROOT / "target/debug/sojourn-test-relay"
RELAY_CORE = os.cpu_count() or 1
SOJOURN = str(Path(sys.executable).with_name("sojourn"))
ALLOWED_NS = 400.0
"""What the relay's own stamps and the way its two paths share one core may differ by, beside the interval."""

Row = dict[str, Any]

PLAN = """
[study]
name = "truth"
title = "A device of known latency"
question = "Is it found?"
method = "pairs"
hypotheses = []
[bed]
backend = "netns"
devices = {devices}
[probe]
probe = {probes}
payload_bytes = [56]
{pace}
[pairs]
rounds = {rounds}
probes_per_block = {probes_per_block}
warmup_probes = 4
seed = 5
a_a = true
"""


def write_plan(
    folder: Path,
    devices: list[str],
    probes: list[str],
    *,
    rounds: int = 16,
    probes_per_block: int = 34,
    pace: str = 'interval = ["1ms"]\nschedule = ["regular"]',
) -> Path:
    path = folder / "plan.toml"
    words = {"devices": json.dumps(devices), "probes": json.dumps(probes)}
    path.write_text(PLAN.format(rounds=rounds, probes_per_block=probes_per_block, pace=pace, **words))
    return path


def run_as_a_user(plan: Path, out: Path, *words: str) -> dict[str, Any]:
    """`sojourn run … --json`, and what it prints; nobody looks at its report here."""
    argv = [SOJOURN, "run", str(plan), "--out", str(out), "--json", "--no-report", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode in {0, 4}, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def rows_of(folder: RunFolder | Path) -> list[Row]:
    path = folder.results if isinstance(folder, RunFolder) else folder / "analysis/results.json"
    rows: list[Row] = json.loads(path.read_text())
    return rows


def latency(rows: list[Row], device: str, reference: str, probe: str | None = None, statistic: str = "mean") -> Row:
    [row] = [
        row
        for row in rows
        if (row["device"], row["reference"], row["quantity"], row["statistic"])
        == (device, reference, "device_latency", statistic)
        and probe in {None, row["probe"]}
    ]
    return row


@contextmanager
def relay(site: Site, holds: tuple[int, int], log: Path) -> Iterator[None]:
    """Take the bed's devices away and put the relay in their places."""
    bed = site.bed
    [wire], [bridge] = bed.topology.paths["wire"].stations, bed.topology.paths["bridge"].stations
    for port in (wire.left, wire.right):
        bed.backend.run("d", ["tc", "qdisc", "del", "dev", port.dev, "clsact"])
    bed.backend.run("d", ["ip", "link", "del", "dev", str(bridge.name)])
    paths = [f"{wire.left.dev},{wire.right.dev},0,0", f"{bridge.left.dev},{bridge.right.dev},{holds[0]},{holds[1]}"]
    argv = [
        "nice",
        "-n",
        "-20",
        str(RELAY),
        "--log",
        str(log),
        "--cpu",
        str(RELAY_CORE - 1),
        *(f"--path={path}" for path in paths),
    ]
    process = bed.backend.start("d", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "ready"
    try:
        yield
    finally:
        process.stdin.close()
        ended = json.loads(process.stdout.read())
        process.wait(10)
        assert ended["refused"] == 0


def true_pairs(folder: RunFolder, log: Path) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What the relay truly added one way, held path less unheld, per round, as the relay's own log has it."""
    frames = pl.read_csv(log).drop_nulls("left_ns").with_columns(held=pl.col("left_ns") - pl.col("arrived_ns"))
    blocks = pl.read_ipc_stream(folder.records / "blocks-000.arrow").filter(pl.col("device").is_in(["wire", "bridge"]))
    means: dict[tuple[str, int], list[float]] = {}
    for block in blocks.iter_rows(named=True):
        inside = frames.filter(
            pl.col("near").str.contains(f"-{block['device']}-")
            & pl.col("arrived_ns").is_between(block["started_ns"], block["ended_ns"])
        )
        both_ways = inside.group_by("direction").agg(pl.col("held").tail(block["count"] - block["warmup"]).mean())
        assert both_ways.height == 2, block
        means.setdefault((block["device"], block["round"]), []).append(float(both_ways["held"].sum()) / 2)
    rounds = sorted({round_ for _, round_ in means})
    return np.array([np.mean(means["bridge", one]) - np.mean(means["wire", one]) for one in rounds])


@pytest.mark.usefixtures("relay_binary")
@pytest.mark.parametrize(
    "holds",
    [
        pytest.param((40_000, 40_000), id="symmetric", marks=pytest.mark.proof),
        pytest.param((20_000, 90_000), id="asymmetric"),
    ],
)
@thrice
def test_known_delays_of_a_relay_are_recovered(
    holds: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "relay.csv"

    @contextmanager
    def with_relay(*asked: Any) -> Iterator[Site]:
        with open_site(*asked) as site, relay(site, holds, log):
            yield site

    plan = load_plan(write_plan(tmp_path, ["wire", "bridge"], ["icmp"], rounds=16))
    folder = create_folder(plan, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(conducting, "open_site", with_relay)
        conducting.conduct(plan, folder, Screen())
    analyse(folder.path)

    told = latency(rows_of(folder), "bridge", "wire")
    true = true_pairs(folder, log)
    truth = hodges_lehmann(true)
    assert all(held >= asked for held, asked in zip(least_holds(log), holds, strict=True)), "the relay let one go early"
    # Round by round, so that a busy machine, which makes the relay late, makes no difference.
    excess = hodges_lehmann(told_pairs(folder) - true)
    assert excess.low is not None
    assert excess.high is not None
    with undisturbed():  # intervals of 95 %, each
        assert told["ci_low"] - ALLOWED_NS <= truth.estimate <= told["ci_high"] + ALLOWED_NS, (told, truth)
        assert excess.low - ALLOWED_NS <= 0 <= excess.high + ALLOWED_NS, excess
        assert excess.high - excess.low < 5_000, "the interval says nothing"


def least_holds(log: Path) -> list[int]:
    """The shortest time for which a frame was held on the held path, forward and backward, as the kernel stamped it."""
    held = pl.read_csv(log).drop_nulls("left_ns").filter(pl.col("near").str.contains("-bridge-"))
    took = pl.col("left_ns") - pl.col("arrived_ns")
    return [held.filter(direction=one).select(took.min()).item() for one in ("forward", "backward")]


def told_pairs(folder: RunFolder) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What the report's pairs say that the held path adds over the unheld one, round by round."""
    pairs = pl.read_parquet(folder.samples / "pairs.parquet")
    bridge = pairs.filter(device="bridge", reference="wire").sort("round")
    return bridge["latency_ns"].to_numpy()


PROBES = ["icmp", "raw/ping-pong", "udp/ping-pong", "udp6/ping-pong", "raw/request-response", "udp/request-response"]


class EveryProbe:
    """One run over the direct path, a wire, a bridge and three in cascade, by every kind of probe, closed loop.

    All tests judge the same run; once a test has found it disturbed, the next one has another.
    """

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._run: tuple[list[Row], Path] | None = None

    def run(self) -> tuple[list[Row], Path]:
        """Its results, and where it is."""
        if self._run is None:
            folder = self._folders.mktemp("probes")
            pace = 'schedule = ["closed-loop"]'
            plan = write_plan(folder, ["wire", "bridge", "bridge*3"], PROBES, rounds=10, probes_per_block=64, pace=pace)
            self._run = run_as_a_user(plan, folder / "run")["results"], folder / "run"
        return self._run

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """What is asserted within holds of a run that nothing disturbed."""
        try:
            with undisturbed():
                yield
        except DisturbedError:
            self._run = None
            raise


@pytest.fixture(scope="module")
def every_probe(tmp_path_factory: pytest.TempPathFactory) -> EveryProbe:
    return EveryProbe(tmp_path_factory)


@pytest.mark.parametrize("probe", PROBES)
@thrice
def test_every_kind_of_probe_detects_the_latency_of_a_bridge(every_probe: EveryProbe, probe: str) -> None:
    rows, _ = every_probe.run()
    row = latency(rows, "bridge", "direct", probe)
    assert row["ci_low"] <= row["estimate"] <= row["ci_high"], row
    with every_probe.undisturbed():
        assert row["ci_low"] > 0
        assert row["ci_high"] < 100_000, row


@thrice
def test_a_a_control_of_the_direct_link_shows_no_difference(every_probe: EveryProbe) -> None:
    rows, folder = every_probe.run()
    row = latency(rows, "a/a", "direct", statistic="pooled")
    assert row["ci_low"] <= row["estimate"] <= row["ci_high"], row
    found = {one["name"] for one in json.loads((folder / "analysis/verdict.json").read_text())["findings"]}
    with every_probe.undisturbed():  # judged by the interval of 99.9 %
        assert "a_a_nonzero" not in found, row


@thrice
def test_three_bridges_take_three_times_as_long_as_one(every_probe: EveryProbe) -> None:
    rows, _ = every_probe.run()
    one = latency(rows, "bridge", "direct", statistic="pooled")
    three = latency(rows, "bridge*3", "direct", statistic="pooled")
    slack = 3 * (one["ci_high"] - one["ci_low"]) + (three["ci_high"] - three["ci_low"])
    with every_probe.undisturbed():
        assert abs(three["estimate"] - 3 * one["estimate"]) < max(slack, 0.35 * 3 * one["estimate"]), (one, three)
        assert three["estimate"] > one["estimate"]


@thrice
def test_every_timestamp_is_of_the_kernel_and_every_probe_in_one_counter(every_probe: EveryProbe) -> None:
    _, folder = every_probe.run()
    blocks = pl.read_ipc_stream(folder / "records/blocks-000.arrow")
    assert (blocks["sent"] == blocks["received"] + blocks["lost"]).all()
    with every_probe.undisturbed():  # a reply that comes after the timeout of a block's end is none
        assert blocks["lost"].sum() == 0
    probes = pl.read_ipc_stream(folder / "records/probes-000.arrow")
    assert set(probes["departure_source"].unique()) == {"kernel"}
    assert set(probes["arrival_source"].drop_nulls().unique()) == {"kernel"}
    rtt = probes["arrival_ns"] - probes["departure_ns"]
    assert rtt.min() > 0  # type: ignore[operator]  # polars types a minimum as anything


def test_two_runs_at_once_do_not_touch_each_other(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, ["bridge"], ["icmp"], rounds=6, probes_per_block=24)
    argv = [SOJOURN, "run", str(plan), "--json", "--no-report", *idle_ends(), "--out"]
    both = [
        subprocess.Popen([*argv, str(tmp_path / name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in ("one", "other")
    ]
    for process in both:
        out, err = process.communicate(timeout=300)
        assert process.returncode in {0, 4}, err
        answer = json.loads(out)
        assert latency(answer["results"], "bridge", "direct")["n"] == 6
