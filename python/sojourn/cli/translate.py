"""`sojourn emulate explain --from "tc qdisc add …"`: lines of tc or ipfw in our notation, and what has no equivalent.

The instrument parses lines of netem and dummynet itself, with those tools' meaning. This module takes out what it would
refuse, and reports it with the reason, so that the rest can be used. Of tc it knows netem, tbf, pfifo and bfifo.
Nothing is started and nothing is configured.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.caller import sudo_caller
from sojourn.errors import RequestError
from sojourn.records.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Explain = Callable[[list[str]], dict[str, Any]]
    """What the instrument understands by options of `emulate run`."""

    Installed = dict[str, tuple[str, list[str]]]
    """Of one interface, by `root` or `parent X:Y`: a discipline's kind and its words."""

NETEM = ("limit", "delay", "latency", "distribution", "reorder", "gap", "loss", "drop", "corrupt", "duplicate", "rate",
         "slot", "ecn", "seed")  # fmt: skip
CORRELATED = {"delay": 3, "latency": 3, "reorder": 2, "corrupt": 2, "duplicate": 2}
"""The position of netem's correlation after each word."""
NO_CORRELATION = {
    "delay": "a correlation from packet to packet, which does nothing in netem; `half-life TIME` is one in time",
    "latency": "a correlation from packet to packet, which does nothing in netem; `half-life TIME` is one in time",
}
CHANGES_SHARE = "netem's correlation changes the probability itself; each packet is chosen by itself here"
SHARE = re.compile(r"\d+(\.\d+)?%?")
TC = re.compile(
    r"tc\s+qdisc\s+(add|replace|change)\s+dev\s+(\S+)\s+((?:(?:root|(?:parent|handle)\s+\S+)\s+)*)(\w+)\s*(.*)"
)
CLASSFUL = frozenset({"cbq", "drr", "ets", "hfsc", "htb", "mq", "mqprio", "multiq", "prio", "qfq", "taprio"})
NOTHING_WAITS = "without a rate nothing waits: the delay line holds all packets (`--memory` bounds it)"
OF_A_CLASS = "it is for one class of packets: write a pipe for each class and rules that choose, see `-C FILE`"
SECOND = "a pipe has each of these once, and the values of two in a chain do not add: only the first is kept"
IPFW = re.compile(r"(ipfw|dnctl)\s|(pipe|queue|sched|add)\s")
IPFW_WORDS = {
    "keep-state": "rules keep no state here: the answers of a flow need a rule of their own",
    "log": "rules log nothing: `--log DIR` has a row for each packet",
}
IPFW_WAYS = {"out": "forward", "in": "backward"}
IPFW_ASSUMED = "a bridge has no inside: written as `{way}`, as if the host were at the left port"
IPFW_PAIRS = {
    one: f"{one} names an interface of the host: a bridge has a left and a right one, `forward` and `backward`"
    for one in ("via", "recv", "xmit")
}
TC_SIZES = {"": 1, "b": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2, "kbit": 128, "mbit": 1024**2 // 8}


MOST_DIGITS = 18
"""The most digits of a size: no number of bytes has more."""
MOST_SHOWN = 120
"""The most characters of the input that a refusal quotes."""


@dataclass
class Translated:
    """The translation: pipes in our notation, the command, and what has no equivalent."""

    pipes: list[dict[str, str]] = field(default_factory=list)
    command: str = ""
    lines: list[str] = field(default_factory=list)
    """Of ipfw: the file that the command names."""
    without: list[dict[str, str]] = field(default_factory=list)
    """`words` that have no equivalent, and `why`."""

    def leave_out(self, words: str, why: str) -> None:
        """Record what is left out."""
        self.without.append({"words": words, "why": why})


def translate(text: str, explain: Explain) -> Translated:
    """Translate lines of tc, or of ipfw."""
    lines = [line.strip() for line in re.split(r"\n|;|&&", text) if line.strip() and not line.strip().startswith("#")]
    lines = [re.sub(r"^(sudo|/\S*/)?\s*(?=tc\b|ipfw\b|dnctl\b)", "", line) for line in lines]
    if lines and all(line.startswith("tc ") for line in lines):
        return of_tc(lines, explain)
    if lines and all(line.startswith("netem ") for line in lines):
        return of_tc([f"tc qdisc add dev RIGHT root {line}" for line in lines], explain)
    if lines and all(IPFW.match(line) for line in lines):
        return of_ipfw(lines, explain)
    raise RequestError(
        f"--from {brief(text)}: expected lines of tc (`tc qdisc add dev eth0 root netem …`) or of ipfw, not both"
    )


def of_tc(lines: list[str], explain: Explain) -> Translated:
    """Translate qdiscs: those of one interface are one direction, its egress."""
    found = Translated()
    devices: dict[str, Installed] = {}
    for line in lines:
        match = TC.fullmatch(line)
        if match is None or not (at := re.search(r"root|parent\s+\S+", match[3])):
            found.leave_out(line, "only `tc qdisc add` describes a path; classes and filters are rules: see `-C FILE`")
            continue
        installed = devices.setdefault(match[2], {})
        if match[1] == "replace" and at[0] == "root":
            installed.clear()
        installed[" ".join(at[0].split())] = (match[4], match[5].split())
    ways = {device: told for device, one in devices.items() if (told := of_device(one, found, explain))}
    if not ways:
        reasons = dict.fromkeys(one["why"] for one in found.without)
        raise RequestError(f"--from: nothing has an equivalent: {'; '.join(reasons)}")
    if len(ways) > 2:
        raise RequestError(f"--from: {brief(', '.join(ways))} are {len(ways)} interfaces: a bridge has two")
    return told_as_options(ways, found, explain)


def of_device(installed: Installed, found: Translated, explain: Explain) -> list[str]:
    """Return the qdiscs of one interface as one pipe; what a pipe cannot have twice is left out."""
    told: list[str] = []
    kinds: set[str] = set()
    for kind, words in installed.values():
        kind_of = "queue" if kind in {"pfifo", "bfifo"} else kind
        has_rate = any(one.startswith("rate ") or " rate " in one for one in told)
        why = ""
        if kinds & CLASSFUL:
            why = OF_A_CLASS
        elif kind_of == "queue" and not has_rate:
            why = NOTHING_WAITS
        elif kind_of in kinds or (has_rate and (kind == "tbf" or "rate" in words)):
            why = SECOND
        elif kind_of == "queue" and "tbf" not in kinds:
            why = "netem's own limit bounds what waits for its rate: a queue below it stays empty"
        kinds.add(kind_of)
        if why:
            found.leave_out(" ".join([kind, *words]), why)
        else:
            told += of_qdisc(kind, words, found, explain)
    return told


def told_as_options(ways: dict[str, list[str]], found: Translated, explain: Explain) -> Translated:
    """Return the command: the egress of the first interface is our forward direction, into the right port."""
    options: list[str] = []
    for direction, words in zip(("forward", "backward"), ways.values(), strict=False):
        options += [f"--{direction}", " ".join(words)]
    found.pipes = [{"name": one["name"], "words": one["words"]} for one in explain(options)["pipes"]]
    right, left = [*ways, "LEFT"][:2] if len(ways) < 2 else list(ways)
    given = [f'--{one["name"]} "{one["words"]}"' for one in found.pipes]
    found.command = " ".join(["sojourn emulate", left, right, *given])
    return found


def of_qdisc(kind: str, words: list[str], found: Translated, explain: Explain) -> Iterator[str]:
    """Translate one qdisc."""
    if kind == "netem":
        if "rate" in words and "limit" not in words:
            words = [*words, "limit", "1000"]  # netem's default
        if kept := [word for clause in clauses(words) for word in of_clause(clause, words, found)]:
            told = explain(["--forward", " ".join(["netem", *kept])])
            yield str(told["pipes"][0]["words"])
            if told["config"]["pipes"][0]["delay"]["jitter"] and "rate" not in words:
                yield "order free"  # netem keeps the order only of packets that wait for its rate
    elif kind == "tbf":
        yield from of_tbf(dict(zip(words[::2], words[1::2], strict=False)), found, explain)
    elif kind in {"pfifo", "bfifo"} and words[:1] == ["limit"] and len(words) > 1:
        yield f"queue {words[1]}" if kind == "pfifo" else f"queue {tc_size(words[1])}B"
    else:
        why = "the queues offered are tail or head drop, red, gred, codel, pie, wf2q+, drr, fq_codel, dualpi2"
        found.leave_out(" ".join([kind, *words]), f"{why}: see docs/reference/emulate.md for their words")


def clauses(words: list[str]) -> list[list[str]]:
    """Return netem's words with their arguments; `gap`, wherever it is, belongs to `reorder`."""
    found: list[list[str]] = []
    for word in words:
        if word in NETEM or not found:
            found.append([])
        found[-1].append(word)
    gap = next((one for one in found if one[0] == "gap"), None)
    reorder = next((one for one in found if one[0] == "reorder"), None)
    if gap and reorder:
        found.remove(gap)
        reorder += gap
    return found


def of_clause(clause: list[str], words: list[str], found: Translated) -> list[str]:
    """Return the part of a clause that the instrument accepts."""
    name = clause[0]
    whole = " ".join(clause)
    if name == "slot":
        found.leave_out(
            whole, "no slots are offered: `profile FILE` or `trace FILE` says when a medium lets packets go"
        )
        return []
    if name == "ecn":
        found.leave_out(whole, "a loss is a loss here and not a mark: a managed queue marks (`codel ecn`)")
        return []
    if name == "seed":
        found.leave_out(whole, "the seed is the emulator's: --seed N; netem's random numbers are not ours")
        return []
    if name == "limit" and "rate" not in words:
        found.leave_out(whole, NOTHING_WAITS)
        return []
    if name == "limit":
        found.leave_out("limit, in part", "netem's also counts packets that are delayed; ours those alone that wait")
    place = CORRELATED.get(name)
    if place is not None and len(clause) > place and SHARE.fullmatch(clause[place]):
        found.leave_out(f"{name} … {clause[place]}", NO_CORRELATION.get(name, CHANGES_SHARE))
        return [*clause[:place], *clause[place + 1 :]]
    return clause


def of_tbf(given: dict[str, str], found: Translated, explain: Explain) -> Iterator[str]:
    """Translate a token bucket: rate, burst, and a queue from its limit or its latency."""
    for name in given.keys() - {"rate", "burst", "buffer", "maxburst", "limit", "latency", "overhead"}:
        found.leave_out(f"tbf {name} {given[name]}", "a link has one rate, and sends frames whole")
    if "rate" not in given:
        raise RequestError("--from: tbf without a rate")
    rate = explain(["--forward", f"netem rate {given['rate']}"])
    burst = next((tc_size(given[name]) for name in ("burst", "buffer", "maxburst") if name in given), 0)
    limit = tc_size(given["limit"]) if "limit" in given else 0
    if "latency" in given:
        latency = f"{given['latency']}us" if given["latency"].isdecimal() else given["latency"]
        waits = explain(["--forward", f"netem delay {latency}"])["config"]["pipes"][0]["delay"]["constant"]
        limit = round(rate["config"]["pipes"][0]["link"]["rate_bps"] / 8 * waits / 1e9) + burst
    yield str(rate["pipes"][0]["words"])
    if "overhead" in given:
        yield f"overhead {given['overhead']}"
    if burst:
        yield f"burst {burst}B"
    if limit:
        yield f"queue {limit}B"


def tc_size(words: str) -> int:
    """Parse bytes as in tc: k is 1024."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)(?:/\d+)?", words.lower())
    if found is None or found[2] not in TC_SIZES or len(found[1]) > MOST_DIGITS:
        raise RequestError(f"--from: {brief(words)}: expected a size as tc has it, such as 32kbit or 1600")
    return round(float(found[1]) * TC_SIZES[found[2]])


def of_ipfw(lines: list[str], explain: Explain) -> Translated:
    """Translate a script: its lines without what has no equivalent; a single pipe is for both directions."""
    found = Translated()
    found.lines = [kept for line in lines if (kept := of_rule(line, found))]
    refuse_alike(lines)
    configured = [line for line in found.lines if re.search(r"\bpipe\s+\S+\s+config\b", line)]
    if len(found.lines) == len(configured) == 1:
        words = re.sub(r"^(ipfw|dnctl)\s+(-\S+\s+)*", "", found.lines[0])
        options = ["--forward", words, "--backward", words]
        found.pipes = [{"name": one["name"], "words": one["words"]} for one in explain(options)["pipes"]]
        given = " ".join(f'--{one["name"]} "{one["words"]}"' for one in found.pipes)
        found.command, found.lines = f"sojourn emulate LEFT RIGHT {given}", []
        return found
    with scratch("explain") as folder:
        folder.chmod(0o711)  # below sudo the instrument reads the script as the user who called it
        file = folder / "path.ipfw"
        file.write_text("\n".join(found.lines) + "\n", encoding="utf-8")
        file.chmod(0o600)
        if caller := sudo_caller():
            os.chown(file, *caller)
        try:
            understood = explain(["--config", str(file)])
        except RequestError as error:
            raise RequestError(f"--from: {str(error).replace(str(file), 'the script')}") from None
    found.pipes = [{"name": one["name"], "words": one["words"]} for one in understood["pipes"]]
    found.command = "sojourn emulate LEFT RIGHT -C path.ipfw"
    return found


def of_rule(line: str, found: Translated) -> str:
    """Return a line of ipfw without the words that have no equivalent; empty if nothing is left."""
    if re.search(r"\b(from|to)\s+me6?\b", line):
        found.leave_out(line, "`me` is the host itself, which a bridge is not: name its address")
        return ""
    kept, words = [], iter(line.split())
    for word in words:
        if word in IPFW_WORDS and "add" in line.split():
            found.leave_out(word, IPFW_WORDS[word])
        elif word in IPFW_WAYS and "add" in line.split():
            way = IPFW_WAYS[word]
            kept.append(way)
            found.leave_out(f"{word}, in part", IPFW_ASSUMED.format(way=way))
        elif word in IPFW_PAIRS:
            found.leave_out(f"{word} {next(words, '')}".strip(), IPFW_PAIRS[word])
        else:
            kept.append(word)
    return " ".join(kept)


def refuse_alike(lines: list[str]) -> None:
    """Refuse two rules that differ only in the interface of the host: here the first would match all packets."""
    pair = r"\s+(?:via|recv|xmit)\s+\S+"
    seen: dict[str, tuple[str, list[str]]] = {}
    for line in lines:
        match = re.search(r"\badd\b.*?((?:\S+\s+)from\s.*)", line)
        if match is None:
            continue
        interfaces = re.findall(pair, match[1])
        other, others = seen.setdefault(" ".join(re.sub(pair, "", match[1]).split()), (line, interfaces))
        if others != interfaces:
            raise RequestError(
                f"--from: {brief(other)!r} and {brief(line)!r} differ in an interface of the host alone, which a "
                "bridge does not have: write `forward` and `backward`"
            )


def brief(text: str) -> str:
    """Return the text on one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}…"


def in_words(found: Translated) -> list[str]:
    """Return the translation as text."""
    said = [f"{one['name']}: {one['words'] or '(idle)'}" for one in found.pipes]
    said += ["", found.command]
    said += ["", "path.ipfw:", *(f"  {line}" for line in found.lines)] if found.lines else []
    said += ["", "no equivalent:"] if found.without else []
    return said + [f"  {one['words']}: {one['why']}" for one in found.without]
