"""From a file, a study's name, `--quick` and `--set` to one checked plan. Later words win: file, quick or full, set.

Reads files; runs nothing.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn import studies as built_in
from sojourn.errors import RequestError
from sojourn.plan.check import check
from sojourn.plan.costs import read_costs
from sojourn.plan.emulators import is_known, read_emulators, read_links
from sojourn.plan.key import ABSENT, REQUIRED
from sojourn.plan.keys import KEYS, SECTIONS, SIZE_KEYS, reads
from sojourn.plan.line import read_lines
from sojourn.plan.source import Given, Table, read_toml, refuse
from sojourn.plan.streams import STREAM_SIZE_KEYS, ends, read_search, read_stream, read_trials
from sojourn.plan.tcp import read_tcp
from sojourn.plan.types import (
    PAIR_METHODS,
    BedPlan,
    DeparturesPlan,
    HostPlan,
    LimitsPlan,
    ModelPlan,
    PairsPlan,
    Plan,
    ProbePlan,
    StreamPlan,
    Study,
)
from sojourn.plan.values import AUTO

if TYPE_CHECKING:
    from collections.abc import Sequence


def load_plan(
    source: str | Path,
    *,
    sets: Sequence[str] = (),
    quick: bool = False,
    full: bool = False,
    backend: str | None = None,
) -> Plan:
    """The plan of a built-in study or of a file, with what was asked beside it."""
    name, text = find_study(source)
    given = read_toml(text, name)
    table = {key: value for key, value in given.items() if not key.startswith(tuple(f"{one}." for one in VARIANTS))}
    known(table)
    variants = {one: variant(given, one) for one in VARIANTS}
    if quick and full:
        raise RequestError("--quick beside --full: expected one of them")
    chosen = [one for one, wanted in (("quick", quick), ("full", full)) if wanted]
    for one in chosen:
        if not variants[one]:
            raise RequestError(f"{name}: --{one} has nothing to change: expected a [{one}] {VARIANTS[one]}")
        table = overlay(table, variants[one])
    if backend:
        table = overlay(table, {"bed.backend": Given(backend, f"--bed {backend}")})
    for words in sets:
        table = overlay(table, read_set(words, method_of(table)))
    asked = (
        [f"--{one}" for one in chosen]
        + ([f"--bed {backend}"] if backend else [])
        + [f"--set {words}" for words in sets]
    )
    return build(table, name, tuple(asked))


VARIANTS = {"quick": 'such as "pairs.at_most" = "30s"', "full": "with a study's values as they were published"}
"""Sections whose keys are dotted ones of other sections, and what each is for."""


def variant(given: Table, name: str) -> Table:
    """What a plan has under [quick] or [full], by the keys that it changes."""
    found = {key.removeprefix(f"{name}."): value for key, value in given.items() if key.startswith(f"{name}.")}
    known(found)
    return found


def plan_from_text(text: str, name: str, asked: tuple[str, ...]) -> Plan:
    """The plan that a program has written; refusals call it by its name."""
    table = read_toml(text, name)
    known(table)
    return build(table, name, asked)


def find_study(source: str | Path) -> tuple[str, str]:
    """The name to use in refusals, and the text."""
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        return str(path), read_plan_file(path)
    names = built_in.names()
    if str(source) not in names:
        close = difflib.get_close_matches(str(source), names, 1)
        hint = f"did you mean {close[0]}?" if close else f"the studies are {', '.join(names)}"
        raise RequestError(f"no study or plan file {source}: {hint}")
    return f"{source}.toml", built_in.text(str(source))


def studies() -> list[tuple[str, str]]:
    """Name and question of each built-in study."""
    return [(name, load_plan(name).study.question) for name in built_in.names()]


def read_plan_file(path: Path) -> str:
    """The text of a plan file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RequestError(f"{path}: cannot be read: {reason}") from error


def known(table: Table) -> None:
    """Refuse any key that no plan has."""
    for key, given in table.items():
        if key not in KEYS and not key.startswith("bed.lines.") and not is_known(key):
            raise RequestError(f"{given.where}: unknown key {key}: expected {nearest(key)}")


