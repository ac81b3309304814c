"""`emulate run --backend kernel`: its qdiscs go when it ends, however it ends, and nobody else's are touched.

Two ports of a bridge in a network namespace of the tests' own. Where this kernel has no netem, another qdisc stands in.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from sojourn.bed.clean import clean
from sojourn.instruments import find_instrument
from tests.net.busy_machine import PATIENCE_SECONDS, await_that
from tests.net.netem import has_netem, with_netem, with_slow_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

NAME = f"sojourn-netem-{os.getpid()}"
PORTS = ("left", "right")
SET_UP = f"""
ip netns add {NAME}
ip -n {NAME} link add br0 type bridge
for port in {" ".join(PORTS)}; do
    ip -n {NAME} link add $port type veth peer name $port-end
    ip -n {NAME} link set $port master br0
    ip -n {NAME} link set $port up
done
"""

# It looks five times a second; the rest is for a busy machine, and for the shell that removes the qdiscs.
ENDS_WITHIN_SECONDS = 5

Told = dict[str, Any]


@pytest.fixture(autouse=True)
def bridge() -> Iterator[None]:
    try:
        subprocess.run(["sh", "-ec", SET_UP], check=True, capture_output=True, text=True)
        yield
    finally:
        subprocess.run(["ip", "netns", "del", NAME], check=False)


def inside(*argv: str) -> list[str]:
    """A command as it runs there, with the mounts of this machine."""
    return ["nsenter", f"--net=/run/netns/{NAME}", *argv]


def roots() -> dict[str, Told]:
    """The root qdisc of each port, by the kernel's own word."""
    shown = subprocess.run(inside("tc", "-j", "qdisc"), check=True, capture_output=True, text=True).stdout
    return {one["dev"]: one for one in json.loads(shown) if one.get("root") and one["dev"] in PORTS}


def remover_of(emulator: int) -> int:
    """The shell that waits for an emulator's end."""
    return next(child for child in children(emulator) if b"sojourn-netem" in command_line(child))


def kill_with_its_shell(emulator: subprocess.Popen[str]) -> None:
    """As a container's end does: nobody is left to remove the qdiscs."""
    remover = remover_of(emulator.pid)
    os.kill(remover, 9)
    emulator.kill()
    emulator.wait(PATIENCE_SECONDS)
    await_that(lambda: has_ended(remover), "the shell has ended, and holds no lock any more")


def records() -> list[Path]:
    """Where it is written down what is put at ports of this namespace."""
    inode = Path(f"/run/netns/{NAME}").stat().st_ino
    return sorted(Path("/run/sojourn").glob(f"netem-{inode}-*.json"))


def children(process: int) -> list[int]:
    found = subprocess.run(["pgrep", "--parent", str(process)], check=False, capture_output=True, text=True).stdout
    return [int(line) for line in found.split()]


