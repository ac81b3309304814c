"""Flows that filters kept out, in summary, plot and page, compared with `ss`; and `top` where it has none to show."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.net.busy_machine import PATIENCE_SECONDS
from tests.net.tcplog_bed import B4, PORT, Bed, argv_of, environment, logging, made_bed, run, sojourn_says
from tests.unit.printed_json import printed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

OTHER = PORT + 1
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")


@pytest.fixture
def bed() -> Iterator[Bed]:
    with made_bed() as made:
        made.serve()
        made.serve(port=OTHER)
        yield made


def ports(bed: Bed, remote: int) -> set[int]:
    """The local ports of host a's connections to a port, by `ss`."""
    lines = run(*bed.inside("a", "ss", "-tnHO", "dst", f":{remote}")).stdout.splitlines()
    return {int(line.split()[3].rpartition(":")[2]) for line in lines}


def test_filtered_flows_are_counted_and_not_listed_in_the_log(bed: Bed, tmp_path: Path) -> None:
    """Three of each, in turn: those that are logged have the first numbers."""
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup / "a", "--port", str(PORT)) as logger:
        sending = [bed.send(1, 5_000, port=port) for port in (PORT, OTHER, PORT, OTHER, OTHER, PORT)]
        bed.await_rest()
        mine, others = ports(bed, PORT), ports(bed, OTHER)
        for one in sending:
            one.close()
        log = logger.end()
    assert (len(mine), len(others)) == (3, 3)
    numbers = dict(log.flows.select("local_port", "flow").iter_rows())
    assert ({numbers[port] for port in mine}, {numbers[port] for port in others}) == ({1, 2, 3}, {4, 5, 6})

    told = sojourn_says("tcplog", "summary", out)
    shown = [line.split() for line in told.stdout.splitlines()]
    assert {(int(cells[0]), int(cells[1])) for cells in shown if cells[0].isdigit() and cells[1].isdigit()} == {
        (numbers[port], port) for port in mine
    }
    assert f"{len(others)} more flows seen, of which nothing was logged (filtered, or skipped)." in told.stdout
    rows = [*printed_lines("tcplog-summary", sojourn_says("tcplog", "summary", out, "--json").stdout)]
    assert {row["local_port"] for row in rows} == mine

    page = sojourn_says("tcplog", "plot", out, "-o", tmp_path / "all.html")
    assert page.returncode == 0, page.stderr
    text = (tmp_path / "all.html").read_text()
    assert re.search(r"· 3 flows, [\d,]+ packets · 3 more kept out by filters", text)

    for number in (5, 9):  # one that was kept out, and one that nothing has
        plot = sojourn_says("tcplog", "plot", out, "--flow", str(number), "-o", tmp_path / "no.html")
        assert (plot.returncode, plot.stdout) == (2, "")
        expected = f"sojourn: --flow {number}: {out} has flows 1 to 3; 3 more were kept out by filters\n"
        assert plot.stderr == expected
    assert not (tmp_path / "no.html").exists()


def test_one_filtered_flow_is_reported_in_the_singular(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "t"
    with logging(out, "--attach", bed.cgroup / "a", "--port", str(PORT)) as logger:
        sending = [bed.send(1, 5_000, port=port) for port in (PORT, PORT, OTHER)]
        bed.await_rest()
        for one in sending:
            one.close()
        logger.end()
    assert "1 more flow seen, of which nothing was logged" in sojourn_says("tcplog", "summary", out).stdout
    plot = sojourn_says("tcplog", "plot", out, "--flow", "3", "-o", tmp_path / "no.html")
    assert plot.stderr == f"sojourn: --flow 3: {out} has flows 1 to 2; 1 more was kept out by filters\n"


@pytest.mark.parametrize("once", [("--once",), ()], ids=["once", "until it ends"])
def test_top_of_an_ended_log_reports_it_and_shows_no_table(bed: Bed, tmp_path: Path, once: tuple[str]) -> None:
    with logging(tmp_path / "t", "--attach", bed.cgroup, "--port", str(PORT)) as logger:
        bed.send(1, 5_000).close()
        logger.end()
    done = sojourn_says("tcplog", "top", tmp_path / "t", *once)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert re.fullmatch(r"sojourn: [^\n]*t: [^\n]*ended[^\n]*\n", done.stderr), done.stderr


@pytest.mark.parametrize("running", [False, True], ids=["this machine", "root's log"])
def test_top_without_capabilities_reports_it_and_shows_no_table(bed: Bed, running: bool) -> None:
    """As a user without capabilities, of the machine and of a log that root runs in a folder that all may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        out = Path(folder, "t")
        with logging(out, "--attach", bed.cgroup, "--port", str(PORT)) as logger:
            sending = bed.send(1, 5_000)
            shown = sojourn_says("tcplog", "top", out, "--once", COLUMNS="100")
            assert f"{B4}:{PORT}" in shown.stdout, "root sees it, so that the user's rights are what is missing"
            of = [out] if running else []
            done = subprocess.run(
                [*NOBODY, *argv_of("tcplog", "top", *of, "--once")], capture_output=True, text=True, check=False,
                env=environment(PYTHONDONTWRITEBYTECODE="1"), cwd=folder, timeout=PATIENCE_SECONDS,
            )  # fmt: skip
            sending.close()
            logger.end()
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    sentence = rf"{out}: another user runs this log: [^\n]*sudo" if running else r"[^\n]*CAP_BPF[^\n]*"
    assert re.fullmatch(f"sojourn: {sentence}\n", done.stderr), done.stderr
