"""Draw the modules in their layers into ARCHITECTURE.md, between markers; `--check` reports whether it is current.

The layers of Python are import-linter's (pyproject.toml), imports are read from the sources (grimp), and the crates and
their dependencies are cargo's. Draws packages and crates, not files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- drawing: make drawing -->\n", "<!-- end of drawing -->"


def main() -> int:
    """Write the drawing, or with `--check` return 1 if the page has another."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    drawn = f"{before}{BEGIN}```\n{python_layers()}\n\n{crate_layers()}\n```\n{END}{after}"
    if "--check" in sys.argv[1:]:
        if drawn != page:
            print("the drawing in ARCHITECTURE.md is not current: make drawing")
        return drawn != page
    PAGE.write_text(drawn)
    return 0


def python_layers() -> str:
    """Return one line per package, the highest layer first, with its imports."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    # Its cache compares modification times, which a checkout of another commit may not change.
    graph = grimp.build_graph("sojourn", include_external_packages=False, cache_dir=None)
    edges: dict[str, set[str]] = {}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            edges.setdefault(package(module), set()).add(package(imported))
    heights = {
        part.strip(" ()"): height
        for height, layer in zip(range(len(layers), 0, -1), layers, strict=True)
        for part in layer.split("|")
    }
    lines = [
        "python/sojourn: a package imports only what is below it, but ↑: a registry, which imports none of its own"
    ]
    for name, height in heights.items():
        named = sorted(edges.get(name, set()) - {name, "sojourn"})
        below = [f"{one}↑" if heights.get(one, 0) > height else one for one in named]
        lines.append(f"{height:3}  {name:12} → {', '.join(below) or '–'}")
    return "\n".join(lines)


def package(module: str) -> str:
    """The package of a module, below `sojourn`."""
    return module.split(".")[1] if "." in module else module


def crate_layers() -> str:
    """Return one line per crate: its height above crates without dependences of ours, and its dependences."""
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo/bin/cargo")
    command = [cargo, "metadata", "--locked", "--format-version=1", "--no-deps"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)[
        "packages"
    ]
    ours = {one["name"]: one for one in packages if "/crates/" in one["manifest_path"]}
    needs = {
        name: {d["name"] for d in one["dependencies"] if d["name"] in ours and d["kind"] is None}
        for name, one in ours.items()
    }

    def height(name: str) -> int:
        return 1 + max((height(below) for below in needs[name]), default=0)

    lines = ["crates: a crate depends only on what is below it"]
    for name in sorted(needs, key=lambda name: (-height(name), name)):
        below = sorted(short(one) for one in needs[name])
        lines.append(f"{height(name):3}  {short(name):12} → {', '.join(below) or '–'}")
    return "\n".join(lines)


def short(crate: str) -> str:
    """Return a crate's name without our prefix."""
    return crate.removeprefix("sojourn-")


if __name__ == "__main__":
    sys.exit(main())
