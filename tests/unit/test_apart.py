"""What root's commands keep of root's rights: the program that analyses, and commands that measure nothing."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sojourn.cli.apart import analyse_and_report
from sojourn.cli.kept import KEPT
from sojourn.confine import CAPABILITIES, CREATE_RULESET, SCOPED_FROM
from sojourn.errors import MachineError, RequestError
from tests.children import Child

GOLDEN = Path(__file__).parents[1] / "golden/bridge-latency.tar.xz"
SECONDS = 120.0
PROGRAM = str(Path(sys.executable).with_name("sojourn"))
FILES = {"CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights that a command can give up")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recorded run that nobody has analysed."""
    with tarfile.open(GOLDEN) as packed:
        packed.extractall(tmp_path, filter="data")
    for made in ("analysis", "report"):
        shutil.rmtree(tmp_path / "bridge-latency" / made, ignore_errors=True)
    return tmp_path / "bridge-latency"


def held(status: str, name: str) -> set[str]:
    """The capabilities of a set in the text of /proc/PID/status."""
    found = re.search(rf"^{name}:\s*([0-9a-f]+)$", status, re.MULTILINE)
    assert found, status
    names = {number: capability for capability, number in CAPABILITIES.items()}
    return {names.get(number, str(number)) for number in range(64) if int(found[1], 16) >> number & 1}


def status_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def analysing(parent: int) -> tuple[int, str] | None:
    """The program that analyses for a process, once it has given up its rights, and its status."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    for child in map(int, children):
        status = status_of(child)
        if "NoNewPrivs:\t1" in status and held(status, "CapBnd") == held(status, "CapEff") == FILES:
            return child, status
    return None


def found_of(parent: Child[str]) -> tuple[int, str]:
    """The same, waited for."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert parent.poll() is None, "it ended without a program that has given up its rights"
        if found := analysing(parent.pid):
            return found
        time.sleep(0.001)
    raise TimeoutError("no program has given up its rights")


