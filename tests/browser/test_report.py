"""The report in a real browser: verdict, figures, no error, no request, both schemes, a narrow window, paper.

The run is made as a user makes one, by `sojourn run` on the simulated bed. The content policy forbids `eval`, so the
tests wait for attributes that the page sets, and for nothing else.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from sojourn.analysis import analyse
from sojourn.report import write_report
from tests.browser.accessible import violations
from tests.browser.looks import looks, schemes
from tests.unit import made_up_costs, made_up_truth
from tests.unit import made_up_emulator as emulated
from tests.unit.in_process import sojourn
from tests.unit.test_tcp_perturbation import made_up_run as made_up_perturbation

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.browser.looks import Scheme

FIGURES = {"rtt_cdf", "rtt_over_time", "size_lines", "paired_differences", "a_a_control"}


@dataclass
class Opened:
    """A report in a window, and everything that the browser had to say about it."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of `bridge-latency` on the simulated bed."""
    return _run(tmp_path_factory.mktemp("runs") / "few", "probe.icmp_bytes=[64, 772, 1480]")


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of `throughput` on the simulated bed: streams, and no pairs."""
    return _sojourn(
        tmp_path_factory.mktemp("runs") / "streams", "throughput", "trials.rounds=3", "trials.duration=20ms"
    )


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An emulator that was made up: delays, and losses that come by chance."""
    cells = [
        emulated.Cell(f"delay {ms}ms", emulated.constant(ms * 10**6), emulated.stays(ms * 10**6), packets=300)
        for ms in (1, 10, 100)
    ]
    loses = emulated.losing({"independent": {"probability": 0.1}})
    cells.append(emulated.Cell("loss 10%", loses, emulated.stays(0), lambda rng, n: rng.random(n) < 0.1, packets=1000))
    path = emulated.Made(cells, published='"dummynet2003_delay"').write(tmp_path_factory.mktemp("runs") / "emulator")
    analyse(path)
    write_report(path)
    return path


