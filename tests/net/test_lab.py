"""`sojourn lab` over real frames: its delay, a peer, exit statuses, signals, rights, and nothing left."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sojourn.bed.clean import marked_processes
from sojourn.bed.state import state_folder
from tests.children import Child
from tests.net.busy_machine import await_that, retried, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator

SOJOURN = str(Path(sys.executable).with_name("sojourn"))
PEER = "10.77.1.2"
SECONDS = 60.0


def lab(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`sojourn lab WORDS` as a process of its own, to its end."""
    argv = [SOJOURN, "lab", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=SECONDS, env=os.environ | env)


def left_of(controller: int) -> list[str]:
    """The processes and files of the laboratory that this process made."""
    processes = [str(process.pid) for process, mark in marked_processes() if mark.controller.pid == controller]
    return processes + [str(path) for path in state_folder().glob(f"sojourn-bed-lab-*@{controller}-*")]


@retried
def test_command_sees_the_requested_delay_in_each_direction() -> None:
    done = lab("--delay", "20ms", "--", "ping", "-c", "20", "-i", "0.05", PEER)
    assert done.returncode == 0, done.stderr
    times_ms = sorted(float(one) for one in re.findall(r"time=([0-9.]+) ms", done.stdout))
    with undisturbed():  # the kernel and ping add some 0.1 ms; ping waits two round trips for its last replies
        assert len(times_ms) == 20
        assert 39.99 <= times_ms[0] < 41
        assert times_ms[10] < 44


def test_directions_can_have_different_configuration_strings(tmp_path: Path) -> None:
    loses = ["--forward", "loss every 2", "--backward", ""]
    done = lab(*loses, "--log", str(tmp_path / "log"), "--", "ping", "-c", "10", "-i", "0.01", "-W", "0.5", PEER)
    assert "10 packets transmitted, 5 received" in done.stdout
    assert done.returncode == 0
    assert list((tmp_path / "log").glob("packets-emulate-*.arrow"))


def test_lab_prints_its_configuration_and_show_builds_nothing(tmp_path: Path) -> None:
    words = ["--delay", "3ms", "--backward", "loss 1%", "--log", str(tmp_path / "log")]
    done = lab(*words, "--", "true")
    said = r"sojourn: near to far: delay 3ms; far to near: loss 1% delay 3ms; seed 1; TCP by \w+\n"
    other = r"sojourn: the other end 10\.77\.1\.2; for a shell there, from another terminal: nsenter .*\n"
    assert re.fullmatch(said + other, done.stderr)
    (tmp_path / "log").rename(tmp_path / "kept")
    done = lab(*words, "--show", "--", "no-such-command-here")
    assert (done.returncode, done.stderr) == (0, "")
    assert "near    a-emulate: 10.77.1.1/24" in done.stdout
    assert "runs no-such-command-here" in done.stdout
    assert not (tmp_path / "log").exists()


def test_another_terminal_enters_the_other_end_while_the_command_runs() -> None:
    words = [sys.executable, "-c", "from sojourn.cli import main; main()", "lab", "--delay", "1ms", "--", "cat"]
    with Child(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
               env=os.environ | {"SHELL": "/bin/sh"}) as running:  # fmt: skip
        assert running.stderr is not None
        _, line = running.stderr.readline(), running.stderr.readline()
        far = line.rstrip("\n").partition("from another terminal: ")[2]
        inside = ["sh", "-c", f"{far} -c 'echo $SOJOURN_ADDRESS'"]
        assert subprocess.check_output(inside, text=True) == f"{PEER}\n", line
        said, _ = running.communicate("of the command\n", timeout=SECONDS)
    assert (running.returncode, said) == (0, "of the command\n")


def test_pipes_can_be_given_by_a_file(tmp_path: Path) -> None:
    rule = '[[rule]]\ndirection = "forward"\npipe = "slow"\n'
    (tmp_path / "paths.toml").write_text(f'[[pipe]]\nname = "slow"\ndelay = "7ms"\n{rule}')
    done = lab("-C", str(tmp_path / "paths.toml"), "--", "ping", "-c", "3", "-i", "0.01", PEER)
    times_ms = [float(one) for one in re.findall(r"time=([0-9.]+) ms", done.stdout)]
    assert len(times_ms) == 3
    assert 6.99 <= min(times_ms) < 14, "of one direction alone"


