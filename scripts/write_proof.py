"""Writes the proof page, docs/reference/proof.md, and its lines in README.md from what suites left in a build folder.

`make proof` and `make soak` end with it. It reads each suite's log and record (scripts/parts.sh), the figures that
tests recorded (scripts/proof_figures.py), the verdicts of the studies, and what guests with other kernels were found to
do; it keeps them in docs/reference/proof.json, of which the page and the README's lines are laid out. Of a suite that
did not end, what an earlier proof found stays, with its commit and date; without one it is "not run". What `make soak`
found stays until another `make soak`. `--begin` opens a proof: which machine, which commit. `--check` changes nothing,
and is status 1 where the page or the README is not what proof.json says; `--lay-out` writes them from it. Runs no test.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts import fuzz_ledger
from scripts.proof_figures import SOAK, commit, today
from scripts.proof_page import NOT_RUN, outcome, page, with_lines
from sojourn.bed.machine import stable

ROOT = Path(__file__).resolve().parents[1]
FACTS = Path("docs/reference/proof.json")
PAGE = Path("docs/reference/proof.md")
README = Path("README.md")
GALLERY = Path("docs/gallery.md")

SUITE = re.compile(r"^suite(?:_beside|_side_by_side)? ([\w-]+)", re.MULTILINE)
ENDED = {"passed", "failed"}
COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)s?\b")
SEARCHED = re.compile(r"^(\S+) +Done (\d+) runs in (\d+) second", re.MULTILINE)
FOUND = re.compile(r"^(\S+) +FOUND: ", re.MULTILINE)


def main() -> int:
    """Write the page, check it, or begin a proof."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--begin", action="store_true", help="a proof begins: which machine, and which commit")
    which.add_argument("--check", action="store_true", help="change nothing; exit 1 if page or README is stale")
    which.add_argument("--failed", action="store_true", help="say which suites of the page failed; change nothing")
    which.add_argument("--lay-out", action="store_true", help="write page and README from the facts that are there")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the folder that the proof ran in")
    asked = parser.parse_args()
    if asked.begin:
        begin(asked.build)
        return 0
    if asked.failed:
        print("; ".join(failed(json.loads((ROOT / FACTS).read_text()))))
        return 0
    if asked.check or asked.lay_out:
        return laid_out(ROOT, check=asked.check)
    if not asked.build.is_dir() or not has_proof(facts := collected(asked.build.resolve())):
        print(
            f"write_proof: {asked.build} holds no proof: run `make proof`, or name a folder by --build", file=sys.stderr
        )
        return 2
    whole = with_earlier(facts, json.loads((ROOT / FACTS).read_text()))
    (ROOT / FACTS).write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return laid_out(ROOT, check=False)


def has_proof(facts: dict[str, Any]) -> bool:
    """Return whether a suite of the proof ran, or `make soak`."""
    return bool(ran(facts) or of_soak(facts["figures"]))


def ran(facts: dict[str, Any]) -> set[str]:
    """Return the names of the suites that ran."""
    return {one["name"] for one in facts["suites"] if one["outcome"] != NOT_RUN}


def ended(facts: dict[str, Any]) -> set[str]:
    """Return the names of the suites that ran to their end."""
    return {one["name"] for one in facts["suites"] if one["outcome"] in ENDED}


def of_soak(figures: list[dict[str, Any]], *, is_so: bool = True) -> list[dict[str, Any]]:
    """Return the figures of `make soak`, or all others."""
    return [one for one in figures if (one["suite"] == SOAK) == is_so]


