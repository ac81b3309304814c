"""The report of "tcp-cost": the relative throughput at each setting of the log, and the time per packet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.methods.tcp_cost.show import figures, tables
from sojourn.methods.tcp_cost.show.frames import DETAIL, PATHS, SETTINGS, flows_words, sample, too_few
from sojourn.methods.tcp_cost.show.published import PUBLISHED
from sojourn.report.numbers import show
from sojourn.report.parts import Key, Parts

if TYPE_CHECKING:
    from typing import Any

    from sojourn.report.run import Run

MOST_KEYS = 4


def keys(run: Run) -> list[Key]:
    """Return the relative throughput at the most detail with the fewest and most flows, skipped packets, time per
    packet."""
    found = [*_left(run)][:MOST_KEYS]
    return [*found, *_skipped(run), *_nanoseconds(run)]


def _left(run: Run) -> list[Key]:
    cells = sample(run, "cost_ratios").filter(DETAIL)
    if cells.is_empty():
        return []
    ends = {cells["flows"].min(), cells["flows"].max()}
    made = []
    for row in cells.iter_rows(named=True):
        if row["flows"] in ends:
            shown = show(row["ratio"], row["ratio_low"], row["ratio_high"], "ratio")
            where = f"{flows_words(row['flows'])}, {PATHS[row['path']]}"
            over = f" on {run.sessions} beds" if run.sessions > 1 else ""
            lines = (f"95 % CI {shown.interval}", where, f"{row['pairs']} pairs{over}")
            made.append(Key("Throughput with every packet logged, relative to no log", shown.text, shown.unit, lines))
    return made


def _skipped(run: Run) -> list[Key]:
    cells = sample(run, "cost_ratios").drop_nulls("skipped")
    if cells.is_empty():
        return []
    skipped, packets = int(cells["skipped"].sum()), int(cells["packets"].sum())
    return [Key("Packets skipped", f"{skipped:,}".replace(",", "\u202f"), "", (f"of {packets:,} in all slices",))]


def _nanoseconds(run: Run) -> list[Key]:
    made = []
    for row in _pooled(run):
        if row["what"] == "logged":
            shown = show(row["ns"], row["ns_low"], row["ns_high"], "")
            way = "received" if row["direction"] == "in" else "sent"
            reach = too_few(row) or f"95 % CI {shown.interval}"
            lines = (reach, "minus the null program, from the kernel's statistics")
            made.append(Key(f"Time to log a packet {way}", shown.text, "ns", lines))
    return made


def _pooled(run: Run) -> list[dict[str, Any]]:
    rows = sample(run, "cost_programs")
    return [row for row in rows.iter_rows(named=True) if row["path"] is None] if rows.height else []


def words(run: Run) -> list[str]:
    """Return how it was measured."""
    asked = run.plan.get("costs", {})
    form = FORMS.get(str(asked.get("form")), FORMS["slices"]).format(
        slice=asked.get("slice", "?"), grace=asked.get("grace", "?"), pause=asked.get("pause", "?")
    )
    conditions = CONDITIONS.format(
        control=asked.get("congestion_control", "?"), mss=asked.get("mss_bytes", "?"),
        send=asked.get("send_buffer_bytes", "?"), receive=asked.get("receive_buffer_bytes", "?"),
    )  # fmt: skip
    beds = [OVER_BEDS.format(beds=run.sessions)] if run.sessions > 1 else []
    return [form, conditions, *METHOD[:2], *beds, _controls(run), *METHOD[2:]]


def _controls(run: Run) -> str:
    """Return the controls that were measured, and those that were not."""
    cells = sample(run, "cost_ratios")
    measured = set(cells["mode"].to_list())
    there = [words for mode, words in CONTROLS.items() if mode in measured]
    absent = [SETTINGS[mode] for mode in CONTROLS if mode not in measured]
    said = f"Controls: {'; '.join(there)}." if there else "No control was measured."
    return said + (f" Not measured here: {'; '.join(absent)}." if there and absent else "")


CONTROLS = {
    "off": "without the log again (a/a), which gives the resolution",
    "disabled": "attached but disabled",
    "empty": "null programs, which return at once",
    "placebo": "a placebo, a busy loop that takes as long as logging, like the empty loop of 2007",
}


FORMS = {
    "slices": (
        "The unit is the pair: two adjacent slices of {slice} of one iperf3 run between A and B, one without the log "
        "and one with a setting of the log. Their order is random, and reversed in the next repetition. After each "
        "change, the next slice begins {grace} later."
    ),
    "runs": (
        "The unit is the pair: two runs of {slice}, each with its own iperf3, {pause} apart, one without the log and "
        "one with a setting of the log. Their order is random, and reversed in the next repetition."
    ),
}
CONDITIONS = (
    "All connections begin in the same state: congestion control {control}, TCP_MAXSEG {mss}, a send buffer of {send} "
    "bytes and a receive buffer of {receive} bytes without autotuning, and no metrics of earlier connections "
    "(tcp_no_metrics_save). These are set in the namespaces of A and B only."
)
OVER_BEDS = (
    "The run was divided over {beds} beds, each set up anew with other addresses, interface indexes, order of links, "
    "processes and cores: therefore estimates are means over beds, of logarithms of ratios and of times, with "
    "Student's interval (REML with Hartung and Knapp's where beds have unequal numbers of pairs), also where this page "
    "speaks of pairs and transfers."
)
METHOD = (
    (
        "Throughput is the receiver's interface counter over the times at which it was read. Each pair gives a ratio; "
        "estimates over pairs are Hodges and Lehmann's, of logarithms, with the exact signed-rank interval. Pairs of "
        "one iperf3 run are no more similar than pairs of different runs, so each counts separately."
    ),
    (
        "The log is attached to the cgroups of the programs of A and B; at the root cgroup it would log every packet "
        "at both ends. Packets up to 64 kB (“gso”) are as large as the kernel makes them; packets of one segment "
        "(“mtu”) are made with gso_max_segs 1, because TCP makes large packets even with offloads off."
    ),
    (
        "Time per packet is from the kernel's statistics of BPF programs, minus that of the null programs in the same "
        "turn, which have the same overhead. Collecting statistics takes time, so it is done in separate slices. "
        "Values of one transfer (one iperf3 and one loading of the programs) are correlated: intervals are over "
        "transfers."
    ),
    (
        "A and B share this machine's CPUs with the logging process. On two separate hosts, each end would bear the "
        "cost of its own log only."
    ),
)

PARTS = Parts(
    tables=(tables.ratios, tables.controls, tables.programs, tables.traffic, tables.collapses, tables.skips),
    figures=(figures.over_detail, figures.over_where, figures.controls, figures.programs, figures.skipped,
             figures.over_time),
    keys=keys,
    words=words,
    results=("cost_ratios",),
    published=PUBLISHED,
)  # fmt: skip
