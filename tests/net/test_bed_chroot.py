"""A bed in a plain chroot, whose root is no mount point: it stands, leaves nothing outside, and is found by `clean`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sojourn.bed.clean import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.alone,  # `clean` looks at the whole machine
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
if [ -n "$OWN_RUN" ]; then
    mount -t tmpfs run "$root/run"
    # As most machines have them: what a namespace made later mounts on these is seen here, unless it prevents that.
    mount --make-rshared "$root/run"
    for one in /proc /dev; do mount --make-rshared "$root$one"; done
fi
exec chroot "$root" "$@"
"""

RUN = f"rooted-{uuid.uuid4().hex[:10]}"
"""A run id that nobody else has: beds of others come and go meanwhile."""

BED = f"""
import sys, time
from sojourn.bed import BedSpec, build_bed
with build_bed(BedSpec(devices=("wire", "bridge"), device_cpu="own"), "{RUN}") as bed:
    answered = "1 received" in bed.backend.run("a", ["ping", "-c", "1", bed.topology.link("bridge").b_ip4])
    print(answered, bed.backend.get("d", "/sys/class/net/d-wire-1l/address").strip(), *bed.backend.missing, flush=True)
    sys.stdin.read()
"""

WITHOUT_MOUNT = """
import os
os.mkdir("/tmp/programs")
for folder in ("/usr/bin", "/usr/sbin"):
    for one in os.listdir(folder):
        if one != "mount" and not os.path.lexists(f"/tmp/programs/{one}"):
            os.symlink(f"{folder}/{one}", f"/tmp/programs/{one}")
os.environ["PATH"] = "/tmp/programs"
from sojourn.bed.doctor import _own_box
print("doctor:", _own_box().found)
"""

BOX = f"""
from sojourn.bed import BedSpec, build_bed
from sojourn.errors import MachineError
try:
    with build_bed(BedSpec(devices=("bridge:tcpdump",)), "{RUN}") as bed:
        to = bed.topology.link("bridge:tcpdump").b_ip4
        said = bed.backend.run("a", ["ping", "-c", "10", "-i", "0.01", "-w", "20", to])
        seen = sum(line.split(" - ")[1].split()[1] == "box" for line in open("/proc/self/mountinfo"))
        print(said.count("icmp_seq="), "passed;", seen, "mounts of the box are seen outside")
except MachineError as error:
    print("refused:", error)
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """An empty folder; nothing may be mounted in it when this is over, as mounts would be seen outside."""
    folder = tmp_path / "root"
    folder.mkdir()
    yield folder
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()


def start(root: Path, program: str, *, own_run: bool = False) -> subprocess.Popen[str]:
    shell = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", ENTER, "sh"]
    argv = [*shell, str(root), *dict.fromkeys(SHOWN), "--", sys.executable, "-c", program]
    environment = {**os.environ, "OWN_RUN": "yes" if own_run else ""}
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def traces() -> list[str]:
    """What our bed left in the root outside."""
    return [str(path) for folder in ("/run", "/run/netns", "/run/sojourn") for path in Path(folder).glob(f"*{RUN}*")]


def test_a_bed_stands_in_a_plain_chroot_and_leaves_nothing_outside(root: Path) -> None:
    with start(root, BED) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True 02:77:00:01:02:11\n"
        assert [path.suffix for path in (root / "run").iterdir()] == [".json"]
        assert traces() == []
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert not list((root / "run").iterdir())
    assert traces() == []


@pytest.mark.parametrize("own_run", [True, False])
def test_box_works_in_a_plain_chroot_or_states_the_reason(root: Path, own_run: bool) -> None:
    """Its mounts must not be seen outside: where `/run` is no mount point they would be."""
    with start(root, BOX, own_run=own_run) as process:
        told, _ = process.communicate(timeout=60)
    if own_run:
        assert told == "10 passed; 0 mounts of the box are seen outside\n"
    else:
        assert "in this chroot these are no mount points, so a box would mount outside, too: /run." in told
        assert "mount --rbind /run /run" in told
        assert told.startswith("refused: ")
    assert process.returncode == 0
    assert traces() == []


def test_everything_that_a_box_lacks_is_told_at_once(root: Path) -> None:
    with start(root, WITHOUT_MOUNT + BOX) as process:
        told, _ = process.communicate(timeout=60)
    lines = told.splitlines()
    assert len(lines) == 2, told
    assert lines[0].startswith("doctor: ")
    assert lines[1].startswith("refused: ")
    for line in lines:
        assert "no program mount here: apt-get install mount; in this chroot these are no mount points" in line
        assert "too: /run. Make each one, for instance by 'mount --rbind /run /run'" in line


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
