"""The capabilities that root's commands keep, of those that this program implements: others are given up at the start.

Of a command that is not listed here, what it starts may need any: a study's boxes are programs of its user.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES = frozenset({"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER"})
"""For files of other users: to read and write them, and to give them to who called sudo."""

ANALYSES = frozenset({"CAP_SETPCAP"})
"""To start the analysis with fewer capabilities."""

STARTS_CONFINED = frozenset({"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL"})
"""To start an instrument that becomes another user and keeps fewer capabilities, and to end it."""

FINDS_USES = frozenset({"CAP_SYS_PTRACE"})
"""To read the environment of other users' processes, in which the SSH session is named whose port must not be taken;
and which process holds a port."""

EMULATES = frozenset({
    "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON", "CAP_IPC_LOCK", "CAP_SYS_NICE",
})  # fmt: skip
"""Those of `emulate run`, and for the cables."""

BRIDGES = frozenset({"CAP_NET_ADMIN", "CAP_SYS_MODULE"})
"""For links, qdiscs and rules, and to load br_netfilter."""

KEPT = {
    "list": FILES,
    "why": FILES,
    "timeline": FILES,
    "tcplog plot": FILES,
    "tcplog convert": FILES,
    "compare": FILES,
    "history": FILES,
    "export": FILES,
    "new": FILES,
    "report": FILES | ANALYSES,
    "uplink": FILES | STARTS_CONFINED | FINDS_USES | EMULATES,
    "bridge up": FILES | FINDS_USES | BRIDGES,
    "bridge status": FILES,
    "bridge down": FILES | BRIDGES,
}
"""By command: of one word, or of two."""

PRINTS = ("report", "--pdf")
"""It starts a browser, whose sandbox may be a set-user-ID program that needs more: it keeps all, but its analysis."""


def give_up(words: Sequence[str]) -> None:
    """Give up what root does not need for the command that begins with these words."""
    if os.geteuid() == 0 and not set(PRINTS) <= set(words):
        kept = KEPT.get(" ".join(words[:2]), KEPT.get(" ".join(words[:1])))
        if kept is not None:
            from sojourn import confine  # takes some milliseconds, which `--help` has no use for

            confine.keep_capabilities(kept)
            confine.gain_nothing()
