"""Lay out the proof page, and the README's lines of it, from what scripts/write_proof.py collected. Reads no file."""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Facts = dict[str, Any]
NOT_RUN = "not run"

SUITES = {
    "proof-cargo": "Rust: more seeds, more packets, gentler ramps, thousands of lines",
    "proof-properties": "Rust: 2,000 random cases for each property",
    "proof-examples": "Python: 1,000 random examples for each property and each reader of untrusted bytes",
    "proof-pytest": "coverage of intervals, simulated runs of known truth, matching on Apache Spark",
    "proof-fuzz": "readers of captures and frames, searched by coverage",
    "proof-published": "every published experiment",
    "proof-bare": "set-up and packages on bare systems",
    "proof-kills": "processes that are killed at random moments",
    "proof-hosts": "studies between hosts that only SSH reaches, and faults of hosts, links and disks while they run",
    "proof-net": "real frames that are counted: every study, attacks, notebooks",
    "proof-alone": "real frames that are timed, one test at a time: attacks, load for minutes",
}
"""What each suite of scripts/proof.sh tests."""

BEGIN, END = "<!-- proof: written by scripts/write_proof.py -->", "<!-- end of proof -->"

BEGINNING = """# Proof

<!-- Written by scripts/write_proof.py from docs/reference/proof.json: `make proof` makes both. -->

What `make proof` found, as its suites recorded it. No figure here is typed. Suites can be run by themselves, so each
has its own commit and date. "Not run" means that no proof ran the suite; "not recorded" that it ran and left no such
figure.

"""


