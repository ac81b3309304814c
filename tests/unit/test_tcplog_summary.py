"""The summary of a log's flows: its numbers are those of a log that was made up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from sojourn.export import Chosen, TcpLog
from sojourn.export.summary import LIMITS, SYN_STATES, summarised
from sojourn.export.summary_samples import KINDS
from sojourn.export.summary_text import described, shortened, tabulated
from tests.unit.made_up_tcp import FLAG_NAMES, Log, MadeFlow

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.made_up_tcp import Truth

FLAGS = ["timestamps", *(["-"] * 9), "cwnd-limited"]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Truth]:
    """A log of three flows, one of them the receiving end."""
    flows = (
        MadeFlow(rounds=40),
        MadeFlow(algorithm="cubic", family=6, rounds=30),
        MadeFlow(role="receiver", rounds=10),
    )
    return tmp_path / "t", Log(flows).write(tmp_path / "t")


def test_flow_figures_equal_those_of_its_samples(made: tuple[Path, Truth]) -> None:
    path, truth = made
    rows = summarised(TcpLog.open(path))
    assert rows["flow"].to_list() == [1, 2, 3]
    for row in rows.iter_rows(named=True):
        mine = truth.samples.filter(flow=row["flow"]).sort("time_ns", maintain_order=True)
        span_s = (mine["time_ns"][-1] - mine["time_ns"][0]) / 1e9
        assert row["span_s"] == pytest.approx(span_s)
        acked = mine["acked_bytes"][-1] - mine["acked_bytes"][0]
        assert row["acked_bytes"] == acked - (acked > 0 and mine["state"][0] in SYN_STATES), "the SYN is no user data"
        assert row["retransmitted_segments"] == mine["total_retrans"].max()
        assert row["goodput_out_bps"] == pytest.approx(8 * row["acked_bytes"] / span_s)
        rtt = mine.filter(pl.col("point") == "in")["rtt_last_us"].drop_nulls()
        if rtt.len():
            assert row["rtt_min_us"] == rtt.min()
            assert row["rtt_p95_us"] == pytest.approx(float(rtt.quantile(0.95) or 0), rel=0.05)
    sender, receiver = rows.row(0, named=True), rows.row(2, named=True)
    assert sender["acked_bytes"] > 0 < receiver["received_bytes"]


@pytest.mark.parametrize("first_state", [2, 1])
def test_syn_and_fin_are_no_user_data(made: tuple[Path, Truth], first_state: int) -> None:
    path, truth = made
    mine = truth.samples.filter(flow=1).sort("time_ns", maintain_order=True).with_row_index("at")
    is_first, is_last = pl.col("at") == 0, pl.col("at") == mine.height - 1
    has_syn = first_state == 2

    def ends(column: str, first: int, last: int) -> pl.Expr:
        return pl.when(is_first).then(first).when(is_last).then(last).otherwise(column).cast(pl.Int64).alias(column)

    truth.tables["tcp_samples"] = mine.with_columns(
        pl.when(is_first).then(first_state).otherwise("state").cast(pl.Int32).alias("state"),
        ends("in_flight_bytes", 1 if has_syn else 300, 0),
        ends("sent_bytes", 0 if has_syn else 300, 10_000),
        ends("retransmitted_bytes", 0, 1_000),
        ends("acked_bytes", 0 if has_syn else 1, 9_002),
        ends("received_bytes", 0, 1),
        pl.lit(0, pl.Int64).alias("data_segs_in"),
    ).drop("at")
    truth.write_records(path / "records")
    (row,) = summarised(TcpLog.open(path, Chosen(frozenset({1})))).iter_rows(named=True)
    assert (row["acked_bytes"], row["received_bytes"]) == (9_000, 0)


@pytest.mark.parametrize("state", [8, 5], ids=["CLOSE_WAIT", "FIN_WAIT2"])
def test_received_fin_is_not_user_data(made: tuple[Path, Truth], state: int) -> None:
    """The kernel counts it as a byte when it has come: the state says so, or the FIN's sequence number."""
    path, truth = made
    mine = truth.samples.filter(flow=3).sort("time_ns", maintain_order=True)
    (before,) = summarised(TcpLog.open(path, Chosen(frozenset({3}))))["received_bytes"]
    last = mine.tail(1)
    at, seq, received = (int(last[name][0]) for name in ("time_ns", "rcv_nxt", "received_bytes"))
    bare = last.with_columns(pl.lit(0).cast(last.schema["payload_bytes"]).alias("payload_bytes"))
    behind = (seq + 1) % 2**32
    both = [
        bare.with_columns(time_ns=pl.lit(at + 1_000), point=pl.lit("in"), seq=pl.lit(seq), tcp_flags=pl.lit(0x11)),
        bare.with_columns(
            time_ns=pl.lit(at + 2_000), point=pl.lit("out"), tcp_flags=pl.lit(0x10), state=pl.lit(state),
            rcv_nxt=pl.lit(behind), received_bytes=pl.lit(received + 1),
        ),
    ]  # fmt: skip
    truth.tables["tcp_samples"] = pl.concat([mine, *(one.cast(mine.schema) for one in both)])
    truth.write_records(path / "records")
    (row,) = summarised(TcpLog.open(path, Chosen(frozenset({3}))))["received_bytes"]
    assert row == before > 0


