"""What the traffic beside the measured flows did: in figures of its own, by the name of each part, and in no others.

Goodput and use of the link are of the working conditions. UDP: user data that arrived meanwhile, and how long its
packets took, which between two clocks has the error of these. Long flows of TCP: what was acknowledged between the
first and the last reading. Short transfers: the user data of those that ended then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.tcp_trials import told_by, unwrapped
from sojourn.analysis.wording import percent
from sojourn.methods.tcp_load.analyse.trials import (
    Span,
    changes,
    frame_bytes_of,
    links_by_cable,
    links_of,
    of_flows,
    parts_of,
    used_of,
)
from sojourn.statistics.quantile import allowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.tcp_load.analyse.trials import Done, Link

UNITS = {
    "background_goodput": "bit/s", "background_utilisation": "1", "background_lost": "1",
    "background_retransmitted": "1", "background_completion": "ns",
    "background_delay": "ns",
}  # fmt: skip
FULL_PACE = 0.99
"""A sender of UDP below this part of the rate that it was asked for has not made the background that was meant."""

COMPLETIONS = {"p50": 0.5, "p90": 0.9}
DELAYS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

Values = dict[tuple[str, str], float]


def channels_of(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """What came of each part of a trial's background, in each of its directions; earlier versions have none."""
    return list(entry.get("background") or ())


def add(run: Run, several: Iterable[Done]) -> None:
    """Give each trial the figures of its background."""
    told, parts = told_by(run, "measure"), parts_of(run)
    if not any(map(channels_of, told.values())):
        return
    sent = run.table("tcp_readings").frame.filter(pl.col("role") == "send")
    sent = unwrapped(sent.filter(pl.col("part") == pl.col("part").max().over("block")))
    readings = {int(block): frame for (block,), frame in sent.partition_by("block", as_dict=True).items()}
    arrivals, links = arrivals_of(run, told.values()), links_of(run)
    for one in several:
        entry = told[one.block]
        working = Span(one.joined_ns + parts[0], one.joined_ns + sum(parts))
        known = links.get(one.block) or links_by_cable(run, entry)
        one.values.update(background_of(entry, readings, arrivals, working, known))


def arrivals_of(run: Run, entries: Iterable[dict[str, Any]]) -> dict[int, pl.DataFrame]:
    """By block, the packets of UDP that arrived, each once."""
    blocks = [channel["block"] for entry in entries for channel in channels_of(entry) if channel["kind"] == "udp"]
    if not blocks:
        return {}
    frame = run.table("arrivals").frame.filter(pl.col("block").is_in(blocks), ~pl.col("duplicate"))
    frame = frame.filter(pl.col("part") == pl.col("part").max().over("block"))
    return {int(block): own for (block,), own in frame.partition_by("block", as_dict=True).items()}


def background_of(
    entry: dict[str, Any],
    readings: Mapping[int, pl.DataFrame],
    arrivals: Mapping[int, pl.DataFrame],
    working: Span,
    links: Mapping[str, Link],
) -> Values:
    """Every figure of a trial's background; `readings` are the senders', by block."""
    found: Values = {}
    for channel in channels_of(entry):
        block, link = int(channel["block"]), links.get(channel["direction"])
        if channel["kind"] == "udp":
            own = of_udp(channel, arrivals.get(block), working, link)
        elif block not in readings:
            continue
        elif channel["kind"] == "tcp":
            own = of_long_flows(channel, readings[block], working, link)
        else:
            own = of_transfers(channel, readings[block], working, link)
        said = f"{channel['direction']} {channel['name']}"
        found |= {(quantity, f"{said}{more}"): value for (quantity, more), value in own.items()}
    return found


def of_udp(channel: dict[str, Any], arrivals: pl.DataFrame | None, working: Span, link: Link | None) -> Values:
    """Of UDP; losses are of the whole of its sending."""
    came = None if arrivals is None else arrivals.filter(working.holds("arrival_ns"))
    within = 0 if came is None else came.height
    per_second = within / ((working.end - working.start) / 1e9)
    found = {("background_goodput", ""): 8 * channel["payload_bytes"] * per_second}
    if link is not None:
        frame = channel["frame_bytes"] + link.overhead_bytes
        found["background_utilisation", ""] = 8 * frame * per_second / link.rate_bps
    if channel["sent"]:
        found["background_lost", ""] = channel["lost"] / channel["sent"]
    if came is not None and within and channel.get("one_clock"):
        took = (came["arrival_ns"] - came["sent_ns"]).to_numpy().astype(np.float64)
        found |= {("background_delay", f" {name}"): value for name, value in told_of(took, DELAYS).items()}
    return found


