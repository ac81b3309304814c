"""The parts of the backend for real hosts that need no host: fetching, what is copied, what a shell's times say."""

from __future__ import annotations

import os
import subprocess
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import copies, fetching, joined, keeper, remote
from sojourn.bed.backends import ssh
from sojourn.bed.ssh import Line
from sojourn.errors import MachineError
from sojourn.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Here:
    """A line to this machine, which counts what it carried and may spoil it."""

    def __init__(self) -> None:
        self.carried = 0
        self.each: list[int] = []
        self.spoilt = 0

    def run(self, argv: Sequence[str], text: str = "", seconds: float = 60) -> str:
        return self.run_bytes(argv, text.encode(), seconds).decode()

    def run_bytes(self, argv: Sequence[str], given: bytes = b"", seconds: float = 60, most_bytes: int = 0) -> bytes:
        del most_bytes
        got = subprocess.run(argv, input=given, capture_output=True, timeout=seconds, check=True).stdout
        if argv[2] == keeper.FETCH:
            self.carried += len(got)
            self.each.append(len(got))
            if self.spoilt:
                self.spoilt -= 1
                return got[:-1] + b"?"
        return got


def fetched(tmp_path: Path) -> tuple[Here, Path, Path, Any]:
    """A folder there, one here, and what joins them."""
    line, there, here = Here(), tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    machine: Any = SimpleNamespace(line=line, root=[])
    return line, there, here, fetching.Fetched(machine, str(there), here, {})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_new_content_of_a_file_is_fetched(tmp_path: Path) -> None:
    line, there, here, one = fetched(tmp_path)
    (there / "deep").mkdir()
    (there / "blocks.arrow").write_bytes(b"first ")
    (there / "deep/with-dash.json").write_bytes(bytes(range(256)) * 40)
    (there / "empty").touch()
    fetching.fetch(one)
    assert contents(here) == contents(there)
    before = line.carried
    with (there / "blocks.arrow").open("ab") as file:
        file.write(b"second")
    (there / "deep/with-dash.json").rename(there / "deep/moved.json")
    fetching.fetch(one)
    assert contents(here) == contents(there)
    assert line.carried - before == len(b"second") + 256 * 40
    fetching.fetch(one)
    assert line.carried - before == len(b"second") + 256 * 40
    (there / "blocks.arrow").write_bytes(b"new")
    fetching.fetch(one)
    assert contents(here) == contents(there)


def test_long_files_are_fetched_in_parts_that_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "AT_ONCE_BYTES", 7)
    line, there, here, one = fetched(tmp_path)
    (there / "blocks.arrow").write_bytes(bytes(range(20)))
    (there / "probes.arrow").write_bytes(b"four")
    (there / "empty").touch()
    line.spoilt = 1
    fetching.fetch(one)
    assert contents(here) == contents(there)
    with (there / "blocks.arrow").open("ab") as file:
        file.write(bytes(15))
    fetching.fetch(one)
    assert contents(here) == contents(there)
    assert max(line.each) == 7


def test_folders_for_records_on_a_host_are_private(tmp_path: Path) -> None:
    [line] = [line for line in keeper.KEEPER.splitlines() if line.startswith("mkdir ") and '"$work"' in line]
    (tmp_path / "boot").write_text("this boot\n")
    work = tmp_path / "sojourn-run-0123"
    script = f"umask 022; work=$0 boot=$1\n{line}"
    subprocess.run(["sh", "-c", script, str(work), str(tmp_path / "boot")], check=True)
    assert (work / "boot").read_text() == "this boot\n"

    host = SimpleNamespace(work=str(work), run=lambda argv: subprocess.run(argv, check=True))
    backend: Any = object.__new__(ssh.SshBackend)
    backend._machines, backend._folders = {"a": host}, {}
    there = backend.folder("a", tmp_path)
    assert there.parent == work
    assert [oct(path.stat().st_mode & 0o7777) for path in (work, there)] == ["0o711", "0o700"]


