"""Clock lines: what they convert must come out as the truth that made them, and within the bounds that they state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from sojourn.analysis.clocks import (
    asymmetries,
    clock_findings,
    lines_of,
    on_sender_clock,
    shared_blocks,
    unsynchronised_blocks,
)
from sojourn.analysis.finding import Place
from sojourn.analysis.lent_lines import one_sided, with_lent
from sojourn.analysis.run import load
from tests.unit import made_up_streams as made_up

if TYPE_CHECKING:
    from pathlib import Path

START = 1_795_000_000_000_000_000
SECOND = 1_000_000_000


def line(block: int = 0, **other: Any) -> dict[str, Any]:
    """One line, flat and tight unless told otherwise."""
    return {
        "block": block, "peer": "b", "clock_id": 2, "shared": False, "from_ns": START, "to_ns": START + 60 * SECOND,
        "reference_ns": START, "offset_ns": 0.0, "skew_ppb": 0.0, "bound_ns": 5000.0, "error95_ns": 200.0,
        "skew_bound_ppb": 0.0, "skew95_ppb": 0.0, "exchanges": 100, **other,
    }  # fmt: skip


def stream(block: int = 0, role: str = "send", clock_id: int = 1) -> dict[str, Any]:
    who = "a" if role == "send" else "b"
    return {"block": block, "who": who, "role": role, "clock_id": clock_id, "device": "bridge", "cell": 3}


def arrivals(times: Any, block: int = 0, node: int = 0) -> pl.DataFrame:
    times = np.asarray(times, dtype=np.int64)
    return pl.DataFrame({"block": block, "who": "b", "node": node, "arrival_ns": times, "receive_call_ns": times + 700})


TWO = pl.DataFrame([stream(), stream(role="receive", clock_id=2)])
ONE = pl.DataFrame([stream(), stream(role="receive")])
NONE = pl.DataFrame([line()]).clear()


@pytest.mark.parametrize("offset", [0.0, 3.2e9, -7.5e9])
@pytest.mark.parametrize("skew", [-100e-6, 0.0, 37e-6])
def test_known_offset_and_skew_are_taken_off_to_the_nanosecond(offset: float, skew: float) -> None:
    true = START + np.linspace(0, 50 * SECOND, 5001).astype(np.int64)
    since = (true - START).astype(float)
    remote = true + np.rint(offset + skew * since).astype(np.int64)
    reference = START + round(offset)
    slope = skew / (1 + skew)  # the line runs over the receiver's time
    lines = pl.DataFrame(
        [line(reference_ns=reference, from_ns=reference, to_ns=reference + 60 * SECOND, offset_ns=offset,
              skew_ppb=slope * 1e9)]
    )  # fmt: skip
    found = on_sender_clock(arrivals(remote), lines, TWO)
    assert np.abs(found["arrival_on_sender_ns"].to_numpy() - true).max() <= 2
    assert np.abs(found["receive_call_on_sender_ns"].to_numpy() - true - 700).max() <= 2
    assert found["clock_bound_ns"].unique().to_list() == [5000.0]
    assert found["clock_error95_ns"].unique().to_list() == [200.0]
    assert found["clock_shared"].any() is False


def test_clock_step_splits_the_line_and_times_between_get_the_error_of_both() -> None:
    step = 40_000.0
    before = line(to_ns=START + 10 * SECOND)
    after = line(from_ns=START + 20 * SECOND, reference_ns=START + 20 * SECOND, offset_ns=step)
    lines = lines_of(pl.DataFrame([after, before]))
    times = START + np.array([5, 12, 18, 25]) * SECOND
    converted, bound, error95 = lines.convert(times)
    assert (times - converted).tolist() == [0, 0, 40_000, 40_000]
    assert bound[[0, 3]].tolist() == [5000, 5000]
    assert (bound[1:3] >= step).all()
    assert (error95[1:3] >= step).all()


def test_error_grows_after_the_last_exchange() -> None:
    """By what the line says of its own slope, and by what crystals drift; never by more than two crystals can."""
    lines = lines_of(pl.DataFrame([line(skew_bound_ppb=2000.0, reference_ns=START + 30 * SECOND, skew95_ppb=4.0)]))
    beyond = np.array([0, 1, 10, 10_000])
    _, bound, error95 = lines.convert(START + (60 + beyond) * SECOND)
    grown = [0, 2000 + 250, 20_000 + 25_000, 400e-6 * 1e13]
    assert (bound - 5000).tolist() == pytest.approx(grown)
    at_reference = 200**2 - (4 * 30) ** 2 / 3
    turned = (4.0 * (30 + beyond)) ** 2
    degrees = 5 * (at_reference + turned) ** 2 / (at_reference**2 + turned**2)  # 100 exchanges make 6 groups
    scale = stats.t.ppf(0.975, degrees) / stats.t.ppf(0.975, 5)
    expected = np.sqrt(at_reference + turned) * scale + 10 * beyond.astype(float) ** 2
    assert error95.tolist() == pytest.approx(expected.tolist())
    assert (error95 <= bound).all()


def test_unknown_95_percent_error_is_replaced_by_the_maximum_error() -> None:
    lines = lines_of(pl.DataFrame([line(error95_ns=5000.0, skew_bound_ppb=2000.0)]))
    _, bound, error95 = lines.convert(START + np.array([30, 65]) * SECOND)
    assert error95.tolist() == bound.tolist()
    assert bound[1] > 5000


def test_each_receiver_of_a_group_is_converted_by_its_own_clock_line() -> None:
    ends = [stream(), *({**stream(role="receive", clock_id=2 + k), "who": f"b{k}"} for k in range(3)),
            {**stream(role="receive"), "who": "b3"}]  # fmt: skip
    lines = pl.DataFrame([line(offset_ns=1e6), line(clock_id=3, offset_ns=-2e6, bound_ns=9.0, error95_ns=2.0)])
    here = pl.concat([arrivals([START]).with_columns(who=pl.lit(f"b{k}")) for k in range(4)])
    found = on_sender_clock(here, lines, pl.DataFrame(ends)).sort("who")
    assert (found["arrival_ns"] - found["arrival_on_sender_ns"]).to_list() == [1_000_000, -2_000_000, None, 0]
    assert found["clock_bound_ns"].to_list() == [5000.0, 9.0, None, 0.0]
    assert found["clock_shared"].to_list() == [False, False, None, True]
    assert unsynchronised_blocks(lines, pl.DataFrame(ends)) == {0}
    assert shared_blocks(lines, pl.DataFrame(ends)) == set()


def test_shared_clock_is_recognised_and_reported() -> None:
    assert shared_blocks(NONE, ONE) == {0}
    found = on_sender_clock(arrivals([START]), NONE, ONE)
    assert found["arrival_on_sender_ns"].to_list() == [START]
    assert found.select("clock_bound_ns", "clock_error95_ns", "clock_shared").row(0) == (0.0, 0.0, True)
    assert shared_blocks(pl.DataFrame([line(shared=True)]), TWO) == {0}
    assert shared_blocks(pl.DataFrame([line()]), ONE) == set()
    beside = pl.DataFrame([stream(), stream(role="receive"), stream(role="receive", clock_id=9)])
    assert shared_blocks(pl.DataFrame([line(shared=True, clock_id=1)]), beside) == set(), (
        "who did not answer is another"
    )


def test_different_clocks_without_a_line_have_no_delay_and_a_finding() -> None:
    assert unsynchronised_blocks(NONE, TWO) == {0}
    found = on_sender_clock(arrivals([START]), NONE, TWO)
    assert found["arrival_on_sender_ns"].to_list() == [None]
    findings = clock_findings(NONE, TWO, one_way([]))
    assert [one.name for one in findings] == ["clock_unsynchronised"]
    assert findings[0].places == (Place("bridge", 3),)


def test_reply_times_are_converted_to_the_clock_of_the_sender() -> None:
    lines = pl.DataFrame([line(offset_ns=1e6)])
    both = pl.concat([arrivals([START]), arrivals([START], node=2)])
    found = on_sender_clock(both, lines, TWO).sort("node")
    assert (found["arrival_ns"] - found["arrival_on_sender_ns"]).to_list() == [1_000_000, 0]
    assert found["clock_bound_ns"].to_list() == [5000.0, 0.0]


def one_way(delays: list[float], bound: float = 0.0) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "device": ["bridge"] * len(delays),
            "cell": [3] * len(delays),
            "delay_ns": delays,
            "clock_bound_ns": [bound] * len(delays),
            "clock_shared": [bound == 0] * len(delays),
        },
        schema={"device": pl.String, "cell": pl.Int32, "delay_ns": pl.Float64, "clock_bound_ns": pl.Float64,
                "clock_shared": pl.Boolean},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bound", "why"),
    [(0.0, "stamped after"), (500.0, "explains them"), (50.0, "does not explain them")],
)
def test_a_negative_delay_is_explained(bound: float, why: str) -> None:
    lines = pl.DataFrame([line()])
    findings = clock_findings(lines, TWO, one_way([-200.0, 900.0], bound))
    assert [one.name for one in findings] == ["negative_delay"]
    assert why in findings[0].sentence
    assert findings[0].value == -200.0


def test_a_step_of_the_line_is_a_finding_only_beyond_its_own_error() -> None:
    def steps(by: float) -> list[str]:
        after = line(from_ns=START + 60 * SECOND, reference_ns=START + 60 * SECOND, offset_ns=by)
        return [one.name for one in clock_findings(pl.DataFrame([line(), after]), TWO, one_way([]))]

    assert steps(9_000.0) == []
    assert steps(-2e6) == ["clock_stepped"]


def test_wandering_clock_stays_within_the_maximum_error() -> None:
    """Lines of 10 s through a sinusoidal drift: every time is within the bound that a chord's sag has."""
    true = START + np.linspace(0, 60 * SECOND, 60_001).astype(np.int64)
    since = (true - START) / 1e9

    def drift(at: Any) -> Any:
        return 1e9 + 20e3 * at + 30_000 * np.sin(2 * np.pi * at / 60)

    remote = true + np.rint(drift(since)).astype(np.int64)
    sag = 30_000 * (2 * np.pi / 60) ** 2 * 10**2 / 8
    lines = []
    for k in range(6):
        first, last = drift(10.0 * k), drift(10.0 * (k + 1))
        begin = START + 10 * k * SECOND + round(first)
        end = START + 10 * (k + 1) * SECOND + round(last)
        lines.append(line(from_ns=begin, to_ns=end, reference_ns=begin, offset_ns=first, bound_ns=sag + 5,
                          skew_ppb=(last - first) / (end - begin) * 1e9))  # fmt: skip
    found = on_sender_clock(arrivals(remote), pl.DataFrame(lines), TWO)
    error = np.abs(found["arrival_on_sender_ns"].to_numpy() - true)
    assert (error <= found["clock_bound_ns"].to_numpy()).all()
    assert error.max() > sag / 2


