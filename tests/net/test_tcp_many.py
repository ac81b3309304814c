"""Many connections of one application: more than a shell's limit of open files, and not one after another."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

import sojourn
from sojourn.binary import find_instrument
from tests.net.busy_machine import retried, undisturbed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

CONNECTIONS = 64
ROUND_TRIP_S = 0.1
FEW_FILES = ["prlimit", "--nofile=40:4096", find_instrument(), "tcp"]


@retried
def test_connections_begin_together_and_are_more_than_a_shell_allows() -> None:
    count = ["--connections", str(CONNECTIONS), "--json"]
    with sojourn.lab(delay="50ms") as lab:
        at = f"{lab.far.address}:5999"
        receiver = lab.far.popen([*FEW_FILES, "receive", at, *count], stdout=subprocess.PIPE, text=True)
        lab.far.wait_for_port(seconds=10)
        began = time.monotonic()
        sender = lab.near.popen(
            [*FEW_FILES, "send", at, *count, "--for", "500ms", "--read-every", "100ms"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        out, _ = sender.communicate(timeout=60)
        took_s = time.monotonic() - began
        receiver.communicate(timeout=60)
    assert (sender.returncode, receiver.returncode) == (0, 0)
    ended = [json.loads(line)["connection"] for line in out.splitlines()]
    assert sorted(one["connection"] for one in ended) == list(range(CONNECTIONS))
    assert all(one["problem"] is None and one["moved_bytes"] > 0 for one in ended)
    with undisturbed():
        assert took_s < CONNECTIONS * ROUND_TRIP_S, "one after another they take this, and what they send comes on top"
