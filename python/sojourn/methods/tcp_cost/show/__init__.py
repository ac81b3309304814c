"""The report of "tcp-cost": what is left of the throughput at each setting of the log, and where its cost lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.methods.tcp_cost.show import figures, tables
from sojourn.methods.tcp_cost.show.frames import DETAIL, PATHS, flows_words, sample, too_few
from sojourn.methods.tcp_cost.show.published import PUBLISHED
from sojourn.report.numbers import show
from sojourn.report.parts import Key, Parts

if TYPE_CHECKING:
    from typing import Any

    from sojourn.report.run import Run

MOST_KEYS = 4


def keys(run: Run) -> list[Key]:
    """What is left at the most detail under each extreme of the traffic, and what a packet takes."""
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
            lines = (f"95 % CI {shown.interval}", where, f"{row['pairs']} pairs")
            made.append(Key("Throughput left, every packet logged", shown.text, shown.unit, lines))
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
            way = "comes" if row["direction"] == "in" else "goes"
            reach = too_few(row) or f"95 % CI {shown.interval}"
            lines = (reach, "less the empty program, by the kernel's statistics")
            made.append(Key(f"To log a packet that {way}", shown.text, "ns", lines))
    return made


def _pooled(run: Run) -> list[dict[str, Any]]:
    rows = sample(run, "cost_programs")
    return [row for row in rows.iter_rows(named=True) if row["path"] is None] if rows.height else []


def words(run: Run) -> list[str]:
    """How it was measured."""
    asked = run.plan.get("costs", {})
    form = FORMS.get(str(asked.get("form")), FORMS["slices"]).format(
        slice=asked.get("slice", "?"), settle=asked.get("settle", "?"), pause=asked.get("pause", "?")
    )
    conditions = CONDITIONS.format(
        control=asked.get("congestion_control", "?"), mss=asked.get("mss_bytes", "?"),
        send=asked.get("send_buffer_bytes", "?"), receive=asked.get("receive_buffer_bytes", "?"),
    )  # fmt: skip
    return [form, conditions, *METHOD]


FORMS = {
    "slices": (
        "The unit is the pair: two slices of {slice} of one iperf3 between A and B, next to each other, one without "
        "the log and one with a setting of it; which comes first is drawn, and turned about in the next repetition. "
        "Between a change and the slice behind it lie {settle}."
    ),
    "runs": (
        "The unit is the pair: two runs of {slice}, each in an iperf3 of its own, {pause} apart, one without the log "
        "and one with a setting of it; which comes first is drawn, and turned about in the next repetition."
    ),
}
CONDITIONS = (
    "Connections begin alike: congestion control {control}, TCP_MAXSEG {mss}, send buffer {send} bytes and receive "
    "buffer {receive} bytes that do not grow, and no memory of connections past (tcp_no_metrics_save); set in the "
    "namespaces of A and B alone."
)
METHOD = (
    (
        "Throughput is what the receiver's interface got, by the kernel's counters and the times at which they were "
        "read. A ratio is that of a pair; estimates over pairs are Hodges and Lehmann's, of logarithms, with the exact "
        "signed-rank interval. Pairs of one iperf3 are no more alike than others, so each counts by itself."
    ),
    (
        "The log is attached to the cgroups in which the programs of A and of B run: at the root it would see both "
        "ends of every packet. “gso” packets are as large as the kernel makes them, up to 64 kB; “mtu” packets have "
        "one segment each, which needs gso_max_segs 1: with offloads off, TCP makes large ones all the same."
    ),
    (
        "Four controls: the slice without the log again (a/a), which says what can be told at all; attached but "
        "disabled; empty programs; and a sham, whose programs only burn as much time as logging takes, as the empty "
        "loop of 2007 did."
    ),
    (
        "Nanoseconds a packet are the kernel's own statistics of programs, taken in slices of their own since taking "
        "them takes time, less those of empty programs in the same turn, which read the same clocks. These are alike "
        "within an iperf3 and its loading of the programs, so that it is the unit of their intervals."
    ),
    (
        "A and B share this machine's processors with the logging process: what it takes, they lack. On two hosts of "
        "their own, each end would pay for its own log alone."
    ),
)

PARTS = Parts(
    tables=(tables.ratios, tables.controls, tables.programs, tables.traffic, tables.skips),
    figures=(figures.over_detail, figures.over_where, figures.controls, figures.programs, figures.skipped,
             figures.over_time),
    keys=keys,
    words=words,
    results=("cost_ratios",),
    published=PUBLISHED,
)  # fmt: skip
