"""Run the Rust tests: `cargo test` builds their programs, and these run side by side.

`cargo test` runs one program after the other, and many only wait. Here the programs that compute run first, as many as
there are cores; then those over network namespaces, which wait for frames and measure time, one more than there are
cores, without the load of the others. All run, even if one fails, each in its package's folder, as under cargo. What a
program says is printed when it has ended. Status 1 if the build or a program fails, or nothing was run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CORES = len(os.sched_getaffinity(0))
FEW_CASES = "64"
"""The cases of each property; `make proof` uses 2,000."""
# Tests that run themselves again in a namespace: crates/port/tests/namespace, crates/tcplog/tests/place.
OVER_NAMESPACES = re.compile(r'^mod (namespace|place);|"unshare"|"netns"', re.MULTILINE)
PROPERTIES = re.compile(r"^( *)proptest! \{\n(.*?)^\1\}", re.MULTILINE | re.DOTALL)
PRINTING = threading.Lock()


@dataclass(frozen=True)
class Program:
    """A test program, built by cargo from `source` of the package in `folder`."""

    path: Path
    source: Path
    folder: Path

    @property
    def is_over_namespaces(self) -> bool:
        """Whether its tests wait for frames and measure time."""
        return self.source.parent.name == "tests" and bool(OVER_NAMESPACES.search(self.source.read_text()))

    def properties(self) -> list[str]:
        """Return the names of the tests with cases from proptest."""
        is_library = self.source.parent.name == "src"
        sources = self.source.parent.rglob("*.rs") if is_library else [self.source]
        drawn = {name for source in sources for name in properties_of(source)}
        said = subprocess.run([self.path, "--list"], capture_output=True, text=True, check=True).stdout
        return [name for name in re.findall(r"^(\S+): test$", said, re.MULTILINE) if name.split("::")[-1] in drawn]


def main() -> int:
    """Build, run and print; 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--ignored", action="store_true", help="only tests marked `#[ignore]`: those of `make proof`")
    which.add_argument("--properties", action="store_true", help="only tests that draw their cases: PROPTEST_CASES")
    asked = parser.parse_args()
    programs = built()
    if asked.properties:
        drawing = [(program, program.properties()) for program in programs]
        tasks = [(program, ["--exact", *names]) for program, names in drawing if names]
    else:
        tasks = [(program, ["--ignored"] if asked.ignored else []) for program in programs]
    computing = [task for task in tasks if not task[0].is_over_namespaces]
    waiting = [task for task in tasks if task[0].is_over_namespaces]
    passed: list[bool] = []
    for group, at_once in ((computing, CORES), (waiting, CORES + 1)):
        with ThreadPoolExecutor(at_once) as pool:
            passed += pool.map(lambda task: run(*task), group)
    return 0 if passed and all(passed) else 1


def built() -> list[Program]:
    """Build all test programs; return none if that fails, for a reason that cargo has printed."""
    # Not the examples: they have no tests, and clippy compiles them in `make check`.
    which = ["--locked", "--workspace", "--lib", "--bins", "--tests"]
    build = ["cargo", "test", *which, "--no-run", "--message-format", "json-render-diagnostics"]
    told = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if told.returncode:
        return []
    messages: list[dict[str, Any]] = [json.loads(line) for line in told.stdout.splitlines()]
    return [
        Program(Path(message["executable"]), Path(message["target"]["src_path"]), Path(message["manifest_path"]).parent)
        for message in messages
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]
    ]


def properties_of(source: Path) -> list[str]:
    """Names of the functions in the `proptest!` blocks of a file."""
    text = source.read_text()
    blocks = PROPERTIES.findall(text)
    if len(blocks) != text.count("proptest!"):
        sys.exit(f"{source}: a proptest! block does not begin and end with a line of its own")
    return [name for _, block in blocks for name in re.findall(r"\bfn (\w+)\(", block)]


def run(program: Program, arguments: list[str]) -> bool:
    """Run a program, print its output, and return whether it passed."""
    name = program.source.relative_to(ROOT)
    environment = {"PROPTEST_CASES": FEW_CASES, **os.environ, "CARGO_MANIFEST_DIR": str(program.folder)}
    with tempfile.TemporaryFile() as said:
        began = monotonic()
        command = [str(program.path), *arguments]
        child = subprocess.Popen(command, cwd=program.folder, env=environment, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        took, of_a_core = monotonic() - began, used.ru_utime + used.ru_stime
        said.seek(0)
        text = said.read().decode(errors="replace")
    with PRINTING:
        print(f"     Running {name}: {took:.1f} s, {of_a_core:.1f} s of a core\n{text}", flush=True)
        if child.returncode:
            print(f"error: {name} ended with status {child.returncode}", flush=True)
    return child.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
