"""The events of a run's log: what is read of each, declared once, and checked where the log is read (`records.log`).

A run may be somebody else's. A member that nobody reads is not declared, and neither is an event of which none is.
What several methods log under one name, and need different members of, has a shape of its own at the end.
"""

from __future__ import annotations

from typing import Any, Final

from sojourn.records.shape import (
    COUNT,
    EACH,
    FLAG,
    INDEX,
    INSIDE,
    INTEGER,
    NEEDED,
    NEVER,
    NULL,
    NUMBER,
    NUMBERED,
    ONLY,
    PERIOD,
    PLACE,
    POINT,
    POSITIVE,
    SEVERAL,
    TABLE,
    TEXT,
    UNSIGNED,
    Kind,
    maybe,
    some,
    within,
)

Shape = dict[str, Any]

EVERY: Final[Shape] = {"event": TEXT, "tai_ns": maybe(INTEGER), "monotonic_raw_ns": maybe(INTEGER), "block": INDEX}
"""What any event may have."""

_STREAM: Final[Shape] = {
    **dict.fromkeys(("probe", "schedule", "kind", "engine", "to", "load_via", "pipe"), maybe(TEXT)),
    **dict.fromkeys(("icmp_bytes", "payload_bytes", "response_payload_bytes", "frame_bytes", "response_frame_bytes",
                     "interval_ns", "senders", "receivers", "duration_ns"), maybe(COUNT)),
    **dict.fromkeys(("rate_pps", "rate_share", "load", "offered_pps", "load_pps"), maybe(NUMBER)),
}  # fmt: skip
"""What cells of streams vary in."""

_CLOCK: Final[Shape] = {
    "shared": maybe(FLAG), "findings": maybe([{"finding": maybe(TEXT), "sentence": maybe(TEXT)}]),
}  # fmt: skip

_TRIAL: Final[Shape] = {
    **dict.fromkeys(("round", "visit", "cell", "attempt", "link"), INDEX),
    "device": TEXT,
    "purpose": TEXT,
}

_LOGGED: Final[Shape] = {
    "records": maybe(COUNT), "account": maybe({
        **dict.fromkeys(("in", "out"), maybe({EACH: COUNT})), "segments": maybe({EACH: maybe({EACH: COUNT})}),
    }),
    "interruption": maybe({NEEDED: ("why",), "why": TEXT}),
}  # fmt: skip
"""What a log of TCP's state says of a trial."""

_FLOW: Final[Shape] = {
    NEEDED: ("direction", "local", "started_ns"),
    "direction": TEXT, "local": TEXT, "started_ns": INTEGER, "group": PLACE, "turn": Kind("0, 1, 2 or 3", within(0, 3)),
}  # fmt: skip

_BESIDE_FLOW: Final[Shape] = {
    NEEDED: ("local", "started_ns", "ended_ns", "moved_bytes"),
    "local": TEXT, "started_ns": INTEGER, "ended_ns": INTEGER, "moved_bytes": COUNT,
}  # fmt: skip

_CHANNEL: Final[Shape] = {
    NEEDED: ("kind", "direction", "name", "block"), "kind": TEXT, "direction": TEXT, "name": TEXT, "block": INDEX,
}  # fmt: skip

_UDP: Final = ("payload_bytes", "frame_bytes", "sent", "lost", "local_drops", "refused", "achieved_pps", "asked_pps",
               "started_ns", "ended_ns")  # fmt: skip
_BACKGROUND: Final = (
    _CHANNEL | {
        NEEDED: (*_CHANNEL[NEEDED], *_UDP), **dict.fromkeys(_UDP, NUMBER), "kind": TEXT, "asked_pps": POSITIVE,
        "started_ns": maybe(INTEGER), "ended_ns": INTEGER, "one_clock": maybe(FLAG), "flows": NEVER,
    },
    _CHANNEL | {NEEDED: (*_CHANNEL[NEEDED], "flows"), "flows": some(_BESIDE_FLOW)},
)  # fmt: skip
"""Traffic beside flows: over UDP, and over TCP."""


def _numbers(*names: str) -> Shape:
    return {NEEDED: names, **dict.fromkeys(names, NUMBER)}


