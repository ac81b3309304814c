"""The page: one HTML file that contains its style, its figures and the script that draws them, and loads nothing.

Its content security policy allows two scripts, by their hashes, and no connection. It arranges tables, figures and the
drawing; it estimates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from sojourn.report import budgets, bundle
from sojourn.report.contents import parts_of
from sojourn.report.drawing import draw
from sojourn.report.figures import specifications
from sojourn.report.glossary import anchor, glossary, hypothesis_name, link
from sojourn.report.palette import Palette, inks
from sojourn.report.shell import asset, legend_mark, policy, script_json, style, templates
from sojourn.report.suites import deviations_told
from sojourn.version import __version__

if TYPE_CHECKING:
    import jinja2

    from sojourn.report.figure import Figure
    from sojourn.report.published import Published
    from sojourn.report.run import Run
    from sojourn.report.table import Table

TAI_LESS_UTC_S = 37
"""Constant since 2017; one more leap second would change the day of a run at midnight only."""

APART = ("findings", "hypotheses")
"""Tables that are written as files only: the page shows them as lists."""

SHOWN_APART = ("drawing", "stable", "moment", "objects", "bound")
"""The keys of bed.json that the page shows elsewhere or splits up."""

ONE_MINUTE = (
    "An interval holds for this machine at this time: it says how much the figure would change if the run were "
    "repeated at once (on other beds, where the interval is over beds). It does not cover how the figure changes on "
    "another day, after a reboot or on another machine: for that, measure several runs and compare them."
)


def page(
    run: Run,
    tables: list[Table],
    published: Published,
    figures: list[Figure],
    *,
    vector: bool,
    others: Sequence[Table] = (),
) -> str:
    """The whole page."""
    scripts = {"bundle": bundle.script(), "script": asset("page.js")}
    parts = parts_of(run)
    uncertain = [one for one in tables if one.name.startswith(f"{budgets.NAME}_")]
    further = [one for one in tables if one not in uncertain and one.name not in (*APART, *parts.results)]
    return _template(run.devices).render(
        run=run,
        policy=policy(scripts.values()),
        style=Markup(style()),
        facts=_facts(run),
        grave=run.findings("invalid", "doubtful"),
        deviations=deviations_told(run),
        keys=parts.keys(run),
        sections=_sections(
            uncertainty=bool(uncertain),
            figures=bool(figures),
            tables=bool(further),
            published=bool(published.tables or published.unmatched),
            others=bool(others),
        ),
        question=run.plan.get("study", {}).get("question", ""),
        drawing=Markup(draw(run.bed, run.plan, Palette(for_page=True, devices=tuple(run.devices)))),
        method=[*parts.words(run), ONE_MINUTE],
        tables=tables,
        results=parts.results,
        budgets=uncertain,
        explained=budgets.EXPLAINED,
        further=further,
        published=published.tables,
        unmatched=published.unmatched,
        others=others,
        figures=figures,
        vector=vector,
        findings=run.findings(),
        glossary=glossary(),
        files=_files(run),
        environment=environment(run.bed),
        objects=[(path, one["notes"], list(one["shown"].items())) for path, one in run.bed.get("objects", {}).items()],
        citation=_citation(run),
        bibtex=_bibtex(run),
        version=__version__,
        specs=[(name, Markup(script_json(spec))) for name, spec in specifications(figures)],
        **{name: Markup(text) for name, text in scripts.items()},
    )


def environment(bed: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return bed.json as groups of names and values, without what the drawing shows."""
    known = {**bed, **bed.get("stable", {}), "at the moment of the run": bed.get("moment", {})}
    known |= {f"host {name}": facts for name, facts in known.pop("hosts", {}).items()}
    shown = {name: value for name, value in known.items() if name not in SHOWN_APART and value}
    loose = {name: value for name, value in shown.items() if not isinstance(value, dict | list)}
    groups = {name: value for name, value in shown.items() if name not in loose} | (
        {"bed.json": loose} if loose else {}
    )
    return [(_spaced(name), list(_flat(value))) for name, value in groups.items()]


