"""The bill of materials that the wheel carries: valid, and of what the locks have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from sojourn.instruments import find_instrument

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


def test_the_wheel_carries_the_sbom(hook: ModuleType, tmp_path: Path) -> None:
    """Of the wheel as `make dist` builds it, with the instrument of this environment in place of a static one."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    env = os.environ | {"SOJOURN_BINARY": find_instrument()}
    subprocess.run(argv, cwd=ROOT, env=env, check=True, capture_output=True, timeout=300)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        bills = [name for name in packed.namelist() if name.endswith(".cdx.json")]
        assert [name.partition(".dist-info/")[2] for name in bills] == ["sboms/sojourn.cdx.json"]
        there = json.loads(packed.read(bills[0]))
    assert there == hook.bill_of_materials(ROOT, hook.machine_of(Path(find_instrument())))
