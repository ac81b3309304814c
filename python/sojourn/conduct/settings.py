"""Log the settings of a bed's ports and hosts: once when set, and again when restored."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from sojourn.records.settings import RESTORED, SET, Tuned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sojourn.conduct.archive import Log
    from sojourn.conduct.part import Part
    from sojourn.conduct.progress import Screen
    from sojourn.conduct.site import Site


@contextmanager
def settings_told(part: Part, log: Log, screen: Screen) -> Iterator[Callable[[Site], None]]:
    """Log the restored settings at the end of a block around the bed; call the yielded function once the bed exists."""
    backends = []

    def told(site: Site) -> None:
        backends.append(site.bed.backend)
        if rows := site.bed.backend.tuned:
            log(SET, part=part.number, rows=[asdict(one) for one in rows])

    try:
        yield told
    finally:
        rows = [one for backend in backends for one in backend.tuned]
        if rows:
            log(RESTORED, part=part.number, rows=[asdict(one) for one in rows])
        for one in rows:
            if (sentence := not_restored(one)) is not None:
                screen.note(sentence)


def not_restored(one: Tuned) -> str | None:
    """Return the sentence for a value that was not restored; None if it was, or its port was removed."""
    if one.is_back is not False:
        return None
    return f"{one.value} of {one.where} was {one.before}, and is {one.restored} after the run: set it by hand"
