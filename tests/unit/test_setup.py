"""Set-up ends as soon as a library cannot be had: its own lines are run, with stubs in place of cargo and uv."""

from __future__ import annotations

import os
import re
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).resolve().parents[2] / "scripts/setup.sh").read_text()
PROMPT_SECONDS = 5
"""Within so long it ends; what it is not to wait for would take a minute."""

FAILS = "echo 'no such host' >&2; exit 101"
LASTS = 'echo $$ >"$NOTES/$NAME"; exec sleep 60'
WORKS = "exit 0"


def functions() -> str:
    """Set-up's functions, without its last line, which runs them all."""
    assert SCRIPT.endswith("\nmain\n")
    body = SCRIPT.removesuffix("main\n")
    return re.sub(r'^cd "\$\(dirname .*$|^\. scripts/paths.sh$', "", body, flags=re.MULTILINE)


def set_up(folder: Path, call: str, **stubs: str) -> tuple[int, str, float]:
    """Call one of set-up's functions in an empty folder: status, what it says, seconds."""
    programs = folder / "bin"
    programs.mkdir()
    stubs = {"systemctl": WORKS} | stubs
    (folder / "scripts").mkdir()
    (folder / "scripts/uv.txt").write_text("uv==1.0\n")
    for name, does in stubs.items():
        stub = programs / name
        stub.write_text(f"#!/bin/sh\nNAME={name}\n{does}\n")
        stub.chmod(0o755)
    script = folder / "functions.sh"
    script.write_text(functions().replace("policy=/usr/sbin/policy-rc.d", f"policy={folder / 'policy-rc.d'}"))
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "NOTES": str(folder)}
    began = time.monotonic()
    # Into a file: a pipe would stay open for as long as anything that was started holds it.
    with (folder / "told").open("w") as told:
        done = subprocess.run(
            # A shell cannot reset SIGINT if it was started with it ignored, as jobs in the background are.
            ["env", "--default-signal=INT", "bash", "-c", f". {script}; {call}"],
            cwd=folder,
            env=env,
            stdout=told,
            stderr=told,
            check=False,
            timeout=90,
        )
    return done.returncode, (folder / "told").read_text(), time.monotonic() - began


@pytest.mark.parametrize(("machine", "installed"), [("x86_64", True), ("aarch64", False)])
def test_qemu_for_arm64_is_installed_only_on_other_machines(machine: str, installed: bool, tmp_path: Path) -> None:
    call = 'has() { false; }; missing=(); bare_systems; echo "${missing[@]}"'
    status, told, _ = set_up(tmp_path, call, uname=f"echo {machine}")
    assert (status, "qemu-user" in told.split(), "runc" in told.split()) == (0, installed, True)


def test_what_the_tests_need_is_installed_for_them(tmp_path: Path) -> None:
    """Without strace the tests of losses of power had passed, and tested nothing."""
    call = 'has() { false; }; missing=(); test_peers; echo "${missing[@]}"'
    status, told, _ = set_up(tmp_path, call, id="echo 1000")
    assert status == 0, told
    assert {"strace", "sudo", "tshark"} <= set(told.split())


INSTALLS = 'cp "$NOTES/policy-rc.d" "$NOTES/policy"'
"""A stub of apt-get that keeps what it finds."""

UNSTARTED = "unstarted irtt"
SUDO = {
    "id": "echo 1000",
    "sudo": 'printf "%s " "$@" >>"$NOTES/sudo"; echo >>"$NOTES/sudo"; [ "$1" = -n ] || exec "$@"',
}


@pytest.mark.parametrize("by_sudo", [False, True])
def test_package_is_installed_while_a_policy_prevents_that_services_start(tmp_path: Path, *, by_sudo: bool) -> None:
    stubs = {"apt-get": INSTALLS, "id": "echo 0"} | (SUDO if by_sudo else {})
    status, told, _ = set_up(tmp_path, UNSTARTED, **stubs)
    assert status == 0, told
    policy = tmp_path / "policy"
    assert subprocess.run([policy], check=False).returncode == 101
    assert not (tmp_path / "policy-rc.d").exists()
    if by_sudo:
        asked = [line.split()[0] for line in (tmp_path / "sudo").read_text().splitlines() if not line.startswith("-n")]
        assert asked == ["install", "env", "rm"] + ["systemctl"] * Path("/run/systemd/system").is_dir()


@pytest.mark.parametrize(
    ("apt_get", "expected"),
    [("exit 100", 3), ("kill -TERM $PPID; exec sleep 1", -15), ("kill -INT $PPID; kill -INT $$; exec sleep 1", -2)],
)
def test_policy_is_removed_however_set_up_ends(tmp_path: Path, apt_get: str, expected: int) -> None:
    status, told, _ = set_up(tmp_path, UNSTARTED, **{"apt-get": f"{INSTALLS}; {apt_get}", "id": "echo 0"})
    assert status == expected, told
    assert (tmp_path / "policy").exists(), "it was there"
    assert not (tmp_path / "policy-rc.d").exists()


