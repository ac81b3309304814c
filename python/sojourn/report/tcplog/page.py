"""The page of a log: its header as a line, then each flow's figure with its packet accounting. It loads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from sojourn.report import bundle
from sojourn.report.numbers import count
from sojourn.report.shell import asset, policy, script_json, style, templates
from sojourn.version import __version__

if TYPE_CHECKING:
    from sojourn.report.tcplog.log import Log


@dataclass(frozen=True)
class Section:
    """One flow on the page."""

    number: int
    title: str
    facts: str
    told: list[str]
    spec: dict[str, Any]


def page(log: Log, sections: list[Section], start_ns: int) -> str:
    """Return the page; `start_ns` is the zero of its time axis."""
    scripts = {"bundle": bundle.script(), "script": asset("page.js")}
    return (
        templates()
        .get_template("tcplog.html")
        .render(
            name=log.folder.resolve().name,
            facts=_facts(log, start_ns),
            warning=_warning(log),
            others=len(log.flows) - len(sections),
            sections=sections,
            policy=policy(scripts.values()),
            style=Markup(style()),
            version=__version__,
            specs=[(f"flow-{place}", Markup(script_json(one.spec))) for place, one in enumerate(sections)],
            **{name: Markup(text) for name, text in scripts.items()},
        )
    )


def _facts(log: Log, start_ns: int) -> str:
    header, footer = log.header, log.footer
    command = " ".join(header.get("command") or [])
    totals = footer.get("totals") or {}
    seen = sum((totals.get(way) or {}).get("seen", 0) for way in ("in", "out"))
    lasted = footer.get("duration_s")
    parts = (
        f"Linux {header['kernel']} on {header.get('hostname') or 'this host'}" if header.get("kernel") else "",
        f"first sample {_instant(header, start_ns)}" if start_ns else "",
        f"{lasted:.6g} s" if lasted else "",
        f"{count(len(log.flows))} flow{'s' * (len(log.flows) != 1)}, {count(seen)} packets" if seen else "",
        f"{count(log.filtered)} more kept out by filters" if log.filtered else "",
        f"of: {command}" if command else "",
    )
    return " · ".join(filter(None, parts))


def _instant(header: dict[str, Any], start_ns: int) -> str:
    if header.get("clock") == "MONOTONIC":
        return f"at {start_ns / 1e9:.6f} s of the monotonic clock"
    utc = datetime.fromtimestamp((start_ns / 1e9) - (header.get("tai_minus_utc_s") or 0), UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}.{start_ns // 1_000_000 % 1000:03d} UTC"


def _warning(log: Log) -> str:
    """Return why the log is incomplete; empty if it is complete."""
    if not log.footer and log.header:
        return "This log has no end: it was cut, and what is drawn is what was kept."
    if why := (log.footer.get("interruption") or {}).get("why"):
        return f"This log has a gap: {why}, and what passed from then on is not in it. Do not trust its end."
    if log.footer.get("conserved") is False:
        return "This log does not add up: packets are missing from its account. Do not trust it."
    return _sentence(log.footer.get("warning"))


def _sentence(text: str | None) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