def test_lent_file_is_for_the_caller_of_sudo_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the host could read it."""
    file = tmp_path / "device.conf"
    file.write_text("rate=1mbit\n")
    host = SimpleNamespace(work=str(tmp_path), line=Here(), root=[])
    backend: Any = object.__new__(ssh.SshBackend)
    backend._machines, backend._numbers = {"a": host}, iter((1, 2))
    monkeypatch.delenv("SUDO_UID", raising=False)
    found = [backend.lend("a", file).stat()]
    monkeypatch.setenv("SUDO_UID", "4242" if os.geteuid() == 0 else str(os.geteuid()))
    found.append(backend.lend("a", file).stat())
    assert [oct(one.st_mode & 0o7777) for one in found] == ["0o700", "0o700"]
    assert [one.st_uid for one in found] == [os.geteuid(), int(os.environ["SUDO_UID"])]


def test_keeper_names_namespaces_by_process_and_start_time() -> None:
    assert remote.kept(["7", "8-70", "9-71"], ("a", "b")) == (7, {"a": "8-70", "b": "9-71"})
    for words in (["7", "8"], ["7", "8-70", "9"], ["7", "8-70", "$(id)-1"]):
        with pytest.raises(ValueError, match=r"is no process|zip"):
            remote.kept(words, ("a", "b"))


def test_file_with_a_wrong_hash_is_fetched_again_once(tmp_path: Path) -> None:
    line, there, here, one = fetched(tmp_path)
    (there / "blocks.arrow").write_bytes(b"some blocks")
    line.spoilt = 1
    fetching.fetch(one)
    assert contents(here) == contents(there)
    (there / "blocks.arrow").write_bytes(b"some blocks, and more")
    line.spoilt = 2
    with pytest.raises(MachineError, match="records came otherwise than they are there"):
        fetching.fetch(one)


class Bounded(Line):
    """A line to this machine, with the limits of one to another."""

    def __init__(self) -> None:
        self._master: Any = SimpleNamespace(poll=lambda: None)

    def __str__(self) -> str:
        return "host A (a.lab)"

    def command(self, argv: Sequence[str]) -> list[str]:
        return list(argv)


def test_query_that_a_host_answers_without_end_is_one_sentence() -> None:
    """Its answer filled the memory for as long as a query may take."""
    assert Bounded().run(["cat"], "asked") == "asked"
    with pytest.raises(MachineError, match=r"^host A \(a\.lab\): 'cat' printed more than 67108864 bytes"):
        Bounded().run(["cat", "/dev/zero"])
    with pytest.raises(MachineError, match=r"^host A \(a\.lab\): 'sleep' did not end within 0 s$"):
        Bounded().run(["sleep", "60"], seconds=0.2)
    with pytest.raises(MachineError, match=r"^host A \(a\.lab\): no such thing$"):
        Bounded().run(["sh", "-c", "echo no such thing >&2; exit 1"])


def test_host_that_sends_more_than_is_asked_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, there, here, one = fetched(tmp_path)
    one.machine.line = Bounded()
    (there / "blocks.arrow").write_bytes(b"some blocks")
    (there / "empty").touch()
    fetching.fetch(one)
    assert contents(here) == contents(there)
    (there / "blocks.arrow").write_bytes(b"some blocks, and more")
    monkeypatch.setattr(keeper, "FETCH", 'cat "$1/blocks.arrow" /dev/zero')
    with pytest.raises(MachineError, match="records came otherwise than they are there"):
        fetching.fetch(one)
    assert contents(here)["blocks.arrow"] == b"some blocks"


KEEPER = 'while read -r word; do [ "$word" != look ] || echo here; done; echo gone'


def kept(script: str) -> Any:
    """A host whose keeper is a script here."""
    one: Any = object.__new__(remote.RemoteMachine)
    one.line = SimpleNamespace(lost=lambda: "host B (b.lab): the SSH connection was lost")
    one.name, one._silent, one._lock, one.carriers = "b", False, threading.Lock(), {}
    one._process = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    return one


@pytest.mark.parametrize(
    ("status", "sentence"), [(0, "gave up waiting for this controller"), (255, "connection was lost")]
)
def test_records_are_fetched_from_the_hosts_that_are_left(status: int, sentence: str, tmp_path: Path) -> None:
    _, there, here, folder = fetched(tmp_path)
    is_there = True

    def require() -> None:
        if not is_there:
            raise MachineError("host A has gone")

    folder.machine.require = require
    backend: Any = object.__new__(ssh.SshBackend)
    gone = kept(f"read -r word; echo here; read -r word; exit {status}")
    backend._machines = {"a": kept(KEEPER), "b": gone}
    backend._folders = {("a", here): folder}
    (there / "blocks.arrow").write_bytes(b"good")
    backend.gather()
    (there / "blocks.arrow").write_bytes(b"good, and more")
    with pytest.raises(MachineError, match=sentence):
        backend.gather()
    assert contents(here) == {"blocks.arrow": b"good, and more"}
    is_there = False
    (there / "blocks.arrow").write_bytes(b"good, and more, and then loss")
    with pytest.raises(MachineError, match="host A has gone"):
        backend.gather()
    assert contents(here) == {"blocks.arrow": b"good, and more"}
    gone._beat()
    assert sentence in gone.gone()
    for one in backend._machines.values():
        one._process.communicate()


@pytest.mark.parametrize("script", ["kill -STOP $$", "printf her; exec sleep 60", "exec cat /dev/zero"])
def test_keeper_that_prints_no_whole_line_does_not_answer(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line hung the conductor."""
    monkeypatch.setattr(remote, "_READY_SECONDS", 0.3)
    monkeypatch.setattr(remote, "_KILLED_SECONDS", 0.1)
    one = kept(script)
    with pytest.raises(MachineError, match="does not answer any more"):
        one.require()
    assert "connection was lost" in one.gone()
    one._process.kill()
    one._process.communicate()


