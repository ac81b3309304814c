"""What is read of a host is read through the bed's backend: nothing else left of the run folder asks this machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sojourn
from sojourn import backends
from sojourn.bed import BedSpec
from sojourn.bed.backend import Backend
from sojourn.bed.model import checked
from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROOT = Path(sojourn.__file__).parent
LEFT = ["conduct", "devices", "instruments", "methods/*/ask*", "methods/*/measure*", "plan", "bed"]
THIS_MACHINE = {
    *("bed/backends/local.py", "bed/backends/netns.py", "bed/backends/simulated.py"),
    *(
        "bed/bounded.py",
        "bed/cgroups.py",
        "bed/clean.py",
        "bed/doctor.py",
        "bed/events.py",
        "bed/frequency.py",
        "bed/held.py",
        "bed/settings.py",
        "bed/machine.py",
        "bed/netem_left.py",
        "bed/processes.py",
        "bed/rights.py",
    ),
    *("bed/backends/ssh.py", "bed/remote.py", "bed/fetching.py", "bed/ssh.py", "bed/look.py", "bed/real_hosts.py"),
    *(
        "bed/state.py",
        "bed/load.py",
        "instruments/new_addresses.py",
        "bed/host_bridge.py",
        "bed/host_commands.py",
        "bed/port_uses.py",
    ),
    *("instruments/matching.py", "instruments/slices.py", "instruments/spark.py"),
}
"""The backends of this machine, that of others, and what they are made of; programs of their own; `sojourn doctor`,
`bridge` and `match`, which have no bed."""

ALLOWED = {
    ("bed/copies.py", "os.environ.get"): "the user's own instrument for hosts of another architecture",
    ("bed/turns.py", "subprocess.Popen"): "the user's own program, which re-cables from the controller",
    ("bed/turns.py", "os.killpg"): "what that program started",
    ("conduct/archive.py", "time.clock_gettime_ns"): "the log's own time",
    ("conduct/archive.py", "datetime.datetime.now"): "the day in a run's name",
    ("conduct/until.py", "subprocess.run"): "a look at the run folder, which is the conductor's own",
    ("conduct/until.py", "sys.executable"): "by this very interpreter",
    ("instruments/emulator.py", "subprocess.run"): "what a pipe's words mean, asked before there is a bed",
}
OF_THIS_MACHINE = {
    *("asyncio", "ctypes", "datetime", "fcntl", "multiprocessing", "os", "platform", "psutil", "resource", "shutil"),
    *("socket", "subprocess", "time"),
}
"""Modules whose every name asks this machine, but for these:"""

HARMLESS = re.compile(
    r"""
    datetime\.(UTC|timedelta|timezone|datetime(\.(fromisoformat|fromtimestamp|isoformat|strptime))?)
    | os\.(PathLike|O_\w+|X_OK|access|close|environ|fsync|open|path\.(abspath|basename)|read|strerror)
    | shutil\.rmtree
    | subprocess\.(PIPE|STDOUT|DEVNULL|CalledProcessError|TimeoutExpired)
    | time\.(CLOCK_\w+|monotonic|monotonic_ns|sleep)
    """,
    re.VERBOSE,
)
KERNEL = ("/proc", "/sys")


def left_files() -> Iterator[Path]:
    for pattern in LEFT:
        for found in ROOT.glob(pattern):
            yield from [found] if found.is_file() else sorted(found.rglob("*.py"))


class Asked(ast.NodeVisitor):
    """What a module asks of this machine, and files of the kernel that do not go to a backend."""

    def __init__(self, module: str, constants: Collection[str] = ()) -> None:
        self.found: list[str] = []
        self._module, self._constants = module, constants
        self._names: dict[str, str] = {}
        self._around: list[ast.AST] = []

    def visit(self, node: ast.AST) -> None:
        self._around.append(node)
        super().visit(node)
        self._around.pop()

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            self._names[one.asname or one.name.partition(".")[0]] = one.name if one.asname else one.name.split(".")[0]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for one in node.names:
            self._names[one.asname or one.name] = f"{node.module}.{one.name}"
            if one.name == "*":
                self._judge(f"{node.module}.*")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """An annotation asks nothing."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for one in (*node.decorator_list, node.args, *node.body):
            self.visit(one)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = self._dotted(node)
        if dotted is None:
            self.visit(node.value)
        else:
            self._judge(dotted)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._judge(self._names.get(node.id, f"{self._module}.{node.id}"))

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str) or not node.value.startswith(KERNEL):
            return
        if not self._goes_to_a_backend() and not isinstance(self._around[-2], ast.Assign):
            self.found.append(f"file {node.value}")

    def _dotted(self, node: ast.expr) -> str | None:
        """The full name of what an expression names by way of an import."""
        if isinstance(node, ast.Attribute):
            owner = self._dotted(node.value)
            return f"{owner}.{node.attr}" if owner else None
        return self._names.get(node.id) if isinstance(node, ast.Name) else None

    def _judge(self, name: str) -> None:
        if name in self._constants:
            if not self._goes_to_a_backend():
                self.found.append(f"file {name}")
        elif (name.partition(".")[0] in OF_THIS_MACHINE and not HARMLESS.fullmatch(name)) or name == "sys.executable":
            self.found.append(name)

    def _goes_to_a_backend(self) -> bool:
        """Whether it is an argument of a backend, or of what runs a command on a host; or a word of such a command."""
        for inner, outer in zip(self._around[:0:-1], self._around[-2::-1], strict=True):
            if isinstance(outer, ast.JoinedStr) and inner is not outer.values[0]:
                return True
            if isinstance(outer, ast.Call) and inner is not outer.func:
                called = outer.func
                if isinstance(called, ast.Attribute):
                    return ast.unparse(called.value).split(".")[-1].lstrip("_") == "backend"
                return isinstance(called, ast.Name) and called.id == "run" and "run" not in self._names
        return False


