"""Facts of the machines beside the records: before and after each part, and the load of other programs meanwhile."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from sojourn.bed.facts import compare
from sojourn.conduct.bound import bound_to, require_same
from sojourn.conduct.neighbours import contention
from sojourn.records.bed import read_bed
from sojourn.records.decode import json_text
from sojourn.records.earlier import read_json
from sojourn.records.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.conduct.archive import Log
    from sojourn.conduct.part import Part, Session
    from sojourn.conduct.site import Site


def keep_facts(part: Part, site: Site, log: Log) -> None:
    """Write the facts of the machines; differences between a later part and the first are logged."""
    facts, path = json.loads(json.dumps(site.facts())), part.folder.bed  # as when read back
    facts["bound"] = bound_to(part.plan, site.bed.backend)
    layout = facts.pop("layout")
    began = {"part": part.number, "before": facts["moment"], "after": None} | ({"layout": layout} if layout else {})
    if path.is_file():
        read_bed(path)  # refuses a damaged one, but leaves nulls out
        first = read_json(json_text(path))
        require_same(first.get("bound", {}), facts["bound"], part.folder.path)
        changes = [asdict(change) for change in compare(first, facts)]
        if changes:
            log("bed-changed", changes=changes)
        facts = first | {"parts": [*first["parts"], began]}
    else:
        facts["parts"] = [began]
    write_whole(path, json.dumps(facts, indent=2) + "\n")


def keep_moment(part: Part, site: Site, log: Log) -> None:
    """Write the counters after a part beside those before; log what of a device did not last."""
    kept = json.loads(json_text(part.folder.bed))
    kept["parts"][-1]["after"] = site.bed.moment()
    if "objects" not in kept and (found := site.bed.objects()):
        kept["objects"] = found  # once: apart from counters, they are the same on every bed
    for path, several in site.bed.notes().items():
        noted = kept.get("objects", {}).get(path, {}).get("notes", [])
        other = [one for one in dict.fromkeys(several) if one not in noted]
        noted += [f"In session {len(kept['parts'])}: {one}" for one in other]
    write_whole(part.folder.bed, json.dumps(kept, indent=2) + "\n")
    for path, several in site.bed.broken().items():
        for sentence in dict.fromkeys(several):
            log("device-broken", device=path, session=len(kept["parts"]), sentence=sentence)


@contextmanager
def watch_neighbours(session: Session) -> Iterator[None]:
    """Log other work on the machine within the block, if it was enough to matter; simulated time is not affected."""
    backend = session.site.bed.backend
    before = backend.usage()
    try:
        yield
    finally:
        if not session.site.simulated:
            found = contention(before, backend.usage())
            event = "contended" if found.is_worth_telling else "undisturbed"
            session.log(event, value=found.others_cores, sentence=found.sentence, steal_cores=found.steal_cores)
