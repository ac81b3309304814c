"""Streams that are messages over TCP at a fixed rate, from host A to host B: a connection for each trial.

Each message is one write. The kernel does not join two of them: Nagle's algorithm and autocorking are off, each message
ends its segment (MSG_EOR), and no link has offloads. Whether each message was one segment is not checked here: the taps
record it.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sojourn.bed.hosts import END_HOSTS
from sojourn.conduct import asking
from sojourn.conduct.connections import start_end
from sojourn.conduct.tcp_hosts import set_tcp
from sojourn.errors import DoubtfulError, SojournError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.asking import Asked
    from sojourn.conduct.part import Session
    from sojourn.instruments.tcp import TcpInstrument

PORT = 7708

BUFFER_BYTES = 4 << 20
"""The buffers of each end: a receiver that stalls for a while must not stop the sender."""

SYSCTLS = {
    "tcp_autocorking": "0",
    "tcp_slow_start_after_idle": "0",
    "tcp_timestamps": "0",
}
"""Small segments leave at once, also after a pause; segments have no options, so that 1460 bytes fit into 1500."""

DATA = f"tcp port {PORT} and ip[2:2] - ((ip[0] & 15) << 2) - ((tcp[12] & 240) >> 2) != 0"
"""The taps' filter for such a trial (pcap-filter(7)): segments with data, without acknowledgements, SYN and FIN."""


class Messages:
    """Both ends of such connections, started with the first trial."""

    def __init__(self, session: Session, stack: ExitStack) -> None:
        self._session = session
        self._stack = stack
        self._running: dict[HostName, TcpInstrument] = {}

    @contextmanager
    def receiving(self, asked: Asked) -> Iterator[dict[str, Any]]:
        """Listen at the B side; after the block the yielded dictionary has its answer, if the caller added `sent`."""
        far, block = self._ends()["b"], asked.trial.block
        far.listen(block, PORT, 1, {})
        said: dict[str, Any] = {}
        try:
            yield said
            sent = said["sent"]["flows"][0]
            own = {"message_bytes": asked.payload_bytes, "sent": sent["sent"]}
            answer = far.finish_listening(block, stream_of(asked) | own)
        except SojournError:
            with suppress(SojournError):
                far.finish_listening(block)
            raise
        said["b"] = {"flows": [received(one, sent["sent"], asked) for one in whole(answer, asked)]}

    def send(self, asked: Asked) -> dict[str, Any]:
        """Connect, send every message of the trial, and wait for the last acknowledgement."""
        seconds = 3 * asked.trial.duration_ns / 1e9
        answer = self._ends()["a"].send(sending(asked), seconds, self._session.screen.tick)
        return {"flows": [sent(one, asked) for one in whole(answer, asked)]}

    def _ends(self) -> dict[HostName, TcpInstrument]:
        if not self._running:
            session = self._session
            conditions = set_tcp(session.site.bed, BUFFER_BYTES, BUFFER_BYTES, **SYSCTLS)
            options = {host: ["--streams", *(["--punctual"] if host == "a" else [])] for host in END_HOSTS}
            self._running = {
                host: start_end(session, host, self._stack, f"{host}tcp", *options[host]) for host in END_HOSTS
            }
            session.log("tcp-conditions", sysctls=conditions, cores=session.cores._asdict())
        return self._running


def sending(asked: Asked) -> dict[str, Any]:
    """Return the sender's request: messages at a rate, or at the maximum rate for a time."""
    if asked.rate_pps is None:
        load = {"duration_ns": asked.trial.duration_ns}
    else:
        load = {"bytes": asked.frames * asked.payload_bytes, "interval_ns": round(1e9 / asked.rate_pps)}
    return {
        "block": asked.trial.block,
        "to": f"{asked.link.b_ip4}:{PORT}",
        "message_bytes": asked.payload_bytes,
        "settings": {"is_nodelay": True},
        "is_eor": True,
        "keep_calls": asked.keep == "packets",
        "stream": stream_of(asked),
        **load,
    }


def stream_of(asked: Asked) -> dict[str, Any]:
    """Return the fields of the trial for the records of streams."""
    head = asking.head(asked.trial)
    del head["block"]
    return head | {"frame_bytes": asked.trial.factors.frame_bytes}


def whole(answer: dict[str, Any], asked: Asked) -> list[dict[str, Any]]:
    """Return the connections of an answer; raises DoubtfulError if one broke."""
    found: list[dict[str, Any]] = answer["connections"]
    broken = [one["problem"] for one in found if one["problem"]]
    if broken:
        raise DoubtfulError(f"the connection of trial {asked.trial.block} over {asked.trial.path} broke: {broken[0]}")
    return found


def sent(one: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Return a connection in the form of a sent flow: a message stands for a frame."""
    pacing = one["pacing"]
    count = one["moved_bytes"] // asked.payload_bytes if pacing is None else pacing["written"]
    unsent = 0 if pacing is None else pacing["unwritten"]
    asked_pps = 0.0 if pacing is None else 1e9 / pacing["interval_ns"]
    error = (pacing or {}).get("error") or {}
    return {
        "flow": 1,
        "asked": count + unsent,
        "sent": count,
        "next": count,
        "refused": 0,
        "unsent": unsent,
        "asked_pps": asked_pps,
        "intended_pps": asked_pps,
        "achieved_pps": rate(count, one),
        "pacing_error_ns": {name: error.get(f"{name}_ns") for name in ("p50", "p99", "max")} if error else None,
        "departures_by": "calls",
        "pacing": pacing,
        "first_ns": one["first_moved_ns"],
        "last_ns": one["last_moved_ns"],
    }


def received(one: dict[str, Any], count: int, asked: Asked) -> dict[str, Any]:
    """Return a connection in the form of a received flow; a byte stream has no delays, duplicates or order."""
    first = min(count, one["moved_bytes"] // asked.payload_bytes)
    none = dict.fromkeys(("duplicated", "reordered", "corrupted", "unexpected", "local_drops", "excess"), 0)
    return {
        "flow": 1,
        "port": 0,
        "node": 0,
        "first": first,
        **none,
        "late": None,
        "lost": count - first,
        "achieved_pps": rate(first, one),
        "delay_ns": None,
        "first_ns": one["first_moved_ns"],
        "last_ns": one["last_moved_ns"],
    }


def rate(count: int, one: dict[str, Any]) -> float:
    """Return messages per second, from the first call that moved data to the last."""
    first, last = one["first_moved_ns"], one["last_moved_ns"]
    return (count - 1) * 1e9 / (last - first) if count > 1 and first is not None and last > first else 0.0