def kernel_constants(module: str, tree: ast.Module) -> Iterator[str]:
    """Names of a module that stand for files of the kernel."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Constant, ast.JoinedStr)):
            first = node.value.values[0] if isinstance(node.value, ast.JoinedStr) else node.value
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.startswith(KERNEL):
                yield from (f"{module}.{ast.unparse(one)}" for one in node.targets)


def asked_of_this_machine(module: str, source: str, constants: Collection[str] = ()) -> list[str]:
    """What a module asks of this machine; `constants` are names of other modules that stand for files of the kernel."""
    tree = ast.parse(source)
    asked = Asked(module, {*constants, *kernel_constants(module, tree)})
    asked.visit(tree)
    return asked.found


def test_only_backends_access_this_machine() -> None:
    paths = [path for path in left_files() if path.suffix == ".py"]
    assert len(paths) > 60
    modules = {
        str(path.relative_to(ROOT)): ".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in paths
    }
    sources = {name: (ROOT / name).read_text() for name in modules}
    constants = {one for name, text in sources.items() for one in kernel_constants(modules[name], ast.parse(text))}
    found = {
        (name, what)
        for name, text in sources.items()
        if name not in THIS_MACHINE
        for what in asked_of_this_machine(modules[name], text, constants)
    }
    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "the exception list has an unused exception"


@pytest.mark.parametrize(
    "line",
    [
        *("import time; time.time_ns()", "from time import time_ns; time_ns()", "from time import time_ns as t; t()"),
        *("import subprocess as sp; sp.run([])", "from subprocess import Popen; Popen([])", "import os; x = os"),
        *("import os; os.listdir(where)", "import os; os.system('ip link')", "import os; os.sysconf('SC_CLK_TCK')"),
        *("STAT = '/proc/stat'; open(STAT)", "STAT = '/proc/stat'; Path(STAT)", "Path('/proc', 'stat')"),
        *("from pathlib import Path as P; P('/sys/class/net').iterdir()", "open(f'/proc/{pid}/stat')"),
        *("from sojourn.conduct.other import STAT; open(STAT)", "from sojourn.conduct import other; open(other.STAT)"),
        *("import sys; [sys.executable]", "from os import *", "import socket; socket.socket()"),
        *("from datetime import datetime; datetime.now()", "bed.backend.get('a', 'x'); open('/proc/stat')"),
        *("import platform; platform.machine()", "import os.path; os.path.exists(where)"),
    ],
)
def test_direct_access_to_this_machine_is_detected(line: str) -> None:
    assert asked_of_this_machine("sojourn.conduct.one", line, {"sojourn.conduct.other.STAT"})


@pytest.mark.parametrize(
    "line",
    [
        *("bed.backend.get('a', '/proc/stat')", "backend.put(host, f'/sys/class/net/{dev}/x', '1')"),
        *("STAT = '/proc/stat'; self._bed.backend.get('a', STAT + name)", "import time; time.sleep(1)"),
        *("import subprocess\ndef f(one: subprocess.Popen[str]) -> socket.socket: ...", "import os; os.fsync(1)"),
        *("STAT = '/proc/stat'; command = f'cat {STAT}'", "def notes(run): run(['cat', '/proc/stat'])"),
    ],
)
def test_access_through_the_backend_is_allowed(line: str) -> None:
    assert asked_of_this_machine("sojourn.conduct.one", line) == []


@pytest.mark.parametrize("name", backends.OWN)
def test_every_backend_implements_what_a_bed_uses(name: str) -> None:
    offered = backends.load(name)("offers")
    asked = [one for one in (*vars(Backend), *Backend.__annotations__) if not one.startswith("_")]
    assert [one for one in asked if not hasattr(offered, one)] == []


def test_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match="bed backend 'rack': expected 'netns' or 'ssh' or 'sim'"):
        checked(BedSpec(backend="rack"))
    with pytest.raises(RequestError, match="did you mean netns"):
        checked(BedSpec(backend="netn"))
