"""Writes a plan back as TOML with every effective value: what a run folder keeps, and what `--resume` reads again.

Comments say what was asked and what each key means; [quick] is gone, because it has been applied or not.
"""

from __future__ import annotations

from typing import Any

import tomlkit
from tomlkit.items import Table

from sojourn.plan.keys import KEYS, SIZE_KEYS
from sojourn.plan.types import FLOOD_NS, Plan
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
        if section == "departures" and plan.study.method != "departures":
            continue
        document.add(section, section_table(section, values))
    if plan.bed.backend == "sim":
        bed = document["bed"]
        assert isinstance(bed, Table)
        bed.add("lines", lines_table(plan))
    return tomlkit.dumps(document)


def one_line(words: str) -> str:
    """A comment cannot hold a line break."""
    return " ".join(words.split())


def section_table(section: str, values: dict[str, Any]) -> Table:
    """One section, each key with its meaning."""
    table = tomlkit.table()
    for key, spec in KEYS.items():
        if key.startswith(f"{section}.") and values.get(key) is not None:
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


def effective_values(plan: Plan) -> dict[str, Any]:
    """Every key as a plan file writes it; None where there is nothing to write."""
    probe, pairs, departures, host = plan.probe, plan.pairs, plan.departures, plan.host
    values: dict[str, Any] = {}
    for section, part in (("study", plan.study), ("bed", plan.bed)):
        names = [key.split(".")[1] for key in KEYS if key.startswith(f"{section}.")]
        values |= {f"{section}.{name}": plain(getattr(part, name)) for name in names}
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
        "departures.tools": list(departures.tools),
        "departures.count": departures.count,
        "departures.at_most": as_duration(departures.at_most_ns),
        "departures.flood_count": departures.flood_count,
    }
    for name in ("prober_cpu", "responder_cpu", "fifo", "wait"):
        asked = getattr(host, name)
        values[f"host.{name}"] = "auto" if asked is None else asked
    return values


def plain(value: Any) -> Any:
    """A tuple as the list that TOML has."""
    return list(value) if isinstance(value, tuple) else value
