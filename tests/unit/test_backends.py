"""What is read of a host is read through the bed's backend: nothing else left of the run folder asks this machine."""

from __future__ import annotations

import ast
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
    from collections.abc import Iterator

ROOT = Path(sojourn.__file__).parent
LEFT = ["conduct", "devices", "instruments", "methods/*/ask*", "methods/*/measure*", "plan", "bed"]
THIS_MACHINE = {
    *("bed/backends/local.py", "bed/backends/netns.py", "bed/backends/simulated.py"),
    *("bed/cgroups.py", "bed/clean.py", "bed/doctor.py", "bed/machine.py", "bed/processes.py", "bed/rights.py"),
    *("bed/backends/ssh.py", "bed/ssh.py", "bed/look.py", "bed/real_hosts.py"),
    *("bed/state.py", "bed/load.py", "instruments/new_addresses.py", "bed/host_bridge.py"),
    *("instruments/matching.py", "instruments/slices.py", "instruments/spark.py"),
}
"""The backends of this machine, that of others, and what they are made of; programs of their own; `sojourn doctor`,
`bridge` and `match`, which have no bed."""

ALLOWED = {
    ("conduct/archive.py", "time.clock_gettime_ns"): "the log's own time",
    ("instruments/emulator.py", "subprocess.run"): "what a pipe's words mean, asked before there is a bed",
}
FORBIDDEN = {
    *("subprocess.run", "subprocess.Popen", "subprocess.check_output", "shutil.which", "socket.socket"),
    *("time.clock_gettime", "time.clock_gettime_ns", "time.time", "time.time_ns"),
    *("os.sched_getaffinity", "os.sched_setaffinity", "os.cpu_count", "os.getloadavg", "os.uname"),
}


def left_files() -> Iterator[Path]:
    for pattern in LEFT:
        for found in ROOT.glob(pattern):
            yield from [found] if found.is_file() else sorted(found.rglob("*.py"))


def asked_of_this_machine(path: Path) -> Iterator[str]:
    """Calls of what is forbidden, and files of the kernel that are opened here."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
            yield "sys.executable"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in FORBIDDEN:
            yield name
        elif (
            name in ("open", "Path")
            and node.args
            and ast.unparse(node.args[0]).lstrip("f").startswith(("'/proc", "'/sys"))
        ):
            yield f"{name} of {ast.unparse(node.args[0])}"


def test_only_backends_ask_this_machine() -> None:
    files = [path for path in left_files() if path.suffix == ".py"]
    assert len(files) > 60
    found = {
        (name, what)
        for path in files
        if (name := str(path.relative_to(ROOT))) not in THIS_MACHINE
        for what in asked_of_this_machine(path)
    }
    assert found - ALLOWED.keys() == set()


@pytest.mark.parametrize("name", backends.OWN)
def test_a_backend_has_everything_that_a_bed_asks(name: str) -> None:
    offered = backends.load(name)("offers")
    asked = [one for one in (*vars(Backend), *Backend.__annotations__) if not one.startswith("_")]
    assert [one for one in asked if not hasattr(offered, one)] == []


def test_an_unknown_backend_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(RequestError, match="bed backend 'rack': expected 'netns' or 'ssh' or 'sim'"):
        checked(BedSpec(backend="rack"))
