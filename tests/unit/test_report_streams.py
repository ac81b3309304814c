"""The reports of streams, from made-up runs of every method: tables, figures, words, and what must never be printed."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from sojourn.analysis import analyse
from sojourn.methods import packages
from sojourn.records import TABLES
from sojourn.report import render_terminal, write_report
from sojourn.report.checks import worst_of
from sojourn.report.contents import all_figures, all_tables, parts_of
from sojourn.report.drawing import draw, rows_of
from sojourn.report.palette import Palette
from sojourn.report.published import published_tables
from sojourn.report.run import Run
from tests.unit import made_up_costs, made_up_emulator, test_model, test_stages, test_taps, vega_lite
from tests.unit.made_up_suites import Device, Suite
from tests.unit.synthetic_streams import StreamRun, cell
from tests.unit.test_budgets import WITHOUT_HEADLINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from syrupy.assertion import SnapshotAssertion

QUALIFIED = {
    "event": "qualified", "send_engine": "packet", "receive_engine": "packet", "frame_bytes": 64, "clean_pps": 1e7,
    "floor_ns": {"min": 3000, "p50": 4600}, "flood_pps": 1.2e7,
}  # fmt: skip
FEW: dict[str, Any] = {"rounds": 6, "count": 300}


def one_way(path: Path) -> Path:
    cells = [
        cell(interval_ns=interval, schedule=schedule, payload_bytes=512, frame_bytes=530)
        for interval in (100_000, 10_000, 5_000)
        for schedule in ("regular", "poisson")
    ]

    def queue(trial: Any, rng: Any) -> None:
        if trial.factors["interval_ns"] < 10_000:
            trial.delay = trial.delay + np.arange(len(trial.delay)) * 2_000
            trial.lost[-3:] = True

    return StreamRun(path, "one-way", cells, alter=queue, log=[QUALIFIED], **FEW).write()


def rates(method: str) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        cells = [cell(schedule="flood", rate_pps=0.0, interval_ns=0, frame_bytes=size) for size in (64, 512, 1518)]
        if method == "loss":
            cells += [
                cell(rate_share=share, frame_bytes=64, to=to) for share in (0.5, 0.9) for to in ("unicast", "unknown")
            ]
        lossy = lambda rng, factors, n: rng.random(n) < (0.05 if factors["schedule"] == "flood" else 0.0)  # noqa: E731
        return StreamRun(path, method, cells, a_a=False, lose=lossy, log=[QUALIFIED], **FEW).write()

    return make


def fan_in(path: Path) -> Path:
    cells = [cell(senders=n, frame_bytes=530, payload_bytes=512) for n in (1, 2, 3)]
    cells += [
        cell(senders=n, schedule="flood", rate_pps=0.0, interval_ns=0, frame_bytes=530, payload_bytes=512)
        for n in (1, 2)
    ]
    wider = lambda rng, factors, n: rng.gamma(4, 300 * factors["senders"], n) + 4000  # noqa: E731
    return StreamRun(path, "fan-in", cells, delay=wider, **FEW).write()


def multicast(path: Path) -> Path:
    cells = [cell(kind=kind, to="multicast", receivers=n) for kind in ("one-way", "answers") for n in (0, 2)]
    answer = lambda rng, node, n: rng.gamma(4, 200, n) + 20_000 + 9_000 * node  # noqa: E731
    return StreamRun(path, "multicast", cells, answer_ns=answer, **FEW).write()


def background(path: Path) -> Path:
    cells = [cell()] + [cell(load=load, load_via=via) for load in (0.5, 0.9) for via in ("through", "beside")]
    slow = {"through": 900.0, "beside": 300.0}
    busy = lambda rng, factors, n: rng.gamma(4, 500, n) + 4000 + slow.get(factors["load_via"], 0.0)  # noqa: E731
    return StreamRun(path, "background", cells, delay=busy, **FEW).write()


def suite(method: str) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        made = Suite(method, clean_pps=5e5)
        made.qualified(64, 1518)
        for repetition in range(3):
            for size, capacity in ((64, 300_000.0), (1518, 480_000.0)):
                made.mlr(Device(capacity), size, repetition, 5e5)
        made.timed("latency", 64, 0, np.random.default_rng(1).gamma(4, 500, 600) + 4000)
        return made.write(path)

    return make


def emulator(path: Path) -> Path:
    cells = [made_up_emulator.Cell(f"delay {ms}ms", made_up_emulator.constant(ms * 10**6),
                                   made_up_emulator.stays(ms * 10**6), packets=400) for ms in (1, 10)]  # fmt: skip
    loses = made_up_emulator.losing({"independent": {"probability": 0.1}})
    cells.append(
        made_up_emulator.Cell(
            "loss 10%", loses, made_up_emulator.stays(0), lambda rng, n: rng.random(n) < 0.1, packets=800
        )
    )
    return made_up_emulator.Made(cells, published='"dummynet2003_delay", "dummynet2003_loss"').write(path)


def costs(path: Path) -> Path:
    return made_up_costs.write(path, made_up_costs.Machine(left={1: 0.9}), ["flows=1,10"]).path


def taps(path: Path) -> Path:
    """Frames that are so long in the device that they meet others, some of them lost or reordered."""
    return test_taps.made_up(path, lost=2, reordered=4, held_ns=300_000)


HERE = Path(__file__)
MAKERS: dict[str, Callable[[Path], Path]] = {
    "one-way": one_way, "stages": test_stages.run, "model": test_model.run, "background": background, "fan-in": fan_in,
    "throughput": rates("throughput"), "loss": rates("loss"), "multicast": multicast, "rfc2544": suite("rfc2544"),
    "rfc8219": suite("rfc8219"), "rfc2889": suite("rfc2889"), "emulator": emulator,
    "tcp-cost": costs, "taps": taps,
}  # fmt: skip
OF_TCP = ("tcp-cost",)
"""Methods without streams of frames."""

WANTED_TABLES = {
    "tcp-cost": {"cost_ratios", "cost_controls", "cost_traffic", "cost_programs"},
    "taps": {"delay_between_taps", "modes", "subtraction", "accounting", "conservation"},
    "one-way": {"min_frame_interval", "by_interval", "device_latency", "one_way_delay", "variation", "conservation"},
    "stages": {"latency_breakdown", "one_way_delay"},
    "model": {"model_parameters", "model_distances", "model_delays"},
    "background": {"shifts", "modes", "one_way_delay", "device_latency"},
    "fan-in": {"delay_spreads", "rates", "one_way_delay"},
    "throughput": {"rates", "inter_frame", "conservation"},
    "loss": {"loss", "unknown", "rates"},
    "multicast": {"peak_spacing", "shifts", "responses", "one_way_delay"},
    "rfc2544": {"suite_rates", "suite_latency", "suite_spread"},
    "rfc8219": {"suite_rates", "suite_latency", "suite_spread"},
    "rfc2889": {"suite_rates", "suite_latency", "suite_spread"},
    "emulator": {"checks", "all_checks", "emulation_error", "emulated_delay", "emulated_loss"},
}
WANTED_FIGURES = {
    "taps": {
        "delay_between_taps_mean",
        "delay_between_taps_p99",
        "delay_between_taps_cdf",
        "delay_between_taps_histogram",
        "delay_between_taps_density",
        "delay_in_flight",
        "losses_between_taps",
    },
    "tcp-cost": {"cost_over_detail", "cost_over_where", "cost_controls", "cost_programs", "cost_over_time"},
    "one-way": {
        "one_way_delay_by_interval_p50",
        "min_frame_interval",
        "delay_cdf",
        "delay_histogram",
        "inter_arrival_cdf",
    },
    "stages": {"latency_breakdown", "stage_differences"},
    "model": {"model_histogram", "model_distance"},
    "background": {"load_histogram", "shift_over_load"},
    "fan-in": {"spread_over_senders", "rate_over_senders", "fairness", "shares"},
    "throughput": {"frames_over_size", "bits_over_size", "gap_over_size"},
    "loss": {"loss_over_load", "received_over_load"},
    "multicast": {"answers", "peaks", "receivers", "over_listeners"},
    "rfc2544": {"suite_rates", "search_steps", "latency_trials"},
    "rfc8219": {"suite_rates", "search_steps", "latency_trials"},
    "rfc2889": {"suite_rates", "search_steps", "latency_trials"},
    "emulator": {"emulation_error_cdf", "error_over_delay", "losses_over_time", "loss_run_lengths", "autocorrelation"},
}
MADE: dict[str, Path] = {}


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A maker of analysed runs, one for each method; not to be changed."""

    def make(method: str) -> Path:
        if method not in MADE:
            path = MAKERS[method](tmp_path_factory.mktemp("made") / method)
            analyse(path)
            MADE[method] = path
        return MADE[method]

    return make


