"""Drawings of a bed: as text for a terminal, as nodes and links for a page. Pure; it needs no built bed."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sojourn.bed.model import Link, Stretch, Topology

_CORNERS = ("┘", "└", "┘└")


Row = tuple[str, str, str, str]


def text(topology: Topology) -> str:
    """One line per path, host A at the left and host B at the right, and one for each further end of a bridge."""
    head = ("host A (asks)", " host D (devices under test) ", " host B (answers)", "path")
    rows = [row for link in topology.links for row in (_row(link), *_further_rows(link))]
    a_width, d_width, b_width = (max(len(row[column]) for row in (head, *rows)) for column in range(3))
    lines = [f"{head[0]:<{a_width}}{head[1]:^{d_width}}{head[2]:<{b_width}}  {head[3]}"]
    lines += [f"{a:<{a_width}}{_drawn(middle, d_width)}{b:<{b_width}}  {path}".rstrip() for a, middle, b, path in rows]
    return "\n".join(lines)


def _drawn(middle: str, width: int) -> str:
    """Draw what is between the hosts: a line with the device in it, or the corners of further ends."""
    if middle not in _CORNERS:
        return f"{middle:─^{width}}"
    left, right = (width - 1) // 2, width - (width - 1) // 2
    there, back = ("┘" in middle, "└" in middle)
    return ("─" * (left - 1) + "┘" if there else " " * left) + ("└" + "─" * (right - 1) if back else " " * right)


def drawing(topology: Topology) -> dict[str, Any]:
    """Return nodes and links, as in `bed.json` for the report, and the text drawing."""
    hosts = {"a": "host A", "b": "host B"}
    nodes = [{"id": name, "label": label, "kind": "host", "path": None} for name, label in hosts.items()]
    nodes += [
        {"id": f"{link.path}/{i}", "label": box, "kind": link.device.kind, "path": link.path}
        for link in topology.links
        for i, box in enumerate(link.boxes, start=1)
    ]
    return {"nodes": nodes, "links": _links(topology), "text": text(topology)}


def _links(topology: Topology) -> list[dict[str, str]]:
    links = []
    for link in topology.links:
        last = f"{link.path}/{len(link.boxes)}"
        for stretch in link.further_stretches:
            first_end = ("a", f"{link.path}/1") if stretch.left.host == "a" else (last, "b")
            ends = {"from": first_end[0], "to": first_end[1]}
            links.append({"path": link.path, **ends, **_ports(stretch)})
        way = ["a", *(f"{link.path}/{i}" for i in range(1, len(link.boxes) + 1)), "b"]
        if link.device.mode.is_outside:
            for own in (*link.near, *link.far):
                there = {"from": way[0], "to": way[1], "from_port": own.dev, "to_port": ""}
                back = {"from": way[1], "to": way[2], "from_port": "", "to_port": own.dev}
                links.append({"path": link.path, **(there if own.host == "a" else back)})
            continue
        for i, stretch in enumerate(link.stretches):
            links.append({"path": link.path, "from": way[i], "to": way[i + 1], **_ports(stretch)})
    return links


def _ports(stretch: Stretch) -> dict[str, str]:
    """Return the two ports of a link, and its rate and delay if it has any."""
    held = stretch.emulated.rated if stretch.emulated else None
    label = {"label": held.label} if held else {}
    return {"from_port": stretch.left.dev, "to_port": stretch.right.dev} | label


def _row(link: Link) -> Row:
    return f"{link.a_ip4} {link.a_dev} ", _middle(link), f" {link.b_dev} {link.b_ip4}", link.path


def _further_rows(link: Link) -> list[Row]:
    """One line for each further end, joined to the bridge above it."""
    return [
        (
            f"{near.ip4} {near.dev} " if near else "",
            "┘" * (near is not None) + "└" * (far is not None),
            f" {far.dev} {far.ip4}" if far else "",
            "",
        )
        for near, far in zip_longest(link.near[1:], link.far[1:])
    ]


def _middle(link: Link) -> str:
    """Draw the device's boxes, and between them the rates and delays of their links."""
    names = [f"[{box}]" for box in link.boxes]
    held = [one.emulated.rated.label if one.emulated and one.emulated.rated else "" for one in link.stretches]
    if not any(held):
        return "──".join(names)
    said = [f"({label})" if label else "" for label in held]
    return "─".join(part for pair in zip(said, [*names, ""], strict=True) for part in pair if part)
