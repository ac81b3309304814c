"""Run Atheris on one target: `python -m tests.fuzz.search NAME OPTION… CORPUS…`; without a name, print all names."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Search until a limit of libFuzzer's options is reached."""
    if len(sys.argv) == 1:
        from tests.fuzz.targets import TARGETS

        print("\n".join(f"python/{name}" for name in TARGETS))
        return
    import atheris

    with atheris.instrument_imports(include=["sojourn", "tomllib", "json"]):
        from tests.fuzz.targets import TARGETS, once

    name, *options = sys.argv[1:]
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(target.seeds()):
            (Path(folder) / str(number)).write_bytes(seed)
        first = next((one for one in options if not one.startswith("-")), None)
        at = options.index(first) + 1 if first else len(options)
        atheris.Setup([sys.argv[0], *options[:at], folder, *options[at:]], lambda octets: once(target, octets))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
