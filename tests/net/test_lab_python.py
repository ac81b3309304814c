"""`sojourn.lab` and `sojourn.emulate` over real frames: delay, exact counts, changes while it runs, ports of a user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sojourn
from sojourn.binary import find_instrument
from tests.children import Child
from tests.net.busy_machine import await_that, retried, undisturbed
from tests.net.here import entered
from tests.net.test_lab import left_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def least_ms(pinged: str) -> float:
    """The shortest round trip that ping saw."""
    return min(float(one) for one in re.findall(r"time=([0-9.]+) ms", pinged))


@retried
def test_two_namespaces_are_connected_by_the_requested_path() -> None:
    with sojourn.lab(delay="10ms") as lab:
        assert (lab.near.address, lab.near.peer) == (lab.far.peer, lab.far.address)
        there = lab.near.run(["ping", "-c", "10", "-i", "0.01", lab.far.address]).stdout
        back = lab.far.run(["ping", "-6", "-c", "10", "-i", "0.01", lab.near.address6]).stdout
        lab.set(delay="2ms")
        sooner = lab.near.run(["ping", "-c", "10", "-i", "0.01", lab.far.address]).stdout
    with undisturbed():
        assert 19.99 <= least_ms(there) < 21
        assert 19.99 <= least_ms(back) < 21
        assert 3.99 <= least_ms(sooner) < 5
    await_that(lambda: not left_of(os.getpid()), "everything is gone")


def test_observed_losses_equal_the_counters_of_the_emulator() -> None:
    with sojourn.lab(forward="loss 30%", backward="", seed=7) as lab:
        done = lab.near.run(["ping", "-c", "200", "-i", "0.002", "-W", "1", lab.near.peer], check=False)
        forward, backward = lab.show()["report"]["pipes"]
    received = int(re.findall(r"(\d+) received", done.stdout)[0])
    assert forward["arrived"] == 200
    assert forward["lost"]["before"] == 200 - received
    assert (backward["arrived"], backward["lost"]["before"]) == (received, 0)
    assert 30 <= 200 - received <= 90, "30 % of 200: 60, and six standard deviations of 6.5 would be 21"


def test_programs_run_at_either_end_and_wait_for_listeners() -> None:
    with sojourn.lab(rate="100Mbit/s", mtu=1400, congestion="reno") as lab:
        assert lab.near.congestion == lab.far.congestion == "reno"
        assert not lab.far.listens()
        with pytest.raises(sojourn.MachineError, match=r"no program at the far end listens at port 5201 after 0\.1 s"):
            lab.far.wait_for_port(5201, 0.1)
        with lab.far.popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL) as server:
            lab.far.wait_for_port(5201)
            assert not lab.far.listens(5202)
            done = lab.near.run(["iperf3", "-c", lab.far.address, "-n", "1M", "-J"], timeout=30)
            assert server.wait(30) == 0
        assert '"sender_tcp_congestion":\t"reno"' in done.stdout
        assert '"tcp_mss_default":\t1348' in done.stdout, "of 1,400 bytes: IP, TCP and its timestamps are 52"
        assert lab.near.run(["cat"], input="x").stdout == "x"
        assert lab.near.run(["false"], check=False).returncode == 1
        with pytest.raises(subprocess.CalledProcessError):
            lab.near.run(["false"])
        with pytest.raises(subprocess.TimeoutExpired):
            lab.near.run(["sleep", "9"], timeout=0.1)
        env = lab.far.run(["env"], env={"PATH": os.environ["PATH"], "MINE": "1"}).stdout
        assert {"MINE=1", "SOJOURN_PEER=10.77.1.1"} <= set(env.splitlines())


def test_two_laboratories_are_isolated() -> None:
    with sojourn.lab(delay="1ms") as one, sojourn.lab(delay="2ms") as other:
        for lab in (one, other):
            lab.near.run(["ping", "-c", "1", lab.far.address])
        assert [lab.show()["report"]["pipes"][0]["arrived"] for lab in (one, other)] == [1, 1]


def test_invalid_configuration_strings_are_refused_before_anything_is_built(tmp_path: Path) -> None:
    for asked, sentence in (
        ({"delay": "20"}, "20 has no unit that I know"),
        ({"loss": 5.0}, "expected a share from 0 to 1"),
        ({"config": tmp_path / "x.toml", "delay": "1ms"}, "says what the pipes are: leave out the other words"),
        ({"config": tmp_path / "x.toml"}, "x.toml"),
    ):
        with pytest.raises(sojourn.RequestError, match=sentence), sojourn.lab(**asked):
            pass


def test_ended_path_raises_doubtful_error() -> None:
    with sojourn.lab() as lab:
        os.kill(lab.emulator.pid, 9)
        with pytest.raises(sojourn.DoubtfulError, match="the emulated path ended meanwhile"):
            lab.require_path()
    await_that(lambda: not left_of(os.getpid()), "everything is gone")


PLAIN = """
import sys; sys.path.insert(0, sys.argv[1])
import sojourn
with sojourn.lab(delay="5ms") as lab:
    print(lab.near.run(["ping", "-c", "5", "-i", "0.2", lab.far.address]).stdout)
    print(*lab.backend.entrance("b"), lab.backend.unprivileged)
