"""Rules that no frame reaches, and the same that frames reach, over real frames."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.net.here import sojourn_here

if TYPE_CHECKING:
    from pathlib import Path

BRIDGE = """ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
ip link set "$SOJOURN_LEFT" master br0
ip link set "$SOJOURN_RIGHT" master br0
ip link set br0 up
"""
ROUTER = """sysctl -qw net.ipv4.ip_forward=1
ip address add "$SOJOURN_LEFT_IP4" dev "$SOJOURN_LEFT"
ip address add "$SOJOURN_RIGHT_IP4" dev "$SOJOURN_RIGHT"
"""
CHAIN = "chain forward { type filter hook forward priority 0; policy accept; counter; ip saddr 192.0.2.1 drop; }"


@pytest.mark.parametrize(
    ("forwards", "family", "told"),
    [
        (BRIDGE, "inet", "the frames passed none of 2 rules in family inet: bridged frames pass"),
        (BRIDGE, "bridge", None),
        (ROUTER, "bridge", "the frames passed none of 2 rules in family bridge: routed packets pass no bridge"),
        (ROUTER, "inet", None),
    ],
)
def test_rules_of_the_wrong_family_are_reported(tmp_path: Path, forwards: str, family: str, told: str | None) -> None:
    """A counter in the chain is the truth: no packet where the finding is, packets where it is not."""
    box = tmp_path / "box.sh"
    box.write_text(f"#!/bin/sh\nset -eu\n{forwards}nft -f - <<'END'\ntable {family} filter {{\n{CHAIN}\n}}\nEND\n")
    box.chmod(0o755)
    short = ["--quick", "--no-history", "--no-report", "--set", "sessions=1", "--set", "rounds=2"]
    short += ["--set", "probe.icmp_bytes=64", "--set", "pairs.at_most=5s"]
    out = tmp_path / "run"
    done = sojourn_here("run", "bridge-latency", *short, "--device", f"mine={box}", "--out", out)
    assert done.returncode in (0, 4), done.stderr
    verdict = json.loads((out / "analysis/verdict.json").read_text())
    found = [one["sentence"] for one in verdict["findings"] if one["name"] == "rules_unseen"]
    shown = json.loads((out / "bed.json").read_text())["objects"]["box:mine"]["shown"]
    (rules,) = (text for command, text in shown.items() if "nft list" in command)
    assert ("counter packets 0 bytes 0" in rules) == (told is not None)
    assert [told in one for one in found] == ([True] if told else [])
