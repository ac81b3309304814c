"""A backend whose hosts share no file with the conductor: each has a mount namespace, `/run` and `/tmp` of its own.

As on hosts of other machines, a program is reached by its standard streams alone: records are written in a working
folder of the host and fetched, and a control socket is reached through a program on the host. The programs themselves
(the repository, the tools of the system) are there, as they would be installed.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sojourn
from sojourn.bed.backends.netns import NetnsBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import BedSpec, Topology

INSTALLED = (str(Path(sojourn.__file__).parents[2]), sys.prefix, sys.base_prefix)
WORK = "/tmp/work"
VERDICTS = Path(__file__).parents[2] / "build/verdicts"
"""A line for each study, which `make proof` prints at its end."""

# Hides /run and /tmp of the conductor, but for what is installed beneath them.
SET_UP = """
mount -n -t tmpfs own /run
number=0
for path in "$@"; do
    number=$((number + 1)); mkdir /run/$number; mount -n --rbind "$path" /run/$number
done
mount -n -t tmpfs own /tmp
number=0
for path in "$@"; do
    number=$((number + 1)); mkdir -p "$path"
    case $path in /tmp/*|/run/*) mount -n --rbind /run/$number "$path" ;; esac
done
mkdir /tmp/work
"""

RELAY = """
import os, select, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
while True:
    for one in select.select([0, line], [], [])[0]:
        said = os.read(0, 65536) if one == 0 else line.recv(65536)
        if not said:
            sys.exit()
        line.sendall(said) if one == 0 else os.write(1, said)
"""


MOUNT_DESCRIPTORS = (7, 8, 9)
"""Of a holder, behind those of the network namespaces: a mount namespace for each host."""


class OwnFiles(NetnsBackend):
    """Namespaces of networks and of mounts."""

    own = "--net --mount --propagation private"

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self._folders: dict[tuple[HostName, Path], Path] = {}

    def open(self, topology: Topology, spec: BedSpec) -> None:
        super().open(topology, spec)
        for host in topology.hosts:
            self.run(host.name, ["sh", "-ec", SET_UP, "sh", *dict.fromkeys(INSTALLED)])

    def folder(self, host: HostName | None, local: Path) -> Path:
        if host is None:
            return local
        if (host, local) not in self._folders:
            there = Path(WORK, str(len(self._folders)))
            self.run(host, ["mkdir", "-p", str(there)])
            self._folders[host, local] = there
        return self._folders[host, local]

    def beside(self, argv: Sequence[str], host: HostName | None = None, **popen: Any) -> subprocess.Popen[Any]:
        if host is not None:
            argv = ["nsenter", f"--mount={self._held(host, MOUNT_DESCRIPTORS)}", "--", *argv]
        return super().beside(argv, **popen)

    def lend(self, host: HostName, local: Path) -> Path:
        there = Path(f"{WORK}-lent-{local.name}")
        self.put(host, str(there), local.read_text())
        return there

    def require_hosts(self) -> None:
        pass

    def gather(self) -> None:
        for (host, local), there in self._folders.items():
            if local.is_dir():  # what was there for a moment only is gone by now
                process = self.start(host, ["tar", "-C", str(there), "-cf", "-", "."], stdout=subprocess.PIPE)
                packed, _ = process.communicate()
                with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                    archive.extractall(local, filter="data")

    def connect(self, path: str, seconds: float) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self.start("d", [sys.executable, "-c", RELAY, path], stdin=theirs, stdout=theirs)
        ours.settimeout(seconds)
        return ours

    def get(self, host: HostName, path: str) -> str:
        if path.startswith(("/proc", "/sys")):  # the kernel's, not a host's
            return super().get(host, path)
        return self.run(host, ["cat", path])

    def _enter(self, host: HostName, argv: Sequence[str]) -> list[str]:
        command = super()._enter(host, argv)
        at = command.index("--")
        return [*command[:at], f"--mount={self._held(host, MOUNT_DESCRIPTORS)}", *command[at:]]


def named(site: Path) -> dict[str, str]:
    """The environment in which a distribution in `site` gives this backend its name, `own-files`."""
    about = site / "own_files-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-files\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[sojourn.backends]\nown-files = own_files:OwnFiles\n")
    (site / "own_files.py").write_text(Path(__file__).read_text())
    return os.environ | {"PYTHONPATH": str(site)}


def require_finished(run: Path, study: str) -> None:
    """A run that came to its verdict, and wrote nothing of a host's into the conductor's files; its verdict is kept."""
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert log[-1]["event"] == "finished"
    verdict = json.loads((run / "analysis/verdict.json").read_text())
    assert verdict["sentence"]
    assert list((run / "records").glob("*.arrow"))
    assert not Path(WORK).exists(), "a program of a host wrote into the conductor's files"
    VERDICTS.mkdir(parents=True, exist_ok=True)
    suite = os.environ.get("SOJOURN_SUITE", "pytest")
    (VERDICTS / f"{suite}-{study}.txt").write_text(f"{suite}: {study}: {verdict['verdict']}: {verdict['sentence']}\n")
