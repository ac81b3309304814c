"""The tables of the report: one function per table, from results to a table.

These functions select and arrange; no statistic is computed. `contents.all_tables` omits tables without rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.cells import cell_column, cell_entry
from sojourn.report.glossary import hypothesis_name
from sojourn.report.numbers import NOTHING, Shown, count, percent, show
from sojourn.report.palette import ordered
from sojourn.report.run import FACTORS, every
from sojourn.report.table import Column, Entry, Table, interval, number, text, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.report.run import Cell, Run

RTT_STATISTICS = ("min", "mean", "p50", "max", "sd")
TAIL_STATISTICS = ("p90", "p99", "p99.9", "p99.99")
COUNTED = ("loss", "late", "duplicated", "reordered")


def device_latency(run: Run) -> Table:
    """The latency that each device adds, pooled first and then by cell."""
    columns = (
        Column(("device",), "Device", numeric=False),
        Column(("reference",), "Over", numeric=False),
        cell_column(run),
        Column(("device_latency_us",), "Mean device latency", "µs"),
        Column(("ci_low_us", "ci_high_us"), "CI", "µs"),
        Column(("level",), "Level"),
        Column(("median_rtt_shift_us",), "Median round trip longer by", "µs"),
        Column(("sessions",), "Beds"),
        Column(("pairs",), "Pairs"),
        Column(("probes",), "Probes"),
        Column(("findings",), "Findings", numeric=False),
    )
    found = run.rows("device_latency")
    pooled = found.filter(pl.col("statistic") == "pooled")
    single = found.filter(pl.col("statistic") == "mean")
    shown = [*in_order(pooled), *in_order(single)]
    everywhere = set.intersection(*(set(row["findings"] or []) for row in shown)) if shown else set()
    rows = [_latency_row(run, row, everywhere) for row in shown]
    note = (
        "Device latency is half the difference of the mean round trips with and without the device; for "
        "request-response that is its latency at the mean of both sizes. The increase of the median round trip is of "
        "both directions together: where a device's delays are skewed, it is less than twice the mean latency, and "
        "half of it is not the device's median. Intervals are over beds where there are several, else over pairs, "
        "never over packets. A pooled row has one value for each round, the mean over its cells. a/a is the direct "
        "link again, or its twin, pooled over all pairs. Where two intervals overlap, this table does not show that "
        "the rows differ."
    )
    if outside := _beyond_cells(pooled, single):
        note += (
            f" The pooled value of {', '.join(outside)} lies outside those of its cells: it is over the "
            "rounds in which every cell was measured."
        )
    if everywhere:
        note += f" Findings of every row: {', '.join(sorted(everywhere)).replace('_', ' ')}."
    title = "Device latency, pooled and by cell"
    return Table("device_latency", title, columns, tuple(rows), note, frozenset(range(pooled.height)))


def rtt(run: Run) -> Table:
    """Round trips in the form of the papers' tables, with and without each device, with the latency beside them."""
    columns = (
        cell_column(run),
        Column(("device",), "Device", numeric=False),
        Column(("rtt_min_us",), "Min", "µs", group="Round trip"),
        Column(("rtt_avg_us",), "Average", "µs", group="Round trip"),
        Column(("rtt_avg_low_us", "rtt_avg_high_us"), "95 % CI", "µs", group="Round trip"),
        Column(("rtt_median_us",), "Median", "µs", group="Round trip"),
        Column(("rtt_max_us",), "Max", "µs", group="Round trip"),
        Column(("rtt_sd_us",), "Std dev", "µs", group="Round trip"),
        Column(("probes",), "Probes"),
        Column(("device_latency_us",), "Latency", "µs", group="Device"),
        Column(("ci_low_us", "ci_high_us"), "95 % CI", "µs", group="Device"),
    )
    rows = [row for cell in run.cells for row in _rtt_rows(run, cell)]
    note = "Device latency here is against the direct link. Round trips are from the actual departure."
    return Table("rtt", "Round trips with and without the device", columns, tuple(rows), note, wide=True, grouped=True)


