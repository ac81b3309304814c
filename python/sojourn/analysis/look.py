"""Check a run in progress, in a process of its own: what is doubtful, and whether its headline is narrow enough.

`python -m sojourn.analysis.look RUN` prints one line of JSON and writes nothing. The conductor, which reads no records,
runs it after each session; it reports what is doubtful, and ends the run where `enough` is true.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from sojourn.errors import SojournError


def main() -> None:
    """Check once, and print the result."""
    try:
        told = looked(Path(sys.argv[1]))
    except SojournError as error:
        told = {"problem": str(error)}
    except Exception as error:  # the records of few sessions may lack what an analysis needs
        told = {"problem": f"too little is recorded so far ({''.join(traceback.format_exception_only(error)).strip()})"}
    print(json.dumps(told, allow_nan=False))


UNTOLD = frozenset({"truncated_record", "incomplete", "too_few_pairs"})
"""Findings that a run may have until it ends, and that mean nothing before."""


def looked(folder: Path) -> dict[str, Any]:
    """Return what is doubtful so far and, if the plan requests an interval, the headline's and whether that is
    enough."""
    from sojourn.analysis import assess
    from sojourn.analysis.run import load
    from sojourn.analysis.stopping import earlier, judged
    from sojourn.analysis.verdict import head_of
    from sojourn.units import width

    run = load(folder)
    study, _ = assess(run)
    doubts = [one.tidy(run.cells) for one in study.findings if one.severity != "note" and one.name not in UNTOLD]
    told = {"doubtful": [{key: one[key] for key in ("name", "severity", "where", "sentence")} for one in doubts]}
    asked = width(str(run.study.get("until", "")))
    return told if asked is None else told | judged(head_of(run, study), asked, earlier(run))


if __name__ == "__main__":
    main()
