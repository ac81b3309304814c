"""Every study runs `--quick` on a bed whose hosts share no file with the conductor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sojourn import studies
from sojourn.bed.cores import program
from sojourn.bed.model import BedSpec, Topology
from tests.net import own_files

STUDIES = sorted(path.stem for path in Path(studies.__file__).parent.glob("*.toml"))
SHORT = ("bridge-latency", ("pairs.rounds=4", "bed.sessions=2", "probe.icmp_bytes=64"))
"""Few rounds of one study, in two sessions; all studies, as they are, are proof."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts of a host's own need root")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A distribution whose entry point is the backend of own_files.py."""
    folder = tmp_path / "site"
    about = folder / "own_files-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-files\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[sojourn.backends]\nown-files = own_files:OwnFiles\n")
    (folder / "own_files.py").write_text(Path(__file__).with_name("own_files.py").read_text())
    return folder


def test_programs_and_files_of_ours_reach_a_host_that_shares_none(tmp_path: Path) -> None:
    topology = Topology.of(("bridge",))
    backend = own_files.OwnFiles(f"lend-{os.getpid()}")
    mine = tmp_path / "words.txt"
    mine.write_text("delay 5ms")
    try:
        backend.open(topology, BedSpec())
        lent = backend.lend("b", mine)
        assert backend.run("b", ["cat", str(lent)]) == "delay 5ms"
        assert not lent.exists(), "the conductor's own file was handed out"
        (program_of_ours := tmp_path / "program.py").write_text("import sys; print(sys.argv[1])")
        assert backend.run("d", [*program(backend, "d", program_of_ours), "heard"]) == "heard\n"
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("study", "sets"),
    [
        pytest.param(*SHORT, id=f"{SHORT[0]}-short"),
        *(pytest.param(study, (), id=study, marks=pytest.mark.proof) for study in STUDIES),
    ],
)
def test_a_study_runs_where_hosts_have_files_of_their_own(
    study: str, sets: tuple[str, ...], site: Path, tmp_path: Path
) -> None:
    command = [str(Path(sys.executable).with_name("sojourn")), "run", study, "--quick", "--bed", "own-files"]
    env = os.environ | {"PYTHONPATH": str(site)}
    argv = [*command, *(word for one in sets for word in ("--set", one)), "--out", "run"]
    argv += ["--no-report"] * bool(sets)
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, 4), done.stderr
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert log[-1]["event"] == "finished"
    assert json.loads((tmp_path / "run/analysis/verdict.json").read_text())["sentence"]
    assert list((tmp_path / "run/records").glob("*.arrow"))
    assert not Path(own_files.WORK).exists(), "a program of a host wrote into the conductor's files"
