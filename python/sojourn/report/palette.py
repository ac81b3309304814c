"""The colours of the report: each device keeps its own in every figure and table, in light and in dark.

The hues are Okabe and Ito's, darkened for white paper. As devices are more than the colours that people with
colour-blindness can distinguish, devices of like colour differ in dash pattern and symbol, which a print in grey needs,
too (tests/unit/test_palette.py). The page draws with CSS variables, so that one figure serves
both schemes and the printer; files for papers are drawn with the light colours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn import devices
from sojourn.devices import Ink
from sojourn.devices.mode import (
    BOW_TIE,
    CHEVRON_DOWN,
    CHEVRON_LEFT,
    CHEVRON_UP,
    HOURGLASS,
    LEVEL,
    SPARK,
    TEE,
    UPRIGHT,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

INSIDE, OUTSIDE = "emulator's log", "from outside"
FORMULA, PAPER = "formula", "published"
A_A_PLACE = 30
"""The place of the A/A control among the devices, in legends and tables."""


def device_inks(places: range) -> dict[str, Ink]:
    """Return the inks that device modes declare, in their order."""
    modes = [mode for mode in devices.modes().values() if mode.place in places]
    plain = {mode.name: {"": mode.ink} | dict(mode.inks) for mode in modes}
    return {name + more: ink for name, inks in plain.items() for more, ink in inks.items() if ink}


INKS = {
    **device_inks(range(A_A_PLACE)),
    "a/a": Ink("aa", "#8a7a4c", "#cdb978", (1, 2), "cross"),
    **device_inks(range(A_A_PLACE, 1_000_000)),
    # What a formula predicts, and what a paper reports, beside any device.
    FORMULA: Ink("formula", "#1c2127", "#e7ebf0", (3, 5), CHEVRON_UP),
    PAPER: Ink("published", "#1c2127", "#e7ebf0", (9, 5), SPARK),
    # In figures of an emulator's errors, the source (its log, or the stream) has a colour instead of a device.
    INSIDE: Ink("inside", "#7a5cc0", "#b9a3f0", (1, 0), "square"),
    OUTSIDE: Ink("outside", "#c84f00", "#ff9355", (6, 3), "diamond"),
    # In figures of the cost of a log, its traffic, its place or its kind of packet has a colour instead of a device.
    "1 flow": Ink("flow1", "#0067a8", "#5fb3f2", (1, 0), "square"),
    "2 flows": Ink("flow2", "#008f68", "#35c69a", (8, 3), "triangle-up"),
    "5 flows": Ink("flow5", "#b0568c", "#e8a5cb", (4, 2, 1, 2), "triangle-down"),
    "10 flows": Ink("flow10", "#c84f00", "#ff9355", (6, 3), "diamond"),
    "50 flows": Ink("flow50", "#a97a00", "#eabb3f", (2, 2), "triangle-right"),
    "100 flows": Ink("flow100", "#7a5cc0", "#b9a3f0", (7, 2, 2, 2), "circle"),
    "sender logs": Ink("log-sender", "#0067a8", "#5fb3f2", (1, 0), "square"),
    "receiver logs": Ink("log-receiver", "#c84f00", "#ff9355", (6, 3), "diamond"),
    "both logs": Ink("log-both", "#008f68", "#35c69a", (8, 3), "triangle-up"),
    "logged": Ink("packet-logged", "#0067a8", "#5fb3f2", (1, 0), "square"),
    "between samples": Ink("packet-decimated", "#c84f00", "#ff9355", (6, 3), "diamond"),
    "disabled": Ink("packet-disabled", "#5b6470", "#a3adba", (5, 3), "circle"),
    "placebo": Ink("packet-placebo", "#b0568c", "#e8a5cb", (4, 2, 1, 2), "triangle-down"),
    "with a setting": Ink("slice-with", "#c84f00", "#ff9355", (6, 3), "diamond"),
    # In figures of the log's accuracy, its setting or a packet's direction has a colour instead of a device.
    "without the log": Ink("log-off", "#5b6470", "#a3adba", (5, 3), "circle"),
    "without it again": Ink("log-again", "#a97a00", "#eabb3f", (2, 2), "triangle-right"),
    "with the log": Ink("log-on", "#0067a8", "#5fb3f2", (1, 0), "square"),
    "before single messages": Ink("read-messages", "#0067a8", "#5fb3f2", (1, 0), "square"),
    "during a bulk transfer": Ink("read-bulk", "#c84f00", "#ff9355", (6, 3), "diamond"),
    "sent": Ink("way-out", "#0067a8", "#5fb3f2", (1, 0), "square"),
    "received": Ink("way-in", "#c84f00", "#ff9355", (6, 3), "diamond"),
    # In figures of senders, a tool has a colour instead of a device.
    "probe": Ink("probe", "#0067a8", "#5fb3f2", (1, 0), "square"),
    "ping": Ink("ping", "#c84f00", "#ff9355", (6, 3), "diamond"),
}
OTHERS = (
    Ink("other1", "#3d7fae", "#8cc7ee", (2, 2, 2, 2, 8, 2), "circle"),
    Ink("other2", "#7a5cc0", "#b9a3f0", (16, 6), "triangle-up"),
    Ink("other3", "#6b7a1f", "#bfd15c", (12, 4), HOURGLASS),
    Ink("other4", "#3d7fae", "#8cc7ee", (16, 3, 3, 3), BOW_TIE),
    Ink("other5", "#7a5cc0", "#b9a3f0", (2, 9), TEE),
    Ink("other6", "#6b7a1f", "#bfd15c", (5, 2, 5, 6), UPRIGHT),
    Ink("other7", "#3d7fae", "#8cc7ee", (12, 7), LEVEL),
    Ink("other8", "#7a5cc0", "#b9a3f0", (9, 4, 1, 4, 1, 4), CHEVRON_DOWN),
    Ink("other9", "#6b7a1f", "#bfd15c", (1, 5), CHEVRON_LEFT),
)
"""The inks of unknown devices (a label, a simulated line), by their order. The first have the hues of them all."""
HUES = 3
"""The number of hues in OTHERS, of whose length it is a divisor: so each hue gets each symbol, at other turns."""
TRACES = {
    "congestion window": Ink("cwnd", "#0067a8", "#5fb3f2", (1, 0), "circle"),
    "slow-start threshold": Ink("ssthresh", "#c84f00", "#ff9355", (7, 3), "square"),
    "in flight": Ink("in-flight", "#8fa3b5", "#6f8295", (1, 0), "circle"),
    "peer's window": Ink("peer-window", "#008f68", "#35c69a", (2, 2), "diamond"),
    "smoothed": Ink("smoothed", "#0067a8", "#5fb3f2", (1, 0), "circle"),
    "last sample": Ink("last-sample", "#a9bccd", "#5a6d80", (1, 0), "circle"),
    "minimum": Ink("minimum", "#008f68", "#35c69a", (7, 3), "square"),
    "delivery rate": Ink("delivery", "#0067a8", "#5fb3f2", (1, 0), "circle"),
    "pacing rate": Ink("pacing", "#c84f00", "#ff9355", (7, 3), "square"),
    "window offered": Ink("offered", "#0067a8", "#5fb3f2", (1, 0), "circle"),
    "waiting to be read": Ink("unread", "#c84f00", "#ff9355", (7, 3), "square"),
    "recovery": Ink("recovery", "#a97a00", "#eabb3f", (1, 0), "square"),
    "loss": Ink("loss", "#b0568c", "#e8a5cb", (1, 0), "square"),
    "skipped": Ink("skipped", "#5b6470", "#a3adba", (1, 0), "square"),
}
"""The lines drawn of a TCP connection over time; none is a device."""
SERIES = ("bridge", "bridge*2", "wire", "bridge*3", "bridge*4", "direct")
"""The devices whose inks distinguish series, in this order."""
SURFACES = {
    "ink": ("#1c2127", "#e7ebf0"),
    "muted": ("#5d6670", "#a0a9b4"),
    "rule": ("#d9dde2", "#363d46"),
    "grid": ("#e9ecef", "#2a3038"),
    "paper": ("#ffffff", "#14181d"),
}
SYMBOLS = {
    "circle": "M-1,0A1,1 0 1 1 1,0A1,1 0 1 1 -1,0Z",
    "square": "M-0.9,-0.9H0.9V0.9H-0.9Z",
    "diamond": "M0,-1L0.8,0L0,1L-0.8,0Z",
    "cross": "M-0.35,-1H0.35V-0.35H1V0.35H0.35V1H-0.35V0.35H-1V-0.35H-0.35Z",
    "triangle-up": "M0,-0.9L0.9,0.9H-0.9Z",
    "triangle-down": "M0,0.9L0.9,-0.9H-0.9Z",
    "triangle-left": "M-0.9,0L0.9,-0.9V0.9Z",
    "triangle-right": "M0.9,0L-0.9,-0.9V0.9Z",
}
"""The paths of the symbols that Vega-Lite names, within a square from -1 to 1."""
ORDER = list(INKS)


def inks(names: Iterable[str], among: Iterable[str] = ()) -> dict[str, Ink]:
    """Return the ink of each name, no two alike: that of a known device is its own, others have theirs by their order.

    `among`: the devices of the whole report, so that each has the same ink in figures that show some of them.
    """
    several, report = ordered(list(names)), ordered(list(among))
    unknown = [name for name in dict.fromkeys([*report, *several]) if name not in INKS]
    return {name: INKS.get(name) or _other(unknown.index(name)) for name in several}


def _other(place: int) -> Ink:
    """Return the ink of an unknown device; beyond those of OTHERS, hue and symbol are combined anew."""
    turn, at = divmod(place, len(OTHERS))
    one = OTHERS[at]
    return one._replace(dash=one.dash + (1, 2) * turn, symbol=OTHERS[(at + turn) % len(OTHERS)].symbol)


def symbol_path(one: Ink) -> str:
    """Return the path of an ink's symbol, within a square from -1 to 1."""
    return SYMBOLS.get(one.symbol, one.symbol)


