"""Pictures of logs that were made up: what is drawn is what was true, thinned without losing an extreme."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import RequestError
from sojourn.report.palette import Palette
from sojourn.report.tcplog import draw
from sojourn.report.tcplog.log import Flow, Log
from sojourn.report.tcplog.panels import chart
from sojourn.report.tcplog.thinning import counted, merged, spans_where, thin, with_holes
from sojourn.report.tcplog.traces import Traces, span_of, traces_of
from sojourn.report.tcplog.words import account_of, facts_of, title_of
from tests.unit import made_up_tcp
from tests.unit.made_up_tcp_flow import MadeFlow
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PNG = b"\x89PNG"


def made(path: Path, flows: Sequence[MadeFlow] = (MadeFlow(),), **asked: Any) -> tuple[Log, made_up_tcp.Truth]:
    truth = made_up_tcp.Log(flows, **asked).write(path)
    return Log.read(path), truth


def traced(log: Log, number: int = 1) -> tuple[Flow, Traces, tuple[float, float]]:
    [flow] = log.chosen([number])
    samples = log.samples([flow])[flow.key]
    start, span = span_of([samples])
    return flow, traces_of(samples, log.gaps_of(flow), start, span), span


def series(traces: Traces, name: str) -> pl.DataFrame:
    [steps] = [one for one in traces.steps if name in one.series]
    return steps.rows.filter(pl.col("series") == name)


def test_drawn_window_equals_the_logged_one(tmp_path: Path) -> None:
    log, truth = made(tmp_path / "t")
    _, traces, _ = traced(log)
    drawn = series(traces, "congestion window")["v"].to_list()
    assert [value for value in drawn if value != drawn[0]]
    assert set(drawn) == {float(value) for value in truth.samples["snd_cwnd"].drop_nulls()}
    slowest = truth.samples.select(pl.col("rtt_last_us").cast(pl.Float64).max()).item()
    assert max(series(traces, "last sample")["v"]) == pytest.approx(slowest / 1e3, rel=1e-4)


def test_each_retransmission_is_marked_once(tmp_path: Path) -> None:
    log, truth = made(tmp_path / "t", points="both")
    _, traces, _ = traced(log)
    marked = traces.marks.filter(pl.col("what") == "retransmitted")["n"].sum()
    assert marked == int(truth.samples["total_retrans"].max()) > 0  # type: ignore[arg-type]
    assert "recovery" in traces.spans["what"].to_list()


def test_an_infinite_threshold_is_not_drawn(tmp_path: Path) -> None:
    log, truth = made(tmp_path / "t")
    assert (truth.samples["snd_ssthresh"] == 2**31 - 1).any()
    assert series(traced(log)[1], "slow-start threshold")["v"].max() < 1e6  # type: ignore[operator]


def test_field_missing_in_the_kernel_is_not_drawn(tmp_path: Path) -> None:
    log, _ = made(tmp_path / "t", absent=["delivery_rate_bps", "pacing_rate_bps", "snd_ssthresh", "ca_state"])
    _, traces, _ = traced(log)
    assert [steps.title for steps in traces.steps] == ["Windows", "Round trip"]
    assert "slow-start threshold" not in traces.steps[0].series
    assert traces.spans.is_empty()


def test_receiving_end_shows_its_window(tmp_path: Path) -> None:
    log, _ = made(tmp_path / "t", [MadeFlow(role="receiver")])
    _, traces, _ = traced(log)
    assert traces.steps[-1].series == ("waiting to be read", "window offered")


def test_gaps_are_grey_and_stated(tmp_path: Path) -> None:
    log, truth = made(tmp_path / "t", gap_every=400)
    flow, traces, span = traced(log)
    gaps = truth.tables["tcp_gaps"]
    assert 0 < traces.spans.filter(pl.col("what") == "skipped").height <= gaps.height
    told = " ".join(account_of(flow, log, log.gaps_of(flow), traces))
    skipped = truth.packets("in", "full", 1) + truth.packets("out", "full", 1)
    assert f"{skipped} skipped (no room in a ring)" in told
    assert f"{gaps.height} gaps" in told
    assert f"{gaps['missing'].sum()} records had no room" in told
    assert (traces.spans["low"] >= span[0]).all()


def test_sampling_is_stated(tmp_path: Path) -> None:
    log, _ = made(tmp_path / "t", ppl=7)
    flow, traces, _ = traced(log)
    told = " ".join(account_of(flow, log, log.gaps_of(flow), traces)).replace("\u2009", "").replace("\u202f", "")
    seen, logged, decimated = (flow.dispositions[disposition] for disposition in ("seen", "logged", "decimated"))
    assert f"Of {seen} packets: {logged} logged, {decimated} decimated (1 in 7 packets logged), 0 skipped." in told


def test_title_names_the_flow(tmp_path: Path) -> None:
    log, _ = made(tmp_path / "t", [MadeFlow(algorithm="cubic", family=6)])
    [flow] = log.flows
    assert title_of(flow) == "[fd00::1]:40000 ↔ [fd00::2]:5201"
    assert facts_of(flow, log).startswith("flow 1 · cubic · iperf3")
    assert "Linux" in facts_of(flow, log)


@pytest.mark.parametrize("form", ["html", "svg", "png"])
def test_each_format_writes_a_file(form: str, tmp_path: Path) -> None:
    made(tmp_path / "t", [MadeFlow(rounds=20), MadeFlow(rounds=20, family=6)], gap_every=300)
    target = tmp_path / f"picture.{form}"
    assert draw(tmp_path / "t", target) == 2
    content = target.read_bytes()
    if form == "png":
        assert content.startswith(PNG)
        return
    text = content.decode()
    assert "[fd00::1]:40001 ↔ [fd00::2]:5201" in text
    assert not re.search(r"""(?:src|href)=["']https?:""", text), "it loads something"