def test_command_of_the_peer_listens_before_the_command_starts() -> None:
    server = f"exec {sys.executable} -m http.server --bind $SOJOURN_ADDRESS 8000"
    fetch = f"import urllib.request as web; print(web.urlopen('http://{PEER}:8000/').read().decode())"
    done = lab("--delay", "5ms", "--peer", server, "--", sys.executable, "-c", fetch)
    assert done.returncode == 0, done.stderr
    assert "Directory listing for /" in done.stdout
    assert '"GET / HTTP/1.1" 200' in done.stderr, "what the peer says is no output of COMMAND's"


def test_iperf3_measures_the_requested_rate() -> None:
    rate = ["--rate", "20Mbit/s", "--delay", "2ms"]
    done = lab(*rate, "--peer", "iperf3 -s", "--", "iperf3", "-c", PEER, "-t", "1", "-J")
    assert done.returncode == 0, done.stderr
    received = float(re.findall(r'"bits_per_second":\s*([0-9.e+]+)', done.stdout)[-1])
    assert 14e6 < received < 20e6, "payload of TCP within 20 Mbit/s of frames"


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -KILL $$", 137), ("true", 0)])
def test_exit_status_is_that_of_the_command(script: str, status: int) -> None:
    assert lab("--", "sh", "-c", script).returncode == status


