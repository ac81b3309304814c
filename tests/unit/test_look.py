"""Which interfaces of a host may be taken as test ports, from what the host says of itself."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed.look import _LOOK, look, unfit
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from sojourn.bed.look import Looked

SESSION = "198.51.100.9 50000 192.0.2.2 22"


def interface(name: str, *addresses: str, **more: Any) -> dict[str, Any]:
    scopes = [("link" if one.startswith("fe80") else "global", one) for one in addresses]
    return {
        "ifname": name,
        "address": "00:16:3e:00:00:01",
        "mtu": 1500,
        "flags": ["UP"],
        "addr_info": [{"local": one, "prefixlen": 64, "scope": scope} for scope, one in scopes],
        **more,
    }


def on(kind: str, link: str | None) -> dict[str, Any]:
    """What an interface of a kind says of the one it stands on."""
    return {"link": link, "linkinfo": {"info_kind": kind}}


MANAGEMENT = interface("eth0", "192.0.2.2", "fe80::1")


def host(
    *links: dict[str, Any],
    session: str = SESSION,
    routes: tuple[dict[str, Any], ...] = (),
    qdiscs: tuple[str, ...] = (),
) -> Looked:
    """A host as its words are read."""
    said = {
        "uid": "0", "boot": "boot", "kernel": "6.1.0\nversion\nx86_64", "distribution": "", "cpu": "", "cpus": "0-1",
        "memory": "1", "clocksource": "tsc", "ssh": session, "tools": "", "links": json.dumps(links),
        "routes": json.dumps(routes), "routes6": "", "qdiscs": "\n".join(qdiscs), "disk": "", "sudo": "yes",
        "now": "0",
    }  # fmt: skip
    line: Any = SimpleNamespace(
        spec=SimpleNamespace(folder="/var/tmp"),
        run=lambda *_: "".join(f"== {name}\n{words}\n" for name, words in said.items()),
    )
    return look(line)


@pytest.mark.parametrize("member", ["address", "mtu", "flags"])
def test_port_that_cannot_be_restored_is_not_claimed(member: str) -> None:
    """`ip` of a host that lacks one ended a bed with a traceback, when others' ports were taken already."""
    port = {name: value for name, value in interface("eth1").items() if name != member}
    said = unfit(host(MANAGEMENT, port), "eth1")
    assert said == f"does not tell {member} of eth1: a port could not be given back as it was"


def test_unused_port_may_be_claimed() -> None:
    kernels = {"dst": "fe80::/64", "dev": "eth1", "protocol": "kernel"}
    flooded = {"dst": "ff00::/8", "dev": "eth1", "type": "multicast", "protocol": "boot"}
    others = {"dst": "default", "dev": "eth0", "protocol": "dhcp"}
    found = host(MANAGEMENT, interface("eth1", "fe80::2"), routes=(kernels, flooded, others))
    assert unfit(found, "eth1") is None
    pair = host(MANAGEMENT, interface("eth1", **on("veth", "eth2")), interface("eth2", **on("veth", "eth1")))
    assert unfit(pair, "eth1") is None


@pytest.mark.parametrize("session", ["fe80::9 50000 fe80::1%eth0 22", "fe80::9 50000 fe80::1 22"])
def test_ssh_session_over_a_link_local_address_is_recognised(session: str) -> None:
    found = host(interface("eth0", "fe80::1"), interface("eth1"), session=session)
    assert "is reached by SSH through eth0" in (unfit(found, "eth0") or "")
    assert unfit(found, "eth1") is None


def test_zone_distinguishes_two_interfaces_with_one_address() -> None:
    found = host(interface("eth0", "fe80::1"), interface("eth1", "fe80::1"), session="fe80::9 5 fe80::1%eth1 22")
    assert found.management == "eth1"


@pytest.mark.parametrize("session", ["", "198.51.100.9 50000 203.0.113.1 22"])
def test_no_port_is_claimed_if_the_interface_of_the_session_is_unknown(session: str) -> None:
    assert "no interface with the address of the SSH session" in (
        unfit(host(MANAGEMENT, interface("eth1"), session=session), "eth1") or ""
    )


