"""Tables of siftr-2007 with this run's results: throughput without a log, loaded but disabled, all packets logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.methods.tcp_cost.show.frames import DETAIL, ON_SENDER, sample
from sojourn.report.numbers import NOTHING, Shown, show
from sojourn.report.published import read_published
from sojourn.report.table import Column, Entry, Table, interval, number, printed, rounded, text

if TYPE_CHECKING:
    from sojourn.report.published import Row
    from sojourn.report.run import Run

NOTE = (
    "Theirs are two pairs of machines of 2004 and 2007 over gigabit Ethernet, one pair with one core each, the other "
    "with two. Ours are two namespaces of one machine. Compare ratios, not throughputs."
)
NOTHING_SHOWN = Shown(None, None, None, "")


def baseline_table(run: Run, name: str) -> Table:
    """Return table IV: throughput over flows without a log, and each relative to that of one flow."""
    rows = read_published(name)
    ours = _traffic(run)
    one = ours.get(1)
    columns = (
        Column(("flows",), "Flows"),
        *(Column((f"testbed{i}_mbit_per_s",), f"testbed {i}", "Mbit/s", group="Theirs") for i in (1, 2)),
        *(Column((f"testbed{i}_over_one",), f"{i} over one flow", group="Theirs") for i in (1, 2)),
        Column(("our_mbit_per_s",), "throughput", "Mbit/s", group="Ours"),
        Column(("our_low", "our_high"), "95 % CI", "Mbit/s", group="Ours"),
        Column(("our_over_one",), "over one flow", group="Ours"),
    )
    body = []
    for row in rows:
        theirs = [float(row[f"testbed{i}_bps"]) for i in (1, 2)]
        first = [float(rows[0][f"testbed{i}_bps"]) for i in (1, 2)]
        mine = ours.get(int(row["flows"]))
        shown = show(mine["off_bps"], mine["off_bps_low"], mine["off_bps_high"], "bit/s") if mine else NOTHING_SHOWN
        over = rounded(mine["off_bps"] / one["off_bps"] if mine and one else None, 3)
        body.append(
            (printed(row["flows"]), *(rounded(bps / 1e6, 1) for bps in theirs),
             *(rounded(bps / base, 3) for bps, base in zip(theirs, first, strict=True)), number(shown), interval(shown),
             over)
        )  # fmt: skip
    return Table(f"published_{name}", TITLES[name], columns, tuple(body), NOTE, wide=True)


def disabled_table(run: Run, name: str) -> Table:
    """Return table V: the ratio of throughput loaded but disabled to not loaded, with one flow."""
    rows = read_published(name)
    columns = (
        Column(("whose",), "Machine", numeric=False),
        Column(("unloaded_mbit_per_s",), "not loaded", "Mbit/s"),
        Column(("disabled_mbit_per_s",), "loaded, disabled", "Mbit/s"),
        Column(("ratio",), "disabled over not loaded"),
        Column(("ratio_low", "ratio_high"), "95 % CI"),
    )
    body: list[tuple[Entry, ...]] = []
    for row in rows:
        off, on = float(row["unloaded_bps"]), float(row["loaded_disabled_bps"])
        body.append(
            (text(f"theirs, testbed {row['testbed']}"), rounded(off / 1e6, 1), rounded(on / 1e6, 1),
             rounded(on / off, 4), Entry(NOTHING))
        )  # fmt: skip
    for mine in sample(run, "cost_ratios").filter(pl.col("mode") == "disabled").iter_rows(named=True):
        shown = Shown(mine["ratio"], mine["ratio_low"], mine["ratio_high"], "")
        whose = f"ours, {mine['flows']} flow{'s' if mine['flows'] > 1 else ''}, {mine['path']}"
        rates = (rounded(mine[one] / 1e6, 0) for one in ("off_bps", "bps"))
        body.append((text(whose), *rates, number(shown), interval(shown)))
    return Table(f"published_{name}", TITLES[name], columns, tuple(body), NOTE)


def headlines_table(run: Run, name: str) -> Table:
    """Return the headline results: throughput and skips at the most detail, and throughput relative to no log."""
    rows = read_published(name)
    columns = (
        Column(("whose",), "Machine", numeric=False),
        Column(("packets_per_log",), "Sampling: 1 in"),
        Column(("flows",), "Flows", numeric=False),
        Column(("throughput_mbit_per_s",), "Throughput", "Mbit/s"),
        Column(("ratio_percent",), "% of without"),
        Column(("ratio_low", "ratio_high"), "95 % CI", "%"),
        Column(("skipped_per_mbps",), "Skipped per minute", "per Mbit/s"),
        Column(("note",), "Note", numeric=False),
    )
    body = [_headline(row) for row in rows]
    cells = sample(run, "cost_ratios")
    asked = DETAIL | (ON_SENDER & (pl.col("packets_per_log") == 2) & (pl.col("flows") == 1))
    for mine in cells.filter(asked).iter_rows(named=True):
        shown = show(mine["ratio"], mine["ratio_low"], mine["ratio_high"], "ratio")
        skipped = mine["skipped_per_mbps"]
        body.append(
            (text(f"ours, {mine['path']}"), printed(str(mine["packets_per_log"])), text(str(mine["flows"])),
             rounded(mine["bps"] / 1e6, 0), number(shown), interval(shown),
             Entry(NOTHING) if skipped is None else Entry(f"{skipped:.3g}", (skipped,)), text(""))
        )  # fmt: skip
    note = (
        f"{NOTE} On the paper's second machine logging raised throughput, and so did a hook that only took time: "
        "packets that arrived a little later overflowed some buffer less often. The hypothesis “placebo-explains” "
        "tests that here."
    )
    return Table(f"published_{name}", TITLES[name], columns, tuple(body), note, wide=True)


WITHOUT = {"1": 632.7155917, "2": 562.7677816}
"""Published throughput of one flow without a log, in Mbit/s (table IV)."""


def _headline(row: Row) -> tuple[Entry, ...]:
    throughput = float(row["throughput_mbps"]) if row["throughput_mbps"] else None
    left = None if throughput is None else 100 * throughput / WITHOUT[row["testbed"]]
    return (
        text(f"theirs, testbed {row['testbed']}"), printed(row["packets_per_log"]), text(row["flows"]),
        printed(row["throughput_mbps"]), rounded(left, 0), Entry(NOTHING), printed(row["skipped_per_mbps"]),
        text(row["note"]),
    )  # fmt: skip


def _traffic(run: Run) -> dict[int, dict[str, Any]]:
    """Return this run's throughput without the log by flows, with packets up to 64 kB where that was measured."""
    rows = list(sample(run, "cost_traffic").iter_rows(named=True))
    path = "gso" if any(row["path"] == "gso" for row in rows) else "mtu"
    return {row["flows"]: row for row in rows if row["path"] == path}


TITLES = {
    "siftr2007_baseline": "Throughput without a log: Stewart 2007, table IV, beside this run",
    "siftr2007_disabled": "Loaded but disabled: Stewart 2007, table V, beside this run",
    "siftr2007_headlines": "At the most detail: Stewart 2007, abstract and section V, beside this run",
}
PUBLISHED = {
    "siftr2007_baseline": baseline_table,
    "siftr2007_disabled": disabled_table,
    "siftr2007_headlines": headlines_table,
}
