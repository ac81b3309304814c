"""What `bed clean` makes of records of netem: those of others, of dead boots, and damaged ones."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sojourn.bed import netem_left
from sojourn.bed.state import boot_id
from sojourn.errors import MachineError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of locks and records; the kernel's only port, `now`, has netem 5abc: at its root."""
    monkeypatch.setattr(netem_left, "folders", lambda: [tmp_path])
    return tmp_path


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were given in the namespace."""
    given: list[str] = []

    def answer(_: Path, *argv: str) -> str:
        given.append(" ".join(argv))
        if argv[0] == "ip":
            return '[{"ifindex":1,"ifname":"lo"},{},{"ifindex":3,"ifname":"now"}]'
        return "qdisc netem 5abc: root refcnt 2 limit 1000 delay 1ms\n" if "show" in argv else ""

    monkeypatch.setattr(netem_left, "_inside", answer)
    return given


def namespace() -> int:
    return Path("/proc/self/ns/net").stat().st_ino


def write(folder: Path, **other: Any) -> Path:
    entry = {"boot": boot_id(), "namespace": namespace(), "index": 3, "port": "then", "handle": "5abc:"} | other
    path = folder / f"netem-{entry['namespace']}-{entry['index']}.json"
    path.write_text(json.dumps(entry))
    return path


def test_netem_of_a_dead_emulator_is_removed_under_the_current_port_name(folder: Path, commands: list[str]) -> None:
    path = write(folder)
    assert netem_left.remove_left() == (["Removed the netem 5abc: of a dead emulator at now."], [])
    assert commands[-1] == "tc qdisc del dev now root handle 5abc:"
    assert not path.exists()
    assert list(folder.iterdir()) == [], "its lock is removed"


@pytest.mark.parametrize("other", [{"boot": "another"}, {"index": 9}, {"handle": "5abd:"}])
def test_stale_record_is_removed_and_nothing_else(other: dict[str, Any], folder: Path, commands: list[str]) -> None:
    path = write(folder, **other)
    assert netem_left.remove_left() == ([], [])
    assert not path.exists()
    assert [command for command in commands if " del " in command] == []


def test_record_of_an_inaccessible_namespace_is_kept(folder: Path, commands: list[str]) -> None:
    path = write(folder, namespace=1)
    assert netem_left.remove_left() == ([], [])
    assert path.exists()
    assert commands == []


def test_lock_that_cannot_be_opened_is_reported_and_the_rest_is_cleaned(folder: Path) -> None:
    path, other = write(folder, index=2), write(folder)
    (folder / f"port-{namespace()}-2.lock").symlink_to("/dev/null")
    removed, stays = netem_left.remove_left()
    assert removed == ["Removed the netem 5abc: of a dead emulator at now."]
    assert len(stays) == 1
    assert str(path) in stays[0]
    assert (path.exists(), other.exists()) == (True, False)


def test_root_in_a_user_namespace_uses_the_folder_of_the_outer_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os, sys; from sojourn.bed.netem_left import _number_outside; print(_number_outside())"
    done = subprocess.run(["unshare", "--user", "--map-root-user", sys.executable, "-c", text],
                          capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"no user namespace here: {done.stderr}")
    assert int(done.stdout) == os.geteuid()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"sojourn-{os.geteuid()}").mkdir(mode=0o700)
    assert tmp_path / f"sojourn-{os.geteuid()}" in netem_left.folders()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": "x"}', "\udc80"])
def test_damaged_record_is_removed(text: str, folder: Path, commands: list[str]) -> None:
    path = write(folder)
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert netem_left.remove_left() == ([], [])
    assert not path.exists()
    assert commands == []


def test_record_of_a_running_program_is_kept(folder: Path, commands: list[str]) -> None:
    path = write(folder)
    lock = folder / f"port-{namespace()}-3.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert netem_left.remove_left() == ([], [])
        assert path.exists()
        assert lock.exists()
        assert commands == []


def test_failure_to_remove_is_reported_and_the_record_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(folder)

    def refuse(*_: object) -> str:
        raise MachineError("'ip -json link' failed: no")

    monkeypatch.setattr(netem_left, "_inside", refuse)
    said = f"The netem that {path} names could not be removed: 'ip -json link' failed: no."
    assert netem_left.remove_left() == ([], [said])
    assert path.exists()


HFSC = "qdisc hfsc 5abc: root refcnt 2 default 1\nqdisc netem 5abc: parent 5abc:1 limit 1000\n"


def test_port_with_another_root_qdisc_is_left(
    folder: Path, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tc` prints no valid JSON of hfsc."""
    links = netem_left._inside

    def answer(at: Path, *argv: str) -> str:
        return HFSC if argv[:3] == ("tc", "qdisc", "show") else links(at, *argv)

    monkeypatch.setattr(netem_left, "_inside", answer)
    path = write(folder)
    assert netem_left.remove_left() == ([], [])
    assert not path.exists()
    assert commands == ["ip -json link"]


def test_links_that_cannot_be_read_are_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(folder)
    monkeypatch.setattr(netem_left, "_inside", lambda *_: '[{"ifname":"now"}]')
    removed, (said,) = netem_left.remove_left()
    assert removed == []
    assert said.startswith(f"The netem that {path} names could not be removed: ip -json link does not answer as")
    assert path.exists()


def test_folder_writable_by_others_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "sojourn"
    own.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert own in netem_left.folders()
    own.chmod(0o777)
    assert own not in netem_left.folders()
    own.rmdir()
    own.symlink_to("/etc")
    assert own not in netem_left.folders()
