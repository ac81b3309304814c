"""The page of thresholds has every number by which an analysis or a conductor decides, with its value and its source.

Every module of `WALKED` is looked at, and every file of the instrument in `RUST_FILES`: a number in capitals is on the
page, or it is of one of the kinds in `NO_DECISIONS` and `RUST_NO_DECISIONS` that decide nothing.
"""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "python/sojourn"
PAGE = (ROOT / "docs/reference/thresholds.md").read_text()
WALKED = ("analysis", "methods", "statistics", "conduct")
REST = r"\| ([\d.e+-]+) \| (.+) \| (published|derived|chosen): (\S.*) \|$"
ROW = re.compile(rf"^\| `([\w.]+)\.([A-Z]\w*(?:\[[^`]*\])?)` {REST}", re.MULTILINE)
ROWS = {(module, name): float(value) for module, name, value, *_ in ROW.findall(PAGE)}
RUST_ROW = re.compile(rf"^\| `(crates/[\w/]+\.rs)::([A-Z]\w*(?:\[\d+\])?)` {REST}", re.MULTILINE)
RUST_ROWS = {(file, name): float(value) for file, name, value, *_ in RUST_ROW.findall(PAGE)}
RUST_CONSTANT = re.compile(
    r"^(?:pub(?:\(\w+\))? )?const ([A-Z]\w*): (?:f64|[iu](?:8|16|32|64|size)|Nanos|\[[^;]+; \d+\]) = ([^;]+);",
    re.MULTILINE,
)
RUST_FILES = (
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "crates/clock/src").rglob("*.rs")),
    "crates/probe/src/judge.rs",
    "crates/stream/src/goodness.rs",
    "crates/instrument/src/stream/findings.rs",
)
RUST_NO_DECISIONS = {
    "points of a line, turns of a search, rounding, tables": """
        crates/clock/src/estimate.rs: STUDENT
        crates/clock/src/estimator.rs: KNOTS ROUNDING_NS
        crates/clock/src/fit.rs: BEND_SCALES
        crates/clock/src/hull.rs: HALVINGS
        crates/clock/src/steps.rs: ROUNDING_NS
        crates/stream/src/goodness.rs: LEAST_GAP_NS
    """,
}

