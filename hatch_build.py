"""Builds `sojourn-instrument` with cargo, puts it beside the wheel's `sojourn`, and adds a bill of materials.

The bill (CycloneDX 1.6, JSON) has every crate that the binary is built from, and every Python library that the locked
environment has; it lies where PEP 770 says, in `sojourn-*.dist-info/sboms`.

Always the release profile, for an editable install too: a debug instrument is a measurement that must not be trusted.
Knows nothing of which crates there are; does not install Rust (scripts/setup.sh does).
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BINARY = "sojourn-instrument"
SBOM = "sojourn.cdx.json"
LEAST = (2, 28)
"""The C library of the oldest distributions that the Python libraries are built for; a static binary needs none."""
MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""The machines of ELF that a binary may be for, as `uname -m` calls them."""
PROMISED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libz.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
"""The libraries that PEP 600 lets a binary expect, as far as ours may need them."""
COMPLETION = {
    "sojourn.bash": "share/bash-completion/completions/sojourn",
    "_sojourn": "share/zsh/vendor-completions/_sojourn",
    "sojourn.fish": "share/fish/vendor_completions.d/sojourn.fish",
}


class CargoHook(BuildHookInterface):  # type: ignore[type-arg]
    """One cargo build before each wheel, editable ones included."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the binary and name it as a script of the wheel."""
        # "standard" or "editable": both carry a release binary
        if self.target_name != "wheel":
            return
        given = os.environ.get("SOJOURN_BINARY")
        binary = Path(self.root, given) if given else build_release(Path(self.root))
        self._folder = tempfile.TemporaryDirectory()  # gone when the wheel is written
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_of(binary)}"
        build_data.setdefault("shared_scripts", {})[str(named(binary, Path(self._folder.name)))] = BINARY
        if version == "standard":
            build_data.setdefault("shared_data", {}).update(manual(Path(self.root)))
        bill = Path(self._folder.name) / SBOM
        bill.write_text(json.dumps(bill_of_materials(Path(self.root), machine_of(binary)), indent=1) + "\n")
        build_data["sbom_files"] = [str(bill)]


def platform_of(binary: Path) -> str:
    """The platform of a wheel with this binary: manylinux (PEP 600) where it needs no more than is promised there."""
    machine = machine_of(binary)
    libraries, newest = needs_of(binary)
    if not libraries <= PROMISED:
        return f"linux_{machine}"
    return "manylinux_{}_{}_{}".format(*max(newest, LEAST), machine)


def machine_of(binary: Path) -> str:
    """What a binary is built for, by its ELF header; this machine where that does not say."""
    with binary.open("rb") as file:
        header = file.read(20)
    number = int.from_bytes(header[18:20], "little") if header.startswith(b"\x7fELF") else 0
    return MACHINES.get(number, platform.machine())


def needs_of(binary: Path) -> tuple[set[str], tuple[int, int]]:
    """The shared libraries that a binary names, and the newest version of the C library that it asks for."""
    shown = subprocess.run(["objdump", "-p", binary], check=True, capture_output=True, text=True).stdout
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"\bGLIBC_(\d+)\.(\d+)", shown)]
    return set(re.findall(r"NEEDED\s+(\S+)", shown)), max(versions, default=LEAST)


def named(binary: Path, folder: Path) -> Path:
    """The binary under the name that it is installed by."""
    if binary.name == BINARY:
        return binary
    return Path(shutil.copy(binary, folder / BINARY))


def manual(root: Path) -> dict[str, str]:
    """Where man pages and completion go, as far as `make man` has made them."""
    found = {str(page): f"share/man/man1/{page.name}" for page in (root / "build/man").glob("*.1")}
    for name, place in COMPLETION.items():
        if (script := root / "build/completion" / name).exists():
            found[str(script)] = place
    return found


def find_cargo() -> str:
    """Where cargo is."""
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo/bin/cargo")
    if not Path(cargo).exists():
        message = "cargo is not installed: run scripts/setup.sh"
        raise FileNotFoundError(message)
    return cargo


def build_release(root: Path) -> Path:
    """Path of the freshly built release binary."""
    cargo = find_cargo()
    subprocess.run([cargo, "build", "--locked", "--release", "--bin", BINARY], cwd=root, check=True)
    return target_directory(cargo, root) / "release" / BINARY


def target_directory(cargo: str, root: Path) -> Path:
    """Where cargo puts its results, whatever the user's own configuration says."""
    if configured := os.environ.get("CARGO_TARGET_DIR"):
        return root / configured
    command = [cargo, "metadata", "--format-version=1", "--no-deps", "--locked"]
    metadata = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return Path(json.loads(metadata)["target_directory"])


def bill_of_materials(root: Path, machine: str) -> dict[str, Any]:
    """What the wheel with a binary for this machine is made of and needs, as a CycloneDX document."""
    own = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component("application", "pypi", own["name"], version_of(root))},
        "components": [*crates(root, machine), *libraries(root)],
    }


def version_of(root: Path) -> str:
    """The version, where it is stated."""
    stated = (root / "python/sojourn/version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', stated, re.MULTILINE)
    if found is None:
        message = "python/sojourn/version.py states no __version__"
        raise ValueError(message)
    return found[1]


def crates(root: Path, machine: str) -> list[dict[str, Any]]:
    """The crates of others that the binary is built from, with the checksums of Cargo.lock."""
    target = f"{machine}-unknown-linux-gnu"
    command = [find_cargo(), "metadata", "--format-version=1", "--locked", f"--filter-platform={target}"]
    metadata = json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    needs = {
        node["id"]: [one["pkg"] for one in node["deps"] if any(kind["kind"] != "dev" for kind in one["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    first = next(one for one, package in packages.items() if package["name"] == BINARY)
    locked = tomllib.loads((root / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    sums = {(one["name"], one["version"]): one.get("checksum") for one in locked}
    used = sorted((packages[one] for one in reached(first, needs)), key=lambda one: (one["name"], one["version"]))
    return [
        component("library", "cargo", one["name"], one["version"], sums[one["name"], one["version"]], one["license"])
        for one in used
        if one["source"]
    ]


def libraries(root: Path) -> list[dict[str, Any]]:
    """The Python libraries that `sojourn` needs, as uv.lock has them; those of development are left out."""
    locked = {one["name"]: one for one in tomllib.loads((root / "uv.lock").read_text(encoding="utf-8"))["package"]}
    needs = {name: [need["name"] for need in one.get("dependencies", [])] for name, one in locked.items()}
    return [
        component("library", "pypi", name, locked[name]["version"])
        for name in sorted(reached("sojourn", needs) - {"sojourn"})
    ]


def reached(first: str, needs: dict[str, list[str]]) -> set[str]:
    """Everything that is needed, directly or not, the first included."""
    found, todo = {first}, [first]
    while todo:
        new = set(needs[todo.pop()]) - found
        found |= new
        todo += new
    return found


def component(
    kind: str, registry: str, name: str, version: str, sha256: str | None = None, licence: str | None = None
) -> dict[str, Any]:
    """A component of the bill."""
    purl = f"pkg:{registry}/{name}@{version}"
    found: dict[str, Any] = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    if licence:
        found["licenses"] = [{"expression": licence.replace("/", " OR ")}]
    return found
