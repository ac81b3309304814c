"""Parts of the keeper's script, run by a shell here: what it takes and gives back, and which processes it ends.

The host is a folder: `host` and `inside` are the network namespaces of the host and of the bed, with a file for each
interface that has its MAC address; `ip`, `nsenter` and `stat` are scripts. The shell's `kill` only says what it is
asked.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from sojourn.bed import keeper, setting_scripts
from sojourn.bed.setting_scripts import STATE
from sojourn.bed.state import Process
from tests.children import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IP = """#!/bin/sh
here=$WORLD/${WHERE:-host}
echo "${WHERE:-host} $*" >>"$WORLD/asked"
[ "$1" != -d ] || shift
asked=$2 name=$4
[ -e "$here/$name" ] || exit 1
if [ "$asked" = show ]; then
    echo "7: $name: <BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN mode DEFAULT group default qlen 1000"
    echo "    link/ether $(cat "$here/$name") brd ff:ff:ff:ff:ff:ff"
    exit
fi
shift 4
while [ $# -gt 1 ]; do
    case $1 in
        name) [ "$2" = "$name" ] || { [ ! -e "$here/$2" ] && mv "$here/$name" "$here/$2" && name=$2; } || exit 2 ;;
        netns)
            if [ "$2" = "$HOLDER" ]; then there=inside; else there=host; fi
            [ ! -e "$WORLD/$there/$name" ] && mv "$here/$name" "$WORLD/$there/$name" || exit 2
            here=$WORLD/$there ;;
        address) echo "$2" >"$here/$name" ;;
    esac
    shift 2
done
"""
NSENTER = """#!/bin/sh
shift 2
WHERE=inside exec "$@"
"""
STAT = """#!/bin/sh
format=$3
shift 3
for path; do
    pid=${path#/proc/}; pid=${pid%%/*}
    case " $INSIDE " in *" $pid "*) inode=7 ;; *) inode=1 ;; esac
    case $format in %i) echo $inode ;; *) echo $inode "$path" ;; esac
done
"""
ETHTOOL = "#!/bin/sh\n"
ALONE = """#!/bin/sh
while [ "$1" != sleep ]; do shift; done
exec "$@"
"""
OWN, OF_THE_BED, FOREIGN = "00:16:3e:00:00:01", "02:77:00:00:01:01", "52:54:00:12:34:56"


class World:
    """A host, and the tools that see it."""

    def __init__(self, folder: Path, holder: int) -> None:
        self.folder = folder
        self.holder = holder
        """The process that holds the bed's namespace."""
        self.taken = folder / "taken.7"
        for one in ("host", "inside", "bin"):
            (folder / one).mkdir()
        tools = {"ip": IP, "nsenter": NSENTER, "stat": STAT, "ethtool": ETHTOOL, "setpriv": ALONE, "unshare": ALONE}
        for name, script in tools.items():
            (folder / "bin" / name).write_text(script)
            (folder / "bin" / name).chmod(0o755)

    def put(self, where: str, name: str, mac: str) -> None:
        (self.folder / where / name).write_text(f"{mac}\n")

    def has(self, where: str) -> dict[str, str]:
        """The interfaces of a namespace, each with its MAC address."""
        return {path.name: path.read_text().strip() for path in (self.folder / where).iterdir()}

    def set_in(self, where: str) -> list[str]:
        """What `ip` was asked to set in a namespace."""
        file = self.folder / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.startswith(f"{where} link set")]

    def was_taken(self, holder: str) -> None:
        """Have the file of taken interfaces, and what was written down of one."""
        self.taken.write_text(f"{holder} eth1 a-direct {OWN} 1500 down\n")
        (self.folder / "features.eth1").touch()
        (self.folder / "segments.eth1").write_text("65535\n")

    def take(self, holder: str, status: int = 0) -> None:
        self.taken.touch()
        line = f"{holder} eth1 a-direct {OF_THE_BED} 1500 {OWN} 1500 down\n"
        self.run(keeper.TAKE.replace(STATE, str(self.folder)), "7", "/nonexistent", said=line, status=status)

    def give_back(self) -> None:
        functions = between("started() {", "make_groups() {")
        self.run(f"state=$1 taken=$1/taken.7\n{functions}\ngive_back", str(self.folder))

    def killed(self, held: str, *inside: int) -> list[str]:
        """Which processes are killed at the end, in order, where these are in the namespace with the bed's inode."""
        functions = between("started() {", "links() {")
        script = f'kill() {{ shift; echo "$@"; }}\n{functions}\nheld=$1\nend_programs; end_keepers; true'
        said = self.run(script, held, INSIDE=" ".join(map(str, inside)))
        return list(dict.fromkeys(said.split()))

    def run(self, script: str, *argv: str, said: str = "", status: int = 0, **more: str) -> str:
        own = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "WORLD": str(self.folder), "HOLDER": str(self.holder)}
        command = ["sh", "-c", script, "sh", *argv]
        done = subprocess.run(
            command, input=said, capture_output=True, text=True, env=os.environ | own | more, timeout=60, check=False
        )
        assert done.returncode == status, done.stderr
        return done.stdout