def _template(devices: list[str]) -> jinja2.Template:
    surroundings = templates()
    surroundings.filters["bound"] = bound
    surroundings.filters["hypothesis"] = hypothesis_name
    surroundings.filters["link"] = link
    surroundings.filters["anchor"] = anchor
    surroundings.filters["sentence"] = _sentence
    surroundings.globals["slug"] = lambda device: inks([device], devices)[device].slug
    surroundings.globals["mark"] = legend_mark
    return surroundings.get_template("page.html")


def bound(words: str) -> str:
    """Return the words with a no-break space between each number and its unit."""
    return re.sub(r"(\d) (%|µs|ns|ms|s|B|MHz)(?!\w)", "\\1\u00a0\\2", words)


def _sentence(words: str) -> str:
    """Return the words as a sentence, with a capital and a full stop."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")


def _facts(run: Run) -> str:
    study = run.plan.get("study", {})
    parts = [
        f"study {study['name']}" if study.get("name") else "",
        f"run {run.name}",
        _day(run),
        *machine_of(run),
        BEDS.get(str(run.plan.get("bed", {}).get("backend")), ""),
        str(study.get("paper") or ""),
    ]
    return " · ".join(filter(None, parts))


BEDS = {
    "netns": "virtual links within one machine: no port, no cable",
    "sim": "simulated lines: no frame was sent",
    "ssh": "ports of real hosts",
}
"""What the measurement is between, by the bed's backend."""


def machine_of(run: Run) -> list[str]:
    """Return kernel and processors of the measurement, as far as recorded; nothing for simulated links."""
    machine = run.bed.get("stable", {}).get("machine", {})
    kernel, cpu = machine.get("kernel", {}).get("release"), machine.get("cpu", {})
    said = [
        f"Linux {kernel}" if kernel else "",
        f"{cpu['model']}, {cpu.get('online', '?')} CPUs" if cpu.get("model") else "",
    ]
    return [one for one in said if one]


def _day(run: Run) -> str:
    """Return the day on which the run began (UTC); empty if its log does not have it."""
    begun = next((event for event in run.log if event.get("event") == "started"), {})
    tai = int(begun.get("tai_ns") or 0)
    return datetime.fromtimestamp(tai / 1e9 - TAI_LESS_UTC_S, UTC).date().isoformat() if tai else ""


def _sojourn(run: Run) -> str:
    """Return the version and commit that measured."""
    measured = run.bed.get("stable", {}).get("sojourn", {})
    commit = str(measured.get("commit") or "")[:12]
    return f"Sojourn {measured.get('version') or __version__}" + (f", commit {commit}" if commit else "")


def _sections(
    *, uncertainty: bool, figures: bool, tables: bool, published: bool, others: bool
) -> list[tuple[str, str]]:
    return [
        ("how", "How it was measured"),
        ("results", "Results"),
        *([("uncertainty", "Uncertainty")] if uncertainty else []),
        *([("figures", "Figures")] if figures else []),
        *([("tables", "Tables")] if tables else []),
        *([("published", "Comparison with the papers")] if published else []),
        *([("beside", "Comparison with other tools")] if others else []),
        ("findings", "Findings"),
        ("terms", "Terms"),
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
    # Sysctls and paths keep their spelling; other names become words.
    return name if any(mark in name for mark in "./*:") else name.replace("_", " ")


def measured_on(run: Run) -> str:
    """Return the citation of a run: its title, day, version with commit, and name."""
    return f"“{run.title}”, measured on {_day(run) or 'an unknown day'} with {_sojourn(run)}, run {run.name}"


def _citation(run: Run) -> str:
    return (
        f"{measured_on(run)}, verdict {run.verdict['verdict']}."
        " Please keep the run folder with the citation: everything on this page can be made again from it."
    )


def _bibtex(run: Run) -> str:
    year, month = _day(run)[:4], _day(run)[5:7]
    lines = [
        "@misc{sojourn-run,",
        f"  title = {{{run.title}}},",
        f"  howpublished = {{{_sojourn(run)}, run {run.name}}},",
        *([f"  year = {{{year}}},", f"  month = {{{int(month)}}},"] if year else []),
        f"  note = {{Verdict: {run.verdict['verdict']}. {run.verdict['sentence']}}},",
        "}",
    ]
    return "\n".join(lines)
