"""Writes a plan back as TOML with every effective value: what a run folder keeps, and what `--resume` reads again.

Comments say what was asked and what each key means; [quick] is gone, because it has been applied or not.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import tomlkit
from tomlkit.items import Table

from sojourn.devices import emulator_label
from sojourn.plan.costs import cost_values
from sojourn.plan.emulators import EVERY, emulator_tables, link_tables
from sojourn.plan.keys import KEYS, SECTIONS, SIZE_KEYS, reads
from sojourn.plan.rates import Rate
from sojourn.plan.streams import STREAM_SIZE_KEYS
from sojourn.plan.tcp import tcp_values
from sojourn.plan.types import FLOOD_NS, PAIR_METHODS, Plan
from sojourn.plan.values import as_duration


def effective_toml(plan: Plan) -> str:
    """The plan as a plan file."""
    document = tomlkit.document()
    document.add(
        tomlkit.comment("What was asked, and every effective value: a plan like any other, to copy and to edit.")
    )
    for words in plan.asked:
        document.add(tomlkit.comment(f"asked: {one_line(words)}"))
    values = effective_values(plan)
    for section in dict.fromkeys(key.split(".")[0] for key in KEYS):
        if section in SECTIONS[plan.study.method]:
            document.add(section, section_table(section, plan.study.method, values))
    if plan.bed.backend == "sim":
        part(document, "bed").add("lines", lines_table(plan))
    if plan.bed.links:
        part(document, "bed").add("links", tables_of(link_tables(plan.bed)))
    add_emulators(document, plan)
    return tomlkit.dumps(document)


def part(document: tomlkit.TOMLDocument, section: str) -> Table:
    """A section that is there already."""
    found = document[section]
    assert isinstance(found, Table)
    return found


def add_emulators(document: tomlkit.TOMLDocument, plan: Plan) -> None:
    """[emulate] and its labels; left out where there is no emulator."""
    if "emulate" not in document:
        return
    if not has_emulators(plan):
        del document["emulate"]
        return
    for label, table in tables_of(emulator_tables(plan)).items():
        if label != EVERY:
            part(document, "emulate").add(label, table)


def tables_of(named: dict[str, dict[str, Any]]) -> Table:
    """A table for each device or label, without what has no value."""
    table = tomlkit.table(is_super_table=True)
    for name, values in named.items():
        one = tomlkit.table()
        for key, value in values.items():
            if value is not None:
                one.add(key, value)
        table.add(name, one)
    return table


def one_line(words: str) -> str:
    """A comment cannot hold a line break."""
    return " ".join(words.split())


def section_table(section: str, method: str, values: dict[str, Any]) -> Table:
    """One section, each key with its meaning."""
    table = tomlkit.table()
    for key, spec in KEYS.items():
        if key.startswith(f"{section}.") and values.get(key) is not None and reads(method, key):
            item = tomlkit.item(values[key])
            item.comment(spec.meaning)
            table.add(key.split(".")[1], item)
    return table


def lines_table(plan: Plan) -> Table:
    """The simulated lines."""
    table = tomlkit.table(is_super_table=True)
    for device, line in plan.bed.lines.items():
        one = tomlkit.table()
        for field, value in line.items():
            inline = tomlkit.inline_table()
            if isinstance(value, dict):
                inline.update(value)
            one.add(field, inline if isinstance(value, dict) else value)
        table.add(device, one)
    return table


ELSEWHERE = ("bed.rate", "bed.link_rate", "bed.link_delay")
"""Keys of [bed] that are not written as they are held; links are written arm by arm."""


def effective_values(plan: Plan) -> dict[str, Any]:
    """Every key as a plan file writes it; None where there is nothing to write."""
    probe, pairs, departures, host = plan.probe, plan.pairs, plan.departures, plan.host
    values: dict[str, Any] = {}
    for section, part in (("study", plan.study), ("bed", plan.bed)):
        names = [key.split(".")[1] for key in KEYS if key.startswith(f"{section}.") and key not in ELSEWHERE]
        values |= {f"{section}.{name}": plain(getattr(part, name)) for name in names}
    values |= shaper_values(plan) | stream_values(plan) | trials_values(plan) | search_values(plan)
    values |= limits_values(plan) | cost_values(plan.costs) | tcp_values(plan)
    values |= {f"emulate.{key}": value for key, value in emulator_tables(plan)[EVERY].items()}
    values |= {
        "probe.probe": list(probe.probe),
        **{f"probe.{key}": list(probe.sizes) if key == probe.size_key else None for key in SIZE_KEYS},
        "probe.request_payload_bytes": probe.request_payload_bytes,
        "probe.interval": ["flood" if ns == FLOOD_NS else as_duration(ns) for ns in probe.intervals_ns],
        "probe.schedule": list(probe.schedule),
        "probe.timeout": as_duration(probe.timeout_ns),
        "pairs.rounds": pairs.rounds,
        "pairs.probes_per_block": pairs.probes_per_block,
        "pairs.warmup_probes": pairs.warmup_probes,
        "pairs.block_at_most": as_duration(pairs.block_at_most_ns) if pairs.block_at_most_ns else None,
        "pairs.at_most": as_duration(pairs.at_most_ns) if pairs.at_most_ns else None,
        "pairs.seed": pairs.seed,
        "pairs.a_a": pairs.a_a,
        "model.train": list(plan.model.train),
        "departures.tools": list(departures.tools),
        "departures.count": departures.count,
        "departures.at_most": as_duration(departures.at_most_ns),
        "departures.flood_count": departures.flood_count,
    }
    for name in ("prober_cpu", "responder_cpu", "fifo", "wait"):
        asked = getattr(host, name)
        values[f"host.{name}"] = "auto" if asked is None else asked
    return values


def shaper_values(plan: Plan) -> dict[str, Any]:
    """The parts of [bed] that probes alone have no use for are left out where nobody asked for them."""
    bed, streams = plan.bed, plan.study.method not in PAIR_METHODS
    values: dict[str, Any] = {"bed.rate": str(Rate("bit/s", Decimal(bed.rate_bps))) if bed.rate_bps else None}
    unused = ["near", "far", "decoy"] if not streams else []
    unused += ["shaper", "burst_bytes"] if bed.rate_bps is None else []
    unused += ["queue_bytes"] if bed.rate_bps is None and not bed.links else []
    return values | {f"bed.{key}": None for key in unused}


def stream_values(plan: Plan) -> dict[str, Any]:
    """[stream]."""
    stream = plan.stream
    same = (
        *("kind", "engine", "schedule", "to", "senders", "receivers", "load", "load_via", "load_frame_bytes"),
        *("load_schedule", "request_payload_bytes", "vlan", "pcp", "dscp"),
    )
    return {
        **{f"stream.{key}": plain(getattr(stream, key)) for key in same},
        **{f"stream.{key}": list(stream.sizes) if key == stream.size_key else None for key in STREAM_SIZE_KEYS},
        "stream.interval": None,
        "stream.rate": None,
        f"stream.{stream.rate_key}": [str(rate) for rate in stream.rates],
        "stream.late_after": as_duration(stream.late_after_ns),
        "stream.pipe": list(stream.pipe) if any(stream.pipe) else None,
        "stream.marks": list(stream.marks) or None,
    }


def trials_values(plan: Plan) -> dict[str, Any]:
    """[trials]."""
    trials = plan.trials
    same = ("rounds", "count_at_most", "probes", "seed", "a_a", "qualify", "keep")
    return {f"trials.{key}": getattr(trials, key) for key in same} | {
        "trials.duration": as_duration(trials.duration_ns),
        "trials.settle": as_duration(trials.settle_ns),
        "trials.at_most": as_duration(trials.at_most_ns) if trials.at_most_ns else None,
    }


def limits_values(plan: Plan) -> dict[str, Any]:
    """[limits]."""
    times = {key: getattr(plan.limits, f"{key}_ns") for key in ("offset", "p50", "p99", "p999")}
    shares = {key: getattr(plan.limits, key) for key in ("rate", "cdf")}
    return {f"limits.{key}": None if nanos is None else as_duration(nanos) for key, nanos in times.items()} | {
        f"limits.{key}": share for key, share in shares.items()
    }


def search_values(plan: Plan) -> dict[str, Any]:
    """[search]."""
    search = plan.search
    same = (
        *("tests", "algorithm", "goals", "width", "exceed_ratio", "repetitions", "verify_loss"),
        *("latency_repetitions", "loss_step", "burst_repetitions", "most_addresses"),
    )
    times = ("initial_duration", "duration", "duration_sum", "latency_duration", "burst")
    return {
        **{f"search.{key}": plain(getattr(search, key)) for key in same},
        **{f"search.{key}": as_duration(getattr(search, f"{key}_ns")) for key in times},
        "search.max_rate": "auto" if search.max_rate is None else str(search.max_rate),
        "search.at_most": as_duration(search.at_most_ns) if search.at_most_ns else None,
    }


def has_emulators(plan: Plan) -> bool:
    """Whether any device of the plan is an emulator."""
    return any(emulator_label(device) is not None for device in plan.bed.devices)


def plain(value: Any) -> Any:
    """A tuple as the list that TOML has."""
    return list(value) if isinstance(value, tuple) else value
