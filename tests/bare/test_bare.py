"""Set-up and demo in a bare root file system, without cargo, clang or venv: as root, and as a plain user with sudo.

mmdebstrap makes the system from the archives that it knows; packages are not checked against a key that this machine
may lack, for nothing of them stays. The clone, the system and what is mounted in it are gone however the test ends.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
EACH = [("bookworm", "plain"), ("bookworm", "root"), ("jammy", "plain"), ("noble", "root")]
"""Debian as both users, for its archive is there where Ubuntu's may not be; one user each of the others."""

UNREACHABLE = re.compile(
    r"Failed to fetch|Could not (?:resolve|connect)|Temporary failure resolving|Connection (?:failed|timed out)"
    r"|does not have a Release file"
)
"""What apt says, below mmdebstrap, of an archive that cannot be had; any other failure is one of the test."""

pytestmark = [
    pytest.mark.proof,
    pytest.mark.may_skip,  # where an archive cannot be had, and for that alone
]


@pytest.fixture(scope="module")
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare system, packed; whoever asks for the proof has mmdebstrap, and continuous integration is root."""
    if os.geteuid() != 0:
        (pytest.fail if "CI" in os.environ else pytest.skip)("needs root, to make a root file system")
    assert shutil.which("mmdebstrap"), "no mmdebstrap here: scripts/setup.sh proof installs it"
    packed = tmp_path_factory.mktemp("bare") / f"{request.param}.tar"
    argv = ["mmdebstrap", "--variant=apt", "--include=git,make,sudo,passwd,ca-certificates"]
    argv += ["--components=main,universe"] if request.param != "bookworm" else []
    argv += ["--aptopt=Acquire::AllowInsecureRepositories true", "--aptopt=APT::Get::AllowUnauthenticated true"]
    done = subprocess.run([*argv, request.param, str(packed)], capture_output=True, text=True, check=False, timeout=900)
    if done.returncode != 0:
        assert UNREACHABLE.search(done.stderr), done.stderr[-3000:]
        pytest.skip(f"the archive of {request.param} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
    return packed


@pytest.fixture
def system(archive: Path, tmp_path: Path) -> Iterator[Path]:
    """The system unpacked, with a clone of this project in /src."""
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["tar", "-C", root, "-xf", archive], check=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, root / "src"], check=True)
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize(("archive", "user"), EACH, indirect=["archive"])
def test_demo_runs_on_a_bare_machine(
    system: Path, user: str, request: pytest.FixtureRequest, proven: Callable[..., None]
) -> None:
    began = monotonic()
    begin = "useradd -m plain && echo 'plain ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/plain && chown -R plain /src"
    demo = "cd /src && make demo </dev/null"
    script = demo if user == "root" else f"{begin} && su plain -c '{demo}'"
    done = within(system, script)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Verdict: " in done.stdout
    name = request.node.callspec.params["archive"]
    proven("bare", f"`make demo` on {name}, as {user}", seconds=round(monotonic() - began))
    again = within(system, demo if user == "root" else f"su plain -c '{demo}'")
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-3000:]
    assert "Verdict: " in again.stdout
    assert "installing" not in again.stdout


def within(root: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in the system, in namespaces of mounts and processes that end with it: nothing of it can stay."""
    mounts = f"mount -t proc proc {root}/proc && mount --rbind /sys {root}/sys && mount --rbind /dev {root}/dev"
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    inside = [*argv, f'{mounts} && exec chroot {root} sh -c "$0"', script]
    return subprocess.run(inside, capture_output=True, text=True, check=False, timeout=1800, env=env)