def test_every_method_has_a_report_test() -> None:
    """Here, or by a test that writes or reads reports and bears its name or has it in a string."""
    others = [one for one in HERE.parents[1].glob("*/test_*.py") if "from sojourn.report" in one.read_text()]
    told = [f"{one.stem}\n{one.read_text()}" for one in others if one != HERE]
    without = set(packages()) - set(MAKERS)
    assert set(MAKERS) < set(packages())
    assert {
        one
        for one in without
        if not any(f'"{one}"' in text or f"test_{one.replace('-', '_')}\n" in text for text in told)
    } == set()


@pytest.mark.parametrize("method", MAKERS, scope="module")
def test_a_method_has_its_tables_and_figures(made: Callable[[str], Path], method: str) -> None:
    run = Run.read(made(method))
    tables, figures = {table.name: table for table in all_tables(run)}, {figure.name for figure in all_figures(run)}
    assert WANTED_TABLES[method] <= set(tables)
    assert WANTED_FIGURES[method] <= figures
    assert set(parts_of(run).results) & set(tables), "something stands under Results"
    for table in tables.values():
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.name
        keys = [key for column in table.columns for key in column.keys]
        assert len(keys) == len(set(keys)), table.name
        assert max(len(row) for row in csv.reader(io.StringIO(table.csv()))) == len(keys)