def test_the_specification_is_one_of_vega_lite(tmp_path: Path) -> None:
    log, _ = made(tmp_path / "t", points="both", gap_every=400)
    _, traces, span = traced(log)
    for for_page in (True, False):
        drawn = chart(traces, span, Palette(for_page=for_page))
        with alt.data_transformers.enable("default", max_rows=None):
            assert drawn.to_dict(validate=True)["vconcat"]


def test_the_flows_with_the_most_packets_are_drawn(tmp_path: Path) -> None:
    flows = [MadeFlow(rounds=rounds) for rounds in (3, 9, 4, 8, 5, 7, 6, 2)]
    log, _ = made(tmp_path / "t", flows)
    assert [flow.number for flow in log.chosen([])] == [2, 4, 6, 7, 5, 3]
    assert [flow.number for flow in log.chosen([8, 1])] == [8, 1]
    with pytest.raises(RequestError, match="1 to 8"):
        log.chosen([9])


def test_input_that_is_not_a_log_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no such log"):
        draw(tmp_path / "none", tmp_path / "x.svg")
    with pytest.raises(RequestError, match="no log of tcplog"):
        draw(tmp_path, tmp_path / "x.svg")
    (tmp_path / "spool-000.tcplog").touch()
    with pytest.raises(RequestError, match="tcplog recover"):
        draw(tmp_path, tmp_path / "x.svg")
    with pytest.raises(RequestError, match=r"\.html, \.svg or \.png"):
        draw(tmp_path, tmp_path / "x.pdf")


@pytest.mark.parametrize(
    "head", [{"command": 5}, {"kernel": []}, {"options": [1]}, {"boot_id": []}, {"tai_minus_utc_s": "37"}]
)
def test_header_of_another_shape_is_refused(tmp_path: Path, head: dict[str, Any]) -> None:
    """A command that was a number ended the plot in a traceback."""
    made(tmp_path / "t")
    (tmp_path / "t/header.json").write_text(json.dumps(head))
    with pytest.raises(RequestError, match=rf"header\.json is damaged: {next(iter(head))} is not "):
        Log.read(tmp_path / "t")


def test_records_of_a_study_are_drawn_too(tmp_path: Path) -> None:
    truth = made_up_tcp.Log([MadeFlow(rounds=10)], block=3).make()
    for who in ("a", "b"):
        truth.write_records(tmp_path / "run" / "records", who)
    log = Log.read(tmp_path / "run")
    assert len(log.flows) == 2
    assert {facts_of(flow, log)[:21] for flow in log.flows} == {"flow 1 of a, block 3 ", "flow 1 of b, block 3 "}
    assert draw(tmp_path / "run", tmp_path / "x.svg", [1]) == 2


steps = st.lists(st.one_of(st.none(), st.integers(0, 50)), min_size=1, max_size=3000)


def frame(values: Sequence[int | None]) -> pl.DataFrame:
    schema = {"t": pl.Float64, "v": pl.Float64}
    return pl.DataFrame({"t": [float(at) for at in range(len(values))], "v": values}, schema=schema)


@given(steps, st.integers(1, 30))
def test_thinning_keeps_the_extremes_of_every_column_of_pixels(values: list[int | None], columns: int) -> None:
    rows, span = frame(values), (0.0, float(len(values)))
    kept = thin(rows, span, columns)
    assert kept["t"].is_sorted()
    assert kept.height <= 4 * columns + 4
    assert kept.join(rows, on=["t", "v"], how="anti", nulls_equal=True).is_empty(), "a value that never was"
    assert (kept["t"][0], kept["t"][-1]) == (rows["t"][0], rows["t"][-1])

    def held(frame: pl.DataFrame) -> pl.DataFrame:
        """Of each column of pixels the extremes of what is drawn in it: what came before lasts into it."""
        every = rows.select("t").join_asof(frame.with_columns(at="t"), on="t")
        pixel = (pl.col("t") / span[1] * columns).floor().alias("pixel")
        return every.group_by(pixel).agg(low=pl.col("v").min(), high=pl.col("v").max()).sort("pixel")

    assert held(kept).equals(held(rows))


def test_gap_starts_at_its_true_time() -> None:
    rows = frame([5, 6, 7, 8, 9])
    holed = with_holes(rows, pl.col("t").is_in([0.0, 1.0, 4.0]))
    assert holed.rows() == [(0.0, 5.0), (1.0, 6.0), (2.0, 6.0), (2.0, None), (3.0, None), (4.0, 9.0)]


