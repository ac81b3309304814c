"""Report names that nothing uses, or that only tests use: functions, classes, methods, constants, in Python and Rust.

A name is used if it occurs a second time in shipped files, in scripts/ or in bench/: in code, in a string (entry
points, names of modules that are loaded later) or in a template. Two definitions with the same name count as one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]

USES = ("python/**/*.py", "python/**/*.html", "python/**/*.toml", "python/**/*.js", "scripts/*.py", "scripts/*.sh",
        "bench/*.py", "pyproject.toml", "Makefile")  # fmt: skip
"""The files in which a name of Python may be used. A test does not count."""

CALLED_BY_OTHERS = {
    "format_commands": "click calls it",
    "sojourn_path": "pytest's fixture",
    "trusted": "of the API: programs of others ask it",
    "config_from_dummynet": "what a search by coverage calls: the file alone, without ports and options",
}
"""Names that occur once but are used from outside, each with its user."""

OF_THE_SEARCH = "src/foreign.rs"
"""Of each crate: functions that searches by coverage call, which are a crate of their own (tests/fuzz)."""

DEFINED = re.compile(
    r"^\s*pub(?:\(\w+\))? (?:const |unsafe |async )*(?:fn|struct|enum|const|type|static|trait) (\w+)", re.MULTILINE
)
COMMENT = re.compile(r"(^ *|  )# [^\n]*", re.MULTILINE)
HANDED_ON = re.compile(r"//[^\n]*|^\s*pub(?:\(\w+\))? use [^;]*;", re.MULTILINE)
"""Comments of Rust, and re-exported names: neither is a use."""

TESTS = "#[cfg(test)]\nmod tests {"


def main() -> int:
    """Print every such definition; status 1 if there is one."""
    found = [*unused_python(ROOT), *unused_rust(ROOT)]
    for one in found:
        print(f"{one}: nothing that is shipped uses it")
    return 1 if found else 0


def unused_python(root: Path) -> Iterator[str]:
    """Return definitions below python/ whose names occur nowhere else."""
    texts = [path.read_text() for pattern in USES for path in root.glob(pattern)]
    words = Counter(word for text in texts for word in re.findall(r"\w+", COMMENT.sub("", text)))
    for path in sorted(root.glob("python/**/*.py")):
        for name, line in definitions(ast.parse(path.read_text())):
            if words[name] <= 1 and name not in CALLED_BY_OTHERS:
                yield f"{path.relative_to(root)}:{line}: {name}"


def definitions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Return functions, methods, classes and constants of a module; without commands, which are named by decorators."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if not re.search(r"\.(command|callback)\b", decorators) and not re.fullmatch(r"__\w+__", node.name):
                yield node.name, node.lineno
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z][A-Z0-9_]+", target.id):
                    yield target.id, node.lineno


def unused_rust(root: Path) -> Iterator[str]:
    """Public items of the crates whose names stand nowhere else outside of tests; private ones the compiler finds."""
    sources = {path: of_product(path) for path in sorted(root.glob("crates/*/src/**/*.rs"))}
    words = Counter(word for text in sources.values() for word in re.findall(r"\w+", HANDED_ON.sub("", text)))
    for path, text in sources.items():
        place = str(path.relative_to(root))
        for match in DEFINED.finditer(text) if not place.endswith(OF_THE_SEARCH) else ():
            if words[match[1]] <= 1 and match[1] not in CALLED_BY_OTHERS:
                yield f"{place}:{text.count(chr(10), 0, match.start(1)) + 1}: {match[1]}"


def of_product(path: Path) -> str:
    """Return a file without its tests."""
    return "" if "tests" in {*path.parts, path.stem} else path.read_text().split(TESTS)[0]


if __name__ == "__main__":
    sys.exit(main())
