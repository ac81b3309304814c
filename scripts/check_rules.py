"""Check the project's own rules in the sources, where neither the compiler nor a linter can."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
RUST = sorted((ROOT / "crates").rglob("*.rs"))
PYTHON = sorted(p for folder in ("python", "tests", "bench", "scripts") for p in (ROOT / folder).rglob("*.py"))
SHELL = sorted((ROOT / "scripts").glob("*.sh"))


def main() -> int:
    """Print every complaint; status 1 if there is one."""
    rules = [
        clocks,
        unsafe_code,
        lints,
        overflow,
        import_contracts,
        methods,
        device_names,
        tables,
        findings,
        names,
        first_lines,
        versions,
        targets,
        consoles,
        examples,
        cases,
        skips,
        children,
    ]
    complaints = [complaint for rule in rules for complaint in rule()]
    print("\n".join(complaints) or f"rules: all {len(rules)} hold")
    return 1 if complaints else 0


def clocks() -> Iterator[str]:
    """Rule 1: only the crate `time` reads clocks and sleeps."""
    forbidden = {entry["path"] for entry in toml("clippy.toml")["disallowed-methods"]}
    needed = {f"std::time::{kind}::{method}" for kind in ("Instant", "SystemTime") for method in ("now", "elapsed")}
    yield from (f"clippy.toml: does not forbid {method}" for method in {*needed, "std::thread::sleep"} - forbidden)
    for path in RUST:
        if path.relative_to(ROOT).parts[:2] != ("crates", "time"):
            for number, line in code_lines(path):
                if "disallowed_methods" in line:
                    yield f"{where(path, number)}: only crates/time may read a clock"


def unsafe_code() -> Iterator[str]:
    """Rule 2: unsafe code is in files called sys.rs."""
    for path in RUST:
        if path.name == "sys.rs":
            continue
        lines = code_lines(path)
        for index, (number, line) in enumerate(lines):
            if re.search(r"\bunsafe\b", line):
                yield f"{where(path, number)}: unsafe code outside sys.rs"
            following = " ".join(text for _, text in lines[index + 1 : index + 4])
            if "allow(unsafe_code)" in line and not re.search(r"\bmod sys;", following):
                yield f"{where(path, number)}: exempts more than `mod sys`"


def consoles() -> Iterator[str]:
    """A terminal must not convert ':up:', which is part of the name `bridge:up`, to an emoji."""
    for path in PYTHON:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\bConsole\((?!\))", line) and "emoji=False" not in line and "python/sojourn" in str(path):
                yield f"{where(path, number)}: a Console without emoji=False"


def examples() -> Iterator[str]:
    """The examples in Rust's comments are not run (scripts/cargo_tests.py), so they must not be code."""
    for path in RUST:
        shows = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if fence := re.match(r"\s*//[/!]\s*```(\w*)", line):
                shows = not shows
                if shows and fence[1] not in ("text", "toml"):
                    yield f"{where(path, number)}: an example that nothing runs: make it a test"


def cases() -> Iterator[str]:
    """Properties use the number of cases in PROPTEST_CASES, which `make proof` raises, or a share or multiple of it."""
    for path in RUST:
        for number, line in code_lines(path):
            if "with_cases(" in line and "ProptestConfig::default().cases" not in line:
                yield f"{where(path, number)}: cases by a number of its own: write ProptestConfig::default().cases / N"


def skips() -> Iterator[str]:
    """A test that cannot run here reports that and passes; in continuous integration it fails."""
    for path in RUST:
        yield from (f"{where(path, number)}: skips where CI is set, too" for number in silent_skips(path.read_text()))


def silent_skips(source: str) -> Iterator[int]:
    """Return lines of Rust that report a skip without a check for CI in them or the three lines before."""
    lines = source.splitlines()
    for index, line in enumerate(lines):
        if 'eprintln!("skipped' in line and 'var_os("CI")' not in "".join(lines[max(index - 3, 0) : index + 1]):
            yield index + 1


def children() -> Iterator[str]:
    """A failing test ends the processes that it started, instead of waiting for them for ever: tests/children.py."""
    for path in PYTHON:
        if "tests" in path.relative_to(ROOT).parts:
            for number in awaited(path.read_text()):
                yield f"{where(path, number)}: `with Child(…)` of tests/children.py, which ends with the test"


def awaited(source: str) -> Iterator[int]:
    """Return lines of Python with a `with` block for a process of `subprocess.Popen`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.With) and any("Popen(" in ast.unparse(one.context_expr) for one in node.items):
            yield node.lineno


def lints() -> Iterator[str]:
    """Every crate uses the workspace's lints, which deny what the rules forbid."""
    for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        if tomllib.loads(manifest.read_text()).get("lints", {}).get("workspace") is not True:
            yield f"{manifest.relative_to(ROOT)}: does not take the workspace's lints"
    levels = toml("Cargo.toml")["workspace"]["lints"]
    denied = {"rust": ["unsafe_code"], "clippy": ["undocumented_unsafe_blocks", "disallowed_methods"]}
    yield from (
        f"Cargo.toml: {lint} is not denied"
        for group, wanted in denied.items()
        for lint in wanted
        if levels[group].get(lint) != "deny"
    )


