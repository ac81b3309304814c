"""Find devices whose rules no frame passed: from the families of their nftables tables and how they forward.

A counter shows what one rule matched, and few rules have one; the family determines which packets reach any rule of a
table. The input is what the tools showed in the device's network stack after the first session. Rules that are reached
but match nothing are not reported: each is evaluated, and takes its time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn import devices
from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sojourn.analysis.run import Run

OF_IP = ("ip", "ip6", "inet")
"""Families of nftables (nft(8)) whose hooks see packets that the IP layer handles."""
OF_BRIDGES = ("bridge",)
ON_THE_WAY = frozenset({"prerouting", "forward", "postrouting"})
"""Hooks of forwarded packets; input and output see packets for the device itself, ingress and egress those of
one port."""
LENDING = re.compile(r"\bnf_call_ip6?tables 1\b|\bbridge-nf-call-ip6?tables = 1\b")
"""Matches a bridge, or all bridges, whose frames br_netfilter passes to the hooks of the IP families."""


@dataclass(frozen=True)
class Chain:
    """A chain of rules: its table's family and name, its hook if it has one, and its number of rules."""

    family: str
    table: str
    hook: str | None
    rules: int


def rules_unseen(run: Run) -> Iterator[Finding]:
    """Return the devices with rules that certainly no frame reached."""
    objects = run.bed.get("objects")
    for path, made in (objects if isinstance(objects, dict) else {}).items():
        shown = made.get("shown") if isinstance(made, dict) else None
        if isinstance(shown, dict) and (found := _of_device(path, shown, is_routed=_is_routed(run, path))):
            yield found


def _of_device(path: str, shown: Mapping[str, Any], *, is_routed: bool | None) -> Finding | None:
    text = {command: str(output) for command, output in shown.items()}
    links, rules = text.get("ip -d link show", ""), "\n".join(one for name, one in text.items() if "nft list" in name)
    chains = list(chains_of(rules))
    if is_routed is False and _is_one_bridge(path, links) and not LENDING.search("\n".join(text.values())):
        families: tuple[str, ...] = OF_IP if any("bridge-nf" in name for name in text) else ()
        reason = "bridged frames pass the rules of family bridge alone"
        instead = "put the rules into a table of family bridge, or measure a box that routes"
    elif is_routed and not re.search(r"^ +bridge ", links, re.MULTILINE):
        families = OF_BRIDGES
        reason = "routed packets pass no bridge"
        instead = "put the rules into a table of family inet, or measure a box that bridges"
    else:
        return None
    unseen = [one for one in chains if one.family in families]
    on_the_way = {(one.family, one.table) for one in unseen if one.hook in ON_THE_WAY and one.rules}
    count = sum(
        one.rules
        for one in unseen
        if (one.family, one.table) in on_the_way and (one.hook is None or one.hook in ON_THE_WAY)
    )
    if not count:
        return None
    named = " and ".join(dict.fromkeys(family for family, _ in sorted(on_the_way)))
    sentence = f"the frames passed none of {counted(count, 'rule')} in family {named}: {reason}; {instead}"
    return Finding("rules_unseen", sentence, float(count), (Place(path),))


def chains_of(ruleset: str) -> Iterator[Chain]:
    """Parse the chains in the output of `nft list ruleset`: tables begin at the margin, rules with two tabs."""
    family = table = ""
    hook: str | None = None
    count, is_chain = 0, False
    for line in ruleset.splitlines():
        if begins := re.match(r"table (\w+) (\S+) \{", line):
            family, table = begins[1], begins[2]
        elif re.match(r"\t\w+ .*\{$", line):
            is_chain, hook, count = line.startswith("\tchain "), None, 0
        elif line == "\t}" and is_chain:
            yield Chain(family, table, hook, count)
            is_chain = False
        elif is_chain and (base := re.match(r"\t\ttype \w+ hook (\w+)", line)):
            hook = base[1]
        elif is_chain and re.match(r"\t\t[^\s#}]", line) and not re.match(r"\t\t(policy|comment) ", line):
            count += 1


def _is_one_bridge(path: str, links: str) -> bool:
    """Return whether both ports of the device belong to one bridge of the kernel."""
    known = devices.known(path)
    if known is None:
        return False
    ports = (rf"^\d+: d-{re.escape(known.slug)}-1{side}[@:].* master (\S+)" for side in "lr")
    masters = [found[1] for port in ports if (found := re.search(port, links, re.MULTILINE))]
    return len(masters) == 2 and masters[0] == masters[1] and "bridge_slave" in links


def _is_routed(run: Run, path: str) -> bool | None:
    """Return whether the device forwards by IP addresses; None if unknown."""
    known = devices.known(path)
    if known is None or not known.mode.is_box:
        return known.mode.is_routed if known else None
    boxes = run.plan.get("bed", {}).get("boxes", {})
    routed = boxes.get(known.label, {}).get("routed") if isinstance(boxes, dict) else None
    return routed if isinstance(routed, bool) else None
