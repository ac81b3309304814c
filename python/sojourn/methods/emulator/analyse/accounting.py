"""Packet accounting: each packet has one disposition, none is lost outside the emulator, the replay is identical."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.analysis.checks import Asked

if TYPE_CHECKING:
    from sojourn.analysis.run import Run
    from sojourn.methods.emulator.analyse.seen import Seen

DISPOSITIONS = ("unmatched", "sent", "lost")


def asked(seen: Seen, _limits: dict[str, float]) -> list[Asked]:
    """Return checks of conservation within the log, and of the stream's frames between log and stream."""
    return [*_dispositions(seen), *_frames(seen)] if seen.has_log else []


def _dispositions(seen: Seen) -> list[Asked]:
    rows = seen.log
    twice = rows.height - rows.select("block", "number").n_unique()
    lost, sent = pl.col("disposition") == "lost", pl.col("disposition") == "sent"
    wrong = rows.select(
        (
            ~pl.col("disposition").is_in(DISPOSITIONS)
            | (lost != (pl.col("cause") != ""))
            | (sent & pl.col("departure_ns").is_null())
            | (lost & pl.col("departure_ns").is_not_null())
        ).sum()
    ).item()
    what = "packets with no disposition, or more than one"
    return [Asked("conservation", "log", 0.0, "packets", what, exact=int(wrong) + twice, n=rows.height)]


def _frames(seen: Seen) -> list[Asked]:
    """Return the frames sent but not logged by the emulator, and the frames it sent that were not received."""
    at = ["block", "flow", "seq"]
    own = seen.log.filter(pl.col("copy_of").is_null()).drop_nulls("seq")
    logged = own.select("block", pl.col("flow_of_stream").alias("flow"), "seq", "disposition").unique(at)
    if not logged.height or not seen.sends.height:
        return []
    whole_log = ~pl.col("block").is_in(sorted(seen.cut))
    sends = seen.sends.filter(whole_log)
    unseen = sends.select(at).unique().join(logged, on=at, how="anti").height
    what = "frames that were sent and are not in the emulator's log"
    found = [Asked("frames before the emulator", "streams", 0.0, "packets", what, exact=unseen, n=sends.height)]
    if not any(seen.pipe.corruption(stage) for stage in ("before", "after")):
        whole = logged.filter(pl.col("disposition") == "sent")
        missed = whole.join(seen.packets.select(at).unique(), on=at, how="anti").height
        beyond = max(0, missed - int(seen.trials["local_drops"].sum()))
        what = "frames that the emulator sent and that did not arrive (without the receiver's local drops)"
        found.append(Asked("frames behind the emulator", "streams", 0.0, "packets", what, exact=beyond, n=whole.height))
    return found


def replayed(run: Run) -> list[tuple[str, Asked]]:
    """Return the replay of each emulator's log in virtual time: how many packets differ."""
    found = []
    for event in run.log:
        if event.get("event") == "emulator-replay":
            differing = _differing(event)
            what = "packets whose disposition, drawn delay or intended departure differs in the replay"
            packets = 0 if event.get("identical") is None else int(event.get("packets") or 0)
            one = Asked("oracle replay", "replay", 0.0, "packets", what, exact=differing, n=packets)
            found.append((str(event.get("device") or "emulate"), one))
    return found


def _differing(event: dict[str, Any]) -> int:
    """Return how many packets differ; a log that could not be replayed compares none, which is inconclusive."""
    names = ("dispositions", "drawn", "intended")  # one packet may be in all of them
    counts = [int(event.get(name) or 0) for name in names]
    return max(counts) or int(event.get("identical") is False)
