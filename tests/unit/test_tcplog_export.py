"""Logs of TCP's state in other formats: nothing lost, nothing changed, and read back by readers of the formats' own.

SIFTR's lines are parsed by a reader that was written from siftr(4) and knows nothing of the writer.
"""

from __future__ import annotations

import hashlib
import io
import ipaddress
import json
import os
import re
import tracemalloc
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sojourn.cli import main
from sojourn.errors import RequestError
from sojourn.export import Chosen, Request, TcpLog, Told, convert
from sojourn.records import TABLES
from sojourn.report.tcplog.log import Log as Drawn
from tests.unit.made_up_tcp import START, TAI_MINUS_UTC_S, Log, MadeFlow, Truth, write_table
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from pathlib import Path

NAMES = (
    *("direction", "time", "laddr", "lport", "faddr", "fport", "ssthresh", "cwnd", "flags2", "snd_wnd", "rcv_wnd"),
    *("snd_scale", "rcv_scale", "state", "mss", "srtt", "sack", "flags", "rto", "snd_hiwat", "snd_cc", "rcv_hiwat"),
    *("rcv_cc", "inflight", "segqlen", "flowid", "flowtype"),
)
OLD_NAMES = ("direction", "hash", *NAMES[1:-2])
STATES = {"CLOSED": 0, "LISTEN": 1, "SYN_SENT": 2, "SYN_RECEIVED": 3, "ESTABLISHED": 4, "FIN_WAIT_1": 6}
TWO = (MadeFlow(), MadeFlow(algorithm="cubic", family=6, rounds=40), MadeFlow(role="receiver", isn=2**32 - 9000))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """A log of three flows, each packet logged, some without room."""
    path = tmp_path_factory.mktemp("log") / "t"
    log = Log(TWO, gap_every=500, absent=["received_ce"], skipped={"no-socket": 8, "no-state": 4}, private_every=100)
    return path, log.write(path)


def exported(path: Path, to: str, tmp_path: Path, **asked: Any) -> tuple[Path, Told]:
    """What a conversion wrote, and told."""
    output = tmp_path / f"out.{to}"
    return output, convert(Request(path, to, output, **asked))


# --- SIFTR -----------------------------------------------------------------------------------------------------------


def siftr(path: Path) -> tuple[dict[str, str], list[dict[str, str]], dict[str, str]]:
    """A log of SIFTR as siftr(4) describes it: a line of pairs, lines of packets, a line of pairs."""
    first, *lines, last = path.read_text().splitlines()
    head, foot = (dict(pair.split("=", 1) for pair in line.split("\t")) for line in (first, last))
    names = OLD_NAMES if head["siftrver"].startswith("1.2") else NAMES
    packets = []
    for line in lines:
        fields = line.split(",")
        assert len(fields) == len(names), line
        assert re.fullmatch(r"[io]", fields[0])
        assert all(re.fullmatch(r"\d+", one) for one in fields[-18:])
        packets.append(dict(zip(names, fields, strict=True)))
    return head, packets, foot


