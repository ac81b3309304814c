"""What `make dist` makes, installed in a bare root file system: the wheel by pip, the .deb by apt; used, and removed.

Builds once, and measures what Sojourn says of a bed there. The systems are those of test_bare.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.bare.test_bare import ROOT, archive, system, within

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["archive", "system"]

pytestmark = [pytest.mark.proof, pytest.mark.may_skip]

GET = "apt-get update -qq && apt-get install -qq -y --no-install-recommends"
MEASURE = "run bridge-latency --quick --set sessions=1 --set rounds=2 --out /tmp/run --json >/tmp/said"
ALONE = pytest.mark.parametrize("archive", ["bookworm"], indirect=True)
"""The .deb is for one version of Python, 3.11: Debian 12's."""


@pytest.fixture(scope="module")
def dist() -> Path:
    """The three files, made anew."""
    subprocess.run([sys.executable, "-m", "scripts.make_dist"], cwd=ROOT, check=True, timeout=1800)
    return ROOT / "dist"


@ALONE
def test_the_wheel_installs_in_a_fresh_environment_and_measures(system: Path, dist: Path) -> None:
    [wheel] = dist.glob("*.whl")
    shutil.rmtree(system / "src")
    shutil.copy(wheel, system / "tmp")
    needs = f"{GET} python3-venv iproute2 ethtool libelf1 >/dev/null"
    install = f"python3 -m venv /tmp/v && /tmp/v/bin/pip install -q /tmp/{wheel.name}"
    done = within(system, f"{needs} && {install} && /tmp/v/bin/sojourn {MEASURE}; echo status $?; cat /tmp/said")
    assert "status 0" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    assert '"verdict": "' in done.stdout
    assert (system / "tmp/v/share/man/man1/sojourn-compare.1").is_file()
    assert (system / "tmp/v/lib/systemd/system/sojourn-responder.service").is_file()


@ALONE
def test_the_deb_installs_measures_for_its_group_and_leaves_nothing(system: Path, dist: Path) -> None:
    [package] = dist.glob("*.deb")
    shutil.rmtree(system / "src")
    shutil.copy(package, system / "tmp")
    helper = "/usr/libexec/sojourn/sojourn-instrument"
    done = within(
        system,
        f"{GET} /tmp/{package.name} man-db bash-completion >/dev/null\n"
        f"stat -c '%U:%G %a' {helper}; getcap {helper}; getent group sojourn\n"
        f"sojourn {MEASURE}; echo root $?\n"
        f"useradd -m -G sojourn member && useradd -m other\n"
        f"su member -c '{helper} --version' && echo member may; su other -c {helper} 2>&1\n"
        "man -w sojourn-emulate-run; bash -ic '_completion_loader sojourn; complete -p sojourn'\n"
        "ls /usr/lib/systemd/system/ | grep -c sojourn\n"
        "apt-get purge -qq -y sojourn >/dev/null\n"
        "ls -d /usr/lib/sojourn /usr/libexec/sojourn; getent group sojourn; echo end",
    )
    said = done.stdout
    assert "root:sojourn 750" in said, said + done.stderr[-2000:]
    assert "cap_ipc_lock,cap_net_raw,cap_sys_nice=ep" in said
    assert "root 0" in said, done.stderr[-2000:]
    assert "member may" in said
    assert "Permission denied" in said
    assert "/usr/share/man/man1/sojourn-emulate-run.1.gz" in said
    assert "complete -F _sojourn sojourn" in said
    assert "\n3\n" in said
    assert said.rstrip().endswith("3\nend"), "purged without a trace"