"""


@retried
def test_laboratory_works_without_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("without root, the other tests are this one")
    user = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--", "/usr/bin/python3", "-c"]
    package = str(Path(sojourn.__file__).parents[1])
    check = [*user, "import sys; sys.path.insert(0, sys.argv[1]); import sojourn; sojourn.lab", package]
    if subprocess.run(check, capture_output=True, check=False).returncode != 0:
        pytest.skip("the user nobody cannot run this package with /usr/bin/python3")
    env = os.environ | {"HOME": "/nonexistent", "SOJOURN_INSTRUMENT": find_instrument()}
    done = subprocess.run([*user, PLAIN, package], env=env, capture_output=True, text=True, check=False)
    if "no network namespace here" in done.stderr:
        pytest.skip("this kernel allows no user namespaces to plain users")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^nsenter --target=\d+ --user --preserve-credentials --net -- True$", done.stdout, re.MULTILINE)
    with undisturbed():
        assert 9.99 <= least_ms(done.stdout) < 11


@pytest.fixture
def row() -> Iterator[str]:
    """Three hosts in a row, the one in the middle with two ports; its name, and with -x and -y those beside it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: namespaces by name")
    name = f"own-{uuid.uuid4().hex[:6]}"

    def ip(words: str) -> None:
        subprocess.run(["ip", *words.split()], check=True)

    try:
        for host in (name, f"{name}-x", f"{name}-y"):
            ip(f"netns add {host}")
        for host, port, last in ((f"{name}-x", "left", 1), (f"{name}-y", "right", 2)):
            ip(f"link add eth1 netns {host} type veth peer {port} netns {name}")
            ip(f"-n {name} link set {port} up")
            ip(f"-n {host} link set eth1 up")
            ip(f"-n {host} address add 10.9.9.{last}/24 dev eth1")
        yield name
    finally:
        for host in (name, f"{name}-x", f"{name}-y"):
            subprocess.run(["ip", "netns", "del", host], check=False)


@retried
def test_path_can_be_emulated_between_existing_ports(row: str) -> None:
    ping = ["ip", "netns", "exec", f"{row}-x", "ping", "-c", "10", "-i", "0.01", "10.9.9.2"]
    with entered(Path("/run/netns", row)), sojourn.emulate("left", "right", delay="5ms") as path:
        pinged = subprocess.check_output(ping, text=True)
        assert path.show()["report"]["pipes"][0]["lost"]["before"] == 0
        path.set("loss 100%")
        assert subprocess.run(ping, capture_output=True, check=False).returncode == 1
        path.require_path()
    with undisturbed():
        assert 9.99 <= least_ms(pinged) < 11
    missing = "nowhere: there is no such interface"
    with pytest.raises(sojourn.RequestError, match=missing), sojourn.emulate("nowhere", "lo"):
        pass


GUIDE = Path(__file__).parents[2] / "docs/guide/python.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_every_program_of_the_guide_runs(program: str, tmp_path: Path) -> None:
    with tarfile.open(GUIDE.parents[2] / "tests/golden/bridge-latency.tar.xz") as packed:
        packed.extractall(tmp_path / "out", filter="data")
    (tmp_path / "out/bridge-latency").rename(tmp_path / "out/x")
    (tmp_path / "test_program.py").write_text(program)
    how = ["-m", "pytest", "-q"] if "def test_" in program else []
    argv = [sys.executable, *how, "test_program.py"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_guide_contains_programs_to_run() -> None:
    assert len(PROGRAMS) == 5


def test_tcp_log_lasts_as_long_as_its_block(tmp_path: Path) -> None:
    with sojourn.lab(delay="5ms") as lab, lab.far.popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL) as server:
        lab.far.wait_for_port(5201, unless=lambda: server.poll() is not None)
        try:
            with sojourn.tcplog(tmp_path / "log", port=5201) as log:
                lab.near.run(["iperf3", "-c", lab.far.address, "-n", "300K"], timeout=60)
                log.set(ppl=2)
                seen = log.status()["totals"]["out"]["seen"]
        finally:
            server.kill()
    assert log.trusted
    assert log.account["totals"]["out"]["seen"] >= seen > 100
    assert log.summary["sent_bytes"].max() > 100 * 1024, "as it was before its last packets"  # type: ignore[operator]
    # Others' flows to this port, of other tests, may have begun without a sample.
    assert set(log.summary["flow"]) <= set(log.records("tcp_flows")["flow"])
    with pytest.raises(sojourn.RequestError, match="earlier log"), sojourn.tcplog(tmp_path / "log"):
        pass
    with pytest.raises(sojourn.RequestError, match="--porte"), sojourn.tcplog(tmp_path / "other", porte=1):
        pass


def test_a_killed_program_leaves_no_log_that_runs_on(tmp_path: Path) -> None:
    logs = f"with sojourn.tcplog({str(tmp_path / 'log')!r}, port=9):\n    print(1, flush=True)\n    time.sleep(60)"
    program = f"import sojourn, time\n{logs}"
    with Child([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        process.kill()
    await_that((tmp_path / "log/footer.json").exists, "the log has ended, whole")