def entered(work: Path, number: int, *command: str) -> subprocess.CompletedProcess[str]:
    """A program of a bed's host, which has ended: in no namespace, and no cgroup."""
    argv = ["sh", "-c", keeper.ENTER, "sh", str(work), str(number), "-", str(work), "-", *command]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def signalled(work: Path, line: str) -> str:
    """What the keeper gives to `kill` as a process, asked to send a signal."""
    branch = keeper.KEEPER[keeper.KEEPER.index("number=${line##* }") :]
    script = f'work=$1 line=$2\nkill() {{ echo "$2"; }}\n{branch[: branch.index(") 2>/dev/null 9>")]}'
    argv = ["sh", "-c", script, "sh", str(work), line]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def test_signal_that_comes_late_reaches_no_other_program(tmp_path: Path) -> None:
    """The PID stayed in its file, and another program could have it by then: the keeper is root."""
    done = entered(tmp_path, 1, "sh", "-c", 'echo $$; cat "$0"; exit 3', str(tmp_path / "pid.1"))
    pid, noted = done.stdout.split()
    assert (done.returncode, noted) == (3, pid), "while it runs its PID is known"
    assert signalled(tmp_path, "signal TERM 1") == ""
    (tmp_path / "pid.2").write_text(f"{os.getpid()}\n")
    assert signalled(tmp_path, "signal TERM 2") == str(os.getpid())


def test_processor_time_is_counted_of_programs_that_run_and_that_have_ended(tmp_path: Path) -> None:
    def usage() -> str:
        argv = ["sh", "-c", keeper.USAGE, "sh", str(tmp_path)]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    assert usage().count("cpu") == 1, "of the machine, once"
    entered(tmp_path, 1, "true")
    said = usage()
    assert (said.count("cpu"), said.count("\nended "), said.count("\nlive ")) == (1, 1, 0)
    (tmp_path / "pid.2").write_text(f"{os.getpid()}\n")
    said = usage()
    assert (said.count("cpu"), said.count("\nended "), said.count("\nlive ")) == (1, 1, 1)
    assert ssh._usage_in(said)[2] > 0


