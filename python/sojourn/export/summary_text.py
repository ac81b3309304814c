"""A summary of a log's flows for a person: a table of all, or some lines of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.export.summary_samples import KINDS, LIMITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from sojourn.export.log import TcpLog

SHORT = {
    "application": "app",
    "receiver": "rwnd",
    "send_buffer": "sndbuf",
    "recovery": "recov",
    "cwnd": "cwnd",
    "path_or_pacing": "path",
}
HEAD = ("flow", "port", "remote", "out", "in", "bit/s", "retr", "RTT ms", "limited")
WIDTHS = (4, 5, 21, 6, 6, 6, 5, 6, 11)


def tabulated(rows: pl.DataFrame, log: TcpLog) -> str:
    """Return one line per flow in 80 columns, the most bytes first, and a hint at further output."""
    return "\n".join([*_listed(rows), *_unlogged(rows, log), "one flow in full: --flow N"])


def shortened(rows: pl.DataFrame, log: TcpLog, most_lines: int) -> str:
    """Return the same in at most `most_lines` lines, for the end of `tcplog run`; omitted flows are counted."""
    lines, more = (
        _listed(rows),
        [*_unlogged(rows, log), f"one flow in full: sojourn tcplog summary {log.path} --flow N"],
    )
    room = most_lines - len(more)
    if len(lines) > room:
        left = len(lines) - (room - 1)
        lines = [*lines[: room - 1], f"{left} more flows with fewer bytes: sojourn tcplog summary {log.path}"]
    return "\n".join([*lines, *more])


def _listed(rows: pl.DataFrame) -> list[str]:
    order = rows.sort(rows["acked_bytes"].fill_null(0) + rows["received_bytes"].fill_null(0), descending=True)
    return [_line(HEAD), *(_line(_cells(row)) for row in order.iter_rows(named=True))]


def _line(cells: tuple[str, ...]) -> str:
    shown = [one if len(one) <= width else one[: width - 1] + "…" for one, width in zip(cells, WIDTHS, strict=True)]
    parts = [
        one.ljust(width) if place in {2, 8} else one.rjust(width)
        for place, (one, width) in enumerate(zip(shown, WIDTHS, strict=True))
    ]
    return " ".join(parts).rstrip()


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    times = {name: row[f"limited_by_{name}_s"] for name in LIMITS}
    whole = sum(times.values())
    most = max(times, key=lambda name: times[name])
    rtt = row["rtt_p50_us"]
    return (
        str(row["flow"]),
        str(row["local_port"]),
        _end(row["remote_address"], row["remote_port"]),
        _short(row["acked_bytes"]),
        _short(row["received_bytes"]),
        _short(max(row["goodput_out_bps"] or 0, row["goodput_in_bps"] or 0)),
        _short(row["retransmitted_segments"]),
        "-" if rtt is None else f"{rtt / 1000:.3f}"[:6].rstrip("."),
        f"{SHORT[most]} {times[most] / whole:.0%}" if row["sent_bytes"] and whole else "-",
    )


def _short(number: float | None) -> str:
    """Return a number in at most six characters."""
    if number is None:
        return "-"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.4g}"[:5].rstrip(".") + unit
    return f"{number:.0f}"


def _unlogged(rows: pl.DataFrame, log: TcpLog) -> list[str]:
    unlogged = log.flows.height - rows.height
    if not unlogged:
        return []
    return [f"{unlogged} more flow{'s' * (unlogged != 1)} seen, of which nothing was logged (filtered, or skipped)."]


def described(rows: pl.DataFrame, log: TcpLog) -> str:
    """Return the summary for a person: some lines per flow, then the number of flows without logged packets."""
    parts = [_described(row) for row in rows.iter_rows(named=True)]
    if not parts:
        parts.append("No flow was logged.")
    return "\n\n".join([*parts, *_unlogged(rows, log)])


def _described(row: Mapping[str, Any]) -> str:
    local, remote = (_end(row[f"{side}_address"], row[f"{side}_port"]) for side in ("local", "remote"))
    lines = [
        f"flow {row['flow']}: {local} → {remote}, {row['algorithm']}, {row['samples']} samples in {row['span_s']:.3f} s"
    ]
    for way, counter, rate in (
        ("sent", "acked_bytes", "goodput_out_bps"),
        ("received", "received_bytes", "goodput_in_bps"),
    ):
        if row[counter]:
            what = "acknowledged" if way == "sent" else "received"
            lines.append(f"  {what:<16}{row[counter]} bytes, goodput {_rate(row[rate])}")
    if row["sent_bytes"]:
        again = (
            f"{row['retransmitted_segments']} segments, {row['retransmitted_bytes']} bytes, {row['timeouts']} timeouts"
        )
        lines.append(f"  {'retransmitted':<16}{again}")
        if row["retransmitted_segments"]:
            lines.append(f"  {'of them':<16}{_by_kind(row)}")
    if row["rtt_min_us"] is not None:
        names = ("min", "p50", "p95", "max")
        told = ", ".join(f"{name} {_ms(row[f'rtt_{name}_us'])}" for name in names)
        lines.append(f"  {'RTT':<16}{told}{_coarse(row)}")
    times = {name: row[f"limited_by_{name}_s"] for name in LIMITS}
    whole = sum(times.values())
    if row["sent_bytes"] and whole:
        shares = sorted(times.items(), key=lambda one: -one[1])
        told = ", ".join(
            f"{name.replace('_', ' ')} {lasts:.3f} s ({lasts / whole:.0%})" for name, lasts in shares if lasts
        )
        lines.append(f"  {'limited by':<16}{told}")
    return "\n".join(lines)


def _by_kind(row: Mapping[str, Any]) -> str:
    """Return the retransmissions by kind, where the log has all of them."""
    kinds = {kind: row[f"retransmitted_{kind}_segments"] for kind in KINDS}
    spurious = row["spurious_segments"]
    dsack = [] if spurious is None else [f"{spurious} needless (DSACK)"]
    if None in kinds.values():
        return ", ".join(["kinds not known: the log lacks some of these packets", *dsack])
    told = [f"{count} {kind.replace('_', ' ')}" for kind, count in kinds.items() if count]
    return ", ".join([*told, *dsack])


def _coarse(row: Mapping[str, Any]) -> str:
    """Return a note if the kernel's minimum is below every sample and a whole number of ms: TCP timestamps
    measured it."""
    kernel = row["kernel_rtt_min_us"]
    if kernel is None or kernel >= row["rtt_min_us"] or kernel % 1000:
        return ""
    return f"; the kernel's minimum, {_ms(kernel)}, is of TCP timestamps, which count whole ms"


def _end(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _ms(us: float) -> str:
    return f"{us / 1000:.3f} ms"


def _rate(bps: float | None) -> str:
    if bps is None:
        return "unknown"
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bps >= size:
            return f"{bps / size:.3f} {unit}"
    return f"{bps:.0f} bit/s"
