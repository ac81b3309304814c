"""The live page in a real browser: of a run that is written meanwhile, through its end and a restart of the server.

The run is a real `sojourn run` on the simulated bed, the server a real `sojourn watch`; both themes, two widths. The
pages set an attribute when they have shown something, and the tests wait for that and for what people see.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.accessible import seen_and_read
from tests.browser.looks import looks
from tests.browser.test_report import CONTRAST, Opened, _page_width
from tests.children import Child
from tests.unit.in_process import sojourn
from tests.unit.test_watch import cut_short, run, served

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.browser.looks import Scheme

__all__ = ["run"]
PATIENCE_MS = 120_000


def opened(browser: Browser, address: str, scheme: Scheme = "light", width: int = 1200) -> Opened:
    """A page, once it has shown its first event, with what the browser had to say."""
    page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
    found = Opened(page)
    page.on("console", lambda message: found.said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on("request", lambda request: found.asked_for.append(request.url))
    page.goto(address)
    page.wait_for_selector("html[data-shown]", state="attached", timeout=PATIENCE_MS)
    return found


@looks
def test_page_of_a_run_is_complete_and_has_no_console_errors(
    browser: Browser, run: Path, tmp_path: Path, scheme: Scheme, width: int
) -> None:
    with served(run, tmp_path) as (address, _):
        live = opened(browser, address, scheme, width)
        page = live.page
        expect(page.locator("#cells tbody tr")).not_to_have_count(0, timeout=PATIENCE_MS)
        verdict = json.loads((run / "analysis/verdict.json").read_text())
        expect(page.locator("#sentence")).to_have_text(verdict["sentence"], timeout=PATIENCE_MS)
        assert page.locator("#state").inner_text().lower() == "finished"
        assert page.locator("#status").get_attribute("class") == f"verdict {verdict['verdict']}"
        assert page.locator("#paths tbody tr").count() >= 3
        assert page.locator("#charts .dot").count() > 50
        forms = "all => [...new Set(all.map(one => one.getAttribute('d')))]"
        named = page.locator("#part-charts .legend .dot").evaluate_all(forms)
        assert len(named) > 1, "devices differ by their symbols, too"
        assert sorted(page.locator("#charts .dot").evaluate_all(forms)) == sorted(named)
        cells = page.locator("#cells tbody td").all_inner_texts()
        assert any(" to " in cell for cell in cells), "figures have intervals"
        for words in (*cells, *page.locator("#paths td").all_inner_texts()):
            assert not {"NaN", "undefined", "null", "Infinity"} & set(words.split())
        assert min(page.locator("table :is(td, th)").evaluate_all(CONTRAST)) >= 4.5
        assert _page_width(page) <= width, "the page scrolls sideways"
        assert live.said == []
        assert set(live.asked_for) == {address, f"{address}events"}, "it asks for nothing else"


def test_both_pages_are_accessible_by_keyboard_and_screen_reader(browser: Browser, run: Path, tmp_path: Path) -> None:
    cut_short(run, tmp_path / "runs" / "goes-on")
    shutil.copytree(run, tmp_path / "runs" / "ended")
    with served(tmp_path / "runs", tmp_path / "state") as (address, _):
        index = opened(browser, address).page
        expect(index.locator("#runs li")).to_have_count(2, timeout=PATIENCE_MS)
        expect(index.get_by_text("being read")).to_have_count(0, timeout=PATIENCE_MS)
        assert seen_and_read(index) == []
    with served(run, tmp_path / "state", "--looks") as (address, _):
        page = opened(browser, address).page
        expect(page.locator("#cells tbody tr")).not_to_have_count(0, timeout=PATIENCE_MS)
        assert page.locator("#charts .dot").count() > 50
        assert seen_and_read(page) == []


FEW_FRAMES = ("trials.duration=5ms", "trials.rounds=6", "stream.payload_bytes=46", "bed.sessions=3")
REGULAR = ("stream.schedule=regular", "stream.interval=100us")
BPS = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}


@pytest.mark.parametrize(
    ("study", "sets", "interval_of"),
    [("one-way", REGULAR, "Over direct, one way"), ("throughput", (), "Throughput")],
)
def test_page_of_streams_has_what_the_log_and_the_report_say(
    browser: Browser, tmp_path: Path, study: str, sets: tuple[str, ...], interval_of: str
) -> None:
    """Each end of a simulated line has a clock of its own, so that no single trial has a one-way delay."""
    out = tmp_path / "streams"
    words = [word for one in (*FEW_FRAMES, *sets) for word in ("--set", one)]
    ran = sojourn("run", study, "--quick", "--bed", "sim", "--no-history", "--no-report", *words, "--out", str(out))
    assert ran.returncode in {0, 4}, ran.stderr
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    trials = [one for one in log if one["event"] == "stream-trial" and one["trial"] is not None and one["kept"]]
    with served(out, tmp_path / "state", "--looks") as (address, _):
        live = opened(browser, address)
        page = live.page
        expect(page.locator("#cells tbody tr")).not_to_have_count(0, timeout=PATIENCE_MS)
        assert done(page.locator("#counts").inner_text()) == len(trials) == log[0]["blocks"]
        paths = table_of(page, "#paths")
        assert {row["Path"] for row in paths} == {one["device"] for one in trials}
        for row in paths:
            own = [one for one in trials if one["device"] == row["Path"]]
            assert int(row["Trials"]) == len(own)
            number, unit = row["Throughput"].split()
            received_bps = median(sum(flow["throughput_bps"] for flow in one["received"]) for one in own)
            assert float(number.replace("\u202f", "")) * BPS[unit] == pytest.approx(received_bps, rel=0.006)
            sent, lost = (sum(flow[key] for one in own for flow in one[of]) for key, of in
                          (("sent", "sent"), ("lost", "received")))  # fmt: skip
            assert float(row["Lost, of all"].removesuffix(" %")) == pytest.approx(100 * lost / sent, rel=0.006)
            assert row["Pacing error, p99"] == "0 ns", "simulated senders are never late"
        expect(page.locator("#joined")).to_be_visible()
        assert not any("delay" in name for name in paths[0])
        assert page.locator("#chart-throughput_bps .dot").count() == len(trials)
        cells = table_of(page, "#cells")
        known = [row[interval_of] for row in cells if row[interval_of] != "–"]
        assert known
        assert all(" to " in one for one in known), cells
        assert live.said == []


def table_of(page: Page, which: str) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    names = page.locator(f"{which} thead th").all_inner_texts()
    rows = page.locator(f"{which} tbody tr")
    return [
        dict(zip(names, rows.nth(place).locator("td").all_inner_texts(), strict=True)) for place in range(rows.count())
    ]


def test_unfinished_run_shows_interim_figures_and_no_finding_that_it_is_incomplete(
    browser: Browser, run: Path, tmp_path: Path
) -> None:
    half = cut_short(run, tmp_path / "half")
    with served(half, tmp_path / "state", "--looks") as (address, _):
        page = opened(browser, address).page
        expect(page.locator("#sentence")).to_contain_text("So far: ", timeout=PATIENCE_MS)
        expect(page.locator("#looked")).to_contain_text("are to go")
        assert page.locator("#state").inner_text().lower() in {"measuring", "building"}
        assert page.locator("#status").get_attribute("class") == "verdict note"
        assert "truncated record" not in page.locator("body").inner_text()


def test_a_run_is_followed_from_its_beginning_past_its_end_and_over_a_restart_of_the_server(
    browser: Browser, tmp_path: Path
) -> None:
    runs, out = tmp_path / "runs", tmp_path / "runs" / "live"
    runs.mkdir()
    # Stopped in its middle, so that a page sees it however fast the machine is: two thousand trials take a second.
    sets = ["pairs.rounds=120", "pairs.at_most=10min", "pairs.probes_per_block=24", "probe.icmp_bytes=[64, 1480]"]
    words = [word for one in sets for word in ("--set", one)]
    argv = [
        sys.executable,
        "-c",
        "from sojourn.cli import main; main()",
        "run",
        "bridge-latency",
        "--quick",
        "--bed",
        "sim",
    ]
    with served(runs, tmp_path / "state") as (address, server):
        index = opened(browser, address)
        expect(index.page.locator("#none")).to_be_visible()
        with Child([*argv, *words, "--no-history", "--no-report", "--out", str(out)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as measuring:  # fmt: skip
            stop_after(20, measuring, out)
            index.page.locator("#runs a").click(timeout=PATIENCE_MS)
            page = index.page
            expect(page.locator("#counts")).to_have_text(next_count(0), timeout=PATIENCE_MS)
            seen = done(page.locator("#counts").inner_text())
            measuring.send_signal(signal.SIGCONT)
            stop_after(seen + 20, measuring, out)
            expect(page.locator("#counts")).to_have_text(next_count(seen), timeout=PATIENCE_MS)
            server.kill()
            server.wait()
            expect(page.locator("#link")).to_contain_text("trying again", timeout=PATIENCE_MS)
            with served(runs, tmp_path / "state") as (again, _):
                assert again.split("/")[2] == address.split("/")[2], "the server has its port again"
                expect(page.locator("#link")).to_contain_text("refuses this address", timeout=PATIENCE_MS)
                page.goto(again)
                page.locator("#runs a").click(timeout=PATIENCE_MS)
                expect(page.locator("#link")).to_have_text("live", timeout=PATIENCE_MS)
                measuring.send_signal(signal.SIGCONT)
                expect(page.locator("#state")).to_have_text("finished", timeout=PATIENCE_MS)
                assert measuring.wait(120) == 0
                verdict = json.loads((out / "analysis/verdict.json").read_text())
                expect(page.locator("#sentence")).to_have_text(verdict["sentence"], timeout=PATIENCE_MS)
                total = json.loads((out / "log.jsonl").read_text().splitlines()[0])["blocks"]
                assert done(page.locator("#counts").inner_text()) == total
                page.go_back()
                expect(page.locator("#runs .badge")).to_have_text(verdict["verdict"], timeout=PATIENCE_MS)


def stop_after(trials: int, measuring: Child[str], out: Path) -> None:
    """Let a run measure so many trials, and stand still."""
    log = out / "log.jsonl"
    while not log.is_file() or log.read_text().count('"event": "block"') < trials:
        assert measuring.poll() is None, "it ended before its middle"
        time.sleep(0.01)
    measuring.send_signal(signal.SIGSTOP)


def done(words: str) -> int:
    """How many trials the page says are measured."""
    return int("".join(one for one in words.partition(" of ")[0] if one.isdigit()))


def next_count(before: int) -> re.Pattern[str]:
    """Any count of trials but this one."""
    return re.compile(rf"^(?!{before:,} of )[1-9][\d\u202f]* of ".replace(",", "\u202f"))


def test_foreign_names_and_sentences_are_escaped(browser: Browser, run: Path, tmp_path: Path) -> None:
    evil = "<img src=x onerror=document.title='got'>"
    strange = cut_short(run, tmp_path / "runs" / "a&b <i>x")
    with (strange / "log.jsonl").open("a") as log:
        rtt = {"p50_ns": 1e3}
        log.write(
            json.dumps({"event": "block", "device": evil, "block": 9_999, "sent": 1, "lost": 0, "rtt": rtt}) + "\n"
        )
        log.write(json.dumps({"event": "contended", "sentence": evil}) + "\n")
    with served(tmp_path / "runs", tmp_path / "state", "--no-looks") as (address, _):
        live = opened(browser, address)
        live.page.locator("#runs a").click()
        expect(live.page.locator("#paths tbody tr").filter(has_text=evil)).to_have_count(1, timeout=PATIENCE_MS)
        expect(live.page.locator("#findings")).to_contain_text(evil)
        assert live.page.title() != "got"
        assert live.page.locator("img").count() == 0
        assert live.said == []


HUNDRED = 100
INDEX_MS = 6_000
"""A list of a hundred runs is there within this time of the request; nothing makes the machine busy meanwhile."""


@looks
def test_a_folder_of_a_hundred_runs_is_listed_at_once(
    browser: Browser, run: Path, tmp_path: Path, scheme: Scheme, width: int
) -> None:
    for number in range(HUNDRED):
        one = tmp_path / "runs" / f"2026-11-20T10{number:04}Z-bridge-latency-{number:04x}"
        (one / "records").mkdir(parents=True)
        (one / "analysis").mkdir()
        for name in ("plan.toml", "log.jsonl", "analysis/verdict.json"):
            (one / name).write_bytes((run / name).read_bytes())
    cut = cut_short(run, tmp_path / "runs" / "goes-on")
    with served(tmp_path / "runs", tmp_path / "state") as (address, _):
        began = time.monotonic()
        live = opened(browser, address, scheme, width)
        page = live.page
        expect(page.locator("#runs li")).to_have_count(HUNDRED + 1, timeout=PATIENCE_MS)
        took_ms = (time.monotonic() - began) * 1e3
        assert took_ms < INDEX_MS, f"{took_ms:.0f} ms"
        expect(page.get_by_text("being read")).to_have_count(0, timeout=PATIENCE_MS)
        words = page.locator("#runs li").all_inner_texts()
        trials = json.loads((run / "log.jsonl").read_text().partition("\n")[0])["blocks"]
        assert sum(f"{trials} of {trials} trials" in one for one in words) == HUNDRED
        assert min(page.locator("#runs li, #runs li *").evaluate_all(CONTRAST)) >= 4.5
        assert _page_width(page) <= width, "the page scrolls sideways"
        assert live.said == []
        page.get_by_role("link", name=cut.name).click()
        expect(page.locator("#state")).to_have_text(re.compile("measuring|building", re.IGNORECASE))
