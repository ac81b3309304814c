"""TCP for the tests of tcplog: an end that receives, and one that sends over many connections and tells its counts.

`serve ADDRESS PORT` reads everything of every connection, answers each "?" at the end of what came, and closes when the
other side has. `send ADDRESS PORT FLOWS BYTES` opens all connections, sends, waits for the answers, and prints one JSON
line of the sockets' TCP_INFO; it closes when a line comes on its standard input. `short ADDRESS PORT COUNT AT_ONCE`
opens and closes connections one after the other; a COUNT below zero resets every second one.
`slowly ADDRESS PORT RATE` reads one connection at so many bytes a second; `for ADDRESS PORT SECONDS` sends all that it
can for a time, and `pausing ADDRESS PORT BYTES PAUSE_MS SECONDS` so many bytes, then nothing for a while, again and
again; both reset the connection at their end. CONGESTION in the environment names the congestion control of the ends
that send, RECEIVE_BUFFER the size of the buffers of `serve`. Run as a program, inside a namespace; it imports nothing
of ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SEGMENTS = 136
"""Where tcpi_segs_out and tcpi_segs_in are in struct tcp_info (include/uapi/linux/tcp.h)."""

CHUNK = 65_536
QUIET_SECONDS = 0.3
"""After which no acknowledgement is held back any more (at most 40 ms, or an RTO of 200 ms)."""

ASK = b"?"


def serve(address: str, port: int) -> None:
    """Read from everybody until killed."""
    listener = socket.create_server((address, port), family=family(address), backlog=1024)
    if octets := os.environ.get("RECEIVE_BUFFER"):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(octets))
    print("ready", flush=True)
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if connection is listener:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            got = b""
            with contextlib.suppress(ConnectionError):
                got = connection.recv(CHUNK)
            if got.endswith(ASK):
                connection.sendall(b"!")
            if not got:
                ready.unregister(connection)
                connection.close()


def send(address: str, port: int, flows: int, total: int) -> None:
    """Send so many bytes over each of so many connections, all at once; tell; wait for a line; close."""
    sockets = [connected(address, port) for _ in range(flows)]
    threads = [threading.Thread(target=fill, args=(one, total)) for one in sockets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(QUIET_SECONDS)
    print(json.dumps([counted(one) for one in sockets]), flush=True)
    sys.stdin.readline()
    for one in sockets:
        one.shutdown(socket.SHUT_WR)
    for one in sockets:
        one.recv(1)
        one.close()


def fill(one: socket.socket, total: int) -> None:
    """Send, and wait until all of it has arrived."""
    block = bytes(CHUNK)
    left = total
    while left > 0:
        left -= one.send(block[: min(left, CHUNK)])
    one.sendall(ASK)
    one.recv(1)


def short(address: str, port: int, count: int, at_once: int, pause_ms: int = 0) -> None:
    """Connections of a few bytes each, so many at a time, and a pause after each."""
    waiting = iter(range(abs(count)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(waiting, None)
            if number is None:
                return
            one = connected(address, port)
            one.sendall(b"hello" + ASK)
            one.recv(1)
            if count < 0 and number % 2:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                one.shutdown(socket.SHUT_WR)
                one.recv(1)
            one.close()
            time.sleep(pause_ms / 1e3)

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"connections": abs(count)}), flush=True)


def slowly(address: str, port: int, rate: int) -> None:
    """Read one connection at a steady rate, a hundred times a second; its buffer does not grow."""
    listener = socket.socket(family(address))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)
    listener.bind((address, port))
    listener.listen()
    print("ready", flush=True)
    connection, _ = listener.accept()
    with contextlib.suppress(ConnectionError):
        while connection.recv(max(1, rate // 100)):
            time.sleep(0.01)


def for_a_time(address: str, port: int, seconds: int) -> None:
    """Send all that the kernel takes; a timeout of its own ends a send that the path holds up."""
    one, until = connected(address, port), time.monotonic() + seconds
    one.settimeout(0.1)
    while time.monotonic() < until:
        with contextlib.suppress(TimeoutError):
            one.send(bytes(CHUNK))
    end(one)


def pausing(address: str, port: int, each: int, pause_ms: int, seconds: int) -> None:
    """Send so many bytes, and then nothing for a while."""
    one, until = connected(address, port), time.monotonic() + seconds
    while time.monotonic() < until:
        one.sendall(bytes(each))
        time.sleep(pause_ms / 1e3)
    end(one)


def end(one: socket.socket) -> None:
    """Reset the connection: what is queued would take a slow path long."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def connected(address: str, port: int) -> socket.socket:
    """A connection; ours is the lowest port that is free."""
    one = socket.socket(family(address))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if algorithm := os.environ.get("CONGESTION"):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
    one.connect((address, port))
    return one


def counted(one: socket.socket) -> dict[str, int]:
    """What TCP has counted on a connection."""
    out, came = struct.unpack_from("II", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), SEGMENTS)
    return {"port": one.getsockname()[1], "segs_out": out, "segs_in": came}


def family(address: str) -> socket.AddressFamily:
    """IPv6 has colons."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def main() -> None:
    """What the words ask."""
    what, address, port, *numbers = sys.argv[1:]
    done: dict[str, Callable[..., None]] = {"serve": serve, "send": send, "short": short}
    done |= {"slowly": slowly, "for": for_a_time, "pausing": pausing}
    done[what](address, int(port), *map(int, numbers))


if __name__ == "__main__":
    main()
