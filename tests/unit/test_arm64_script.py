"""scripts/arm64.sh with stubs for cargo, rustc, apt and QEMU: two that run at once, and what is refused."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.children import Child

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/arm64.sh"
TARGET = "aarch64-unknown-linux-gnu"
LOAD, INTERP = 1, 3

STUBS = {
    "uname": "echo x86_64",
    "clang": "exit 0",
    "ld.lld": "exit 0",
    "rustc": 'case $1 in --print) echo "$NOTES/rust" ;; *) echo "host: none" ;; esac',
    "apt-cache": "echo ' Depends: gcc-12'",
    "apt-get": 'case $2 in download) echo begun >>"$NOTES/fetched"; sleep 0.3; : >one.deb ;; esac',
    "dpkg-deb": 'mkdir -p "$3"; : >"$3/library"',
    "cargo": """echo begins >>"$NOTES/built"
for _ in $(seq 100); do # until the other one waits
    ! [ -e "$NOTES/said" ] || grep -q waiting "$NOTES/said" || sleep 0.1
done
made=$CARGO_TARGET_DIR/aarch64-unknown-linux-gnu/release
mkdir -p "$made"
cp "$NOTES/made" "$made/sojourn-instrument"
echo "${RUSTFLAGS-none} ${CARGO_ENCODED_RUSTFLAGS-none}" >"$NOTES/flags"
echo "$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS" >>"$NOTES/flags"
echo ends >>"$NOTES/built\"""",
    "qemu-aarch64": 'echo ran >>"$NOTES/ran"',
}


def program_with(*segments: int) -> bytes:
    """An ELF program for arm64: its head, and a table of segments of these types."""
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    head = struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0)
    return ident + head + b"".join(struct.pack("<IIQQQQQQ", one, 5, 0, 0, 0, 0, 0, 1) for one in segments)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with the script alone."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/paths.sh").touch()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    for folder in (".venv/bin", "bin", f"rust/lib/rustlib/{TARGET}/lib"):
        (tmp_path / folder).mkdir(parents=True)
    for name, does in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "made").write_bytes(program_with(LOAD))
    return tmp_path


def environment(tree: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{tree}/bin:{os.environ['PATH']}", "NOTES": str(tree), **more}


def run(tree: Path, **more: str) -> subprocess.CompletedProcess[str]:
    argv = [str(tree / "scripts/arm64.sh"), "build"]
    return subprocess.run(argv, env=environment(tree, **more), capture_output=True, text=True, check=False, timeout=60)


def test_concurrent_scripts_download_once_and_build_in_turn(tree: Path) -> None:
    argv = [str(tree / "scripts/arm64.sh"), "build"]
    with (
        (tree / "said").open("a") as said,
        Child(argv, env=environment(tree), stderr=said) as first,
        Child(argv, env=environment(tree), stderr=said) as second,
    ):
        statuses = [one.wait(60) for one in (first, second)]
    assert statuses == [0, 0], (tree / "said").read_text()
    assert (tree / "said").read_text().count("waiting for another run") == 1
    assert (tree / "fetched").read_text() == "begun\n"
    assert (tree / "built").read_text() == "begins\nends\n" * 2
    assert [path.name for path in (tree / "build/arm64/root").iterdir()] == ["library"]
    assert not list(tree.glob("build/arm64/*.new"))
    assert [path.name for path in (tree / ".venv/bin").iterdir()] == ["sojourn-instrument-aarch64"]


def test_flags_for_this_machine_do_not_replace_those_for_arm64(tree: Path) -> None:
    done = run(tree, RUSTFLAGS="-C target-cpu=native", CARGO_ENCODED_RUSTFLAGS="-Cdebuginfo=1")
    assert done.returncode == 0, done.stderr
    assert (tree / "flags").read_text() == "none none\n-C target-feature=+crt-static\n"


@pytest.mark.parametrize(
    ("made", "status", "sentence"),
    [
        (program_with(INTERP, LOAD), 1, "needs shared libraries: it was built without +crt-static"),
        (b"no program", 3, "cannot be read"),
    ],
)
def test_dynamically_linked_instrument_is_refused_and_the_previous_one_kept(
    tree: Path, made: bytes, status: int, sentence: str
) -> None:
    before = tree / ".venv/bin/sojourn-instrument-aarch64"
    before.write_text("before")
    (tree / "made").write_bytes(made)
    done = run(tree)
    assert (done.returncode, sentence in done.stderr) == (status, True), done.stderr
    assert before.read_text() == "before"
    assert not (tree / "ran").exists()