_LOSS: Final[Shape] = {
    "independent": {NEEDED: ("probability",), "probability": NUMBER},
    "gilbert-elliott": _numbers("p", "r", "h", "k"),
    "four-state": _numbers("p13", "p31", "p23", "p32", "p14"),
    "dwell": {NEEDED: ("good", "bad"), "good": POSITIVE, "bad": POSITIVE},
    "every": {NEEDED: ("every",), "every": PERIOD},
    "pattern": {NEEDED: ("lost",), "lost": some(FLAG)},
    EACH: maybe(TABLE),
}

_JITTER: Final[Shape] = {
    "uniform": {NEEDED: ("spread",), "spread": POSITIVE},
    "normal": {NEEDED: ("sd",), "sd": POSITIVE},
    "exponential": {NEEDED: ("mean",), "mean": POSITIVE},
    **{key: {NEEDED: ("shape", "scale"), "shape": POSITIVE, "scale": POSITIVE} for key in ("pareto", "gamma")},
    "empirical": {NEEDED: ("points",), "points": some(POINT)},
    "table": {NEEDED: ("values", "sd"), "values": some(NUMBER), "sd": POSITIVE},
}

_STAGE: Final = maybe({
    "loss": maybe([_LOSS]), "duplication": maybe(NUMBER), "corruption": maybe({EACH: NUMBER}),
})  # fmt: skip

_OVERTAKING: Final[Shape] = {NEEDED: ("probability",), "probability": NUMBER, "gap": maybe(UNSIGNED)}

PIPE: Final[Shape] = {
    "name": TEXT,
    "before": _STAGE,
    "after": _STAGE,
    "link": maybe({
        "rate_bps": maybe(POSITIVE), "overhead_bytes": maybe(INTEGER),
        "cell": maybe({NEEDED: ("bytes", "overhead_bytes"), "bytes": SEVERAL, "overhead_bytes": INTEGER}),
    }),
    "delay": maybe({
        "constant": maybe(COUNT), "half_life": maybe(POSITIVE), "order": maybe(TEXT), "reorder": maybe(_OVERTAKING),
        "jitter": maybe(_JITTER | {ONLY: tuple(_JITTER)}), "of_ports": maybe([TABLE]),
    }),
    "queue": maybe({
        "limit": maybe({"bytes": maybe(UNSIGNED), "slots": maybe(UNSIGNED)}),
        "scheduler": (NULL, TEXT, {EACH: maybe({"quantum": maybe(NUMBER)})}), "drop": maybe(TEXT),
        "classes": maybe([{"weight": maybe(POSITIVE)}]),
    }),
}  # fmt: skip
"""A pipe as an emulator tells it."""

EMULATION: Final[Shape] = {"config": maybe({"pipes": maybe([PIPE])})}
"""The first line of an emulator's log."""

_COUNTED = ("arrived", "duplicated", "sent", "held", "marked")
_PIPE_COUNTS: Final[Shape] = {
    "name": TEXT,
    "accuracy": maybe({"p99_ns": maybe(NUMBER), "max_ns": maybe(NUMBER)}),
    "least_waits": maybe({
        NEEDED: ("least_ns", "from_ns", "window_ns"),
        "least_ns": [maybe(NUMBER)], "from_ns": NUMBER, "window_ns": POSITIVE,
    }),
}  # fmt: skip
_COUNTS: Final = (
    _PIPE_COUNTS | {"arrived": NEVER, "queueing_delay": NEVER},
    _PIPE_COUNTS | {
        NEEDED: (*_COUNTED, "lost"), **dict.fromkeys(_COUNTED, COUNT),
        "lost": {NEEDED: ("full", "managed"), EACH: COUNT},
        "queueing_delay": maybe({NEEDED: ("count", "mean_ns", "p99_ns"), "count": COUNT, "mean_ns": NUMBER,
                                 "p99_ns": NUMBER}),
    },
)  # fmt: skip
"""What a pipe counted, by an emulator of today and by earlier ones, which did not tell what arrived."""

_SEARCH: Final[Shape] = {
    **dict.fromkeys(("search", "link", "repetition"), INDEX),
    "test": TEXT, "device": TEXT, "frame_bytes": COUNT, "algorithm": maybe(TEXT), "sentence": maybe(TEXT),
}  # fmt: skip
_OF_SEARCH: Final = ("search", "test", "device", "frame_bytes")

_LESSON: Final[Shape] = {
    NEEDED: ("learned", "count"), "learned": COUNT, "count": COUNT, "sent_pps": maybe(NUMBER),
}  # fmt: skip

