"""Draw chosen flows of a log to a file: an HTML page, SVG or PNG, by the suffix of its name."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import altair as alt

from sojourn.errors import RequestError
from sojourn.records.whole_file import write_whole
from sojourn.report.marks import dress
from sojourn.report.palette import Palette
from sojourn.report.tcplog import words
from sojourn.report.tcplog.log import Log
from sojourn.report.tcplog.page import Section, page
from sojourn.report.tcplog.panels import WIDTH, chart
from sojourn.report.tcplog.traces import span_of, traces_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from sojourn.report.tcplog.log import Flow
    from sojourn.report.tcplog.traces import Traces

FORMS = (".html", ".svg", ".png")
SCALE = 2.0
"""Pixels of a PNG per point."""

LINE = 150
"""The most characters in a line below a figure."""

alt.data_transformers.disable_max_rows()


def draw(folder: Path, target: Path, numbers: Collection[int] = ()) -> int:
    """Draw these flows (by default those with the most packets) to a file; return how many were drawn."""
    if target.suffix not in FORMS:
        raise RequestError(f"{target}: expected a file that ends in {', '.join(FORMS[:-1])} or {FORMS[-1]}")
    log = Log.read(folder)
    flows = log.chosen(numbers)
    samples = log.samples(flows)
    if not any(frame.height for frame in samples.values()):
        raise RequestError(f"{folder}: nothing of these flows was logged: their packets were {_dispositions(flows)}")
    start, span = span_of(samples.values())
    shown = [
        (flow, traces_of(samples[flow.key], log.gaps_of(flow), start, span))
        for flow in flows
        if samples[flow.key].height
    ]
    if target.suffix == ".html":
        sections = [_section(flow, traces, log, span) for flow, traces in shown]
        octets = page(log, sections, start).encode()
    else:
        octets = _picture([_file(flow, traces, log, span) for flow, traces in shown], target.suffix)
    write_whole(target, octets)
    return len(shown)


def _dispositions(flows: Collection[Flow]) -> str:
    named = {
        disposition
        for flow in flows
        for disposition, packets in flow.dispositions.items()
        if packets and disposition != "seen"
    }
    return ", ".join(sorted(named)) or "kept out by filters"


def _section(flow: Flow, traces: Traces, log: Log, span: tuple[float, float]) -> Section:
    palette = Palette(for_page=True)
    spec: dict[str, Any] = chart(traces, span, palette).to_dict(validate=False)
    told = words.account_of(flow, log, log.gaps_of(flow), traces)
    return Section(
        flow.number, words.title_of(flow), words.facts_of(flow, log), told, spec | {"config": dress(palette)}
    )


def _file(flow: Flow, traces: Traces, log: Log, span: tuple[float, float]) -> Any:
    """Return the figure of one flow with the text above and below it."""
    palette = Palette(for_page=False)
    told = textwrap.wrap(" ".join(words.account_of(flow, log, log.gaps_of(flow), traces)), LINE)
    below = (
        alt.Chart(alt.InlineData(values=[{}]))
        .mark_text(align="left", baseline="top", text=told, color=palette.surface("muted"), fontSize=11, lineHeight=15)
        .encode(x=alt.value(0), y=alt.value(0))
        .properties(width=WIDTH, height=15 * len(told))
    )
    title = alt.TitleParams(
        words.title_of(flow), subtitle=words.facts_of(flow, log), subtitleColor=palette.surface("muted"),
        fontSize=14, subtitleFontSize=11.5, offset=10,
    )  # fmt: skip
    return alt.vconcat(chart(traces, span, palette), below, spacing=6, title=title)


def _picture(charts: list[Any], form: str) -> bytes:
    import vl_convert

    from sojourn.report.bundle import VEGA_LITE

    whole = alt.vconcat(*charts, spacing=34) if len(charts) > 1 else charts[0]
    padding = {"left": 12, "right": 12, "top": 12, "bottom": 12}
    config = dress(Palette(for_page=False)) | {"padding": padding}
    spec = json.dumps(whole.to_dict(validate=False) | {"config": config})
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    return svg.encode() if form == ".svg" else vl_convert.svg_to_png(svg, scale=SCALE)
