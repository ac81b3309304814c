"""How quickly commands start: within what a person waits, and beside the instrument's own start in the same minute."""

from __future__ import annotations

import os
import statistics

import pytest

from scripts.start_times import COMMANDS, OWN, times
from tests.net.busy_machine import retried, undisturbed

pytestmark = [
    pytest.mark.proof,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel"),
]

MOST = {
    "sojourn probe icmp 127.0.0.1 --count 1": 5,
    "sojourn run --help": 50,
    "sojourn tcplog run --out OUT -- true": 80,
    "sojourn tcplog top OUT --once": 100,
    "sojourn tcplog plot OUT -o OUT.png": 1000,
}
"""Times the instrument's own start: some three times what was measured, on a quiet machine and on a busy one."""

LIMIT_SECONDS = {"sojourn --help": 0.15, "sojourn probe icmp 127.0.0.1 --count 1": 0.2}
"""The median's limits, some twice and eight times what was measured on a quiet machine."""


@retried
def test_start_time_of_commands_is_within_its_limit_and_a_multiple_of_the_instrument() -> None:
    took = {name: statistics.median(each) for name, each in times(9).items()}
    print("".join(f"{name}: {one:.3f} s, {one / took[OWN]:.1f} times\n" for name, one in took.items()))
    assert {*MOST, *LIMIT_SECONDS} < set(COMMANDS)
    with undisturbed():
        for name, most in MOST.items():
            assert took[name] < most * took[OWN], f"{name}: {took[name]:.3f} s, {took[name] / took[OWN]:.1f} times"
        for name, seconds in LIMIT_SECONDS.items():
            assert took[name] <= seconds, f"{name}: {took[name]:.3f} s, more than {seconds} s"