@pytest.mark.parametrize("method", MAKERS, scope="module")
def test_specifications_are_valid_and_have_data(made: Callable[[str], Path], method: str) -> None:
    for figure in all_figures(Run.read(made(method))):
        for panel in figure.panels:
            spec = panel.page(figure.among)
            vega_lite.check(spec)
            assert any(len(rows) for rows in spec["datasets"].values()), figure.name
        assert "var(--" not in figure.file(), f"{figure.name} needs the page's style"
        assert len({*figure.inks().values()}) == len(figure.devices), (
            f"two of {figure.devices} in {figure.name} look alike"
        )


@pytest.mark.parametrize("method", MAKERS, scope="module")
def test_key_numbers_and_text_are_complete(made: Callable[[str], Path], method: str) -> None:
    run = Run.read(made(method))
    parts = parts_of(run)
    keys, words = parts.keys(run), parts.words(run)
    assert keys
    assert all(key.value and "None" not in f"{key.what}{key.value}{key.lines}" for key in keys)
    assert words[0].startswith("The unit is the ")
    assert method in OF_TCP or any("A lost frame counts in the distribution" in line for line in words)


def test_effect_of_further_receivers_refers_to_the_streams(tmp_path: Path) -> None:
    """Requests to a group have such rows too; their delays are others."""
    cells = [cell(kind=kind, to="multicast", receivers=n) for kind in ("answers", "one-way") for n in (0, 2)]

    def slower(rng: Any, factors: dict[str, Any], n: int) -> Any:
        return rng.gamma(4, 200, n) + factors["receivers"] * (4_000 if factors["kind"] == "one-way" else 1_000)

    folder = StreamRun(tmp_path / "run", "multicast", cells, delay=slower, **FEW).write()
    analyse(folder)
    run = Run.read(folder)
    told = [key for key in parts_of(run).keys(run) if "further receivers" in key.what]
    assert told
    assert all(abs(float(key.value) - 8) < 0.5 for key in told)


