"""The bed as a drawing: host A on the left, host B on the right, one row per arm with its device between them.

Pure SVG text, inked with the page's CSS variables, so that it follows light, dark and print. It draws what bed.json
says; where that says little, the names of the arms alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from sojourn.report.palette import Palette

WIDTH = 860
ROW = 74
TOP = 46
HOST_WIDTH = 132
STATION_WIDTH = 112
STATION_HEIGHT = 38


@dataclass(frozen=True)
class Arm:
    """One way from A to B."""

    name: str
    stations: tuple[str, ...]
    left: str = ""
    right: str = ""

    @property
    def kind(self) -> str:
        return self.name.split("*")[0].split(":")[0]


def draw(bed: dict[str, Any], plan: dict[str, Any], palette: Palette) -> str:
    """The bed as an SVG element."""
    arms = arms_of(bed, plan)
    height = TOP + ROW * len(arms) + 18
    parts = [
        (
            f'<svg class="bed" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(_words(arms))}" '
            f'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="13">'
        ),
        _host(8, height, "Host A", "asks", palette),
        _host(WIDTH - HOST_WIDTH - 8, height, "Host B", "answers", palette),
        *(_arm(arm, TOP + ROW * row + ROW / 2, palette) for row, arm in enumerate(arms)),
        "</svg>",
    ]
    return "\n".join(parts)


def arms_of(bed: dict[str, Any], plan: dict[str, Any]) -> list[Arm]:
    """The arms, from the bed's own nodes and links where it has them, else from the plan's devices."""
    drawing = bed.get("drawing") or {}
    links, nodes = drawing.get("links") or [], drawing.get("nodes") or []
    if not links:
        devices = plan.get("bed", {}).get("devices", [])
        return [Arm("direct", ()), *(Arm(name, _stations_by_name(name)) for name in devices if name != "direct")]
    addresses = {arm.get("arm"): arm for arm in bed.get("stable", {}).get("bed", {}).get("arms", [])}
    names = dict.fromkeys(str(link["arm"]) for link in links)
    return [_arm_of(name, links, nodes, addresses.get(name, {})) for name in names]


def _arm_of(name: str, links: list[dict[str, Any]], nodes: list[dict[str, Any]], address: dict[str, Any]) -> Arm:
    own = [link for link in links if link["arm"] == name]
    stations = tuple(str(node["label"]) for node in nodes if node.get("arm") == name)
    left = next((str(link.get("from_port", "")) for link in own if link["from"] == "a"), "")
    right = next((str(link.get("to_port", "")) for link in own if link["to"] == "b"), "")
    return Arm(name, stations, f"{left} {address.get('a_ip4', '')}", f"{right} {address.get('b_ip4', '')}")


def _stations_by_name(arm: str) -> tuple[str, ...]:
    kind, _, times = arm.partition("*")
    return (kind,) * (int(times) if times.isdigit() else 1)


def _host(x: float, height: float, name: str, role: str, palette: Palette) -> str:
    middle = x + HOST_WIDTH / 2
    return (
        f'<rect x="{x}" y="8" width="{HOST_WIDTH}" height="{height - 16}" rx="8" fill="{palette.surface("grid")}" '
        f'stroke="{palette.surface("rule")}"/>'
        f'<text x="{middle}" y="30" text-anchor="middle" font-weight="600" fill="{palette.surface("ink")}">{name}'
        f'<tspan font-weight="400" fill="{palette.surface("muted")}"> {role}</tspan></text>'
    )


def _arm(arm: Arm, y: float, palette: Palette) -> str:
    left, right, colour = 8 + HOST_WIDTH, WIDTH - HOST_WIDTH - 8, palette.device(arm.name)
    dash = ' stroke-dasharray="6 4"' if arm.kind == "direct" else ""
    middle = (left + right) / 2
    # Without a device the name sits on the link; with one, above it.
    label_y = y - 9 if not arm.stations else y - STATION_HEIGHT / 2 - 8
    parts = [
        f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>',
        f'<circle cx="{left}" cy="{y}" r="4" fill="{colour}"/><circle cx="{right}" cy="{y}" r="4" fill="{colour}"/>',
        (
            f'<text x="{middle}" y="{label_y}" text-anchor="middle" font-weight="600" fill="{colour}">'
            f"{escape(arm.name)}</text>"
        ),
        _port(8 + HOST_WIDTH / 2, y, arm.left, palette),
        _port(WIDTH - 8 - HOST_WIDTH / 2, y, arm.right, palette),
    ]
    count = len(arm.stations)
    step = (right - left) / (count + 1)
    width = min(STATION_WIDTH, step * 0.8)
    parts += [_station(left + step * (i + 1), y, width, name, arm, palette) for i, name in enumerate(arm.stations)]
    return "".join(parts)


def _station(x: float, y: float, width: float, name: str, arm: Arm, palette: Palette) -> str:
    colour = palette.device(arm.name)
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


def _words(arms: list[Arm]) -> str:
    rows = [f"{arm.name}: " + (" then ".join(arm.stations) or "nothing between") for arm in arms]
    return "The bed. Host A and host B are joined by parallel links. " + "; ".join(rows) + "."