_EXTRA: Final = maybe({
    "lessons": maybe([_LESSON]), "longest_tried": POSITIVE, "width": POSITIVE,
    **dict.fromkeys(("burst_pps", "throughput_pps", "allowed_pps"), maybe(NUMBER)),
})  # fmt: skip

_SETTINGS: Final[Shape] = {"part": PLACE, "rows": maybe([{EACH: maybe((TEXT, NUMBER))}])}

_OTHERS: Final[Shape] = {"value": maybe(NUMBER), "sentence": maybe(TEXT), "steal_cores": maybe(NUMBER)}

_DIRECTION: Final[Shape] = {
    NEEDED: ("direction", "counts"), "direction": TEXT, "counts": {EACH: COUNT},
    "delay": maybe({NEEDED: ("n", "mean_ns"), "n": COUNT, "mean_ns": maybe(NUMBER)}),
}  # fmt: skip

EVENTS: Final[dict[str, Any]] = {
    "started": {
        "run": TEXT, "study": TEXT, "part": PLACE, "bed": PLACE, "blocks": COUNT,
        "draw": maybe({"held": [TEXT], "on": [TEXT], "run_seed": Kind("a seed of 64 bits", within(0, 2**64 - 1))}),
    },
    "begun": {NEEDED: ("part",), "part": PLACE},
    "bed": {"delaying": maybe([TEXT]), "left_out": maybe({EACH: maybe(TEXT)})},
    "cells": {"cells": (
        {NUMBERED: True, EACH: _STREAM | {"factors": _STREAM}},
        [_STREAM | {NEEDED: ("cell",), "cell": INDEX, "factors": _STREAM}],
    )},
    "stream-trial": _TRIAL | {
        NEEDED: ("block",), "block": INDEX, "trial": maybe(PLACE), "search": maybe(INDEX), "factors": _STREAM,
        "missed": FLAG, "kept": FLAG, "engines": maybe({"send": maybe(TEXT), "receive": maybe(TEXT)}),
        "clock": (NULL, _CLOCK, [_CLOCK]), "counters": maybe({EACH: {EACH: maybe(COUNT)}}),
    },
    "trial": {
        NEEDED: ("block", "tool", "icmp_bytes", "interval_ns"), "block": INDEX, "tool": TEXT, "icmp_bytes": COUNT,
        "interval_ns": COUNT, "icmp_id": maybe(INDEX),
    },
    "clock-trial": {NEEDED: ("block",), "block": INDEX, "part": PLACE, "clock": (NULL, _CLOCK, [_CLOCK])},
    "load-trial": _TRIAL | {
        NEEDED: ("block", "device", "cell", "round", "factors", "flows"), "block": INDEX,
        "factors": {
            NEEDED: ("flows", "direction", "congestion", "pipe"), "flows": COUNT, "congestion": TEXT,
            "direction": TEXT, **dict.fromkeys(("pipe", "round_trips", "background", "scenario"), maybe(TEXT)),
        },
        "flows": some(_FLOW), "background": maybe([_BACKGROUND]), "logged": maybe(_LOGGED | {NEEDED: ("records",)}),
        "probes": maybe([{
            NEEDED: ("block", "cell", "probe", "dscp"), "block": INDEX, "cell": INDEX, "probe": TEXT, "dscp": TEXT,
        }]),
    },
    "unlogged": {NEEDED: ("why",), "why": TEXT},
    "tcp-trial": {
        NEEDED: ("block", "kind", "cell", "congestion", "pipe", "path", "round", "setting", "connections"),
        **dict.fromkeys(("block", "cell", "round"), INDEX), "capture_dropped": maybe(COUNT),
        **dict.fromkeys(("kind", "congestion", "pipe", "path", "setting"), TEXT),
        "connections": [TABLE], "logged": maybe(_LOGGED),
    },
    "window-trial": _TRIAL | {
        NEEDED: ("block", "device", "cell", "round", "factors"), "block": INDEX,
        "factors": {
            NEEDED: ("what", "pipe", "connections", "window"), "what": TEXT, "pipe": maybe(TEXT), "connections": COUNT,
            "window": NUMBER,
        },
        "window_bytes": NUMBER,
        "connections": maybe([_BESIDE_FLOW]),
    },
    "search-step": _SEARCH | {
        NEEDED: (*_OF_SEARCH, "block"), "block": INDEX, "missed": maybe(FLAG), "sent": maybe(COUNT),
        "received": maybe(COUNT),
        **dict.fromkeys(("frames", "rate_pps", "asked_pps", "duration_s"), maybe(NUMBER)),
    },
    "search-result": _SEARCH | {
        NEEDED: _OF_SEARCH, "trials": maybe([INDEX]), "extra": _EXTRA, "cut_short": maybe(FLAG),
        "tester_limited": maybe(FLAG),
        **dict.fromkeys(("goal", "lower_pps", "upper_pps", "conditional_pps", "tester_pps", "ceiling_pps"),
                        maybe(NUMBER)),
    },
    "qualified": {
        NEEDED: ("frame_bytes",), "frame_bytes": COUNT, "clean_pps": maybe(NUMBER), "flood_pps": maybe(NUMBER),
        "send_engine": maybe(TEXT), "floor_ns": maybe({EACH: maybe(NUMBER)}),
    },
    "path-throughput": {NEEDED: ("device", "frame_bytes"), "device": TEXT, "frame_bytes": COUNT, "pps": maybe(NUMBER)},
    "emulator": {
        NEEDED: ("block", "device", "summary"), "block": INDEX, "device": TEXT, "emulator": TEXT,
        "summary": {"summary": maybe({"pipes": [_COUNTS]})},
    },
    "emulator-set": {
        NEEDED: ("block", "to"), "block": INDEX, "device": TEXT, "emulator": TEXT, "pipe": maybe(TEXT),
        "words": maybe(TEXT), "to": PIPE,
    },
    "emulator-ended": {
        "device": TEXT, "emulator": TEXT,
        "report": maybe({"log": {"skipped": maybe(COUNT)}, "said": maybe([TEXT])}),
    },
    "emulator-replay": {
        "device": TEXT, "identical": maybe(FLAG),
        **dict.fromkeys(("packets", "dispositions", "drawn", "intended"), maybe(COUNT)),
    },
    "time-is-up": {NEEDED: ("asked",), "asked": SEVERAL, "rounds": COUNT, "searches": COUNT},
    "stopped": {
        NEEDED: ("sessions", "rounds", "asked"), "by": TEXT, "sessions": COUNT, "rounds": COUNT, "asked": SEVERAL,
    },
    "looked": (
        {"half": NULL},
        {NEEDED: ("half", "sessions", "target"), "half": NUMBER, "sessions": COUNT, "target": NUMBER},
    ),
    "contended": _OTHERS,
    "undisturbed": _OTHERS,
    "device-broken": {"device": TEXT, "sentence": TEXT, "session": maybe(COUNT)},
    "settings-set": _SETTINGS,
    "settings-restored": _SETTINGS,
    "taps": {
        NEEDED: ("block", "device", "records", "matched", "captured"), "block": INDEX, "device": TEXT,
        "records": INSIDE,
        "matched": {NEEDED: ("pairs",), "pairs": some({NEEDED: ("directions",), "directions": [_DIRECTION]})},
        "captured": {
            NEEDED: ("taps",),
            "taps": [{NEEDED: ("account",), "account": {NEEDED: ("dropped",), "dropped": COUNT}}],
        },
    },
    "repeated": {
        NEEDED: ("part", "device", "reference", "cell", "of_device", "of_reference"), "part": PLACE, "device": TEXT,
        "reference": TEXT, "cell": INDEX, "of_device": [INDEX], "of_reference": [INDEX],
    },
    "transfer": {NEEDED: ("transfer", "link"), "transfer": INDEX, "link": INDEX},
    "log-interrupted": {NEEDED: ("why",), "why": TEXT},
    "block": {"block": INDEX, "device": TEXT},
    "beside-block": {"block": INDEX, "device": TEXT},
}  # fmt: skip
"""What is read of each."""

SHORT_FLOWS: Final = some({
    NEEDED: ("size_bytes", "received_bytes", "written_ns", "read_ns"),
    "size_bytes": COUNT, "received_bytes": COUNT, "written_ns": INTEGER, "read_ns": INTEGER,
})  # fmt: skip
"""The connections of a trial of short flows."""

LONG_FLOWS: Final = some({NEEDED: ("started_ns", "ended_ns"), "started_ns": INTEGER, "ended_ns": INTEGER})
"""The connections of a trial that compares TCP with and without its log."""
