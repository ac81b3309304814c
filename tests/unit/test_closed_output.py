"""A reader that closes our output before its end, as `head` does, is no error: under `set -o pipefail`, too."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sojourn.binary import find_instrument
from tests.unit.made_up_tcp import Log, MadeFlow

if TYPE_CHECKING:
    from pathlib import Path

MAIN = "import sys; from sojourn.cli import main; sys.argv[0] = 'sojourn'; main()"


def unread(*argv: str) -> subprocess.CompletedProcess[str]:
    """A command whose output nobody reads from the start."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    finally:
        os.close(writer)


def sojourn(*words: str) -> subprocess.CompletedProcess[str]:
    return unread(sys.executable, "-c", MAIN, *words)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("logs") / "t"
    Log((MadeFlow(),)).write(out)
    return out


@pytest.mark.parametrize("form", ["siftr", "csv", "parquet", "jsonl", "qlog"])
def test_a_log_is_converted_for_a_reader_that_closes_the_pipe(log: Path, form: str) -> None:
    done = sojourn("tcplog", "convert", str(log), "--to", form, "-o", "-")
    assert (done.returncode, done.stderr) == (0, "")


def test_convert_ends_well_in_a_pipeline_with_head(log: Path) -> None:
    command = f"{sys.executable} -c '{MAIN.replace(chr(39), chr(34))}' tcplog convert {log} --to csv -o - | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    ["--help", "--version", "list", "run bridge-latency --dry-run", "tcplog --help", "emulate --help",
     "emulate explain --forward delay=1ms"],
)  # fmt: skip
def test_commands_end_well_if_nobody_reads(words: str) -> None:
    done = sojourn(*words.replace("=", " ").split(maxsplit=3) if "explain" in words else words.split())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", ["doctor", "doctor --json", "schema", "commands", "rights", "--help"])
def test_the_instrument_ends_well_if_nobody_reads(words: str) -> None:
    done = unread(find_instrument(), *words.split())
    assert (done.returncode, done.stderr) == (0, "")


def test_the_instrument_refuses_a_full_disk() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [find_instrument(), "schema"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3
    assert "No space left on device" in done.stderr


def test_the_status_of_an_answer_does_not_depend_on_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary of a log that was cut is doubtful."""
    monkeypatch.setattr("tests.unit.made_up_tcp.BATCH_ROWS", 500)
    Log((MadeFlow(),)).write(tmp_path / "t")
    file = tmp_path / "t/records/tcp_samples-tcplog-000.arrow"
    octets = file.read_bytes()
    file.write_bytes(octets[: len(octets) // 2])
    done = sojourn("tcplog", "summary", str(tmp_path / "t"))
    assert done.returncode == 4, done.stderr
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["note"]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_the_status_of_an_invalid_run_does_not_depend_on_its_reader(tmp_path: Path, form: tuple[str, ...]) -> None:
    """Its clock is set by 5 ms."""
    line = "forward = { constant_ns = 5000 }\nbackward = { constant_ns = 5000 }\n"
    plan = tmp_path / "stepped.toml"
    plan.write_text(
        '[study]\nname = "stepped"\n[bed]\nbackend = "sim"\ndevices = ["bridge"]\n[probe]\nicmp_bytes = [64]\n'
        f"[pairs]\nrounds = 8\n[bed.lines.direct]\n{line}"
        f"clock_step = {{ at_ns = 500000000, by_ns = 5000000 }}\n[bed.lines.bridge]\n{line}"
    )
    done = sojourn("run", str(plan), "--out", str(tmp_path / "run"), "--no-history", "--no-report", *form)
    assert done.returncode == 4, done.stderr
