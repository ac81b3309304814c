"""Every key that a plan may have: its reader and its default. The one place to look up or add a key."""

from __future__ import annotations

from sojourn import devices
from sojourn.plan.backends import backends
from sojourn.plan.costs import COST_KEYS, COST_LAWS
from sojourn.plan.costs import UNREAD as NOT_OF_COSTS
from sojourn.plan.key import ABSENT, HOUR_NS, REQUIRED, Key
from sojourn.plan.rates import bit_rate, cable_rate, interval_rate, rate, schedule, share
from sojourn.plan.sizes import ENGINES, KINDS
from sojourn.plan.tcp import TCP_KEYS, TCP_SECTIONS
from sojourn.plan.types import FLOOD_NS, METHODS, PAIR_METHODS, SEARCH_METHODS, STREAM_METHODS
from sojourn.plan.values import (
    AUTO,
    auto_or,
    duration,
    flag,
    list_of,
    matching,
    number,
    one_of,
    text,
    whole,
    word_or,
)

DEVICE = matching(
    devices.NAME,
    'a device such as "wire", "bridge", "bridge*2" or "emulate" ("direct" is always there)',
)
MOST_PORTS = 16
TESTS = {
    "rfc2544": ("throughput", "latency", "frame-loss", "back-to-back"),
    "rfc8219": ("throughput", "latency", "pdv", "ipdv"),
    "rfc2889": ("address-capacity", "learning-rate", "broadcast-forwarding", "broadcast-latency", "forward-pressure"),
}
"""What each suite can look for, in the order in which one needs the other."""

