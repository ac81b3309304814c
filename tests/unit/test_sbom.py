"""The bill of materials that the wheel carries: valid, and of what the locks have."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[2]

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook, which lies outside every package."""
    sys.path.insert(0, str(ROOT))
    import hatch_build

    return hatch_build


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def bill(hook: ModuleType, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Of the wheel for each machine."""
    made: dict[str, Any] = hook.bill_of_materials(ROOT, request.param)
    return made


def test_sbom_is_valid_cyclonedx(bill: dict[str, Any]) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None


def test_sbom_has_the_dependencies_of_the_binary_and_no_test_library(bill: dict[str, Any]) -> None:
    crates = {one["name"]: one for one in bill["components"] if one["purl"].startswith("pkg:cargo/")}
    assert {"libbpf-sys", "arrow-ipc", "clap", "cc"} <= set(crates), "linked, or needed to build"
    assert not {"proptest", "loom", "libfuzzer-sys", "sojourn-time", "windows-sys", "wasm-bindgen"} & set(crates)
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {one["name"]: one["checksum"] for one in locked if one["name"] == "clap"}
    assert crates["clap"]["hashes"] == [{"alg": "SHA-256", "content": sums["clap"]}]


def test_sbom_has_the_locked_runtime_libraries_only(bill: dict[str, Any]) -> None:
    libraries = {one["name"]: one["version"] for one in bill["components"] if one["purl"].startswith("pkg:pypi/")}
    assert {"polars", "pyarrow", "typer", "markupsafe", "numpy"} <= set(libraries)
    assert not {"pytest", "mypy", "atheris", "sojourn"} & set(libraries)