def page(facts: Facts) -> str:
    """Return the text of docs/reference/proof.md."""
    parts = [
        BEGINNING + of_what(facts),
        suites_table(facts),
        coverage_table(facts),
        truths_table(facts),
        alarms_table(facts),
        kills_table(facts),
        power_table(facts),
        fuzzing_table(facts),
        soak_table(facts),
        kernels_table(facts),
        bare_table(facts),
        packages_table(facts),
        verdicts_table(facts),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def of_what(facts: Facts) -> str:
    """Return the list of the proof's dates, commits and machines."""
    ran = [one for one in facts["suites"] if one["outcome"] != NOT_RUN]
    lines = [
        ("dates", " to ".join(ends(one["date"] for one in ran))),
        ("commits", ", ".join(dict.fromkeys(f"`{one['commit']}`" for one in ran))),
        ("machines", "; ".join(dict.fromkeys(of_machine(one["machine"]) for one in ran))),
    ]
    return table(("what", "value"), lines)


def ends(dates: Iterable[str]) -> list[str]:
    """Return the first and the last date; one if they are the same."""
    several = sorted(set(dates))
    return several if len(several) < 2 else [several[0], several[-1]]


def of_machine(told: dict[str, Any]) -> str:
    """Return a machine as text."""
    whose = " (where this page was written; the proof recorded none)" if told.get("is_the_pages") else ""
    kind = "virtual machine" if told["virtual"] else "machine"
    return f"{kind}, {told['cpu']}, {told['cores']} cores, Linux {told['kernel']}{whose}"


# --- suites ----------------------------------------------------------------------------------------------------------


def suites_table(facts: Facts) -> str:
    """Return the table of suites: what each tests, its outcome, its counts of tests and its time."""
    head = ("suite", "what", "outcome", "passed", "failed", "skipped", "time", "date", "commit")
    rows = [
        (
            f"`{one['name']}`",
            SUITES.get(one["name"], "–"),
            outcome(one),
            *(str(one.get(word, "–")) for word in ("passed", "failed", "skipped")),
            duration(one.get("seconds")),
            one.get("date", "–"),
            f"`{one['commit']}`" if "commit" in one else "–",
        )
        for one in facts["suites"]
    ]
    about = "The suites of `make test` run for every change."
    return f"\n## Suites\n\n{about}\n\n{table(head, rows)}"


def outcome(one: dict[str, Any]) -> str:
    """Return how a suite ended, with the outcome of the second run of its failed tests if there was one."""
    second = f"; those that failed, again by themselves: {one['again']}" if "again" in one else ""
    return f"{one['outcome']}{second}"


def duration(seconds: float | None) -> str:
    """Return minutes and seconds, or a dash if no time is known."""
    return "–" if seconds is None else f"{int(seconds) // 60} min {int(seconds) % 60} s"


# --- figures ---------------------------------------------------------------------------------------------------------


def of_kind(facts: Facts, kind: str) -> dict[str, list[dict[str, float]]]:
    """Return the numbers of all figures of a kind, by the subject of the figure."""
    found: dict[str, list[dict[str, float]]] = {}
    for one in facts["figures"]:
        if one["kind"] == kind:
            found.setdefault(one["what"], []).append(one["numbers"])
    return found


def unless_none(facts: Facts, rows: Sequence[tuple[str, ...]], head: tuple[str, ...], suites: Iterable[str]) -> str:
    """Return a table of the rows; if there are none, "Not recorded" if one of the suites ran, otherwise "Not run"."""
    if rows:
        return table(head, rows)
    ran = {one["name"] for one in facts["suites"] if one["outcome"] != NOT_RUN}
    return "Not recorded.\n" if ran & set(suites) else "Not run.\n"


def held(numbers: dict[str, float]) -> float:
    """Return the share of intervals that hold the truth."""
    return numbers["held"] / numbers["of"]


def coverage_table(facts: Facts) -> str:
    """Return the table of how often intervals of 95 % hold the truth."""
    rows = [
        (what, str(len(several)), count(sum(one["of"] for one in several)), *spread([held(one) for one in several]))
        for what, several in of_kind(facts, "coverage").items()
    ]
    head = ("what", "cases", "intervals", "least", "median case", "most")
    about = (
        "Of intervals that claim 95 %, the share that holds a truth that is known, in the worst, middle and best case."
    )
    return f"\n## Coverage of intervals\n\n{about}\n\n{unless_none(facts, rows, head, ['proof-pytest'])}"


def spread(shares: list[float]) -> tuple[str, str, str]:
    """Return the least, the median and the greatest share."""
    return percent(min(shares)), percent(median(shares)), percent(max(shares))


def truths_table(facts: Facts) -> str:
    """Return the table of whole runs over simulated lines whose truth is known."""
    rows = [
        (what, str(len(several)), count(n := sum(one["of"] for one in several)),
         count(k := sum(one["held"] for one in several)), percent(k / n) if n else "–")
        for what, several in of_kind(facts, "truths").items()
    ]  # fmt: skip
    head = ("what", "scenarios", "intervals", "hold the truth", "share")
    about = "Plan, instrument, records and analysis over simulated lines: what was put in, against what was reported."
    return f"\n## Truths recovered\n\n{about}\n\n{unless_none(facts, rows, head, ['proof-pytest'])}"


def alarms_table(facts: Facts) -> str:
    """Return the table of false alarms: what was found in series and runs in which there is nothing to find."""
    rows = [
        (
            what,
            str(len(several)),
            count(sum(one["of"] for one in several)),
            count(sum(one["alarms"] for one in several)),
        )
        for what, several in of_kind(facts, "alarms").items()
    ]
    head = ("what", "cases", "tried", "alarms")
    return f"\n## False alarms\n\n{unless_none(facts, rows, head, ['proof-pytest'])}"


def kills_table(facts: Facts) -> str:
    """Return the table of killed processes of which nothing was left."""
    rows = [
        (what, str(len(several)), count(sum(one["kills"] for one in several)))
        for what, several in of_kind(facts, "kills").items()
    ]
    about = (
        "Killed by SIGKILL at random moments, with nothing left behind that the test looks for: processes; of what\n"
        "builds a bed as root, also the machine's interfaces and network namespaces. A kill that left something is a\n"
        "failed test above."
    )
    shown = unless_none(
        facts, rows, ("what", "cases", "kills"), ["proof-kills", "proof-hosts", "proof-net", "proof-alone"]
    )
    return f"\n## Kills\n\n{about}\n\n{shown}"


def power_table(facts: Facts) -> str:
    """Return the table of losses of power, by the order of writes that the kernel saw."""
    rows = [(what, count(sum(one["cuts"] for one in several))) for what, several in of_kind(facts, "power").items()]
    about = (
        "A run's system calls, cut at each that writes or names a file: what the disk then holds is read, and resumed."
    )
    return f"\n## Losses of power\n\n{about}\n\n{unless_none(facts, rows, ('what', 'cuts'), ['proof-pytest'])}"


def fuzzing_table(facts: Facts) -> str:
    """Return the table of fuzzing by coverage of the readers of untrusted bytes."""
    rows = [
        (f"`{one['target']}`", "ended by bytes that it cannot take", "–", "–") if one.get("found")
        else (f"`{one['target']}`", "nothing found", count(one["inputs"]), duration(one["seconds"]))
        for one in facts["fuzzing"]
    ]  # fmt: skip
    shown = unless_none(facts, rows, ("reader", "outcome", "inputs tried", "time"), ["proof-fuzz"])
    return f"\n## Fuzzing\n\n{shown}"


def soak_table(facts: Facts) -> str:
    """Return the table of memory under load."""
    rows = [
        (one["what"], duration(numbers["seconds"]), count(numbers["packets"]), f"{numbers['rise_bytes'] / 1e6:z.2f} MB",
         hourly(numbers), *when(facts, one))
        for one in facts["figures"] if one["kind"] == "soak" for numbers in [one["numbers"]]
    ]  # fmt: skip
    about = (
        "At load, every packet accounted for: by how much the line through the memory rises from the end of the\n"
        "warm-up on. `make soak` takes an hour for each, `make proof` two minutes at most."
    )
    head = ("what", "time", "packets", "rise", "in an hour (95 % interval)", "date", "commit")
    return f"\n## Soak\n\n{about}\n\n{unless_none(facts, rows, head, ['proof-alone'])}"


def when(facts: Facts, figure: dict[str, Any]) -> tuple[str, str]:
    """Return the date and the commit of a figure: its own, or those of its suite."""
    of_suite: Facts = next((one for one in facts["suites"] if one["name"] == figure["suite"]), {})
    told = of_suite | figure
    return told.get("date", "–"), f"`{told['commit']}`" if "commit" in told else "–"


def hourly(one: Mapping[str, Any]) -> str:
    """Return the growth in an hour; earlier proofs did not record it."""
    if "bytes_per_hour" not in one:
        return "–"
    return f"{one['bytes_per_hour'] / 1e6:z.1f} ± {one['half_bytes_per_hour'] / 1e6:.1f} MB"


def kernels_table(facts: Facts) -> str:
    """Return the table of other kernels, each run in a guest."""
    rows = [
        (
            f"Linux {one['kernel']}",
            *(str(one.get(word, "not run")) for word in ("passed", "failed", "not_done")),
            one["date"],
            f"`{one['commit']}`",
        )
        for one in facts["kernels"]
    ]
    shown = table(("kernel", "checks passed", "failed", "not done", "date", "commit"), rows) if rows else "Not run.\n"
    return f"\n## Kernels\n\n`make kernels`: TCP logged and netem configured in a guest of each.\n\n{shown}"


def bare_table(facts: Facts) -> str:
    """Return the table of times from a bare system to a verdict."""
    rows = [(what, duration(one["seconds"])) for what, several in of_kind(facts, "bare").items() for one in several]
    about = "On a system that has neither cargo nor clang nor venv, up to the verdict of a measurement there."
    return f"\n## Bare systems\n\n{about}\n\n{unless_none(facts, rows, ('what', 'time'), ['proof-bare'])}"


def packages_table(facts: Facts) -> str:
    """Return the table of the packages' sizes and of how soon what they install starts."""
    rows = [
        (
            what,
            *(f"{one[name] / 1e6:.1f} MB" for name in ("file_bytes", "installed_bytes")),
            f"{one['help_seconds']:.2f} s",
        )
        for what, several in of_kind(facts, "packages").items()
        for one in several
    ]
    about = (
        "The folders of Python and of programs that each package installs, without the distribution's packages, after\n"
        "they were used once; and the median time of 11 starts of `sojourn --help` there, beside other tests."
    )
    head = ("package", "file", "installed", "`sojourn --help`")
    return f"\n## Packages\n\n{about}\n\n{unless_none(facts, rows, head, ['proof-bare'])}"


def verdicts_table(facts: Facts) -> str:
    """Return the table of each study's verdict on real frames."""
    rows = [
        (f"`{one['study']}`", f"`{one['suite']}`", one["verdict"], escaped(one["sentence"]))
        for one in facts["verdicts"]
    ]
    shown = unless_none(facts, rows, ("study", "suite", "verdict", "sentence"), ["proof-net", "proof-published"])
    about = (
        "Each study that was measured by then, on real frames beside other tests, which disturb what is timed: a\n"
        "doubtful verdict says that the run noticed."
    )
    return f"\n## Verdicts of the studies\n\n{about}\n\n{shown}"


# --- the README's lines ----------------------------------------------------------------------------------------------


def with_lines(readme: str, facts: Facts, alone: str) -> str:
    """Return the README with its lines of the proof and of what was measured alone, between their two markers."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise SystemExit(f"README.md: expected the markers `{BEGIN}` and `{END}`, once each")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{wrapped(' '.join(sentences(facts, alone)))}\n{END}{rest.split(END)[1]}"


def sentences(facts: Facts, alone: str) -> Iterator[str]:
    """Yield the sentences for the README about suites, verdicts and coverage, as far as these ran."""
    every = facts["suites"]
    ran = [one for one in every if one["outcome"] in {"passed", "failed"}]
    words = [one["outcome"] for one in every]
    short = f"{words.count('failed')} failed, {len(words) - len(ran)} without a whole run"
    when = " to ".join(ends(one["date"] for one in every if one["outcome"] != NOT_RUN))
    commits = {one["commit"] for one in every if one["outcome"] != NOT_RUN}
    cores = " or ".join(sorted({str(one["machine"]["cores"]) for one in every if one["outcome"] != NOT_RUN}))
    at = f"commit {plain(*commits)}" if len(commits) == 1 else f"{len(commits)} commits"
    yield (
        f"`make proof` of {when} ({at}, {cores} cores): "
        f"{words.count('passed')} of {len(every)} suites passed, {short}; "
        f"{total(ran, 'passed')} tests passed, {total(ran, 'failed')} failed."
    )
    if facts["verdicts"]:
        words = [one["verdict"] for one in facts["verdicts"]]
        each = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(sorted(words, reverse=True)))
        yield f"Of the [gallery](docs/gallery.md)'s {alone}; most were measured with nothing else running."
        yield f"The proof's {len(words)} runs of studies had other tests beside them, which disturb them: {each}."
    cases = {what: several for what, several in of_kind(facts, "coverage").items() if not is_beside(what)}
    if shares := [held(one) for several in cases.values() for one in several]:
        yield (
            f"Intervals of 95 % held the truth in {percent(median(shares))} of simulated runs in the median of the "
            f"proof's {len(shares)} cases, in {percent(min(shares))} in the worst (known limits are on the page)."
        )
    yield "[All figures](docs/reference/proof.md)."


def plain(commit: str) -> str:
    """Return a commit in seven digits."""
    return f"{commit[:7]}{'-dirty' if commit.endswith('-dirty') else ''}"


def is_beside(what: str) -> bool:
    """Return whether a coverage is of a known limit or of another run's result."""
    return "a known limit" in what or what.startswith("next run")


def total(suites: list[dict[str, Any]], word: str) -> str:
    """Return the sum of a count over suites."""
    return count(sum(one.get(word, 0) for one in suites))


# --- words -----------------------------------------------------------------------------------------------------------


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def count(number: float) -> str:
    """Return a number with separators between thousands."""
    return f"{number:,.0f}"


def percent(share: float) -> str:
    """Return a share in per cent, to a tenth."""
    return f"{share:.1%}".replace("%", " %")


def escaped(text: str) -> str:
    """Return text escaped for a cell of a table."""
    return text.replace("|", r"\|").replace("<", "&lt;")


def wrapped(text: str, width: int = 120) -> str:
    """Wrap text into lines of at most `width` characters; a link counts as one word."""
    lines = [""]
    for word in re.findall(r"\[[^]]*\]\([^)]*\)\S*|\S+", text):
        lines[-1] += f" {word}" if lines[-1] else word
        if len(lines[-1]) > width:
            lines[-1] = lines[-1][: -len(word) - 1]
            lines.append(word)
    return "\n".join(lines)