def test_the_instrument_without_libraries_is_copied_unless_it_is_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, alone = tmp_path / "sojourn-instrument", tmp_path / "sojourn-instrument-static"
    own.touch()
    monkeypatch.setattr(copies, "find_instrument", lambda: str(own))
    assert copies.instrument_for_hosts() == own
    alone.touch()
    assert copies.instrument_for_hosts() == alone
    os.utime(alone, (1, 1))
    assert copies.instrument_for_hosts() == own


def program_for(machine: int) -> bytes:
    """The head of an ELF program."""
    return b"\x7fELF".ljust(18, b"\0") + machine.to_bytes(2, "little")


def test_architecture_of_a_program_is_read_from_its_header() -> None:
    assert copies.architecture_of(program_for(62)) == "x86_64"
    assert copies.architecture_of(program_for(183)) == "aarch64"


def test_a_host_of_another_architecture_gets_the_instrument_that_is_built_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other, named = (tmp_path / f"sojourn-instrument{end}" for end in ("", "-aarch64", "-named"))
    monkeypatch.setattr(copies, "find_instrument", lambda: str(own))
    monkeypatch.delenv("SOJOURN_INSTRUMENT_AARCH64", raising=False)
    own.write_bytes(program_for(62))
    assert copies.instrument_for_hosts("x86_64") == own
    assert copies.instrument_for_hosts("aarch64") == own, "it is refused for its architecture"
    other.write_bytes(program_for(183))
    assert copies.instrument_for_hosts("aarch64") == other
    assert copies.instrument_for_hosts("x86_64") == own
    os.utime(other, (1, 1))
    again = (
        f"{other} is older than {own}: run `make arm64` again in the source tree here, or name one built for aarch64"
    )
    with pytest.raises(MachineError) as refused:
        copies.instrument_for_hosts("aarch64")
    assert str(refused.value) == f"{again}: SOJOURN_INSTRUMENT_AARCH64=FILE"
    monkeypatch.setenv("SOJOURN_INSTRUMENT_AARCH64", str(named))
    with pytest.raises(MachineError, match=f"SOJOURN_INSTRUMENT_AARCH64={named} is no file"):
        copies.instrument_for_hosts("aarch64")
    named.write_bytes(program_for(183))
    assert copies.instrument_for_hosts("aarch64") == named
    assert copies.instrument_for_hosts("x86_64") == own


def test_script_is_accepted_on_every_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "sojourn-instrument"
    own.write_bytes(b"#!/bin/sh\nexit 0\n")
    own.with_name(f"{own.name}-aarch64").write_bytes(program_for(183))
    monkeypatch.setattr(copies, "find_instrument", lambda: str(own))
    monkeypatch.delenv("SOJOURN_INSTRUMENT_AARCH64", raising=False)
    assert copies.instrument_for_hosts("aarch64") == own
    assert copies.is_for(own.read_bytes(), "aarch64")
    assert not copies.is_for(b"no program", "aarch64")


def test_all_hosts_of_a_bed_have_their_instruments_in_one_folder() -> None:
    x86, arm = program_for(62), program_for(183)
    assert copies.tools_folder(x86) == copies.tools_folder(x86, x86) != copies.tools_folder(arm)
    assert copies.tools_folder(x86, arm) == copies.tools_folder(arm, x86, arm)
    assert copies.tools_folder(x86, arm) not in {copies.tools_folder(x86), copies.tools_folder(arm)}


@pytest.mark.parametrize(("said", "fits"), [(__version__, True), ("0.1.9", False)])
def test_a_named_instrument_of_another_version_is_refused(said: str, fits: bool) -> None:
    backend: Any = object.__new__(ssh.SshBackend)
    backend._tools = "/run/tools"
    one: Any = SimpleNamespace(found=SimpleNamespace(architecture="aarch64"), root=[])
    one.run = lambda argv: "have"

    class OfVersion:
        def __str__(self) -> str:
            return "host B (b.lab)"

        def run(self, argv: Sequence[str]) -> str:
            assert argv == ["/run/tools/sojourn-instrument", "--version"]
            return f"sojourn-instrument {said}\n"

    one.line = OfVersion()
    if fits:
        backend._install(one, program_for(183))
        return
    with pytest.raises(MachineError, match=r"host B \(b\.lab\): the instrument for aarch64 is of another version"):
        backend._install(one, program_for(183))


