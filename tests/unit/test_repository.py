"""Holds the repository to its own rules where neither the compiler nor a linter can see them.

The five rules of ARCHITECTURE.md, the house's names, the policy of deny.toml. Reads sources and runs nothing but
`cargo metadata` and the instrument's `schema`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUST = sorted((ROOT / "crates").rglob("*.rs"))
PYTHON = sorted(p for folder in ("python", "tests", "bench", "scripts") for p in (ROOT / folder).rglob("*.py"))
SHELL = sorted((ROOT / "scripts").glob("*.sh"))


def code_lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines of a Rust file without its line comments and string literals."""
    lines = enumerate(path.read_text().splitlines(), start=1)
    return [(number, re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]) for number, line in lines]


def where(path: Path, number: int) -> str:
    """A place as an editor understands it."""
    return f"{path.relative_to(ROOT)}:{number}"


# --- rule 1: engines do no I/O and read no clock ---------------------------------------------------------------------


def test_clippy_forbids_reading_the_clock() -> None:
    methods = {entry["path"] for entry in tomllib.loads((ROOT / "clippy.toml").read_text())["disallowed-methods"]}
    assert methods >= {
        "std::time::Instant::now",
        "std::time::Instant::elapsed",
        "std::time::SystemTime::now",
        "std::time::SystemTime::elapsed",
        "std::thread::sleep",
    }
    assert (
        tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["lints"]["clippy"]["disallowed_methods"] == "deny"
    )


def test_only_the_time_crate_is_exempt() -> None:
    exempt = [
        where(path, number)
        for path in RUST
        for number, line in code_lines(path)
        if "disallowed_methods" in line and path.relative_to(ROOT).parts[:2] != ("crates", "time")
    ]
    assert not exempt


# --- rule 2: unsafe code lives in sys.rs -----------------------------------------------------------------------------


def test_unsafe_lives_in_sys_rs() -> None:
    found = [
        where(path, number)
        for path in RUST
        if path.name != "sys.rs"
        for number, line in code_lines(path)
        # `mod sys` is where the exemption of the workspace's `deny` has to stand, in one line of its parent.
        if re.search(r"\bunsafe\b", line)
    ]
    assert not found


def test_unsafe_is_allowed_only_for_sys() -> None:
    for path in RUST:
        lines = [line.strip() for _, line in code_lines(path)]
        for index, line in enumerate(lines):
            if "allow(unsafe_code)" in line and path.name != "sys.rs":
                following = " ".join(lines[index + 1 : index + 4])
                assert re.search(r"\bmod sys;", following), f"{where(path, index + 1)}: exempts more than `mod sys`"


def test_every_crate_keeps_the_workspace_lints() -> None:
    manifests = sorted((ROOT / "crates").glob("*/Cargo.toml"))
    assert manifests
    for manifest in manifests:
        assert tomllib.loads(manifest.read_text()).get("lints", {}).get("workspace") is True, manifest
    lints = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["lints"]
    assert lints["rust"]["unsafe_code"] == "deny"
    assert lints["clippy"]["undocumented_unsafe_blocks"] == "deny"


# --- rule 3: the two sides meet only in the run folder (import-linter does it; here: that it covers everything) -------


def test_import_contracts_name_every_package() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c for c in contracts if c["type"] == "layers")
    named = set(re.findall(r"\w+", " ".join(layers["layers"])))
    package = ROOT / "python" / "sojourn"
    modules = {p.stem for p in package.glob("*.py")} | {p.parent.name for p in package.glob("*/__init__.py")}
    assert modules - {"__init__", "__main__"} <= named
    sides = [c for c in contracts if c["type"] == "forbidden"]
    assert {frozenset(c["source_modules"]) for c in sides} == {frozenset(c["forbidden_modules"]) for c in sides}


# --- rule 4: every time carries unit, clock and source ---------------------------------------------------------------


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """What the instrument says of its own records."""
    binary = ROOT / ".venv/bin/sojourn-instrument"
    printed = subprocess.run([binary, "schema"], check=True, capture_output=True, text=True).stdout
    parsed: dict[str, Any] = json.loads(printed)
    return parsed


def test_every_field_has_unit_and_doc(schema: dict[str, Any]) -> None:
    suffixes = {"_ns": "ns", "_bytes": "bytes", "_bps": "bit/s"}
    for table, body in schema["tables"].items():
        for field in body["fields"]:
            place = f"{table}.{field['name']}"
            assert field["doc"], place
            for suffix, unit in suffixes.items():
                assert (field["unit"] == unit) == field["name"].endswith(suffix), place


