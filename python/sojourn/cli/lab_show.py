"""Descriptions of a laboratory: its first line, and everything that it would build (`sojourn lab --show`).

Builds nothing and starts nothing.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from sojourn.bed import Topology
from sojourn.labs.lab import DEVICE, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DIRECTIONS = {"forward": "near to far", "backward": "far to near"}
IDLE = "nothing happens to packets"

MOST_LATE = 0.01
"""The share of a direction's packets above which their lateness is a warning."""


def in_force(explained: Mapping[str, Any], seed: int) -> str:
    """Return one line: what happens to packets in each direction, or in each pipe of a file."""
    words = {str(pipe["name"]): str(pipe["words"]) or IDLE for pipe in explained["pipes"]}
    if not _is_one_a_direction(explained):
        told = "; ".join(f"{name}: {of}" for name, of in words.items()) or IDLE
    elif words["forward"] == words["backward"]:
        told = f"in each direction: {words['forward']}"
    else:
        told = "; ".join(f"{where}: {words[name]}" for name, where in DIRECTIONS.items())
    return f"{told}; seed {seed}"


def shown(explained: Mapping[str, Any], *, mtu: int, seed: int, command: Sequence[str], peer: str | None) -> str:
    """Return namespaces, interfaces, links, and the stages of each pipe in their order."""
    return "\n".join(
        [
            *_built(mtu, shlex.join(command) or "a shell", peer or ("nothing" if command else "a shell")),
            *(line for pipe in explained["pipes"] for line in _pipe(pipe, named=_is_one_a_direction(explained))),
            *_rules(explained),
            f"seed {seed}; nothing was built",
        ]
    )


def _built(mtu: int, near: str, far: str) -> Iterator[str]:
    link = Topology.of_spec(spec_of(mtu)).link(DEVICE)
    station = link.stations[0]
    a, b, left, right = link.a_port, link.b_port, station.left.dev, station.right.dev
    yield "three network namespaces, removed at the end:"
    for name, port, runs in (("near", a, near), ("far", b, far)):
        yield f"  {name:<8}{port.dev}: {port.ip4}/24, {port.ip6}/64; runs {runs}"
    yield f"  {'between':<8}{left} and {right}, without addresses; runs the emulator, which alone joins them"
    yield f"two links (veth pairs, MTU {mtu}, no offloads): {a.dev} – {left} and {right} – {b.dev}"


def _is_one_a_direction(explained: Mapping[str, Any]) -> bool:
    """Return whether each direction has its pipe, and no rule changes that: the names alone do not show it."""
    return not explained["rules"] and {str(pipe["name"]) for pipe in explained["pipes"]} == set(DIRECTIONS)


def _pipe(pipe: Mapping[str, Any], *, named: bool) -> Iterator[str]:
    name = str(pipe["name"])
    where = f" ({DIRECTIONS[name]})" if named else ""
    busy = [one for one in pipe["stages"] if one["words"]]
    yield f"pipe {name}{where}" + (", in the order of a packet's way:" if busy else f": {IDLE}")
    width = max((len(one["stage"]) for one in busy), default=0)
    for one in busy:
        yield f"  {one['stage']:<{width}}  {one['words']}"


def _rules(explained: Mapping[str, Any]) -> Iterator[str]:
    """Return which packets use which pipe, unless there is one for each direction."""
    if explained["rules"]:
        yield "which packets take which pipe, the first rule that matches:"
        yield from (f"  {rule}" for rule in explained["rules"])


def passed(report: Mapping[str, Any]) -> Iterator[str]:
    """Return a sentence for each direction with packets, and one more if many were late."""
    budget = time_of(report.get("budget_ns", 0))
    for pipe in report.get("pipes", []):
        if not pipe["arrived"]:
            continue
        lost, accuracy = sum(pipe["lost"].values()), pipe["accuracy"]
        late = ""
        if accuracy["count"]:
            late = f"; departures off by {time_of(accuracy['p50_ns'])} (median), {time_of(accuracy['p99_ns'])} (p99)"
        yield f"{pipe['name']}: {lost} of {pipe['arrived']} packets lost ({lost / pipe['arrived']:.2%}){late}"
        if accuracy["late"] > MOST_LATE * accuracy["count"]:
            yield (
                f"! {pipe['name']}: {accuracy['late']} of {accuracy['count']} packets left more than {budget} too "
                f"late, one by {time_of(accuracy['max_ns'])}: the path delayed more than it was asked to"
            )


def time_of(ns: float) -> str:
    """Return a time in a suitable unit."""
    return f"{ns / 1e6:.3g} ms" if abs(ns) >= 1e6 else f"{ns / 1e3:.3g} µs"
