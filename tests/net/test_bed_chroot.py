"""A bed in a plain chroot, whose root is no mount point: it stands, leaves nothing outside, and is found by `clean`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sojourn.bed.clean import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.alone,  # other beds come and go in the folders that are compared
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root folder"),
]

REPOSITORY = Path(__file__).parents[2]
SHOWN = ["/usr", "/etc", "/dev", "/proc", "/sys", sys.prefix, sys.base_prefix, str(REPOSITORY)]

# Mounts are private to the shell and go with it; `$1` is the new root, the rest is shown in it, then the program.
ENTER = """
root=$1; shift
while [ "$1" != -- ]; do mkdir -p "$root$1" && mount --rbind "$1" "$root$1" || exit 1; shift; done; shift
for link in bin sbin lib lib64; do [ -L "/$link" ] && ln -s "usr/$link" "$root/$link"; done
mkdir -p "$root/run" "$root/tmp"
exec chroot "$root" "$@"
"""

BED = """
import sys, time
from sojourn.bed import BedSpec, build_bed
with build_bed(BedSpec(devices=("wire", "bridge"), device_cpu="own"), "rooted") as bed:
    answered = "1 received" in bed.backend.run("a", ["ping", "-c", "1", bed.topology.link("bridge").b_ip4])
    print(answered, bed.backend.get("d", "/sys/class/net/d-wire-1l/address").strip(), *bed.backend.missing, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """An empty folder; nothing may be mounted in it when this is over, as mounts would be seen outside."""
    folder = tmp_path / "root"
    folder.mkdir()
    yield folder
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()


def start(root: Path, program: str) -> subprocess.Popen[str]:
    shell = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", ENTER, "sh"]
    argv = [*shell, str(root), *dict.fromkeys(SHOWN), "--", sys.executable, "-c", program]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def traces() -> set[str]:
    """What a bed could leave in the root outside."""
    return {str(path) for folder in ("/run", "/run/netns") for path in Path(folder).glob("s*j*")}


def test_a_bed_stands_in_a_plain_chroot_and_leaves_nothing_outside(root: Path) -> None:
    before = traces()
    with start(root, BED) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True 02:77:00:01:02:11\n"
        assert [path.suffix for path in (root / "run").iterdir()] == [".json"]
        assert traces() == before
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert not list((root / "run").iterdir())
    assert traces() == before


def test_clean_finds_what_a_dead_run_left_in_a_chroot(root: Path) -> None:
    forgetful = """
import os, signal, subprocess
from sojourn.bed import BedSpec, build_bed
with build_bed(BedSpec(), "dead") as bed:
    bed.backend.start("a", ["setsid", "--fork", "sleep", "60"], stdout=subprocess.DEVNULL).wait()
    os.kill(bed.backend._holders[0].pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with start(root, forgetful) as process:
        process.communicate(timeout=30)
    assert [path.suffix for path in (root / "run").iterdir()] == [".json"]
    for _ in range(50):
        said = clean().sentences()
        if any("dead" in one for one in said):
            break
        time.sleep(0.1)
    assert any(one.startswith("Ended process") and "dead run dead" in one for one in said), said
    assert "Removed the state file of the dead run dead." in said
    assert not list((root / "run").iterdir())
