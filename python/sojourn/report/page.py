"""The page: one HTML file that carries its style, its figures and the script that draws them, and loads nothing.

Its content policy allows two scripts, by their hashes, and no connection. It arranges what tables, figures and drawing
made; it estimates nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
import polars as pl
from markupsafe import Markup

import sojourn
from sojourn.report import bundle
from sojourn.report.drawing import draw
from sojourn.report.figures import specifications
from sojourn.report.numbers import Shown, count, fixed, percent
from sojourn.report.palette import INKS, OTHERS, Palette, css_variables, ink
from sojourn.report.tables import fitted_lines, in_order, shown_of

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

DARK_REST = (
    "--wash: #1b2026; --accent: #7db8f5; --good: #5fcf95; --good-wash: #13251b; --warn: #e6b450; --warn-wash: #292110; "
    "--bad: #f08b84; --bad-wash: #2d1716;"
)
CLOCKS = {
    "TAI": "CLOCK_TAI of the host, in nanoseconds; steps are sought against CLOCK_MONOTONIC_RAW",
    "simulated": "the simulation's own clock, in nanoseconds",
}
SOURCES = {
    "hardware": "the network card",
    "kernel": "the kernel",
    "user": "the program itself",
    "simulated": "the simulation",
}


@dataclass(frozen=True)
class Key:
    """A number that stands large under the verdict."""

    what: str
    value: str
    unit: str
    lines: tuple[str, ...]
    device: str | None = None


def page(run: Run, tables: list[Table], published: list[Table], unmatched: list[str], figures: list[Figure]) -> str:
    """The whole page."""
    scripts = {"bundle": bundle.script(), "script": _asset("page.js")}
    return _template().render(
        run=run,
        policy=_policy(scripts.values()),
        style=Markup(_style()),
        facts=_facts(run),
        grave=run.findings("invalid", "doubtful"),
        keys=_keys(run),
        sections=_sections(bool(figures), bool(published or unmatched)),
        question=run.plan.get("study", {}).get("question", ""),
        drawing=Markup(draw(run.bed, run.plan, Palette(for_page=True))),
        method=method(run),
        tables=tables,
        results=("intervals", "departures") if run.by_tool else ("device_latency",),
        published=published,
        unmatched=unmatched,
        figures=figures,
        findings=run.findings(),
        files=_files(run),
        environment=environment(run.bed),
        citation=_citation(run),
        bibtex=_bibtex(run),
        version=sojourn.__version__,
        specs=[(name, Markup(_script_json(spec))) for name, spec in specifications(figures)],
        **{name: Markup(text) for name, text in scripts.items()},
    )


def method(run: Run) -> list[str]:
    """How it was measured: unit, clock, timestamps, intervals."""
    clocks = _distinct(run.results, "clock")
    stamped = run.results.filter(pl.col("quantity").is_in(["rtt", "departure_interval"]))
    sources = [name for name in SOURCES if any(name in one for one in _distinct(stamped, "source"))]
    clock = "; ".join(CLOCKS.get(name, name) for name in clocks) or "not recorded"
    stamps = " and ".join(SOURCES[name] for name in sources) or "a source that was not recorded"
    words = METHOD_OF_SENDERS if run.by_tool else METHOD_OF_PAIRS
    return [line.format(clock=clock, stamps=stamps) for line in words]


METHOD_OF_PAIRS = (
    (
        "The unit is the pair, never the packet: with and without the device in short blocks next to each other, in "
        "random and then mirrored order, so that steady drift cancels; half the difference of the two mean round trips "
        "is the device's latency one way."
    ),
    "All times are of one clock: {clock}.",
    (
        "Departures and arrivals were stamped by {stamps}; round trips run from the actual departure, and are also "
        "given from the intended one where probes were scheduled."
    ),
    (
        "Estimates over pairs are Hodges and Lehmann's with the exact Wilcoxon interval, 95 % unless said otherwise; "
        "the A/A control, the direct link against itself, tells what the bed can resolve: nothing smaller is claimed."
    ),
)
METHOD_OF_SENDERS = (
    (
        "The unit is the trial: one sender, one size, one asked interval; only the start of its schedule is fitted, so "
        "a sender that is slow on average is not excused."
    ),
    "All times are of one clock: {clock}.",
    "Frames were stamped by {stamps}, in a capture at the far end that knows nothing of the senders.",
    "Intervals of means and quantiles are over trials, those of shares are Clopper and Pearson's; both are 95 %.",
)


def environment(bed: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """bed.json as groups of names and values; what the drawing already shows is left out."""
    known = {**bed, **bed.get("stable", {}), "at the moment of the run": bed.get("moment", {})}
    known |= {f"host {name}": facts for name, facts in known.pop("hosts", {}).items()}
    shown = {name: value for name, value in known.items() if name not in ("drawing", "stable", "moment") and value}
    loose = {name: value for name, value in shown.items() if not isinstance(value, dict | list)}
    groups = {name: value for name, value in shown.items() if name not in loose} | (
        {"bed.json": loose} if loose else {}
    )
    return [(_spaced(name), list(_flat(value))) for name, value in groups.items()]


def _template() -> jinja2.Template:
    surroundings = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    surroundings.filters["bound"] = _bound
    surroundings.filters["sentence"] = _sentence
    surroundings.globals["slug"] = lambda device: ink(device).slug
    return surroundings.from_string(_asset("page.html"))


def _bound(words: str) -> str:
    """The words with each number tied to its unit, so that no line breaks between them."""
    return re.sub(r"(\d) (%|µs|ns|ms|s|B)(?!\w)", "\\1\u00a0\\2", words)


def _sentence(words: str) -> str:
    """The words as a sentence: a capital at its beginning, a full stop at its end."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")


