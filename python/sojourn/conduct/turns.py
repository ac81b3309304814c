"""Put the path of a trial in place, on a bed whose paths share ports; the run's clock stands meanwhile.

What links lost before is reported before: what the change does to them is not a loss. Does not connect anything itself
(`bed.turns`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.conduct.losses import begin_to_watch, tell_hit_by_links

if TYPE_CHECKING:
    from sojourn.conduct.part import Session


def put_in_place(session: Session, path: str, *, is_under_way: bool = False) -> None:
    """Connect a path to the ports that it shares with others, unless it is already.

    With `is_under_way` the trial that began last has not ended: a link that is lost later is its loss, too.
    """
    if session.site.bed.turns.is_in_place(path):
        return
    with session.clock.paused():
        session.site.bed.backend.require_hosts()
        tell_hit_by_links(session)
        del session.since[: -1 if is_under_way else None]
        with session.screen.paused():
            session.site.bed.put_in_place(path)
        session.log("in-place", part=session.part.number, path=session.site.bed.turns.place_of(path))
        begin_to_watch(session)