def test_command_gets_its_addresses_in_the_environment() -> None:
    done = lab(
        "--", "sh", "-c", "echo $SOJOURN_ADDRESS $SOJOURN_PEER $SOJOURN_ADDRESS6 $SOJOURN_PEER6 $SOJOURN_DEV; ip -br l"
    )
    first, *links = done.stdout.splitlines()
    assert first == f"10.77.1.1 {PEER} fd77:0:0:1::1 fd77:0:0:1::2 a-emulate"
    assert [one.split()[0].partition("@")[0] for one in links] == ["lo", "a-emulate"], "there is no way around the path"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--dely", "3ms"], "unexpected argument '--dely' found; did you mean --delay?"),
        (["--delay", "3"], "delay: 3 has no unit that I know; write 3ms"),
        (["--delay"], "--delay: its value is missing"),
        (["ping", PEER], "'ping': COMMAND begins after --"),
        (["--json"], "--json is not for a laboratory"),
        (["-h", "--", "true"], "-h: no such option"),
        (["--log", "/proc/nothing/here", "--", "true"], "--log /proc/nothing/here:"),
        (["--mtu", "12", "--", "true"], "mtu = 12: expected 1280"),
        (["--congestion", "cubc", "--", "true"], "(did you mean cubic?); a module that is not loaded"),
        (["--congestion", "", "--", "true"], "congestion '': expected a name"),
        (["--seed", "x", "--", "true"], "Invalid value"),
        (["--", "no-such-command-here"], "no-such-command-here: no such command"),
        ([], "a shell needs a terminal"),
        (["--peer", "exit 3", "--", "true"], "--peer 'exit 3' ended at once with status 3"),
    ],
)
def test_a_wrong_request_is_refused(words: list[str], sentence: str) -> None:
    done = lab(*words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert sentence.lower() in done.stderr.lower()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which sudo gives")
def test_under_sudo_a_command_has_the_rights_of_the_calling_user() -> None:
    sudo = {"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "nobody", "SUDO_COMMAND": "x"}
    show = "id -u; id -G; env | grep -c ^SUDO_; grep CapEff /proc/self/status; ping -q -c 1 $SOJOURN_PEER >&2"
    show = f"{show}; ip link add x type dummy"
    done = lab("--peer", "id -u >&2; sleep 9", "--", "sh", "-c", show, **sudo)
    assert done.stdout.split() == ["65534", "65534", "0", "CapEff:", "0000000000000000"]
    assert "1 received" in done.stderr
    assert done.stderr.splitlines()[0] == "65534", "the far end's command, too"
    assert "Operation not permitted" in done.stderr
    assert done.returncode == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which sudo gives")
@pytest.mark.parametrize("option", ["--log", "--distribution"])
def test_under_sudo_no_file_is_created_or_read_as_root(option: str, tmp_path: Path) -> None:
    sudo = {"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "nobody", "SUDO_COMMAND": "x"}
    (secret := tmp_path / "secret").write_text("root:hash")
    secret.chmod(0o600)
    words = {"--log": ["--log", str(tmp_path / "made")], "--distribution": ["--distribution", str(secret)]}[option]
    done = lab("--delay", "3ms", *words, "--", "true", **sudo)
    assert done.returncode in (2, 3), done.stderr
    assert "hash" not in done.stderr
    assert not (tmp_path / "made").exists()


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[str]]:
    """A laboratory whose command waits; it exits with 9 at a SIGTERM, and has said so that it runs."""
    script = "trap 'exit 9' TERM; setsid sleep 321 & sleep 322 & echo here; wait"
    argv = [SOJOURN, "lab", "--delay", "1ms", "--peer", "sleep 323", "--", "sh", "-c", script]
    with Child(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process
        process.kill()


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_whatever_ends_the_lab(waiting: subprocess.Popen[str], ends: signal.Signals) -> None:
    assert len(left_of(waiting.pid)) > 5, "there is something to be left"
    waiting.send_signal(ends)
    assert waiting.wait(SECONDS) == (9 if ends == signal.SIGTERM else -9), "COMMAND's own status where it had a word"
    await_that(lambda: not left_of(waiting.pid), "everything is gone")


def test_path_that_ended_before_the_command_is_reported(waiting: subprocess.Popen[str]) -> None:
    emulators = [
        process.pid
        for process, mark in marked_processes()
        if mark.controller.pid == waiting.pid and b"emulate\0run" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    ]
    assert len(emulators) == 1
    os.kill(emulators[0], signal.SIGKILL)
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(SECONDS) == 4


WITHOUT_TMUX = (
    "import shutil; which = shutil.which; shutil.which = lambda n, **k: None if n == 'tmux' else which(n, **k)"
)


@pytest.mark.parametrize("with_tmux", [pytest.param(True, marks=pytest.mark.may_skip), False])
def test_without_a_command_both_ends_get_a_shell(*, with_tmux: bool) -> None:
    if with_tmux and not Path("/usr/bin/tmux").exists():
        pytest.skip("tmux is not here")
    main = "import sys; from sojourn.cli import main; sys.argv = ['sojourn', 'lab', '--delay', '1ms']; main()"
    program = f"{'' if with_tmux else WITHOUT_TMUX}\n{main}"
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm", "SHELL": "/bin/sh"}
        os.execv(sys.executable, [sys.executable, "-c", program])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
    said = b""

    def read(until: bytes) -> None:
        nonlocal said
        deadline = time.monotonic() + SECONDS / 2
        while until not in said and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1.0)[0]:
                said += os.read(terminal, 4096)
        assert until in said, said

    read(b"far" if with_tmux else b"the other end")
    os.write(terminal, b"echo I-am-$((40 + 2)) at $SOJOURN_ADDRESS\n")
    read(b"I-am-42 at 10.77.1.1")
    if not with_tmux:
        far = re.findall(rb"terminal: (nsenter .*?)\r\n", said)[0].decode()
        inside = ["sh", "-c", f"{far} -c 'echo $SOJOURN_ADDRESS'"]
        assert subprocess.check_output(inside, text=True) == f"{PEER}\n"
    assert leave(child, terminal) == 0
    await_that(lambda: not left_of(child), "everything is gone")


def leave(child: int, terminal: int) -> int:
    """Leave one shell after the other until the program ends; its exit status."""
    deadline = time.monotonic() + SECONDS / 2
    os.set_blocking(terminal, False)  # a terminal that nobody reads any more takes nothing
    while time.monotonic() < deadline:
        with suppress(OSError):  # the terminal ends before the program does
            os.write(terminal, b"exit\n")
            while select.select([terminal], [], [], 0.5)[0] and os.read(terminal, 4096):
                continue
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("it does not end")
