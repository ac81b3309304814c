"""The header and the footer of a log of TCP's state: what is read of them, declared once, and their reader.

A log may come from somebody else: members declared here have the declared shapes, or the file is refused in a sentence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sojourn.errors import RequestError
from sojourn.records.decode import json_file
from sojourn.records.shape import FLAG, NUMBER, TEXT, UNSIGNED, Kind, maybe, require, within

if TYPE_CHECKING:
    from pathlib import Path

MOST_NS = 2**62


def _below(most: int) -> Kind:
    return Kind(f"a whole number between -{most} and {most}", within(1 - most, most - 1))


END: Final[dict[str, Any]] = {
    **dict.fromkeys(("enable_time_secs", "disable_time_secs"), _below(MOST_NS // 10**9)),
    **dict.fromkeys(("enable_time_usecs", "disable_time_usecs", "tai_minus_utc_s"), _below(10**6)),
    "tai_minus_monotonic_ns": _below(MOST_NS),
    "absent": [TEXT], "unasked": [TEXT], "tcp_flag_names": [TEXT],
    **dict.fromkeys(("kernel", "hostname", "clock", "warning", "boot_id"), maybe(TEXT)),
    "command": maybe([TEXT]),
    "options": maybe({"ppl_by": maybe(TEXT)}),
    "totals": maybe(dict.fromkeys(("in", "out"), maybe({"seen": UNSIGNED}))),
    "duration_s": maybe(NUMBER), "conserved": maybe(FLAG), "interruption": maybe({"why": maybe(TEXT)}),
}  # fmt: skip


def read_log_end(path: Path) -> dict[str, Any]:
    """Return a header or a footer; empty where there is no file. Raises RequestError if it is damaged."""
    if not path.is_file():
        return {}
    try:
        found = json_file(path)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise RequestError(f"{path} is damaged: it is not a JSON object")
    require(found, END, str(path))
    return found
