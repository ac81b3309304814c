"""Sojourn measures what a box in the path does to packets: how long they stay in it, and how sure that figure is.

For programs: `open` a finished run, `run` a study, `lab` for two network namespaces joined by an emulated path,
`emulate` between two interfaces, and `tcplog` for TCP's state. Each is loaded when it is first used.
"""

from __future__ import annotations

from sojourn.lazy import names_of
from sojourn.version import __version__

TYPE_CHECKING = False  # every command loads this: `typing` takes longer than all else here
if TYPE_CHECKING:
    from sojourn.api.measure import run
    from sojourn.api.runs import Estimate, Finding, Run, open  # noqa: A004 - as modules of the standard library have it
    from sojourn.api.tcplog import TcpLog, tcplog
    from sojourn.errors import DoubtfulError, MachineError, RequestError, SojournError
    from sojourn.labs.emulation import Emulation, emulate
    from sojourn.labs.end import End
    from sojourn.labs.lab import Lab, lab
else:
    __getattr__ = names_of(
        __name__,
        {
            ".api.measure": ("run",),
            ".api.runs": ("Estimate", "Finding", "Run", "open"),
            ".api.tcplog": ("TcpLog", "tcplog"),
            ".errors": ("DoubtfulError", "MachineError", "RequestError", "SojournError"),
            ".labs.emulation": ("Emulation", "emulate"),
            ".labs.end": ("End",),
            ".labs.lab": ("Lab", "lab"),
        },
    )

__all__ = [
    "DoubtfulError",
    "Emulation",
    "End",
    "Estimate",
    "Finding",
    "Lab",
    "MachineError",
    "RequestError",
    "Run",
    "SojournError",
    "TcpLog",
    "__version__",
    "emulate",
    "lab",
    "open",
    "run",
    "tcplog",
]
