"""Who called root: pkexec and doas name their caller in other variables than sudo, whose names all else here reads."""

from __future__ import annotations

import os

OF_PKEXEC, OF_DOAS = "PKEXEC_UID", "DOAS_USER"
"""The variables by which pkexec (a user ID) and doas (a login name) name their caller."""


def name_as_sudo_does() -> None:
    """Replace the variable of pkexec or doas by sudo's, for this process and what it starts.

    sudo's own are kept; a user who is not in the user database is left out, as if nobody had called.
    """
    told = [os.environ.pop(name, "") for name in (OF_PKEXEC, OF_DOAS)]
    if not any(told) or os.geteuid() != 0 or "SUDO_UID" in os.environ:
        return
    import pwd

    uid, name = told
    try:
        user = pwd.getpwuid(int(uid)) if uid else pwd.getpwnam(name)
    except (KeyError, ValueError, OverflowError):
        return
    os.environ |= {"SUDO_UID": str(user.pw_uid), "SUDO_GID": str(user.pw_gid), "SUDO_USER": user.pw_name}
