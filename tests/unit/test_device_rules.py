"""Whether frames passed a device's rules, by what its tools showed; over real frames: tests/net."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sojourn.analysis.device_rules import Chain, chains_of, rules_unseen

RULES = """table {family} filter {{
\tset known {{
\t\ttype ipv4_addr
\t\telements = {{ 192.0.2.1, 192.0.2.2,
\t\t\t     192.0.2.3 }}
\t}}

\tchain more {{
\t\tip saddr @known drop
\t}}

\tchain {hook} {{
\t\ttype filter hook {hook} priority filter; policy accept;
\t\tcounter packets 0 bytes 0
\t\tip saddr 192.0.2.9 drop comment "a }} b"
\t\tjump more
\t}}

\tchain input {{
\t\ttype filter hook input priority filter; policy accept;
\t\ttcp dport 22 accept
\t}}
}}"""
BRIDGED = """2: br0: <BROADCAST> mtu 1500 qdisc noqueue state UP
    bridge forward_delay 0 nf_call_iptables {lent} nf_call_ip6tables 0
210: d-x-1l@if201: <UP> mtu 1500 qdisc noqueue master br0 state UP
    bridge_slave state forwarding
211: d-x-1r@if202: <UP> mtu 1500 qdisc noqueue master br0 state UP
    bridge_slave state forwarding"""
ROUTED = "210: d-x-1l@if201: <UP> mtu 1500\n    veth\n211: d-x-1r@if202: <UP> mtu 1500\n    veth"
LOOK = "cd /proc/sys/net/bridge && for one in bridge-nf-call-ip*"


def found(
    links: str, family: str, *, routed: bool | None, hook: str = "forward", sysctl: str = "0", looked: bool = True
) -> list[Any]:
    """The findings on one box with four rules on the way of forwarded packets and one on another."""
    shown = {"ip -d link show": links, "nft list ruleset": RULES.format(family=family, hook=hook)}
    if looked:
        shown[LOOK] = f"bridge-nf-call-ip6tables = 0\nbridge-nf-call-iptables = {sysctl}"
    run: Any = SimpleNamespace(
        bed={"objects": {"box:x": {"shown": shown}}}, plan={"bed": {"boxes": {"x": {"routed": routed}}}}
    )
    return list(rules_unseen(run))


def test_nft_chains_are_parsed_with_hooks_and_rules() -> None:
    chains = list(chains_of(RULES.format(family="inet", hook="forward")))
    assert chains == [
        Chain("inet", "filter", None, 1),
        Chain("inet", "filter", "forward", 3),
        Chain("inet", "filter", "input", 1),
    ]


@pytest.mark.parametrize("family", ["inet", "ip", "ip6"])
def test_rules_of_ip_are_not_reached_by_bridged_frames(family: str) -> None:
    (one,) = found(BRIDGED.format(lent=0), family, routed=False)
    assert one.name == "rules_unseen"
    assert one.value == 4
    assert f"the frames passed none of 4 rules in family {family}: bridged frames pass" in one.sentence
    assert "family bridge" in one.sentence


def test_rules_of_a_bridge_are_not_reached_by_routed_packets() -> None:
    (one,) = found(ROUTED, "bridge", routed=True)
    assert "the frames passed none of 4 rules in family bridge: routed packets pass no bridge" in one.sentence


@pytest.mark.parametrize(
    ("links", "family", "told"),
    [
        (BRIDGED.format(lent=0), "bridge", {"routed": False}),
        (BRIDGED.format(lent=1), "inet", {"routed": False}),
        (BRIDGED.format(lent=0), "inet", {"routed": False, "sysctl": "1"}),
        (BRIDGED.format(lent=0), "inet", {"routed": False, "hook": "ingress"}),
        (BRIDGED.format(lent=0), "inet", {"routed": False, "looked": False}),
        (BRIDGED.format(lent=0).replace("master br0", "master br1", 1), "inet", {"routed": False}),
        (BRIDGED.format(lent=0), "inet", {"routed": True}),
        (BRIDGED.format(lent=0), "bridge", {"routed": True}),
        (BRIDGED.format(lent=0), "inet", {"routed": None}),
        (ROUTED, "inet", {"routed": True}),
        (ROUTED, "inet", {"routed": False}),
    ],
)
def test_no_finding_if_rules_are_reached_or_unknown(links: str, family: str, told: dict[str, Any]) -> None:
    assert found(links, family, **told) == []


def test_run_of_an_earlier_version_has_no_finding() -> None:
    run: Any = SimpleNamespace(bed={}, plan={})
    assert list(rules_unseen(run)) == []
