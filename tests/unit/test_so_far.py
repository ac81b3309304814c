"""What is known of a run while it goes on: percentiles of closed trials, on a screen and for Prometheus."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from sojourn.conduct import Screen, progress
from sojourn.records.so_far import SoFar


def block(device: str, delays: list[int], number: int) -> dict[str, Any]:
    classes = [[delay, delays.count(delay)] for delay in sorted(set(delays))]
    said = {"sent": len(delays) + 1, "lost": 1, "rtt_classes": classes}
    return {"event": "block", "block": number, "device": device, **said}


def test_interim_percentiles_use_all_delays_and_need_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stream = io.StringIO()
    screen = Screen(stream)
    screen.hear({"event": "started", "study": "made-up", "blocks": 3})
    screen.begin(3)
    screen.hear(block("wire", [10_000] * 60, 0))
    screen.hear(block("wire", [20_000] * 38 + [50_000] * 2, 1))
    screen.hear(block("[bold]br", [7_000] * 19, 2))
    screen.hear({"event": "block", "block": 3, "device": "odd", "rtt_classes": "nonsense"})
    shared = {"event": "stream-trial", "trial": 4, "kept": True, "device": "wire", "sent": [{"sent": 30}]}
    flow = {"port": 0, "lost": 0, "delay_classes": [[3_000, 30]]}
    screen.hear(shared | {"received": [flow], "clock": [{"shared": True}]})
    screen.hear(shared | {"received": [flow], "clock": [{"shared": False}]})
    now = 6.0
    screen.step()
    assert stream.getvalue().splitlines()[1:] == [
        "  RTT so far, p50 / p95 / p99 in µs: wire 10 / 20 / 50; [bold]br 7 / – / –",
        "  one-way delay so far, p50 / p95 / p99 in µs: wire 3 / 3 / –",
    ]


def test_terminal_shows_percentiles_above_the_progress_bar_and_erases_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame has the table above the bar; at the end the lines of both are erased."""
    monkeypatch.setattr(progress, "Console", lambda **own: Console(force_terminal=True, width=70, **own))
    stream = io.StringIO()
    with Screen(stream) as screen:
        screen.begin(2)
        monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.0)
        screen.hear(block("wire", [10_000] * 100, 0))
        screen.tick()
        assert "RTT" not in stream.getvalue()
        screen.step()
        drawn = stream.getvalue()
        assert "so far, µs" in drawn
        assert "measuring" in drawn.partition("so far, µs")[2]
    erased = stream.getvalue()[len(drawn) :]
    assert erased.count("\x1b[2K") >= 3  # two lines of the table, one of the bar
    assert "RTT" not in erased.rpartition("\x1b[2K")[2]


def test_trials_of_whole_seconds_have_their_table_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick just before the end of a trial draws; the table is worked out all the same."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "Console", lambda **own: Console(force_terminal=True, width=70, **own))
    stream = io.StringIO()
    with Screen(stream) as screen:
        screen.begin(20)
        for _ in range(3):
            screen.hear(block("wire", [10_000] * 100, 0))
            now[0] += 1.0
            screen.tick()
            now[0] += 0.05
            screen.step()
        now[0] += 1.0
        screen.tick()
        assert "so far, µs" in stream.getvalue()


@pytest.mark.parametrize("entry", [{"event": "started", "blocks": "x"}, {"event": "stream-trial", "received": [1]}])
def test_unknown_lines_are_ignored(entry: dict[str, Any]) -> None:
    so_far = SoFar()
    so_far.take(entry | {"trial": 1, "device": "x"})
    so_far.take(block("wire", [10_000] * 100, 0))
    assert so_far.paths["wire"].sent == 101
