"""Probes of each kind and STAMP between programs of one namespace: what both ends print is what their schemas say."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.instruments import find_instrument
from tests.children import Child
from tests.unit.printed_json import printed, printed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

NETNS = f"sojourn-print-{os.getpid()}"
MAC = "02:77:00:00:00:02"
PATIENCE_SECONDS = 60

SET_UP = f"""
ip netns add {NETNS}
ip -n {NETNS} link set lo up
ip -n {NETNS} link add near0 type veth peer name far0 address {MAC}
ip -n {NETNS} link set near0 up
ip -n {NETNS} link set far0 up
"""

pytestmark = [
    pytest.mark.usefixtures("netns"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a network namespace by name"),
]


@pytest.fixture(scope="module")
def netns() -> Iterator[None]:
    try:
        subprocess.run(["sh", "-e", "-c", SET_UP], check=True)
        yield
    finally:
        subprocess.run(["ip", "netns", "del", NETNS], check=False)


def inside(*words: str) -> list[str]:
    return ["ip", "netns", "exec", NETNS, find_instrument(), *words, "--json"]


@contextmanager
def answering(name: str, *words: str) -> Iterator[None]:
    """A responder or a reflector, whose first and last lines are looked at."""
    argv = inside(*name.split("-"), *words, "--until-eof")
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert printed(name, process.stdout.readline())["event"] == "ready"
        yield
        [end] = printed_lines(name, process.communicate(timeout=PATIENCE_SECONDS)[0])
    assert end["answered"] > 0


def measured(*words: str) -> dict[str, Any]:
    argv = inside(*words, "-c", "50", "-i", "1ms")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = printed("probe", done.stdout)
    assert told["received"] > 0
    return told


def test_printed_json_of_probes_follows_its_schema() -> None:
    assert measured("probe", "icmp", "127.0.0.1")["target"]["via"] == "icmp"
    with answering("probe-respond", "--udp", "7707", "--raw", "far0"):
        assert measured("probe", "udp", "127.0.0.1")["target"]["port"] == 7707
        assert measured("probe", "raw", "--dev", "near0", "--to", MAC)["target"]["mac"] == MAC


@pytest.mark.parametrize("more", [(), ("--stateful",)])
def test_printed_json_of_stamp_follows_its_schema(more: tuple[str, ...]) -> None:
    with answering("stamp-reflect", "--port", "8862", *more):
        told = measured("stamp", "send", "127.0.0.1:8862", "--shared-clock", *more)
    assert told["one_way"]["clocks"] == "shared"
    assert told["reflector"]["ttl_max"] > 0
    assert (told["loss_by_direction"] is None) is not bool(more)