def test_every_time_names_its_clock(schema: dict[str, Any]) -> None:
    durations = {"interval_ns", "timeout_ns", "clock_error_ns", "cpu_time_ns"}
    durations |= {"offset_ns", "bound_ns", "error95_ns", "drawn_ns"}
    for table, body in schema["tables"].items():
        for field in body["fields"]:
            if field["name"].endswith("_ns") and field["name"] not in durations:
                assert field["clock"] in {"TAI", "MONOTONIC_RAW"}, f"{table}.{field['name']}"


def test_findings_have_a_known_severity(schema: dict[str, Any]) -> None:
    assert schema["findings"]
    for finding in schema["findings"]:
        assert finding["severity"] in {"note", "doubtful", "invalid"}, finding["name"]
        assert finding["doc"], finding["name"]


# --- names and first lines -------------------------------------------------------------------------------------------


def test_names_are_the_fields_own() -> None:
    vague = re.compile(
        r"^\s*(?:pub(?:\([^)]*\))? )?(?:fn|def|async def) (get_\w+)|\b(?:class|struct|trait|enum) (\w*Manager)\b"
    )
    found = [
        where(path, number)
        for path in [*RUST, *PYTHON]
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if vague.search(line)
    ]
    assert not found


def test_files_are_called_after_what_they_hold() -> None:
    vague = {"util", "utils", "common", "helper", "helpers", "data", "misc", "manager"}
    assert not [str(p.relative_to(ROOT)) for p in [*RUST, *PYTHON] if p.stem in vague or p.parent.name in vague]


def test_first_lines_say_what_a_file_does() -> None:
    silent = [p for p in RUST if not p.read_text().startswith("//!")]
    silent += [p for p in PYTHON if p.stat().st_size and not re.match(r'(#!.*\n)?"""', p.read_text())]
    silent += [p for p in SHELL if not p.read_text().splitlines()[1].startswith("# ")]
    assert not [str(p.relative_to(ROOT)) for p in silent]


# --- one door, one version, one policy -------------------------------------------------------------------------------


def test_the_two_halves_have_one_version() -> None:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cargo["version"] == python["version"]
    assert cargo["license"] == python["license"]


def test_ci_goes_through_the_makefile() -> None:
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert commands[-1].startswith("exec make test")


def test_every_target_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = next(line for line in makefile.splitlines() if line.startswith(".PHONY:")).split()[1:]
    explained = re.findall(r"^([a-z]+):[^#\n]*## \S", makefile, flags=re.MULTILINE)
    assert sorted(phony) == sorted(explained)


def test_dependencies_keep_to_deny_toml() -> None:
    policy = tomllib.loads((ROOT / "deny.toml").read_text())
    banned = {entry["crate"] for entry in policy["bans"]["deny"]}
    for package in cargo_packages():
        name = package["name"]
        assert name not in banned, f"{name} is banned by deny.toml"
        if package["source"] is None:
            continue  # ours
        assert package["source"].removeprefix("registry+") in policy["sources"]["allow-registry"], name
        assert licence_is_allowed(package["license"] or "", set(policy["licenses"]["allow"])), (
            name,
            package["license"],
        )


def cargo_packages() -> list[dict[str, Any]]:
    """Every package that the lock file brings in, for our platform."""
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo/bin/cargo")
    command = [cargo, "metadata", "--locked", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    return [package for package in metadata["packages"] if package["id"] in used]


def licence_is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met with allowed licences only; `A/B` is the old way to write `A OR B`."""
    expression = expression.replace("/", " OR ")
    any_of = [part.strip(" ()") for part in re.split(r"\bOR\b(?![^(]*\))", expression)]
    return any(
        all(bit.strip(" ()") in allowed or any_allowed(bit, allowed) for bit in part.split(" AND ")) for part in any_of
    )


def any_allowed(group: str, allowed: set[str]) -> bool:
    """Whether a parenthesised choice holds an allowed licence."""
    return any(choice.strip(" ()") in allowed for choice in group.split(" OR "))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("GPL-3.0", False),
        ("MIT AND GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("(MIT OR GPL-2.0) AND Unicode-3.0", True),
        ("(GPL-3.0 OR GPL-2.0) AND Unicode-3.0", False),
        ("", False),
    ],
)
def test_licence_expressions_are_understood(expression: str, *, expected: bool) -> None:
    assert licence_is_allowed(expression, {"MIT", "Apache-2.0", "Unicode-3.0"}) is expected