def lines(run: Run) -> Table:
    """The line a + b × size, for whole paths and for devices only."""
    columns = (
        Column(("device",), "Device", numeric=False),
        Column(("reference",), "Over", numeric=False),
        Column(("probe",), "Probe", numeric=False),
        Column(("intercept_us",), "a", "µs"),
        Column(("intercept_low_us", "intercept_high_us"), "CI of a", "µs"),
        Column(("slope_ns_per_byte",), "b", "ns/byte"),
        Column(("slope_low_ns_per_byte", "slope_high_ns_per_byte"), "CI of b", "ns/byte"),
        Column(("level",), "Level"),
        Column(("rounds",), "Rounds"),
    )
    rows = [_line_row(row, slope) for row, slope in fitted_lines(run)]
    note = (
        "One way, against the frame's bytes. One fit for each round, with Hodges and Lehmann's estimate over rounds; "
        "where there are several beds one fit for each bed, with Student's t over beds."
    )
    return Table("lines", "Latency as a + b × size", columns, tuple(rows), note)


def tails(run: Run) -> Table:
    """High percentiles of the round trip, from the actual and from the intended departure."""
    there = set(run.rows("rtt")["statistic"].to_list())
    names = tuple(name for name in TAIL_STATISTICS if name in there)
    columns = (
        cell_column(run),
        Column(("device",), "Device", numeric=False),
        Column(("quantity",), "Measured from", numeric=False),
        *(
            column
            for name in names
            for column in (
                Column((f"rtt_{name}_us",), name, "µs"),
                Column((f"rtt_{name}_low_us", f"rtt_{name}_high_us"), "95 % CI", "µs"),
            )
        ),
    )
    rows = [
        (_cell(run, cell), text(device, device), text(words), *entries)
        for cell in run.cells
        for device in run.devices
        for quantity, words in (("rtt", "actual departure"), ("rtt_intended", "intended departure"))
        if (entries := _statistics(run, cell, device, quantity, names, intervals=True))
    ]
    note = (
        "A percentile is given only where at least ten probes lie beyond it. The difference of two percentiles is not "
        "the device's percentile, so none is given for the device."
    )
    return Table("tails", "Tails of the round trip", columns, tuple(rows), note, wide=True, grouped=True)


def conservation(run: Run) -> Table:
    """Probes lost, late, duplicated and reordered; every probe is in exactly one counter."""
    columns = (
        cell_column(run),
        Column(("device",), "Device", numeric=False),
        Column(("probes",), "Probes"),
        *(
            column
            for name in COUNTED
            for column in (
                Column((f"{name}_percent",), name.capitalize(), "%"),
                Column((f"{name}_low_percent", f"{name}_high_percent"), "95 % CI", "%"),
            )
        ),
    )
    cells: tuple[Cell | None, ...] = (None, *run.cells)
    rows = [row for cell in cells for device in run.devices if (row := _counted(run, cell, device))]
    note = "Intervals of ratios are Clopper and Pearson's."
    return Table(
        "conservation", "Lost, late, duplicated and reordered", columns, tuple(rows), note, wide=True, grouped=True
    )


def intervals(run: Run) -> Table:
    """Configured and achieved intervals and rates of senders, from a capture at the B side."""
    columns = (
        Column(("tool",), "Tool", numeric=False),
        Column(("icmp_bytes",), "ICMP", "B"),
        Column(("asked_interval_us",), "Asked", "µs", group="Inter-departure time"),
        Column(("mean_interval_us",), "Mean", "µs", group="Inter-departure time"),
        Column(("mean_low_us", "mean_high_us"), "95 % CI", "µs", group="Inter-departure time"),
        Column(("median_interval_us",), "Median", "µs", group="Inter-departure time"),
        Column(("sd_interval_us",), "Std dev", "µs", group="Inter-departure time"),
        Column(("rate_per_s",), "Rate", "1/s"),
        Column(("rate_low_per_s", "rate_high_per_s"), "95 % CI", "1/s"),
    )
    rows = [_trial_row(run, row) for row in _trials(run, "departure_interval", "mean")]
    note = "Arrivals in a capture at host B, used as departures; a flood has no configured interval."
    if all(entry.text == NOTHING for row in rows for entry in (row[4], row[8])):
        note += " With one trial of each there is no CI."
    return Table("intervals", "Configured and achieved intervals", columns, tuple(rows), note, wide=True, grouped=True)


