"""One run in the history: its study, bed, boot and kernel, and its leading figures.

Reads plan, bed, log, verdict and results of a run folder, and nothing else of the machine.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.analysis.comparison import FACTORS
from sojourn.analysis.leading import leading_of
from sojourn.records.bed import read_bed
from sojourn.records.decode import text_of
from sojourn.records.earlier import read_toml
from sojourn.records.log import read_log
from sojourn.records.results import read_results, read_verdict

if TYPE_CHECKING:
    from sojourn.records import RunFolder

OWN = ("quantity", "statistic", "device", "reference")
"""Factors with columns of their own; the others are in `factors`."""

MOST = 2**62
"""No time of ours is farther from 1970, in ns."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A leading figure of a run: its factors, its value and its interval."""

    quantity: str
    statistic: str
    device: str
    reference: str | None
    factors: str
    """The other factors as JSON, sorted by name; only those that the figure has."""
    estimate: float
    ci_low: float | None
    ci_high: float | None
    level: float | None
    unit: str
    n: int | None
    sessions: int | None
    headline: bool = False
    """Whether it is the measurand of the study."""

    @property
    def of(self) -> tuple[str, str, str, str | None, str]:
        """The identity of a figure in different runs."""
        return self.quantity, self.statistic, self.device, self.reference, self.factors

    @property
    def row(self) -> dict[str, Any]:
        """All factors by name, as in a row of results, and the unit."""
        others: dict[str, Any] = json.loads(self.factors)
        own = {name: getattr(self, name) for name in OWN}
        return dict.fromkeys(FACTORS) | others | own | {"unit": self.unit}


@dataclass(frozen=True, slots=True)
class Entry:
    """A run. `bed` is the hash of the stable facts of machine and bed; `boot` is None if there were several."""

    study: str
    run: str
    began_ns: int
    """The start of the run, in ns since 1970, UTC."""
    verdict: str
    bed: str
    boot: str | None
    kernel: str
    version: str
    simulated: bool
    figures: tuple[Figure, ...] = ()


def entry_of(folder: RunFolder) -> Entry:
    """Return the entry of the analysed run in this folder."""
    verdict, rows = read_verdict(folder.verdict), read_results(folder.results)
    bed = bed_of(folder)
    return Entry(
        study=study_of(folder),
        run=str(verdict.get("run", "")),
        began_ns=began_ns(folder, whole(at(bed, "stable.machine.clocks.tai_minus_utc_s"))),
        verdict=str(verdict["verdict"]),
        bed=str(bed.get("hash", "")),
        boot=boot_of(bed),
        kernel=str(at(bed, "stable.machine.kernel.release") or ""),
        version=str(at(bed, "stable.sojourn.version") or ""),
        simulated=at(bed, "stable.bed.spec.backend") == "sim",
        figures=tuple(
            figure_of(row, headline=is_headline(row, verdict.get("pairs", {}))) for row in rows if is_kept(row)
        ),
    )


def bed_of(folder: RunFolder) -> dict[str, Any]:
    """Return the content of bed.json; empty if there is none."""
    return read_bed(folder.bed)


def study_of(folder: RunFolder) -> str:
    """Return the name of the study in the plan."""
    try:
        plan = read_toml(text_of(folder.plan))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return ""
    return str(at(plan, "study.name") or "")


def at(facts: Any, path: str) -> Any:
    """Return a fact of bed.json by its dotted name; None if it is missing."""
    for name in path.split("."):
        facts = facts.get(name) if isinstance(facts, dict) else None
    return facts


def began_ns(folder: RunFolder, tai_minus_utc_s: int) -> int:
    """Return the first start of the run, from the log's TAI and the kernel's offset of TAI to UTC."""
    first = next((whole(event["tai_ns"]) for event in read_log(folder.log) if "tai_ns" in event), 0)
    return first - tai_minus_utc_s * 1_000_000_000


def whole(value: Any) -> int:
    """Return a whole number that SQLite can store, also when converted from s to ns; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST else 0


def boot_of(bed: dict[str, Any]) -> str | None:
    """Return the boot of all parts of a run; None if there were several, or it was not recorded."""
    parts = bed.get("parts") or [{"before": bed.get("moment")}]
    boots = [at(part, "before.boot_id") for part in parts] if isinstance(parts, list) else []
    is_one = len(boots) > 0 and all(boot == boots[0] for boot in boots)
    return boots[0] if is_one and isinstance(boots[0], str) else None


def is_kept(row: dict[str, Any]) -> bool:
    """Return whether a row is leading, has a value, and can recur: a load found by a search is this run's only."""
    was_found = row.get("rate_pps") is not None and row.get("rate_share") is not None
    return leading_of(row) is not None and row["estimate"] is not None and not was_found


def is_headline(row: dict[str, Any], headline: dict[str, Any]) -> bool:
    """Return whether a row is the study's measurand in the verdict."""
    names = ("device", "reference", "cell", "estimate")
    return row["quantity"] == "device_latency" and all(row.get(name) == headline.get(name) for name in names)


def figure_of(row: dict[str, Any], *, headline: bool) -> Figure:
    """Return a row of results in the form of the history."""
    others = {name: row[name] for name in FACTORS if name not in OWN and row.get(name) is not None}
    return Figure(
        quantity=row["quantity"],
        statistic=row["statistic"],
        device=row.get("device") or "",
        reference=row.get("reference"),
        factors=json.dumps(others, sort_keys=True),
        estimate=row["estimate"],
        ci_low=row.get("ci_low"),
        ci_high=row.get("ci_high"),
        level=row.get("level"),
        unit=row.get("unit") or "",
        n=row.get("n"),
        sessions=row.get("sessions"),
        headline=headline,
    )
