"""Processes of a test, which end with it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, AnyStr

if TYPE_CHECKING:
    from types import TracebackType


class Child(subprocess.Popen[AnyStr]):
    """A process that is killed where its `with` block fails. `subprocess.Popen` would wait for its end."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)