def nearest(key: str) -> str:
    """What was probably meant, else what the section has."""
    if close := difflib.get_close_matches(key, list(KEYS), 1, 0.75):
        return close[0]
    section = key.split(".", maxsplit=1)[0]
    inside = [name for name in KEYS if name.startswith(f"{section}.")]
    sections = sorted({name.split(".")[0] for name in KEYS} | {*VARIANTS})
    return "one of " + ", ".join(inside) if inside else "one of the sections " + ", ".join(sections)


def method_of(table: Table) -> str:
    """The method, if it is one: what it is decides which sections there are."""
    method = table["study.method"].value if "study.method" in table else "pairs"
    return method if isinstance(method, str) and method in SECTIONS else "pairs"


ALTERNATIVES = (
    frozenset(f"probe.{name}" for name in SIZE_KEYS),
    frozenset(f"stream.{name}" for name in STREAM_SIZE_KEYS),
    frozenset({"stream.interval", "stream.rate"}),
)
"""Keys of which a plan has one: to ask one of them anew takes back whichever was asked before."""


def overlay(below: Table, above: Table) -> Table:
    """The upper table's values where it has any; a size or a rate asked above replaces one of another name below."""
    for alternatives in ALTERNATIVES:
        if alternatives & above.keys():
            below = {key: value for key, value in below.items() if key not in alternatives}
    return below | above


COST_WORDS = {"ppl": "costs.packets_per_log", "rounds": "costs.repetitions"}
PAIR_WORDS = {"device": "bed.devices", "size": "probe.icmp_bytes"}
TCP_WORDS = {"rounds": "perturbation.rounds", "repetitions": "truth.repetitions"}
STREAM_WORDS = {"device": "bed.devices", "size": "stream.frame_bytes", "rounds": "trials.rounds"}
SEARCH_WORDS = STREAM_WORDS | {"rounds": "search.repetitions", "at_most": "search.at_most"}


def short(method: str) -> dict[str, str]:
    """Names for `--set` without their section; the method's own keys first, and then in the order of KEYS."""
    sections = SECTIONS[method]
    words = PAIR_WORDS if method in PAIR_METHODS else SEARCH_WORDS if "search" in sections else STREAM_WORDS
    words = COST_WORDS if "costs" in sections else TCP_WORDS if {"truth", "perturbation"} & {*sections} else words
    ranked = sorted(KEYS, key=lambda key: not reads(method, key))
    ranked.sort(key=lambda key: key == "bed.rate")  # "rate" is what is sent; what a device lets out is "bed.rate"
    return {key.split(".")[1]: key for key in reversed(ranked)} | words


def read_set(words: str, method: str) -> Table:
    """One `--set key=value`: the value as TOML would have it, or as plain words parted by commas."""
    key, equals, value = words.partition("=")
    key, value, where = key.strip(), value.strip(), f"--set {words}"
    if not equals or not key or not value:
        raise RequestError(f"{where}: expected key=value, such as --set rounds=20 or --set devices=wire,bridge")
    dotted = short(method).get(key, key)
    known({dotted: Given(value, where)})
    return {dotted: Given(plain_value(value), where)}


def plain_value(value: str) -> Any:
    """A TOML value if it is one; else text, or a list of them where there are commas."""
    try:
        parsed: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        return [plain_value(part) for part in parts] if len(parts) > 1 or "," in value else value.strip("\"'")
    return parsed