def between(begin: str, end: str) -> str:
    """A part of the keeper."""
    return keeper.KEEPER[keeper.KEEPER.index(begin) : keeper.KEEPER.index(end)]


def known(pid: int) -> str:
    """A process as the keeper knows it."""
    return f"{pid}-{Process.of(pid).started_ticks}"


def later(pid: int) -> str:
    """An earlier process, whose PID this one has now."""
    return f"{pid}-1"


@pytest.fixture
def pid() -> Iterator[int]:
    """A process that does nothing."""
    with Child(["cat"], stdin=subprocess.PIPE) as one:
        yield one.pid


@pytest.fixture
def other() -> Iterator[int]:
    """Another one."""
    with Child(["cat"], stdin=subprocess.PIPE) as one:
        yield one.pid


@pytest.fixture
def world(tmp_path: Path, pid: int) -> World:
    return World(tmp_path, pid)


def test_interface_is_taken_and_given_back(world: World) -> None:
    world.put("host", "eth1", OWN)
    world.take(known(world.holder))
    assert (world.has("host"), world.has("inside")) == ({}, {"a-direct": OF_THE_BED})
    assert world.taken.read_text().split()[0] == known(world.holder)
    world.give_back()
    assert (world.has("host"), world.has("inside")) == ({"eth1": OWN}, {})
    assert not world.taken.exists()


def test_interface_of_the_same_name_that_came_meanwhile_is_left_alone(world: World) -> None:
    """It got the port's MAC address, and the port's own came back under another name with the bed's."""
    world.put("inside", "a-direct", OF_THE_BED)
    world.put("host", "eth1", FOREIGN)
    world.was_taken(known(world.holder))
    written = world.taken.read_text()
    world.give_back()
    assert (world.has("host"), world.has("inside")) == ({"eth1": FOREIGN}, {"a-direct": OF_THE_BED})
    (world.folder / "inside/a-direct").rename(world.folder / "host/a-direct")  # as its namespace ends
    world.was_taken(later(world.holder))
    world.give_back()
    assert world.has("host") == {"eth1": FOREIGN, "a-direct": OF_THE_BED}
    assert world.set_in("host") == []
    assert world.taken.read_text() == written.replace(known(world.holder), later(world.holder))
    assert (world.folder / "features.eth1").exists()
    (world.folder / "host/eth1").unlink()
    world.give_back()
    assert world.has("host") == {"eth1": OWN}
    assert not world.taken.exists()


@pytest.mark.parametrize("namespace_is_gone", [False, True])
def test_interface_whose_mac_was_changed_in_the_bed_is_given_back(world: World, namespace_is_gone: bool) -> None:
    """As by a box's script: the port stayed down with that address, and in the file, for good."""
    world.put("host" if namespace_is_gone else "inside", "a-direct", FOREIGN)
    world.was_taken((later if namespace_is_gone else known)(world.holder))
    world.give_back()
    assert (world.has("host"), world.has("inside")) == ({"eth1": OWN}, {})
    assert not world.taken.exists()


