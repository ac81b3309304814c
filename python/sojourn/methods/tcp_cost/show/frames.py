"""The samples of the cost of a log, and the names of their factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from sojourn.report.run import Run

PATHS = {"gso": "packets up to 64 kB", "mtu": "packets of one segment"}
SETTINGS = {
    "off": "without it again (a/a)",
    "disabled": "attached, disabled",
    "empty": "null programs",
    "placebo": "placebo (busy loop)",
}
ON = pl.col("mode") == "on"
ON_SENDER = ON & (pl.col("where") == "sender")
DETAIL = ON_SENDER & (pl.col("packets_per_log") == 1)


def sample(run: Run, name: str) -> pl.DataFrame:
    """Return one of the samples; an empty one with its columns, where they are known, if there is none."""
    found = run.samples(name)
    return pl.DataFrame(schema=COLUMNS.get(name, {})) if found is None or not found.width else found


COLUMNS: dict[str, dict[str, pl.DataType]] = {
    "cost_ratios": {
        **dict.fromkeys(("path", "where", "mode"), pl.String()),
        **dict.fromkeys(("flows", "packets_per_log", "pairs", "logged", "skipped", "packets"), pl.Int64()),
        **dict.fromkeys(
            (
                *("ratio", "ratio_low", "ratio_high", "bps", "bps_low", "bps_high", "off_bps", "off_bps_low"),
                *("off_bps_high", "cpu_ratio", "cpu_ratio_low", "cpu_ratio_high", "cpu_s_per_gbit", "logger_cores"),
                *("skipped_per_mbps", "logged_per_s"),
            ),
            pl.Float64(),
        ),
    },
    "cost_traffic": {
        "path": pl.String(),
        "flows": pl.Int64(),
        **dict.fromkeys(("off_bps", "off_bps_low", "off_bps_high"), pl.Float64()),
    },
}


WHAT = {"decimated": "between samples", "empty": "null program"}
"""What a program ran for, where figures and tables use another name."""


def flows_words(flows: int) -> str:
    """Return the number of flows as a phrase."""
    return "1 flow" if flows == 1 else f"{flows} flows"


def setting_words(mode: str, each: int | None) -> str:
    """Return the name of a setting in tables and figures."""
    if mode != "on":
        return SETTINGS.get(mode, mode)
    return "every packet logged" if each == 1 else f"1 packet in {each} logged"


def too_few(row: dict[str, Any]) -> str:
    """Return why a program's time has no interval; empty where it has one."""
    if row["ns_low"] is not None or row.get("transfers") is None:
        return ""
    return f"too few transfers for an interval: {row['transfers']} of {row['transfers_needed']}"
