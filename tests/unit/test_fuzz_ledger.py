"""Processor time of searches adds up over sessions, and a reader that was never searched is on the page as such."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scripts import fuzz_ledger

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NOTED = (
    "2026-11-28\t0123456789ab\tcapture\tclean\t1000.50 20.50\t5000\n"
    "2026-11-29\tba9876543210\tcapture\tfound\t900.00 1.00\t\n"
    "2026-11-29\tba9876543210\tpython/plan\tclean\t60.00 0.00\t7\n"
    "2026-11-29\tba9876543210\tgone\tclean\t60.00 0.00\t7\n"
)


def test_fuzzing_times_accumulate_and_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FACTS", "PAGE", "SPENT", "CORPUS"):
        monkeypatch.setattr(fuzz_ledger, name, tmp_path / name)
    for name in ("capture", "layers", "python/plan"):
        (tmp_path / "CORPUS" / name).mkdir(parents=True)
        (tmp_path / "CORPUS" / name / "made-00").write_bytes(b"a seed")
    monkeypatch.setattr(sys, "argv", ["fuzz_ledger", "take"])
    (tmp_path / "SPENT").write_text(NOTED)
    assert fuzz_ledger.main() == fuzz_ledger.main() == 0
    page = (tmp_path / "PAGE").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `layers` | 0.0 min | 0 | 0 | 0 | never |",
        "| `python/plan` | 1.0 min | 7 | 1 | 0 | 2026-11-29, ba9876543210 |",
        "| `capture` | 32.0 min | 5,000 | 2 | 1 | 2026-11-29, ba9876543210 |",
    ]
    assert "1 of 3 readers have been searched for 30 minutes or more; 33 minutes in all, and 59 are missing." in page
    monkeypatch.setattr(sys, "argv", ["fuzz_ledger", "--check"])
    assert fuzz_ledger.main() == 0
    (tmp_path / "PAGE").write_text(page.replace("32.0", "33.0"))
    assert fuzz_ledger.main() == 1
    (tmp_path / "PAGE").write_text(page)
    assert fuzz_ledger.main() == 0
    (tmp_path / "CORPUS/layers/made-00").rename(tmp_path / "CORPUS/layers/made-01")
    assert fuzz_ledger.main() == 1, "a target that is none any more"
