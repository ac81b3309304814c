"""The colours of the report: each device keeps its own in every figure and table, in light and in dark.

The hues are Okabe and Ito's, which people with colour-blindness tell apart; each device also has its own dash pattern
and its own symbol, so that a print in grey still reads. The page draws with CSS variables, so that one figure serves
both schemes and the printer; files for papers are drawn with the light colours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ink:
    """How one device is drawn."""

    slug: str
    light: str
    dark: str
    dash: tuple[int, ...]
    symbol: str


INKS = {
    "direct": Ink("direct", "#5b6470", "#a3adba", (5, 3), "circle"),
    "wire": Ink("wire", "#008f68", "#35c69a", (8, 3), "triangle-up"),
    "bridge": Ink("bridge", "#0067a8", "#5fb3f2", (1, 0), "square"),
    "bridge*2": Ink("bridge2", "#c84f00", "#ff9355", (10, 3, 2, 3), "diamond"),
    "bridge*3": Ink("bridge3", "#b0568c", "#e8a5cb", (4, 2, 1, 2), "triangle-down"),
    "bridge*4": Ink("bridge4", "#a97a00", "#eabb3f", (2, 2), "triangle-right"),
    "a/a": Ink("aa", "#8a7a4c", "#cdb978", (1, 2), "cross"),
    # Where senders are judged, a tool stands in a device's place.
    "probe": Ink("probe", "#0067a8", "#5fb3f2", (1, 0), "square"),
    "ping": Ink("ping", "#c84f00", "#ff9355", (6, 3), "diamond"),
}
OTHERS = (
    Ink("other1", "#3d7fae", "#8cc7ee", (6, 2), "triangle-left"),
    Ink("other2", "#7a5cc0", "#b9a3f0", (3, 3), "stroke"),
    Ink("other3", "#6b7a1f", "#bfd15c", (7, 2, 2, 2), "square"),
)
SERIES = ("bridge", "bridge*2", "wire", "bridge*3", "bridge*4", "direct")
"""Whose inks tell series apart, in this order."""
SURFACES = {
    "ink": ("#1c2127", "#e7ebf0"),
    "muted": ("#5d6670", "#a0a9b4"),
    "rule": ("#d9dde2", "#363d46"),
    "grid": ("#e9ecef", "#2a3038"),
    "paper": ("#ffffff", "#14181d"),
}
ORDER = list(INKS)


def ink(device: str) -> Ink:
    """The device's ink; a device that the palette does not know gets one of three by its name, always the same."""
    return INKS.get(device) or OTHERS[sum(device.encode()) % len(OTHERS)]


def ordered(devices: list[str]) -> list[str]:
    """Devices in the order in which every legend and table lists them."""
    return sorted(set(devices), key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


@dataclass(frozen=True)
class Palette:
    """Resolves names to colours: as CSS variables for the page, as plain colours for files."""

    for_page: bool

    def device(self, name: str) -> str:
        """The colour of a device."""
        return f"var(--device-{ink(name).slug})" if self.for_page else ink(name).light

    def series(self, place: int) -> str:
        """The colour of what stands beside others in one device's figure: nodes, receivers, loads."""
        inks = [*(INKS[name] for name in SERIES), *OTHERS]
        one = inks[place % len(inks)]
        return f"var(--device-{one.slug})" if self.for_page else one.light

    def surface(self, name: str) -> str:
        """The colour of text, rules or paper."""
        return f"var(--{name})" if self.for_page else SURFACES[name][0]


def css_variables(scheme: int) -> str:
    """The declarations of every colour, in the light scheme (0) or the dark one (1)."""
    inks = [*INKS.values(), *OTHERS]
    devices = [f"--device-{one.slug}: {(one.light, one.dark)[scheme]};" for one in inks]
    surfaces = [f"--{name}: {pair[scheme]};" for name, pair in SURFACES.items()]
    return " ".join(devices + surfaces)