def build(table: Table, name: str, asked: tuple[str, ...]) -> Plan:
    """The frozen plan of a table, every default filled in."""
    refuse_strangers(table)
    values = {key: read(key, table, name) for key in KEYS}
    size_key, sizes = read_sizes(values, table, name)
    stream = read_stream(values, table, name)
    plan = Plan(
        study=Study(**section(values, "study")),
        bed=read_bed(values, table, stream),
        probe=ProbePlan(
            probe=values["probe.probe"],
            size_key=size_key,
            sizes=sizes,
            request_payload_bytes=values["probe.request_payload_bytes"],
            intervals_ns=values["probe.interval"],
            schedule=values["probe.schedule"],
            timeout_ns=values["probe.timeout"],
        ),
        pairs=PairsPlan(**section(values, "pairs", block_at_most="block_at_most_ns", at_most="at_most_ns")),
        departures=DeparturesPlan(**section(values, "departures", at_most="at_most_ns")),
        stream=stream,
        trials=read_trials(values),
        model=ModelPlan(values["model.train"]),
        limits=LimitsPlan(
            **section(values, "limits", **{key: f"{key}_ns" for key in ("offset", "p50", "p99", "p999")})
        ),
        search=read_search(values),
        costs=read_costs(values),
        truth=read_tcp(values, "truth"),
        perturbation=read_tcp(values, "perturbation"),
        emulators=read_emulators(values, table, is_logged=values["study.method"] == "emulator"),
        host=HostPlan(**section(values, "host")),
        asked=asked,
    )
    check(plan, table, name)
    return plan


def read_bed(values: dict[str, Any], table: Table, stream: StreamPlan) -> BedPlan:
    """[bed], with its simulated lines and its rated links."""
    given_lines = {key: given for key, given in table.items() if key.startswith("bed.lines.")}
    own = section(values, "bed", rate="rate_bps")
    if values["study.method"] == "tcp-cost":
        own["devices"] = ()  # both ends of one cable
    for key in ("link_rate", "link_delay"):
        del own[key]
    lines = read_lines(given_lines, one_way=values["study.method"] not in PAIR_METHODS)
    return BedPlan(**own | ends(values, stream), links=read_links(values, table), lines=lines)


def refuse_strangers(table: Table) -> None:
    """Refuse keys that the method does not read: they would be without effect, in silence."""
    method = method_of(table)
    for key, given in table.items():
        if not key.startswith(("bed.lines.", "bed.links.")) and not reads(method, key):
            section_name = key.split(".")[0]
            inside = [other for other in KEYS if other.startswith(f"{section_name}.") and reads(method, other)]
            wanted = f"one of {', '.join(inside)}" if inside else f"a key of {', '.join(SECTIONS[method])}"
            raise RequestError(f"{given.where}: {key} has no meaning for study.method = {method}: expected {wanted}")


def read(key: str, table: Table, name: str) -> Any:
    """One value, or its default."""
    spec = KEYS[key]
    if key not in table:
        if spec.default is REQUIRED:
            raise RequestError(f"{name}: the key {key} is missing: expected {spec.reader.expected}")
        return None if spec.default is AUTO else spec.default
    value = spec.reader.read(table[key].value)
    if value is None:
        raise refuse(table[key], key, spec.reader.expected)
    return None if value is AUTO else value


def read_sizes(values: dict[str, Any], table: Table, name: str) -> tuple[Any, tuple[int, ...]]:
    """The one size key that was given; ping's 64 bytes if none was."""
    asked = [key for key in SIZE_KEYS if values[f"probe.{key}"] is not ABSENT]
    if len(asked) > 1:
        second = table[f"probe.{asked[1]}"]
        both = f"probe.{asked[1]} beside probe.{asked[0]}"
        raise RequestError(f"{second.where}: {both}: expected one of {', '.join(SIZE_KEYS)}")
    if asked:
        return asked[0], values[f"probe.{asked[0]}"]
    if all(probe.startswith("icmp") for probe in values["probe.probe"]):
        return "icmp_bytes", (64,)
    raise RequestError(f"{name}: no size is given: expected probe.payload_bytes or frame_bytes, such as [64, 1500]")


def section(values: dict[str, Any], name: str, **renamed: str) -> dict[str, Any]:
    """The values of one section under the names of its type."""
    found = {key.split(".")[1]: value for key, value in values.items() if key.startswith(f"{name}.")}
    return {renamed.get(key, key): value for key, value in found.items()}
