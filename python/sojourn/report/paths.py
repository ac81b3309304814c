"""The paths of a run in words: the wire, and every path that the plan gave a label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.devices import called
from sojourn.report.numbers import count

if TYPE_CHECKING:
    from sojourn.report.run import Run

WIRE = (
    "The path “wire” has as many links as a path through one device; a redirect in the kernel (tc mirred) joins them "
    "instead of a device. The path of a cascade has more links."
)


def path_words(run: Run) -> list[str]:
    """Return a line about the wire, and one about the paths with a label; empty if the run has neither."""
    labelled = [one for one in run.devices if ":" in one]
    told = [f"{one} is {_what(run, one)}" for one in labelled]
    return [*([WIRE] if "wire" in run.devices else []), *([f"Of the paths, {'; '.join(told)}."] if told else [])]


def _what(run: Run, device: str) -> str:
    rates = _rates(run, device)
    name = called(device)
    return name[0].lower() + name[1:] + (f" with links of {rates}" if rates else "")


def _rates(run: Run, device: str) -> str:
    """Return the rates of a path's links from A to B; empty if none has one."""
    paths: list[dict[str, Any]] = run.bed.get("stable", {}).get("bed", {}).get("paths", [])
    links = next((one.get("rated") or [] for one in paths if one.get("path") == device), [])
    told = [f"{count(one['rate_bps'] / 1e6)} Mbit/s" if one and one.get("rate_bps") else "no rate" for one in links]
    return ", ".join(told) if set(told) - {"no rate"} else ""
