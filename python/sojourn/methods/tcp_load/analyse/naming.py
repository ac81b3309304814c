"""Short names of the pipes of one run: what they differ by, "tail drop" where one says no more than its length.

It reads words alone; what a pipe does is the emulator's affair.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TAIL_DROP = "tail drop"
MANAGED = ("red", "gred", "codel", "pie", "type", "drop", "scheduler")
"""Words that make a queue another than one that drops what arrives when it is full."""


def short_names(pipes: Sequence[str]) -> dict[str, str]:
    """Each pipe by what others of the run have not; whole where that would be misread, or where there is one."""
    several = list(dict.fromkeys(pipes))
    words = [pipe.split() for pipe in several]
    alike = takewhile(lambda each: len(set(each)) == 1, zip(*words, strict=False))
    shared = len(list(alike)) if len(several) > 1 else 0
    if shared and all(each[shared : shared + 1] and each[shared][0].isdigit() for each in words):
        shared -= 1  # a value is named with its option
    rest = [" ".join(each[shared:]).removeprefix("type ") for each in words]
    is_plain = shared and "queue" in words[0][:shared] and not set(words[0][:shared]) & set(MANAGED)
    if not shared or ("" in rest and not is_plain):
        return dict(zip(several, several, strict=True))
    return {pipe: name or TAIL_DROP for pipe, name in zip(several, rest, strict=True)}
