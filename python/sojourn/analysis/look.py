"""One look at a run that goes on, by a program of its own: whether its headline's interval is narrow enough to end it.

`python -m sojourn.analysis.look RUN` prints one line of JSON and writes nothing. The conductor, which understands no
records, asks it after each session, and ends the run where `enough` is true.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from sojourn.errors import SojournError


def main() -> None:
    """Look once, and say so."""
    try:
        told = looked(Path(sys.argv[1]))
    except SojournError as error:
        told = {"problem": str(error)}
    except Exception as error:  # the records of few sessions may lack what an analysis counts on
        told = {"problem": f"too little is recorded so far ({''.join(traceback.format_exception_only(error)).strip()})"}
    print(json.dumps(told, allow_nan=False))


def looked(folder: Path) -> dict[str, Any]:
    """The headline with its interval, what was asked, and whether that is enough."""
    from sojourn.analysis import assess
    from sojourn.analysis.run import load
    from sojourn.analysis.stopping import earlier, judged
    from sojourn.analysis.verdict import head_of
    from sojourn.units import width

    run = load(folder)
    asked = width(str(run.study.get("until", "")))
    if asked is None:
        return {"problem": "the plan has no study.until"}
    study, _ = assess(run)
    return judged(head_of(run, study), asked, earlier(run))


if __name__ == "__main__":
    main()