@pytest.mark.parametrize("method", MAKERS, scope="module")
def test_a_page_is_written(made: Callable[[str], Path], method: str) -> None:
    folder = made(method)
    page = write_report(folder, vector=True).read_text().replace("\u00a0", " ")
    assert "on another day, after a reboot or on another machine" in page
    figures = all_figures(Run.read(folder))
    files = {path.name for path in (folder / "report" / "figures").iterdir()}
    assert files == {f"{figure.name}.{form}" for figure in figures for form in ("svg", "pdf")}
    assert len(re.findall(r'id="spec-', page)) == sum(len(figure.panels) for figure in figures)
    assert ('<h2 id="uncertainty">' in page) == (method not in WITHOUT_HEADLINE)


@pytest.mark.parametrize("method", sorted(MAKERS.keys() - WITHOUT_HEADLINE.keys()))
def test_a_run_of_every_method_has_a_budget_that_adds_up(made: Callable[[str], Path], method: str) -> None:
    found = json.loads((made(method) / "analysis" / "budgets.json").read_text())
    assert found
    assert len({one["name"] for one in found}) == len(found), "two budgets have one name"
    for one in found:
        used = [part for part in one["components"] if part["state"] == "counted"]
        if one["combined"] is not None:
            assert one["combined"] == pytest.approx(math.hypot(*(part["contribution"] for part in used)))
            assert one["expanded"] == pytest.approx(one["coverage_factor"] * one["combined"])
            assert sum(part["share"] for part in used) == pytest.approx(1)
        assert one["not_covered"]
        assert any(part["state"] == "unknown" for part in one["components"])


def test_every_delay_is_stated_with_its_clock_error(made: Callable[[str], Path]) -> None:
    for method in ("one-way", "fan-in", "background", "multicast"):
        tables = {table.name: table for table in all_tables(Run.read(made(method)))}
        delays = tables["one_way_delay"]
        assert delays.columns[-1].keys == ("clock_error95_us", "clock_bound_us")
        assert {row[-1].text for row in delays.rows} == {"one clock"}


def test_different_clocks_are_reported_with_both_errors(tmp_path: Path) -> None:
    line = dict.fromkeys(TABLES["clock_lines"], 0) | {
        "peer": "b", "clock_id": 8, "shared": False, "to_ns": 2**62, "bound_ns": 2_000.0, "error95_ns": 45.0,
    }  # fmt: skip
    made = StreamRun(
        tmp_path / "run", "one-way", [cell()], shared=False, lines=lambda trial: [line | {"block": trial.block}], **FEW
    )
    analyse(folder := made.write())
    run = Run.read(folder)
    tables = {table.name: table for table in all_tables(run)}
    assert {row[-1].text for row in tables["one_way_delay"].rows} == {"0.045 (2)"}
    words = " ".join(parts_of(run).words(run))
    assert "at most 2 µs" in words
    assert "below 0.045 µs" in words