def with_earlier(facts: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """Return a proof's results with those of earlier proofs, of the suites that did not run to their end this time."""
    then = {one["name"]: one for one in earlier["suites"]}
    kept = {one["name"] for one in facts["suites"]} & ended(earlier) - ended(facts)
    return facts | {
        "suites": [then[one["name"]] if one["name"] in kept else one for one in facts["suites"]],
        "fuzzing": (earlier if "proof-fuzz" in kept else facts)["fuzzing"],
        "figures": figures_with_earlier(facts["figures"], earlier["figures"], kept),
        "kernels": merged(facts["kernels"], earlier["kernels"], None, "kernel"),
        "verdicts": merged(facts["verdicts"], earlier["verdicts"], kept, "study", "suite"),
    }


def figures_with_earlier(now: list[dict[str, Any]], then: list[dict[str, Any]], kept: set[str]) -> list[dict[str, Any]]:
    """Return the figures of now, and those of then that are of suites that are kept, or of `make soak` and not anew."""
    key = ("kind", "what", "test")
    of_suites = merged(of_soak(now, is_so=False), of_soak(then, is_so=False), kept, *key)
    return sorted(of_suites + merged(of_soak(now), of_soak(then), None, *key), key=place)


def place(figure: dict[str, Any]) -> tuple[str, ...]:
    """Return what figures are sorted by."""
    return tuple(figure[name] for name in ("kind", "what", "test", "suite"))


def merged(
    now: list[dict[str, Any]], then: list[dict[str, Any]], kept: set[str] | None, *key: str
) -> list[dict[str, Any]]:
    """Return the entries of now, and those of then with another key, of the suites that are kept (None: of any)."""
    stay = [one for one in then if kept is None or one["suite"] in kept]
    found = {tuple(one[name] for name in key): one for one in stay}
    if kept is not None:
        now = [one for one in now if one["suite"] not in kept]
    found |= {tuple(one[name] for name in key): one for one in now}
    return [found[at] for at in sorted(found)]


def begin(build: Path) -> None:
    """Delete the last proof's figures and record the commit, date and machine of this one."""
    proof = build / "proof"
    for path in [*proof.glob("figures/*.json"), *(build / "suites").glob("proof-*.json")]:
        path.unlink()
    proof.mkdir(parents=True, exist_ok=True)
    told = {"date": today(), "commit": commit(ROOT), "machine": machine()}
    (proof / "began.json").write_text(json.dumps(told, indent=1) + "\n")


def laid_out(root: Path, *, check: bool) -> int:
    """Write the page and the README's lines from the facts; with `check`, report which of them is stale."""
    facts = json.loads((root / FACTS).read_text())
    facts["fuzzing"] = still_declared(facts["fuzzing"])
    alone = measured_alone((root / GALLERY).read_text())
    texts = {PAGE: page(facts), README: with_lines((root / README).read_text(), facts, alone)}
    stale = [path for path, text in texts.items() if not (root / path).exists() or (root / path).read_text() != text]
    for path in stale:
        print(f"{'stale, run `.venv/bin/python -m scripts.write_proof --lay-out`' if check else 'written'}: {path}")
        if not check:
            (root / path).write_text(texts[path])
    return 1 if check and stale else 0


def failed(facts: dict[str, Any]) -> list[str]:
    """Return the suites that failed, each with its date and how the second run of its failed tests ended."""
    return [
        f"{one['name']} of {one.get('date', '?')} {outcome(one)}"
        for one in facts["suites"]
        if one["outcome"] == "failed"
    ]


def still_declared(searched: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the searches of readers that are targets now: an earlier proof's may have been renamed or joined since."""
    declared = fuzz_ledger.targets()
    return [one for one in searched if one["target"] in declared]


def measured_alone(gallery: str) -> str:
    """Return the gallery's count of verdicts, such as "12 are doubtful and 32 are trusted"."""
    found = re.search(r"Of (\d+) verdicts, ([\w ,]+)\.", gallery)
    if found is None:
        raise SystemExit(f"{GALLERY}: expected how many verdicts of each kind it has")
    return f"{found[1]} archived runs, {found[2]}"


def collected(build: Path) -> dict[str, Any]:
    """Return the results of the proof in a build folder."""
    began = build / "proof/began.json"
    of = json.loads(began.read_text()) if began.is_file() else told_by_git(build)
    every = [suite(build, name, of["commit"]) for name in suites()]
    known = {one["name"] for one in every if one["outcome"] != NOT_RUN}
    return {
        **of,
        "suites": [one | (of if one["outcome"] != NOT_RUN else {}) for one in every],
        "fuzzing": searches(build, of["commit"]),
        "figures": [one for one in figures(build, of["commit"]) if one["suite"] in known | {SOAK}],
        "kernels": kernels(build, of),
        "verdicts": [one for one in verdicts(build) if one["suite"] in known],
    }


def told_by_git(build: Path) -> dict[str, Any]:
    """Return the folder's commit and this machine, for a proof whose beginning was not recorded."""
    logs = [path.stat().st_mtime for path in build.glob("proof-*.log")]
    date = datetime.fromtimestamp(max(logs), UTC).date().isoformat() if logs else today()
    return {"date": date, "commit": commit(build.parent), "machine": {**machine(), "is_the_pages": True}}


def machine() -> dict[str, Any]:
    """Return the properties of this machine that matter to a proof; its name is not among them."""
    told = stable()
    cpu, kernel = told["cpu"], told["kernel"]
    return {"cpu": cpu["model"], "cores": len(cpu["usable"]), "virtual": cpu["hypervisor"], "kernel": kernel["release"]}


# --- suites ----------------------------------------------------------------------------------------------------------


def suites() -> list[str]:
    """Return the names of the proof's suites, in the order in which they run."""
    return SUITE.findall((ROOT / "scripts/proof.sh").read_text())


def suite(build: Path, name: str, of: str) -> dict[str, Any]:
    """Return a suite's outcome, counts and seconds, including a second run of its failed tests."""
    log, record = build / f"{name}.log", build / "suites" / f"{name}.json"
    told = json.loads(record.read_text()) if record.is_file() else {}
    if not is_of(build, log, told, of):
        return {"name": name, "outcome": "not run"}
    text = log.read_text(errors="replace")
    counts = counts_of(text)
    ended = told.get("status", status_of(name, text, counts))
    found: dict[str, Any] = {"name": name, "outcome": "not ended" if ended is None else "failed" if ended else "passed"}
    found |= counts
    if (seconds := told.get("seconds", seconds_of(text))) is not None:
        found["seconds"] = seconds
    again = build / "suites" / f"{name}-again.json"
    if again.is_file() and (second := json.loads(again.read_text()))["commit"] == of:
        found["again"] = "failed" if second["status"] else "passed"
    return found


def is_of(build: Path, log: Path, told: dict[str, Any], of: str) -> bool:
    """Return whether a log belongs to the proof's commit: by its record, or without one by its time."""
    if not log.is_file():
        return False
    if told:
        return bool(told["commit"] == of)
    if (
        build / "proof/began.json"
    ).is_file():  # a suite that has no record there was begun by an earlier proof, or runs
        return log.stat().st_mtime >= (build / "proof/began.json").stat().st_mtime
    made = subprocess.run(
        ["git", "-C", str(build.parent), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    # The folder may have gone on to another commit while the suite ran: it is of the commit that it began on.
    began = log.stat().st_mtime - (seconds_of(log.read_text(errors="replace")) or 0)
    return made.returncode == 0 and began >= int(made.stdout)


def counts_of(text: str) -> dict[str, int]:
    """Return how many tests passed, failed and were skipped, from pytest's last line or all lines of cargo."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    if results := re.findall(r"^test result: .*? (\d+) passed; (\d+) failed;", text, re.MULTILINE):
        counts["passed"], counts["failed"] = (sum(int(one[place]) for one in results) for place in (0, 1))
        return counts
    if not (last := last_of_pytest(text)):
        return {}
    for number, word in COUNT.findall(last):
        counts["failed" if word == "error" else word] += int(number)
    return counts


def last_of_pytest(text: str) -> str:
    """Return the last line of pytest; empty if it has not ended or the log is not of pytest."""
    lines = text.rstrip().splitlines()[-1:]
    return lines[0] if lines and re.match(r"=+ .* in [\d.]+s", lines[0]) else ""


def seconds_of(text: str) -> int | None:
    """Return the time that pytest itself reports."""
    found = re.search(r" in ([\d.]+)s", last_of_pytest(text))
    return round(float(found[1])) if found else None


def status_of(name: str, text: str, counts: dict[str, int]) -> int | None:
    """Return the status of a suite without a record, from its log; None if the log has no end."""
    if name.endswith("fuzz"):
        last = text.rstrip().splitlines()[-1:]
        return None if not last or not last[0].startswith("fuzz: ") else int("nothing found" not in last[0])
    if re.search(r"^error(\[E\d+\])?: ", text, re.MULTILINE):
        return 1
    return int(bool(counts["failed"]) or not counts["passed"]) if counts else None


# --- what else was found ---------------------------------------------------------------------------------------------


def searches(build: Path, of: str) -> list[dict[str, Any]]:
    """Return each fuzzing target: inputs and seconds of one that completed; `found` for one with a failure."""
    if suite(build, "proof-fuzz", of)["outcome"] == "not run":
        return []
    text = (build / "proof-fuzz.log").read_text(errors="replace")
    clean = [{"target": name, "inputs": int(n), "seconds": int(s)} for name, n, s in SEARCHED.findall(text)]
    return clean + [{"target": name, "found": True} for name in FOUND.findall(text)]


def figures(build: Path, of: str) -> list[dict[str, Any]]:
    """Return the figures that tests recorded on this commit, and those of `make soak` on any, by kind and subject."""
    told = [json.loads(path.read_text()) for path in sorted((build / "proof/figures").glob("*.json"))]
    keys = ("kind", "what", "test", "suite", "numbers")
    ours = [
        {key: one[key] for key in (*keys, *(("commit", "date") if one["suite"] == SOAK else ()))}
        for one in told
        if one["commit"] == of or one["suite"] == SOAK
    ]
    return sorted(ours, key=place)


def kernels(build: Path, of: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the verdicts of `make kernels` on this commit."""
    path = build / "kernels/judged.json"
    told = json.loads(path.read_text()) if path.is_file() else {}
    found: list[dict[str, Any]] = told["kernels"] if told.get("commit") == of["commit"] else []
    return [one | {"commit": of["commit"], "date": of["date"]} for one in found]


def verdicts(build: Path) -> list[dict[str, str]]:
    """Return each study's verdict and sentence, with the suite that measured it."""
    told = [path.read_text().strip().split(": ", 3) for path in sorted((build / "verdicts").glob("*.txt"))]
    return [dict(zip(("suite", "study", "verdict", "sentence"), one, strict=True)) for one in told]


if __name__ == "__main__":
    sys.exit(main())