def waiting(unsent: int, window: int) -> dict[str, pl.Expr]:
    """Columns of a flow with so many bytes not sent yet, so large a window of its peer, and room in its own."""
    return {
        "snd_queued_bytes": pl.col("in_flight_bytes") + pl.col("payload_bytes").fill_null(0) + unsent,
        "snd_wnd_bytes": pl.lit(window, pl.Int64),
        "snd_cwnd": pl.lit(1_000_000, pl.Int64),
    }


@pytest.mark.parametrize(
    ("unsent", "window", "limit"),
    [(0, 1 << 30, "application"), (100_000, 0, "receiver"), (100_000, 1 << 30, "path_or_pacing")],
)
def test_kernel_state_busy_is_refined_by_windows_and_unsent_data(
    made: tuple[Path, Truth], unsent: int, window: int, limit: str
) -> None:
    path, truth = made
    told = truth.samples.filter(flow=1).sort("time_ns").with_columns(payload_bytes=pl.lit(0, pl.Int32))
    busy = told.with_columns(
        limited_by=pl.lit("busy"),
        point=pl.lit("in"),  # of none a packet is on its way out, which is not in flight yet
        flags=pl.lit(0, pl.Int32),
        ca_state=pl.lit(0, pl.Int32),
        **waiting(unsent, window),
    )
    truth.tables["tcp_samples"] = busy
    truth.write_records(path / "records")
    (row,) = summarised(TcpLog.open(path, Chosen(frozenset({1})))).iter_rows(named=True)
    times = {name: row[f"limited_by_{name}_s"] for name in LIMITS if row[f"limited_by_{name}_s"]}
    assert list(times) == [limit]
    assert times[limit] * 1e9 == pytest.approx(busy["time_ns"][-1] - busy["time_ns"][0])


def test_pausing_sender_is_application_limited_for_any_window(made: tuple[Path, Truth]) -> None:
    """The kernel's flag of a full window stays set until more is sent; all was acknowledged, in recovery too."""
    path, truth = made
    told = truth.samples.filter(flow=1).sort("time_ns", maintain_order=True)
    pause = told.filter(pl.col("point") == "in").slice(100, 2).with_row_index("at")
    truth.tables["tcp_samples"] = pause.with_columns(
        time_ns=pl.lit(told["time_ns"][0]) + pl.col("at").cast(pl.Int64) * 250_000_000,
        limited_by=pl.lit("busy"),
        flags=pl.lit(1 << FLAG_NAMES.index("cwnd-limited"), pl.Int32),
        ca_state=pl.lit(3, pl.Int32),
        ack=pl.col("snd_nxt"),
        snd_queued_bytes=pl.col("in_flight_bytes"),
    ).drop("at")
    truth.write_records(path / "records")
    (row,) = summarised(TcpLog.open(path, Chosen(frozenset({1})))).iter_rows(named=True)
    assert {name: row[f"limited_by_{name}_s"] for name in LIMITS if row[f"limited_by_{name}_s"]} == {
        "application": 0.25
    }


