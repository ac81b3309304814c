"""What draws figures: Vega, Vega-Lite and Vega-Embed as one script, made once and cached; and figures as SVG.

Making it takes two seconds, so it is kept under $XDG_CACHE_HOME/sojourn, named by the version that made it. Where the
cache cannot be written, it is made anew each time.
"""

from __future__ import annotations

import contextlib
import os
from importlib.metadata import version
from pathlib import Path

from sojourn.records.whole_file import write_whole

VEGA_LITE = "6.4"
LEGENDS = {"legend": {"layout": {"top": {"direction": "vertical", "anchor": "start", "margin": 4}}}}
"""Legends above a panel, one below the other: a setting of Vega, which the schema of Vega-Lite does not have."""


def svg(specification: str) -> str:
    """Return a figure's specification for files as SVG."""
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(specification, vl_version=VEGA_LITE, config=LEGENDS)
    return drawn


def script() -> str:
    """Return the script, safe to embed in a <script> element."""
    path = _cache() / f"vega-{VEGA_LITE}-vl-convert-{version('vl-convert-python')}.js"
    with contextlib.suppress(OSError):
        kept = path.read_text(encoding="utf-8")
        if kept.endswith(END):
            return kept
    made = _make()
    with contextlib.suppress(OSError):
        _keep(path, made)
    return made


END = "\n//# complete\n"


def _make() -> str:
    import vl_convert

    made: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    return made.replace("</script", "<\\/script").replace("<!--", "<\\!--") + END


def _keep(path: Path, made: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, made)  # two reports at once: the last rename wins, and both scripts are the same


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "sojourn"