NO_DECISIONS = {
    "sizes and places in headers, files and registers": """
        analysis.crossings: FCS_BYTES
        analysis.departures: ETHERNET_WITHOUT_ICMP ICMP_HEADER SEQUENCES
        analysis.factors: IPV4_OVERHEAD IPV6_OVERHEAD RAW_OVERHEAD
        analysis.serialisation: AROUND_FRAME_BYTES LEAST_FRAME_BYTES
        analysis.streams: L1_OVERHEAD
        conduct.counters: COLUMNS
        conduct.draw: MOST_ENVIRONMENT_BYTES
        conduct.messages: BUFFER_BYTES
        conduct.meter: ETHERNET_BYTES
        conduct.pipes: FULL_FRAME
        conduct.tcp_hosts: MOST_SEGMENTS
        methods.emulator.analyse.link: FCS_BYTES
        methods.tcp_load.analyse.hypotheses: FULL_FRAME_BYTES
        methods.tcp_load.analyse.tcp_says: CWR
        methods.emulator.analyse.pipe: HEADER_BYTES
        methods.emulator.analyse.seen: DATA FLOW_AT KIND_AT
        methods.emulator.verifying: FULL SMALL WIRE_OVER_FRAME
        methods.taps.analyse: FCS_BYTES
        methods.taps.analyse.segments: HEADERS_BYTES
        methods.tcp_load.analyse.trials: ETHERNET_BYTES IP_TCP_BYTES TIMESTAMPS_BYTES WIRE_BYTES WITH_TIMESTAMPS
        methods.tcp_windows.analyse: FCS_BYTES
        methods.tcp_windows.measure: FCS_BYTES TIMESTAMPS_BYTES
        methods.tcp_truth.analyse.backoff: CWND_LIMITED OPEN RECOVERING
        methods.tcp_truth.analyse.oracle: NO_RTT_MIN
    """,
    "units": """
        conduct.emulators: NANOS
        conduct.pipes: NANOS
        methods.emulator.verifying: NANOS
        methods.short_flows.show: MILLION
        methods.tcp_load.analyse.trials: MINUTE_NS
        methods.tcp_load.show.grid: AXES SHOWN
        methods.tcp_load.show.rows: MILLION
        methods.tcp_windows.show: MEASURES
        methods.tcp_perturbation.show: OBSERVABLES
        methods.tcp_truth.analyse.cubic: K_UNIT
    """,
    "what a quantity can be: a share is never above 1": """
        analysis.rows: LARGEST
    """,
    "names: numbers of blocks, flows, ports and seeds, and what stands for none": """
        analysis.sessions: NO_SESSION
        analysis.streams: LOAD_FLOWS
        conduct.asking: FIRST_LOAD_FLOW FIRST_LOAD_PORT STREAM_UDP_PORT
        conduct.backgrounds: FIRST_PORT FLOW PORTS
        conduct.connections: FIRST_PORT PORTS
        conduct.messages: PORT
        conduct.run: SIMULATED_RUN
        conduct.site: UDP_PORT
        methods.model.analyse: SEED
        methods.tcp_cost.measure: STATISTICS_BLOCKS
        methods.variance.analyse: CELL
    """,
    "which quantiles, shares and lags are shown, under their names": """
        analysis.departures: INTERVAL_WITHIN_NS LIMITS_NS
        analysis.paths: ERROR_QUANTILES QUANTILES WITHIN_NS
        analysis.stream_rows: DELAY_QUANTILES VARIATION_QUANTILES
        methods.emulator.analyse.figures: LAGS QUANTILES
        methods.model.analyse: QUANTILES
        methods.short_flows.analyse: PERCENTILES
        methods.stages.analyse.breakdown: QUANTILES
        methods.tcp_load.analyse.background: COMPLETIONS DELAYS
        methods.tcp_load.analyse.trials: PERCENTILES SPREAD
    """,
    "how a figure or a sentence is drawn: points, bins, entries": """
        analysis.crossings: DELAY_CLASSES EXACT_SIZES LEAST_IN_A_CLASS LEAST_SLICE_NS RATE_CLASSES SLICES
        analysis.crossings: TIMELINE_POINTS
        analysis.path: PIECE_ROWS
        analysis.samples: BAND_POINTS CURVE_POINTS TIMELINE_POINTS
        analysis.stream_samples: BINS BULK LEAST_GROUPS ROUNDED_NS
        analysis.suites: REASONS
        methods.tcp_load.show: MOST_KEYS
        methods.anomalies.analyse.series: DRAWN PROFILE_BINS
        methods.anomalies.show: LEAST_P
        methods.emulator.analyse.figures: CURVE MOST_LENGTH MOST_LOSSES
        methods.emulator.show: WIDE
        methods.emulator.show.figures: CURVE_POINTS SMALLEST
        methods.model.analyse: BINS
        methods.one_way.analyse: PARTS
        methods.pairs.show.sizes: FEW
        methods.taps.analyse: CLASSES
        methods.tcp_cost.show: MOST_KEYS
        methods.tcp_load.show: MOST_POINTS
        methods.tcp_perturbation.analyse: POINTS
        methods.tcp_truth.analyse: CURVES FEW_POINTS POINTS
    """,
    "how much is computed: grids, draws, steps, tolerances of numbers, what is compared exactly": """
        methods.anomalies.analyse.series: LEVEL_PHASES MOST_NUMBERS
        methods.taps.analyse.flight: EXACT
        methods.tcp_load.analyse.conserved: MOST_FLOWS
        methods.tcp_load.analyse.shares: STEP_NS
        methods.tcp_perturbation.analyse: CHANGES
        methods.tcp_truth.analyse.cubic: POINTS
        statistics.anderson: LEAST LEAST_GAP_NS
        statistics.cycle: MOST_TRIED OVERSAMPLING
        statistics.distance: MOST_TRIALS RESAMPLES
        statistics.modes: FOOT GRID
        statistics.period: MOST_EVENTS
        statistics.permutation: DRAWN GRID TIE
        statistics.queue: START_SHARES
        statistics.randomness: MOST_AGE
        statistics.rare: FIRST SHUFFLES
        statistics.sessions: MOST_STEPS ROUNDING TOLERANCE
        statistics.signed_rank: WALSH_UP_TO
        statistics.steps: BINS NEIGHBOURS
        statistics.stopping: MOST
        statistics.ticks: MOST_PACKETS MOST_STEPS
        statistics.trend: SLOPES_UP_TO
    """,
    "visits of a path in a round: a round is mirrored": """
        conduct.repeats: VISITS
    """,
    "patience, pauses and pace of our own programs": """
        conduct.addresses: GRACE_SECONDS
        conduct.asking: MOST_KEPT MOST_PPS START_IN_NS
        plan.clock_trials: CLOCK_TRIAL_NS
        conduct.blocks: WARM_UP_COUNT WARM_UP_INTERVAL_NS
        conduct.emulators: DRAINED_SECONDS
        conduct.loop: GATHER_SECONDS
        conduct.progress: MOST_PATHS PLAIN_SECONDS REDRAW_SECONDS
        conduct.streams: ROUND_TRIPS_PPS
        conduct.taps: MATCH_SECONDS
        conduct.backgrounds: MARGIN_NS
        conduct.tcp_hosts: CONVERTING_SECONDS NOT_SENT_BYTES
        conduct.tester: ANNOUNCED_FRAMES ANNOUNCED_PPS LOAD_LEAD_SECONDS LOAD_PATIENCE_SECONDS LOAD_POLL_SECONDS
        conduct.tester: KNOWN_SECONDS LOOK_SECONDS SIMULATED_FLOOD_PPS
        conduct.throughput: CLEAN_NS FLOODS FLOOD_NS REACH_NS
        conduct.until: PATIENCE_S
        methods.departures.measure: SLOWEST STRAY_NS TICK_SECONDS
        methods.short_flows.measure: PATIENCE_SECONDS
        methods.tcp_cost.measure: CALIBRATION_SECONDS LONGEST_SECONDS TRIAL_TURNS
        methods.tcp_load.measure: TICK_SECONDS
        methods.tcp_truth.measure: BULK_BYTES
    """,
    "what other programs take, and what an estimate of the time is made of": """
        conduct.searches: WEIGHTS
        methods.departures.ask: PING_LEAST_NS
        methods.short_flows.ask: ASSUMED_BPS BYTE_BITS FLOW_NS TRIPS
        methods.tcp_cost.ask: COMMAND_NS LOADING_NS MOST_FLOWS
        methods.tcp_load.ask: ALONE LOG_NS
        methods.tcp_truth.ask: DIRECT_BPS
    """,
    "lists of standards and kernels, and figures of papers that are drawn beside ours": """
        analysis.suites.deviations: SIZES SIZES_8219
        methods.tcp_cost.analyse.ratios: PUBLISHED_SECONDS
        methods.tcp_cost.show.published: WITHOUT
        methods.tcp_truth.show: ESTIMATES
        statistics.ticks: TICKS_NS
    """,
}
"""By kind: numbers that decide nothing."""