@pytest.fixture(scope="module")
def of_the_log(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The three studies of the log of TCP's state, made up: their cost, few transfers, and what they change."""
    folder = tmp_path_factory.mktemp("runs")
    made_up_costs.write(folder / "cost", made_up_costs.Machine(left={1: 0.9}, skipped=1), ["flows=1,10"])
    made_up_costs.write(
        folder / "few", made_up_costs.Machine(), ["flows=1,10", "path=gso", "repetitions=8", "at_once=8"]
    )
    made_up_perturbation(folder / "perturbation", 0.4)
    for name in ("cost", "few", "perturbation"):
        analyse(folder / name)
        write_report(folder / name)
    made_up_truth.write(folder / "truth")
    write_report(folder / "truth", vector=True)
    return {name: folder / name for name in OF_THE_LOG}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with more cells than stand side by side: one is chosen."""
    return _run(tmp_path_factory.mktemp("runs") / "many", "probe.icmp_bytes=[64, 256, 512, 1024, 1480]")


@looks
def test_report_is_complete_and_has_no_console_errors(browser: Browser, run: Path, scheme: Scheme, width: int) -> None:
    opened = _open(browser, run, scheme, width)
    verdict = json.loads((run / "analysis" / "verdict.json").read_text())
    assert opened.page.locator("#verdict .sentence").inner_text().replace("\u00a0", " ") == verdict["sentence"]
    badges = [one.lower() for one in opened.page.locator("#verdict .badge").all_inner_texts()]
    assert badges == [verdict["verdict"], *(["simulated"] if verdict["simulated"] else [])]
    found = opened.page.locator("figure").evaluate_all("all => all.map(one => one.id.replace('figure-', ''))")
    assert set(found) == FIGURES
    _every_figure_is_drawn(opened.page)
    assert _page_width(opened.page) <= width, "the page scrolls sideways"
    opened.page.locator("details").evaluate_all("all => { for (const one of all) one.open = true; }")
    assert _page_width(opened.page) <= width, "the page scrolls sideways once everything is opened"
    assert opened.said == []
    assert opened.asked_for == [(run / "report" / "index.html").as_uri()]


@looks
def test_report_of_streams_is_complete_and_has_no_console_errors(
    browser: Browser, streams: Path, scheme: Scheme, width: int
) -> None:
    opened = _open(browser, streams, scheme, width)
    verdict = json.loads((streams / "analysis" / "verdict.json").read_text())
    assert opened.page.locator("#verdict .sentence").inner_text().replace("\u00a0", " ") == verdict["sentence"]
    found = opened.page.locator("figure").evaluate_all("all => all.map(one => one.id.replace('figure-', ''))")
    assert set(found) >= {"frames_over_size", "bits_over_size", "gap_over_size"}
    assert opened.page.locator("#table-rates tbody tr").count() == 9  # three sizes, three paths
    assert opened.page.locator(".key .value").count() >= 4
    _every_figure_is_drawn(opened.page, least=2)
    opened.page.locator("details").evaluate_all("all => { for (const one of all) one.open = true; }")
    assert _page_width(opened.page) <= width, "the page scrolls sideways"
    assert opened.said == []
    assert opened.asked_for == [(streams / "report" / "index.html").as_uri()]


@looks
def test_report_of_an_emulator_is_complete_and_has_no_console_errors(
    browser: Browser, emulator: Path, scheme: Scheme, width: int
) -> None:
    opened = _open(browser, emulator, scheme, width)
    verdict = json.loads((emulator / "analysis" / "verdict.json").read_text())
    assert opened.page.locator("#verdict .sentence").inner_text().replace("\u00a0", " ") == verdict["sentence"]
    found = opened.page.locator("figure").evaluate_all("all => all.map(one => one.id.replace('figure-', ''))")
    assert set(found) >= {"emulation_error_cdf", "error_over_delay", "losses_over_time", "autocorrelation"}
    assert opened.page.locator("#table-all_checks tbody tr").count() == len(verdict["checks"])
    assert opened.page.locator("#table-published_dummynet2003_delay tbody tr").count() == 10
    _every_figure_is_drawn(opened.page, least=2)
    opened.page.locator("details").evaluate_all("all => { for (const one of all) one.open = true; }")
    assert _page_width(opened.page) <= width, "the page scrolls sideways"
    assert opened.said == []
    assert opened.asked_for == [(emulator / "report" / "index.html").as_uri()]


OF_THE_LOG = {
    "cost": {"cost_over_detail", "cost_over_where", "cost_controls", "cost_programs", "cost_skipped", "cost_over_time"},
    "few": {"cost_over_detail", "cost_over_where", "cost_controls", "cost_programs", "cost_over_time"},
    "perturbation": {"changes", "distributions", "rounds"},
    "truth": {"agreement", "apart", "back_offs", "reno_windows", "cubic_windows"},
}
"""The studies of the log of TCP's state, and their figures."""


@looks
@pytest.mark.parametrize("study", OF_THE_LOG)
def test_report_of_a_tcp_log_is_complete_and_has_no_console_errors(
    browser: Browser, of_the_log: dict[str, Path], study: str, scheme: Scheme, width: int
) -> None:
    path = of_the_log[study]
    opened = _open(browser, path, scheme, width)
    verdict = json.loads((path / "analysis" / "verdict.json").read_text())
    assert opened.page.locator("#verdict .sentence").inner_text().replace("\u00a0", " ") == verdict["sentence"]
    found = opened.page.locator("figure").evaluate_all("all => all.map(one => one.id.replace('figure-', ''))")
    assert set(found) == OF_THE_LOG[study]
    _every_figure_is_drawn(opened.page, least=2)
    _every_table_can_be_read(opened.page)
    said = opened.page.locator("main").inner_text()
    assert ("too few transfers for an interval: 2 of 6" in said) == (study == "few")
    assert "95 % CI \u2013" not in said
    opened.page.locator("details").evaluate_all("all => { for (const one of all) one.open = true; }")
    assert _page_width(opened.page) <= width, "the page scrolls sideways"
    assert opened.said == []
    assert opened.asked_for == [(path / "report" / "index.html").as_uri()]


def test_the_scheme_follows_the_switch(browser: Browser, run: Path) -> None:
    opened = _open(browser, run, "light", 1200)
    page, light = opened.page, (_colour(opened.page, "body"), _figure_ink(opened.page))
    page.get_by_role("button", name="Switch between light and dark").click()
    dark = (_colour(page, "body"), _figure_ink(page))
    assert light[0] != dark[0]
    assert light[1] != dark[1], "figures follow the scheme without being drawn again"
    page.emulate_media(media="print")
    assert (_colour(page, "body"), _figure_ink(page)) == light, "paper is always light"
    assert opened.said == []


def test_selecting_a_cell_changes_the_figure(browser: Browser, many: Path) -> None:
    opened = _open(browser, many, "light", 1200)
    figure = opened.page.locator("#figure-rtt_cdf")
    before = figure.locator(".plot svg").inner_html()
    figure.locator("select").select_option(label="1480 B")
    for _ in range(300):
        if figure.locator(".plot svg").inner_html() != before:
            break
        opened.page.wait_for_timeout(100)
    assert figure.locator(".plot svg").inner_html() != before
    assert opened.said == []


def test_doubtful_verdict_is_shown_at_the_top(browser: Browser, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    path = folder / "analysis" / "verdict.json"
    finding = {
        "name": "sender_late",
        "severity": "doubtful",
        "where": "bridge",
        "sentence": "9 % left late",
        "value": 0.09,
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | {"verdict": "doubtful", "findings": [finding]}))
    write_report(folder)
    opened = _open(browser, folder, "light", 390)
    assert opened.page.locator("#verdict .badge").first.inner_text().lower() == "doubtful"
    top = opened.page.locator("#verdict .why").bounding_box()
    assert top is not None
    assert top["y"] < 844, "the reasons are on the first screen of a telephone"
    assert "9 % left late" in opened.page.locator("#verdict").inner_text().replace("\u00a0", " ")


@schemes
def test_report_is_accessible_by_keyboard_and_screen_reader(browser: Browser, run: Path, scheme: Scheme) -> None:
    opened = _open(browser, run, scheme, 1200)
    opened.page.locator("details").evaluate_all("all => { for (const one of all) one.open = true; }")
    assert violations(opened.page) == []


@schemes
def test_every_control_of_a_report_is_operated_by_the_keyboard_alone(
    browser: Browser, many: Path, scheme: Scheme
) -> None:
    opened = _open(browser, many, scheme, 1200)
    page = opened.page
    page.emulate_media(reduced_motion="reduce")  # what has the focus is in the window at once
    closed = _reached_by_tab(page)
    for name in ("Switch between light and dark", "How to cite this run", "1480 B", "The bed"):
        assert any(name in one for one in closed), (name, closed)

    _to(page, "button.scheme")
    before = _colour(page, "body")
    page.keyboard.press("Enter")
    assert _colour(page, "body") != before
    page.keyboard.press("Space")
    assert _colour(page, "body") == before

    _to(page, ".contents a[href='#record']")
    page.keyboard.press("Enter")
    _until(page, "document.getElementById('record').getBoundingClientRect().top < innerHeight")
    assert page.evaluate("location.hash") == "#record"

    _to(page, "main > details:last-of-type > summary")
    for key, is_open in (("Enter", True), ("Space", False), ("Space", True)):
        page.keyboard.press(key)
        assert page.locator("main > details:last-of-type").evaluate("one => one.open") == is_open, key

    _to(page, "#figure-rtt_cdf select")
    curve = page.locator("#figure-rtt_cdf .plot svg").inner_html()
    page.keyboard.press("End")
    _until(page, "before => document.querySelector('#figure-rtt_cdf .plot svg').innerHTML != before", curve)

    page.set_viewport_size({"width": 390, "height": 844})  # where a table is wider than its place
    _to(page, "#table-device_latency .scroll")
    page.keyboard.press("ArrowRight")
    _until(page, "document.activeElement.scrollLeft > 0")

    for summary in page.locator("details:not([open]) > summary").all():
        if summary.is_visible():
            summary.focus()
            page.keyboard.press("Enter")
    assert len(_reached_by_tab(page)) > len(closed)
    assert opened.said == []


CONTROLS = "a[href], button, select, input, textarea, summary, [tabindex='0']"
FOCUSED = """async () => {
  await new Promise(shown => requestAnimationFrame(() => requestAnimationFrame(shown)));  // it is scrolled to by then
  const one = document.activeElement, style = getComputedStyle(one), place = one.getBoundingClientRect();
  return {
    at: controls.indexOf(one),
    outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    colours: [style.outlineColor, getComputedStyle(document.body).backgroundColor],
    inside: place.bottom > 0 && place.top < innerHeight,
  };
}"""


def _reached_by_tab(page: Page) -> list[str]:
    """The controls that are shown: Tab comes to each, in their order, and each is then seen to have the focus."""
    names: list[str] = page.evaluate(
        f"""() => {{
          window.controls = [...document.querySelectorAll("{CONTROLS}")].filter(one => one.checkVisibility());
          controls[1].focus();
          return controls.map(one => one.getAttribute("aria-label") || one.textContent.trim());
        }}"""
    )
    order = []
    for place in range(len(names)):
        page.keyboard.press("Tab" if place else "Shift+Tab")
        focused = page.evaluate(FOCUSED)
        name = names[focused["at"]] if focused["at"] >= 0 else "nothing"
        assert focused["outline"] >= 1, f"{name}: its focus is not seen"
        assert _contrast(*focused["colours"]) >= 3, f"{name}: its focus is hardly seen: {focused}"
        assert focused["inside"], f"{name}: it is outside the window"
        order.append(focused["at"])
    assert order == list(range(len(names)))
    return names


def _until(page: Page, expression: str, argument: object = None) -> None:
    """Wait until an expression is true; the page's policy forbids what Playwright's own waiting evaluates there."""
    end = time.monotonic() + 10
    while not page.evaluate(expression, argument):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def _to(page: Page, selector: str) -> None:
    """Come to a control by Tab, from the one before it; to the first from the one after it."""
    found = page.evaluate(
        f"""to => {{
          const all = [...document.querySelectorAll("{CONTROLS}")].filter(one => one.checkVisibility());
          const at = all.indexOf(document.querySelector(to));
          (all[at - 1] || all[at + 1]).focus();
          return at;
        }}""",
        selector,
    )
    assert found >= 0, f"no control {selector}"
    page.keyboard.press("Tab" if found else "Shift+Tab")
    assert page.evaluate("to => document.activeElement === document.querySelector(to)", selector), selector


def _contrast(*colours: str) -> float:
    """WCAG's ratio of two colours such as rgb(0, 103, 168)."""
    light = []
    for colour in colours:
        shares = [float(one) / 255 for one in re.findall(r"[0-9.]+", colour)[:3]]
        linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in shares]
        light.append(sum(a * b for a, b in zip(linear, (0.2126, 0.7152, 0.0722), strict=True)))
    return (max(light) + 0.05) / (min(light) + 0.05)