def ordered(devices: list[str]) -> list[str]:
    """Return the devices in the order of every legend and table."""
    return sorted(set(devices), key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


@dataclass(frozen=True)
class Palette:
    """The colour of each name: CSS variables for the page, plain colours for files."""

    for_page: bool
    devices: tuple[str, ...] = ()
    """The devices of the report: see `inks`."""

    def inks(self, names: Iterable[str]) -> dict[str, Ink]:
        """Return the ink of each name, in the order of legends."""
        return inks(names, self.devices)

    def device(self, name: str) -> str:
        """The colour of a device."""
        return self.hue(self.inks([name])[name])

    def hue(self, one: Ink) -> str:
        """Return the colour of an ink."""
        return f"var(--device-{one.slug})" if self.for_page else one.light

    def series(self, place: int) -> str:
        """Return the colour of a series in one device's figure: nodes, receivers, loads."""
        several = [*(INKS[name] for name in SERIES), *OTHERS[:HUES]]
        return self.hue(several[place % len(several)])

    def trace(self, name: str) -> str:
        """Return the colour of a quantity of a connection."""
        one = TRACES[name]
        return f"var(--trace-{one.slug})" if self.for_page else one.light

    def surface(self, name: str) -> str:
        """Return the colour of text, rules or paper."""
        return f"var(--{name})" if self.for_page else SURFACES[name][0]


def css_variables(scheme: int) -> str:
    """Return the CSS declarations of every colour, in the light scheme (0) or the dark one (1)."""
    devices = [f"--device-{one.slug}: {(one.light, one.dark)[scheme]};" for one in [*INKS.values(), *OTHERS]]
    traces = [f"--trace-{one.slug}: {(one.light, one.dark)[scheme]};" for one in TRACES.values()]
    surfaces = [f"--{name}: {pair[scheme]};" for name, pair in SURFACES.items()]
    return " ".join(devices + traces + surfaces)