def command_line(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


def has_ended(process: int) -> bool:
    """Whether a process is gone, or waits for a parent that never looks."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def emulating(
    path: str, *words: str, stderr: int | IO[str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], Told]]:
    """An emulator that is ready, and what it says of itself; it has a process group of its own, and is killed then."""
    argv = inside("env", f"PATH={path}", find_instrument(), "emulate", "run", *PORTS, "--backend", "kernel", "--json")
    started = subprocess.Popen(
        [*argv, *words], stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
    )
    with started as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def test_a_killed_emulator_leaves_the_qdiscs_as_they_were(tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    before = roots()
    with emulating(path, "--delay", "1ms") as (process, ready):
        during = roots()
        assert {one["handle"] for one in during.values()} == {ready["commands"][0][7]}
        assert all(one["kind"] in {"netem", "pfifo"} for one in during.values()), during
        assert [json.loads(one.read_text())["handle"] for one in records()] == [ready["commands"][0][7]] * 2
        os.killpg(process.pid, 9)
        process.wait(PATIENCE_SECONDS)
        await_that(lambda: roots() == before and not records(), "the ports have the qdiscs that they had")


def test_emulator_removes_its_qdiscs_before_it_reports_its_end(tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    before = roots()
    with emulating(path, "--forward", "delay 1ms") as (process, ready):
        assert [command[4] for command in ready["commands"]] == ["right"]
        assert roots()["left"] == before["left"]
        process.terminate()
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ended"
        assert roots() == before
        assert not records()
        assert process.wait(PATIENCE_SECONDS) == 0


def test_qdiscs_left_by_a_killed_remover_are_replaced(tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    before = roots()
    with emulating(path, "--delay", "1ms") as (process, _):
        kill_with_its_shell(process)
        left = roots()
        assert left != before, "no process was left to remove them"
    with emulating(path, "--delay", "2ms") as (process, ready):
        assert {one["handle"] for one in roots().values()} == {ready["commands"][0][7]}
        assert roots()["left"]["handle"] != left["left"]["handle"]
        os.kill(remover_of(process.pid), 9)
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert roots() == before, "it removes them itself where nobody else does"
    assert not records()


def test_next_emulator_waits_until_qdiscs_of_a_killed_one_are_removed(tmp_path: Path) -> None:
    path = with_slow_removal(with_netem(tmp_path), tmp_path)
    before = roots()
    with emulating(path, "--delay", "1ms") as (process, first):
        process.kill()
        # The shell has begun or is about to begin to remove them, and takes its time.
        with emulating(path, "--delay", "2ms") as (process_of_next, ready):
            assert ready["commands"][0][7] != first["commands"][0][7]
            assert {one["handle"] for one in roots().values()} == {ready["commands"][0][7]}
            process_of_next.terminate()
            assert process_of_next.wait(PATIENCE_SECONDS) == 0
    assert roots() == before
    assert not records()


def test_foreign_netem_qdisc_is_not_taken_for_a_leftover(tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    with emulating(path, "--delay", "1ms") as (process, first):
        kill_with_its_shell(process)
    # Somebody removes ours, and puts netem there under another handle of the same range; at the left as at the right.
    other = "5abd:" if first["commands"][0][7] != "5abd:" else "5abe:"
    env = {**os.environ, "PATH": path}
    for port in PORTS:
        subprocess.run(inside("tc", "qdisc", "del", "dev", port, "root"), check=True)
        put = ("tc", "qdisc", "add", "dev", port, "root", "handle", other, "netem", "delay", "3ms")
        subprocess.run(inside(*put), check=True, env=env)
    before = roots()
    argv = inside("env", f"PATH={path}", find_instrument(), "emulate", "run", *PORTS, "--backend", "kernel")
    done = subprocess.run([*argv, "--forward", "delay 1ms"], check=False, capture_output=True, text=True)
    assert done.returncode == 3, done
    told = f"right: the port has a queueing discipline of somebody else (netem {other})"
    assert told in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1
    assert roots() == before
    clean()
    assert roots() == before
    assert not records(), "they state outdated facts"


def test_clean_removes_leftover_qdiscs_and_keeps_active_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_netem(tmp_path)
    monkeypatch.setenv("PATH", path)
    before = roots()
    with emulating(path, "--delay", "1ms") as (process, ready):
        during = roots()
        clean()
        assert roots() == during, "it runs"
        kill_with_its_shell(process)
    records()[0].with_name("netem-1-1.json").write_text("{")
    done = clean()
    handle = ready["commands"][0][7]
    assert [said for said in done.removed if handle in said] == [
        f"Removed the netem {handle} of a dead emulator at {port}." for port in PORTS
    ]
    assert not [said for said in done.left if "netem" in said]
    assert roots() == before
    assert not records()
    assert not Path("/run/sojourn/netem-1-1.json").exists(), "one that was cut says nothing"


def test_foreign_qdisc_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    subprocess.run(inside("tc", "qdisc", "add", "dev", "right", "root", "handle", "7:", "bfifo"), check=True)
    before = roots()
    argv = inside("env", f"PATH={path}", find_instrument(), "emulate", "run", *PORTS, "--backend", "kernel")
    done = subprocess.run([*argv, "--delay", "1ms"], check=False, capture_output=True, text=True)
    assert done.returncode == 3
    assert "right: the port has a queueing discipline of somebody else (bfifo 7:)" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1
    assert roots() == before
    # One that took the place of ours meanwhile is not ours to remove.
    with emulating(path, "--backward", "delay 1ms") as (process, _):
        remover = remover_of(process.pid)
        process.send_signal(signal.SIGSTOP)  # it would notice, and end by itself
        subprocess.run(inside("tc", "qdisc", "replace", "dev", "left", "root", "handle", "8:", "bfifo"), check=True)
        process.kill()
        await_that(lambda: has_ended(remover), "the shell that removes them has ended")
    assert roots()["left"]["handle"] == "8:"


def test_leftover_qdisc_at_a_port_without_a_pipe_is_removed(tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    before = roots()
    with emulating(path, "--delay", "1ms") as (process, _):
        kill_with_its_shell(process)
    assert roots()["left"] != before["left"]
    with emulating(path, "--forward", "delay 5ms") as (_, ready):
        assert [command[4] for command in ready["commands"]] == ["right"]
        assert roots()["left"] == before["left"]


@pytest.mark.parametrize("way", ["removed", "replaced", "renamed"])
def test_removed_qdisc_ends_the_emulator(way: str, tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    changes = {
        "removed": ["tc", "qdisc", "del", "dev", "right", "root"],
        "replaced": ["tc", "qdisc", "replace", "dev", "right", "root", "handle", "8:", "bfifo"],
        "renamed": ["sh", "-c", "ip link set right down; ip link set right name other; ip link set other up"],
    }
    with emulating(path, "--delay", "1ms", stderr=subprocess.PIPE) as (process, _):
        subprocess.run(inside(*changes[way]), check=True)
        began = time.monotonic()
        out, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 4, (out, said)
        told = (
            "it is called other now"
            if way == "renamed"
            else "its netem is not there any more, so packets pass as they are"
        )
        assert f"right: {told}" in said
        assert time.monotonic() - began < ENDS_WITHIN_SECONDS


@pytest.mark.parametrize("way", ["options", "bridge"])
def test_changed_options_or_a_port_out_of_its_bridge_end_the_emulator(way: str, tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    other = ("netem", "delay", "0ms") if has_netem() else ("pfifo", "limit", "5")
    with emulating(path, "--delay", "1ms", stderr=subprocess.PIPE) as (process, ready):
        handle = ready["commands"][0][7]
        changes = {
            "options": ["tc", "qdisc", "change", "dev", "right", "root", "handle", handle, *other],
            "bridge": ["ip", "link", "set", "right", "nomaster"],
        }
        told = {
            "options": "right: somebody has changed the options of its netem, so packets are not emulated as requested",
            "bridge": "right: it was taken out of its bridge, so the kernel forwards nothing between the ports",
        }
        subprocess.run(inside(*changes[way]), check=True)
        began = time.monotonic()
        out, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 4, (out, said)
        assert told[way] in said
        assert time.monotonic() - began < ENDS_WITHIN_SECONDS


def test_changes_that_the_emulation_outlasts_are_said(tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    said = tmp_path / "said"
    changes = {
        "link set right mtu 1400": "the MTU of right is 1400 bytes now; it was 1500",
        "address add 10.9.9.9/24 dev left": "left has the address 10.9.9.9 now",
        "link set left-end up": "left is up again",
        "link set left down": "left is down or has no carrier",
    }
    with said.open("w") as written, emulating(path, "--forward", "delay 1ms", stderr=written) as (process, _):
        for change, sentence in changes.items():
            subprocess.run(inside("ip", *change.split()), check=True)
            await_that(lambda: sentence in said.read_text(), f"it says that {sentence}")  # noqa: B023
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert said.read_text().count("\n") == len(changes), "each once"


def test_a_port_that_another_emulator_has_is_refused(tmp_path: Path) -> None:
    path = with_netem(tmp_path)
    with emulating(path, "--delay", "1ms"):
        during = roots()
        argv = inside("env", f"PATH={path}", find_instrument(), "emulate", "run", *PORTS, "--backend", "kernel")
        done = subprocess.run([*argv, "--delay", "2ms"], check=False, capture_output=True, text=True)
        assert done.returncode == 3
        assert "another emulator (process" in done.stderr, done.stderr
        assert roots() == during