def test_spans_hold_until_the_next_sample_and_are_joined_below_a_pixel() -> None:
    rows = frame([0, 1, 1, 0, 1])
    assert spans_where(rows, pl.col("v") == 1).rows() == [(1.0, 3.0), (4.0, 4.0)]
    near = pl.DataFrame({"low": [1.0, 2.0, 2.001, 9.0], "high": [1.5, 2.0, 2.0015, 9.5]})
    assert merged(near, (0.0, 10.0), 100).rows() == [(1.0, 1.5), (2.0, 2.101), (9.0, 9.5)]
    events = pl.DataFrame({"t": [0.01, 0.02, 5.0], "n": [1, 2, 3]})
    assert counted(events, (0.0, 10.0), 100).rows() == [(0.01, 3), (5.0, 3)]


def test_plot_of_many_samples_is_small(tmp_path: Path) -> None:
    log, truth = made(tmp_path / "t", [MadeFlow(rounds=2500, segments=1)])
    assert truth.samples.height > 100_000
    flow, traces, _ = traced(log)
    assert traces.is_thinned
    assert max(steps.rows.group_by("series").len()["len"].max() for steps in traces.steps) <= 4 * 1600 + 8  # type: ignore[operator, type-var]
    assert "thinned" in account_of(flow, log, log.gaps_of(flow), traces)[-1]


def test_plot_command_prints_the_created_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "t", [MadeFlow(rounds=10)])
    assert sojourn_plot(monkeypatch, tmp_path / "t", "--flow", "1") == 0
    assert capsys.readouterr().out == f"{tmp_path / 't' / 'plot.html'}\n"
    assert (tmp_path / "t" / "plot.html").stat().st_size > 100_000
    assert sojourn_plot(monkeypatch, tmp_path / "t", "--flow", "1", "--force", "--json") == 0
    assert printed("tcplog-plot", capsys.readouterr().out) == {"file": str(tmp_path / "t" / "plot.html")}


@pytest.mark.parametrize("name", ["plot.html", "t.svg", "t.png"])
def test_existing_plot_is_not_overwritten_without_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    made(tmp_path / "t", [MadeFlow(rounds=10)])
    target = tmp_path / "t" / name
    target.write_text("mine")
    words = [] if name == "plot.html" else ["-o", str(target)]
    assert sojourn_plot(monkeypatch, tmp_path / "t", *words) == 2
    assert re.fullmatch(r"sojourn: [^\n]*is there already: [^\n]*--force[^\n]*\n", capsys.readouterr().err)
    assert target.read_text() == "mine"
    assert sojourn_plot(monkeypatch, tmp_path / "t", *words, "--flow", "9", "--force") == 2, "there is no such flow"
    assert target.read_text() == "mine"
    assert sojourn_plot(monkeypatch, tmp_path / "t", *words, "--force") == 0
    assert target.stat().st_size > 5_000
    assert not list(target.parent.glob(".*"))


def sojourn_plot(monkeypatch: pytest.MonkeyPatch, *words: object) -> object:
    """The exit status of `sojourn tcplog plot …`."""
    from sojourn.cli import main

    monkeypatch.setattr(sys, "argv", ["sojourn", "tcplog", "plot", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize(
    ("kept_out", "said"),
    [
        ((), "has flows 1 to 12"),
        ((12,), "has flows 1 to 11; 1 more was kept out by filters"),
        ((2,), "has flows 1, 3, 4, 5, 6, 7, 8, 9, …; 1 more was kept out by filters"),
        ((2, 4, 5, 7, 9), "has flows 1, 3, 6, 8, 10, 11, 12; 5 more were kept out by filters"),
        (tuple(range(2, 13)), "has flow 1; 11 more were kept out by filters"),
        (tuple(range(1, 13)), "has no flow that was logged; 12 more were kept out by filters"),
    ],
)
def test_missing_flow_is_refused_with_the_existing_ones(tmp_path: Path, kept_out: tuple[int, ...], said: str) -> None:
    """Numbers have holes where a flow that the filters let through has no sample and is numbered behind one without."""
    truth = made_up_tcp.Log(tuple(MadeFlow(rounds=2) for _ in range(12))).write(tmp_path / "t")
    out = pl.col("flow").is_in(kept_out)
    truth.tables["tcp_flows"] = truth.tables["tcp_flows"].with_columns(wanted=~out)
    of_none = out & (pl.col("disposition") == "logged")
    truth.tables["tcp_account"] = truth.tables["tcp_account"].with_columns(
        pl.when(of_none).then(0).otherwise("packets").cast(pl.Int64).alias("packets")
    )
    truth.write_records(tmp_path / "t" / "records")
    log = Log.read(tmp_path / "t")
    for number in (99, *kept_out[:1]):
        with pytest.raises(RequestError) as refused:
            log.chosen([number])
        assert str(refused.value) == f"--flow {number}: {tmp_path / 't'} {said}"
    assert [flow.number for flow in log.chosen([1])] == [1] if 1 not in kept_out else log.flows == ()
