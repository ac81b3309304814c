"""The content of a run folder for the report: results, verdict, plan, bed, log and samples, read once.

Missing parts stay missing: a run without samples still makes a page. It does not read records/ and computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.errors import RequestError
from sojourn.methods import DEFAULT
from sojourn.records.asked import require_plan
from sojourn.records.bed import read_bed
from sojourn.records.decode import text_of
from sojourn.records.earlier import read_toml
from sojourn.records.log import read_log
from sojourn.records.results import COLUMNS, read_parquet, read_results, read_verdict
from sojourn.report.numbers import count, duration, percent
from sojourn.report.palette import ordered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FACTORS = ["probe", "schedule", "payload_bytes", "response_payload_bytes", "interval_ns"]
STREAM_FACTORS = [
    "kind", "engine", "to", "frame_bytes", "senders", "receivers", "load_via", "load", "pipe", "schedule",
    "rate_share", "interval_ns",
]  # fmt: skip
"""The factors that cells of streams may vary in, in the order in which their names list them."""
CELL_FACTORS = [
    "probe", "engine", "kind", "to", "icmp_bytes", "payload_bytes", "response_payload_bytes", "frame_bytes", "senders",
    "receivers", "load", "load_via", "pipe", "schedule", "rate_share", "rate_pps", "interval_ns",
]  # fmt: skip
"""The factors of a cell that a table's CSV file has, one column each."""
SEVERITIES = {"invalid": 0, "doubtful": 1, "note": 2}


@dataclass(frozen=True)
class Cell:
    """One combination of probe, size, interval and schedule."""

    number: int
    label: str
    short: str
    size_bytes: int | None
    interval_ns: int | None
    factors: dict[str, Any] = field(default_factory=dict)
    varied: tuple[str, ...] = ()
    """The factors of a stream that differ between cells."""

    def without(self, names: Iterable[str]) -> str:
        """Return the cell's name without these factors; empty if nothing is left."""
        return _stream_label(self.factors, [name for name in self.varied if name not in names])


