"""The bed as a drawing: host A on the left, host B on the right, one row for each path with its device between them.

Further ports of a host are joined to the device of their path. The bypass, whose load does not cross the device, is
drawn like a path and labelled. Shapers and link rates are written on the line. The result is SVG text that takes its
colours from the page's CSS variables, so that it follows light, dark and print. It draws the content of bed.json; where
that has no links, only the names of the planned paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from sojourn import devices
from sojourn.devices import BYPASS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.report.palette import Palette

WIDTH = 860
ROW = 74
FURTHER = 30
TOP = 46
HOST_WIDTH = 132
STATION_WIDTH = 112
STATION_HEIGHT = 38


@dataclass(frozen=True)
class Row:
    """One path from A to B in the drawing."""

    name: str
    stations: tuple[str, ...]
    left: str = ""
    right: str = ""
    further_left: tuple[str, ...] = ()
    further_right: tuple[str, ...] = ()
    shaped: str = ""

    @property
    def kind(self) -> str:
        return devices.bare(self.device)

    @property
    def device(self) -> str:
        """The device whose colour the row has; a bypass has its device's."""
        return self.name.removesuffix(BYPASS)

    @property
    def height(self) -> int:
        """The height of the row: one line more for each further port."""
        return ROW + FURTHER * max(len(self.further_left), len(self.further_right))


def draw(bed: dict[str, Any], plan: dict[str, Any], palette: Palette) -> str:
    """The bed as an SVG element."""
    rows = rows_of(bed, plan)
    height = TOP + sum(row.height for row in rows) + 18
    roles = ("sends", "receives") if "stream" in plan else ("asks", "answers")
    parts = [
        (
            f'<svg class="bed" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(_words(rows))}" '
            f'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="13">'
        ),
        _host(8, height, "Host A", roles[0], palette),
        _host(WIDTH - HOST_WIDTH - 8, height, "Host B", roles[1], palette),
        *(_drawn(row, y, palette) for row, y in _placed(rows)),
        "</svg>",
    ]
    return "\n".join(parts)


def _placed(rows: list[Row]) -> Iterator[tuple[Row, float]]:
    y = float(TOP)
    for row in rows:
        yield row, y + ROW / 2
        y += row.height


def rows_of(bed: dict[str, Any], plan: dict[str, Any]) -> list[Row]:
    """Return the paths, from nodes and links in bed.json if it has them, else from the devices of the plan."""
    drawing = bed.get("drawing") or {}
    links, nodes = drawing.get("links") or [], drawing.get("nodes") or []
    if not links:
        planned = plan.get("bed", {}).get("devices", [])
        return [Row("direct", ()), *(Row(name, _stations_by_name(name)) for name in planned if name != "direct")]
    built = bed.get("stable", {}).get("bed", {})
    addresses = {one.get("path"): one for one in built.get("paths", [])}
    names = dict.fromkeys(str(link["path"]) for link in links)
    shaped = _shaper(built.get("spec") or {})
    return [_row_of(name, links, nodes, addresses.get(name, {}), shaped) for name in names]


def _row_of(
    name: str, links: list[dict[str, Any]], nodes: list[dict[str, Any]], address: dict[str, Any], shaped: str
) -> Row:
    own = [link for link in links if link["path"] == name]
    stations = tuple(str(node["label"]) for node in nodes if node.get("path") == name)
    lefts = [str(link.get("from_port", "")) for link in own if link["from"] == "a"]
    rights = [str(link.get("to_port", "")) for link in own if link["to"] == "b"]
    left, right = _first(lefts, address.get("a_dev")), _first(rights, address.get("b_dev"))
    return Row(
        name,
        stations,
        f"{left} {address.get('a_ip4', '')}",
        f"{right} {address.get('b_ip4', '')}",
        tuple(port for port in lefts if port != left),
        tuple(port for port in rights if port != right),
        _rates(address.get("rated") or ()) or (shaped if stations else ""),
    )


def _first(ports: list[str], known: str | None) -> str:
    """Return the measured port: the one that the bed names, else the one with the shortest name."""
    return known if known in ports else min(ports, key=len, default="")


def _shaper(spec: dict[str, Any]) -> str:
    """Return the shaper of the devices' B side, in words."""
    rate = spec.get("rate_bps")
    return f"{str(spec.get('shaper') or 'shaped').upper()} {rate / 1e6:g} Mbit/s" if rate else ""


def _rates(links: Sequence[dict[str, Any] | None]) -> str:
    """Return the rates of a path's links from A to B; empty if none has one."""
    rates = [one.get("rate_bps") if one else None for one in links]
    said = ", ".join(f"{rate / 1e6:g} Mbit/s" if rate else "no limit" for rate in rates)
    return f"links: {said}" if any(rates) else ""


def _stations_by_name(path: str) -> tuple[str, ...]:
    device = devices.known(path)
    return (device.mode.box,) * device.stations if device else (path,)


