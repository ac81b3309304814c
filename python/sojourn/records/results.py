"""The columns of results.json and results.parquet, with types and meanings of one line each; and their readers.

The analysis writes these files, the report reads them, and docs/reference/results.md is generated from here. A run may
come from somebody else: declared members have the declared types, or the file is refused in a sentence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
from pyarrow import parquet

from sojourn.errors import RequestError
from sojourn.records.decode import json_text
from sojourn.records.earlier import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RESULTS: Final[dict[str, tuple[pl.DataType, str]]] = {
    "device": (
        pl.String(),
        "The path: a device under test, `direct` (the link without one), `a/a` (it again, or its twin), or a sender.",
    ),
    "reference": (pl.String(), "The path that was subtracted; null: the figure is of the whole path."),
    "probe": (pl.String(), "The kind of probe or the engine of a stream; of senders under test the tool."),
    "schedule": (pl.String(), "When packets leave: regular, poisson, closed-loop, flood, ..."),
    "icmp_bytes": (pl.Int64(), "ICMP header and data."),
    "payload_bytes": (pl.Int64(), "User data of a request, or of a stream's packet."),
    "response_payload_bytes": (pl.Int64(), "User data of the response."),
    "frame_bytes": (pl.Int64(), "The Ethernet frame with its FCS."),
    "response_frame_bytes": (pl.Int64(), "The response's frame with its FCS."),
    "interval_ns": (pl.Int64(), "The mean time between packets that was asked for; 0: as fast as possible."),
    "quantity": (pl.String(), "What was measured; see below."),
    "statistic": (pl.String(), "Which statistic of it: mean, p50, pooled (over all cells), fit, ratio, ..."),
    "estimate": (
        pl.Float64(),
        "The figure, in `unit`. Null: infinite, since so many frames were lost, or not known (`source` says why).",
    ),
    "ci_low": (pl.Float64(), "The interval's lower end; null without one."),
    "ci_high": (pl.Float64(), "The interval's upper end; null beside a lower one: infinite."),
    "level": (
        pl.Float64(),
        "The interval's level; exact intervals of few values have a little more than was asked for.",
    ),
    "unit": (pl.String(), "ns, 1 (a share or a ratio), 1/s, bit/s, ns/byte, s/s, ..."),
    "n": (pl.Int64(), "How many pairs, rounds or trials the interval is over; never packets."),
    "probes": (pl.Int64(), "How many packets are behind the figure."),
    "q_value": (
        pl.Float64(),
        "Of cells' `device_latency`: Benjamini and Hochberg's q of its differing from zero, all cells together.",
    ),
    "cell": (pl.Int64(), "The number of the combination of factors; null: over several."),
    "clock": (pl.String(), "The clock of the times."),
    "source": (pl.String(), "Where timestamps were taken, or how the figure came to be."),
    "findings": (pl.List(pl.String()), "Findings that concern this figure, by name."),
    "clock_bound_ns": (pl.Float64(), "By how much the clocks can be wrong at most; 0: one clock."),
    "clock_error95_ns": (
        pl.Float64(),
        "By how much they are wrong in less than one case of 20; the interval of a delay holds it.",
    ),
    "against": (
        pl.String(),
        "The cell of the same path that was subtracted, by the factor that differs: `load=0.0`, `to=unicast`.",
    ),
    "port": (pl.Int64(), "The receiver, from 0."),
    "node": (pl.Int64(), "Who answered, from 1."),
    "kind": (pl.String(), "The kind of stream: one-way, request-response, answers."),
    "engine": (
        pl.String(),
        "What was asked to send: auto, packet, udp, xdp, ... What did is in verdict.json, `engines`.",
    ),
    "rate_pps": (pl.Float64(), "The packets a second that were asked for, of all senders together."),
    "rate_share": (pl.Float64(), "The load as a share of the throughput that was found first."),
    "to": (pl.String(), "The destination: unicast, unknown, broadcast, multicast."),
    "senders": (pl.Int64(), "Senders at the same time."),
    "receivers": (pl.Int64(), "Further hosts that listen."),
    "load": (pl.Float64(), "Load beside the stream, as a share of the throughput."),
    "load_via": (pl.String(), "Where that load goes: through the device, or beside it."),
    "pipe": (pl.String(), "The configuration of the emulator."),
    "sessions": (pl.Int64(), "Over how many beds, each made anew, the figure is; null: of one."),
}

SETTINGS: Final[dict[str, tuple[pl.DataType, str]]] = {
    "path": (pl.String(), "The kind of TCP traffic that was logged: gso, ..."),
    "flows": (pl.Int64(), "Flows of TCP at the same time."),
    "where": (pl.String(), "Where that log ran: a, b, sender, ..."),
    "packets_per_log": (pl.Int64(), "One packet in so many was logged."),
    "direction": (pl.String(), "Where they send: down, up, both."),
    "congestion": (pl.String(), "Their congestion control."),
    "round_trips": (pl.String(), "Round trips that they have in turn without the queue; null: that of the pipe."),
    "background": (pl.String(), "Traffic beside them that is not measured; null: none."),
    "scenario": (pl.String(), "What the plan calls this load; null: it has no name."),
    "dscp": (pl.String(), "The DSCP of probes that ran beside others; null: of the main ones."),
    "window": (pl.Float64(), "The window of all connections together, over the bandwidth-delay product."),
}
"""Columns of results.parquet in every run; results.json has them in runs of TCP only."""

COLUMNS: Final[dict[str, pl.DataType]] = {name: kind for name, (kind, _) in RESULTS.items()}
TIDY: Final[dict[str, pl.DataType]] = COLUMNS | {name: kind for name, (kind, _) in SETTINGS.items()}
"""All columns of results.parquet."""

NEEDED = ("quantity", "statistic", "estimate")
WORDS = ("name", "severity", "where", "sentence")
MOST = 2**63 - 1
LARGEST = 1e100
"""The largest figure: no quantity is larger, in whatever unit, and its square is still a number."""

TOO_LARGE = "too large for a figure, or no number"


def read_results(path: Path) -> list[dict[str, Any]]:
    """Return the rows of results.json. Raises RequestError if it is unreadable or malformed."""
    rows = _read(path)
    if not isinstance(rows, list):
        raise _refused(path, "expected an array of rows")
    for at, row in enumerate(rows):
        if not isinstance(row, dict) or any(name not in row for name in NEEDED):
            raise _refused(path, f"row {at} has no {', '.join(NEEDED)}")
        for name in sorted(COLUMNS.keys() & row.keys()):
            if not _fits(COLUMNS[name], value := row[name]):
                raise _refused(path, f"row {at}: {name} is of another type")
            if _is_too_large(value) or (isinstance(value, int) and abs(value) > MOST):
                raise _refused(path, f"row {at}: {name} is {TOO_LARGE}")
        if not all(isinstance(row[name], str) for name in NEEDED[:2]):
            raise _refused(path, f"row {at} has no name")
    return rows


def read_verdict(path: Path) -> dict[str, Any]:
    """Return the content of verdict.json. Raises RequestError if it is unreadable or malformed."""
    verdict = _read(path)
    if not isinstance(verdict, dict) or not isinstance(verdict.get("verdict"), str):
        raise _refused(path, "it says no verdict")
    for name, kind in (("run", str), ("study", str), ("sentence", str), ("pairs", dict), ("engines", dict)):
        if not isinstance(verdict.get(name, kind()), kind):
            raise _refused(path, f"{name} is of another type")
    _require_parts(path, verdict)
    return {"sentence": ""} | verdict


def _require_parts(path: Path, verdict: dict[str, Any]) -> None:
    """Refuse findings, checks and hypotheses of another shape."""
    for name in ("findings", "checks", "hypotheses"):
        parts = verdict.get(name, [])
        if not isinstance(parts, list) or not all(isinstance(one, dict) for one in parts):
            raise _refused(path, f"{name} is no array of tables")
    for one in verdict.get("findings", []):
        if not all(isinstance(one.get(word), str) for word in WORDS):
            raise _refused(path, f"a finding has no {', '.join(WORDS)}")
    for name, kinds in (("hypotheses", OF_HYPOTHESIS), ("checks", OF_CHECK)):
        for one in verdict.get(name, []):
            if (wrong := unlike(kinds[1] | one, kinds[0])) is not None:
                raise _refused(path, f"one of {name}: {wrong}")


def read_budgets(path: Path) -> list[dict[str, Any]]:
    """Return the content of budgets.json (`records.budgets`); empty if there is none. Raises RequestError."""
    if not path.is_file():
        return []
    several = _read(path)
    if not isinstance(several, list) or not all(isinstance(one, dict) for one in several):
        raise _refused(path, "expected an array of budgets")
    for at, one in enumerate(several):
        if (wrong := unlike(one, OF_BUDGET)) is not None:
            raise _refused(path, f"budget {at}: {wrong}")
        if len({one[name] is None for name in ("combined", "coverage_factor", "expanded")}) > 1:
            raise _refused(path, f"budget {at}: the uncertainty is known in part")
        for part in one["components"]:
            if not isinstance(part, dict):
                raise _refused(path, f"budget {at}: a component is no table")
            if (wrong := unlike(part, OF_COMPONENT)) is not None:
                raise _refused(path, f"budget {at}: a component: {wrong}")
            if part["state"] == "counted" and None in {part["standard_uncertainty"], part["contribution"]}:
                raise _refused(path, f"budget {at}: a component is counted and has no value")
    return several


def read_parquet(path: Path) -> pl.DataFrame:
    """Return a Parquet file of a run's analysis. Raises RequestError if it is unreadable.

    Arrow reads it and checks every value: polars panics on a damaged file, which is no exception that can be handled.
    """
    try:
        # Of a file that Python has opened, a thread of Arrow's may read on while the interpreter ends: it is aborted.
        with pa.OSFile(str(path), "r") as file:
            table = parquet.ParquetFile(file).read()
        table.validate(full=True)
        kinds = [_kind_of(one.type) for one in table.schema]
        names = [str(one.name) for one in table.schema]
        columns = [column.cast(kind) for column, kind in zip(table.columns, kinds, strict=True)]
        found = pl.from_arrow(pa.Table.from_arrays(columns, names))
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise _refused(path, (str(error).splitlines() or [""])[0][:80]) from error
    assert isinstance(found, pl.DataFrame)
    return found


KINDS = (
    pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_boolean,
    pa.types.is_string, pa.types.is_large_string, pa.types.is_null,
)  # fmt: skip


def _kind_of(kind: pa.DataType) -> pa.DataType:
    """Return the type without what a file adds to it. Raises ValueError for one that no analysis writes."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_kind_of(kind.value_type))
    if pa.types.is_dictionary(kind):  # each distinct text once
        return _kind_of(kind.value_type)
    if not any(is_one(kind) for is_one in KINDS):
        raise ValueError(f"a column is of a type that no analysis writes ({kind})")
    return kind