@dataclass(frozen=True)
class Run:
    """The content of a run folder."""

    folder: Path
    results: pl.DataFrame
    verdict: dict[str, Any]
    plan: dict[str, Any]
    plan_text: str
    bed: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read a run folder; raises RequestError where there is nothing to report on."""
        for name in ("results.json", "verdict.json"):
            _require(folder / "analysis" / name)
        rows = read_results(folder / "analysis" / "results.json")
        verdict = read_verdict(folder / "analysis" / "verdict.json")
        try:
            plan_text = _text(folder / "plan.toml")
            plan = require_plan(read_toml(plan_text), folder / "plan.toml")
        except ValueError as error:
            raise RequestError(f"{folder}: plan.toml is damaged ({error})") from error
        return cls(folder, _frame(rows), verdict, plan, plan_text, read_bed(folder / "bed.json"))

    def rows(self, quantity: str, statistic: str | None = None, **factors: str | None) -> pl.DataFrame:
        """Return the result rows of one quantity with this statistic and these factors (None means null)."""
        found = self._by_quantity.get(quantity)
        if found is None:
            return self._nothing
        asked = factors if statistic is None else {"statistic": statistic, **factors}
        conditions = [
            pl.col(name).is_null() if wanted is None else pl.col(name) == wanted for name, wanted in asked.items()
        ]
        return found.filter(conditions) if conditions else found

    def row(
        self, quantity: str, statistic: str, cell: int | None, device: str, **factors: str | int | None
    ) -> dict[str, Any] | None:
        """Return the first result row of this quantity, statistic, cell, device and factors; None if there is none."""
        at = self._by_place.get((quantity, statistic, cell, device), ())
        return next((row for row in at if all(row[name] == wanted for name, wanted in factors.items())), None)

    @cached_property
    def _by_quantity(self) -> dict[str, pl.DataFrame]:
        apart = self.results.partition_by("quantity", maintain_order=True, as_dict=True)
        return {str(quantity): rows for (quantity,), rows in apart.items() if quantity is not None}

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        return self.results.clear()

    @cached_property
    def _by_place(self) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
        """The result rows by quantity, statistic, cell and device; tables look up hundreds of single rows."""
        at: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.results.iter_rows(named=True):
            at.setdefault(tuple(row[key] for key in ("quantity", "statistic", "cell", "device")), []).append(row)
        return at

    @cached_property
    def factors(self) -> dict[str, dict[int, set[Any]]]:
        """The known values of each cell, factor by factor; a factor that no cell has is left out."""
        of_cells = self.results.drop_nulls("cell")
        known = of_cells.group_by("cell").agg(pl.col(CELL_FACTORS).drop_nulls().unique())
        return {
            factor: {cell: set(values) for cell, values in known.select("cell", factor).iter_rows()}
            for factor in CELL_FACTORS
            if of_cells[factor].drop_nulls().len()
        }

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The result rows in the order of the results, with every key, those of single methods included."""
        return read_results(self.folder / "analysis" / "results.json")

    def samples(self, name: str) -> pl.DataFrame | None:
        """Return one table of analysis/samples; None if the analysis wrote none."""
        path = self.folder / "analysis" / "samples" / f"{name}.parquet"
        return read_parquet(path) if path.is_file() else None

    @property
    def sessions(self) -> int:
        """The number of beds that the plan requests."""
        return int(self.plan.get("bed", {}).get("sessions", 1))

    @cached_property
    def devices(self) -> list[str]:
        """Every path that has results, in the order of the legends."""
        return ordered(self.results["device"].drop_nulls().to_list())

    @cached_property
    def size_column(self) -> str:
        """The kind of size that the plan gives: ICMP, payload or frame bytes."""
        section = self.plan.get("stream" if self.by_stream else "probe", {})
        asked = [key for key in ("icmp_bytes", "payload_bytes", "frame_bytes") if key in section]
        usable = [key for key in asked if self.results[key].drop_nulls().len()]
        return usable[0] if usable else "payload_bytes"

    @cached_property
    def cells(self) -> list[Cell]:
        """The measured cells, in the order probe, schedule, size, interval; streams in the order of their factors."""
        factors = STREAM_FACTORS if self.by_stream else FACTORS
        first = self.results.drop_nulls("cell").unique("cell", keep="first", maintain_order=True)
        # Pipes are in the order of the plan: their text does not sort ("loss 15%" before "loss 2%").
        asked = pl.col("cell").min().over("pipe")
        unique = first.sort([asked if one == "pipe" else pl.col(one) for one in factors], nulls_last=True)
        varied = [column for column in factors if unique[column].n_unique() > 1]
        make = self._stream_cell if self.by_stream else self._cell
        return [make(row, varied) for row in unique.iter_rows(named=True)]

    def cell_of(self, row: dict[str, Any]) -> Cell | None:
        """The cell of a result row; None for pooled rows."""
        return self._cell_by_number.get(row["cell"])

    def labels(self, *without: str) -> dict[int, str]:
        """Return every cell's name without these factors, for a figure that has them on its axes."""
        return {cell.number: cell.without(without) if without else cell.short for cell in self.cells}

    @property
    def method(self) -> str:
        """The method of the study: "pairs", "one-way", ..."""
        return str(self.plan.get("study", {}).get("method") or DEFAULT)

    @cached_property
    def by_tool(self) -> bool:
        """Whether senders were measured: then a row's probe is the tool, and there are no cells."""
        return bool((self.results["quantity"] == "departure_rate").any())

    @property
    def by_stream(self) -> bool:
        """Whether streams were sent: then a cell's factors are a stream's."""
        return bool(self.results["engine"].drop_nulls().len())

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """The events of the run, in order."""
        return read_log(self.folder / "log.jsonl")

    def published(self) -> list[str]:
        """The published tables that the plan compares with the results."""
        return list(self.plan.get("study", {}).get("published", []))

    def findings(self, *severities: str) -> list[dict[str, Any]]:
        """Return the findings of these severities (of all, if none is named), the most severe first."""
        found = [one for one in self.verdict.get("findings", []) if not severities or one["severity"] in severities]
        return sorted(found, key=lambda one: SEVERITIES.get(one["severity"], 3))

    @property
    def title(self) -> str:
        """The study's title."""
        study = self.plan.get("study", {})
        return str(study.get("title") or study.get("name") or self.verdict.get("study") or "Run")

    @property
    def name(self) -> str:
        """The run's name: that of its folder."""
        return str(self.verdict.get("run") or self.folder.resolve().name)

    @cached_property
    def _cell_by_number(self) -> dict[int, Cell]:
        return {cell.number: cell for cell in self.cells}

    def _cell(self, row: dict[str, Any], varied: list[str]) -> Cell:
        size, answer = self._size(row), row["response_payload_bytes"]
        symmetric = answer is None or answer == row["payload_bytes"]
        pace = every(row["schedule"], row["interval_ns"])
        parts = [(str(row["probe"]), "probe" in varied), (f"{size if symmetric else answer} B", True)]
        parts.append((pace, bool({"interval_ns", "schedule"} & set(varied))))
        label = ", ".join(text for text, _ in parts)
        short = ", ".join(text for text, shown in parts if shown)
        return Cell(int(row["cell"]), label, short, size, row["interval_ns"])

    def _stream_cell(self, row: dict[str, Any], varied: list[str]) -> Cell:
        factors = {name: row[name] for name in (*STREAM_FACTORS, "rate_pps")}
        by_rate = ["rate_pps"] if "rate" in self.plan.get("stream", {}) else []
        label = _stream_label(factors, [*STREAM_FACTORS, *by_rate])
        short = _stream_label(factors, ["frame_bytes", *varied, *by_rate])
        return Cell(int(row["cell"]), label, short, self._size(row), row["interval_ns"], factors, tuple(varied))

    def _size(self, row: dict[str, Any]) -> int | None:
        asked = row.get(self.size_column)
        size = asked if asked is not None else row["payload_bytes"]
        return None if size is None else int(size)


