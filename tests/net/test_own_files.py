"""Every study runs `--quick` on a bed whose hosts share no file with the conductor.

Those of published experiments are in test_published.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sojourn import studies
from sojourn.bed.cores import program
from sojourn.bed.model import BedSpec, Topology
from sojourn.report import experiments
from tests.net import own_files
from tests.net.busy_machine import sleeping_ends

STUDIES = sorted({path.stem for path in Path(studies.__file__).parent.glob("*.toml")} - set(experiments.studies()))
SHORT = ("bridge-latency", ("pairs.rounds=4", "bed.sessions=2", "probe.icmp_bytes=64", *sleeping_ends()))
"""Few rounds of one study, in two sessions; all studies, as they are, are proof."""
SCRIPT = ("bridge-latency", (*SHORT[1], 'bed.devices=["bridge:capture"]'))
"""The same over a device that a script of ours builds."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts of a host's own need root")


def test_programs_and_files_are_copied_to_a_host_without_a_shared_file_system(tmp_path: Path) -> None:
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
        pytest.param(*SCRIPT, id="script"),
        *(pytest.param(study, (), id=study, marks=pytest.mark.proof) for study in STUDIES),
    ],
)
def test_study_runs_on_hosts_without_a_shared_file_system(study: str, sets: tuple[str, ...], tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("sojourn")), "run", study, "--quick", "--bed", "own-files"]
    argv = [*command, *(word for one in sets for word in ("--set", one)), "--out", "run"]
    argv += ["--no-report"] * bool(sets)
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        env=own_files.named(tmp_path / "site"),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode in (0, 4), done.stderr
    own_files.require_finished(tmp_path / "run", study)
