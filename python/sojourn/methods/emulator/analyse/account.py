"""Conservation: every packet has one disposition, none is lost outside the emulator, and the replay is identical."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.analysis.checks import Asked

if TYPE_CHECKING:
    from sojourn.analysis.run import Run
    from sojourn.methods.emulator.analyse.seen import Seen

DISPOSITIONS = ("unmatched", "sent", "lost")


def asked(seen: Seen, _limits: dict[str, float]) -> list[Asked]:
    """Conservation by the log, and of the stream's frames by both."""
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
    what = "packets without a disposition, or with more than one"
    return [Asked("conservation", "log", 0.0, "packets", what, exact=int(wrong) + twice, n=rows.height)]


def _frames(seen: Seen) -> list[Asked]:
    """The stream's frames that the emulator never saw, and those that it sent and that nobody received."""
    at = ["block", "flow", "seq"]
    own = seen.log.filter(pl.col("copy_of").is_null()).drop_nulls("seq")
    logged = own.select("block", pl.col("flow_of_stream").alias("flow"), "seq", "disposition").unique(at)
    if not logged.height or not seen.sends.height:
        return []
    whole_log = ~pl.col("block").is_in(sorted(seen.cut))
    sends = seen.sends.filter(whole_log)
    unseen = sends.select(at).unique().join(logged, on=at, how="anti").height
    what = "frames that were sent and that the emulator did not see"
    found = [Asked("frames before the emulator", "streams", 0.0, "packets", what, exact=unseen, n=sends.height)]
    if not any(seen.pipe.corruption(stage) for stage in ("before", "after")):
        whole = logged.filter(pl.col("disposition") == "sent")
        missed = whole.join(seen.packets.select(at).unique(), on=at, how="anti").height
        beyond = max(0, missed - int(seen.trials["own_drops"].sum()))
        what = "frames that the emulator sent and that did not arrive (but for the receiver's own drops)"
        found.append(Asked("frames behind the emulator", "streams", 0.0, "packets", what, exact=beyond, n=whole.height))
    return found


def replayed(run: Run) -> list[tuple[str, Asked]]:
    """What the engine made of its own log's arrivals, in virtual time, by the emulator's path."""
    found = []
    for event in run.log:
        if event.get("event") == "emulator-replay":
            differing = _differing(event)
            what = "packets whose disposition, drawn delay or intended departure differs in another run of the engine"
            packets = 0 if event.get("identical") is None else int(event.get("packets") or 0)
            one = Asked("oracle replay", "replay", 0.0, "packets", what, exact=differing, n=packets)
            found.append((str(event.get("device") or "emulate"), one))
    return found


def _differing(event: dict[str, Any]) -> int:
    """How many; of a log that could not be replayed none, and none that were compared: that cannot be told."""
    names = ("dispositions", "fates", "drawn", "intended")  # one packet may be in all of them; older logs say "fates"
    counts = [int(event.get(name) or 0) for name in names]
    return max(counts) or int(event.get("identical") is False)