def listed(kinds: dict[str, str]) -> list[tuple[str, str]]:
    """Module and name of what is excluded; a line is a module with its names."""
    lines = [line.strip().split(": ") for text in kinds.values() for line in text.strip().splitlines()]
    return [(of, name) for of, names in lines for name in names.split()]


EXCLUDED = set(listed(NO_DECISIONS)) | set(listed(RUST_NO_DECISIONS))


OF_PLANS = ("plan.clock_trials",)
"""Modules of plans that decide something: most of theirs are what a plan may ask for."""


def modules() -> list[str]:
    """Every module of the packages in which something is decided."""
    files = (path for package in WALKED for path in (SOURCES / package).rglob("*.py"))
    names = (".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in files)
    return sorted([*(name.removesuffix(".__init__") for name in names), *OF_PLANS])


def numbers_of(module: str) -> dict[str, float]:
    """The numbers that a module assigns to names in capitals; of tables, tuples and records each by its place."""
    loaded = importlib.import_module(f"sojourn.{module}")
    assert loaded.__file__ is not None
    statements = ast.parse(Path(loaded.__file__).read_text()).body
    targets = [one.targets[0] for one in statements if isinstance(one, ast.Assign)]
    targets += [one.target for one in statements if isinstance(one, ast.AnnAssign)]
    names = {name.id for one in targets for name in ast.walk(one) if isinstance(name, ast.Name) and name.id.isupper()}
    found = [(name, flat(getattr(loaded, name))) for name in sorted(names)]
    return {f"{name}{at}": value for name, values in found for at, value in values.items()}


def flat(value: Any) -> dict[str, float]:
    """The numbers of a value by where they stand in it."""
    if type(value) in {int, float}:
        return {"": float(value)}
    if is_dataclass(value) and not isinstance(value, type) and all(type(one) is float for one in vars_of(value)):
        value = asdict(value)
    several = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, tuple) else ()
    return {f"[{at}]{deeper}": one for at, inner in several for deeper, one in flat(inner).items()}


