"""Where the unified hierarchy is, by the mount table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sojourn.bed.cgroups import is_of_others, unified_root
from sojourn.errors import MachineError

HYBRID = b"""\
30 22 0:26 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw shared:10 - cgroup cgroup rw,cpu
41 30 0:37 / /sys/fs/cgroup/unified rw,relatime shared:20 - cgroup2 cgroup2 rw
"""


def test_the_unified_hierarchy_is_found_beside_the_old_ones() -> None:
    assert unified_root(HYBRID) == Path("/sys/fs/cgroup/unified")


def test_spaces_in_the_cgroup_path_are_decoded() -> None:
    assert unified_root(b"1 2 0:3 / /a\\040b rw - cgroup2 cgroup2 rw\n") == Path("/a b")


def test_a_mount_whose_name_is_not_utf8_hides_no_other() -> None:
    mounts = b"29 22 0:25 / /mnt/\xffevil\xc2\x85 rw - tmpfs \xfe rw\n"
    assert unified_root(mounts + HYBRID) == Path("/sys/fs/cgroup/unified")


def test_machine_without_cgroup2_is_reported() -> None:
    with pytest.raises(MachineError, match="mount -t cgroup2"):
        unified_root(HYBRID.replace(b"cgroup2", b"cgroup"))


def bed_of(folder: Path, members: str) -> Path:
    """A bed's folder with these members of host A."""
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "cgroup.procs").write_text(members)
    return folder


def test_bed_of_another_pid_namespace_is_distinguished(tmp_path: Path) -> None:
    assert not is_of_others(bed_of(tmp_path / "ours", f"{os.getpid()}\n"))
    assert not is_of_others(bed_of(tmp_path / "empty", ""))
    assert not is_of_others(tmp_path / "gone")
    assert is_of_others(bed_of(tmp_path / "unseen", "0\n"))
