"""Segments in packets of several: each is found, in flows of any length, past retransmissions and wraps."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sojourn.timeline.pairs import WRAP, unwrapped, unwrapped_near, within

MSS = 1448
GAP_NS, DELAY_NS = 1_000_000, 30_000_000


def segments(offsets: np.ndarray, sent_ns: np.ndarray, ids: np.ndarray, base: int = 0) -> pl.DataFrame:
    return pl.DataFrame({
        "place": np.arange(len(offsets)), "sent_ns": sent_ns, "seq": (base + offsets) % WRAP,
        "payload_bytes": np.full(len(offsets), MSS), "ip_id": ids % 65536,
    })  # fmt: skip


def packets(offsets: np.ndarray, at_ns: np.ndarray, holds: int, ids: np.ndarray, base: int = 0) -> pl.DataFrame:
    return pl.DataFrame({
        "row": np.arange(len(offsets)), "at_ns": at_ns, "seq": (base + offsets) % WRAP,
        "payload_bytes": np.full(len(offsets), holds), "ip_id": ids % 65536,
    })  # fmt: skip


@pytest.mark.parametrize("base", [0, WRAP - 1_000_000])
def test_segments_of_partially_retransmitted_super_packets_are_all_found(base: int) -> None:
    first = np.arange(3000)
    each = np.arange(30_000)
    new = segments(each * MSS, (each // 10) * GAP_NS, each, base)
    whole = packets(first * 10 * MSS, first * GAP_NS + DELAY_NS, 10 * MSS, first * 10, base)
    # Of every third packet, three segments again, as one packet of three.
    again = first[::3]
    middle = (again[:, None] * 10 + [4, 5, 6]).ravel()
    ids = 40_000 + np.arange(len(middle))
    late_ns = again * GAP_NS + 2 * DELAY_NS
    more = segments(middle * MSS, np.repeat(late_ns, 3), ids, base)
    resent = packets((again * 10 + 4) * MSS, late_ns + DELAY_NS, 3 * MSS, ids[::3], base)
    sent = pl.concat([new, more.with_columns(pl.col("place") + 30_000)])
    seen = pl.concat([whole, resent.with_columns(pl.col("row") + 3000)])
    found = within(sent, seen).sort("place")
    assert found["place"].to_list() == list(range(33_000))
    rows = found["row"].to_numpy()
    assert (rows[:30_000] == each // 10).all()
    assert (rows[30_000:] == 3000 + np.arange(3000) // 3).all()


def test_flow_with_wrapping_sequence_numbers_is_found_completely() -> None:
    each = np.arange(200_000) * 22  # 6.4 GB
    first = each[::10]
    sent_ns = np.arange(200_000) // 10 * GAP_NS
    sent = segments(each * MSS, sent_ns, np.zeros(200_000, dtype=np.int64))
    # IPv6 has no identification; a packet of ten segments, as a stretch of which each 22nd is looked at.
    seen = packets(first * MSS, sent_ns[::10] + DELAY_NS, 199 * MSS, np.zeros(20_000, dtype=np.int64))
    found = within(sent, seen).sort("place")
    assert found.height == 200_000
    assert (found["row"].to_numpy() == np.arange(200_000) // 10).all()


def test_sparse_numbers_far_into_a_flow_have_their_offsets() -> None:
    base = 4_000_000_000
    true = np.array([1_000, 3_000_000_000, 6_500_000_000, 9_200_000_000])
    numbers, near = pl.Series((base + true) % WRAP), pl.Series(true - 200_000)
    assert unwrapped_near(numbers, near, base).to_list() == true.tolist()
    assert unwrapped(numbers, base).to_list() != true.tolist(), "steps beyond 2 GiB"
