"""Writes build/man/*.1 and build/completion/* from the tree of commands (`make man`).

Made of what the programs declare, as their help is; the date is that of the last commit, or SOURCE_DATE_EPOCH's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import sojourn
from scripts.command_tree import tree
from scripts.completions import completions
from scripts.man_pages import pages

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Write both folders anew."""
    program = tree()
    write(ROOT / "build/man", pages(program, sojourn.__version__, date()))
    write(ROOT / "build/completion", completions(program))
    return 0


def write(folder: Path, files: dict[str, str]) -> None:
    """Make a folder with exactly these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"written: {folder.relative_to(ROOT)}: {len(files)} files")


def date() -> str:
    """Return the date of the sources, so that the same sources give the same pages."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        done = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        epoch = done.stdout.strip() if done.returncode == 0 else None
    return f"{datetime.fromtimestamp(int(epoch), UTC):%Y-%m-%d}" if epoch else ""


if __name__ == "__main__":
    sys.exit(main())
