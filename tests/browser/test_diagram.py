"""The time–sequence diagram in a real browser: quiet, operable by keyboard and pointer, true to the joined table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sojourn.export import Chosen
from sojourn.export.log import TcpLog
from sojourn.timeline.perfetto import stages_of
from sojourn.timeline.segments import joined
from sojourn.timeline.source import open_flow
from tests.browser.accessible import violations
from tests.browser.looks import looks
from tests.unit.in_process import sojourn
from tests.unit.made_up_path import MadePath

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.browser.looks import Scheme

LOST = {40: "before", 41: "full", 120: "managed"}
KNOWN = 72
"""The retransmission of segment 40, in the order of sending."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A page, and the rows that it is made of."""
    path = tmp_path_factory.mktemp("diagram")
    one = MadePath(segments=200, lost=LOST, wait=lambda at: 600_000 + at * 1_000)
    one.write(path)
    one.write_calls(path)
    one.write_taps(path, TcpLog.open(path / "t", Chosen()).minus_utc_ns)
    folders = [path / name for name in ("e", "c", "w")]
    words = [word for folder in folders for word in ("--records", str(folder))]
    done = sojourn("timeline", str(path / "t"), "--to", "html", *words)
    assert done.returncode == 0, done.stderr
    segments, _ = joined(open_flow(path / "t", 1, Chosen(), folders))
    return path / "t" / "timeline.html", segments.sort("sent_ns", maintain_order=True).to_dicts()


def opened(browser: Browser, path: Path, scheme: Scheme, width: int) -> tuple[Page, list[str]]:
    said: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda one: said.append(one.url) if not one.url.startswith(("file:", "data:")) else None)
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-diagram]", state="attached", timeout=60_000)
    assert page.get_attribute("html", "data-diagram") == "drawn", said
    return page, said


def stretch(page: Page) -> tuple[float, float]:
    page.wait_for_timeout(150)
    return float(page.get_attribute("html", "data-begin") or "nan"), float(
        page.get_attribute("html", "data-end") or "nan"
    )


@looks
def test_page_has_no_console_errors_fits_the_window_and_is_accessible(
    browser: Browser, made: tuple[Path, list[dict[str, Any]]], scheme: Scheme, width: int
) -> None:
    page, said = opened(browser, made[0], scheme, width)
    page.focus("#diagram")
    page.keyboard.press("n")
    page.wait_for_selector("#segment[data-segment='40']", timeout=30_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    assert said == []
    page.close()


def test_a_click_on_a_packet_shows_its_line_and_its_stages(
    browser: Browser, made: tuple[Path, list[dict[str, Any]]]
) -> None:
    path, rows = made
    page, said = opened(browser, path, "light", 1200)
    at = page.evaluate(f"diagram.placeOf({KNOWN - 1})")
    page.locator("#diagram canvas").click(position=at)
    page.wait_for_selector(f"#segment[data-segment='{KNOWN - 1}']", timeout=30_000)
    row = rows[KNOWN - 1]
    assert row["again"]
    shown = page.locator("#segment [data-column]").evaluate_all(
        "all => Object.fromEntries(all.map(one => [one.dataset.column, one.lastChild.textContent]))"
    )
    assert shown["seq"] == str(row["seq"])
    assert shown["emulator_number"] == str(row["emulator_number"])
    assert shown["tap_before"] == "near"
    assert shown["received_ns"].endswith(f"{row['received_ns']} ns")
    stages = page.locator("#segment .stages li").evaluate_all(
        "all => all.map(one => [one.dataset.stage, +one.dataset.ns])"
    )
    assert stages == [[name, end - begin] for name, begin, end in stages_of(row)]
    for place in (0, 40, 150):
        told = page.evaluate(f"diagram.rowOf({place}).then(row => diagram.stagesOf(row, {_stages()}))")
        assert [one[0] for one in told] == [one[0] for one in stages_of(rows[place])]
    assert said == []
    page.close()


def _stages() -> str:
    return "JSON.parse(document.getElementById('facts').textContent).stages"


def test_keys_and_pointer_zoom_and_pan(browser: Browser, made: tuple[Path, list[dict[str, Any]]]) -> None:
    page, said = opened(browser, made[0], "light", 1200)
    whole = stretch(page)
    page.focus("#diagram")
    page.keyboard.press("+")
    near = stretch(page)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
    page.keyboard.press("ArrowRight")
    assert stretch(page)[0] == pytest.approx(near[0] + (near[1] - near[0]) / 10)
    page.keyboard.press("-")
    page.keyboard.press("0")
    assert stretch(page) == pytest.approx(whole)
    page.keyboard.press("Enter")
    page.wait_for_selector("#segment[data-segment]", timeout=30_000)
    box = page.locator("#diagram canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 203, steps=4)
    page.mouse.up()
    dragged = stretch(page)
    assert dragged[1] - dragged[0] < (whole[1] - whole[0]) / 8
    page.mouse.wheel(0, -100)
    rolled = stretch(page)
    assert rolled[1] - rolled[0] == pytest.approx((dragged[1] - dragged[0]) / 1.25)
    page.locator("[data-do=whole]").click()
    assert stretch(page) == pytest.approx(whole)
    assert said == []
    page.close()


MARKS = st.sampled_from([0, 0, 0, 0, 1, 2, 8])
SEGMENT = st.tuples(st.integers(0, 2_000), st.integers(0, 10**9), MARKS, st.none() | st.integers(0, 10**7))


@pytest.fixture(scope="module")
def bare(browser: Browser, made: tuple[Path, list[dict[str, Any]]]) -> Page:
    return opened(browser, made[0], "light", 1200)[0]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SEGMENT, min_size=1, max_size=80), st.integers(1, 12))
def test_thinning_keeps_every_extreme(bare: Page, segments: list[tuple[int, int, int, int | None]], width: int) -> None:
    segments = sorted(segments, key=lambda one: one[0])
    sent, at, mark = ([int(one[place] or 0) for one in segments] for place in range(3))
    delay = [one[3] for one in segments]
    end = sent[-1] + 1
    told = bare.evaluate(
        """([sent, at, mark, delay, end, width]) => {
        const drawn = { sent, at, mark, payload_bytes: sent.map(() => 100),
        delay_ns: delay.map(one => one ?? NaN) }; const thin = diagram.thinned(drawn, 0, end, width);
        const list = one => [...one].map(value => Number.isFinite(value) ? value : null);
        return { low: list(thin.low), high: list(thin.high), most: list(thin.most), singly: thin.singly }; }""",
        [sent, at, mark, delay, end, width],
    )
    singly = set(told["singly"])
    assert {place for place, one in enumerate(mark) if one} <= singly, "each loss and each retransmission"
    columns: dict[int, list[int]] = {}
    for place, one in enumerate(sent):
        columns.setdefault(min(width - 1, math.floor(one * (width / end))), []).append(place)
    for column, places in columns.items():
        slow = max((late for one in places if (late := delay[one]) is not None), default=None)
        assert told["most"][column] == slow
        assert slow is None or any(delay[one] == slow for one in singly & set(places)), "the largest delay"
        for one in set(places) - singly:
            assert told["low"][column] <= at[one], "within what the column shows"
            assert told["high"][column] >= at[one] + 100
