"""The results as rows: `device` is the setting, `reference` what it is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.rows import LogSetting, Row
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.methods.tcp_cost.analyse.programs import Spent
    from sojourn.methods.tcp_cost.analyse.ratios import Cell, Traffic

SOURCE = "kernel, interface counters"
OFF = "off"


def rows_of(cells: list[Cell], traffic: list[Traffic], spent: list[Spent]) -> list[Row]:
    """Return all rows."""
    return [
        *(row for one in traffic for row in _of_traffic(one)),
        *(row for one in cells for row in _of_cell(one)),
        *(program_row(one) for one in spent),
    ]


def _of_traffic(one: Traffic) -> Iterator[Row]:
    where = LogSetting(one.path, one.flows)
    yield Row(OFF, "throughput", "typical", one.off_bps, "bit/s", source=SOURCE, clock="TAI", setting=where,
              sessions=one.sessions)  # fmt: skip
    if one.resolved is not None:
        value = _plain(one.resolved, one.slices)
        yield Row(OFF, "resolution", "ratio", value, "1", reference=OFF, source=SOURCE, clock="TAI", setting=where,
                  sessions=one.sessions)  # fmt: skip


def _of_cell(one: Cell) -> Iterator[Row]:
    where = LogSetting(one.path, one.flows, one.where, one.packets_per_log)
    device = "a/a" if one.is_control else one.mode

    def row(quantity: str, statistic: str, value: Interval, unit: str, reference: str | None = None) -> Row:
        return Row(
            device, quantity, statistic, value, unit, reference, clock="TAI", source=SOURCE, setting=where,
            probes=one.pairs, sessions=one.sessions,
        )  # fmt: skip

    yield row("throughput_ratio", "typical", one.ratio, "1", OFF)
    for statistic, value in one.beside:
        yield row("throughput_ratio", statistic, value, "1", OFF)
    yield row("throughput", "typical", one.bps, "bit/s")
    yield row("cpu_per_bit_ratio", "typical", one.cpu_ratio, "1", OFF)
    yield row("cpu_per_gbit", "mean", _plain(one.cpu_s_per_gbit, one.pairs), "s")
    yield row("logger_cores", "mean", _plain(one.logger_cores, one.pairs), "1")
    if one.skipped is not None and one.skipped_per_mbps is not None and one.logged_per_s is not None:
        yield row("skipped", "count", _plain(float(one.skipped), one.pairs), "packets")
        yield row("skipped_per_mbps", "mean", _plain(one.skipped_per_mbps, one.pairs), "1/Mbit/s")
        yield row("records_rate", "mean", _plain(one.logged_per_s, one.pairs), "1/s")


def ratio_row(one: Cell, ratio: Interval) -> Row:
    """Return the row of the throughput ratio over all numbers of flows of this cell's path."""
    setting = LogSetting(one.path, None, one.where, one.packets_per_log)
    return Row(one.mode, "throughput_ratio", "typical", ratio, "1", OFF, clock="TAI", source=SOURCE, setting=setting)


def program_row(one: Spent) -> Row:
    """Return the row of the time of logged, decimated or disabled packets; the direction is the statistic."""
    setting = LogSetting(one.path, one.flows, one.host)
    return Row(
        one.what, "program_time", one.direction, one.ns, "ns", "empty", clock="kernel", source="BPF statistics",
        probes=one.runs, setting=setting, sessions=one.sessions,
    )  # fmt: skip


def _plain(value: float, count: int) -> Interval:
    return Interval(value, None, None, 0.95, count)
