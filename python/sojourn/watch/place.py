"""The port of a watched folder, remembered for the next start, so that an existing tunnel reaches the server again.

One file per folder, in the user's state folder, readable by this user only. The token is not stored: while no server
runs, any user of the machine can bind the port and receive the token from an open page.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
from contextlib import suppress
from pathlib import Path

from sojourn.errors import SojournError
from sojourn.history.place import is_of_root
from sojourn.records.whole_file import write_whole


def remembered(folder: Path) -> int:
    """Return the port of this folder's last server; 0, which means any port, if there was none."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        file = _file(folder)
        if file.stat().st_uid == os.geteuid() and not file.stat().st_mode & 0o077:
            port = json.loads(file.read_text(encoding="utf-8"))["port"]
            if isinstance(port, int) and 0 < port < 1 << 16:
                return port
    return 0


def remember(folder: Path, port: int) -> None:
    """Store the port; if that fails, the next server uses any port."""
    with suppress(OSError, SojournError):
        file = _file(folder)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(file, json.dumps({"port": port}))


def _file(folder: Path) -> Path:
    """Return the file below $XDG_STATE_HOME, or ~/.local/state; for root, not below a folder of another user."""
    home, base = Path(pwd.getpwuid(os.geteuid()).pw_dir), Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute() or (os.geteuid() == 0 and not is_of_root(base)):
        base = home / ".local/state"
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]
    return base / "sojourn/watch" / f"{name}.json"