@pytest.mark.parametrize("words", [("report",), ("run", "--no-history", "--resume")])
def test_root_s_analysis_has_no_right_but_to_files(run: Path, words: tuple[str, ...]) -> None:
    with Child([PROGRAM, *words, str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _, status = found_of(process)
        said, told = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, told
    assert f"Report: {run}/report/index.html" in said
    assert told.splitlines()[-2:] == ["analysing", "writing the report"]
    assert (run / "report/index.html").is_file()
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd"):
        assert held(status, name) <= FILES
    assert held(status, "CapAmb") == set()


def test_root_s_analysis_has_no_terminal_that_it_could_type_into(run: Path) -> None:
    with Child([PROGRAM, "report", str(run)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        child, _ = found_of(process)
        assert os.getsid(child) == child != os.getsid(process.pid)
        process.communicate(timeout=SECONDS)


def test_results_of_other_tools_come_by_a_pipe_too(run: Path) -> None:
    given = Path(__file__).parent / "other_tools/iperf3.json"
    words = f"{PROGRAM} report {run} --beside <(cat {given}) --beside /dev/stdin < {given}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr


def test_fault_of_the_analysis_is_the_same_exception_with_its_traceback(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nos.write(1, b'printed by another package')\n"
        "def find_spec(self, name, path=None, target=None):\n"
        "    if name == 'sojourn.analysis':\n        raise KeyError('made up')\n"
        "import sys\nsys.meta_path.insert(0, type('Finder', (), {'find_spec': find_spec})())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(Exception, match="made up") as fault:
        analyse_and_report(run)
    assert type(fault.value).__name__ == "KeyError"
    assert "find_spec" in str(fault.value.__cause__)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, 37])
def test_analysis_that_is_killed_ends_the_command_with_a_sentence(run: Path, number: int) -> None:
    with Child([PROGRAM, "report", str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.kill(found_of(process)[0], number)
        _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == MachineError.status
    name = signal.Signals(number).name if number < signal.SIGRTMIN else f"signal {number}"
    assert f"sojourn: the analysis was ended by {name}: the records are whole" in told


def test_analysis_ends_with_the_command_that_is_killed(run: Path) -> None:
    with Child([PROGRAM, "report", str(run)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        child, _ = found_of(process)
        process.kill()
        assert process.stdout is not None
        process.stdout.read()  # until all who could write to it have ended
    until = time.monotonic() + SECONDS
    while "State:\tZ" not in status_of(child) and status_of(child):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_ctrl_c_ends_both_without_a_traceback(run: Path) -> None:
    with Child(
        [PROGRAM, "report", str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        child, _ = found_of(process)
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert told in {"", "analysing\n"}, "no traceback of either"
    assert not status_of(child)


def test_errors_of_the_analysis_are_those_of_the_command(run: Path) -> None:
    (run / "plan.toml").write_text("this is no plan")
    with pytest.raises(RequestError, match=r"plan\.toml"):
        analyse_and_report(run)


def test_analysis_of_a_full_disk_names_the_file(run: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", disk], check=True)
    try:
        shutil.copytree(run, disk / "run")
        fill(disk / "filled")
        with pytest.raises(OSError, match="No space left") as refused:
            analyse_and_report(disk / "run")
        assert str(refused.value.filename).startswith(str(disk / "run"))
    finally:
        subprocess.run(["umount", disk], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_program_that_only_writes_in_a_folder_can_do_nothing_else(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "there").write_text("before")
    theirs = inside / "theirs"
    theirs.write_text("secret")
    theirs.chmod(0o600)
    os.chown(theirs, 65534, 65534)
    tried = {
        f"open('{inside}/new', 'w').write('x')": "done",
        f"__import__('os').replace('{inside}/new', '{inside}/there')": "done",
        f"__import__('os').mkdir('{inside}/folder')": "done",
        f"__import__('shutil').rmtree('{inside}/folder')": "done",
        f"open('{theirs}', 'r+').write('read and written')": "done",
        f"open('{outside}/there').read()": "done",
        f"open('{outside}/there', 'w')": "PermissionError",
        f"open('{outside}/new', 'w')": "PermissionError",
        f"__import__('os').unlink('{outside}/there')": "PermissionError",
        f"__import__('os').rename('{inside}/there', '{outside}/moved')": "PermissionError",
        f"__import__('os').mknod('{inside}/device', 0o60600, 0)": "PermissionError",
        "__import__('socket').socket()": "PermissionError",
        "__import__('socket').socket(1)": "PermissionError",
        "__import__('socket').socket(2, 2)": "PermissionError",
        "__import__('socket').socketpair() and None": "done",
        f"__import__('os').chmod('{outside}/there', 0o4777)": "PermissionError",
        f"__import__('os').chmod('{inside}/there', 0o4777)": "PermissionError",
        f"__import__('os').fchmod(__import__('os').open('{outside}/there', 0), 0o4777)": "PermissionError",
        f"__import__('os').setxattr('{outside}/there', 'user.x', b'x')": "PermissionError",
        f"__import__('os').chown('{outside}/there', 1, 1)": "PermissionError",
        f"__import__('resource').prlimit({os.getpid()}, 0)": "PermissionError",
        "__import__('resource').getrlimit(0)": "done",
        f"__import__('os').kill({os.getppid()}, 0)": "PermissionError",
        "__import__('os').setuid(65534)": "PermissionError",
        "__import__('socket').sethostname('other')": "PermissionError",
    }
    if ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, 1) < SCOPED_FROM:
        tried.pop(f"__import__('os').kill({os.getppid()}, 0)")
    program = f"""
from pathlib import Path
from sojourn.confine import only_write
if not only_write(Path({str(inside)!r})):
    print("no landlock")
for one in {list(tried)!r}:
    try:
        eval(one)
        print("done")
    except Exception as error:
        print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    if said[0] == "no landlock":
        pytest.skip("this kernel has no Landlock")
    assert dict(zip(tried, said, strict=True)) == tried


def test_report_that_prints_keeps_what_a_browser_may_need() -> None:
    given_up = "from sojourn.cli.kept import give_up; give_up(['report', 'RUN', '--pdf'])"
    program = f"{given_up}; print(open('/proc/self/status').read())"
    status = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "NoNewPrivs:\t0" in status
    assert held(status, "CapBnd") == held(status_of(os.getpid()), "CapBnd")


@pytest.mark.parametrize("command", KEPT)
def test_command_keeps_the_capabilities_of_its_table(command: str) -> None:
    program = f"""
from sojourn.cli.kept import give_up
give_up({command.split()!r} + ["--help"])
print(open("/proc/self/status").read())
"""
    status = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "NoNewPrivs:\t1" in status
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert held(status, name) <= KEPT[command]
    assert "CAP_DAC_OVERRIDE" in held(status, "CapEff")
    assert held(status, "CapAmb") == set()


def test_program_gives_up_and_a_caller_of_its_function_does_not(tmp_path: Path) -> None:
    shown = tmp_path / "sitecustomize.py"
    shown.write_text("import atexit\natexit.register(lambda: print(open('/proc/self/status').read()))\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    installed = subprocess.run([PROGRAM, "list"], capture_output=True, text=True, check=True, env=env).stdout
    assert held(installed, "CapBnd") <= KEPT["list"]
    call = "import sys; from sojourn.cli import main; sys.argv = ['sojourn', 'list']; main()"
    called = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True, env=env).stdout
    assert held(called, "CapBnd") == held(status_of(os.getpid()), "CapBnd")