LAWS = (
    *("constant-plus-per-byte", "rate-independent", "cascade-adds", "stages-sum"),
    *("slope-is-sum-of-rates", "md1", "fan-in-total", "minimum-frame-time"),
    *("no-tick", "no-shortfall", "delay-independent-of-rate", "loss-as-configured"),
    *COST_LAWS,
)
SIZE_KEYS = ("icmp_bytes", "payload_bytes", "frame_bytes")
BYTES = list_of(whole(0, 100_000))
A_LIMIT = duration(1, HOUR_NS)
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
    "study.method": Key(one_of(*METHODS), "pairs", "how it is answered; the sections below depend on it"),
    "study.laws": Key(list_of(one_of(*LAWS), may_be_empty=True), (), f"published laws to test: {', '.join(LAWS)}"),
    "study.published": Key(
        list_of(matching(r"[a-z0-9_]+", 'the name of a published table, such as "bridge2003_rtt"'), may_be_empty=True),
        (),
        "tables set beside ours",
    ),
    "bed.backend": Key(one_of(*backends()), "netns", "real frames in namespaces, or simulated lines"),
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
    "bed.near": Key(whole(1, MOST_PORTS), None, "ports of a bridge towards A; as many as the study needs"),
    "bed.far": Key(whole(1, MOST_PORTS), None, "ports of a bridge towards B; as many as the study needs"),
    "bed.decoy": Key(flag(), None, "whether each arm has a twin to load beside it; if the study needs one"),
    "bed.shaper": Key(one_of("tbf", "htb"), "tbf", "what holds a device to its rate"),
    "bed.rate": Key(bit_rate(), None, "what a device lets out at its far side, in bits of frames with FCS"),
    "bed.burst_bytes": Key(whole(1_300, 100_000_000), 16_000, "the shaper's bucket"),
    "bed.queue_bytes": Key(
        whole(1_300, 1_000_000_000),
        150_000,
        "the queue before it, and before each rated link; what does not fit is lost",
    ),
    "bed.link_rate": Key(
        cable_rate(), None, "what every cable carries each way, in bits on the wire: our emulator's link stands there"
    ),
    "bed.link_delay": Key(duration(0, HOUR_NS), 0, "and how long a frame is under way on it"),
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
    "stream.kind": Key(
        list_of(one_of("one-way", "ping-pong", "request-response", "answers")),
        ("one-way",),
        "one-way (a stream), ping-pong, request-response (closed loops), answers (of many to one request)",
    ),
    "stream.engine": Key(
        list_of(one_of(*ENGINES)), ("auto",), "auto (the best raw one here), packet, xdp, live, udp or udp6"
    ),
    "stream.frame_bytes": Key(BYTES, ABSENT, "Ethernet frame with its FCS"),
    "stream.payload_bytes": Key(BYTES, ABSENT, "user data"),
    "stream.schedule": Key(list_of(schedule()), ("regular",), "regular, poisson, flood, burst:N or ramp:FROM-TO"),
    "stream.interval": Key(
        list_of(interval_rate(duration(100, HOUR_NS))), ABSENT, "mean time between frames, of all senders together"
    ),
    "stream.rate": Key(
        list_of(rate()), ABSENT, "or their mean rate: frames, frame bits, or a share of the arm's own throughput"
    ),
    "stream.to": Key(
        list_of(one_of("unicast", "broadcast", "multicast", "unknown")),
        ("unicast",),
        "unicast, broadcast, multicast, or unknown: an address that nobody has, so a bridge floods it",
    ),
    "stream.senders": Key(list_of(whole(1, MOST_PORTS)), (1,), "ports that send into one"),
    "stream.marks": Key(
        list_of(whole(0, 63), may_be_empty=True), (), "DSCPs of as many senders that share one port: a flow of UDP each"
    ),
    "stream.receivers": Key(list_of(whole(0, MOST_PORTS - 1)), (0,), "other subscribers beside the one measured"),
    "stream.load": Key(list_of(share()), (0.0,), "share of the device's throughput that other pairs take up"),
    "stream.load_via": Key(
        list_of(one_of("through", "beside")), ("through",), "through the device, or beside it through its decoy"
    ),
    "stream.load_frame_bytes": Key(whole(64, 100_000), 1518, "frames of the load"),
    "stream.load_schedule": Key(schedule(), "regular", "departures of the load"),
    "stream.request_payload_bytes": Key(whole(40, 65_000), 64, "the fixed request of request-response and answers"),
    "stream.vlan": Key(whole(0, 4094), None, "802.1Q tag; 0 is a priority tag"),
    "stream.pcp": Key(whole(0, 7), None, "priority in the tag"),
    "stream.dscp": Key(whole(0, 63), 0, "differentiated services code point of UDP"),
    "stream.late_after": Key(duration(1_000, HOUR_NS), 1_000_000_000, "a frame that comes later counts as late"),
    "stream.pipe": Key(
        list_of(text()), ("",), 'pipes of the emulators, in their words: "delay 1ms", "loss 5%"; other arms ignore them'
    ),
    "trials.rounds": Key(whole(1, 100_000), 6, "visits to each cell, each with every arm twice"),
    "trials.duration": Key(duration(1_000_000, HOUR_NS), 1_000_000_000, "of one trial"),
    "trials.count_at_most": Key(whole(1, 1_000_000_000), None, "frames of one sender in a trial"),
    "trials.probes": Key(whole(2, 10_000_000), 500, "of a closed loop's trial"),
    "trials.settle": Key(duration(1_000, HOUR_NS), 20_000_000, "wait for frames still on their way"),
    "trials.at_most": Key(duration(1_000_000, 1000 * HOUR_NS), None, "measuring ends with a whole round in this time"),
    "trials.seed": Key(whole(0, 2**62), 1, "of every random order"),
    "trials.a_a": Key(flag(), default=False, meaning="the direct link measured against itself"),
    "trials.qualify": Key(flag(), default=True, meaning="the tester measured on the empty path first"),
    "trials.keep": Key(
        one_of("auto", "packets", "histograms"), "auto", "what is recorded; auto: packets up to a million a trial"
    ),
    "model.train": Key(
        list_of(whole(0, 100_000), may_be_empty=True), (), "cells that a model is fitted to; none: it chooses"
    ),
    "limits.offset": Key(A_LIMIT, None, "how far the mean delay of a pipe may be from what is configured"),
    "limits.p50": Key(A_LIMIT, None, "half of the packets leave within this of their time"),
    "limits.p99": Key(A_LIMIT, None, "99 of 100 do"),
    "limits.p999": Key(A_LIMIT, None, "999 of 1,000 do"),
    "limits.rate": Key(
        number(0, 1), None, "how far the rate of a pipe's link may be from what is configured, as a share"
    ),
    "limits.cdf": Key(number(0, 1), None, "how far the distribution of the delays may be from the configured one"),
    "search.tests": Key(
        list_of(one_of(*dict.fromkeys(test for tests in TESTS.values() for test in tests))),
        ABSENT,
        "what is sought; by default all of the suite",
    ),
    "search.algorithm": Key(
        list_of(one_of("mlrsearch", "binary")), ("mlrsearch",), "binary: halving, each loss verified first"
    ),
    "search.goals": Key(list_of(number(0, 0.5)), (0.0, 0.005), "loss ratios: 0 is the zero-loss rate"),
    "search.width": Key(number(0.0001, 0.5), 0.005, "relative width at which a search ends"),
    "search.initial_duration": Key(duration(1_000_000, HOUR_NS), 1_000_000_000, "of a search's first trials"),
    "search.duration": Key(duration(1_000_000, HOUR_NS), 60_000_000_000, "of its last trials"),
    "search.duration_sum": Key(duration(1_000_000, 24 * HOUR_NS), 60_000_000_000, "of all trials at one load"),
    "search.exceed_ratio": Key(number(0, 0.99), 0.5, "share of them that may miss the goal"),
    "search.max_rate": Key(auto_or(rate(shares=False)), AUTO, "highest load; auto: the tester's clean rate"),
    "search.repetitions": Key(whole(1, 1000), 1, "of every search"),
    "search.verify_loss": Key(flag(), default=True, meaning="a loss is seen twice before a search turns down"),
    "search.latency_duration": Key(duration(1_000_000, HOUR_NS), 120_000_000_000, "a stream at the throughput found"),
    "search.latency_repetitions": Key(whole(1, 1000), 20, "such streams"),
    "search.loss_step": Key(number(0.01, 0.5), 0.1, "steps of the offered load, down from the whole"),
    "search.burst": Key(duration(1_000_000, HOUR_NS), 2_000_000_000, "longest burst back to back"),
    "search.burst_repetitions": Key(whole(1, 1000), 50, "bursts of the final length"),
    "search.most_addresses": Key(whole(1, 65_536), 16_384, "addresses that a bridge is taught"),
    "search.at_most": Key(duration(1_000_000, 1000 * HOUR_NS), None, "no search begins after this time"),
    **COST_KEYS,
    **TCP_KEYS,
    "host.prober_cpu": Key(CPU, AUTO, "core of the asking end"),
    "host.responder_cpu": Key(CPU, AUTO, "core of the answering end"),
    "host.fifo": Key(auto_or(flag()), AUTO, "real-time priority"),
    "host.wait": Key(auto_or(one_of("spin", "sleep-then-spin", "sleep")), AUTO, "how the prober waits for its moment"),
    "emulate.words": Key(text(), ABSENT, 'pipe of both directions, in words; "" is an idle one, none a plain bridge'),
    "emulate.forward": Key(text(), ABSENT, "pipe from A to B alone"),
    "emulate.backward": Key(text(), ABSENT, "pipe from B to A alone"),
    "emulate.config": Key(text(), None, "file of pipes and rules, in their place"),
    "emulate.seed": Key(whole(0, 2**62), 1, "of every impairment"),
    "emulate.engine": Key(one_of("auto", "xdp", "packet"), "auto", "how frames are moved"),
    "emulate.cpu": Key(CPU, AUTO, "core of the emulator; auto: the device's own, or one that the prober leaves"),
    "emulate.spin": Key(auto_or(flag()), AUTO, "polls without a pause; auto: where its core is nobody else's"),
    "emulate.fifo": Key(auto_or(flag()), AUTO, "real-time priority"),
    "emulate.budget": Key(duration(1, HOUR_NS), None, "a packet that leaves later than this after its time is late"),
    "emulate.memory": Key(text(), None, 'frames held at most, such as "256MiB"'),
    "emulate.path_cost": Key(
        duration(0, 1_000_000_000), None, "what the path takes beside the emulator, taken off each departure"
    ),
    "emulate.log": Key(flag(), None, "whether every packet is recorded; by default where the method asks it"),
}

