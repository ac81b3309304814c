"""Counts lines of code that ship, by package, as docs/decisions/0058-size-of-the-code.md says; tests are left out.

python scripts/count_lines.py          a table of Python's packages and of the crates
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {"tests", "examples", "benches"}
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub\(\w+\) )?mod tests \{")


def main() -> None:
    """Print the tables."""
    for what, counts in (("Python", python(ROOT)), ("Rust, with the C of the kernel's programs", rust(ROOT))):
        print(f"{what}: {sum(counts.values()):,}")
        for package, lines in counts.most_common():
            print(f"  {package:<20}{lines:>8,}")


def python(root: Path) -> Counter[str]:
    """Lines of `.py` below python/sojourn, by package."""
    counts: Counter[str] = Counter()
    top = root / "python/sojourn"
    for path in top.rglob("*.py"):
        below = path.relative_to(top).parts
        counts[below[0] if len(below) > 1 else "."] += len(path.read_text().splitlines())
    return counts


def rust(root: Path) -> Counter[str]:
    """Lines of `.rs`, `.c` and `.h` below crates, by crate; what follows a module of tests is left out."""
    counts: Counter[str] = Counter()
    for path in (root / "crates").rglob("*"):
        below = path.relative_to(root / "crates").parts
        if path.suffix in {".rs", ".c", ".h"} and not LEFT_OUT & set(below) and path.name != "tests.rs":
            counts[below[0]] += len(TESTS.split(path.read_text())[0].splitlines())
    return counts


if __name__ == "__main__":
    main()
