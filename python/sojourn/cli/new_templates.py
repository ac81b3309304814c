"""The files that `sojourn new` writes: @NAME@ is the name, @MODULE@ the module. Hides nothing, decides nothing.

Each package is complete: its tests pass as written, and show how to test a change.
"""

from __future__ import annotations

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "sojourn-@NAME@"
version = "0.1.0"
description = "@NAME@: a @KIND@ for Sojourn"
requires-python = ">=3.11"
dependencies = ["sojourn"]

[project.entry-points."sojourn.@KIND@s"]
@NAME@ = "@MODULE@@OBJECT@"

[tool.hatch.build.targets.wheel]
only-include = ["@ONLY@"]
"""

DEVICE = '''\
"""The device "@NAME@": what stands between both hosts, and how it is built from a box with two ports.

As it is written, each port sends on what the other receives. Change `forward` to what your device does.
"""

from sojourn.devices import Box, Command, Mode, commands


def forward(box: Box) -> list[Command]:
    """Every frame that enters at one port leaves at the other: the commands of `tc`, one a line."""
    lines = []
    for come, go in ((box.left, box.right), (box.right, box.left)):
        lines.append(f"qdisc add dev {come.dev} clsact")
        lines.append(
            f"filter add dev {come.dev} ingress protocol all prio 1 u32 match u32 0 0"
            f" action mirred egress redirect dev {go.dev}"
        )
    return commands("tc", *lines)


DEVICE = Mode(
    name="@NAME@",
    title="The device @NAME@",
    box="@NAME@",
    tools={"tc": "iproute2"},
    fix="a kernel with CONFIG_NET_ACT_MIRRED and CONFIG_NET_CLS_U32: modprobe -a act_mirred cls_u32 sch_ingress",
    join=forward,
)
'''

DEVICE_TEST = '''\
"""The device "@NAME@" is found by Sojourn, builds both ways, and can be measured. Run after `pip install -e .`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sojourn.devices import modes

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
MEASURED = ("--set", "sessions=1", "--set", "pairs.rounds=6", "--set", "probe.icmp_bytes=64", "--no-report")


def test_it_is_found() -> None:
    assert modes()["@NAME@"].title == "The device @NAME@"


def test_a_study_takes_it() -> None:
    asked = [SOJOURN, "run", "bridge-latency", "--quick", "--set", "devices=@NAME@", "--dry-run", "--json"]
    shown = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
    assert "@NAME@" in shown["paths"]


@pytest.mark.skipif(os.geteuid() != 0, reason="lays network namespaces: root")
def test_frames_pass_it_both_ways(tmp_path: Path) -> None:
    asked = [SOJOURN, "run", "bridge-latency", "--quick", "--set", "devices=@NAME@", *MEASURED, "--out", "run"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 4}, done.stderr
    verdict = json.loads((tmp_path / "run/analysis/verdict.json").read_text())
    assert "The device @NAME@" in verdict["sentence"]
'''

METHOD = '"""The method "@NAME@": the mean round trip of each block of probes."""\n'

ASK = '''\
"""What a plan may ask of the method "@NAME@", and the trials that this makes."""

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.probes import ProbePlan, combine, describe_probes, estimate_probes
from sojourn.plan.section import key, section
from sojourn.plan.trial import Trial
from sojourn.plan.values import duration, whole

DIRECT = "direct"


@section
class Asked:
    """The section [@NAME@] of a plan."""

    blocks: int = key(whole(1, 1000), 10, "blocks of each cell")
    probes: int = key(whole(1, 10_000), 20, "probes of each block")
    at_most_ns: int | None = key(duration(1, 10**12), None, "measuring ends in this time")


def expand(plan):
    """Every block, in order: all cells once, then all cells again."""
    asked = plan.sections["@NAME@"]
    cells = [(turn, cell, of) for turn in range(asked.blocks) for cell, of in enumerate(combine(plan))]
    return [
        Trial(number, DIRECT, turn, 0, cell, of, seed=number, count=asked.probes, batch=turn)
        for number, (turn, cell, of) in enumerate(cells)
    ]


