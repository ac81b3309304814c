"""Pair segments one to one with later sightings of them, by their identifying fields, in the order of time.

The module does not know which instrument saw them: a record of segments has `place`, `sent_ns` and the keys; a record
of sightings has `row`, `at_ns` and the same keys.
"""

from __future__ import annotations

import polars as pl

WRAP, HALF = 1 << 32, 1 << 31
KEYS = ("seq", "payload_bytes", "ip_id")
MOST_UNDER_WAY_NS = 60_000_000_000
STRIP = 1 << 14
"""In bytes of sequence space: a segment is looked for in the packets that reach into its strip."""


def matched(segments: pl.DataFrame, others: pl.DataFrame, keys: tuple[str, ...] = KEYS) -> pl.DataFrame:
    """Pair segments with later sightings of them, one to one; return place and row.

    A retransmission with the same keys has another IP identification, or was built later: it gets the earliest sighting
    after its building that belongs to no other segment.
    """
    seen = others.drop_nulls("at_ns").sort("at_ns", "row")
    mine = segments.sort("sent_ns", "place")
    turns = pl.int_range(pl.len()).over(keys).alias("turn"), pl.len().over(keys).alias("times")
    keyed = {name: pl.Int64() for name in keys}
    left = mine.select("place", "sent_ns", *keys).cast(keyed).with_columns(turns)  # type: ignore[arg-type]
    right = seen.select("row", "at_ns", *keys).cast(keyed).with_columns(turns)  # type: ignore[arg-type]
    behind = (pl.col("at_ns") - pl.col("sent_ns")).is_between(0, MOST_UNDER_WAY_NS)
    equal = left.join(right, on=[*keys, "turn", "times"]).filter(behind).select("place", "row")
    rest = left.join(equal, on="place", how="anti"), right.join(equal, on="row", how="anti")
    return pl.concat([equal, _nearest(*rest, keys)])


