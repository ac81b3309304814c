"""Every key that a plan may have: its reader and its default. The one place to look up or add a key."""

from __future__ import annotations

from typing import Any, NamedTuple

from sojourn.plan.sizes import KINDS
from sojourn.plan.types import FLOOD_NS
from sojourn.plan.values import (
    AUTO,
    Reader,
    auto_or,
    duration,
    flag,
    list_of,
    matching,
    one_of,
    text,
    whole,
    word_or,
)

REQUIRED = object()
"""The default of a key that must be given."""

ABSENT = object()
"""The default of a key that may be missing without a value."""


class Key(NamedTuple):
    """How a key is read and what it is when nobody gives it."""

    reader: Reader
    default: Any
    meaning: str


HOUR_NS = 3_600_000_000_000
DEVICE = matching(
    r"[a-z][a-z0-9_-]*(\*[2-9])?(:[a-z0-9_+-]+)?",
    'a device such as "wire", "bridge" or "bridge*2" ("direct" is always there)',
)
LAWS = ("constant-plus-per-byte", "rate-independent", "cascade-adds")
SIZE_KEYS = ("icmp_bytes", "payload_bytes", "frame_bytes")
BYTES = list_of(whole(0, 100_000))
CPU = auto_or(whole(0, 4095))

KEYS: dict[str, Key] = {
    "study.name": Key(
        matching(r"[a-z0-9][a-z0-9-]*", 'a name of small letters, digits and dashes, such as "bridge-latency"'),
        REQUIRED,
        "names the run folder",
    ),
    "study.title": Key(text(), "", "headline of the report"),
    "study.question": Key(text(), "", "what the study answers"),
    "study.paper": Key(text(), "", "where the question comes from"),
    "study.method": Key(one_of("pairs", "departures"), "pairs", "with and without the device, or who sends on time"),
    "study.laws": Key(list_of(one_of(*LAWS), may_be_empty=True), (), "published laws to test"),
    "study.published": Key(
        list_of(matching(r"[a-z0-9_]+", 'the name of a published table, such as "bridge2003_rtt"'), may_be_empty=True),
        (),
        "tables set beside ours",
    ),
    "bed.backend": Key(one_of("netns", "sim"), "netns", "real frames in namespaces, or simulated lines"),
    "bed.devices": Key(list_of(DEVICE, may_be_empty=True), ("wire", "bridge"), "what is put between the hosts"),
    "bed.device_cpu": Key(
        matching(
            r"shared|own|loaded:([1-9]|[1-8]\d|9[0-5])%",
            '"shared", "own" or a load of at most 95 %, such as "loaded:50%"',
        ),
        "shared",
        "where the device's work is done",
    ),
    "bed.mtu": Key(whole(1280, 65_535), 1500, "bytes of an IP packet that fit a frame; IPv6 needs 1280"),
    "bed.offloads": Key(flag(), default=False, meaning="whether the links may use segmentation and checksum offloads"),
    "probe.probe": Key(list_of(one_of(*KINDS)), ("icmp",), "how to ask"),
    "probe.icmp_bytes": Key(BYTES, ABSENT, "ICMP header and data, as ping says it"),
    "probe.payload_bytes": Key(BYTES, ABSENT, "user data"),
    "probe.frame_bytes": Key(BYTES, ABSENT, "Ethernet frame with its FCS"),
    "probe.request_payload_bytes": Key(whole(40, 65_000), 64, "the fixed request of request-response"),
    "probe.interval": Key(
        list_of(word_or("flood", FLOOD_NS, duration(1_000, HOUR_NS))),
        (1_000_000,),
        "between intended departures",
    ),
    "probe.schedule": Key(
        list_of(one_of("regular", "poisson", "as-answered")),
        ("regular",),
        "open loop, or closed (as-answered)",
    ),
    "probe.timeout": Key(duration(1_000_000, HOUR_NS), 200_000_000, "a later answer counts as late"),
    "pairs.rounds": Key(whole(1, 100_000), 12, "pairs per cell and device"),
    "pairs.probes_per_block": Key(whole(2, 10_000_000), 44, "warm-up included"),
    "pairs.warmup_probes": Key(whole(0, 1_000_000), 4, "first probes of a block, recorded but not judged"),
    "pairs.block_at_most": Key(duration(1_000_000, HOUR_NS), None, "slow intervals get fewer probes per block"),
    "pairs.at_most": Key(duration(1_000_000, 1000 * HOUR_NS), None, "measuring ends with a whole round in this time"),
    "pairs.seed": Key(whole(0, 2**62), 1, "of every random order"),
    "pairs.a_a": Key(flag(), default=True, meaning="the direct link measured against itself"),
    "departures.tools": Key(list_of(one_of("ping", "probe")), ("ping", "probe"), "whose departures are judged"),
    "departures.count": Key(whole(2, 10_000_000), 1000, "departures per trial"),
    "departures.at_most": Key(duration(1_000_000, HOUR_NS), 60_000_000_000, "longest trial; slow intervals get fewer"),
    "departures.flood_count": Key(whole(2, 10_000_000), 20_000, "departures of a flood"),
    "host.prober_cpu": Key(CPU, AUTO, "core of the asking end"),
    "host.responder_cpu": Key(CPU, AUTO, "core of the answering end"),
    "host.fifo": Key(auto_or(flag()), AUTO, "real-time priority"),
    "host.wait": Key(auto_or(one_of("spin", "sleep-then-spin", "sleep")), AUTO, "how the prober waits for its moment"),
}