ASK = Ask(
    sections={"probe": ProbePlan, "@NAME@": Asked},
    expand=expand,
    estimate=estimate_probes,
    check=lambda plan, given: None,
    describe=lambda plan: describe_probes(plan, expand(plan), (DIRECT,), 1),
    limit=Limit("@NAME@", "blocks", 1),
    probes=True,
)
'''

MEASURE = '''\
"""How a trial of the method "@NAME@" is measured: a block of probes, asked of one long-lived prober."""

from contextlib import contextmanager

from sojourn.conduct.bench import Measure
from sojourn.conduct.blocks import Blocks, open_prober, probed_blocks


@contextmanager
def opened(session, clock):
    """What is up while trials are measured."""
    with open_prober(session) as prober:
        yield Blocks(session, prober)


MEASURE = Measure(opened, lambda folder, plan: probed_blocks(folder))
'''

ANALYSE = '''\
"""What the method "@NAME@" makes of its records: the mean round trip, the unit being the block."""

import polars as pl

from sojourn.analysis.rows import Row
from sojourn.analysis.study import Study
from sojourn.statistics.interval import student_t


def study(run):
    """One row for each cell, and the first of them as a sentence."""
    blocks = run.probes.filter(pl.col("rtt").is_not_null()).group_by("cell", "block").agg(pl.col("rtt").mean())
    rows = []
    for (cell,), own in sorted(blocks.group_by("cell")):
        rows.append(Row("direct", "rtt", "mean", student_t(own["rtt"].to_numpy().astype(float)), "ns", cell=cell))
    return Study(rows, [], f"The mean round trip is {rows[0].value.estimate:.0f} ns over {rows[0].value.n} blocks")
'''

SHOW = '''\
"""What the report of the method "@NAME@" consists of."""

from sojourn.report.parts import Key, Parts


def keys(run):
    """The number that stands large under the verdict."""
    first = run.results.row(0, named=True)
    return [Key("Mean round trip", f"{first['estimate']:.0f}", "ns", ())]


PARTS = Parts(tables=(), figures=(), keys=keys, words=lambda run: ["The unit is the block of probes."], results=())
'''

PLAN = """\
[study]
name = "@NAME@"
method = "@NAME@"
question = "How long is a round trip?"

[bed]
backend = "sim"
devices = []

[probe]
icmp_bytes = [64]

[@NAME@]
blocks = 10

[bed.lines.direct]
forward = { constant_ns = 5000 }
backward = { constant_ns = 5000 }
"""

METHOD_TEST = '''\
"""The method "@NAME@" is found by Sojourn, and reports the truth of a simulated line. Run after `pip install -e .`."""

import json
import subprocess
import sys
from pathlib import Path

from sojourn.methods import packages

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
PLAN = Path(__file__).with_name("@NAME@.toml")


def test_it_is_found() -> None:
    assert packages()["@NAME@"] == "@MODULE@"


def test_it_reports_the_round_trip_of_a_simulated_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [SOJOURN, "run", str(PLAN), "--out", "run", "--json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["results"]
    assert abs(row["estimate"] - 10_000) < 100, "5,000 ns each way"
    assert (tmp_path / "run/report/index.html").exists()
'''

FILES = {
    "device": {"pyproject.toml": PROJECT, "@MODULE@.py": DEVICE, "test_@MODULE@.py": DEVICE_TEST},
    "method": {
        "pyproject.toml": PROJECT,
        "@MODULE@/__init__.py": METHOD,
        "@MODULE@/ask.py": ASK,
        "@MODULE@/measure.py": MEASURE,
        "@MODULE@/analyse.py": ANALYSE,
        "@MODULE@/show.py": SHOW,
        "@NAME@.toml": PLAN,
        "test_@MODULE@.py": METHOD_TEST,
    },
}
