"""The instrument for arm64 under QEMU's user mode: it computes what the one of this machine does, byte for byte.

QEMU's user mode hands system calls to this machine's kernel, and knows no BPF and no filters of system calls: what
needs those is tried in a guest with a kernel of its own (`make kernels`: 6.1-arm64).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sojourn.bed.copies import architecture_of
from sojourn.binary import find_instrument
from sojourn.version import __version__

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/arm64.sh"
BINARY = ROOT / ".venv/bin/sojourn-instrument-aarch64"
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")

LINE = {"forward": {"constant_ns": 5000}, "backward": {"constant_ns": 7000}}
PATH = {"delay": {"constant_ns": 5000}}
EMULATED = ("--delay", "2ms", "--jitter", "500us", "--loss", "2%", "--duplicate", "1%", "--rate", "80Mbit/s")

pytestmark = [
    pytest.mark.proof,
    pytest.mark.may_skip,  # where QEMU, or what compiles for arm64, cannot be had
    pytest.mark.skipif(os.uname().machine == "aarch64", reason="this machine is arm64 itself"),
]


@pytest.fixture(scope="module")
def emulator() -> str:
    found = next(filter(None, map(shutil.which, EMULATORS)), None)
    if found is None:
        pytest.skip("no QEMU that runs programs for arm64: apt-get install qemu-user")
    return found


@pytest.fixture(scope="module")
def built() -> Path:
    """The instrument for arm64, of these sources."""
    done = subprocess.run([SCRIPT, "build"], capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr[-2000:]
    return BINARY


def write_capture(path: Path) -> None:
    """3000 datagrams of many sizes, 50 µs apart."""
    octets = [struct.pack("<IHHiIII", 0xA1B2_3C4D, 2, 4, 0, 0, 262_144, 1)]
    for number in range(3000):
        data = number.to_bytes(4) + bytes(number % 1200)
        udp = struct.pack(">HHHH", 4000, 9, 8 + len(data), 0) + data
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), number, 0, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
        frame = b"\2\0\0\0\0\2\2\0\0\0\0\1\x08\0" + ip + udp
        octets += [struct.pack("<IIII", 1_700_000_000, 50_000 * number, len(frame), len(frame)), frame]
    path.write_bytes(b"".join(octets))


def outcome(folder: Path, argv: list[str | Path]) -> tuple[str, dict[str, str]]:
    """What a program says, and the digests of what it writes into its folder."""
    folder.mkdir()
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode in (0, 4), f"{argv}: {done.stderr}"
    files = {
        str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in folder.rglob("*")
        if one.is_file()
    }
    return done.stdout, files


def test_it_runs_and_says_its_version(emulator: str, built: Path) -> None:
    assert architecture_of(built.read_bytes()) == "aarch64"
    done = subprocess.run([emulator, built, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"sojourn-instrument {__version__}\n"


def test_what_it_computes_is_the_same_byte_for_byte(emulator: str, built: Path, tmp_path: Path) -> None:
    before, after = tmp_path / "before.pcap", tmp_path / "emulate-own/out.pcapng"
    write_capture(before)
    cases: dict[str, list[str | Path]] = {
        "schema": ["schema"],
        "probe": ["probe", "sim", "--line", json.dumps(LINE), "--as", "udp", "--schedule", "poisson", "-c", "2000",
                  "--seed", "7", "--record", "records", "--json"],
        "stream": ["stream", "sim", "--path", json.dumps(PATH), "--schedule", "poisson", "--rate", "10kpps",
                   "-c", "5000", "--seed", "7", "--record", "records", "--json"],
        "emulate": ["emulate", "offline", before, "-o", "out.pcapng", "--seed", "7", "--json", *EMULATED],
        "match": ["match", before, after, "--window", "100ms", "-o", "rows", "--json"],
    }  # fmt: skip
    for name, words in cases.items():
        own = outcome(tmp_path / f"{name}-own", [find_instrument(), *words])
        arm = outcome(tmp_path / f"{name}-arm64", [emulator, built, *words])
        assert arm == own, name
        assert own[0], name
        assert own[1] or name == "schema", name


@pytest.mark.parametrize("words", [("probe", "icmp", "127.0.0.1", "-c", "20", "-i", "2ms", "--json")])
def test_it_measures_the_loopback(emulator: str, built: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run([emulator, built, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 4), done.stderr
    assert json.loads(done.stdout.splitlines()[-1])


def test_unit_tests_of_the_crates_pass_under_it(emulator: str, built: Path) -> None:
    done = subprocess.run([SCRIPT, "test"], capture_output=True, text=True, check=False, timeout=5400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert done.stdout.count("test result: ok. ") >= 5, done.stdout[-3000:]


def test_make_dist_has_a_wheel_for_it(built: Path) -> None:
    """Its tag, its binary and its bill of materials are of arm64."""
    argv = [sys.executable, "-m", "scripts.make_dist", "--no-deb"]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=3600)
    [wheel] = (ROOT / "dist").glob("*aarch64.whl")
    assert wheel.name == f"sojourn-{__version__}-py3-none-manylinux_2_28_aarch64.whl"
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        [program] = [name for name in names if name.endswith("/scripts/sojourn-instrument")]
        [bill] = [name for name in names if name.endswith("/sboms/sojourn.cdx.json")]
        [tags] = [name for name in names if name.endswith(".dist-info/WHEEL")]
        assert packed.read(program) == built.read_bytes()
        assert "Tag: py3-none-manylinux_2_28_aarch64\n" in packed.read(tags).decode()
        assert {one["name"] for one in json.loads(packed.read(bill))["components"]} >= {
            "libbpf-sys",
            "arrow-ipc",
            "polars",
        }