def test_maximum_error_after_a_line_grows_at_the_maximum_slew_rate() -> None:
    """A clock is slewed by 500 ppm from the last exchange on; the line's skew could differ by 705 ppm there."""
    true = START + np.array([21, 23, 30], dtype=np.int64) * SECOND
    remote = true + ((true - START - 20 * SECOND) * 500e-6).astype(np.int64)
    [kept, slewed] = [
        on_sender_clock(arrivals(remote), pl.DataFrame([line(to_ns=START + 20 * SECOND, skew_bound_ppb=ppb)]), TWO)
        for ppb in (400e3, 705e3)
    ]
    error = np.abs(slewed["arrival_on_sender_ns"].to_numpy() - true)
    assert (error <= slewed["clock_bound_ns"].to_numpy()).all()
    assert (error > kept["clock_bound_ns"].to_numpy()).any(), "without the slew's allowance it does not hold"


def test_clock_set_back_repeats_some_times() -> None:
    """The later life is meant, and the bound reaches to the earlier."""
    back = line(from_ns=START + 8 * SECOND, to_ns=START + 20 * SECOND, reference_ns=START, offset_ns=-2e9)
    lines = lines_of(pl.DataFrame([line(to_ns=START + 10 * SECOND), back]))
    times = START + np.array([5, 9, 15]) * SECOND
    converted, bound, _ = lines.convert(times)
    assert (times - converted).tolist() == [0, -2e9, -2e9]
    assert bound.tolist() == [5000, 2e9 + 5000, 5000]