def test_no_interface_is_taken_back_by_the_pid_of_a_process_that_has_ended(world: World) -> None:
    """Another process, such as one of a container, may have the PID; its eth1 was taken away."""
    world.put("inside", "eth1", FOREIGN)
    world.was_taken(later(world.holder))
    world.give_back()
    assert (world.has("host"), world.has("inside"), world.set_in("inside")) == ({}, {"eth1": FOREIGN}, [])
    assert world.taken.exists()


def test_no_namespace_is_entered_by_the_pid_of_a_process_that_has_ended(world: World) -> None:
    """Root's programs ran in the namespace of who had the PID, and got the host's ports."""
    setting = f"{setting_scripts.THERE}\nns=$1; shift\nin_port "
    folder = str(world.folder)
    scripts: dict[str, Callable[[str], tuple[str, ...]]] = {
        "enter": lambda ns: (keeper.ENTER, folder, "1", ns, "/nonexistent", "-"),
        "inside": lambda ns: (keeper.INSIDE, ns, "/nonexistent"),
        "settings": lambda ns: (f'{setting}"$@"', ns),
    }
    where = ["sh", "-c", "echo ${WHERE:-host}"]
    for name, script in scripts.items():
        assert world.run(*script(known(world.holder)), *where) == "inside\n", name
        world.run(*script(later(world.holder)), *where, status=1)
    world.put("host", "eth1", OWN)
    world.take(later(world.holder), status=1)
    world.run(keeper.LAY, known(world.holder), later(world.holder), status=1)
    assert (world.has("host"), world.set_in("inside")) == ({"eth1": OWN}, [])


def test_signal_that_waits_for_its_program_does_not_keep_the_lock(tmp_path: Path) -> None:
    """The host was held for half a second after its keeper was gone, and the next bed was refused."""
    branch = between("        signal\\ *)", "    esac\ndone")
    script = 'exec 9>>"$1/lock" 8>>"$1/taken"; flock -n 9 && flock -n 8 || exit 1\nwork=$1 line="signal TERM 1"\n'
    argv = ["sh", "-c", f"{script}case $line in\n{branch}\nesac", "sh", str(tmp_path)]
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    for one in ("lock", "taken"):
        subprocess.run(["flock", "-w", "0.2", str(tmp_path / one), "true"], check=True)


def test_programs_in_the_namespaces_of_a_bed_are_ended(world: World, other: int) -> None:
    assert world.killed(known(world.holder), world.holder, other) == [str(other), str(world.holder)]


def test_no_process_is_killed_by_the_namespace_of_another_that_has_the_pid_of_a_keeper(
    world: World, other: int
) -> None:
    """All processes of the host were, or all of the container that had the PID, or only the inode, by then."""
    assert world.killed(later(world.holder)) == []
    assert world.killed(later(world.holder), world.holder, other) == []
    assert world.killed(later(world.holder), other) == []


def test_no_process_is_killed_in_the_namespace_of_the_host(world: World) -> None:
    assert world.killed(known(world.holder)) == [str(world.holder)]


def test_processes_that_hold_namespaces_are_known_by_pid_and_start_time(world: World) -> None:
    functions, begin = between("started() {", "give_back() {"), between("held= keeps=", "exec 8<")
    script = f"{functions}\n{begin}\necho $held; read -r end; for one in $held; do kill ${{one%-*}}; done"
    own = os.environ | {"PATH": f"{world.folder}/bin:{os.environ['PATH']}"}
    argv = ["sh", "-c", script, "sh", "a", "b"]
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own) as one:
        assert one.stdout is not None
        held = one.stdout.readline().split()
        assert len(held) == 2
        assert held == [known(int(one.partition("-")[0])) for one in held]
        one.communicate("\n", timeout=30)
