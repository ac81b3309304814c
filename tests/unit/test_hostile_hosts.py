"""What a host may not do to the controller, and what others on either machine may not do to a bed."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import keeper
from sojourn.bed.backends import ssh
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SAID = b"whatever"


class Liar:
    """A line to a host that claims to have files of any name, each of them with the same content."""

    def __init__(self, *rows: str) -> None:
        self.rows = rows

    def run(self, argv: Sequence[str], text: str = "", seconds: float = 60) -> str:
        del seconds
        if argv[2] == keeper.SIZES:
            return "".join(f"{row}\n" for row in self.rows)
        return f"{hashlib.sha256(SAID).hexdigest()}  -\n" * text.count("\n")

    def run_bytes(self, argv: Sequence[str], given: bytes = b"", seconds: float = 60) -> bytes:
        del argv, seconds
        return SAID * given.count(b"\n")


def fetched(tmp_path: Path, *rows: str) -> Any:
    """A folder of such a host, and `records` here."""
    records = tmp_path / "run/records"
    records.mkdir(parents=True)
    machine: Any = SimpleNamespace(line=Liar(*rows), root=[])
    return ssh._Fetched(machine, "/var/tmp/there", records, {})


@pytest.mark.parametrize(
    "name",
    [
        "./../plan.toml",
        "./deep/../../plan.toml",
        ".//etc/passwd",
        "./deep//file",
        "./.",
        "./deep/./file",
        "./deep/",
        "./two words",
        "./tab\tbed",
        "./café",
        "./$(reboot)",
        "/etc/passwd",
        "plan.toml",
        "'./a'$'\\n''b'",
    ],
)
def test_a_host_cannot_name_a_file_outside_the_folder_of_records(name: str, tmp_path: Path) -> None:
    one = fetched(tmp_path, f"{len(SAID)} ./blocks.arrow", f"{len(SAID)} {name}", "16 total")
    with pytest.raises(MachineError, match="is no record's size and name: nothing is fetched"):
        ssh._fetch(one)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("size", ["-8", "8e9", "9" * 5000, ""])
def test_a_size_that_is_none_is_refused(size: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="is no record's size and name"):
        ssh._fetch(fetched(tmp_path, f"{size} ./blocks.arrow"))


def test_records_are_not_written_or_removed_through_links(tmp_path: Path) -> None:
    one = fetched(tmp_path, f"{len(SAID)} ./deep/a.arrow", f" {len(SAID)} ./b.arrow", "16 total")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.arrow").write_text("mine")
    (one.local / "deep").symlink_to(outside)
    with pytest.raises(MachineError, match="deep is a symbolic link"):
        ssh._fetch(one)
    one.machine.line.rows = ()
    one.sizes["deep/a.arrow"] = len(SAID)
    with pytest.raises(MachineError, match="deep is a symbolic link"):
        ssh._fetch(one)
    assert (outside / "a.arrow").read_text() == "mine"
    (one.local / "deep").unlink()
    (one.local / "b.arrow").unlink(missing_ok=True)
    (one.local / "b.arrow").symlink_to(outside / "a.arrow")
    one.machine.line.rows = (f"{len(SAID)} ./b.arrow",)
    with pytest.raises(MachineError, match=r"b\.arrow is a symbolic link"):
        ssh._fetch(one)
    assert (outside / "a.arrow").read_text() == "mine"


def test_records_are_fetched_by_their_names(tmp_path: Path) -> None:
    one = fetched(tmp_path, f" {len(SAID)} ./blocks-000.arrow", f"{len(SAID)} ./a/taps_1.pcap", "16 total")
    ssh._fetch(one)
    found = {str(path.relative_to(one.local)): path.read_bytes() for path in one.local.rglob("*") if path.is_file()}
    assert found == {"blocks-000.arrow": SAID, "a/taps_1.pcap": SAID}
