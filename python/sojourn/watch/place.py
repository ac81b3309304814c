"""Port and token of what is watched, kept for its next start: a page that is open then finds the server again.

A file for each folder, in the user's folder for state, readable by this user alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sojourn.history.place import is_of_root

TOKEN = re.compile(r"[\w-]{32,64}", re.ASCII)


@dataclass(frozen=True)
class Place:
    """Where a folder is served."""

    port: int
    token: str


def remembered(folder: Path) -> Place:
    """The place of this folder's last server; a new token, and any port, where there was none."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        file = _file(folder)
        if file.stat().st_uid == os.geteuid() and not file.stat().st_mode & 0o077:
            known = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(known["port"], int) and TOKEN.fullmatch(known["token"]):
                return Place(known["port"], known["token"])
    return Place(0, secrets.token_urlsafe(24))


def placed(port: int, known: Place) -> Place:
    """Where a server is; where its last port is another's now, pages that are open tell that one the old token."""
    return known if known.port == port else Place(port, known.token if known.port == 0 else secrets.token_urlsafe(24))


def remember(folder: Path, place: Place) -> None:
    """Keep it; where that cannot be, the next server has a new one."""
    with suppress(OSError):
        file = _file(folder)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as there:
            there.write(json.dumps(asdict(place)))
        draft.replace(file)


def _file(folder: Path) -> Path:
    """Below $XDG_STATE_HOME, or ~/.local/state; of root, only where sudo has not left another user's there."""
    home, base = Path(pwd.getpwuid(os.geteuid()).pw_dir), Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute() or (os.geteuid() == 0 and not is_of_root(base)):
        base = home / ".local/state"
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]
    return base / "sojourn/watch" / f"{name}.json"