def _host(x: float, height: float, name: str, role: str, palette: Palette) -> str:
    middle = x + HOST_WIDTH / 2
    return (
        f'<rect x="{x}" y="8" width="{HOST_WIDTH}" height="{height - 16}" rx="8" fill="{palette.surface("grid")}" '
        f'stroke="{palette.surface("rule")}"/>'
        f'<text x="{middle}" y="30" text-anchor="middle" font-weight="600" fill="{palette.surface("ink")}">{name}'
        f'<tspan font-weight="400" fill="{palette.surface("muted")}"> {role}</tspan></text>'
    )


def _drawn(row: Row, y: float, palette: Palette) -> str:
    left, right, colour = 8 + HOST_WIDTH, WIDTH - HOST_WIDTH - 8, palette.device(row.device)
    dash = ' stroke-dasharray="6 4"' if row.kind == "direct" else ""
    middle = (left + right) / 2
    # Without a device the name is on the link; with one, above it.
    label_y = y - 9 if not row.stations else y - STATION_HEIGHT / 2 - 8
    name = f"{row.device}, bypass: load beside it" if row.name.endswith(BYPASS) else row.name
    parts = [
        f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>',
        f'<circle cx="{left}" cy="{y}" r="4" fill="{colour}"/><circle cx="{right}" cy="{y}" r="4" fill="{colour}"/>',
        (
            f'<text x="{middle}" y="{label_y}" text-anchor="middle" font-weight="600" fill="{colour}">'
            f"{escape(name)}</text>"
        ),
        _port(8 + HOST_WIDTH / 2, y, row.left, palette),
        _port(WIDTH - 8 - HOST_WIDTH / 2, y, row.right, palette),
    ]
    stations = len(row.stations)
    step = (right - left) / (stations + 1)
    width = min(STATION_WIDTH, step * 0.8)
    places = [left + step * (i + 1) for i in range(stations)]
    if places:
        parts += _further(row, y, (places[0] - width / 4, places[-1] + width / 4), palette)
        parts.append(_rate(row, y, (places[-1] + width / 2 + right) / 2, palette))
    parts += [_station(at, y, width, name, row, palette) for at, name in zip(places, row.stations, strict=True)]
    return "".join(parts)


def _further(row: Row, y: float, ends: tuple[float, float], palette: Palette) -> list[str]:
    """Draw the further ports of either host, each with a line that bends up to the device."""
    left, right = 8 + HOST_WIDTH, WIDTH - HOST_WIDTH - 8
    sides = (
        (row.further_left, left, ends[0], 8 + HOST_WIDTH / 2),
        (row.further_right, right, ends[1], WIDTH - 8 - HOST_WIDTH / 2),
    )
    colour, parts = palette.device(row.device), []
    for ports, edge, into, middle in sides:
        for port, at in zip(ports, count(y + STATION_HEIGHT / 2 + 22, FURTHER), strict=False):
            parts.append(
                f'<path d="M{edge},{at} H{into} V{y}" fill="none" stroke="{colour}" stroke-width="1.4" opacity="0.7"/>'
                f'<circle cx="{edge}" cy="{at}" r="3" fill="{colour}"/>'
            )
            parts.append(_port(middle, at, port, palette))
    return parts


def _rate(row: Row, y: float, x: float, palette: Palette) -> str:
    return (
        f'<text x="{x}" y="{y - 8}" text-anchor="middle" font-size="12" fill="{palette.surface("muted")}">'
        f"{escape(row.shaped)}</text>"
    )


def _station(x: float, y: float, width: float, name: str, row: Row, palette: Palette) -> str:
    colour = palette.device(row.device)
    return (
        f'<rect x="{x - width / 2}" y="{y - STATION_HEIGHT / 2}" width="{width}" height="{STATION_HEIGHT}" rx="5" '
        f'fill="{palette.surface("paper")}" stroke="{colour}" stroke-width="2"/>'
        f'<text x="{x}" y="{y + 4.5}" text-anchor="middle" fill="{palette.surface("ink")}">{escape(name)}</text>'
    )


def _port(x: float, y: float, label: str, palette: Palette) -> str:
    dev, _, address = label.partition(" ")
    lines = [line for line in (dev, address) if line]
    start = y + 4 - 8 * (len(lines) - 1)
    return "".join(
        f'<text x="{x}" y="{start + 16 * i}" text-anchor="middle" font-size="12" '
        f'fill="{palette.surface("muted")}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )


def _words(rows: list[Row]) -> str:
    return "The bed. Host A and host B are joined by parallel links. " + "; ".join(map(_row_in_words, rows)) + "."


def _row_in_words(row: Row) -> str:
    more = [
        f"{len(ports)} further port{'s' if len(ports) > 1 else ''} at host {host}"
        for ports, host in ((row.further_left, "A"), (row.further_right, "B"))
        if ports
    ]
    between = " then ".join(row.stations) or "nothing between"
    return f"{row.name}: " + ", ".join([between, *([row.shaped] if row.shaped else []), *more])
