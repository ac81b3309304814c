"""The pages of `match --report`, `tcplog plot` and `run published` in a real browser: quiet, accessible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis import crossings
from sojourn.report.crossings import page as page_of_matches
from sojourn.report.overview import write_overview
from sojourn.report.tcplog import draw
from tests.browser.accessible import seen_and_read
from tests.unit.made_up_tcp_flow import MadeFlow
from tests.unit.test_match_report import made
from tests.unit.test_published import a_run
from tests.unit.test_tcplog_plot import made as made_log

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

__all__ = ["made"]


def test_page_of_matches_is_quiet_and_accessible(browser: Browser, made: Path, tmp_path: Path) -> None:
    assert found_on(browser, made / "page.html", figures=True) == []
    relative = tmp_path / "page.html"
    relative.write_text(page_of_matches(crossings.read(made / "rows", 10**9), ["before", "after"], "1Gbit/s"))
    assert found_on(browser, relative, figures=True) == []


def test_page_of_a_log_of_tcp_is_quiet_and_accessible(browser: Browser, tmp_path: Path) -> None:
    made_log(tmp_path / "t", [MadeFlow(rounds=20), MadeFlow(rounds=20, family=6)], points="both", gap_every=300)
    draw(tmp_path / "t", tmp_path / "plot.html", [1])
    assert found_on(browser, tmp_path / "plot.html", figures=True) == []


def test_page_of_published_experiments_is_quiet_and_accessible(browser: Browser, tmp_path: Path) -> None:
    row = {"quantity": "device_latency", "device": "bridge", "reference": "direct", "icmp_bytes": 64}
    a_run(tmp_path / "bridge-latency", [{**row, "estimate": 1500.0}])
    write_overview(tmp_path, {"ping-wait": "no ping here"})
    assert found_on(browser, tmp_path / "index.html", figures=False) == []


def found_on(browser: Browser, path: Path, *, figures: bool) -> list[str]:
    """What axe finds on a page once it is drawn, in both schemes, after what the page said or asked for elsewhere."""
    page = browser.new_context(viewport={"width": 1200, "height": 844}, color_scheme="light").new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith(("file:", "data:")) else said.append(one.url))
    page.goto(path.as_uri())
    if figures:
        page.wait_for_selector("html[data-figures]", state="attached", timeout=60_000)
        assert page.get_attribute("html", "data-figures") == "drawn", said
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200, "the page scrolls sideways"
    found = seen_and_read(page)
    page.context.close()
    return said + found