@pytest.mark.parametrize(
    ("management", "links", "port", "sentence"),
    [
        ("eth0.5", [interface("eth0.5", "192.0.2.2", **on("vlan", "eth0")), interface("eth0")], "eth0",
         "has eth0.5 on eth0: remove it first"),
        ("mac0", [interface("mac0", "192.0.2.2", **on("macvlan", "eth1")), interface("eth1")], "eth1",
         "has mac0 on eth1: remove it first"),
        ("eth0", [MANAGEMENT, interface("eth0.7", **on("vlan", "eth0"))], "eth0.7",
         "is reached by SSH through eth0, and eth0.7 needs eth0 as that does"),
        ("br0", [interface("br0", "192.0.2.2"), interface("eth0", master="br0"),
                 interface("eth0.7", **on("vlan", "eth0"))], "eth0.7",
         "is reached by SSH through br0, and eth0.7 needs br0 as that does"),
        ("eth0.5", [interface("eth0.5", "192.0.2.2", **on("vlan", "eth0")), interface("eth0"),
                    interface("eth0.7", **on("vlan", "eth0"))], "eth0.7", "needs eth0 as that does"),
    ],
    ids=["VLAN on it", "macvlan on it", "VLAN of management", "VLAN of a bridge's port", "two VLANs"],
)  # fmt: skip
def test_a_port_that_the_management_interface_shares_is_refused(
    management: str, links: list[dict[str, Any]], port: str, sentence: str
) -> None:
    found = host(*links)
    assert found.management == management
    assert sentence in (unfit(found, port) or "")


def test_port_left_by_a_killed_run_is_reported_with_its_fix() -> None:
    found = host(MANAGEMENT, interface("a-direct", address="02:77:00:00:01:01"))
    assert (unfit(found, "eth1") or "").startswith(
        "has no interface eth1, but a-direct, left by a run that was killed: the next run gives it back, or: ip link"
    )


@pytest.mark.parametrize(
    "route",
    [
        {"dst": "default", "dev": "eth1"},
        {"dst": "default", "protocol": "ra", "nexthops": [{"dev": "eth0"}, {"dev": "eth1"}]},
    ],
)
def test_a_port_with_a_route_is_refused(route: dict[str, Any]) -> None:
    assert unfit(host(MANAGEMENT, interface("eth1"), routes=(route,)), "eth1") == (
        "has a route to default over eth1: remove it first"
    )


def listed(*lines: str) -> tuple[str, ...]:
    """What the script prints of lines of `tc qdisc`."""
    [script] = [line for line in _LOOK.splitlines() if "tc qdisc" in line]
    argv = ["sh", "-c", f"tc() {{ cat; }}; {script}"]
    said = subprocess.run(argv, input="".join(f"{one}\n" for one in lines), capture_output=True, text=True, check=True)
    return tuple(said.stdout.splitlines()[1:])


MQ = "qdisc mq 0: dev eth1 root "
OF_OTHERS = ("qdisc htb 1: dev eth0 root refcnt 2 r2q 10", "qdisc clsact ffff: dev eth0 parent ffff:fff1 ")


@pytest.mark.parametrize("kind", ["noqueue", "pfifo_fast", "fq_codel"])
def test_port_with_the_qdiscs_of_the_kernel_may_be_claimed(kind: str) -> None:
    queues = (MQ, *(f"qdisc {kind} 0: dev eth1 parent :{number} limit 10240p" for number in (1, 2)))
    for own in ((f"qdisc {kind} 0: dev eth1 root refcnt 2 ",), queues):
        assert unfit(host(MANAGEMENT, interface("eth1"), qdiscs=listed(*OF_OTHERS, *own)), "eth1") is None


@pytest.mark.parametrize(
    ("kind", "handle", "where"),
    [
        ("fq_codel", "8001:", "root"),
        ("htb", "1:", "root"),
        ("hfsc", "2:", "root"),
        ("clsact", "ffff:", "clsact"),
        ("ingress", "ffff:", "ingress"),
    ],
)
def test_port_whose_qdiscs_or_filters_would_be_lost_is_refused(kind: str, handle: str, where: str) -> None:
    """They were gone after `sojourn bed check`; one of hfsc made the host "no Linux host", as its JSON is none."""
    own = listed(MQ, f"qdisc {kind} {handle} dev eth1 root refcnt 2 default 1 ")
    assert unfit(host(MANAGEMENT, interface("eth1"), qdiscs=own), "eth1") == (
        f"has the qdisc {kind} on eth1, which would be lost: remove it first (tc qdisc del dev eth1 {where})"
    )


@pytest.mark.parametrize("line", ["htb 1:", "htb 1: eth1 root", f"htb 1: {'e' * 40}"])
def test_words_that_are_no_qdisc_are_refused(line: str) -> None:
    with pytest.raises(MachineError, match="does not answer as a Linux host does"):
        host(qdiscs=(line,))


def test_port_whose_xdp_program_would_be_lost_is_refused() -> None:
    program = {"mode": 1, "prog": {"id": 9}, "attached": [{"mode": 1, "prog": {"id": 9}}]}
    assert unfit(host(MANAGEMENT, interface("eth1", xdp=program)), "eth1") == (
        "has an XDP program on eth1, which would be lost: "
        "remove it first (ip link set dev eth1 xdp off, or xdpgeneric off)"
    )