def test_rate_limited_by_the_tester_is_not_attributed_to_the_device(
    tmp_path: Path, made: Callable[[str], Path]
) -> None:
    limited = QUALIFIED | {"clean_pps": 1e6, "frame_bytes": 64}
    cells = [cell(schedule="flood", rate_pps=0.0, interval_ns=0)]
    analyse(folder := StreamRun(tmp_path / "run", "throughput", cells, log=[limited], **FEW).write())
    run = Run.read(folder)
    rows = json.loads((folder / "analysis" / "results.json").read_text())
    assert {row["statistic"] for row in rows if row["quantity"] == "throughput_pps" and row["device"] == "bridge"} == {
        "at_least"
    }
    table = next(table for table in all_tables(run) if table.name == "rates")
    place = [column.keys[0] for column in table.columns].index("throughput_pps_mean_per_s")
    bridge = next(row for row in table.rows if row[1].text == "bridge")
    assert bridge[place].text.startswith("≥ ")
    assert bridge[place].values[1] == "at_least", "a program reads it as a limit too"
    assert bridge[place + 1].values == (None, None), "a limit has no interval"
    key = next(key for key in parts_of(run).keys(run) if key.device == "bridge")
    assert key.value.startswith("≥ ")
    figure = next(figure for figure in all_figures(run) if figure.name == "frames_over_size")
    drawn = [row for rows in figure.panels[0].page()["datasets"].values() for row in rows]
    assert all(row["hollow"] for row in drawn if row["device"] == "bridge")
    suites = next(table for table in all_tables(Run.read(made("rfc2544"))) if table.name == "suite_rates")
    large = next(row for row in suites.rows if row[0].text == "1518 B")
    assert large[2].text.startswith("≥ "), "480,000 of 500,000 is the tester's"


def test_a_percentile_of_lost_frames_is_infinite(tmp_path: Path) -> None:
    half = lambda rng, factors, n: rng.random(n) < 0.6  # noqa: E731
    analyse(folder := StreamRun(tmp_path / "run", "one-way", [cell()], lose=half, **FEW).write())
    table = next(table for table in all_tables(Run.read(folder)) if table.name == "one_way_delay")
    place = [column.keys[0] for column in table.columns].index("one_way_delay_p50_us")
    assert {row[place].text for row in table.rows} == {"∞"}


def test_published_tables_stand_beside_ours(made: Callable[[str], Path], tmp_path: Path) -> None:
    beside = {
        "one-way": "atlas2000_min_frame_interval",
        "fan-in": "atlas2000_multi_source_throughput",
        "multicast": "atlas2000_multicast_response_spacing",
    }
    for method, name in beside.items():
        run = Run.read(made(method))
        run.plan["study"]["published"] = [name]
        table = next(table for table in published_tables(run).tables if table.name == f"published_{name}")
        ours = [i for i, column in enumerate(table.columns) if column.group == "This run" and column.numeric]
        assert any(row[i].values[0] is not None for row in table.rows for i in ours), name


def test_a_bed_of_many_ends_is_drawn() -> None:
    def link(path: str, ends: tuple[str, str], ports: tuple[str, str]) -> dict[str, str]:
        return {"path": path, "from": ends[0], "to": ends[1], "from_port": ports[0], "to_port": ports[1]}

    bed = {
        "drawing": {
            "nodes": [{"id": "bridge/1", "label": "bridge", "path": "bridge"}],
            "links": [
                link("bridge", ("bridge/1", "b"), ("d-r2", "b-bridge-2")),
                link("bridge", ("a", "bridge/1"), ("a-bridge-2", "d-l2")),
                link("bridge", ("a", "bridge/1"), ("a-bridge", "d-l")),
                link("bridge", ("bridge/1", "b"), ("d-r", "b-bridge")),
                link("direct/bypass", ("a", "b"), ("a-direct-y", "b-direct-y")),
            ],
        },
        "stable": {"bed": {"spec": {"rate_bps": 10_000_000, "shaper": "tbf"}, "paths": []}},
    }  # fmt: skip
    bridge, bypass = rows_of(bed, {})
    assert (bridge.left.split()[0], bridge.further_left) == ("a-bridge", ("a-bridge-2",))
    assert (bridge.right.split()[0], bridge.further_right) == ("b-bridge", ("b-bridge-2",))
    assert bridge.shaped == "TBF 10 Mbit/s"
    assert bypass.device == "direct"
    drawn = draw(bed, {"stream": {}}, Palette(for_page=True))
    for word in (
        "a-bridge-2",
        "b-bridge-2",
        "TBF 10 Mbit/s",
        "direct, bypass: load beside it",
        "1 further port at host A",
    ):
        assert word in drawn


