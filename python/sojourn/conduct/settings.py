"""What a bed set at its ports and on its hosts, in the log: as it was set, and again when it was given back."""

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
    """Log what was given back, at the end of a block around the bed; call what it gives once the bed stands."""
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
    """The sentence for a value that is not what it was; None where it is, or went with its port."""
    if one.is_back is not False:
        return None
    return f"{one.value} of {one.where} was {one.before}, and is {one.restored} after the run: set it by hand"
