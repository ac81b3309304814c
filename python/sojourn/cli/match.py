"""`sojourn match` over what the instrument does not read by itself, taps of a Parquet data set, and on a cluster."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sojourn.records.taps import ParquetTap

SHORT = {"-o": "--output"}
WITH_VALUE = frozenset({
    "--key", "--window", "--direction", "--subtract-serialisation", "--mtu", "--memory", "--engine", "--slices",
    "--output", "--master", "--for", "-c", "--count", "--filter", "--source", "--ring", "--report",
})  # fmt: skip
"""The options that have a value; `--master` and `--report` are only ours."""

OF_SPARK = frozenset({"--key", "--window", "--direction", "--same-clock", "--memory"})
"""The options for matching slices."""

TOLD = {"p1": (0.01, 100), "p50": (0.5, 1), "p90": (0.9, 10), "p99": (0.99, 100), "p99_9": (0.999, 1_000),
        "p99_99": (0.9999, 10_000)}  # fmt: skip
"""Percentiles, each with its least number of delays, as in the instrument."""

Told = dict[str, Any]


def inputs_of(words: list[str]) -> tuple[list[str], dict[str, str | None], list[str]]:
    """Return the words of `match` that are inputs; its options with their values; the words of these options."""
    inputs: list[str] = []
    options: dict[str, str | None] = {}
    others: list[str] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            inputs.append(word)
            continue
        name, equals, value = word.partition("=")
        name = SHORT.get(name, name)
        following = [] if equals or name not in WITH_VALUE else list(islice(left, 1))
        options[name] = value if equals else next(iter(following), None)
        others += [word, *following]
    return inputs, options, others


def is_ours(words: list[str]) -> bool:
    """Return whether an input is a folder, the engine is not the instrument's, or a page is requested."""
    inputs, options, _ = inputs_of(words)
    if {"-h", "--help"} & options.keys():
        return False
    if "--report" in options:
        return True
    if "--live" in options:  # a folder with the name of an interface is not read
        return False
    return options.get("--engine") == "spark" or "--master" in options or any(Path(word).is_dir() for word in inputs)


def match(words: list[str]) -> int:
    """Match; return the exit status."""
    from sojourn.errors import RequestError
    from sojourn.instruments.matching import match as match_taps
    from sojourn.records.taps import ParquetTap

    inputs, options, others = inputs_of(words)
    taps = {word: ParquetTap.open(Path(word)) for word in inputs if Path(word).is_dir()}
    if options.get("--engine") == "spark":
        if "--report" in options:
            raise RequestError("--report goes with the engines one and local")
        return match_on_spark(inputs, taps, options)
    if "--master" in options:
        raise RequestError("--master goes with --engine spark")
    if "--report" in options:
        return match_with_report(inputs, taps, options, others)
    return match_taps(inputs, taps, others)


def match_with_report(
    inputs: list[str], taps: dict[str, ParquetTap], options: dict[str, str | None], others: list[str]
) -> int:
    """Match, and write a page of the delays from the rows; `-o` keeps the rows."""
    import os

    from sojourn.analysis import crossings
    from sojourn.cli.private import private_files
    from sojourn.errors import RequestError
    from sojourn.instruments.matching import match as match_taps
    from sojourn.records.scratch import scratch
    from sojourn.records.whole_file import write_whole
    from sojourn.report.crossings import page

    report, rate = options["--report"], options.get("--subtract-serialisation")
    if not report:
        raise RequestError("--report needs a FILE, such as delays.html")
    if "--live" in options:
        raise RequestError("--report is for captures: capture first, then match the files")
    file = Path(report)
    if file.suffix != ".html" or not file.parent.is_dir():
        raise RequestError(f"--report {report}: expected a file.html in a folder that is there")
    if os.path.lexists(file):
        raise RequestError(f"--report {report}: it is there already: give another name")
    subtracted = rate_of(rate)
    words = without_report(others)
    with scratch("match") as spare, private_files():
        folder = Path(options.get("--output") or spare / "rows")
        status = match_taps(inputs, taps, words if options.get("--output") else [*words, "-o", str(folder)])
        if status == 0:
            write_whole(file, page(crossings.read(folder, subtracted), inputs, rate if subtracted else None))
    return status


def rate_of(words: str | None) -> int | None:
    """Return the rate of a link in bit/s; None without one."""
    from sojourn.errors import RequestError
    from sojourn.units import rate

    found = rate(words) if words else None
    if words and (found is None or found[0] != "bit/s" or found[1] < 1):
        raise RequestError(f"--subtract-serialisation {words}: with --report a rate such as 1Gbit/s")
    return int(found[1]) if found else None


def without_report(words: list[str]) -> list[str]:
    """Return the options without `--report` and its value."""
    left, kept = iter(words), []
    for word in left:
        if word == "--report":
            next(left, None)
        elif not word.startswith("--report="):
            kept.append(word)
    return kept


