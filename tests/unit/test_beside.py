"""Results of other tools beside ours: figures of real files in our units, refusals, and a report that shows both."""

from __future__ import annotations

import csv
import gzip
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.analysis import analyse
from sojourn.errors import RequestError, SojournError
from sojourn.report import write_report
from sojourn.report.beside import ToolResult, files, read_result
from sojourn.report.beside.files import result_of

FILES = Path(__file__).parent / "other_tools"
"""Of iperf3 3.12, irtt 0.9.0 and sockperf over a loopback interface; that of flent is made up in its format."""


def figures(one: ToolResult) -> dict[tuple[str, str, str], float]:
    return {(figure.kind, figure.of, figure.statistic): figure.value for figure in one.figures}


def test_iperf3_results_are_converted_to_our_units() -> None:
    tcp = read_result(FILES / "iperf3.json")
    end = json.loads((FILES / "iperf3.json").read_text())["end"]
    assert tcp.tool == "iperf3 3.12"
    found = figures(tcp)
    assert found["throughput", "received", "mean"] == end["sum_received"]["bits_per_second"]
    rtt_us = end["streams"][0]["sender"]["mean_rtt"]
    assert found["round-trip time", "TCP's smoothed RTT, stream 1", "mean"] == pytest.approx(rtt_us * 1000)
    udp = figures(read_result(FILES / "iperf3-udp.json"))
    end = json.loads((FILES / "iperf3-udp.json").read_text())["end"]
    assert udp["jitter", "UDP", "mean"] == pytest.approx(end["sum"]["jitter_ms"] * 1e6)
    assert udp["loss", "UDP", "mean"] == 0


def test_unmeasured_rtt_of_iperf3_is_omitted(tmp_path: Path) -> None:
    """Of a reversed transfer, iperf3 writes an RTT of 0 µs."""
    told = json.loads((FILES / "iperf3.json").read_text())
    told["end"]["streams"][0]["sender"] |= {"min_rtt": 0, "mean_rtt": 0, "max_rtt": 0}
    (tmp_path / "reversed.json").write_text(json.dumps(told))
    found = {kind for kind, *_ in figures(read_result(tmp_path / "reversed.json"))}
    assert found == {"throughput"}


def test_irtt_results_are_read_compressed_or_not(tmp_path: Path) -> None:
    plain = FILES / "irtt.json"
    stats = json.loads(plain.read_text())["stats"]
    packed = tmp_path / "irtt.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert figures(read_result(packed)) == (found := figures(read_result(plain)))
    assert found["round-trip time", "RTT", "p50"] == stats["rtt"]["median"]
    assert found["one-way delay", "send delay", "max"] == stats["send_delay"]["max"]


def test_a_round_trip_of_sockperf_is_arrival_less_departure() -> None:
    found = read_result(FILES / "sockperf.csv")
    lines = (FILES / "sockperf.csv").read_text().partition("latency(usec)\n")[2].splitlines()
    rows = [[float(cell) for cell in line.split(",")] for line in lines if line.count(",") == 3]
    mean_ns = sum((received - sent) * 1e9 for _, sent, received, _ in rows) / len(rows)
    half_us = sum(half for *_, half in rows) / len(rows)
    (mean,) = [one for one in found.figures if one.statistic == "mean"]
    assert (found.tool, mean.n) == ("sockperf", len(rows))
    assert mean.value == pytest.approx(mean_ns)
    assert mean.value == pytest.approx(2 * half_us * 1000, rel=1e-3), "its own latency is half a round trip"


def test_flent_has_a_unit_for_each_series() -> None:
    found = figures(read_result(FILES / "rrul.flent.gz"))
    assert found["round-trip time", "Ping (ms) ICMP", "p50"] == pytest.approx(15e6)
    assert found["throughput", "TCP download", "max"] == pytest.approx(96e6)


def test_round_trips_of_flent_are_divided_at_the_flows(tmp_path: Path) -> None:
    """So flent writes a test whose flows begin 1 s after its pings: the first throughput is that of 1.0 to 1.2 s."""
    path = tmp_path / "rrul.flent"
    path.write_text(json.dumps(RRUL))
    found = read_result(path)
    told = figures(found)
    assert told["round-trip time", "Ping (ms) ICMP, before the flows", "mean"] == pytest.approx(20.4e6)
    assert told["round-trip time", "Ping (ms) ICMP, with the flows", "mean"] == pytest.approx(64e6)
    assert told["round-trip time", "Ping (ms) ICMP, with the flows", "min"] == pytest.approx(60e6)
    numbers = {figure.of: figure.n for figure in found.figures if figure.statistic == "mean"}
    assert numbers == {
        "Ping (ms) ICMP": 14,  # with the one as flows begin, and those after their end
        "Ping (ms) ICMP, before the flows": 5,
        "Ping (ms) ICMP, with the flows": 5,
        "TCP download CS5": 5,
        "TCP download sum": 6,
    }


RRUL = {
    "metadata": {
        "FLENT_VERSION": "2.1.1",
        "SERIES_META": {
            name: {"UNITS": unit}
            for name, unit in {
                "Ping (ms) ICMP": "ms",
                "TCP download CS5": "Mbits/s",
                "TCP download sum": "Mbits/s",
            }.items()
        },
    },
    "x_values": [round(0.2 * step, 1) for step in range(15)],
    "results": {
        "Ping (ms) ICMP": [20, 20, 20, 21, 21, 90, 60, 62, None, 64, 66, 68, 50, 30, 20],
        "TCP download CS5": [None] * 7 + [11.0, 12.0, 11.0, 12.0, 11.0] + [None] * 3,
        "TCP download sum": [None] * 6 + [44.0, 46.0, 45.0, 46.0, 45.0, 44.0] + [None] * 3,
    },
}
"""The results of flent's test rrul in its format, made up, with a ping on every 0.2 s but one."""


