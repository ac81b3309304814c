"""Ask OSV for advisories on the crates of Cargo.lock, as `uv audit` asks it for the libraries of uv.lock.

For machines without cargo-deny, which takes longer to build than Sojourn. Status 1: there is an advisory that deny.toml
does not ignore. Status 3: OSV cannot be reached, or gives no answer.
"""

from __future__ import annotations

import json
import sys
import tomllib
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OSV = "https://api.osv.dev"
SECONDS = 30
MOST_QUERIES = 1000
"""In one request, by OSV's documentation."""
MOST_BYTES = 10_000_000


def main(server: str = OSV, root: Path = ROOT) -> int:
    """Print every advisory, or why there is no answer; return the exit status."""
    crates = locked(tomllib.loads((root / "Cargo.lock").read_text()))
    ignored = ignored_by(tomllib.loads((root / "deny.toml").read_text()))
    try:
        found = [
            (name, version, advisory)
            for begin in range(0, len(crates), MOST_QUERIES)
            for name, version, advisory in asked(server, crates[begin : begin + MOST_QUERIES])
            if advisory not in ignored
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, HTTPException) as error:
        print(f"the database of advisories (OSV) gives no answer: {error}")
        return 3
    for name, version, advisory in found:
        print(f"{name} {version}: {advisory}, https://osv.dev/vulnerability/{advisory}")
    return 1 if found else 0


def locked(lock: dict[str, Any]) -> list[tuple[str, str]]:
    """Return name and version of every crate that comes from a registry."""
    return sorted((one["name"], one["version"]) for one in lock["package"] if "source" in one)


def ignored_by(deny: dict[str, Any]) -> set[str]:
    """Return the advisories that deny.toml ignores, each with a reason or alone."""
    listed = deny.get("advisories", {}).get("ignore", [])
    return {one["id"] if isinstance(one, dict) else one for one in listed}


def asked(server: str, crates: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Return crate, version and advisory, for every advisory on these crates."""
    queries = [{"package": {"ecosystem": "crates.io", "name": name}, "version": version} for name, version in crates]
    request = urllib.request.Request(
        f"{server}/v1/querybatch",
        data=json.dumps({"queries": queries}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        results = json.loads(answer.read(MOST_BYTES))["results"]
    if len(results) != len(crates):
        raise ValueError(f"{len(results)} results for {len(crates)} crates")
    return [
        (name, version, str(one["id"]))
        for (name, version), result in zip(crates, results, strict=True)
        for one in (result or {}).get("vulns", [])
    ]


if __name__ == "__main__":
    sys.exit(main())
