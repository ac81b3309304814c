"""A method is a folder: a new one is found, run and reported with no other file edited."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from sojourn.errors import RequestError
from sojourn.methods import packages
from sojourn.plan import load_plan, studies
from sojourn.plan.types import ask_of

MAIN = "import sys; from sojourn.cli import main; sys.argv[0] = 'sojourn'; main()"

ASK = """
from sojourn.plan.ask import Ask, Limit
from sojourn.plan.probes import ProbePlan, combine, describe_probes, estimate_probes
from sojourn.plan.section import key, section
from sojourn.plan.trial import Trial
from sojourn.plan.values import duration, whole

@section
class ToyPlan:
    blocks: int = key(whole(1, 100), 3, "blocks of each cell")
    at_most_ns: int | None = key(duration(1, 10**12), None, "measuring ends in this time")

def expand(plan):
    cells = list(enumerate(combine(plan)))
    several = [(turn, cell, of) for turn in range(plan.toy.blocks) for cell, of in cells]
    return [Trial(n, "direct", turn, 0, cell, of, seed=n, count=10, batch=turn)
            for n, (turn, cell, of) in enumerate(several)]

ASK = Ask(
    sections={"probe": ProbePlan, "toy": ToyPlan},
    expand=expand,
    estimate=estimate_probes,
    check=lambda plan, given: None,
    describe=lambda plan: describe_probes(plan, expand(plan), ("direct",), 1),
    limit=Limit("toy", "blocks", 1),
    hypotheses=("toys-are-fun",),
    probes=True,
)
"""

MEASURE = """
from contextlib import contextmanager
from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.blocks import Blocks, open_prober, probed_blocks

class Toy(Blocks):
    def measure(self, trial):
        super().measure(trial)
        self.session.log("toy", block=trial.block, session=self.session.part.number)

@contextmanager
def opened(session, clock):
    with open_prober(session) as prober:
        yield Toy(session, prober)

MEASURE = Measure(opened, lambda folder, plan: probed_blocks(folder))
"""

ANALYSE = """
import polars as pl

from sojourn.analysis.rows import Row
from sojourn.analysis.samples import Sample
from sojourn.analysis.study import Study
from sojourn.statistics.interval import Interval

SAMPLES = {"toys": Sample("A toy.", {"block": (pl.Int64, "The number of its block.")})}

def study(run):
    blocks = [one["block"] for one in run.log if one.get("event") == "toy"]
    played = len(blocks)
    row = Row("direct", "toys", "count", Interval(float(played), None, None, 0.95, played), "1")
    toys = pl.DataFrame({"block": blocks}, schema=SAMPLES["toys"].own)
    return Study([row], [], f"{played} toys were played with", samples={"toys": toys})
"""

SHOW = """
from sojourn.report.parts import Key, Parts

PARTS = Parts(
    tables=(), figures=(), keys=lambda run: [Key("Toys", "6", "", ())], words=lambda run: ["We played."],
    results=("toys",),
)
"""

PLAN = """
[study]
name = "playing"
method = "toy"
hypotheses = ["toys-are-fun"]

[bed]
backend = "sim"
devices = []

[probe]
icmp_bytes = [64, 128]

[toy]
blocks = 3