def vars_of(value: Any) -> list[object]:
    return [getattr(value, name) for name in value.__dataclass_fields__]


def plain(name: str) -> str:
    """The name of the whole that a number stands in."""
    return name.partition("[")[0]


def rust_numbers(file: str) -> dict[str, float]:
    """The numbers of a file of the instrument; of a list each by its place."""
    found: dict[str, float] = {}
    for name, text in RUST_CONSTANT.findall((ROOT / file).read_text()):
        numbers = [float(one) for one in re.findall(r"(?<![\w.])-?\d[\d.]*(?:e-?\d+)?", text.replace("_", ""))]
        found |= {name: numbers[0]} if not text.startswith("[") else {f"{name}[{i}]": n for i, n in enumerate(numbers)}
    return found


@pytest.mark.parametrize("module", modules())
def test_every_decision_threshold_in_python_is_on_the_page(module: str) -> None:
    decide = {name: value for name, value in numbers_of(module).items() if (module, plain(name)) not in EXCLUDED}
    assert decide == pytest.approx({name: value for (of, name), value in ROWS.items() if of == module}, rel=1e-9)


@pytest.mark.parametrize("file", RUST_FILES)
def test_every_decision_threshold_in_rust_is_on_the_page(file: str) -> None:
    decide = {name: value for name, value in rust_numbers(file).items() if (file, plain(name)) not in EXCLUDED}
    assert decide == {name: value for (of, name), value in RUST_ROWS.items() if of == file}


def test_excluded_constants_exist_and_are_listed_once() -> None:
    there = {(module, plain(name)) for module in modules() for name in numbers_of(module)}
    there |= {(file, plain(name)) for file in RUST_FILES for name in rust_numbers(file)}
    several = [*listed(NO_DECISIONS), *listed(RUST_NO_DECISIONS)]
    assert sorted(set(several) - there) == []
    assert len(several) == len(set(several))


def test_constants_are_found_in_any_syntax() -> None:
    assert numbers_of("analysis.comparison")["USUAL_MARGIN[time_ns]"] == 50
    assert numbers_of("methods.tcp_load.analyse")["GRADES[1][0]"] == 30e6
    assert rust_numbers("crates/clock/src/fit.rs")["LENGTHS[5]"] == 1e9
    assert rust_numbers("crates/instrument/src/stream/findings.rs")["STRETCHED_LEAST"] == 200


def test_every_row_of_the_page_is_parsed() -> None:
    assert len(ROWS) + len(RUST_ROWS) == len([line for line in PAGE.splitlines() if line.startswith("| `")])
    assert {module for module, _ in ROWS} <= set(modules())
    assert {file for file, _ in RUST_ROWS} <= set(RUST_FILES)


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[\w/.]+::\w+)`", PAGE))))
def test_tests_named_as_source_of_a_number_exist(named: str) -> None:
    path, _, test = named.partition("::")
    assert f"def {test}(" in (ROOT / path).read_text()