@pytest.mark.parametrize(("cwnd", "limit"), [(12, "cwnd"), (13, "path_or_pacing")])
def test_packet_being_sent_counts_as_in_flight(made: tuple[Path, Truth], cwnd: int, limit: str) -> None:
    """Ten segments are in flight, two are about to be: nothing more may be sent until an acknowledgement comes."""
    path, truth = made
    told = truth.samples.filter(flow=1, point="out").filter(pl.col("payload_bytes") > 0).sort("time_ns").slice(50, 2)
    state = {
        "packets_out": 10,
        "sacked_out": 0,
        "lost_out": 0,
        "retrans_out": 0,
        "segments": 2,
        "ca_state": 0,
        "flags": 0,
    }
    truth.tables["tcp_samples"] = told.with_columns(
        limited_by=pl.lit("busy"), **(waiting(100_000, 1 << 30) | {"snd_cwnd": pl.lit(cwnd, pl.Int64)}),
        **{name: pl.lit(value).cast(told.schema[name]) for name, value in state.items()},
    )  # fmt: skip
    truth.write_records(path / "records")
    (row,) = summarised(TcpLog.open(path, Chosen(frozenset({1})))).iter_rows(named=True)
    assert [name for name in LIMITS if row[f"limited_by_{name}_s"]] == [limit]


def test_one_line_per_flow_of_80_columns_sorted_by_bytes(made: tuple[Path, Truth]) -> None:
    log = TcpLog.open(made[0])
    rows = summarised(log)
    lines = tabulated(rows, log).splitlines()
    assert max(map(len, lines)) <= 80
    carried = dict(zip(rows["flow"], rows["acked_bytes"] + rows["received_bytes"], strict=True))
    order = [int(line.split()[0]) for line in lines[1 : 1 + rows.height]]
    assert order == sorted(order, key=lambda flow: -carried[flow])


