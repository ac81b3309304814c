"""The formats of four tools: JSON of iperf3 (-J), irtt (-o) and flent (.flent.gz), and the full log of sockperf.

Each reader takes what it knows where it is a number, and leaves the rest. Units: iperf3 has bit/s, µs (RTT) and ms
(jitter), irtt ns, sockperf s and µs, flent what its SERIES_META or the name of a series says.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.report.beside.figure import JITTER, LOSS, ONE_WAY, RATE, ROUND_TRIP, Theirs, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Told = tuple[str | None, list[Theirs]]

SOCKPERF_HEAD = re.compile(rb"^packet, *txTime\(sec\), *rxTime\(sec\)", re.MULTILINE)
MOST_FIGURES = 200
MOST_VALUES = 10_000_000
LARGEST = 1e18
"""The largest value that is accepted: no time in ns and no rate exceeds it."""


def is_csv(words: bytes) -> bool:
    """Return whether the text is a full log of sockperf."""
    return SOCKPERF_HEAD.search(words[: 1 << 20]) is not None


def of_csv(words: bytes) -> Told:
    """Round trips of `sockperf ping-pong --full-log`: RX minus TX time; sockperf's own "latency" is half of that."""
    head = SOCKPERF_HEAD.search(words)
    rows = words[head.start() :].split(b"\n")[1:] if head else []
    found = []
    for row in rows[:MOST_VALUES]:
        cells = row.split(b",")
        if len(cells) < 3:
            continue
        sent, received = (_number(cell) for cell in cells[1:3])
        if sent is not None and received is not None and 0 <= sent <= received:
            found.append((received - sent) * 1e9)
    values = np.asarray(found, dtype=np.float64)
    return "sockperf", list(_of_values(ROUND_TRIP, "ping-pong", values[values < LARGEST]))


def of_json(value: Any) -> Told:
    """The tool and its figures, from JSON of iperf3, irtt or flent; no tool if it is none of these."""
    if not isinstance(value, dict):
        return None, []
    for knows, tool, read in (
        (_is_iperf3, "iperf3", _iperf3),
        (_is_irtt, "irtt", _irtt),
        (_is_flent, "flent", _flent),
    ):
        if knows(value):
            version = _version(value)
            return f"{tool} {version}" if version else tool, list(read(value))[:MOST_FIGURES]
    return None, []


def _is_iperf3(value: dict[str, Any]) -> bool:
    return isinstance(value.get("end"), dict) and isinstance(value.get("start"), dict)


def _is_irtt(value: dict[str, Any]) -> bool:
    return isinstance(value.get("stats"), dict) and "round_trips" in value


def _is_flent(value: dict[str, Any]) -> bool:
    return isinstance(value.get("results"), dict) and "x_values" in value


def _version(value: dict[str, Any]) -> str:
    told = _at(value, "start", "version") or _at(value, "version", "irtt") or _at(value, "metadata", "FLENT_VERSION")
    return plain(told)[:20].removeprefix("iperf ") if isinstance(told, str) else ""


def _iperf3(value: dict[str, Any]) -> Iterator[Theirs]:
    end = value["end"]
    for key, of in (("sum_sent", "sent"), ("sum_received", "received")):
        yield from _one(RATE, of, "mean", _at(end, key, "bits_per_second"), 1.0)
    total = end.get("sum")  # present for UDP only
    count = _whole(_at(total, "packets"))
    yield from _one(JITTER, "UDP", "mean", _at(total, "jitter_ms"), 1e6, count)
    yield from _one(LOSS, "UDP", "mean", _at(total, "lost_percent"), 0.01, count)
    streams = end.get("streams")
    for number, stream in enumerate(streams if isinstance(streams, list) else [], start=1):
        for key, statistic in (("min_rtt", "min"), ("mean_rtt", "mean"), ("max_rtt", "max")):
            of = f"TCP's smoothed RTT, stream {number}"
            told = _at(stream, "sender", key)
            if told != 0:  # with -R the peer sends: iperf3 then has no RTT, and writes 0
                yield from _one(ROUND_TRIP, of, statistic, told, 1e3)


IRTT = (("rtt", ROUND_TRIP, "RTT"), ("send_delay", ONE_WAY, "send delay"), ("receive_delay", ONE_WAY, "receive delay"),
        ("ipdv_round_trip", JITTER, "IPDV of round trips"))  # fmt: skip


