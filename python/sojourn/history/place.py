"""Where the history lies: $SOJOURN_DATA, or sojourn/ in $XDG_DATA_HOME, or ~/.local/share/sojourn.

Root writes into no folder of another user, to whom the variables of sudo and su may point: files of root's would lie
there, and whoever owns the folder could lead root's writing elsewhere. Root's own home is taken then.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from sojourn.errors import MachineError
from sojourn.history.store import History

ASKED = "SOJOURN_DATA"
FILE = "history.sqlite"
BELOW_HOME = Path(".local/share/sojourn")


def find_history() -> History:
    """The history of whoever runs this; its file need not be there yet."""
    asked = os.environ.get(ASKED)
    folder = Path(asked) if asked else usual_folder()
    if os.geteuid() == 0 and not is_of_root(folder):
        if asked:
            raise MachineError(
                f"{ASKED}={asked} belongs to another user, and root leaves it alone: name one of root's, or unset it"
            )
        folder = Path(pwd.getpwuid(0).pw_dir) / BELOW_HOME
    return History(folder / FILE)


def usual_folder() -> Path:
    """The user's folder for data; a relative $XDG_DATA_HOME is none (XDG Base Directory Specification)."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    if base.is_absolute():
        return base / "sojourn"
    try:
        return Path.home() / BELOW_HOME
    except RuntimeError:
        raise MachineError(f"this user has no home: name a folder for the history in {ASKED}") from None


def is_of_root(folder: Path) -> bool:
    """Whether every folder on the way there that exists is root's."""
    there = folder.resolve()
    return all(one.stat().st_uid == 0 for one in (there, *there.parents) if one.exists())