def _style() -> str:
    swatches = " ".join(
        f".device-{one.slug} {{ --hue: var(--device-{one.slug}); }}" for one in [*INKS.values(), *OTHERS]
    )
    columns = " ".join(f".columns-{n} {{ --columns: {n}; }}" for n in (1, 2, 3))
    filled = {
        "@LIGHT@": css_variables(0),
        "@DARK@": css_variables(1),
        "@DARKREST@": DARK_REST,
        "@SWATCHES@": f"{swatches} {columns}",
    }
    style = _asset("style.css")
    for name, text in filled.items():
        style = style.replace(name, text)
    return style


def _asset(name: str) -> str:
    return resources.files("sojourn.report").joinpath("templates", name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Vega positions its marks through style attributes, and its tooltip brings a style element.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _script_json(spec: dict[str, Any]) -> str:
    return json.dumps(spec, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _facts(run: Run) -> str:
    study = run.plan.get("study", {})
    parts = [f"study {study['name']}" if study.get("name") else "", f"run {run.name}", str(study.get("paper") or "")]
    return " · ".join(filter(None, parts))


def _keys(run: Run) -> list[Key]:
    pooled = run.rows("device_latency", "pooled", reference="direct").filter(pl.col("device") != "a/a")
    keys = [_device_key(run, row) for row in in_order(pooled)]
    for row in run.rows("resolution").head(1).iter_rows(named=True):
        low, high = _control_interval(run)
        lines = (f"A/A control pooled: {low} to {high} µs",) if low and high else ()
        keys.append(Key("The bed can resolve", f"{row['estimate'] / 1e3:.2g}", "µs", lines, "a/a"))
    pairs = run.rows("device_latency", "mean")["n"].to_list()
    if pairs:
        most = max(pairs)
        cells = f"{len(run.cells)} cells" if len(run.cells) > 1 else "one cell"
        keys.append(Key("Pairs", count(sum(pairs)), "", (f"{cells}, up to {most} per cell and device",)))
    return keys


def _device_key(run: Run, row: dict[str, Any]) -> Key:
    """A device's latency as the verdict's sentence has it: a + b × size where b is not zero, else pooled."""
    lines = {
        one["reference"]: (one, slope)
        for one, slope in reversed(list(fitted_lines(run)))
        if one["device"] == row["device"] and _is_not_zero(slope)
    }
    head, slope = lines.get("direct", (row, None))
    shown = shown_of(head)
    level = percent(_round(head["level"]))
    said = ["too few pairs for an interval" if head["ci_low"] is None else f"{level} CI {shown.interval}"]
    if slope:
        per_byte = _brief(shown_of(slope)).replace("ns/byte", "ns")
        said += [f"per byte {per_byte}", f"mean over cells {_brief(shown_of(row))}"]
    wire = lines.get("wire", (None, None))[0] if slope else _pooled_over_wire(run, row["device"])
    if wire:
        said.append(f"over wire {_brief(shown_of(wire))}")
    return Key(f"{row['device']} adds, one way", shown.text, shown.unit, tuple(said), row["device"])


def _is_not_zero(row: dict[str, Any]) -> bool:
    return row["ci_low"] is not None and row["ci_high"] is not None and not row["ci_low"] <= 0 <= row["ci_high"]


def _pooled_over_wire(run: Run, device: str) -> dict[str, Any] | None:
    rows = run.rows("device_latency", "pooled", device=device, reference="wire")
    return next(rows.iter_rows(named=True), None)


def _brief(shown: Shown) -> str:
    return f"{shown.text} {shown.unit} ({shown.interval})"


def _control_interval(run: Run) -> tuple[str, str]:
    for row in run.rows("device_latency", "pooled", device="a/a").iter_rows(named=True):
        shown = shown_of(row)
        return fixed(shown.low, shown.decimals), fixed(shown.high, shown.decimals)
    return "", ""


def _round(level: float | None) -> float | None:
    return None if level is None else round(level, 3)


def _sections(figures: bool, published: bool) -> list[tuple[str, str]]:
    return [
        ("how", "How it was measured"),
        ("results", "Results"),
        *([("figures", "Figures")] if figures else []),
        ("tables", "Tables"),
        *([("published", "Beside the papers")] if published else []),
        ("findings", "Findings"),
        ("record", "The record"),
    ]


def _files(run: Run) -> list[tuple[str, str]]:
    wanted = ["plan.toml", "bed.json", "log.jsonl", "records/*", "analysis/*.*", "analysis/samples/*"]
    found = [path for pattern in wanted for path in sorted(run.folder.glob(pattern)) if path.is_file()]
    return [(str(path.relative_to(run.folder)), _bytes(path.stat().st_size)) for path in found]


def _bytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB" if size >= 1e3 else f"{size} B"


def _flat(value: Any, stem: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{stem} {_spaced(str(name))}".strip())
    elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        for i, inner in enumerate(value):
            yield from _flat(inner, f"{stem} {inner.get('name', i + 1)}".strip())
    else:
        yield stem, _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, "", [], {}):
        return "\u2013"
    return ", ".join(map(_plain, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _spaced(name: str) -> str:
    # A sysctl's or a path's own spelling stays; ours reads as words.
    return name if any(mark in name for mark in "./*:") else name.replace("_", " ")


def _distinct(rows: pl.DataFrame, column: str) -> list[str]:
    return sorted({str(one) for one in rows[column].drop_nulls() if one})


def _citation(run: Run) -> str:
    return (
        f"“{run.title}”, measured with Sojourn {sojourn.__version__}, run {run.name}, verdict {run.verdict['verdict']}."
        " Please keep the run folder with the citation: everything on this page can be made again from it."
    )


def _bibtex(run: Run) -> str:
    year = run.name[:4] if run.name[:4].isdigit() else ""
    lines = [
        "@misc{sojourn-run,",
        f"  title = {{{run.title}}},",
        f"  howpublished = {{Sojourn {sojourn.__version__}, run {run.name}}},",
        *([f"  year = {{{year}}},"] if year else []),
        f"  note = {{Verdict: {run.verdict['verdict']}. {run.verdict['sentence']}}},",
        "}",
    ]
    return "\n".join(lines)