def test_policy_that_a_killed_set_up_left_is_removed_by_the_next(tmp_path: Path) -> None:
    killed = {"apt-get": f"{INSTALLS}; kill -KILL $PPID; exec sleep 0.1", "id": "echo 0"}
    assert set_up(tmp_path, UNSTARTED, **killed)[0] == -9
    assert (tmp_path / "policy-rc.d").exists()
    again = tmp_path / "again"
    again.mkdir()
    (tmp_path / "policy-rc.d").rename(again / "policy-rc.d")
    call = "install_packages() { exit; }; has() { false; }; system_packages"
    assert set_up(again, call, id="echo 0")[0] == 0
    assert not (again / "policy-rc.d").exists()


def test_policy_of_somebody_else_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "policy-rc.d"
    theirs.write_text("#!/bin/sh\nexit 101\n")
    assert set_up(tmp_path, f"{UNSTARTED}; let_services_start", **{"apt-get": INSTALLS, "id": "echo 0"})[0] == 0
    assert theirs.read_text() == "#!/bin/sh\nexit 101\n"


@pytest.mark.parametrize("purpose", ["demo", "test", "proof"])
@pytest.mark.parametrize("is_there", [False, True])
def test_sojourn_is_built_with_what_the_lock_has_by_hash(purpose: str, is_there: bool, tmp_path: Path) -> None:
    """In an isolated build, hatchling's dependencies would have neither version nor hash."""
    if is_there:
        (tmp_path / ".venv/bin").mkdir(parents=True)
        (tmp_path / ".venv/bin/sojourn").touch(mode=0o755)
    stubs = {"uv": 'echo "$*" >>"$NOTES/uv.txt"', "cargo": WORKS}
    status, told, _ = set_up(tmp_path, f"uv=uv; purpose={purpose}; our_programs", **stubs)
    assert status == 0, told
    first, second = (tmp_path / "uv.txt").read_text().splitlines()
    assert first == f"{second} --no-install-project"
    assert "--no-build-isolation-package sojourn" in second
    assert ("--no-default-groups --group build" in second) == (purpose == "demo")


def test_the_group_that_builds_has_all_that_it_needs_by_hash() -> None:
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    assert set(project["build-system"]["requires"]) <= set(groups["build"])
    assert {"include-group": "build"} in groups["dev"]
    locked = {one["name"]: one for one in tomllib.loads((root / "uv.lock").read_text())["package"]}
    left, seen = ["hatchling", "editables"], set()
    while left:
        one = locked[left.pop()]
        seen.add(one["name"])
        assert all(file["hash"].startswith("sha256:") for file in [one["sdist"], *one["wheels"]]), one["name"]
        left += [other["name"] for other in one.get("dependencies", []) if other["name"] not in seen]
    assert len(seen) > 4


SIDE_BY_SIDE = "build=(cargo build); sync=(uv sync); side_by_side"


@pytest.mark.parametrize(("fails", "lasts"), [("uv", "cargo"), ("cargo", "uv")])
def test_first_failure_ends_the_other_task(fails: str, lasts: str, tmp_path: Path) -> None:
    # The one that fails does so once the other runs, so that there is something to end.
    waits = f'until [ -s "$NOTES/{lasts}" ]; do sleep 0.02; done; '
    status, told, took = set_up(tmp_path, SIDE_BY_SIDE, **{fails: waits + FAILS, lasts: LASTS})
    assert status == 3, told
    assert took < PROMPT_SECONDS
    assert "no such host" in told
    assert "the reason stands above" in told
    assert not Path(f"/proc/{(tmp_path / lasts).read_text().strip()}").exists()


@pytest.mark.parametrize("last", ["uv", "cargo"])
def test_second_failure_is_reported(last: str, tmp_path: Path) -> None:
    first = {"uv": "cargo", "cargo": "uv"}[last]
    status, told, _ = set_up(tmp_path, SIDE_BY_SIDE, **{first: WORKS, last: f"sleep 0.3; {FAILS}"})
    assert status == 3, told


def test_both_tasks_can_succeed(tmp_path: Path) -> None:
    status, told, _ = set_up(tmp_path, f"{SIDE_BY_SIDE}; echo goes on", cargo=WORKS, uv=WORKS)
    assert (status, told) == (0, "goes on\n")


def test_cargo_download_failure_is_reported_before_compiling(tmp_path: Path) -> None:
    cargo = f'echo "$1" >>"$NOTES/asked"; {FAILS}'
    status, told, took = set_up(tmp_path, "our_programs", cargo=cargo, uv=WORKS)
    assert status == 3, told
    assert took < PROMPT_SECONDS
    assert "no such host" in told
    assert "cargo could not fetch the libraries of Cargo.lock" in told
    assert (tmp_path / "asked").read_text() == "fetch\n"
