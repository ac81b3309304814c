"""Check Rust's dependencies by deny.toml if cargo-deny is not installed. Runs `cargo metadata`, changes nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Print every package that violates the policy; status 1 if there is one."""
    complaints = list(breaches())
    print("\n".join(complaints))
    return 1 if complaints else 0


def breaches() -> Iterator[str]:
    """Return banned crates, other registries and other licences."""
    policy = tomllib.loads((ROOT / "deny.toml").read_text())
    banned = {entry["crate"] for entry in policy["bans"]["deny"]}
    for package in cargo_packages():
        name = package["name"]
        if name in banned:
            yield f"{name}: banned by deny.toml"
        if package["source"] is None:
            continue  # ours
        if package["source"].removeprefix("registry+") not in policy["sources"]["allow-registry"]:
            yield f"{name}: from {package['source']}"
        if not licence_is_allowed(package["license"] or "", set(policy["licenses"]["allow"])):
            yield f"{name}: licence {package['license']}"


def cargo_packages() -> list[dict[str, Any]]:
    """Return every package in the lock file, for our platform."""
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo/bin/cargo")
    command = [cargo, "metadata", "--locked", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    return [package for package in metadata["packages"] if package["id"] in used]


def licence_is_allowed(expression: str, allowed: set[str]) -> bool:
    """Return whether allowed licences satisfy an SPDX expression; `A/B` is the old notation of `A OR B`."""
    expression = expression.replace("/", " OR ")
    any_of = [part.strip(" ()") for part in re.split(r"\bOR\b(?![^(]*\))", expression)]
    return any(
        all(bit.strip(" ()") in allowed or any_allowed(bit, allowed) for bit in part.split(" AND ")) for part in any_of
    )


def any_allowed(group: str, allowed: set[str]) -> bool:
    """Return whether a parenthesised choice has an allowed licence."""
    return any(choice.strip(" ()") in allowed for choice in group.split(" OR "))


if __name__ == "__main__":
    sys.exit(main())
