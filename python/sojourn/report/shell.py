"""The parts that every HTML page has: head, style, and a content security policy for its scripts without connections.

It knows neither runs nor logs.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from sojourn.report.palette import INKS, OTHERS, css_variables, symbol_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.devices import Ink
    from sojourn.report.figure import Key

DARK_REST = (
    "--wash: #1b2026; --accent: #7db8f5; --good: #5fcf95; --good-wash: #13251b; --warn: #e6b450; --warn-wash: #292110; "
    "--bad: #f08b84; --bad-wash: #2d1716;"
)


def style() -> str:
    """Return the style sheet, with every colour of both schemes."""
    swatches = " ".join(
        f".device-{one.slug} {{ --hue: var(--device-{one.slug}); }}" for one in [*INKS.values(), *OTHERS]
    )
    columns = " ".join(f".columns-{n} {{ --columns: {n}; }}" for n in (1, 2, 3))
    filled = {
        "@LIGHT@": css_variables(0),
        "@DARK@": css_variables(1),
        "@DARKREST@": DARK_REST,
        "@SWATCHES@": f"{swatches} {columns}",
    }
    text = asset("style.css")
    for name, value in filled.items():
        text = text.replace(name, value)
    return text


def asset(name: str) -> str:
    """Return a file of templates/."""
    return resources.files("sojourn.report").joinpath("templates", name).read_text(encoding="utf-8")


def templates() -> jinja2.Environment:
    """Return the environment of page templates by file name; output is escaped, and an undefined name is an error."""
    return jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False, loader=jinja2.FunctionLoader(asset)
    )


LINE = '<line x1="16" y1="6" x2="58" y2="6" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'


def legend_mark(one: Ink, key: Key = "line") -> Markup:
    """Return what stands beside a device of this ink in a legend: colours alone do not distinguish all devices."""
    if key == "swatch":
        return Markup('<span class="swatch device-{slug}"></span>').format(slug=one.slug)
    width, line = (58, LINE) if key == "line" else (12, "")
    return Markup(
        '<svg class="mark" viewBox="0 0 {width} 12" width="{width}" height="12" aria-hidden="true">'
        f'<path transform="translate(6 6) scale(4.5)" fill="{{colour}}" d="{{symbol}}"/>{line}</svg>'
    ).format(
        width=width,
        colour=f"var(--device-{one.slug})",
        symbol=symbol_path(one),
        dash=" ".join(map(str, one.dash)),
    )


def policy(scripts: Iterable[str]) -> str:
    """Return the content security policy of a page with these scripts."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Vega positions its marks through style attributes, and its tooltip adds a style element.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def script_json(spec: dict[str, Any]) -> str:
    """Return JSON that is safe inside a script element."""
    return json.dumps(spec, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
