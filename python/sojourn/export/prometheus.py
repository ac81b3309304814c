"""Export the figures of a run for Prometheus: text exposition format 0.0.4, names and base units by its conventions.

Each quantity is a gauge, `sojourn_<quantity>_<unit>`, in base units (seconds, bytes, ratios); its labels give the path,
the statistic, and the end of the interval. Reads results.json, verdict.json and the log, and computes nothing. A run in
progress is reported as such, with the results of its trials so far (`running`). A run's name is that of its folder,
even if the folder has been renamed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sojourn.errors import RequestError
from sojourn.export.running import FINISHED, families, so_far_of, standing_of
from sojourn.records.results import read_results, read_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sojourn.export.running import Standing
    from sojourn.records import RunFolder
    from sojourn.records.so_far import SoFar

UNITS = {
    "ns": ("seconds", 1e-9),
    "ns/byte": ("seconds_per_byte", 1e-9),
    "ns^2": ("square_seconds", 1e-18),
    "1": ("ratio", 1.0),
    "ratio": ("ratio", 1.0),
    "s/s": ("ratio", 1.0),
    "1/s": ("per_second", 1.0),
    "1/min": ("per_second", 1 / 60),
    "1/Mbit/s": ("seconds_per_byte", 8e-6),
    "packets": ("packets", 1.0),
    "bit/s": ("bytes_per_second", 0.125),
}
"""The base unit of a unit of results, as names of metrics end, and the factor."""

SUFFIXES = re.compile(r"_(ns|bps|pps|ratio)$")
"""Units at the end of a quantity's name: the metric's unit replaces them."""

NO_LETTER = re.compile(r"[^a-zA-Z0-9_]+")
"""What no name of a metric has."""

ENDS = {"estimate": "estimate", "low": "ci_low", "high": "ci_high"}
LABELS = (
    "device", "reference", "statistic", "cell", "probe", "engine", "kind", "frame_bytes", "interval_ns", "rate_pps",
    "load", "load_via", "pipe", "against", "port", "node", "path", "flows", "where", "packets_per_log", "direction",
    "congestion", "round_trips", "background", "scenario", "dscp",
)  # fmt: skip
"""Columns of results that become labels if they have a value."""


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(folder: RunFolder, so_far: SoFar | None = None, *, is_served: bool = False) -> str:
    """Return the text of one run: figures with intervals if it has ended, else the results so far.

    `so_far` is the state from the log, if already read. A finished run without an analysis is an error, unless it is
    served: then it has no figures until there is an analysis.
    """
    so_far = so_far_of(folder.log) if so_far is None else so_far
    has_ended = so_far.end == FINISHED
    rows, verdict = _analysed(folder) if has_ended or _is_of_now(folder) else ([], {})
    if has_ended and not verdict and not is_served:
        raise RequestError(f"{folder.path} has no analysis: sojourn report {folder.path} makes it")
    run = folder.path.resolve().name
    one = standing_of(run, so_far, folder.log, str(verdict.get("verdict", "")))
    return text_of([one], _findings(verdict, run), _figures(rows, run))


def text_of(runs: Iterable[Standing], *more: Iterable[str]) -> str:
    """Return the state of the runs, followed by further text."""
    standing = ("".join(_family(name, words, samples)) for name, (words, samples) in families(runs).items())
    return "".join((*standing, *(one for several in more for one in several)))


def _is_of_now(folder: RunFolder) -> bool:
    """Return whether a run in progress has an analysis that is newer than its log."""
    try:
        return folder.verdict.stat().st_mtime_ns >= folder.log.stat().st_mtime_ns
    except OSError:
        return False


def _analysed(folder: RunFolder) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return results and verdict of one analysis; empty without one, or if another was written meanwhile.

    An analysis first removes the old files, and writes its verdict after its results: results read between two equal
    checks of the verdict belong to that verdict.
    """
    try:
        before = folder.verdict.stat()
        rows, verdict = read_results(folder.results), read_verdict(folder.verdict)
        after = folder.verdict.stat()
    except (FileNotFoundError, NotADirectoryError):
        return [], {}
    except RequestError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return [], {}
        raise
    is_same = (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    return (rows, verdict) if is_same else ([], {})


def _findings(verdict: Mapping[str, Any], run: str) -> Iterator[str]:
    if not verdict:
        return
    grades = [str(one.get("severity")) for one in verdict.get("findings", [])]
    counts = [({"run": run, "severity": one}, float(grades.count(one))) for one in ("invalid", "doubtful", "note")]
    yield from _family("sojourn_run_findings", "Findings of the run, by severity.", counts)


def _figures(rows: Iterable[Mapping[str, Any]], run: str) -> Iterator[str]:
    families: dict[str, tuple[str, list[tuple[dict[str, Any], float]]]] = {}
    for row in rows:
        told = row.get("unit") or ""
        unit, factor = UNITS.get(told, (NO_LETTER.sub("_", told), 1.0))
        quantity = SUFFIXES.sub("", NO_LETTER.sub("_", row["quantity"]))
        words = f"{quantity.replace('_', ' ')} in {unit.replace('_', ' ')}; ends of its interval by the label bound."
        _, samples = families.setdefault(f"sojourn_{quantity}_{unit}", (words[:1].upper() + words[1:], []))
        labels = {"run": run} | {name: row[name] for name in LABELS if row.get(name) is not None}
        for bound, column in ENDS.items():
            if row.get(column) is not None:
                samples.append((labels | {"bound": bound}, float(row[column]) * factor))
    for name, (words, samples) in sorted(families.items()):
        yield from _family(name, words, samples)


def _family(name: str, words: str, samples: Iterable[tuple[Mapping[str, Any], float]]) -> Iterator[str]:
    yield f"# HELP {name} {words}\n# TYPE {name} gauge\n"
    for labels, value in samples:
        told = ",".join(f'{label}="{_escaped(str(one))}"' for label, one in labels.items())
        yield f"{name}{{{told}}} {value!r}\n"


def _escaped(value: str) -> str:
    """Return an escaped label value; bytes that are not UTF-8, as in a folder's name, become question marks."""
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