def test_an_index_of_fairness_is_no_throughput() -> None:
    """So flent writes it (`rtt_fair`): with the unit of the throughputs."""
    series = {"TCP upload sum": [90.0, 94.0], "TCP upload fairness": [0.8, 0.9]}
    metas = {name: {"UNITS": "Mbits/s"} for name in series}
    told = {"metadata": {"SERIES_META": metas}, "x_values": [0.0, 0.2], "results": series}
    found = result_of(json.dumps(told).encode(), "rtt_fair.flent")
    assert {figure.of for figure in found.figures} == {"TCP upload sum"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "neither JSON nor a log of sockperf"),
        (b"[1, 2]", "no result file that is known: expected one of iperf3 -J, irtt -o, sockperf --full-log or flent"),
        (b'{"start": {}, "end": {}, "error": "unable to connect"}', "a file of iperf3 without a figure"),
        (b"packet, txTime(sec), rxTime(sec), latency(usec)\n1, x, y\n", "a file of sockperf without a figure"),
        (b"\x1f\x8b\x08garbage", "damaged as gzip"),
        (b"[" * 100_000, "neither JSON"),
    ],
)
def test_files_without_results_are_refused(content: bytes, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        result_of(content, "some\x1bfile")
    assert said in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_compressed_file_is_decompressed_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    with pytest.raises(RequestError, match="more than 1 MiB: nothing of it is read"):
        result_of(gzip.compress(bytes(64 << 20)), "bomb")


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
KEYS = ["start", "end", "stats", "round_trips", "results", "x_values", "rtt", "sum", "sum_sent", "bits_per_second",
        "streams", "sender", "mean_rtt", "metadata", "SERIES_META", "UNITS", "version", "n", "median"]  # fmt: skip
ANY = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
)


@given(st.dictionaries(st.sampled_from(KEYS), ANY, max_size=8))
def test_arbitrary_json_is_read_or_refused(value: object) -> None:
    try:
        found = result_of(json.dumps(value).encode(), "theirs")
    except SojournError:
        return
    assert all(0 <= one.value < 1e18 or one.kind == "throughput" for one in found.figures)


def test_report_shows_other_tools_beside_ours_without_changing_ours(tmp_path: Path) -> None:
    with tarfile.open(Path("tests/golden/bridge-latency.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob("plan.toml")).parent
    analyse(folder)
    before = (folder / "analysis/results.json").read_bytes()
    page = write_report(folder, beside=[read_result(FILES / "irtt.json"), read_result(FILES / "iperf3.json")])
    assert (folder / "analysis/results.json").read_bytes() == before
    words = page.read_text()
    assert '<h2 id="beside">Comparison with other tools</h2>' in words
    assert "irtt 0.9.0 (irtt.json)" in words
    with (folder / "report/tables/beside.csv").open() as file:
        rows = list(csv.DictReader(file))
    trips = [row for row in rows if row["kind"] == "round-trip time"]
    assert {row["source"] for row in trips} == {
        "irtt 0.9.0 (irtt.json)",
        "iperf3 3.12 (iperf3.json)",
        "Sojourn (this run)",
    }
    ours = [row for row in trips if row["source"].startswith("Sojourn")]
    kept = {str(row["estimate"]) for row in json.loads(before) if row["quantity"] == "rtt"}
    assert ours
    assert {float(row["value"]) for row in ours} <= {float(f"{float(one):.12g}") for one in kept if one != "None"}
    assert all(not row["ci_low"] for row in trips if not row["source"].startswith("Sojourn"))
    write_report(folder)
    assert not (folder / "report/tables/beside.csv").exists()
    assert "Comparison with other tools" not in page.read_text()


def test_figures_of_a_load_stand_beside_those_of_flent(tmp_path: Path) -> None:
    with tarfile.open(Path("tests/golden/rrul.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob("plan.toml")).parent
    analyse(folder)
    path = tmp_path / "rrul.flent"
    path.write_text(json.dumps(RRUL))
    write_report(folder, beside=[read_result(path)])
    with (folder / "report/tables/beside.csv").open() as file:
        shown = [row for row in csv.DictReader(file) if row["source"].startswith("Sojourn")]
    ours = {(row["kind"], row["of"].partition(": ")[2], row["statistic"]): row for row in shown}
    assert len(ours) == len(shown)
    assert {row["of"].partition(": ")[0] for row in shown} == {"emulate, 4 × cubic both"}
    told = json.loads((folder / "analysis/results.json").read_text())
    results = {(row["quantity"], row["statistic"]): row for row in told}
    wanted = {
        ("round-trip time", f"icmp, {said}", statistic): results[f"rtt_{state}", statistic]
        for state, said in (("idle", "idle path"), ("working", "working conditions"))
        for statistic in ("mean", "p50")
    } | {("throughput", f"{way}, all flows", "mean"): results["goodput", way] for way in ("down", "up")}
    assert ours.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, mine in (("value", "estimate"), ("ci_low", "ci_low"), ("ci_high", "ci_high"), ("n", "n")):
            assert float(ours[key][name]) == pytest.approx(row[mine]), (key, name)