def overflow() -> Iterator[str]:
    """A sum that overflows ends a program of a release, too."""
    if toml("Cargo.toml")["profile"]["release"].get("overflow-checks") is not True:
        yield "Cargo.toml: [profile.release] lacks overflow-checks = true"


def import_contracts() -> Iterator[str]:
    """Rule 3 is checked by import-linter; here: its contracts name every package, and mirror each other."""
    contracts = toml("pyproject.toml")["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["type"] == "layers")
    named = set(re.findall(r"\w+", " ".join(layers["layers"])))
    package = ROOT / "python" / "sojourn"
    modules = {p.stem for p in package.glob("*.py")} | {p.parent.name for p in package.glob("*/__init__.py")}
    yield from (f"pyproject.toml: no layer for {name}" for name in modules - {"__init__", "__main__"} - named)
    sides = [contract for contract in contracts if contract["type"] == "forbidden"]
    if {frozenset(c["source_modules"]) for c in sides} != {frozenset(c["forbidden_modules"]) for c in sides}:
        yield "pyproject.toml: left and right do not forbid the same packages"
    inside = (path for path in (package / "methods").glob("*/*") if path.suffix in ("", ".py"))  # packages and modules
    files = (path.relative_to(package).with_suffix("").parts for path in inside)
    found = {".".join(("sojourn", *parts)) for parts in files if parts[-1] != "__init__" and "__pycache__" not in parts}
    for module in sorted(found):
        if sum(is_named(module, contract["source_modules"]) for contract in sides) != 1:
            yield f"pyproject.toml: {module} is not on one side of the contracts, left or right"


def is_named(module: str, patterns: list[str]) -> bool:
    """Return whether the module matches one of these patterns of import-linter, in which `*` is one part of a name."""
    return any(re.fullmatch(re.escape(one).replace(r"\*", r"[^.]+"), module) for one in patterns)


WORDS_TOO = {
    *("anomalies", "background", "departures", "emulator", "loss", "model", "multicast", "one-way", "pairs"),
    *("stages", "taps", "throughput", "variance"),
}
"""Methods whose names have other meanings: a quantity, a section of a plan, a table, a kind of traffic."""


def methods() -> Iterator[str]:
    """Outside its folder no file names a method: a method declares or passes its own properties."""
    package = ROOT / "python" / "sojourn"
    folder = package / "methods"
    names = {one.parent.name.replace("_", "-") for one in folder.glob("*/__init__.py")}
    for path in sorted(package.rglob("*.py")):
        if folder not in path.parents or path.parent == folder:
            complaints = named_methods(ast.parse(path.read_text()), names - WORDS_TOO)
            yield from (f"{where(path, number)}: {what}" for number, what in complaints)


MODES = "|".join(sorted(path.stem for path in (ROOT / "python/sojourn/devices").glob("[a-z]*.py")))
DEVICE_NAME = re.compile(
    r"""(?:partition|split|rsplit|rpartition)\(["'][*]["']"""
    rf"""|(?:startswith|removeprefix|endswith)\(["'](?:{MODES})[:*]"""
)


def device_names() -> Iterator[str]:
    """A device's name is parsed in `devices` only; for a box, a plan keeps the part after "box:"."""
    package = ROOT / "python" / "sojourn"
    for path in sorted(set(package.rglob("*.py")) - set((package / "devices").glob("*.py"))):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (found := DEVICE_NAME.search(line)) and "box:" not in found[0]:
                yield f"{where(path, number)}: takes a device's name apart: sojourn.devices does"


def named_methods(tree: ast.Module, names: set[str]) -> Iterator[tuple[int, str]]:
    """Return lines with the name of a method, and those that test which one a study has: it is only passed on."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(value)) if value in names:
                yield node.lineno, f"names the method {value}"
            case ast.Compare(left=left, comparators=others) if any(map(is_method, [left, *others])):
                yield node.lineno, "compares a method"
            case ast.Match(subject=looked_up) | ast.Subscript(slice=looked_up) if is_method(looked_up):
                yield looked_up.lineno, "chooses by a method"
            case ast.Call(func=ast.Attribute(), args=[looked_up, *_]) if is_method(looked_up):
                yield node.lineno, "chooses by a method"
            case ast.Call(args=[key, ast.Constant()]) if is_key(key):
                yield node.lineno, "names a method"
            case ast.Dict(keys=keys, values=values):
                given = zip(keys, values, strict=True)
                yield from (
                    (value.lineno, "names a method")
                    for key, value in given
                    if key and is_key(key) and isinstance(value, ast.Constant)
                )


def is_method(node: ast.expr) -> bool:
    """Return whether it is the method of a study: `run.method`, `study["method"]`, `study.get("method")`."""
    match node:
        case ast.Attribute(attr="method") | ast.Subscript(slice=ast.Constant(value="method")):
            return True
        case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
            return is_key(key)
    return False


def is_key(node: ast.expr) -> bool:
    """Return whether it is the key of a method in a plan."""
    return isinstance(node, ast.Constant) and node.value in ("method", "study.method")


DURATIONS = {"interval_ns", "timeout_ns", "clock_error_ns", "cpu_time_ns"}
DURATIONS |= {"offset_ns", "bound_ns", "error95_ns", "drawn_ns", "delay_ns"}


def tables() -> Iterator[str]:
    """Rule 4: a column has its unit in its name and in the schema, and a time its clock."""
    for table, body in schema()["tables"].items():
        for field in body["fields"]:
            name, place = field["name"], f"{table}.{field['name']}"
            if not field["doc"]:
                yield f"{place}: has no description"
            for suffix, unit in {"_ns": "ns", "_bytes": "bytes", "_bps": "bit/s"}.items():
                if (field["unit"] == unit) != name.endswith(suffix):
                    yield f"{place}: {suffix} and the unit {unit} go together"
            if name.endswith("_ns") and name not in DURATIONS and field["clock"] not in {"TAI", "MONOTONIC_RAW"}:
                yield f"{place}: a time without a clock"


def findings() -> Iterator[str]:
    """Every finding has a known severity, and a description."""
    for finding in schema()["findings"]:
        if finding["severity"] not in {"note", "doubtful", "invalid"} or not finding["doc"]:
            yield f"finding {finding['name']}: severity or description"


def names() -> Iterator[str]:
    """Names are those of the field, and files are named after their content."""
    vague = re.compile(
        r"^\s*(?:pub(?:\([^)]*\))? )?(?:fn|def|async def) (get_\w+)|\b(?:class|struct|trait|enum) (\w*Manager)\b"
    )
    files = {"util", "utils", "common", "helper", "helpers", "data", "misc", "manager"}
    for path in [*RUST, *PYTHON]:
        if path.stem in files or path.parent.name in files:
            yield f"{path.relative_to(ROOT)}: its name does not say what it holds"
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if vague.search(line):
                yield f"{where(path, number)}: a vague name"


def first_lines() -> Iterator[str]:
    """The first lines of a file say what it does."""
    silent = [p for p in RUST if not p.read_text().startswith("//!")]
    silent += [p for p in PYTHON if p.stat().st_size and not re.match(r'(#!.*\n)?"""', p.read_text())]
    silent += [p for p in SHELL if not p.read_text().splitlines()[1].startswith("# ")]
    yield from (f"{path.relative_to(ROOT)}: the first lines do not say what it does" for path in silent)


def versions() -> Iterator[str]:
    """Rust and Python have the same version and licence, and every mention of the version is this one."""
    cargo, python = toml("Cargo.toml")["workspace"]["package"], toml("pyproject.toml")["project"]
    if cargo["license"] != python["license"]:
        yield "Cargo.toml and pyproject.toml: license differs"
    version = cargo["version"]
    named = {
        "python/sojourn/version.py": f'__version__ = "{version}"',
        "docs/reference/stability.md": f"stable from {version.rpartition('.')[0]}",
        "docs/guide/install.md": f" sojourn:{version} ",
    }
    yield from (
        f"{path}: expected {words!r}" for path, words in named.items() if words not in (ROOT / path).read_text()
    )
    released = re.findall(r"^## \[([0-9.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if released[:1] != [version]:
        yield f"CHANGELOG.md: expected {version} as the latest release, found {', '.join(released) or 'none'}"


def targets() -> Iterator[str]:
    """Continuous integration calls the Makefile, and every target of it has an explanation."""
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    if not commands[-1].startswith("exec make test"):
        yield ".ci/run: does not end with make test"
    makefile = (ROOT / "Makefile").read_text()
    phony = next(line for line in makefile.splitlines() if line.startswith(".PHONY:")).split()[1:]
    explained = re.findall(r"^([a-z0-9]+):[^#\n]*## \S", makefile, flags=re.MULTILINE)
    yield from (f"Makefile: {target} is not explained" for target in set(phony) ^ set(explained))


def toml(name: str) -> dict[str, Any]:
    """A TOML file of the root folder."""
    return tomllib.loads((ROOT / name).read_text())


def schema() -> dict[str, Any]:
    """Return the tables and findings of the instrument, as written by `make schema`."""
    declared: dict[str, Any] = json.loads((ROOT / "python/sojourn/records/schema.json").read_text())
    return declared


def code_lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines of a Rust file without its line comments and string literals."""
    lines = enumerate(path.read_text().splitlines(), start=1)
    return [(number, re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]) for number, line in lines]


def where(path: Path, number: int) -> str:
    """Return a place in the notation of editors."""
    return f"{path.relative_to(ROOT)}:{number}"


if __name__ == "__main__":
    sys.exit(main())