@pytest.mark.parametrize("method", ["one-way", "throughput", "rfc2544"])
def test_terminal_output_is_as_recorded(
    made: Callable[[str], Path], method: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(made(method), folder, ignore=shutil.ignore_patterns("records", "report"))
    verdict = {
        "run": "run",
        "study": method,
        "verdict": "trusted",
        "sentence": "Well.",
        "hypotheses": [],
        "findings": [],
    }
    (folder / "analysis" / "verdict.json").write_text(json.dumps(verdict))
    render_terminal(folder, Console(file=(file := io.StringIO()), width=100, force_terminal=False))
    printed = file.getvalue().replace(str(folder), "RUN")
    assert max(len(line) for line in printed.splitlines()) <= 100
    assert "\n".join(line.rstrip() for line in printed.splitlines()) == snapshot


def test_rate_tables_are_as_recorded_in_every_format(made: Callable[[str], Path], snapshot: SnapshotAssertion) -> None:
    table = next(table for table in all_tables(Run.read(made("rfc2544"))) if table.name == "suite_rates")
    assert table.markdown() == snapshot(name="md")
    assert table.csv() == snapshot(name="csv")
    assert table.latex() == snapshot(name="tex")


def test_citation_of_a_run_names_date_commit_and_machine(tmp_path: Path) -> None:
    folder = one_way(tmp_path / "run")
    analyse(folder)
    facts = {
        "machine": {"kernel": {"release": "6.1.0-9"}, "cpu": {"model": "An EPYC", "online": 8}},
        "sojourn": {"version": "0.1.0", "commit": "1f251942e74b4169688ca31c761bc1648cfb01cd"},
    }
    (folder / "bed.json").write_text(json.dumps({"stable": facts}))
    begun = {"event": "started", "tai_ns": 1795371716489049619}
    (folder / "log.jsonl").write_text(json.dumps(begun) + "\n" + (folder / "log.jsonl").read_text())
    page = write_report(folder).read_text()
    assert "2026-11-22 · Linux 6.1.0-9 · An EPYC, 8 CPUs" in page
    assert "measured on 2026-11-22 with Sojourn 0.1.0, commit 1f251942e74b" in page


def test_exported_tables_state_sample_size_and_selection(tmp_path: Path) -> None:
    folder = one_way(tmp_path / "run")
    analyse(folder)
    delays = next(table for table in all_tables(Run.read(folder)) if table.name == "one_way_delay")
    head, first, *_ = csv.reader(io.StringIO(delays.csv()))
    row = dict(zip(head, first, strict=True))
    assert int(row["frame_bytes"]) > 0
    assert int(row["interval_ns"]) > 0
    assert (int(row["n"]) > 1, float(row["level"]) >= 0.95) == (True, True)
    assert "\\multicolumn" in delays.latex()
    assert "95 \\% CI" in delays.latex()


def _check(verdict: str, p: float | None, measured: float | None = 1.0) -> dict[str, object]:
    given = {"verdict": verdict, "p": p, "measured": measured, "configured": 0.0}
    return {**given, "limit": None, "unit": "1", "what": "Q"}


def test_worst_test_is_the_one_with_the_lowest_p_value_not_an_untested_one() -> None:
    untested, likely, least = _check("inconclusive", None, 0.0), _check("inconclusive", 0.4), _check("pass", 0.0098)
    assert worst_of([untested, likely, least]) is least
    failed = _check("fail", 0.0001)
    assert worst_of([failed, least, untested]) is failed
    assert worst_of([untested]) is untested