def departures(run: Run) -> Table:
    """Pacing errors of the senders."""
    first = ("Tool", "Asked") if run.by_tool else ("Cell", "Device")
    columns = (
        *(Column((title.lower(),), title, numeric=False) for title in first),
        Column(("departures",), "Departures"),
        *(Column((f"pacing_error_{name}_us",), name, "µs", group="Error") for name in ("p50", "p90", "p99", "max")),
        Column(("within_1us_percent",), "± 1 µs", "%", group="Within"),
        Column(("within_1us_low_percent", "within_1us_high_percent"), "95 % CI", "%", group="Within"),
        Column(("within_10us_percent",), "± 10 µs", "%", group="Within"),
        Column(("within_10us_low_percent", "within_10us_high_percent"), "95 % CI", "%", group="Within"),
    )
    rows = []
    for row in _trials(run, "pacing_error", "max"):
        cell = run.cell_of(row)
        asked = f"{row['icmp_bytes']} B, {every(row['schedule'], row['interval_ns'])}"
        named = (
            (tool(row), text(asked)) if run.by_tool else (_cell(run, cell, "all"), text(row["device"], row["device"]))
        )
        rows.append((*named, whole(row["probes"]), *_errors(run, row)))
    note = "|actual − intended departure|; closed-loop probes have no intended departure. " + (
        "The schedule is fixed at the start of a trial: a sender that is a little too slow falls behind further with "
        "every packet."
        if run.by_tool
        else (
            "A sender wakes up after the intended time, so a typical probe leaves late by the median error. Round "
            "trips are from the actual departure and do not contain it."
        )
    )
    return Table("departures", "Pacing error", columns, tuple(rows), note, wide=True, grouped=True)


def hypotheses(run: Run) -> Table:
    """The published hypotheses that the plan tests, each with its outcome."""
    columns = (
        Column(("hypothesis",), "Hypothesis", numeric=False),
        Column(("outcome",), "Outcome", numeric=False),
        Column(("sentence",), "In words", numeric=False),
        Column(("estimate",), "Estimate"),
        Column(("ci_low", "ci_high"), "CI"),
        Column(("expected",), "Expected"),
        Column(("unit",), "Unit", numeric=False),
    )
    rows = []
    for hypothesis in run.verdict.get("hypotheses", []):
        shown = show(
            hypothesis.get("estimate"),
            hypothesis.get("ci_low"),
            hypothesis.get("ci_high"),
            hypothesis.get("unit") or "",
        )
        expected = show(hypothesis.get("expected"), None, None, hypothesis.get("unit") or "")
        words = (
            text(hypothesis_name(hypothesis["hypothesis"])),
            text(hypothesis["outcome"]),
            text(hypothesis.get("sentence") or ""),
        )
        rows.append((*words, number(shown), interval(shown), number(expected), text(shown.unit)))
    return Table("hypotheses", "Published hypotheses", columns, tuple(rows))


def findings(run: Run) -> Table:
    """Every finding, the most severe first."""
    columns = (
        Column(("severity",), "Severity", numeric=False),
        Column(("finding",), "Finding", numeric=False),
        Column(("where",), "Where", numeric=False),
        Column(("sentence",), "In words", numeric=False),
    )
    rows = [
        tuple(text(str(one.get(key) or "")) for key in ("severity", "name", "where", "sentence"))
        for one in run.findings()
    ]
    return Table("findings", "Findings", columns, tuple(rows))


