"""The user who called root by sudo, and how to run a program as that user. Changes nothing of this process."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OF_SUDO = ("SUDO_COMMAND", "SUDO_USER", "SUDO_UID", "SUDO_GID")
"""Variables of sudo about its caller, which a program that runs as that user does not get."""


class Caller(NamedTuple):
    """A user and its group."""

    uid: int
    gid: int

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that becomes `argv` as this user, with its groups and no capability.

        It still dies with its parent: a change of user clears the kernel's parent-death signal, so it is set again.
        """
        account = self._account()
        groups = [self.gid] if account is None else os.getgrouplist(account.pw_name, self.gid)
        who = ["--reuid", str(self.uid), "--regid", str(self.gid), "--groups", ",".join(map(str, groups))]
        return ["setpriv", *who, "--pdeathsig", "KILL", "--", *argv]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment as after a login of this user."""
        found = {name: value for name, value in env.items() if name not in OF_SUDO}
        if account := self._account():
            name = account.pw_name
            found |= {"HOME": account.pw_dir, "SHELL": account.pw_shell, "MAIL": f"/var/mail/{name}"}
            found |= {"USER": name, "LOGNAME": name}
        return found

    def _account(self) -> pwd.struct_passwd | None:
        try:
            return pwd.getpwuid(self.uid)
        except KeyError:
            return None


def sudo_caller() -> Caller | None:
    """Return the user who called sudo; None if nobody did, or this process is not root."""
    try:
        found = Caller(int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
    except (KeyError, ValueError):
        return None
    return found if os.geteuid() == 0 else None
