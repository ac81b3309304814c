"""The files of systemd-networkd that make a bridge of real ports again when the machine starts."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path("/etc/systemd/network")
_PREFIX = "60-sojourn-"


def paths_of(name: str) -> list[Path]:
    """Return the files of a bridge."""
    ends = (".netdev", ".network", "-port1.network", "-port2.network")
    return [FOLDER / f"{_PREFIX}{name}{end}" for end in ends]


def files_of(name: str, ports: tuple[str, str], mode: str, mac: str) -> dict[Path, str]:
    """Return the text of each file for the bridge, its ports and HTB."""
    head = f"# Written by `sojourn bridge up {' '.join(ports)} --mode {mode} --persist`; `down {name}` removes it.\n"
    quiet = "[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
    bridge = "[Bridge]\nSTP=no\nForwardDelaySec=0\nMulticastSnooping=no\n"
    found = {
        f"{_PREFIX}{name}.netdev": f"{head}[NetDev]\nName={name}\nKind=bridge\nMACAddress={mac}\n\n{bridge}",
        f"{_PREFIX}{name}.network": f"{head}[Match]\nName={name}\n\n{quiet}ConfigureWithoutCarrier=yes\n",
    }
    for number, port in enumerate(ports, start=1):
        shaping = _htb(number) if mode == "qos" else ""
        found[f"{_PREFIX}{name}-port{number}.network"] = (
            f"{head}[Match]\nName={port}\n\n{quiet}Bridge={name}\n{shaping}"
        )
    return {FOLDER / file: text for file, text in found.items()}


def _htb(major: int) -> str:
    """Return the HTB classes of linux-bridge-2003, equal to those of `classes`."""
    one = "\n[HierarchyTokenBucketClass]\n"
    return (
        f"\n[HierarchyTokenBucket]\nParent=root\nHandle={major}\nDefaultClass=10\n"
        f"{one}Parent={major}:\nClassId={major}:{major}\nRate=102400K\nCeilRate=102400K\nQuantumBytes=20000\n"
        f"{one}Parent={major}:{major}\nClassId={major}:10\nRate=102380K\nCeilRate=102400K\nPriority=3\nQuantumBytes=20000\n"
        f"{one}Parent={major}:{major}\nClassId={major}:12\nRate=20K\nCeilRate=25K\nPriority=5\nQuantumBytes=1500\n"
    )