def in_order(rows: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Return result rows in the order of devices in legends, and of their factors."""
    order = ordered(rows["device"].drop_nulls().to_list())
    keyed = rows.with_columns(_rank=pl.col("device").replace_strict(order, list(range(len(order))), default=len(order)))
    by = ["_rank", "reference", "probe", "schedule", "payload_bytes", "response_payload_bytes", "interval_ns"]
    return keyed.sort(by, nulls_last=False).iter_rows(named=True)


def shown_of(row: dict[str, Any]) -> Shown:
    """Return the number of a result row; shares are recorded with unit 1 and shown in percent."""
    unit = "ratio" if row["statistic"] == "ratio" else row["unit"] or ""
    return show(row["estimate"], row["ci_low"], row["ci_high"], unit)


def fitted_lines(run: Run) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each fitted line as its intercept row and its slope row, devices in legend order."""
    slopes = {_line_key(row): row for row in run.rows("latency_slope").iter_rows(named=True)}
    for row in in_order(run.rows("latency_intercept")):
        if (slope := slopes.get(_line_key(row))) is not None:
            yield row, slope


def _cell(run: Run, cell: Cell | None, together: str = "all") -> Entry:
    """Return the entry of a cell; for all cells together, `together`."""
    return cell_entry(run, cell.short if cell else together, [cell.number if cell else None])


def _latency_row(run: Run, row: dict[str, Any], everywhere: set[str]) -> tuple[Entry, ...]:
    shown, cell = shown_of(row), run.cell_of(row)
    own = [one for one in row["findings"] or [] if one not in everywhere]
    return (
        text(row["device"], row["device"]),
        text(row["reference"] or NOTHING),
        _cell(run, cell, "pooled"),
        number(shown),
        interval(shown),
        _level(row),
        _median_shift(run, row),
        whole(row["sessions"] or 1),
        pairs_of(row),
        whole(row["probes"]),
        Entry(", ".join(own).replace("_", " "), (" ".join(row["findings"] or []),)),
    )


def _median_shift(run: Run, row: dict[str, Any]) -> Entry:
    """Return by how much the device lengthens a cell's median round trip; none for all cells together."""
    if row["cell"] is None:
        return Entry(NOTHING, (None,))
    beside = run.row("rtt_shift", "p50", row["cell"], row["device"], reference=row["reference"])
    return number(shown_of(beside)) if beside else Entry(NOTHING, (None,))


def _beyond_cells(pooled: pl.DataFrame, single: pl.DataFrame) -> list[str]:
    """Return the devices whose pooled latency is outside the range of their cells' latencies."""
    keys = ["device", "reference"]
    ends = single.group_by(keys).agg(least=pl.col("estimate").min(), most=pl.col("estimate").max())
    beside = pooled.filter(pl.col("device") != "a/a").join(ends, on=keys, nulls_equal=True)
    beyond = beside.filter(~pl.col("estimate").is_between("least", "most"))
    return ordered(beyond["device"].to_list())


def pairs_of(row: dict[str, Any]) -> Entry:
    """How many pairs a latency is from; pooled over cells, how many rounds, for each averages its cells (but A/A's)."""
    by_round = row["statistic"] == "pooled" and row["device"] != "a/a"
    return Entry(f"{count(row['n'])}{' rounds' if by_round else ''}", (row["n"],))


def _level(row: dict[str, Any]) -> Entry:
    # Small samples allow only some levels; the achieved one is shown, to a tenth of a percent.
    has_interval = row["ci_low"] is not None or row["ci_high"] is not None
    return Entry(percent(round(row["level"], 3)) if has_interval and row["level"] else NOTHING, (row["level"],))


def _rtt_rows(run: Run, cell: Cell) -> Iterator[tuple[Entry, ...]]:
    for device in run.devices:
        entries = _statistics(run, cell, device, "rtt", RTT_STATISTICS)
        if not entries:
            continue
        mean = run.row("rtt", "mean", cell.number, device)
        average = shown_of(mean) if mean else show(None, None, None, "ns")
        latency = run.row("device_latency", "mean", cell.number, device, reference="direct")
        added = shown_of(latency) if latency else show(None, None, None, "ns")
        probes = whole(mean["probes"] if mean else None)
        head = (_cell(run, cell), text(device, device))
        yield (*head, *entries[:2], interval(average), *entries[2:], probes, number(added), interval(added))


def _statistics(
    run: Run, cell: Cell, device: str, quantity: str, names: tuple[str, ...], *, intervals: bool = False
) -> list[Entry]:
    rows = [run.row(quantity, name, cell.number, device) for name in names]
    if not any(rows):
        return []
    found = [shown_of(row) if row else show(None, None, None, "ns") for row in rows]
    return [entry for one in found for entry in ((number(one), interval(one)) if intervals else (number(one),))]


def _line_row(intercept: dict[str, Any], slope: dict[str, Any]) -> tuple[Entry, ...]:
    a, b = shown_of(intercept), shown_of(slope)
    return (
        text(intercept["device"], intercept["device"]),
        text(intercept["reference"] or "whole path"),
        text(intercept["probe"] or NOTHING),
        number(a),
        interval(a),
        number(b),
        interval(b),
        _level(intercept),
        whole(intercept["n"]),
    )


def _line_key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in ("device", "reference", "probe", "schedule", "interval_ns", "statistic"))