def _read(path: Path) -> Any:
    try:
        return read_json(json_text(path))
    except OSError as error:
        raise _refused(path, error.strerror or "it cannot be read") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _refused(path, "it is not JSON") from error


def _fits(kind: pl.DataType, value: Any) -> bool:
    if value is None:
        return True
    if isinstance(kind, pl.List):
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if isinstance(kind, pl.String):
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_too_large(value: Any) -> bool:
    return isinstance(value, int | float) and not abs(value) <= LARGEST


def _refused(path: Path, why: str) -> RequestError:
    run = next((folder.parent for folder in path.parents if folder.name == "analysis"), path.parent.parent)
    return RequestError(f"{path} cannot be read: {why}; `sojourn report {run}` makes it again")


Kinds = type | tuple[type, ...]
NUMBER = (int, float)
OF_BUDGET: Final[dict[str, Kinds]] = {
    "name": str, "unit": str, "components": list, "level": NUMBER, "interval_of": str, "not_covered": list,
    **dict.fromkeys(
        ("estimate", "combined", "effective_degrees", "coverage_factor", "expanded", "interval_half_width"),
        (*NUMBER, type(None)),
    ),
}  # fmt: skip
"""The members of a budget that are read, and of a component: each is required, with this type."""

OF_COMPONENT: Final[dict[str, Kinds]] = {
    **dict.fromkeys(("name", "state", "source"), str), "sensitivity": (*NUMBER, type(None)),
    **dict.fromkeys(("evaluation", "unit", "distribution"), (str, type(None))),
    **dict.fromkeys(
        ("standard_uncertainty", "degrees_of_freedom", "contribution", "share"), (*NUMBER, type(None))
    ),
}  # fmt: skip
_MAYBE: Final = (*NUMBER, type(None))
_FIGURES = ("estimate", "ci_low", "ci_high", "expected")
OF_HYPOTHESIS: Final[tuple[dict[str, Kinds], dict[str, Any]]] = (
    {
        "hypothesis": str, "outcome": str, "sentence": (str, type(None)), "unit": (str, type(None)),
        **dict.fromkeys(_FIGURES, _MAYBE),
    },
    dict.fromkeys((*_FIGURES, "sentence", "unit")),
)  # fmt: skip
"""The members of a hypothesis in the verdict that are read, and defaults of missing ones."""