def test_siftr_export_equals_the_log(made: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = made
    output, told = exported(path, "siftr", tmp_path)
    head, packets, foot = siftr(output)
    assert head["siftrver"] == "1.3.0"
    assert (int(head["enable_time_secs"]), head["enable_time_usecs"]) == (START // 10**9 - TAI_MINUS_UTC_S, "000000")
    assert head["ipmode"] == "6"
    wanted = truth.samples.filter(pl.col("state").is_in([1, 4])).sort("time_ns", maintain_order=True)
    assert told.records == len(packets) == wanted.height
    assert [one["direction"] for one in packets] == [point[0] for point in wanted["point"]]
    minus_utc = TAI_MINUS_UTC_S * 10**9
    assert [one["time"] for one in packets] == [
        f"{(at - minus_utc) // 10**9}.{(at - minus_utc) // 1000 % 10**6:06d}" for at in wanted["time_ns"]
    ]
    rows = list(wanted.iter_rows(named=True))
    for one, row in zip(packets, rows, strict=True):
        infinite = row["snd_ssthresh"] == 2**31 - 1
        assert int(one["ssthresh"]) == (1073725440 if infinite else row["snd_ssthresh"] * row["mss_bytes"])
        assert int(one["cwnd"]) == row["snd_cwnd"] * row["mss_bytes"]
        assert int(one["srtt"]) == int(row["srtt_us"])
        assert int(one["rto"]) == row["rto_us"]
        assert int(one["inflight"]) == row["in_flight_bytes"]
        assert int(one["flowid"]) == row["flow"]
        assert int(one["state"]) == (STATES["FIN_WAIT_1"] if row["state"] == 4 else STATES["ESTABLISHED"])
        assert one["sack"] == "1"
        assert bool(int(one["flags"]) & 0x0010_0000) == (row["ca_state"] == 3)
    assert {one["laddr"] for one in packets} == {"10.0.0.1", "fd00:0:0:0:0:0:0:1"}
    assert any("established" in sentence for sentence in told.sentences)
    assert foot["flow_list"].endswith(",")
    assert len(foot["flow_list"].split(",")) == len(TWO) + 1


def test_siftr_export_has_flow_hashes_on_request(made: tuple[Path, Truth], tmp_path: Path) -> None:
    """By the ends of a line and SHA-256 alone, as the reference says."""
    path, _ = made
    plain = siftr(exported(path, "siftr", tmp_path)[0])[1]
    packets = siftr(exported(path, "siftr", tmp_path, flow_hashes=True, force=True)[0])[1]
    assert {one["flowtype"] for one in plain} == {"63"}
    assert {one["flowtype"] for one in packets} == {"191"}
    for one, other in zip(packets, plain, strict=True):
        ends = sorted(
            ipaddress.ip_address(one[f"{side}addr"]).packed + int(one[f"{side}port"]).to_bytes(2, "big")
            for side in "lf"
        )
        assert int(one["flowid"]) == int(hashlib.sha256(b"".join(ends)).hexdigest()[:8], 16)
        assert {k: v for k, v in one.items() if not k.startswith("flow")} == {
            k: v for k, v in other.items() if not k.startswith("flow")
        }
    assert len({one["flowid"] for one in packets}) == len({one["flowid"] for one in plain}) == len(TWO)


@pytest.mark.parametrize("to", ["siftr-1.2", "csv"])
def test_flow_hashes_equal_those_of_siftr(made: tuple[Path, Truth], tmp_path: Path, to: str) -> None:
    with pytest.raises(RequestError, match="--genhashes needs --to siftr"):
        exported(made[0], to, tmp_path, flow_hashes=True)


@pytest.mark.parametrize("version", ["siftr", "siftr-1.2"])
@pytest.mark.parametrize("all_states", [False, True])
def test_siftr_counts_every_packet(made: tuple[Path, Truth], tmp_path: Path, version: str, all_states: bool) -> None:
    path, truth = made
    output, _ = exported(path, version, tmp_path, all_states=all_states)
    _, packets, foot = siftr(output)
    assert len(packets) == int(foot["total_tcp_pkts"]) - int(foot["total_skipped_tcp_pkts"])
    for way in ("in", "out"):
        assert int(foot[f"num_{way}bound_tcp_pkts"]) == truth.packets(way, "seen")
        assert int(foot[f"num_{way}bound_skipped_pkts_malloc"]) == truth.packets(way, "full")
        assert int(foot[f"num_{way}bound_skipped_pkts_inpcb"]) == 4
        early = truth.samples.filter(pl.col("point") == way, pl.col("state").is_in([2, 3, 10])).height
        assert int(foot[f"num_{way}bound_skipped_pkts_tcpcb"]) == 2 + (0 if all_states else early)
    skipped = sum(int(value) for name, value in foot.items() if "bound_skipped" in name)
    assert skipped == int(foot["total_skipped_tcp_pkts"])


def test_old_siftr_has_a_hash_and_ticks(made: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = made
    head, packets, foot = siftr(exported(path, "siftr-1.2", tmp_path)[0])
    assert head["siftrver"] == "1.2.3"
    assert {one["hash"] for one in packets} == {"0x00000000"}
    assert foot["num_inbound_skipped_pkts_mtx"] == "0"
    tick = int(head["hz"]) * int(head["tcp_rtt_scale"])
    wanted = truth.samples.filter(pl.col("state").is_in([1, 4])).sort("time_ns", maintain_order=True)
    for one, srtt, rto in zip(packets, wanted["srtt_us"], wanted["rto_us"], strict=True):
        assert int(one["srtt"]) / tick == pytest.approx(srtt / 1e6, abs=1 / tick)
        assert int(one["rto"]) / int(head["hz"]) == pytest.approx(rto / 1e6, abs=1 / int(head["hz"]))


def test_siftr_of_one_flow_counts_that_flow(made: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = made
    output, _ = exported(path, "siftr", tmp_path, chosen=Chosen(flows=frozenset({2})))
    head, packets, foot = siftr(output)
    assert head["ipmode"] == "6"
    assert {one["flowid"] for one in packets} == {"2"}
    assert len(packets) == int(foot["total_tcp_pkts"]) - int(foot["total_skipped_tcp_pkts"])
    assert int(foot["num_outbound_tcp_pkts"]) == truth.packets("out", "seen", flow=2)
    assert foot["flow_list"] == "fd00:0:0:0:0:0:0:1;40001-fd00:0:0:0:0:0:0:2;5201,"


def test_filtered_flows_are_not_listed(tmp_path: Path) -> None:
    truth = Log(TWO).make()
    flows, account = truth.tables["tcp_flows"], truth.tables["tcp_account"]
    truth.tables["tcp_flows"] = flows.with_columns((pl.col("flow") == 1).alias("wanted"))
    # The second was wanted at first; of the third nothing was logged.
    none = pl.when(pl.col("flow") == 3, pl.col("disposition") == "logged").then(0).otherwise(pl.col("packets"))
    truth.tables["tcp_account"] = account.with_columns(none.alias("packets"))
    truth.tables["tcp_samples"] = truth.samples.filter(pl.col("flow") < 3)
    truth.write_records(tmp_path / "t" / "records")
    foot = siftr(exported(tmp_path / "t", "siftr", tmp_path)[0])[2]
    assert [one.split(";")[1].split("-")[0] for one in foot["flow_list"].split(",")[:-1]] == ["40000", "40001"]


def test_sampled_out_packets_are_not_counted_as_skipped(tmp_path: Path) -> None:
    truth = Log((MadeFlow(),), ppl=7).write(tmp_path / "t")
    _, packets, foot = siftr(exported(tmp_path / "t", "siftr", tmp_path)[0])
    assert int(foot["total_tcp_pkts"]) == truth.packets("in", "seen") + truth.packets("out", "seen")
    assert len(packets) == truth.samples.filter(pl.col("state").is_in([1, 4])).height


def test_field_missing_in_the_kernel_is_reported(tmp_path: Path) -> None:
    Log((MadeFlow(rounds=5),), absent=["rto_us", "segs_in"]).write(tmp_path / "t")
    output, told = exported(tmp_path / "t", "siftr", tmp_path)
    assert {one["rto"] for one in siftr(output)[1]} == {"0"}
    assert any("rto_us" in sentence and "segs_in" not in sentence for sentence in told.sentences)


# --- tables ----------------------------------------------------------------------------------------------------------


def table(path: Path, to: str) -> pl.DataFrame:
    """The columns of samples as anybody would read them, as the declared types."""
    return whole_table(path, to).select(*TABLES["tcp_samples"])


def whole_table(path: Path, to: str) -> pl.DataFrame:
    """The same with the ends of flows and the names of states."""
    kinds: dict[str, Any] = {"int32": pl.Int32, "int64": pl.Int64, "float64": pl.Float64}
    schema = {one.name: kinds.get(one.type, pl.String) for one in TABLES["tcp_samples"].values()}
    schema |= dict.fromkeys(("local_address", "remote_address", "algorithm"), pl.String)
    schema |= dict.fromkeys(("local_port", "remote_port"), pl.Int32)
    schema |= dict.fromkeys(("state_name", "ca_state_name"), pl.String)
    if to == "csv":
        header = path.read_text().partition("\n")[0].split(",")
        return pl.read_csv(path, schema={name: schema[name] for name in header})
    if to == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return pl.DataFrame(rows, schema=schema)
    return pl.read_parquet(path)


@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet"])
def test_exported_table_names_endpoints_and_states(made: tuple[Path, Truth], tmp_path: Path, to: str) -> None:
    path, truth = made
    read = whole_table(exported(path, to, tmp_path)[0], to)
    flows = truth.tables["tcp_flows"]
    ends = ["local_address", "local_port", "remote_address", "remote_port", "algorithm"]
    for flow, told in read.group_by("flow"):
        assert told.select(ends).unique().rows() == flows.filter(flow=flow[0]).select(ends).rows()
    names = dict(read.select("state", "state_name").drop_nulls().unique().iter_rows())
    assert names == {1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 10: "LISTEN"}
    assert set(read["ca_state_name"]) == {"Open", "Recovery"}


@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("points", ["pre", "both"])
def test_exported_table_round_trips(tmp_path: Path, to: str, points: str) -> None:
    truth = Log(TWO, points=points, absent=["received_ce", "limited_by"]).write(tmp_path / "t")
    output, told = exported(tmp_path / "t", to, tmp_path)
    read = table(output, to)
    assert told.records == read.height
    order = ["flow", "time_ns", "cpu", "number"]
    assert read.sort(order).equals(truth.samples.sort(order), null_equal=True)
    if to != "parquet":
        assert read["time_ns"].is_sorted()


ODD = st.one_of(st.none(), st.sampled_from([0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1]))


@given(values=st.lists(ODD, min_size=1, max_size=20), srtt=st.floats(0, 1e12, allow_nan=False) | st.none())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_extreme_values_round_trip(
    values: list[int | None], srtt: float | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("odd")
    truth = Log((MadeFlow(rounds=4),)).write(tmp_path / "t")
    rows = truth.samples.head(len(values))
    whole = [value if value is None or value < 2**31 else 2**31 - 1 for value in values]
    odd = rows.with_columns(
        pl.Series("snd_nxt", values[: rows.height], pl.Int64),
        pl.Series("in_flight_bytes", values[: rows.height], pl.Int64),
        pl.Series("snd_cwnd", whole[: rows.height], pl.Int32),
        pl.Series("snd_ssthresh", whole[: rows.height], pl.Int32),
        pl.lit(srtt, pl.Float64).alias("srtt_us"),
        pl.lit(1, pl.Int32).alias("state"),
    )
    write_table(tmp_path / "t" / "records" / "tcp_samples-tcplog-000.arrow", "tcp_samples", odd)
    for to in ("csv", "jsonl", "parquet"):
        read = table(exported(tmp_path / "t", to, tmp_path)[0], to)
        assert read.sort("number").equals(odd.sort("number"), null_equal=True), to
    _, packets, _ = siftr(exported(tmp_path / "t", "siftr", tmp_path)[0])
    assert all(0 <= int(one["cwnd"]) < 2**32 and 0 <= int(one["inflight"]) < 2**32 for one in packets)
    assert all(int(one["ssthresh"]) <= 1073725440 for one in packets)


# --- choosing, and what cannot be done --------------------------------------------------------------------------------


def test_time_span_can_be_selected(made: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = made
    chosen = Chosen(since_ns=200_000_000, until_ns=300_000_000)
    read = table(exported(path, "csv", tmp_path, chosen=chosen)[0], "csv")
    wanted = truth.samples.filter(pl.col("time_ns") >= START + 200_000_000, pl.col("time_ns") < START + 300_000_000)
    assert read.height == wanted.height > 0
    _, packets, foot = siftr(exported(path, "siftr", tmp_path, chosen=chosen)[0])
    assert len(packets) == int(foot["total_tcp_pkts"]) - int(foot["total_skipped_tcp_pkts"])


def test_log_of_many_batches_is_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sojourn.export.log.CHUNK_ROWS", 1000)
    monkeypatch.setattr("tests.unit.made_up_tcp.BATCH_ROWS", 500)
    truth = Log(TWO).write(tmp_path / "t")
    frames = list(TcpLog.open(tmp_path / "t").in_order(["time_ns", "flow"]))
    assert len(frames) > 3
    assert pl.concat(frames)["time_ns"].equals(truth.samples["time_ns"].sort())
    # A reader that stood still: of one CPU all comes after all of the other.
    late = truth.samples.sort("cpu", "number")
    write_table(tmp_path / "t" / "records" / "tcp_samples-tcplog-000.arrow", "tcp_samples", late)
    frames = list(TcpLog.open(tmp_path / "t").in_order(["time_ns", "flow"]))
    assert pl.concat(frames)["time_ns"].equals(truth.samples["time_ns"].sort())
    of_flow = TcpLog.open(tmp_path / "t", Chosen(flows=frozenset({2})))
    assert sum(frame.height for frame in of_flow.in_order(["flow"])) == truth.samples.filter(flow=2).height


def without_samples(path: Path) -> None:
    """A log that saw a flow and logged none of its packets."""
    Log((MadeFlow(rounds=3),), ppl=10**6, points="pre").write(path)
    empty = pl.DataFrame(schema=dict.fromkeys(TABLES["tcp_samples"], pl.Null))
    write_table(path / "records" / "tcp_samples-tcplog-000.arrow", "tcp_samples", empty)


@pytest.mark.parametrize("to", ["siftr", "csv", "jsonl", "parquet", "qlog"])
def test_a_log_without_samples_is_refused(tmp_path: Path, to: str) -> None:
    without_samples(tmp_path / "t")
    with pytest.raises(
        RequestError, match=r"t has no sample: 1 flow seen, of which nothing was logged; `sojourn tcplog"
    ):
        exported(tmp_path / "t", to, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("to", ["siftr", "csv", "jsonl", "parquet", "qlog"])
def test_a_span_of_time_past_the_end_is_refused(made: tuple[Path, Truth], tmp_path: Path, to: str) -> None:
    with pytest.raises(
        RequestError, match=r"no record of .* can be written: nothing of it is left by --flow and --since"
    ):
        exported(made[0], to, tmp_path, chosen=Chosen(flows=frozenset({1}), since_ns=3600 * 10**9))
    assert not list(tmp_path.iterdir())


def test_log_with_only_handshakes_gives_no_siftr_line(made: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = made
    first = truth.samples.filter(pl.col("state").is_in([2, 3]))["time_ns"].min()
    assert isinstance(first, int)
    chosen = Chosen(until_ns=first - START + 1)
    with pytest.raises(RequestError, match=r"nothing of it is left by --until; .* --all-states keeps them"):
        exported(path, "siftr", tmp_path, chosen=chosen)
    assert exported(path, "csv", tmp_path, chosen=chosen)[1].records > 0


def test_a_summary_of_a_log_without_samples_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_samples(tmp_path / "t")
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["sojourn", "tcplog", "summary", str(tmp_path / "t"), *more])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (2, "")
        assert "t has no sample: 1 flow seen, of which nothing was logged" in said.err


def test_wrong_requests_are_one_sentence_and_write_nothing(made: tuple[Path, Truth], tmp_path: Path) -> None:
    path, _ = made
    (tmp_path / "empty").mkdir()
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "spool-000.tcplog").write_bytes(b"x")
    (tmp_path / "there").write_text("mine")
    wrong = {
        "is no folder": Request(tmp_path / "none", "csv"),
        "holds no log": Request(tmp_path / "empty", "csv"),
        "tcplog recover": Request(tmp_path / "killed", "csv"),
        "no format is named": Request(path, "xml"),
        "did you mean pcapng": Request(path, "pcapgn"),
        "there already": Request(path, "csv", tmp_path / "there"),
        "is no folder: make": Request(path, "csv", tmp_path / "no" / "out.csv"),
        "no flow 9": Request(path, "csv", tmp_path / "o", Chosen(flows=frozenset({9}))),
        "no log by": Request(path, "csv", tmp_path / "o", Chosen(who="b")),
        "no log of block": Request(path, "csv", tmp_path / "o", Chosen(block=7)),
    }
    os.mkfifo(tmp_path / "pipe")
    wrong["no ordinary file"] = Request(path, "csv", tmp_path / "pipe", force=True)
    before = sorted(path.iterdir())
    for words, request in wrong.items():
        with pytest.raises(RequestError, match=words):
            convert(request)
    assert sorted(path.iterdir()) == before
    assert (tmp_path / "there").read_text() == "mine"
    assert (tmp_path / "pipe").is_fifo()
    assert not (tmp_path / "o").exists()


def test_damaged_header_is_reported(tmp_path: Path) -> None:
    Log((MadeFlow(rounds=3),)).write(tmp_path / "t")
    (tmp_path / "t" / "header.json").write_text('{"tcplog": 1')
    with pytest.raises(RequestError, match="damaged"):
        exported(tmp_path / "t", "csv", tmp_path)


@pytest.mark.parametrize("name", ["header.json", "footer.json"])
@pytest.mark.parametrize(
    ("octets", "why"), [(b"[" + b"[]," * 700_000 + b"0]", "262,144 values"), (b'"' + b" " * (64 << 20), "64 MiB")]
)
def test_a_header_and_a_footer_that_would_take_much_memory_are_refused(
    octets: bytes, why: str, name: str, tmp_path: Path
) -> None:
    """2 MiB of empty lists became 199 MiB."""
    Log((MadeFlow(rounds=3),)).write(tmp_path / "t")
    (tmp_path / "t" / name).write_bytes(octets)
    for read in (TcpLog.open, Drawn.read):
        tracemalloc.start()
        with pytest.raises(RequestError, match=f"{name} is damaged: it has more than {why}"):
            read(tmp_path / "t")
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 140 << 20


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_log_is_converted_up_to_a_truncation_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: float
) -> None:
    monkeypatch.setattr("tests.unit.made_up_tcp.BATCH_ROWS", 500)
    truth = Log((MadeFlow(),)).write(tmp_path / "t")
    file = tmp_path / "t" / "records" / "tcp_samples-tcplog-000.arrow"
    octets = file.read_bytes()
    file.write_bytes(octets[: int(len(octets) * keep)])
    output, told = exported(tmp_path / "t", "csv", tmp_path)
    assert told.cut
    assert 0 < table(output, "csv").height < truth.samples.height
    assert any("before the cut" in sentence for sentence in told.sentences)


def test_contradictory_samples_are_one_sentence_not_a_crash(tmp_path: Path) -> None:
    Log((MadeFlow(rounds=2),)).write(tmp_path / "t")
    file = tmp_path / "t" / "records" / "tcp_samples-tcplog-000.arrow"
    whole = file.read_bytes()
    batch = whole.index(b"\xff\xff\xff\xff", 8)  # behind the schema: what says where buffers are, and how long
    refused = 0
    for at in range(batch + 8, batch + 8 + 600, 8):
        file.write_bytes(whole[:at] + bytes(8) + whole[at + 8 :])
        try:
            _, told = exported(tmp_path / "t", "csv", tmp_path, force=True)
            refused += bool(told.cut)
        except RequestError:
            refused += 1
    assert refused > 5


def test_log_of_a_killed_run_is_converted_without_a_footer(tmp_path: Path) -> None:
    truth = Log((MadeFlow(),), ended=False).write(tmp_path / "t")
    _, packets, foot = siftr(exported(tmp_path / "t", "siftr", tmp_path)[0])
    last = truth.flows[0].packet_ns[-1] // 1000 - TAI_MINUS_UTC_S * 10**6
    at = int(foot["disable_time_secs"]) * 10**6 + int(foot["disable_time_usecs"])
    assert packets
    assert at == last


def test_force_overwrites_and_a_failure_keeps_the_old_file(made: tuple[Path, Truth], tmp_path: Path) -> None:
    path, _ = made
    output = tmp_path / "out.csv"
    output.write_text("old")
    with pytest.raises(RequestError):
        convert(Request(path, "csv", output, Chosen(flows=frozenset({9})), force=True))
    assert output.read_text() == "old"
    convert(Request(path, "csv", output, force=True))
    assert output.read_text().startswith("block,")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.csv"]


def test_parquet_keeps_header_flows_and_units(made: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = made
    output, _ = exported(path, "parquet", tmp_path)
    file = pq.ParquetFile(io.BytesIO(output.read_bytes()))
    metadata = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    assert json.loads(metadata["sojourn.header"])["kernel"] == "6.18.0"
    assert len(json.loads(metadata["sojourn.flows"])) == len(truth.flows)
    assert output.stat().st_size < 20 * truth.samples.height


def test_run_folder_with_many_logs_requires_naming_one(tmp_path: Path) -> None:
    one = Log((MadeFlow(rounds=5),), block=3).make()
    other = Log((MadeFlow(rounds=6),), block=3).make()
    one.write_records(tmp_path / "run" / "records", "a")
    other.write_records(tmp_path / "run" / "records", "b")
    with pytest.raises(RequestError, match="--who"):
        exported(tmp_path / "run", "csv", tmp_path)
    _, told = exported(tmp_path / "run", "csv", tmp_path, chosen=Chosen(who="b", block=3))
    assert told.records == other.samples.height


# --- the command -----------------------------------------------------------------------------------------------------


def sojourn(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The exit status of `sojourn tcplog convert …`."""
    monkeypatch.setattr("sys.argv", ["sojourn", "tcplog", "convert", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_export_command_converts_and_prints_the_path(
    made: tuple[Path, Truth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, truth = made
    output = tmp_path / "t.csv"
    assert sojourn(monkeypatch, path, "--to", "csv", "-o", output, "--flow", 1, "--flow", 2) == 0
    wanted = truth.samples.filter(pl.col("flow").is_in([1, 2])).height
    assert f"{wanted} records to {output}" in capsys.readouterr().err
    assert sojourn(monkeypatch, path, "--to", "csv", "-o", output) == 2
    assert re.fullmatch(r"sojourn: .* is there already: [^\n]*\n", capsys.readouterr().err)
    assert (
        sojourn(monkeypatch, path, "--to", "csv", "-o", output, "--since", "200ms", "--until", "0.3s", "--force") == 0
    )
    assert sojourn(monkeypatch, path, "--to", "csv", "-o", output, "--json", "--force") == 0
    told = printed("tcplog-convert", capsys.readouterr().out)
    assert (told["where"], told["records"]) == (str(output), truth.samples.height)
    assert sojourn(monkeypatch, path, "--to", "csv", "-o", "-", "--json") == 2
    assert "--json beside -o -" in capsys.readouterr().err
    assert sojourn(monkeypatch, path, "--to", "csv", "--since", "soon") == 2
    assert sojourn(monkeypatch, path, "--to", "csv", "--since", "5") == 2
    assert "expected a time with its unit: 5s" in capsys.readouterr().err
    assert sojourn(monkeypatch, tmp_path, "--to", "siftr") == 2
    assert sojourn(monkeypatch, path, "--to", "xml") == 2
    assert capsys.readouterr().err.count("sojourn: ") == 2


def test_truncated_log_ends_with_status_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log((MadeFlow(),)).write(tmp_path / "t")
    file = tmp_path / "t" / "records" / "tcp_samples-tcplog-000.arrow"
    file.write_bytes(file.read_bytes()[:-8])
    assert sojourn(monkeypatch, tmp_path / "t", "--to", "jsonl") == 4
    assert (tmp_path / "t" / "tcplog.jsonl").is_file()