def told_of(values: NDArray[np.float64], quantiles: Mapping[str, float]) -> dict[str, float]:
    """The mean, and those quantiles that so many values have."""
    found = {name: float(np.quantile(values, p)) for name, p in quantiles.items() if allowed(p, len(values))}
    return {"mean": float(values.mean())} | found


def of_long_flows(channel: dict[str, Any], readings: pl.DataFrame, working: Span, link: Link | None) -> Values:
    """Of flows that send all the while; nothing where one of them was read less than twice."""
    local = {flow["local"] for flow in channel["flows"]}
    whole = of_flows(readings, local)
    own = whole.filter(working.holds("read_after_ns")).sort("read_after_ns")
    several = [change for flow in own.partition_by("local") if (change := changes(flow)) is not None]
    if len(several) < len(local):
        return {}
    found = {("background_goodput", ""): sum(flow.goodput_bps for flow in several)}
    if link is not None:
        found["background_utilisation", ""] = used_of(whole, working, link)
    if segments := sum(flow.segments for flow in several):
        found["background_retransmitted", ""] = sum(flow.again for flow in several) / segments
    return found


def of_transfers(channel: dict[str, Any], readings: pl.DataFrame, working: Span, link: Link | None) -> Values:
    """Of short transfers; how long they took, handshake included, is of those that began in the working conditions."""
    flows = channel["flows"]
    ended = [one for one in flows if working.start <= one["ended_ns"] < working.end]
    bytes_ps = sum(one["moved_bytes"] for one in ended) / ((working.end - working.start) / 1e9)
    found = {("background_goodput", ""): 8 * bytes_ps}
    last = readings.filter(pl.col("why") == "end")
    if link is not None and last.height:
        one = last.row(0, named=True)
        segments_ps = bytes_ps / one["mss_bytes"]
        found["background_utilisation", ""] = (
            segments_ps * (frame_bytes_of(one) + link.overhead_bytes) * 8 / link.rate_bps
        )
    if last.height and (segments := int(last["data_segs_out"].sum())):
        found["background_retransmitted", ""] = int(last["total_retrans"].sum()) / segments
    took = np.array([one["ended_ns"] - one["started_ns"] for one in flows
                     if working.start <= one["started_ns"] < working.end], dtype=np.float64)  # fmt: skip
    if len(took):
        found |= {("background_completion", f" {name}"): value for name, value in told_of(took, COMPLETIONS).items()}
    return found


def used_beside(values: Mapping[tuple[str, str], float], way: str) -> float:
    """The part of the link's rate that a trial's background took in a direction."""
    return sum(value for (quantity, statistic), value in values.items()
               if quantity == "background_utilisation" and statistic.split()[0] == way)  # fmt: skip


def used_by_rows(rows: Iterable[Row]) -> dict[tuple[str, int | None, str], float]:
    """The same of each cell, in the mean over trials: by device, cell and direction."""
    found: dict[tuple[str, int | None, str], float] = {}
    for row in rows:
        if row.quantity == "background_utilisation":
            key = row.device, row.cell, row.statistic.split()[0]
            found[key] = found.get(key, 0.0) + row.value.estimate
    return found


def findings(run: Run, several: Iterable[Done]) -> Iterator[Finding]:
    """A background that was not what was asked for, and packets of it that are in no account."""
    told, lasted_ns = told_by(run, "measure"), parts_of(run)
    slow: dict[Place, float] = {}
    gone: dict[Place, float] = {}
    for one in several:
        place, end = Place(one.device, one.cell), one.joined_ns + sum(lasted_ns)
        for channel in channels_of(told[one.block]):
            if channel["kind"] == "udp":
                share = channel["achieved_pps"] / channel["asked_pps"]
                if channel["refused"] or share < FULL_PACE:
                    slow[place] = max(slow.get(place, 0.0), 1 - share)
                lost = one.values.get(("losses", f"{channel['direction']} emulator"))
                beyond = channel["lost"] - (lost or 0) - channel["local_drops"]
                if lost is not None and beyond > 0:
                    gone[place] = max(gone.get(place, 0.0), float(beyond))
            ends = [flow["ended_ns"] for flow in channel.get("flows") or (channel,)]
            if channel["kind"] == "udp":  # until the next packet would have left
                ends = [ends[0] + 1e9 / channel["asked_pps"]]
            if channel["kind"] != "web" and min(ends) < end:
                slow[place] = max(slow.get(place, 0.0), (end - min(ends)) / sum(lasted_ns))
    if slow:
        worst, share = worst_first(slow)
        said = f"the background was {percent(share)} less than what was asked for"
        yield Finding("tester_limited", said, share, worst)
    if gone:
        worst, count = worst_first(gone)
        said = f"{count:.0f} packets of the background over UDP are neither received nor among the emulator's losses"
        yield Finding("not_conserved", said, count, worst)
