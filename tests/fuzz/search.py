"""Run Atheris on one target: `python -m tests.fuzz.search NAME OPTION… CORPUS…` (scripts/fuzz.sh)."""

from __future__ import annotations

import sys
from pathlib import Path

SEEDS, AGAIN = Path("build/fuzz/seeds"), Path("build/fuzz/again")


def main() -> None:
    """Search until a limit of libFuzzer's options is reached."""
    import atheris

    with atheris.instrument_imports(include=["sojourn", "tomllib", "json"]):
        from tests.fuzz.targets import TARGETS, once

    name, *options = sys.argv[1:]
    target = TARGETS[name]
    # No temporary folder: libFuzzer ends the process, and nothing would remove it.
    folder = SEEDS / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (folder / str(number)).write_bytes(seed)
    first = next((one for one in options if not one.startswith("-")), None)
    at = options.index(first) + 1 if first else len(options)
    arguments = [again(name), *options[:at], str(folder), *options[at:]]
    atheris.Setup(arguments, lambda octets: once(target, octets))
    atheris.Fuzz()


def again(name: str) -> str:
    """Return a program that searches this target: libFuzzer starts its first argument once more to merge corpora."""
    path = (AGAIN / name).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.fuzz.search {name} "$@"\n')
    path.chmod(0o755)
    return str(path)


if __name__ == "__main__":
    main()