def every(schedule: str | None, interval_ns: int | None) -> str:
    """Return a schedule in words: 'every 1 ms', 'Poisson 1 ms', 'closed loop'."""
    if schedule == "closed-loop" or interval_ns is None:
        return "closed loop"
    if interval_ns == 0:
        return "flood"
    return f"Poisson {duration(interval_ns)}" if schedule == "poisson" else f"every {duration(interval_ns)}"


def _stream_label(factors: dict[str, Any], shown: Iterable[str]) -> str:
    """Return the name of a cell of streams from these factors: '64 B, Poisson 10 µs, 3 senders'."""
    said = set(shown)
    parts = [
        (factors["kind"], "kind" in said),
        (factors["engine"], "engine" in said),
        (f"to {factors['to']}", "to" in said),
        (f"{factors['frame_bytes']} B", "frame_bytes" in said),
        (_senders(factors["senders"]), "senders" in said),
        (_listeners(factors["receivers"]), "receivers" in said),
        (_load(factors["load"], factors["load_via"], said), bool({"load", "load_via"} & said)),
        (factors["pipe"] or "no pipe", "pipe" in said),
        (_pace(factors, said), bool({"schedule", "rate_share", "interval_ns"} & said)),
    ]
    return ", ".join(str(text) for text, wanted in parts if wanted and text)


def _senders(count: int | None) -> str:
    return f"{count or 1} sender{'s' if (count or 1) > 1 else ''}"


def _listeners(count: int | None) -> str:
    return f"{count} other{'s' if count > 1 else ''} listening" if count else "nobody else listening"


def _load(load: float | None, via: str | None, said: set[str]) -> str:
    if "load" not in said:
        return f"load {via}" if via else "no load"
    where = f" {via}" if via and "load_via" in said else ""
    return f"load {percent(load)}{where}" if load else "no load"


def _pace(factors: dict[str, Any], said: set[str]) -> str:
    """Return the pace of a stream in words; only the kind of schedule if its interval is shown elsewhere."""
    schedule, share = factors["schedule"], factors["rate_share"]
    if schedule == "flood":
        return "flood"
    if not {"rate_share", "interval_ns"} & said:
        return "Poisson" if schedule == "poisson" else str(schedule or "")
    if share is not None:
        return f"{percent(share)} of the throughput" + ("" if schedule == "regular" else f", {schedule}")
    if "rate_pps" in said and factors["rate_pps"]:
        return f"{'Poisson' if schedule == 'poisson' else schedule} {count(factors['rate_pps'])}/s"
    return every(schedule, factors["interval_ns"])


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
    return pl.DataFrame(columns, schema=COLUMNS, strict=False)


def _require(path: Path) -> None:
    if not path.is_file() or not path.stat().st_size:
        raise RequestError(f"{path} is missing: this is not an analysed run folder; try `sojourn report` on the run")


def _text(path: Path) -> str:
    return text_of(path) if path.is_file() else ""