_VALUES = ("configured", "measured", "ci_low", "ci_high", "limit", "p")
OF_CHECK: Final[tuple[dict[str, Kinds], dict[str, Any]]] = (
    {
        "check": str, "of": str, "verdict": str, "unit": str, "what": (str, type(None)), "pipe": (str, type(None)),
        "cell": (int, type(None)), "n": (int, type(None)), **dict.fromkeys(_VALUES, _MAYBE),
    },
    {},
)  # fmt: skip
"""The same for a check."""

ANSWERS = ("pass", "fail", "inconclusive")
STATES = ("counted", "contained", "cancels", "outside", "unknown")


def unlike(table: Mapping[str, Any], kinds: Mapping[str, Kinds]) -> str | None:
    """Return which member of a table is missing or of a wrong type; None if all are correct."""
    for name, kind in kinds.items():
        value = table.get(name)
        if name not in table or not isinstance(value, kind) or isinstance(value, bool):
            return f"{name} is of another type"
        if _is_too_large(value):
            return f"{name} is {TOO_LARGE}"
    words = table.get("not_covered", ())
    if not all(isinstance(word, str) for word in words):
        return "not_covered is of another type"
    if "check" in kinds and table["verdict"] not in ANSWERS:
        return "verdict is none of those"
    return "state is none of those" if "state" in kinds and table["state"] not in STATES else None
