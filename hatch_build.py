"""Builds `sojourn-instrument` with cargo and puts it beside the `sojourn` script of the wheel.

Always the release profile, for an editable install too: a debug instrument is a measurement that must not be trusted.
Knows nothing of which crates there are; does not install Rust (scripts/setup.sh does).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BINARY = "sojourn-instrument"


class CargoHook(BuildHookInterface):  # type: ignore[type-arg]
    """One cargo build before each wheel, editable ones included."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the binary and name it as a script of the wheel."""
        del version  # "standard" or "editable": both carry a release binary
        if self.target_name != "wheel":
            return
        binary = build_release(Path(self.root))
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data.setdefault("shared_scripts", {})[str(binary)] = BINARY


def build_release(root: Path) -> Path:
    """Path of the freshly built release binary."""
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo/bin/cargo")
    if not Path(cargo).exists():
        message = "cargo is not installed: run scripts/setup.sh"
        raise FileNotFoundError(message)
    subprocess.run([cargo, "build", "--locked", "--release", "--bin", BINARY], cwd=root, check=True)
    return target_directory(cargo, root) / "release" / BINARY


def target_directory(cargo: str, root: Path) -> Path:
    """Where cargo puts its results, whatever the user's own configuration says."""
    if configured := os.environ.get("CARGO_TARGET_DIR"):
        return root / configured
    command = [cargo, "metadata", "--format-version=1", "--no-deps", "--locked"]
    metadata = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return Path(json.loads(metadata)["target_directory"])
