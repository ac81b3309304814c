"""Method "taps" on made-up messages over TCP of known truth: what joined them, how late they passed the first tap."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.run import load
from sojourn.methods.taps.analyse import study
from sojourn.methods.taps.analyse.segments import classes
from sojourn.records import read_table
from sojourn.records.log import read_log
from tests.unit.made_up_streams import write_table
from tests.unit.synthetic_streams import StreamRun, cell

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.analysis.study import Study

BETWEEN_NS = {"wire": 900.0, "bridge": 1_300.0}
COUNT = 400
PAYLOAD = 64
ONE = 14 + 40 + PAYLOAD
STACK_NS = 7_000
"""From the call to the tap."""


class Bytes(StreamRun):
    """A run whose receiver reads a stream of bytes: it has no arrivals of its own."""

    def _rows(self, trial: Any, rng: Any, *, first: bool) -> dict[tuple[str, str], dict[str, Any]]:
        rows = super()._rows(trial, rng, first=first)
        return {key: columns for key, columns in rows.items() if key[0] != "arrivals"}


@dataclass(frozen=True)
class Wire:
    """What becomes of COUNT messages between the sender and the device."""

    pairs: int = 0
    """Segments that carry two messages."""
    again: int = 0
    """Segments that are sent a second time."""
    lost: int = 0
    """Segments that the second tap never sees."""

    def lengths(self) -> list[int]:
        """The segments that both taps see."""
        whole = COUNT - 2 * self.pairs - self.lost + self.again
        return [ONE] * whole + [ONE + PAYLOAD] * self.pairs


def made_up(path: Path, wire: Wire, seed: int = 5) -> Path:
    """A run over TCP with that on its wire; what carries two messages is in the device for a second."""
    cells = [cell(engine="tcp", payload_bytes=PAYLOAD, frame_bytes=ONE + 4)]
    folder = Bytes(path, "taps", cells, BETWEEN_NS, count=COUNT, seed=seed).write()
    rng = np.random.default_rng(seed)
    due = read_table(folder / "records", "sends").frame
    lines = folder.joinpath("log.jsonl").read_text().splitlines()
    for event in (one for one in read_log(folder / "log.jsonl") if one["event"] == "stream-trial"):
        if event["device"] not in BETWEEN_NS:
            continue
        lengths = np.array(wire.lengths())
        delays = BETWEEN_NS[event["device"]] + rng.normal(0, 20) + rng.normal(0, 50, len(lengths))
        start = due.filter(pl.col("block") == event["block"])["intended_ns"][0]
        first = start + np.arange(len(lengths)) * 100_000 + STACK_NS + rng.integers(0, 1_000, len(lengths))
        out = folder / "records" / "taps" / f"000-{event['block']}" / "matched"
        out.mkdir(parents=True)
        columns = {
            "first_source": "kernel", "second_source": "kernel", "direction": ["forward"] * len(lengths),
            "length_bytes": lengths, "number": np.arange(len(lengths)), "first_ns": first,
            "delay_ns": np.where(lengths == ONE, delays, 1e9).astype(int),
        }  # fmt: skip
        write_table(out / "crossings-match-000.arrow", "crossings", pl.DataFrame(columns))
        gone = {"direction": "forward", "outcome": ["lost"] * wire.lost, "length_bytes": [ONE] * wire.lost}
        write_table(out / "unmatched-match-000.arrow", "unmatched", pl.DataFrame(gone))
        counts = {"matched": len(lengths), "lost": wire.lost, "seen_first": len(lengths) + wire.lost}
        taps = {
            "event": "taps", "block": event["block"], "device": event["device"],
            "records": f"taps/000-{event['block']}/matched",
            "captured": {"taps": [{"account": {"dropped": 0}}, {"account": {"dropped": 0}}]},
            "matched": {"pairs": [{"directions": [{"direction": "forward", "counts": counts}]}]},
        }  # fmt: skip
        lines.insert(-1, json.dumps(taps))
    folder.joinpath("log.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def figures(found: Study, quantity: str, statistic: str) -> dict[str, float]:
    return {
        row.device: row.value.estimate for row in found.rows if (row.quantity, row.statistic) == (quantity, statistic)
    }


def test_messages_sent_in_single_segments_have_a_pacing_error_on_the_wire(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run", Wire())))
    assert figures(found, "segments_per_message", "mean") == {"wire": 1.0, "bridge": 1.0}
    assert figures(found, "one_segment_messages", "ratio") == {"wire": 1.0, "bridge": 1.0}
    errors = figures(found, "tap_pacing_error", "mean")
    assert errors == {one: pytest.approx(STACK_NS + 500, abs=30) for one in BETWEEN_NS}
    assert all(7_950 <= one < 8_000 for one in figures(found, "tap_pacing_error", "max").values())
    delays = figures(found, "delay_between_taps", "mean")
    assert delays == {device: pytest.approx(truth, abs=30) for device, truth in BETWEEN_NS.items()}
    assert figures(found, "departure_interval", "mean") == {
        one: pytest.approx(100_000, rel=0.001) for one in BETWEEN_NS
    }  # fmt: skip
    assert not [one for one in found.findings if one.name in {"segments_differ", "incomplete", "path_dead"}]
    assert not figures(found, "late", "ratio"), "a receiver of bytes does not know when a message was sent"


def test_segments_with_several_messages_are_reported_and_excluded_from_delays(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run", Wire(pairs=10))))
    assert figures(found, "segments_per_message", "mean")["bridge"] == pytest.approx(390 / 400)
    assert figures(found, "one_segment_messages", "ratio")["bridge"] == pytest.approx(380 / 400)
    (told,) = [one for one in found.findings if one.name == "segments_differ"]
    assert told.value == pytest.approx(20 / 400)
    assert told.severity == "doubtful"
    assert {place.device for place in told.places} == set(BETWEEN_NS)
    assert "160 segments carried several, 0 a part, and 0 bytes were retransmitted" in told.sentence
    assert not figures(found, "tap_pacing_error", "mean"), "which message a segment carries is not known"
    assert max(figures(found, "delay_between_taps", "max").values()) < 2_000


def test_few_retransmissions_are_a_note_in_bytes(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run", Wire(again=1))))
    (told,) = [one for one in found.findings if one.name == "segments_differ"]
    assert told.value == pytest.approx(1 / 400)
    assert told.severity == "note"
    assert f"{16 * PAYLOAD} bytes were retransmitted" in told.sentence
    assert figures(found, "segments_per_message", "mean")["wire"] == pytest.approx(401 / 400)


def test_retransmissions_do_not_hide_messages_merged_into_longer_segments() -> None:
    """98 left alone, two together, and two of the 98 once more."""
    lengths = pl.Series([128] + [64] * 100)
    assert classes(lengths, 64, 100) == (101, 98, 1, 0, 128)


def test_loss_in_the_device_is_a_segment_seen_before_it(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run", Wire(lost=5))))
    assert figures(found, "segments_per_message", "mean") == {"wire": 1.0, "bridge": 1.0}
    assert not [one for one in found.findings if one.name == "segments_differ"]
    assert figures(found, "lost_between_taps", "ratio")["bridge"] == pytest.approx(5 / 400)