def test_a_report_is_printed_by_one_command(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    done = sojourn("report", str(tmp_path / "run"), "--pdf")
    assert done.returncode == 0, done.stderr
    pdf = (tmp_path / "run/report/report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3
    assert len(pdf) > 100_000, "figures are missing"


def test_report_can_be_printed_from_the_browser(browser: Browser, run: Path, tmp_path: Path) -> None:
    opened = _open(browser, run, "dark", 1200)
    opened.page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True, print_background=True)
    assert (tmp_path / "report.pdf").stat().st_size > 100_000
    assert opened.said == []


def _run(out: Path, sizes: str) -> Path:
    return _sojourn(out, "bridge-latency", sizes, "pairs.rounds=8", "pairs.probes_per_block=24")


def _sojourn(out: Path, study: str, *settings: str) -> Path:
    sets = [word for one in settings for word in ("--set", one)]
    done = sojourn("run", study, "--quick", "--bed", "sim", *sets, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


def _open(browser: Browser, run: Path, scheme: Scheme, width: int) -> Opened:
    page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
    opened = Opened(page)
    page.on("console", lambda message: opened.said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: opened.said.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith("data:") else opened.asked_for.append(request.url)
    )
    page.goto((run / "report" / "index.html").as_uri())
    page.wait_for_selector("html[data-figures]", state="attached", timeout=60_000)
    assert page.get_attribute("html", "data-figures") == "drawn", opened.said
    return opened


def _every_figure_is_drawn(page: Page, least: int = 3) -> None:
    """Every place of a figure holds an SVG as wide as it can be, with marks in it."""
    for place in page.locator(".plot").all():
        name = place.get_attribute("id")
        box = place.locator("svg").bounding_box()
        assert box is not None, name
        assert box["width"] > 150, name
        assert box["height"] > 80, name
        marks = "path[d^='M'], line"
        drawn = place.locator(f".role-mark :is({marks})").count()
        assert drawn >= least, f"{name} has {drawn} marks"


def _every_table_can_be_read(page: Page) -> None:
    """Every cell says something that a person can read, in ink that stands out from what is behind it."""
    assert page.locator("table tbody tr").count() > 5
    cells = page.locator("table :is(td, th)").all_inner_texts()
    wrong = [cell for cell in cells if re.search(r"\b(nan|NaN|None|null|inf|Infinity|undefined)\b(?! program)", cell)]
    assert not wrong
    faint = page.locator("table tbody :is(td, th)").evaluate_all(CONTRAST)
    assert min(faint) >= 4.5, f"the faintest cell has a contrast of {min(faint):.2f}"


CONTRAST = """all => {
  const parts = text => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = one => {
    for (; one; one = one.parentElement) {
      const colour = parts(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.5) return colour;
    }
    return [255, 255, 255];
  };
  return all.map(one => {
    const [ink, paper] = [light(parts(getComputedStyle(one).color)), light(behind(one))];
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  });
}"""
"""WCAG's ratio of every cell's ink to what is behind it."""


def _page_width(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def _colour(page: Page, selector: str) -> str:
    return str(page.locator(selector).evaluate("one => getComputedStyle(one).backgroundColor"))


def _figure_ink(page: Page) -> str:
    line = page.locator("#figure-rtt_cdf .mark-line path").first
    return str(line.evaluate("one => getComputedStyle(one).stroke"))
