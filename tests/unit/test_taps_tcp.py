"""Method "taps" on made-up messages over TCP of known truth: what joined them, how late they passed the first tap."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.run import load
from sojourn.methods.taps.analyse import study
from sojourn.methods.taps.analyse.segments import classes
from sojourn.methods.taps.show import how
from sojourn.records import read_table
from sojourn.records.log import read_log
from sojourn.report.run import Run
from tests.unit.made_up_streams import write_table
from tests.unit.made_up_taps import write
from tests.unit.synthetic_streams import START_NS, StreamRun, cell

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
        write_counts(out.parent)
    folder.joinpath("log.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def write_counts(tap: Path, clock: int = 7) -> None:
    """What the tap before the device counted, and which clock it read: the sender's is 7."""
    about = {"tap": "before", "interface": "d-1l", "host": "box", "key": "bridge", "most_octets": "",
             "clock_id": f"{clock:x}"}  # fmt: skip
    counts = {"tap": ["before"], "opened_ns": [0], "closed_ns": [1], "seen": [COUNT], "recorded": [COUNT],
              "dropped": [0], "without_key": [0]}  # fmt: skip
    write(tap / "tap_counts-before-000.arrow", "tap_counts", about, counts)


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


AHEAD_NS, RATE = 3_600_000_000_000, 50e-6
DEVICES_CLOCK, FAR_CLOCK = 0xA1, 8


def clocks_of_their_own(folder: Path, clock: int) -> None:
    """The clocks of B and of the device's host are an hour ahead of A's, and 50 ppm faster."""

    def moved(file: Path, table: str, times: tuple[str, ...], **more: Any) -> None:
        frame = pl.read_ipc_stream(file)
        since = {name: pl.col(name) - START_NS for name in times}
        ahead = {name: START_NS + AHEAD_NS + one + (one * RATE).round().cast(pl.Int64) for name, one in since.items()}
        write_table(file, table, frame.with_columns(**ahead, **more))

    for file in folder.glob("records/streams-b-*.arrow"):
        moved(file, "streams", ("started_ns", "ended_ns", "first_ns", "last_ns"), clock_id=pl.lit(FAR_CLOCK))
    for file in folder.glob("records/taps/*/matched/crossings-*.arrow"):
        delay = (pl.col("delay_ns") * (1 + RATE)).round().cast(pl.Int64)
        moved(file, "crossings", ("first_ns",), delay_ns=delay)
        write_counts(file.parents[1], clock)


def test_each_host_with_a_clock_of_its_own_gives_the_same_but_what_is_between_two_of_them(tmp_path: Path) -> None:
    """Taps read the device's clock alone; messages left by A's, and bytes came by B's."""
    (tmp_path / "two").mkdir()
    one, two = made_up(tmp_path / "one", Wire()), made_up(tmp_path / "two" / "run", Wire())
    clocks_of_their_own(two, DEVICES_CLOCK)
    found, of_two = (study(load(path)) for path in (one, two))
    rows, rows_of_two = (
        {(row.device, row.reference, row.quantity, row.statistic): row.value for row in each.rows}
        for each in (found, of_two)
    )
    missing = {quantity for _, _, quantity, _ in rows.keys() - rows_of_two.keys()}
    assert missing == {"tap_pacing_error"}, "the device's clock is compared with no other"
    assert rows_of_two.keys() <= rows.keys()
    assert {("bridge", None, "delay_between_taps", "p50"), ("bridge", "wire", "delay_between_taps_over", "mean"),
            ("bridge", None, "tap_interval", "p99"), ("bridge", None, "pacing_error", "p50"),
            ("bridge", None, "received_pps", "mean")} <= rows_of_two.keys()  # fmt: skip
    for at, value in rows_of_two.items():
        assert value.estimate == pytest.approx(rows[at].estimate, rel=2 * RATE, abs=1.0), at
    assert {one.name for one in of_two.findings} == {one.name for one in found.findings}


@pytest.mark.parametrize("boots", [("one", "one"), ("one", "other")])
def test_the_report_says_which_figure_two_clocks_leave_out(tmp_path: Path, boots: tuple[str, str]) -> None:
    folder = made_up(tmp_path / "run", Wire())
    machines = {host: {"boot_id": boot} for host, boot in zip(("a", "device"), boots, strict=True)}
    (folder / "bed.json").write_text(json.dumps({"moment": {"machines": machines}}))
    analyse(folder)
    said = " ".join(how(Run.read(folder)))
    assert ("from its due time to the first tap is left out" in said) == (boots == ("one", "other"))


def test_taps_that_are_taken_for_the_senders_clock_show_an_hour(tmp_path: Path) -> None:
    """That the figure is left out is what keeps it from being wrong."""
    folder = made_up(tmp_path / "run", Wire())
    clocks_of_their_own(folder, 7)
    errors = figures(study(load(folder)), "tap_pacing_error", "mean")
    assert min(errors.values()) > 0.999 * AHEAD_NS
