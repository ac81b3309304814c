"""`emulate offline` on a capture whose frames were cut, held against what tshark reads of input and output."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

INSTRUMENT = Path(__file__).resolve().parents[2] / ".venv/bin/sojourn-instrument"
SNAP_BYTES = 96
LENGTHS = (60, 96, 97, 1514, 64, 9014)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark here: scripts/setup.sh test installs it")
def test_truncated_frame_keeps_its_captured_and_original_length(tmp_path: Path) -> None:
    taken, given = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    capture = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, SNAP_BYTES, 1)
    for number, length in enumerate(LENGTHS):
        kept = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5]).ljust(min(length, SNAP_BYTES), bytes([number]))
        capture += struct.pack("<IIII", 1_700_000_000 + number, 0, len(kept), length) + kept
    taken.write_bytes(capture)
    argv = [str(INSTRUMENT), "emulate", "offline", str(taken), "--delay", "1ms", "-o", str(given)]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    expected = [(length, min(length, SNAP_BYTES)) for length in LENGTHS]
    assert lengths(taken) == expected
    assert lengths(given) == expected


def lengths(capture: Path) -> list[tuple[int, int]]:
    """Of each frame, as tshark reads it: its length on the wire, and what was kept of it."""
    argv = ["tshark", "-r", str(capture), "-T", "fields", "-e", "frame.len", "-e", "frame.cap_len"]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    return [(int(length), int(kept)) for length, kept in (line.split() for line in lines)]