[bed.lines.direct]
forward = { constant_ns = 5000 }
backward = { constant_ns = 5000 }
"""


@pytest.fixture
def toy(tmp_path: Path) -> dict[str, str]:
    """A distribution with one method, on the path of programs that have this environment."""
    package, info = tmp_path / "lib/toys", tmp_path / "lib/toys-1.0.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sojourn.methods]\ntoy = toys\n")
    for name, text in (("__init__", ""), ("ask", ASK), ("measure", MEASURE), ("analyse", ANALYSE), ("show", SHOW)):
        (package / f"{name}.py").write_text(text)
    (tmp_path / "toy.toml").write_text(PLAN)
    return os.environ | {"PYTHONPATH": str(tmp_path / "lib")}


def sojourn(environment: dict[str, str], *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", MAIN, *words]
    return subprocess.run(argv, env=environment, cwd=cwd, text=True, capture_output=True, check=False)


def test_method_of_another_package_works_including_its_report(toy: dict[str, str], tmp_path: Path) -> None:
    assert "toy" not in packages()
    shown = sojourn(toy, "run", "toy.toml", "--dry-run", "--set", "toy.blocks=2", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "4 blocks" in shown.stdout
    done = sojourn(toy, "run", "toy.toml", "--out", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["sentence"].startswith("Simulated, not measured: 6 toys were played with")
    assert "6 toys were played with" in (tmp_path / "run/report/index.html").read_text()
    assert pl.read_parquet(tmp_path / "run/analysis/samples/toys.parquet")["block"].to_list() == list(range(6))
    refused = sojourn(toy, "run", "toy.toml", "--set", "hypotheses=toys-are-fum", cwd=tmp_path)
    assert (refused.returncode, 'did you mean "toys-are-fun"?' in refused.stderr) == (2, True)
    again = sojourn(toy, "run", "--resume", "run", "--no-report", cwd=tmp_path)
    assert "nothing to measure" in again.stderr


def test_report_imports_no_measuring_code(toy: dict[str, str], tmp_path: Path) -> None:
    sojourn(toy, "run", "toy.toml", "--out", "run", "--no-report", cwd=tmp_path)
    program = (
        "import sys, atexit\n"
        "left = ('plan', 'bed', 'instruments', 'conduct', 'studies')\n"
        "of_left = lambda one: one.startswith(tuple(f'sojourn.{name}' for name in left)) or one in asks\n"
        "asks = ('toys.ask', 'toys.measure')\n"
        "atexit.register(lambda: print('LOADED', [one for one in sys.modules if of_left(one)]))\n" + MAIN
    )
    argv = [sys.executable, "-c", program, "report", "run"]
    done = subprocess.run(argv, env=toy, cwd=tmp_path, text=True, capture_output=True, check=True)
    assert "LOADED []" in done.stdout
    assert re.search(r"^Toys +6", done.stdout, re.MULTILINE), "the terminal shows its key numbers"


def test_plan_parsing_of_built_in_methods_imports_no_measuring_code() -> None:
    """All of them at once, in a process of their own: what their analysis and their report import, and no more."""
    program = (
        "import sys\nimport sojourn.analysis, sojourn.report\nfrom sojourn.methods import load, packages\n"
        "methods = [load(name, part) for name in packages() for part in ('analyse', 'show')]\n"
        "left = tuple(f'sojourn.{name}' for name in ('plan', 'bed', 'instruments', 'conduct', 'studies'))\n"
        "measures = ('.ask', '.measure', '.verifying')\n"
        "print(len(methods), [one for one in sys.modules if one.startswith(left) or one.endswith(measures)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True)
    assert done.stdout == f"{2 * len(packages())} []\n"


def test_a_hypothesis_that_the_method_cannot_test_is_refused() -> None:
    with pytest.raises(
        RequestError, match=r'study.hypotheses = "rate-independent": expected "md1" for study.method = one-way'
    ):
        load_plan("one-way", sets=["hypotheses=rate-independent"])
    with pytest.raises(RequestError, match=r'study.hypotheses = "md1": expected none for study.method = loss'):
        load_plan("loss", sets=["hypotheses=md1"])
    asked = {hypothesis for name, _ in studies() for hypothesis in load_plan(name).study.hypotheses}
    assert asked <= {hypothesis for method in packages() for hypothesis in ask_of(method).hypotheses}


def test_every_published_hypothesis_belongs_to_its_method() -> None:
    """What a method says that it tests, its analysis knows: as a key of a table, or by its own name."""
    root = Path(__file__).parents[2] / "python/sojourn"
    shared = (root / "analysis/hypotheses.py").read_text()
    for method, package in packages().items():
        own = root / "methods" / package.rpartition(".")[2]
        texts = [path.read_text() for path in own.glob("analyse*/**/*.py")] + [
            path.read_text() for path in own.glob("analyse.py")
        ]
        for hypothesis in ask_of(method).hypotheses:
            assert any(f'"{hypothesis}"' in text for text in [shared, *texts]), (method, hypothesis)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("round=3", "unknown key round: did you mean rounds?"),
        ("devices=brigde", 'did you mean "bridge"?'),
        ("schedule=poison", 'did you mean "poisson"?'),
        ("pairs.rouns=3", "unknown key pairs.rouns: expected pairs.rounds"),
        ("study.method=pair", 'did you mean "pairs"?'),
        ("backend=netsn", 'did you mean "netns"?'),
    ],
)
def test_misspelt_word_gets_a_suggestion(words: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        load_plan("bridge-latency", sets=[words])
    assert said in str(caught.value)


def test_unknown_key_is_refused_with_keys_of_the_same_method() -> None:
    with pytest.raises(RequestError) as caught:
        load_plan("one-way", sets=["trials.repetitions=3"])
    assert "truth" not in str(caught.value)
    assert "trials.rounds" in str(caught.value)


def test_times_may_be_hours_and_minutes() -> None:
    plan = load_plan("bridge-latency", sets=["pairs.at_most=1.5h", "pairs.block_at_most=2min"])
    assert (plan.pairs.at_most_ns, plan.pairs.block_at_most_ns) == (5_400_000_000_000, 120_000_000_000)
