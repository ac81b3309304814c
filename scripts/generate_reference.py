"""Writes docs/reference and docs/studies from the programs themselves; `--check` only says which pages are stale.

Records from `sojourn-instrument schema`, the one declaration (crates/record); findings from it and from
`sojourn.records.findings`; commands from their help; rights from
`sojourn-instrument rights`, the table of crates/rights.
Hides how a page is laid out; decides nothing about what is in it.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import polars as pl
import tomlkit

import sojourn.analysis.streams
from sojourn.analysis.samples import FACTORS, Columns, Sample
from sojourn.cli.kept import KEPT
from sojourn.cli.printed import schemas
from sojourn.methods import load, packages
from sojourn.plan.load import sections_of
from sojourn.plan.section import Declared, keys_of, takes_auto
from sojourn.plan.types import ask_of
from sojourn.records import FINDINGS
from sojourn.records.budgets import BUDGETS, COMPONENTS
from sojourn.records.results import RESULTS, SETTINGS

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / ".venv/bin"
METHODS = sorted(packages())

COMMANDS: tuple[tuple[str, ...], ...] = (
    (),
    ("run",),
    ("report",),
    ("compare",),
    ("history",),
    ("list",),
    ("doctor",),
    ("bed",),
    ("bed", "new"),
    ("bed", "check"),
    ("bed", "show"),
    ("bed", "clean"),
    ("bridge",),
    ("bridge", "up"),
    ("bridge", "status"),
    ("bridge", "down"),
    ("lab",),
    ("uplink",),
    ("probe",),
    ("probe", "icmp"),
    ("probe", "udp"),
    ("probe", "raw"),
    ("probe", "sim"),
    ("probe", "respond"),
    ("probe", "blocks"),
    ("stamp",),
    ("stamp", "send"),
    ("stamp", "reflect"),
    ("stream",),
    ("stream", "send"),
    ("stream", "recv"),
    ("stream", "serve"),
    ("stream", "sim"),
    ("clock",),
    ("clock", "sim"),
    ("capture",),
    ("capture", "serve"),
    ("dataset",),
    ("emulate",),
    ("emulate", "run"),
    ("emulate", "set"),
    ("emulate", "show"),
    ("emulate", "ask"),
    ("emulate", "replay"),
    ("emulate", "recover"),
    ("emulate", "offline"),
    ("emulate", "kernel"),
    ("emulate", "explain"),
    ("emulate", "verify"),
    ("match",),
    ("tcplog",),
    ("tcplog", "run"),
    ("tcplog", "status"),
    ("tcplog", "set"),
    ("tcplog", "watch"),
    ("tcplog", "serve"),
    ("tcplog", "recover"),
    ("tcplog", "receive"),
    ("tcplog", "top"),
    ("tcplog", "plot"),
    ("tcplog", "convert"),
    ("tcplog", "summary"),
    ("why",),
    ("timeline",),
    ("watch",),
    ("export",),
    ("new",),
)


def main() -> int:
    """Write every stale file, or with `--check` name them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if anything is stale")
    check = parser.parse_args().check
    require_current()
    stale = [path for path, text in generated().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{'stale, run `make docs`' if check else 'written'}: {path.relative_to(ROOT)}")
    if check:
        return 1 if stale else 0
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


def require_current() -> None:
    """Exit if the installed instrument is older than its sources, as far as git knows."""
    sources = ["--", "crates", "Cargo.lock"]
    last = subprocess.run(
        ["git", "log", "-1", "--format=%ct", *sources], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if last.returncode != 0 or not last.stdout.strip():
        return
    edited = [ROOT / line[3:] for line in output(["git", "status", "--porcelain", *sources]).splitlines()]
    newest = max([int(last.stdout), *(path.stat().st_mtime for path in edited if path.is_file())])
    if (BIN / "sojourn-instrument").stat().st_mtime < newest:
        sys.exit("generate: the installed instrument is older than the crates: run `make setup`")


def generated() -> dict[Path, str]:
    """Return each page with its content."""
    from scripts.reference_python import page as python_page
    from scripts.study_pages import study_pages

    schema = json.loads(output([str(BIN / "sojourn-instrument"), "schema"]))
    reference = ROOT / "docs/reference"
    return {
        reference / "records.md": records_page(schema),
        reference / "findings.md": findings_page(),
        reference / "results.md": results_page(),
        reference / "samples.md": samples_page(),
        reference / "plans.md": plans_page(),
        reference / "commands.md": commands_page(),
        reference / "python.md": python_page(),
        reference / "rights.md": rights_page(json.loads(output([str(BIN / "sojourn-instrument"), "rights"]))),
        **{reference / f"schemas/{name}.json": json.dumps(one, indent=1) + "\n" for name, one in schemas().items()},
        ROOT / "python/sojourn/report/templates/glossary.json": glossary(reference / "vocabulary.md"),
        **study_pages(),
    }


def glossary(vocabulary: Path) -> str:
    """Return the words of docs/reference/vocabulary.md with their meanings, for reports."""
    rows = re.findall(r'^\| <a id="[\w-]+"></a>(.+?) \| (.+?) \|$', vocabulary.read_text(), re.MULTILINE)
    plain = {term: re.sub(r" \(\[[^]]*\]\([^)]*\)\)", "", meaning).replace("`", "") for term, meaning in rows}
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


RIGHTS_BEGINNING = """# Rights

<!-- Generated by scripts/generate_reference.py from crates/rights/src/table.rs: change it there. -->

What each command needs, and until when. It is started with all that its user has, opens what needs a right, and then
gives up for good what its table does not keep until its end: the permitted, effective, inheritable, ambient and
bounding sets hold nothing but that, no new privileges come by what is executed (`NoNewPrivs`), and the kernel refuses
other system calls (`Seccomp`) and, where it has Landlock, other places to write to. `/proc/PID/status` of a running
command says so, and tests compare it with these tables. A command that an ordinary user starts has what that user has,
and gives up as much; with the rights of its table alone it is set up as root's is, which a test does with each.

Root's set-up also uses CAP_SETUID and CAP_SETGID to become another user, CAP_SETPCAP to empty the bounding set,
CAP_CHOWN to give records to who called sudo, and CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH to open files of other users:
until it is set up, but where a table says otherwise.

What is not listed here keeps what its user has, for as long as it runs: `bed`, `doctor`, `dataset`, `clock --plot`,
`match` of data sets, `tcplog top`.

**Analysis and reports.** `report`, and `run` and `emulate verify` once all is measured, need no right. Root has them
done by a program that keeps CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH alone, in its bounding set, too (where root may
empty that), and gains none (`NoNewPrivs`). It stays root, for the folder is root's meanwhile. Where the kernel has
Landlock, it can write and remove in the run folder alone, and (from Linux 6.12 on) signal no other process. By seccomp
it is refused sockets, io_uring, modes and attributes of files, namespaces, and limits and memory of other processes, on
x86-64, arm64 and riscv64. It is in a session of its own, without a terminal. What is left to it are the times of root's
files. `import sojourn` analyses in the process of its caller.

**`sojourn watch`** needs no right either: root becomes `nobody` with CAP_DAC_READ_SEARCH, and Landlock leaves reading
alone.

**`run`, `lab`, `emulate verify`** need their rights until all is measured, and as root stay root with all that root
has, for boxes and devices are programs of the user, which may need any. The instruments that they start give up what
their own tables say. An instrument's table may list more rights than the rows below: the instrument has those only if
who started the command has them. Without root, `run` and `lab` have their three rights in a user namespace of their
own.

**Other commands of root's** that Python implements keep what the second table says, from their start to their end, in
every set, and gain nothing by what they execute; Landlock restricts none of them, for their options name the files
that they write. `uplink` and `bridge` are for root alone.

| command | right | for | until |
|---|---|---|---|
| `run`, `lab` with network namespaces | `CAP_SYS_ADMIN` | making and entering the namespaces | its end |
| | `CAP_NET_ADMIN` | links, addresses, neighbours, qdiscs and sysctls in them | its end |
| | `CAP_NET_RAW` | packet sockets of the instruments | its end |
| `emulate run --backend kernel` | `CAP_NET_ADMIN` | `tc`; a shell that removes the qdiscs however it ends | its end |
| | `CAP_NET_RAW` | the mark at its ports that keeps other users' emulators away | its end |
| `bed check`, `run` on real hosts | none here | on those hosts they are root, or `sudo -n` | their end |
"""

FOR_WHAT = """
CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER are for files of other users, and to give files to who
called sudo; CAP_SETUID, CAP_SETGID, CAP_SETPCAP and CAP_KILL for programs that are started as another user or give up
rights, and to end them; CAP_SYS_PTRACE to read the environment of other users' processes, in which the SSH session is
named whose port must not be taken; CAP_SYS_MODULE to load br_netfilter; CAP_NET_ADMIN for links, qdiscs and rules; the
others for the emulator. `report --pdf` keeps all but for its analysis: it starts a browser as another user, whose
sandbox may be a set-user-ID program.
"""

COMMAND_OF_A_LOG = """
## COMMAND of `tcplog run`

COMMAND runs as who called `sudo`, else as the user that runs the logger, or as `--user NAME`: that user's groups,
`HOME`, `USER`, `LOGNAME`, `SHELL` and `MAIL`, and no capability in any set unless that user is root. Its bounding set
and `NoNewPrivs` are the caller's, so that the user's own `sudo` works in it.

Who called `doas` or `pkexec` is treated as who called `sudo`, here and everywhere in this page, by the command
`sojourn`; `sojourn-instrument`, when it is called directly, knows the caller of `sudo` alone.

## Without root

A program on which file capabilities are set has them for whoever may run it. Give them to a copy that the members of
a group alone may run, as dumpcap is installed; `sojourn doctor` complains of any other:

```
sudo groupadd --system sojourn
sudo install -D -o root -g sojourn -m 0750 $(command -v sojourn-instrument) /usr/local/libexec/sojourn-instrument
sudo setcap cap_net_raw,cap_sys_nice,cap_ipc_lock=ep /usr/local/libexec/sojourn-instrument
sudo usermod -aG sojourn $USER
```

Who is in that group can read all traffic of the machine. Programs in the kernel (`--engine xdp`, `live`, `tcplog`)
also need `cap_bpf,cap_perfmon,cap_net_admin`, with which one can do nearly as much as root: start those by `sudo`, or
as a service.

## Real time

`probe` and `stream send` under `--fifo`, `--wait spin` included, leave the processor free for 3 of each 40 ms, so
that neither the kernel's real-time throttle stops them nor its own threads starve. Under `--fifo` a responder, a
reflector and a receiver sleep until a frame comes; under a flood, which leaves nothing to wait for, they rest as long
as those do, and frames wait in their sockets. A responder that spins would rest under any load, and let requests wait:
there `--fifo --wait spin` is refused. An emulator that is too busy gives its priority up.
"""


def rights_page(commands: list[dict[str, Any]]) -> str:
    """docs/reference/rights.md."""
    parts = [RIGHTS_BEGINNING, _kept_by_python()]
    for command in commands:
        why = f": {command['why']}" if command["why"] else ""
        rights = [f"| `{one['right']}` | {one['purpose']} | {one['until']} |\n" for one in command["rights"]]
        table = "| right | for | until |\n|---|---|---|\n" + "".join(rights) if rights else "No right.\n"
        parts.append(
            f"\n## {command['command']}\n\n{table}"
            f"\nBefore, with all rights: {command['set_up']}. Started by root, it is then {command['user']}{why}.\n"
            f"It may write by name: {command['writes']}. System calls: {'; '.join(command['calls'])}.\n"
        )
    return "".join(parts) + COMMAND_OF_A_LOG


def _kept_by_python() -> str:
    """The table of what root's commands in Python keep."""
    by_kept: dict[frozenset[str], list[str]] = {}
    for command, capabilities in KEPT.items():
        by_kept.setdefault(capabilities, []).append(f"`{command}`")
    rows = [
        f"| {', '.join(commands)} | {', '.join(f'`{one}`' for one in sorted(kept))} |\n"
        for kept, commands in by_kept.items()
    ]
    return "\n| root's command | keeps |\n|---|---|\n" + "".join(rows) + FOR_WHAT


def records_page(schema: dict[str, Any]) -> str:
    """docs/reference/records.md."""
    parts = [
        "# Records",
        "",
        "Generated by `make docs` from `sojourn-instrument schema`. Each table is an Arrow IPC stream in a run",
        "folder's `records/`, one file per process (`probes-000.arrow`, …), one batch per block. Tables of streams",
        "are written at both ends, and their files say who wrote them (`sends-a-000.arrow`). Unit, clock and source",
        "of each field stand in its metadata too. Times are plain `int64` nanoseconds.",
    ]
    for table, body in schema["tables"].items():
        parts += ["", f"## {table}", "", "| field | type | unit | clock | meaning |", "|---|---|---|---|---|"]
        for field in body["fields"]:
            kind = field["type"] + (", may be null" if field["nullable"] else "")
            kind += f", since version {field['since']}" if field["since"] > 1 else ""
            kind += f", formerly `{field['was']}`" if "was" in field else ""
            cells = (f"`{field['name']}`", kind, field["unit"], field["clock"] or "", field["doc"])
            parts.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(parts) + "\n"


def findings_page() -> str:
    """docs/reference/findings.md."""
    parts = [
        "# Findings",
        "",
        "Generated by `make docs`. A *note* is worth knowing, a *doubtful* result wants a second look before it is",
        "believed, an *invalid* one must not be used (exit status 4).",
        "",
        "| finding | severity | meaning |",
        "|---|---|---|",
    ]
    parts += [f"| `{one.name}` | {one.severity} | {one.doc} |" for one in FINDINGS.values()]
    return "\n".join(parts) + "\n"


def results_page() -> str:
    """docs/reference/results.md."""
    parts = [
        "# Results",
        "",
        "Generated by `make docs`. `analysis/results.parquet` and `results.json` have one row for each figure of a",
        "run. Every run has all of these columns with the same types, so that runs can be put one below the other.",
        "[Samples](samples.md) are what figures draw.",
        "",
        *column_table(RESULTS),
    ]
    parts += ["", "In `results.parquet` every run also has these, in `results.json` runs of TCP alone:", ""]
    parts += column_table(SETTINGS)
    parts += ["", "## Uncertainty budgets", "", "`analysis/budgets.json` has one object for each headline figure:", ""]
    parts += named_table(BUDGETS)
    parts += ["", "Each of its components has:", "", *named_table(COMPONENTS)]
    of_streams = str(sojourn.analysis.streams.__doc__)
    parts += ["", "## Streams", ""]
    parts += [of_streams[of_streams.index("Quantities (") :].strip(), ""]
    parts += ["## Methods", "", "What each method's figures are, with its own quantities.", ""]
    for method in METHODS:
        analysis = importlib.import_module(f"sojourn.methods.{method.replace('-', '_')}.analyse")
        said = inspect.cleandoc(str(analysis.__doc__)).removeprefix(f'Method "{method}": ')
        parts += [f"### `{method}`", "", said[:1].upper() + said[1:], ""]
    return "\n".join(parts)


def samples_page() -> str:
    """docs/reference/samples.md: every table that an analysis of any method writes, as its code declares it."""
    parts = [
        "# Samples",
        "",
        "Generated by `make docs`. `analysis/samples/*.parquet` are what the report's figures draw: distributions and",
        "series over time are thinned. Each file has exactly the columns that are named here. The first sentence says",
        "what a row is.",
        "",
        "## Factors of a cell",
        "",
        "Tables that say so have these columns, too. Factors that the cell does not have are null.",
        "",
        *column_table(FACTORS),
    ]
    for name, kinds in sorted(declared_samples().items()):
        parts += ["", f"## {name}"]
        for sample, methods in kinds:
            more = " The factors of the cell follow." if sample.with_factors else ""
            of = ", ".join(f"`{one}`" for one in methods)
            parts += ["", f"{sample.rows}{more} Written by {of}.", "", *column_table(sample.columns)]
    return "\n".join(parts) + "\n"


def declared_samples() -> dict[str, list[tuple[Sample, list[str]]]]:
    """Return the declarations of each table, with the methods that share it."""
    found: dict[str, list[tuple[Sample, list[str]]]] = {}
    for method in METHODS:
        for name, sample in getattr(load(method, "analyse"), "SAMPLES", {}).items():
            kinds = found.setdefault(name, [])
            alike = next((methods for other, methods in kinds if other == sample), None)
            if alike is None:
                kinds.append((sample, [method]))
            else:
                alike.append(method)
    return found


def column_table(columns: Columns) -> list[str]:
    """Return columns with types and meanings as the lines of a table."""
    lines = (f"| `{name}` | {pl.Schema({name: kind})[name]} | {doc} |" for name, (kind, doc) in columns.items())
    return ["| column | type | meaning |", "|---|---|---|", *lines]


def named_table(meanings: dict[str, str]) -> list[str]:
    """Return names and meanings as the lines of a table."""
    return ["| name | meaning |", "|---|---|", *(f"| `{name}` | {doc} |" for name, doc in meanings.items())]


def plans_page() -> str:
    """docs/reference/plans.md: every key, with its default."""
    sections: dict[str, type] = {}
    for method in METHODS:
        sections |= sections_of(method)
    parts = [
        "# Plans",
        "",
        "Generated by `make docs` from the plan's own declaration. A plan is a TOML file; unknown keys and wrong",
        "values are refused with their line. Of several size keys in a section one is given, and of `interval` and",
        "`rate` one. Keys of `[quick]`, quoted and dotted, are what `--quick` changes, those of `[full]` what `--full`",
        "does; `[bed.lines.<device>]` is a simulated line (`--bed sim`), `[bed.links.<path>]` has `rate` and `delay`",
        "of a path's cables from A to B, and `[emulate.<label>]` the keys of `[emulate]` for the device",
        "`emulate:<label>`. `[bed.boxes.<label>]` describes the device `box:<label>`, which a program of yours builds",
        "(`up`, `down`, `within`, `routed`); `bed.device` is one such box, or a device's name",
        "([guide](../guide/devices.md)).",
        "Lists are factors: every combination of their values is a cell. A rate is in",
        'frames ("10kpps"), in bits of frames with their FCS ("100Mbit/s") or a share of the path\'s own measured',
        'throughput ("50%"). A key without a meaning for the method is refused; these sections belong to each:',
        "",
        "| method | sections |",
        "|---|---|",
        *(f"| `{method}` | {', '.join(f'`[{name}]`' for name in sections_of(method))} |" for method in METHODS),
        "",
        "A method tests these published hypotheses, as `study.hypotheses`; any other is refused:",
        "",
        "| method | hypotheses |",
        "|---|---|",
        *(
            f"| `{method}` | {', '.join(f'`{one}`' for one in several)} |"
            for method in METHODS
            if (several := ask_of(method).hypotheses)
        ),
    ]
    for name, kind in sections.items():
        parts += ["", f"## [{name}]", "", "| key | meaning | default |", "|---|---|---|"]
        for key, declared in keys_of(kind).items():
            parts.append(f"| `{key}` | {declared.key.meaning} | {default_of(declared)} |")
    return "\n".join(parts) + "\n"


def default_of(declared: Declared) -> str:
    """Return a key's default in the notation of a plan; empty if it has none."""
    reader = declared.key.reader
    if declared.default is MISSING or (declared.default is None and not takes_auto(reader)):
        return ""
    return f"`{tomlkit.item(reader.write(declared.default)).as_string()}`"


def commands_page() -> str:
    """docs/reference/commands.md: every help text, as printed on a terminal of 100 columns."""
    parts = ["# Commands", "", "Generated by `make docs` from the programs' own help."]
    for command in COMMANDS:
        shown = " ".join(("sojourn", *command))
        text = output([str(BIN / "sojourn"), *command, "--help"]).strip("\n")
        body = "\n".join(line.rstrip() for line in text.splitlines())
        parts += ["", f"## `{shown}`", "", "```text", body, "```"]
    return "\n".join(parts) + "\n"


def output(command: list[str]) -> str:
    """Return a command's output; exit with its error if it fails."""
    plain = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "TERMINAL_WIDTH": "100"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=plain)
    if done.returncode != 0:
        sys.exit(f"generate: {' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
