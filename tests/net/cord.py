"""A cable of two taps of the kernel's tun driver, whose ends are ports of two hosts: taps have coalescing, veths none.

`python cord.py PID PORT PID PORT` makes them, gives each to the network namespace of a process, says "up", and hands
frames from one to the other until its standard input ends.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys

TUNSETIFF, TUNSETCARRIER = 0x400454CA, 0x400454E2
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
LONGEST = 65_536


def tap(name: str, pid: str, port: str) -> int:
    """The file of a tap that is a port of a host."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    for carrier in (0, 1):  # a tap that never lost it does not say that it is up
        fcntl.ioctl(file, TUNSETCARRIER, struct.pack("i", carrier))
    subprocess.run(["ip", "link", "set", "dev", name, "netns", pid, "name", port], check=True)
    return file


def main() -> None:
    """Hand frames on; what comes while a port is down is lost."""
    a_pid, a_port, b_pid, b_port = sys.argv[1:]
    ends = (tap("cord-a", a_pid, a_port), tap("cord-b", b_pid, b_port))
    print("up", flush=True)
    other = dict(zip(ends, reversed(ends), strict=True))
    while True:
        ready: list[int] = select.select([*ends, sys.stdin.fileno()], [], [])[0]
        if sys.stdin.fileno() in ready:
            return
        for end in ready:
            try:
                os.write(other[end], os.read(end, LONGEST))
            except OSError:
                continue


if __name__ == "__main__":
    main()