def test_asymmetry_reported_by_the_instrument_is_a_finding(tmp_path: Path) -> None:
    block = {"block": 0, "device": "bridge", "round": 0, "cell": 0}
    findings = [
        {"finding": "clock_asymmetric", "sentence": "that direction is loaded"},
        {"finding": "clock_slewed", "sentence": "the rate changed"},
    ]
    told = [{"flow": 1, "findings": findings}]
    log = [made_up.trial_event(block, made_up.factors(), clock=told)]
    found = asymmetries(load(made_up.write(tmp_path / "run", '[study]\nname = "x"\nmethod = "one-way"\n', log, {})))
    assert [(one.name, one.sentence, one.places) for one in found] == [
        ("clock_asymmetric", "that direction is loaded", (Place("bridge", 0),)),
        ("clock_slewed", "the rate changed", (Place("bridge", 0),)),
    ]


def timed(block: int, at_ns: int, clock_id: int = 2) -> list[dict[str, Any]]:
    """Both ends of a block that began then."""
    return [stream(block) | {"started_ns": at_ns}, stream(block, "receive", clock_id) | {"started_ns": at_ns}]


def test_trial_without_exchanges_uses_clock_lines_of_neighbouring_trials() -> None:
    begins = {0: 0, 1: 2, 2: 10, 3: 20, 4: 30, 5: 5}
    streams = pl.DataFrame(
        [one for block, at in begins.items() for one in timed(block, START + at * SECOND, 9 if block == 5 else 2)]
    )

    def short(block: int, at: int) -> dict[str, Any]:
        span = {"from_ns": START + at * SECOND, "to_ns": START + (at + 1) * SECOND}
        return line(block, offset_ns=float(1000 * block), skew_bound_ppb=1000.0, **span)

    lines = pl.DataFrame([short(0, 0), short(2, 10), short(3, 20)])
    found = with_lent(lines, streams, {"bridge"})
    assert one_sided(lines, streams, {"bridge"}) == {4}
    assert with_lent(lines, streams, {"emulate"}).height == lines.height, "others ask for themselves"
    by_block = {block: sorted(found.filter(block=block)["offset_ns"].to_list()) for block in begins}
    assert by_block == {0: [0.0], 1: [0.0, 2000.0], 2: [2000.0], 3: [3000.0], 4: [3000.0], 5: []}
    assert unsynchronised_blocks(found, streams) == {5}
    converted = on_sender_clock(arrivals([START + 2 * SECOND], block=1), found, streams)
    assert converted["arrival_on_sender_ns"].to_list() == [START + 2 * SECOND]
    assert converted["clock_bound_ns"][0] >= 5000.0 + 2000.0, "by which the two lines differ"