def _counted(run: Run, cell: Cell | None, device: str) -> tuple[Entry, ...] | None:
    found = [run.row(name, "ratio", cell.number if cell else None, device) for name in COUNTED]
    first = next((row for row in found if row), None)
    if first is None:
        return None
    entries: list[Entry] = []
    for row in found:
        shown = shown_of(row) if row else show(None, None, None, "ratio")
        entries += [number(shown), interval(shown)]
    return (_cell(run, cell, "all"), text(device, device), whole(first["probes"]), *entries)


def _trials(run: Run, quantity: str, statistic: str) -> list[dict[str, Any]]:
    """Return the rows of one quantity in table order: tool, size and interval, or cell and device."""
    rows = run.rows(quantity, statistic)
    if run.by_tool:
        return rows.sort("probe", "icmp_bytes", "interval_ns", descending=[False, False, True]).to_dicts()
    rank = {cell.number: place for place, cell in enumerate(run.cells)}
    return sorted(in_order(rows), key=lambda row: rank.get(row["cell"], -1))


def _same(run: Run, like: dict[str, Any], quantity: str, statistic: str) -> dict[str, Any] | None:
    """Return the row of another statistic with the same device and factors."""
    return run.row(quantity, statistic, like["cell"], like["device"], **{name: like[name] for name in FACTORS})


def _errors(run: Run, like: dict[str, Any]) -> list[Entry]:
    found = [_same(run, like, "pacing_error", name) for name in ("p50", "p90", "p99", "max")]
    entries = [number(shown_of(row)) if row else Entry(NOTHING) for row in found]
    for quantity in ("pacing_within_1us", "pacing_within_10us"):
        row = _same(run, like, quantity, "ratio")
        shown = shown_of(row) if row else show(None, None, None, "ratio")
        entries += [number(shown), interval(shown)]
    return entries


def tool(row: dict[str, Any]) -> Entry:
    """Return the tool that sent the departures of a row."""
    return Entry(TOOLS.get(row["probe"], row["probe"]), (row["probe"],), row["probe"])


TOOLS = {"probe": "Sojourn's probe"}


def _trial_row(run: Run, row: dict[str, Any]) -> tuple[Entry, ...]:
    mean = shown_of(row)
    others = [_same(run, row, "departure_interval", name) for name in ("p50", "sd")]
    rate = _same(run, row, "departure_rate", "mean")
    pace = shown_of(rate) if rate else show(None, None, None, "1/s")
    asked = row["interval_ns"] or 0
    return (
        tool(row),
        whole(row["icmp_bytes"]),
        Entry("flood" if asked == 0 else count(asked / 1e3), (asked / 1e3,)),
        number(mean),
        interval(mean),
        *(number(shown_of(one)) if one else Entry(NOTHING) for one in others),
        number(pace),
        interval(pace),
    )
