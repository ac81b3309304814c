"""The place of the history: $SOJOURN_DATA, or sojourn/ in $XDG_DATA_HOME, or ~/.local/share/sojourn.

Root writes into no folder of another user, to which the variables of sudo and su may point: the files would be root's,
and the folder's owner could redirect root's writing. Root's own home is used instead.
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
    """Return the history of this user; its file may not exist yet."""
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
    """Return the user's data folder; a relative $XDG_DATA_HOME is ignored (XDG Base Directory Specification)."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    if base.is_absolute():
        return base / "sojourn"
    try:
        return Path.home() / BELOW_HOME
    except RuntimeError:
        raise MachineError(f"this user has no home: name a folder for the history in {ASKED}") from None


def is_of_root(folder: Path) -> bool:
    """Return whether every existing folder on the path belongs to root."""
    there = folder.resolve()
    return all(one.stat().st_uid == 0 for one in (there, *there.parents) if one.exists())