def _nearest(left: pl.DataFrame, right: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Pair keys whose counts differ: each sighting belongs to the last segment built before it."""
    found = []
    while left.height and right.height:
        near = right.sort("at_ns").join_asof(
            left.sort("sent_ns").select("place", "sent_ns", *keys, pl.col("sent_ns").alias("at")),
            left_on="at_ns", right_on="sent_ns", by=keys, strategy="backward", tolerance=MOST_UNDER_WAY_NS,
            check_sortedness=False,
        ).drop_nulls("place").sort("at_ns")  # fmt: skip
        pairs = near.unique("place", keep="first", maintain_order=True).select("place", "row")
        if pairs.is_empty():
            break
        found.append(pairs)
        left = left.join(pairs, on="place", how="anti")
        right = right.join(pairs, on="row", how="anti")
    return pl.concat(found) if found else pl.DataFrame(schema={"place": pl.Int64, "row": pl.Int64})


def joined_sights(segments: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """Pair segments with sightings that may hold several segments; return place and row.

    A segment that passed within a larger packet, and later alone, was copied on its way: the first sighting is used.
    """
    pairs = matched(segments, seen)
    rest = segments.join(pairs, on="place", how="anti"), seen.join(pairs, on="row", how="anti")
    pairs = pl.concat([pairs, within(*rest)])
    alone = pairs.join(segments.select("place", "seq", "payload_bytes"), on="place").join(
        seen.select("row", "at_ns", pl.col("seq").alias("from"), pl.col("payload_bytes").alias("holds")), on="row"
    )
    alone = alone.with_columns(((pl.col("seq") - pl.col("from")) % WRAP).alias("offset"))
    single = alone.filter(pl.col("holds") == pl.col("payload_bytes")).select("place", pl.col("at_ns").alias("alone_ns"))
    large = seen.join(single.select("place").join(pairs, on="place"), on="row", how="anti")
    free = _fitting(segments.join(single, on="place", how="semi"), large).join(alone, on=["row", "offset"], how="anti")
    before = free.join(single, on="place", maintain_order="left").filter(pl.col("at_ns") < pl.col("alone_ns"))
    first = _chosen(before)
    return pl.concat([pairs.join(first, on="place", how="anti"), first])


def within(segments: pl.DataFrame, large: pl.DataFrame) -> pl.DataFrame:
    """Pair segments with packets that hold their bytes: ones not yet segmented (GSO), or merged on receipt (GRO)."""
    return _chosen(_fitting(segments, large))


def _fitting(segments: pl.DataFrame, large: pl.DataFrame) -> pl.DataFrame:
    """Return each segment with each larger packet that may hold it: place, row, offset, at_ns; the soonest first.

    All segments of such a packet but the last have one length, and the IP identifications of IPv4 count up from the
    packet's: this distinguishes a retransmission from the first transmission.
    """
    if segments.is_empty() or large.is_empty():
        return pl.DataFrame(schema=dict.fromkeys(("place", "row", "offset", "at_ns"), pl.Int64))
    right = large.select("row", "at_ns", pl.col("seq").alias("from"), pl.col("payload_bytes").alias("holds"),
                         pl.col("ip_id").cast(pl.Int64).alias("id"))  # fmt: skip
    left = segments.select("place", "sent_ns", "seq", "payload_bytes", pl.col("ip_id").cast(pl.Int64))
    first, last = pl.col("from") // STRIP, (pl.col("from") + pl.col("holds") - 1) // STRIP
    strips = right.with_columns(pl.int_ranges(first, last + 1).alias("strip")).explode("strip")
    strips = strips.with_columns(pl.col("strip") % (WRAP // STRIP))
    pairs = left.with_columns((pl.col("seq") // STRIP).alias("strip")).join(strips, on="strip").drop("strip")
    offset, turn = (pl.col("seq") - pl.col("from")) % WRAP, (pl.col("ip_id") - pl.col("id")) % 65536
    pairs = pairs.with_columns(offset.alias("offset"), turn.alias("turn"))
    is_smaller = pl.col("payload_bytes") < pl.col("holds")
    each = pl.col("offset") // pl.col("turn")
    is_turn = (
        pl.when(pl.col("turn") == 0)
        .then((pl.col("offset") == 0) | (pl.col("id") == 0))
        .otherwise((each * pl.col("turn") == pl.col("offset")) & (each >= pl.col("payload_bytes")))
    )
    late = pl.col("at_ns") - pl.col("sent_ns")
    fits = pairs.filter(
        is_smaller & (pl.col("offset") + pl.col("payload_bytes") <= pl.col("holds")),
        is_turn,
        late.is_between(0, MOST_UNDER_WAY_NS),
    )
    return fits.sort(late).select(pl.col("place", "row", "offset", "at_ns").cast(pl.Int64))


def _chosen(fits: pl.DataFrame) -> pl.DataFrame:
    """Choose for each segment the first packet that may hold it, at an offset that no other segment takes."""
    found = [pl.DataFrame(schema={"place": pl.Int64, "row": pl.Int64})]
    while fits.height:
        chosen = fits.unique("place", keep="first", maintain_order=True)
        chosen = chosen.unique(["row", "offset"], keep="first", maintain_order=True)
        found.append(chosen.select("place", "row"))
        fits = fits.join(chosen, on="place", how="anti", maintain_order="left")
        fits = fits.join(chosen, on=["row", "offset"], how="anti", maintain_order="left")
    return pl.concat(found)


def unwrapped(numbers: pl.Series, base: int) -> pl.Series:
    """Return sequence numbers as offsets from `base` without wrap, for numbers whose steps are below 2³¹."""
    relative = (numbers - base + HALF) % WRAP - HALF
    steps = relative.diff().fill_null(0)
    turns = ((steps < -HALF).cast(pl.Int64) - (steps > HALF).cast(pl.Int64)).cum_sum()
    return relative + turns * WRAP


def unwrapped_near(numbers: pl.Series, near: pl.Series, base: int) -> pl.Series:
    """Return the same for sparse numbers: each is within 2³¹ of a known offset of the same time."""
    return near + ((numbers - base - near + HALF) % WRAP - HALF)