@pytest.mark.parametrize("rows", [64, 999])
def test_chunked_reading_gives_the_same_summary(
    made: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    path, truth = made
    whole = summarised(TcpLog.open(path))
    mine = truth.samples.sort("time_ns", maintain_order=True)
    pieces = [mine.slice(at, rows) for at in range(0, mine.height, rows)]
    monkeypatch.setattr(TcpLog, "in_order", lambda _, __: iter(pieces))
    assert_frame_equal(summarised(TcpLog.open(path)), whole)


@pytest.mark.parametrize("rows", [64, 10_000])
def test_counters_of_32_bits_wrap_correctly(
    made: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """At 10 Gbit/s the kernel's count of segments begins anew every 83 minutes."""
    path, truth = made
    place = pl.int_range(pl.len(), dtype=pl.Int64).over("flow")
    # The fourth was read a little before the third was, on another processor.
    grown = pl.when(place == 3).then(2 * 2**29 - 3).otherwise(place * 2**29)
    mine = truth.samples.sort("time_ns", maintain_order=True).with_columns(segs_out=grown % 2**32)
    pieces = [mine.slice(at, rows) for at in range(0, mine.height, rows)]
    monkeypatch.setattr(TcpLog, "in_order", lambda _, __: iter(pieces))
    found = dict(summarised(TcpLog.open(path)).select("flow", "segments_out").rows())
    samples = dict(mine.group_by("flow").len().rows())
    assert found == {flow: (count - 1) * 2**29 for flow, count in samples.items()}
    assert max(found.values()) > 2**32


def test_retransmissions_are_reported_by_kind_for_complete_logs(made: tuple[Path, Truth]) -> None:
    """Data sent again in Recovery, in Loss, and with a probe begun; a missing packet makes all unknown."""
    path, truth = made
    flow = truth.samples.filter(pl.col("flow") == 1, pl.col("point") == "out", pl.col("payload_bytes") > 0)
    mine = flow.sort("time_ns").head(8).with_row_index("at")
    again = pl.col("at").is_in([1, 2, 3, 5])
    told = mine.with_columns(
        pl.when(again).then(pl.col("snd_nxt") - 2000).otherwise("snd_nxt").alias("seq"),
        pl.lit(1, pl.Int32).alias("segments"),
        pl.lit(16, pl.Int32).alias("tcp_flags"),
        pl.col("at").replace_strict({1: 3, 2: 3, 3: 4}, default=0, return_dtype=pl.Int32).alias("ca_state"),
        pl.when(pl.col("at") == 6).then(1 << FLAG_NAMES.index("tlp")).otherwise(0).cast(pl.Int32).alias("flags"),
        pl.col("at").replace_strict({4: 3, 5: 3, 6: 4, 7: 4}, default=0, return_dtype=pl.Int64).alias("total_retrans"),
    )  # fmt: skip
    for there, kinds in ((told, [2, 1, 1, 0]), (told.filter(pl.col("at") != 2), [None] * len(KINDS))):
        truth.tables["tcp_samples"] = there.drop("at")
        truth.write_records(path / "records")
        (row,) = summarised(TcpLog.open(path, Chosen(frozenset({1})))).iter_rows(named=True)
        assert row["retransmitted_segments"] == 4
        assert [row[f"retransmitted_{kind}_segments"] for kind in KINDS] == kinds


def test_only_gaps_within_the_lifetime_of_a_flow_count(made: tuple[Path, Truth]) -> None:
    """Over before the first sample, begun behind the last, on either edge, inside, open at one end, at both."""
    path, truth = made
    times = truth.samples.filter(flow=1)["time_ns"]
    first, last = int(times.min()), int(times.max())  # type: ignore[arg-type]
    spans: list[tuple[int | None, int | None]] = [(first - 9, first - 1), (last + 1, last + 9), (first - 9, first)]
    spans += [
        (last, last + 9),
        (first + 1, last - 1),
        (None, first - 1),
        (None, first + 1),
        (last - 1, None),
        (last + 1, None),
        (None, None),
    ]
    within = [low is None or low <= last for low, _ in spans]
    within = [one and (high is None or high >= first) for one, (_, high) in zip(within, spans, strict=True)]
    lacks = [2**place for place in range(len(spans))]
    gaps = truth.tables["tcp_gaps"].clear()
    rows = [
        {"block": 0, "cpu": 0, "number": 0, "missing": lack, "after_ns": low, "before_ns": high}
        for lack, (low, high) in zip(lacks, spans, strict=True)
    ]
    truth.tables["tcp_gaps"] = pl.DataFrame(rows, schema=gaps.schema)
    truth.write_records(path / "records")
    (row,) = summarised(TcpLog.open(path, Chosen(frozenset({1})))).iter_rows(named=True)
    assert row["gaps"] == sum(within)
    assert row["gap_records"] == sum(lack for lack, one in zip(lacks, within, strict=True) if one)


def test_rtt_quantiles_equal_the_simulated_ones(made: tuple[Path, Truth]) -> None:
    path, truth = made
    rtt = 5_000 + 37 * pl.int_range(pl.len(), dtype=pl.Int64)
    mine = truth.samples.filter(flow=1).with_columns(pl.lit("in").alias("point"), rtt.alias("rtt_last_us"))
    truth.tables["tcp_samples"] = mine
    truth.write_records(path / "records")
    (row,) = summarised(TcpLog.open(path, Chosen(frozenset({1})))).iter_rows(named=True)
    last = 37 * (mine.height - 1)
    assert (row["rtt_min_us"], row["rtt_max_us"]) == (5_000, 5_000 + last)
    assert row["rtt_p50_us"] == pytest.approx(5_000 + last * 0.5, rel=0.002)
    assert row["rtt_p95_us"] == pytest.approx(5_000 + last * 0.95, rel=0.002)


def test_time_is_divided_among_the_limits(made: tuple[Path, Truth]) -> None:
    path, truth = made
    told = truth.samples.filter(flow=1).sort("time_ns", maintain_order=True).with_row_index("at")
    third = told.height // 3
    odd = told.with_columns(
        pl.when(pl.col("at") < third).then(pl.lit("idle")).otherwise(pl.lit("busy")).alias("limited_by"),
        pl.when(pl.col("at") < 2 * third).then(1 << 10).otherwise(0).cast(pl.Int32).alias("flags"),
        pl.when(pl.col("at") == told.height - 2).then(3).otherwise(0).cast(pl.Int32).alias("ca_state"),
        **waiting(100_000, window=1 << 30),
    ).drop("at")
    truth.tables["tcp_samples"] = odd
    truth.write_records(path / "records")
    log = TcpLog.open(path, Chosen(frozenset({1})))
    log.header["tcp_flag_names"] = FLAGS
    (row,) = summarised(log).iter_rows(named=True)
    times = odd["time_ns"]
    expected = {
        "application": times[third] - times[0],
        "cwnd": times[2 * third] - times[third],
        "path_or_pacing": times[-2] - times[2 * third],
        "recovery": times[-1] - times[-2],
    }
    for name in LIMITS:
        assert row[f"limited_by_{name}_s"] * 1e9 == pytest.approx(expected.get(name, 0))


def test_summary_states_what_was_logged_and_what_was_not(made: tuple[Path, Truth]) -> None:
    path, truth = made
    truth.tables["tcp_samples"] = truth.samples.filter(pl.col("flow") != 2).with_columns(
        pl.when(pl.col("rtt_min_us").is_not_null()).then(pl.lit(3000, pl.Int64)).alias("rtt_min_us")
    )
    truth.write_records(path / "records")
    log = TcpLog.open(path)
    text = described(summarised(log), log)
    assert "flow 1: 10.0.0.1:40000 → 10.0.0.2:5201, reno" in text
    assert "goodput" in text
    assert re.search(r"RTT +min \d+\.\d{3} ms, p50 \d+\.\d{3} ms, p95", text)
    assert "3.000 ms, is of TCP timestamps, which count whole ms" in text
    assert "1 more flow seen, of which nothing was logged" in text


def test_empty_log_is_reported(made: tuple[Path, Truth]) -> None:
    path, truth = made
    truth.tables["tcp_samples"] = truth.samples.clear()
    truth.write_records(path / "records")
    log = TcpLog.open(path)
    assert described(summarised(log), log).startswith("No flow was logged.")


def test_at_the_end_of_a_log_the_flows_are_listed_in_twenty_lines(tmp_path: Path) -> None:
    """Of few all, of many those with the most bytes, and the others are counted."""
    for flows in (3, 40):
        Log(tuple(MadeFlow(rounds=2 + number) for number in range(flows))).write(tmp_path / f"t{flows}")
        log = TcpLog.open(tmp_path / f"t{flows}")
        rows = summarised(log)
        whole, lines = tabulated(rows, log).splitlines(), shortened(rows, log, 20).splitlines()
        assert len(lines) == min(20, flows + 2)
        shown = min(flows, 17)
        assert lines[: 1 + shown] == whole[: 1 + shown]
        if flows > shown:
            assert lines[-2] == f"{flows - shown} more flows with fewer bytes: sojourn tcplog summary {log.path}"
        assert lines[-1] == f"one flow in full: sojourn tcplog summary {log.path} --flow N"