def _irtt(value: dict[str, Any]) -> Iterator[Theirs]:
    stats = value["stats"]
    for key, kind, of in IRTT:
        count = _whole(_at(stats, key, "n"))
        for name, statistic in (("min", "min"), ("mean", "mean"), ("median", "p50"), ("max", "max")):
            yield from _one(kind, of, statistic, _at(stats, key, name), 1.0, count)
    yield from _one(LOSS, "packets", "mean", stats.get("packet_loss_percent"), 0.01, _whole(stats.get("packets_sent")))


FLENT = {
    "ms": (ROUND_TRIP, 1e6), "us": (ROUND_TRIP, 1e3), "s": (ROUND_TRIP, 1e9),
    "bits/s": (RATE, 1.0), "kbits/s": (RATE, 1e3), "mbits/s": (RATE, 1e6), "gbits/s": (RATE, 1e9),
}  # fmt: skip
"""The units of flent's series in lower case, each with its kind and the factor to our unit."""

FAIRNESS = "fairness"


def _flent(value: dict[str, Any]) -> Iterator[Theirs]:
    series = list(_series_of_flent(value))
    flows = _span_of([values for kind, _, values in series if kind == RATE])
    for kind, of, values in series:
        yield from _of_values(kind, of, values[np.abs(values) < LARGEST])
        if kind == ROUND_TRIP and flows:
            first, last = flows
            # The first throughput is that of the interval before it.
            for words, part in ((BEFORE, values[: first - 1]), (WITH, values[first : last + 1])):
                yield from _of_values(kind, f"{of}, {words}", part[np.abs(part) < LARGEST])


BEFORE, WITH = "before the flows", "with the flows"


def _series_of_flent(value: dict[str, Any]) -> Iterator[tuple[str, str, NDArray[np.float64]]]:
    """Return kind, name and values of each series; NaN where it has none."""
    metas = _at(value, "metadata", "SERIES_META")
    for name, series in list(value["results"].items())[:MOST_FIGURES]:
        unit = _at(metas, name, "UNITS")
        words = unit if isinstance(unit, str) else "ms" if str(name).lower().startswith("ping") else ""
        kind, factor = FLENT.get(words.lower(), ("", 0.0))
        if str(name).lower().endswith(FAIRNESS):
            continue  # Jain's index, to which flent gives the unit of what it is of
        if kind and isinstance(series, list):
            numbers = [math.nan if one is None else one for one in map(_number, series[:MOST_VALUES])]
            yield kind, plain(str(name))[:60], np.asarray(numbers, dtype=np.float64) * factor


def _span_of(several: Sequence[NDArray[np.float64]]) -> tuple[int, int] | None:
    """Return the first and the last place at which any of them has a value; None where the flows were there at once."""
    places = [np.flatnonzero(~np.isnan(values)) for values in several]
    there = [found for found in places if len(found)]
    first = min((int(found[0]) for found in there), default=0)
    return (first, max(int(found[-1]) for found in there)) if first > 1 else None


STATISTICS = (("min", 0.0), ("p50", 0.5), ("p99", 0.99), ("max", 1.0))


def _of_values(kind: str, of: str, values: NDArray[np.float64]) -> Iterator[Theirs]:
    if not len(values):
        return
    yield Theirs(kind, of, "mean", float(values.mean()), len(values))
    for (statistic, _), value in zip(STATISTICS, np.quantile(values, [share for _, share in STATISTICS]), strict=True):
        yield Theirs(kind, of, statistic, float(value), len(values))


def _one(kind: str, of: str, statistic: str, told: Any, factor: float, n: int | None = None) -> Iterator[Theirs]:
    number = _number(told) if isinstance(told, int | float) else None
    if number is not None and 0 <= number * factor < LARGEST:
        yield Theirs(kind, of, statistic, number * factor, n)


def _number(told: Any) -> float | None:
    """Return the value as a finite number, from JSON or from a CSV cell; None if it is none."""
    if isinstance(told, bool) or not isinstance(told, int | float | bytes):
        return None
    try:
        number = float(told)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _whole(told: Any) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 <= told < LARGEST else None


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
