"""The columns of results.json and results.parquet: their types and meanings, one line each.

The analysis writes them so, the report reads them so, and docs/reference/results.md is generated from here.
"""

from __future__ import annotations

from typing import Final

import polars as pl

RESULTS: Final[dict[str, tuple[pl.DataType, str]]] = {
    "device": (
        pl.String(),
        "The path: a device under test, `direct` (the link without one), `a/a` (it again, or its twin), or a sender.",
    ),
    "reference": (pl.String(), "The path that was subtracted; null: the figure is of the whole path."),
    "probe": (pl.String(), "The kind of probe or the engine of a stream; of senders under test the tool."),
    "schedule": (pl.String(), "When packets leave: regular, poisson, closed-loop, flood, ..."),
    "icmp_bytes": (pl.Int64(), "ICMP header and data."),
    "payload_bytes": (pl.Int64(), "User data of a request, or of a stream's packet."),
    "response_payload_bytes": (pl.Int64(), "User data of the response."),
    "frame_bytes": (pl.Int64(), "The Ethernet frame with its FCS."),
    "response_frame_bytes": (pl.Int64(), "The response's frame with its FCS."),
    "interval_ns": (pl.Int64(), "The mean time between packets that was asked for; 0: as fast as possible."),
    "quantity": (pl.String(), "What was measured; see below."),
    "statistic": (pl.String(), "Which statistic of it: mean, p50, pooled (over all cells), fit, ratio, ..."),
    "estimate": (
        pl.Float64(),
        "The figure, in `unit`. Null: infinite, since so many frames were lost, or not known (`source` says why).",
    ),
    "ci_low": (pl.Float64(), "The interval's lower end; null without one."),
    "ci_high": (pl.Float64(), "The interval's upper end; null beside a lower one: infinite."),
    "level": (
        pl.Float64(),
        "The interval's level; exact intervals of few values have a little more than was asked for.",
    ),
    "unit": (pl.String(), "ns, 1 (a share or a ratio), 1/s, bit/s, ns/byte, s/s, ..."),
    "n": (pl.Int64(), "How many pairs, rounds or trials the interval is over; never packets."),
    "probes": (pl.Int64(), "How many packets are behind the figure."),
    "q_value": (
        pl.Float64(),
        "Of cells' `device_latency`: Benjamini and Hochberg's q of its differing from zero, all cells together.",
    ),
    "cell": (pl.Int64(), "The number of the combination of factors; null: over several."),
    "clock": (pl.String(), "The clock of the times."),
    "source": (pl.String(), "Where timestamps were taken, or how the figure came to be."),
    "findings": (pl.List(pl.String()), "Findings that concern this figure, by name."),
    "clock_bound_ns": (pl.Float64(), "By how much the clocks can be wrong at most; 0: one clock."),
    "clock_error95_ns": (
        pl.Float64(),
        "By how much they are wrong in less than one case of 20; the interval of a delay holds it.",
    ),
    "against": (
        pl.String(),
        "The cell of the same path that was subtracted, by the factor that differs: `load=0.0`, `to=unicast`.",
    ),
    "port": (pl.Int64(), "The receiver, from 0."),
    "node": (pl.Int64(), "Who answered, from 1."),
    "kind": (pl.String(), "The kind of stream: one-way, request-response, answers."),
    "engine": (
        pl.String(),
        "What was asked to send: auto, packet, udp, xdp, ... What did is in verdict.json, `engines`.",
    ),
    "rate_pps": (pl.Float64(), "The packets a second that were asked for, of all senders together."),
    "rate_share": (pl.Float64(), "The load as a share of the throughput that was found first."),
    "to": (pl.String(), "The destination: unicast, unknown, broadcast, multicast."),
    "senders": (pl.Int64(), "Senders at the same time."),
    "receivers": (pl.Int64(), "Further hosts that listen."),
    "load": (pl.Float64(), "Load beside the stream, as a share of the throughput."),
    "load_via": (pl.String(), "Where that load goes: through the device, or beside it."),
    "pipe": (pl.String(), "What the emulator was told."),
    "sessions": (pl.Int64(), "Over how many beds, each made anew, the figure is; null: of one."),
}

COLUMNS: Final[dict[str, pl.DataType]] = {name: kind for name, (kind, _) in RESULTS.items()}