def match_on_spark(inputs: list[str], taps: dict[str, ParquetTap], options: dict[str, str | None]) -> int:
    """Match two taps of a data set on a cluster; print the result, and write it beside the rows."""
    import json

    from sojourn.cli.private import private_run
    from sojourn.errors import RequestError
    from sojourn.instruments import spark
    from sojourn.instruments.matching import terms
    from sojourn.records.whole_file import write_whole

    unknown = options.keys() - OF_SPARK - {"--engine", "--slices", "--output", "--master", "--json"}
    if unknown:
        raise RequestError(f"the engine spark does not know {', '.join(sorted(unknown))}")
    if len(inputs) != 2 or len(taps) != 2:
        raise RequestError(
            "the engine spark matches two taps of a data set: DATA/run=RUN/tap=TAP, as `sojourn dataset` wrote"
        )
    output, slices = options.get("--output"), options.get("--slices") or "0"
    if not output:
        raise RequestError("the engine spark needs -o FOLDER, which its machines reach, too")
    if not slices.isdecimal():
        raise RequestError(f"--slices {slices} is no number")
    words = [word for name in OF_SPARK & options.keys() for word in (name, options[name]) if word is not None]
    learned = terms(inputs, taps, words)
    asked = spark.Asked(options.get("--master") or "local[*]", Path(output), int(slices) or None)
    with private_run(asked.output):
        told = summary(inputs, taps, learned, spark.match([taps[name] for name in inputs], learned, asked))
        write_whole(asked.output / "summary.json", json.dumps(told, indent=2) + "\n")
    print(json.dumps(told) if "--json" in options else in_words(told))
    return 0


def summary(inputs: list[str], taps: dict[str, ParquetTap], learned: Told, found: Told) -> Told:
    """Return the result, in the instrument's form where both have it."""
    pair = learned["pairs"][0]
    relation = "one" if pair["is_one_clock"] else "not_estimated"
    for way in found["directions"]:
        if "delay" in way:
            way["delay"] |= {"of": "all" if relation == "one" else "as stamped"} | percentiles(way.pop("sample"))
    of_taps = []
    for name, counts in zip(inputs, found["taps"], strict=True):
        dropped = taps[name].about["dropped"]
        packets = {"name": name, "packets": counts.get("with_digest", 0) + counts.get("without_key", 0)}
        of_taps.append(packets | counts | {"dropped_by_capture": int(dropped) if dropped else None})
    return {
        "event": "matched",
        "engine": {"name": "spark", "slices": found["slices"], "memory_bytes_of_a_slice": pair["memory_bytes"]},
        "key": learned["key"],
        "window_ns": pair["window_ns"],
        "taps": of_taps,
        "pairs": [
            {
                "first": inputs[0],
                "second": inputs[1],
                "direction_rule": pair["direction_rule"],
                "direction_assumed": found["assumed_by"][pair["assumed"]],
                "aligned_by_ns": pair["aligned_ns"][1] - pair["aligned_ns"][0] if pair["is_alignment_known"] else None,
                "clocks": {"relation": relation},
                "directions": found["directions"],
            }
        ],
    }


def percentiles(ordered: Any) -> Told:
    """Return percentiles by nearest rank with 95 % intervals of order statistics, as in the instrument."""
    from math import ceil

    from scipy.stats import binom

    count = len(ordered)

    def told(quantile: float) -> Told:
        low, high = int(binom.ppf(0.025, count, quantile)), count + 1 - int(binom.ppf(0.025, count, 1 - quantile))
        return {
            "value": int(ordered[max(ceil(quantile * count), 1) - 1]),
            "low": int(ordered[low - 1]) if low >= 1 else None,
            "high": int(ordered[high - 1]) if high <= count else None,
        }

    return {f"{name}_ns": told(quantile) for name, (quantile, least) in TOLD.items() if count >= least}


def in_words(found: Told) -> str:
    """Return the result as text."""
    lines = [f"{tap['name']}: {tap['packets']:,} packets" for tap in found["taps"]]
    pair = found["pairs"][0]
    for way in pair["directions"]:
        counts = way["counts"]
        ends = (pair["first"], pair["second"]) if way["direction"] == "forward" else (pair["second"], pair["first"])
        lines += ["", f"{ends[0]} → {ends[1]} ({pair['direction_rule']})"]
        others = ("lost", "duplicated", "reordered", "ambiguous", "unexpected", "evicted", "pending")
        told = ", ".join(f"{name} {counts[name]:,}" for name in others)
        lines.append(f"  matched {counts['matched']:,} of {counts['seen_first']:,}; {told}")
        if "delay" in way:
            delay = way["delay"]
            shown = ", ".join(f"{name} {delay[f'{name}_ns']['value']:,}" for name in TOLD if f"{name}_ns" in delay)
            lines.append(
                f"  delay in ns ({delay['of']}): least {delay['min_ns']:,}, {shown}, greatest {delay['max_ns']:,}"
            )
        if way["mixed_timestamps"]:
            lines.append(
                f"  note: {way['mixed_timestamps']:,} of the delays are between timestamps of different sources, "
                "taken at different places of the stack"
            )
    if pair["clocks"]["relation"] != "one":
        lines += ["", "Two clocks: delays have the clocks' difference in them; the engines one and local estimate it."]
    lines.append(f"\n{found['engine']['slices']} slices; rows in the folder given by -o")
    return "\n".join(lines)
