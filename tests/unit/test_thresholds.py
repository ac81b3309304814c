"""The page of thresholds has every number by which the modules that it names decide, with its value and its source."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/thresholds.md").read_text()
ROW = re.compile(
    r"^\| `([\w.]+)\.([A-Z]\w*)` \| ([\d.e+-]+) \| (.+) \| (published|derived|chosen): (\S.*) \|$", re.MULTILINE
)
ROWS = {(module, name): float(value) for module, name, value, *_ in ROW.findall(PAGE)}
RUST_ROW = re.compile(
    r"^\| `(crates/[\w/]+\.rs)::([A-Z]\w*)` \| ([\d.e+-]+) \| (.+) \| (published|derived|chosen): (\S.*) \|$",
    re.MULTILINE,
)
RUST_ROWS = {(file, name): float(value) for file, name, value, *_ in RUST_ROW.findall(PAGE)}
RUST_CONSTANT = re.compile(
    r"^(?:pub(?:\(\w+\))? )?const ([A-Z]\w*): (?:f64|[iu](?:8|16|32|64|size)|Nanos) = (?:Nanos::micros\()?([^;)]+)\)?;",
    re.MULTILINE,
)
RUST_FILES = ("crates/clock/src/doubt.rs", "crates/clock/src/estimator.rs", "crates/instrument/src/stream/findings.rs")
RUST_NO_DECISIONS = {("crates/clock/src/estimator.rs", "KNOTS"), ("crates/clock/src/estimator.rs", "ROUNDING_NS")}
"""Points of a line, and the rounding of stamps."""
NO_DECISIONS = {
    ("analysis.suites", "REASONS"), ("analysis.tester", "VISITS"), ("methods.one_way.analyse", "PARTS"),
    ("methods.tcp_perturbation.analyse", "CHANGES"), ("methods.tcp_perturbation.analyse", "POINTS"),
    ("methods.tcp_truth.analyse", "CURVES"), ("methods.tcp_truth.analyse", "FEW_POINTS"),
    ("methods.tcp_truth.analyse", "POINTS"),
    ("conduct.repeats", "VISITS"), ("conduct.tester", "LOAD_LEAD_SECONDS"), ("conduct.tester", "LOAD_POLL_SECONDS"),
    ("conduct.tester", "LOAD_PATIENCE_SECONDS"), ("conduct.tester", "SIMULATED_FLOOD_PPS"),
    ("conduct.tester", "ANNOUNCED_FRAMES"), ("conduct.tester", "ANNOUNCED_PPS"), ("conduct.throughput", "FLOOD_NS"),
    ("conduct.throughput", "FLOODS"), ("conduct.throughput", "CLEAN_NS"), ("methods.taps.analyse", "FCS_BYTES"),
    ("methods.taps.analyse", "CLASSES"), ("methods.taps.analyse.flight", "EXACT"),
    ("statistics.cycle", "MOST_TRIED"), ("statistics.cycle", "OVERSAMPLING"), ("statistics.distance", "RESAMPLES"),
    ("statistics.distance", "MOST_TRIALS"), ("statistics.modes", "GRID"), ("statistics.modes", "FOOT"),
    ("statistics.period", "MOST_EVENTS"), ("statistics.permutation", "DRAWN"), ("statistics.permutation", "GRID"),
    ("statistics.permutation", "TIE"), ("statistics.randomness", "MOST_AGE"), ("statistics.rare", "SHUFFLES"),
    ("statistics.rare", "FIRST"), ("statistics.sessions", "MOST_STEPS"), ("statistics.sessions", "TOLERANCE"),
    ("statistics.sessions", "ROUNDING"), ("statistics.signed_rank", "WALSH_UP_TO"), ("statistics.steps", "BINS"),
    ("statistics.steps", "NEIGHBOURS"), ("statistics.ticks", "MOST_STEPS"), ("statistics.ticks", "MOST_PACKETS"),
    ("methods.anomalies.analyse.series", "PROFILE_BINS"),
    ("methods.anomalies.analyse.series", "DRAWN"),
    ("methods.anomalies.analyse.series", "LEVEL_PHASES"),
    ("methods.anomalies.analyse.series", "MOST_NUMBERS"),
}  # fmt: skip
"""Numbers that count, cut or draw."""


def numbers_of(module: str) -> dict[str, float]:
    """The numbers that a module assigns to names in capitals."""
    loaded = importlib.import_module(f"sojourn.{module}")
    assert loaded.__file__ is not None
    statements = [one for one in ast.parse(Path(loaded.__file__).read_text()).body if isinstance(one, ast.Assign)]
    names = [name.id for one in statements for name in ast.walk(one.targets[0]) if isinstance(name, ast.Name)]
    values = {name: getattr(loaded, name) for name in names if name.isupper()}
    return {name: value for name, value in values.items() if type(value) in {int, float}}


@pytest.mark.parametrize("module", sorted({module for module, _ in ROWS}))
def test_every_number_of_a_module_is_on_the_page_with_its_value(module: str) -> None:
    decide = {name: value for name, value in numbers_of(module).items() if (module, name) not in NO_DECISIONS}
    assert decide == {name: value for (of, name), value in ROWS.items() if of == module}


@pytest.mark.parametrize("file", RUST_FILES)
def test_every_number_of_a_rust_file_is_on_the_page_with_its_value(file: str) -> None:
    constants = RUST_CONSTANT.findall((ROOT / file).read_text())
    decide = {name: float(value.replace("_", "")) for name, value in constants if (file, name) not in RUST_NO_DECISIONS}
    assert decide == {name: value for (of, name), value in RUST_ROWS.items() if of == file}


def test_every_row_is_read() -> None:
    assert len(ROWS) + len(RUST_ROWS) == len([line for line in PAGE.splitlines() if line.startswith("| `")])
    assert len(ROWS) > 80


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[\w/.]+::\w+)`", PAGE))))
def test_the_tests_that_derive_a_number_are_there(named: str) -> None:
    path, _, test = named.partition("::")
    assert f"def {test}(" in (ROOT / path).read_text()
