"""The program `sojourn` within the process of the test: one of its own takes seconds to load what it needs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from sojourn.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def sojourn(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """`sojourn WORDS` with its exit status and what it printed; not for commands that become the instrument."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["sojourn", *words]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, env),
        mock.patch("sojourn.cli.apart.has_rights", return_value=False),  # a program for each analysis takes a second
        redirect_stdout(out),
        redirect_stderr(err),
        chdir(cwd or "."),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    code = ended.value.code
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())