PAIR_SECTIONS = ("study", "bed", "emulate", "probe", "pairs", "host")
STREAM_SECTIONS = ("study", "bed", "emulate", "stream", "trials", "host")
SECTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(PAIR_METHODS, PAIR_SECTIONS),
    "departures": ("study", "bed", "probe", "departures", "pairs", "host"),
    **dict.fromkeys(STREAM_METHODS, STREAM_SECTIONS),
    "emulator": ("study", "bed", "emulate", "stream", "trials", "limits", "host"),
    "model": ("study", "bed", "emulate", "stream", "model", "trials", "host"),
    "tcp-cost": ("study", "bed", "costs", "host"),
    **TCP_SECTIONS,
    **dict.fromkeys(SEARCH_METHODS, ("study", "bed", "emulate", "stream", "search", "trials", "host")),
}
"""The sections that each method reads; a key of any other would be without effect, and is refused."""

SOUGHT = frozenset(
    f"stream.{name}"
    for name in (
        *("kind", "schedule", "interval", "rate", "to", "senders", "receivers", "request_payload_bytes"),
        *("load", "load_via", "load_frame_bytes", "load_schedule", "pipe", "marks"),
    )
) | frozenset(f"trials.{name}" for name in ("rounds", "duration", "count_at_most", "probes", "at_most", "a_a"))
"""What a search decides itself, so that nobody can ask for it."""


def reads(method: str, key: str) -> bool:
    """Whether a plan of this method has this key."""
    section = key.split(".", maxsplit=1)[0]
    if method == "tcp-cost" and key in NOT_OF_COSTS:
        return False
    return section in SECTIONS[method] and not (method in SEARCH_METHODS and key in SOUGHT)
