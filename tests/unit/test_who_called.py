"""Who called root: the callers of pkexec and doas get sudo's names."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from sojourn.caller import Caller, sudo_caller
from sojourn.cli.who_called import OF_DOAS, OF_PKEXEC, name_as_sudo_does

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_SUDO = ("SUDO_UID", "SUDO_GID", "SUDO_USER")
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without any caller, and as root; what is set is undone."""
    for name in (*OF_SUDO, OF_DOAS, OF_PKEXEC):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return monkeypatch


def named(monkeypatch: pytest.MonkeyPatch, told: Mapping[str, str]) -> Caller | None:
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    name_as_sudo_does()
    assert not {OF_DOAS, OF_PKEXEC} & set(os.environ), "COMMAND runs as that user"
    return sudo_caller()


@pytest.mark.parametrize("told", [{OF_DOAS: "nobody"}, {OF_PKEXEC: str(NOBODY.pw_uid)}])
def test_callers_of_doas_and_pkexec_are_named_as_sudo_names_its_own(
    calls: pytest.MonkeyPatch, told: dict[str, str]
) -> None:
    assert named(calls, told) == (NOBODY.pw_uid, NOBODY.pw_gid)
    assert os.environ["SUDO_USER"] == "nobody"


@pytest.mark.parametrize(
    "told",
    [
        {},
        {OF_DOAS: "no such user"},
        {OF_PKEXEC: "4294967294"},
        {OF_PKEXEC: "-1"},
        {OF_PKEXEC: "9" * 30},
        {OF_PKEXEC: "x"},
    ],
)
def test_user_who_does_not_exist_has_not_called(calls: pytest.MonkeyPatch, told: dict[str, str]) -> None:
    assert named(calls, told) is None
    assert "SUDO_USER" not in os.environ


def test_names_of_sudo_are_kept(calls: pytest.MonkeyPatch) -> None:
    assert named(calls, {"SUDO_UID": "1", "SUDO_GID": "2", OF_DOAS: "nobody"}) == (1, 2)


def test_process_that_is_not_root_has_no_caller(calls: pytest.MonkeyPatch) -> None:
    calls.setattr(os, "geteuid", lambda: 1)
    assert named(calls, {OF_DOAS: "nobody"}) is None
    assert "SUDO_UID" not in os.environ
