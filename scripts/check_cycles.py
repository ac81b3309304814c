"""Report every cycle of imports between files of the package; imports by string count, those for types only do not.

A string counts if it names a module of ours ("sojourn.a.b", or "sojourn.a.b:thing"). Modules that are found by their
folder, such as methods and devices, are named nowhere, and so are no edges.
"""

from __future__ import annotations

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1] / "python"


def main() -> int:
    """Print a cycle, if there is one."""
    graph = grimp.build_graph("sojourn", exclude_type_checking_imports=True)
    edges = {one: graph.find_modules_directly_imported_by(one) | by_string(one, graph.modules) for one in graph.modules}
    found = cycle(edges)
    if found:
        print("a cycle of imports:", " -> ".join(found))
    return 1 if found else 0


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Return a cycle among modules, given the imports of each; its first is also its last. Empty if there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def by_string(module: str, modules: set[str]) -> set[str]:
    """The files that a module names in strings; the name of a package alone is also that of a schema or a folder."""
    strings = (node.value for node in ast.walk(ast.parse(source(module).read_text())) if isinstance(node, ast.Constant))
    named = {one.partition(":")[0] for one in strings if isinstance(one, str)} & modules - {module}
    return {name for name in named if source(name).name != "__init__.py"}


def source(module: str) -> Path:
    """The file of a module."""
    path = ROOT.joinpath(*module.split("."))
    file = path.with_suffix(".py")
    return file if file.is_file() else path / "__init__.py"


if __name__ == "__main__":
    sys.exit(main())