def test_without_any_exchange_no_clock_line_is_borrowed() -> None:
    streams = pl.DataFrame(timed(0, START))
    assert with_lent(NONE, streams, {"bridge"}).height == 0
    assert unsynchronised_blocks(with_lent(NONE, streams, {"bridge"}), streams) == {0}


def test_trials_over_an_emulator_with_a_clock_line_of_one_side_are_counted(tmp_path: Path) -> None:
    blocks: list[dict[str, Any]] = [{"block": block, "device": device, "round": 0, "cell": 0}
              for block, device in enumerate(("emulate", "direct", "emulate", "direct", "emulate"))]  # fmt: skip
    begins = [START + 10 * block["block"] * SECOND for block in blocks]
    ends = [one | {"device": block["device"], "round": 0, "visit": 0}
            for block, at in zip(blocks, begins, strict=True) for one in timed(block["block"], at)]  # fmt: skip
    lines = [line(block, from_ns=begins[block], to_ns=begins[block] + SECOND) for block in (1, 3)]
    tables = {
        ("streams", "a"): pl.DataFrame([one for one in ends if one["role"] == "send"]),
        ("streams", "b"): pl.DataFrame([one for one in ends if one["role"] == "receive"]),
        ("clock_lines", "b"): pl.DataFrame(lines),
    }
    log = [
        {"event": "emulator-ready", "device": "emulate"},
        *(made_up.trial_event(one, made_up.factors()) for one in blocks),
    ]
    run = load(made_up.write(tmp_path / "run", '[study]\nname = "x"\nmethod = "one-way"\n', log, tables))
    assert run.clock_lines.group_by("block").len().sort("block").rows() == [(0, 1), (1, 1), (2, 2), (3, 1), (4, 1)]
    [found] = asymmetries(run)
    assert (found.name, found.value) == ("clock_one_sided", 2)
