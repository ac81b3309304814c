"""The tables of the cost of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.methods.tcp_cost.show.frames import ON, PATHS, WHAT, flows_words, sample, setting_words, too_few
from sojourn.report.numbers import NOTHING, show
from sojourn.report.table import Column, Entry, Table, interval, number, rounded, text, whole

if TYPE_CHECKING:
    from sojourn.report.run import Run

TRAFFIC_COLUMNS = (
    Column(("traffic",), "Traffic", numeric=False),
    Column(("where",), "Logged at", numeric=False),
    Column(("setting",), "Setting", numeric=False),
)
RATIO_COLUMNS = (
    Column(("throughput_ratio",), "Throughput", "% of without"),
    Column(("ratio_low", "ratio_high"), "95 % CI", "%"),
)
SKIP_COLUMNS = (
    Column(("skipped",), "Skipped"),
    Column(("skipped_per_mbps",), "Skipped per minute", "per Mbit/s"),
)
FURTHER_COLUMNS = (
    Column(("throughput_mbit_per_s",), "Throughput with", "Mbit/s"),
    Column(("off_mbit_per_s",), "Throughput without", "Mbit/s"),
    Column(("cpu_per_bit_ratio",), "CPU time per bit", "% of without"),
    Column(("cpu_low", "cpu_high"), "95 % CI", "%"),
    Column(("logger_percent_of_a_core",), "Logging process", "% of a core"),
)


def ratios(run: Run) -> Table:
    """Return the table of all settings of the log."""
    columns = (
        *TRAFFIC_COLUMNS,
        *RATIO_COLUMNS,
        *SKIP_COLUMNS,
        Column(("records_per_s",), "Records", "1/s"),
        *FURTHER_COLUMNS,
        Column(("pairs",), "Pairs"),
    )
    rows = []
    for row in sample(run, "cost_ratios").filter(ON).iter_rows(named=True):
        skipped = (whole(row["skipped"]), _plain(row["skipped_per_mbps"]), whole(row["logged_per_s"]))
        rows.append((*_named(row), *_ratio(row), *skipped, *_further(row), whole(row["pairs"])))
    note = (
        "Throughput, % of without: the typical ratio of two adjacent slices, with the log and without (Hodges and "
        "Lehmann's); it is not the ratio of the two throughputs to its right, which are averages of all slices. CPU "
        "time per bit: the CPU time of both hosts and the logging process for each bit that arrived, as a ratio of the "
        "same kind. Skipped packets are counted as in the paper: per minute and for each Mbit/s of throughput."
    )
    return Table("cost_ratios", "Throughput with the log", columns, tuple(rows), note, wide=True, grouped=True)


def controls(run: Run) -> Table:
    """Return the table of the controls: without the log again, disabled, null programs, placebo."""
    columns = (*TRAFFIC_COLUMNS, *RATIO_COLUMNS, *FURTHER_COLUMNS, Column(("pairs",), "Pairs"))
    found = sample(run, "cost_ratios").filter(~ON)
    rows = tuple(
        (*_named(row), *_ratio(row), *_further(row), whole(row["pairs"])) for row in found.iter_rows(named=True)
    )
    note = (
        "a/a: adjacent slices that are both without the log. Its true value is 100 %; how far its interval reaches "
        "from 100 % is the resolution of this run with that traffic."
    )
    return Table("cost_controls", "Controls", columns, rows, note, wide=True, grouped=True)


def traffic(run: Run) -> Table:
    """Return the table of the throughput without the log."""
    columns = (
        Column(("path",), "Packets", numeric=False),
        Column(("flows",), "Flows"),
        Column(("off_mbit_per_s",), "Throughput", "Mbit/s"),
        Column(("off_low", "off_high"), "95 % CI", "Mbit/s"),
        Column(("frame_bytes",), "Mean packet", "B"),
        Column(("retransmitted_per_s",), "Retransmitted", "1/s"),
        Column(("resolved_percent",), "Resolution", "%"),
        Column(("slices",), "Slices"),
    )
    rows = []
    for row in sample(run, "cost_traffic").iter_rows(named=True):
        shown = show(row["off_bps"], row["off_bps_low"], row["off_bps_high"], "bit/s")
        least = show(row["resolved"], None, None, "ratio")
        again = _plain(row["retransmitted_per_s"])
        rows.append(
            (text(PATHS[row["path"]]), whole(row["flows"]), number(shown), interval(shown), whole(row["frame_bytes"]),
             again, rounded(least.value, 1), whole(row["slices"]))
        )  # fmt: skip
    note = "Resolution: how far the interval of the A/A control reaches from 100 % with that traffic."
    return Table("cost_traffic", "Throughput without the log", columns, tuple(rows), note, grouped=True)


def programs(run: Run) -> Table:
    """Return the table of the time per packet in the kernel."""
    columns = (
        Column(("what",), "Packets", numeric=False),
        Column(("direction",), "Direction", numeric=False),
        Column(("traffic",), "Traffic", numeric=False),
        Column(("ns",), "Time", "ns"),
        Column(("ns_low", "ns_high"), "95 % CI", "ns"),
        Column(("gross_ns",), "with overhead", "ns"),
        Column(("empty_ns",), "null program", "ns"),
        Column(("runs",), "Packets measured"),
        Column(("slices",), "Slices"),
        Column(("transfers",), "Transfers"),
    )
    found = sample(run, "cost_programs")
    rows = []
    for row in found.iter_rows(named=True) if found.height else ():
        if row["host"] is not None:
            continue
        shown = show(row["ns"], row["ns_low"], row["ns_high"], "")
        where = "all" if row["path"] is None else f"{flows_words(row['flows'])}, {PATHS[row['path']]}"
        few = too_few(row)
        reach = Entry(few, (None, None)) if few else interval(shown)
        took = (number(shown), reach, rounded(row["gross_ns"], 0), rounded(row["empty_ns"], 0))
        what = Entry(WHAT.get(row["what"], row["what"]), (row["what"],))
        counted = (whole(row[name]) for name in ("runs", "slices", "transfers"))
        rows.append((what, _way(row["direction"]), text(where), *took, *counted))
    note = (
        "From the kernel's statistics of BPF programs, both ends together: the mean time of a run minus that of the "
        "null program in the same turn. Packets between samples have no record, at a sampling of 1 in many. Slices "
        "within one iperf3 run are correlated: intervals are over transfers: Hodges and Lehmann's, of the transfers' "
        "means."
    )
    strong = frozenset(place for place, row in enumerate(rows) if row[2].text == "all")
    return Table("cost_programs", "Time per packet in the kernel", columns, tuple(rows), note, strong, wide=True)


def collapses(run: Run) -> Table:
    """Return the table of collapses of congestion windows, with each setting and without."""
    columns = (
        *TRAFFIC_COLUMNS,
        *(
            column
            for arm, group in (("", "With"), ("off_", "Without"))
            for column in (
                Column((f"{arm}collapses",), "Collapses", group=group),
                Column((f"{arm}share_percent",), "Slices with any", "%", group=group),
                Column((f"{arm}share_low", f"{arm}share_high"), "95 % CI", "%", group=group),
            )
        ),
        Column(("p",), "p, adjusted"),
        Column(("pairs",), "Pairs"),
    )
    found = sample(run, "cost_collapses")
    rows = []
    for row in found.iter_rows(named=True) if found.height else ():
        arms = []
        for arm in ("", "off_"):
            shown = show(row[f"{arm}share"], row[f"{arm}share_low"], row[f"{arm}share_high"], "ratio")
            arms += [whole(row[f"{arm}collapses"]), number(shown), interval(shown)]
        named = _named(row | {"mode": row["setting"]}) if row["path"] else _of_setting(row["setting"])
        rows.append((*named, *arms, _plain(row["p"]), whole(row["pairs"])))
    note = (
        "A collapse is an expiry of the sender's retransmission timer, which sets a congestion window to one "
        "segment. The kernel counts them with the log and without. p: sign test of pairs, times the number of "
        "settings (Bonferroni); a single cell has too few pairs for a conclusion. In siftr-2007 windows collapsed with "
        "the log, and the paper could not show whether they also collapsed without it."
    )
    strong = frozenset(place for place, row in enumerate(rows) if row[0].text == "all")
    return Table("cost_collapses", "Collapses of congestion windows", columns, tuple(rows), note, strong, wide=True)


def skips(run: Run) -> Table:
    """Return the table of skipped packets by reason; empty where there are none."""
    columns = (*TRAFFIC_COLUMNS, Column(("reason",), "Reason", numeric=False), Column(("packets",), "Packets"))
    found = sample(run, "cost_skips")
    rows = [
        (*_named(row | {"mode": row["setting"]}), text(row["reason"]), whole(row["packets"]))
        for row in (found.iter_rows(named=True) if found.height else ())
    ]
    return Table("cost_skips", "Skipped packets by reason", columns, tuple(rows), grouped=True)


def _named(row: dict[str, Any]) -> tuple[Entry, ...]:
    traffic_ = f"{flows_words(row['flows'])}, {PATHS[row['path']]}"
    return text(traffic_), text(row["where"]), text(setting_words(row["mode"], row["packets_per_log"]))


def _of_setting(setting: str) -> tuple[Entry, ...]:
    return text("all"), text("all"), text("logged" if setting == "on" else setting_words(setting, None))


def _ratio(row: dict[str, Any]) -> tuple[Entry, ...]:
    ratio = show(row["ratio"], row["ratio_low"], row["ratio_high"], "ratio")
    return number(ratio), interval(ratio)


def _further(row: dict[str, Any]) -> tuple[Entry, ...]:
    cpu = show(row["cpu_ratio"], row["cpu_ratio_low"], row["cpu_ratio_high"], "ratio")
    rates = (show(row[name], row[f"{name}_low"], row[f"{name}_high"], "bit/s") for name in ("bps", "off_bps"))
    own = rounded(None if row["logger_cores"] is None else 100 * row["logger_cores"], 1)
    return *(number(rate) for rate in rates), number(cpu), interval(cpu), own


def _way(direction: str) -> Entry:
    return Entry("received" if direction == "in" else "sent", (direction,))


def _plain(value: float | None) -> Entry:
    return Entry(NOTHING) if value is None else Entry("0" if value == 0 else f"{value:.3g}", (value,))