def test_processor_times_in_shell_format_are_parsed() -> None:
    assert ssh._seconds("1m2.30s") == pytest.approx(62.3)
    assert ssh._seconds("0m0.000000s") == 0.0


def links_of(name: str, *setup: str) -> str:
    """What the keeper's shell says of the links of a namespace of its own, in which `name` has been set up."""
    functions = (("started() {", "irqs_of() {"), ("links() {", "exec 9>>"))
    known = [keeper.KEEPER[keeper.KEEPER.index(begin) : keeper.KEEPER.index(end)] for begin, end in functions]
    script = "\n".join([*setup, *known, "started $$; held=$$-$ticks", "links"])
    argv = ["unshare", "--net", "sh", "-ec", script, name]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of its own needs root")
@pytest.mark.parametrize("properties", [(), ("ip link property add dev p1 altname enp1s0 altname eno1",)])
def test_carrier_changes_are_counted_for_ports_with_alternative_names(properties: tuple[str, ...]) -> None:
    """As nearly every interface of a real host has: `ip` prints them behind the statistics."""
    up = ("ip link add p1 type veth peer name p2", *properties, "ip link set p1 up; ip link set p2 up")
    before = counts_of(links_of("p1", *up))
    after = counts_of(links_of("p1", *up, "ip link set p2 down; ip link set p2 up"))
    assert before.keys() == after.keys() == {"lo", "p1", "p2"}
    assert after["p1"] == before["p1"] + 2


def counts_of(said: str) -> dict[str, int]:
    return {port: int(count) for port, _, count in (line.partition("=") for line in said.split())}


def with_ports(script: str) -> Any:
    """A backend whose host A has two ports of the bed, and a keeper that is a script here."""
    backend: Any = object.__new__(ssh.SshBackend)
    host = kept(script)
    backend._machines, backend._ports, backend._carriers = {"a": host}, {"a1": "eth1", "a2": "eth2"}, {}
    backend._at = dict.fromkeys(backend._ports, host)
    return backend


def test_ports_of_every_devices_host_are_called_by_the_real_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "ports_of", lambda *_: {"b1": "eth1", "d1": "eth2", "r1": "eth3"})
    bed: Any = SimpleNamespace(topology=None, spec=SimpleNamespace(paths={}))
    ports: list[Any] = [SimpleNamespace(dev=f"{host[0]}1", host=host) for host in ("b", "d", "r-bridge")]
    assert [joined._called(bed, one) for one in ports] == [
        "eth1 of host B", "eth2 of host device", "eth3 of host device",
    ]  # fmt: skip


def test_a_port_that_lost_its_carrier_since_the_last_look_is_named() -> None:
    backend = with_ports(
        "while read -r word; do echo here lo=7 a1=0 a2=3; read -r word; echo here lo=9 a1=2 a2=3; done"
    )
    host = backend._machines["a"]
    backend.require_hosts()
    assert backend.lost_links() == {}, "what was before is not known"
    backend.require_hosts()
    assert list(backend.lost_links().items()) == [("a1", f"eth1 of {host}")]
    host._process.communicate()


def test_port_that_cannot_be_monitored_is_refused_and_a_deleted_one_is_lost() -> None:
    backend = with_ports(
        "read -r word; echo here a1=0; read -r word; echo here a1=0 a2=3; read -r word; echo here a2=3; cat"
    )
    host = backend._machines["a"]
    backend.require_hosts()
    with pytest.raises(MachineError, match="does not tell it of eth2; `ip -s -s link show` there must print"):
        backend.lost_links()
    backend._carriers = {}
    backend.require_hosts()
    assert backend.lost_links() == {}
    backend.require_hosts()
    assert list(backend.lost_links().items()) == [("a1", f"eth1 of {host}")]
    host._process.communicate()
