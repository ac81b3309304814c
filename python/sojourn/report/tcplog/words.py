"""The text above and below a flow's figure: its identity, and its packet accounting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.records.log_fields import fields_of, unasked_of
from sojourn.report.numbers import count
from sojourn.report.tcplog.log import DRAWN

if TYPE_CHECKING:
    from sojourn.report.tcplog.log import Flow, Log
    from sojourn.report.tcplog.traces import Traces

SKIPPED = ("full", "broken", "no-socket", "no-state", "control", "unparsed", "no-room", "late")
QUIET = ("decimated", "unchanged", "early", "filtered", "forgotten")
"""Dispositions that the options request."""

WHY = {
    "full": "no room in a ring",
    "broken": "not written",
    "unchanged": "nothing chosen had changed",
    "early": "within the minimum interval",
    "forgotten": "the flight recorder kept them and nothing went wrong",
}


def title_of(flow: Flow) -> str:
    """Return both ends, the local one first."""
    return f"{flow.local} ↔ {flow.remote}"


def facts_of(flow: Flow, log: Log) -> str:
    """Return number, algorithm, program and kernel."""
    who, _, block, number = flow.key
    where = f" of {who}, block {block}" if block or (who and len({one.key[:2] for one in log.flows}) > 1) else ""
    program = f"{flow.command} (process {flow.process})" if flow.command else ""
    kernel = f"Linux {log.header['kernel']}" if log.header.get("kernel") else ""
    parts = (f"flow {number}{where}", flow.algorithm, program, kernel, str(log.header.get("hostname") or ""))
    return " · ".join(filter(None, parts))


def account_of(flow: Flow, log: Log, gaps: pl.DataFrame, traces: Traces) -> list[str]:
    """Return sentences on the flow's packets by disposition, the log's gaps, and the thinning of its figure."""
    return [*_dispositions(flow, log), *_gaps(gaps), *_unasked(log), *_drawn(traces)]


def _dispositions(flow: Flow, log: Log) -> list[str]:
    dispositions = flow.dispositions
    if not dispositions:
        return []
    every = _every(log.header.get("options") or {})
    words = [f"{count(dispositions.get('logged', 0))} logged"]
    for disposition in (*QUIET, *SKIPPED):
        if dispositions.get(disposition):
            why = every if disposition == "decimated" else WHY.get(disposition, "")
            kind = "skipped" if disposition in SKIPPED else disposition
            words.append(f"{count(dispositions[disposition])} {kind}" + f" ({why})" * bool(why))
    if not any(dispositions.get(disposition) for disposition in SKIPPED):
        words.append("0 skipped")
    told = sum(packets for disposition, packets in dispositions.items() if disposition != "seen")
    odd = "" if told == dispositions.get("seen") else f": {count(told)} in all, so this log does not add up"
    return [f"Of {count(dispositions.get('seen', 0))} packets: {', '.join(words)}{odd}."]


def _every(options: dict[str, Any]) -> str:
    ppl = options.get("ppl")
    return f"1 in {count(ppl)} {options.get('ppl_by') or 'packet'}s logged" if isinstance(ppl, int) and ppl > 1 else ""


def _gaps(gaps: pl.DataFrame) -> list[str]:
    if gaps.is_empty():
        return []
    full = gaps.filter(pl.col("missing") > 0)
    said = []
    if not full.is_empty():
        many = "a gap" if full.height == 1 else f"{count(full.height)} gaps"
        lost = f"{count(int(full['missing'].sum()))} records had no room"
        said.append(f"Grey: {many} of the log, where {lost}; any flow may miss some of them.")
    if full.height < gaps.height:
        said.append("The log's programs were taken away: what passed from then on is not in it.")
    return said


def _unasked(log: Log) -> list[str]:
    """Return what is missing because no option requested it: a missing mark does not mean that nothing happened."""
    missing = unasked_of(log.header, DRAWN)
    fields = fields_of(log.header)
    return [f"Logged with --fields {fields}: {', '.join(missing)} cannot be drawn."] if missing else []


def _drawn(traces: Traces) -> list[str]:
    if not traces.is_thinned:
        return [f"{count(traces.samples)} samples; a value is drawn until the next sample changes it."]
    kept = "the lowest and the highest of every column of pixels are kept"
    return [f"{count(traces.samples)} samples, thinned to what a screen shows; {kept}."]
