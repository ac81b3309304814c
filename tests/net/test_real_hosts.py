"""Studies over real sshd's, on hosts that share no file with the controller; faults, refusals, what is left behind."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import copies, keeper
from sojourn.bed.copies import instrument_for_hosts, tools_folder
from sojourn.binary import find_instrument
from sojourn.records import read_table
from tests.children import Child
from tests.net.busy_machine import idle_ends
from tests.net.real_hosts import PATHS, SOJOURN, SSHD, Hosts
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
]
FEW = ("--set", "bed.sessions=2", "--set", "pairs.rounds=4", "--set", "probe.icmp_bytes=64", *idle_ends())
SHORT = ("--quick", "--no-history", *FEW)
ONE_BED = ("--set", "bed.sessions=1")
LEASE_SECONDS = 60.0
ETHTOOL = shutil.which("ethtool") or "/usr/sbin/ethtool"
SETPRIV = shutil.which("setpriv") or "/usr/bin/setpriv"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts; whatever a test did, nothing is left on any of them."""
    with Hosts(tmp_path / "lab") as hosts:
        yield hosts
        await_nothing(hosts, 5)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts that many tests use, one after the other."""
    with Hosts(tmp_path_factory.mktemp("lab")) as hosts:
        before = settings(hosts)
        yield hosts
        assert settings(hosts) == before, "an earlier test left something behind"


@pytest.fixture
def spoilt(lasting: Hosts) -> Iterator[Hosts]:
    """Three hosts of which files, addresses, bridges and tools may be spoilt: all of that is put back."""
    kept = {lasting.folder / name: b"" for name in ("user", "user.pub", "known_hosts", "ssh_config")}
    kept = {file: file.read_bytes() for file in kept}
    yield lasting
    for file, content in kept.items():
        file.write_bytes(content)
    for host, undo in PUT_BACK:
        lasting.at(host, "sh", "-c", f"{undo} 2>/dev/null || true")
    await_nothing(lasting, 5)


PUT_BACK = [
    ("desk", "ip route del unreachable 10.99.2.77"),
    ("b", "ip -4 address flush dev eth2"),
    ("b", "ip link set eth2 mtu 1500"),
    ("device", "ip link del br9"),
    ("a", f"umount {ETHTOOL}"),
    ("device", f"umount {SETPRIV}"),
    ("a", f"umount {shutil.which('date')}"),
    ("b", f"umount {shutil.which('uname')}"),
    ("b", f"umount {shutil.which('tcpdump')}"),
    ("a", f"umount {shutil.which('ping')}"),
]


def await_nothing(hosts: Hosts, seconds: float) -> None:
    """Wait until nothing of a bed is left."""
    end = time.monotonic() + seconds
    while (left := hosts.left_behind()) and time.monotonic() < end:
        time.sleep(0.2)
    assert left == {}


def settings(hosts: Hosts) -> dict[str, str]:
    """What interfaces of all hosts are and are set to, and the settings of their networks."""
    shown = "for dev in eth1 eth2; do ip -o link show $dev; ethtool -k $dev; done; sysctl -a 2>/dev/null | grep '^net'"
    volatile = re.compile(r"net\.(ipv4\.tcp_fastopen_key|netfilter|ipv4\.route|ipv4\.(icmp|tcp|udp)_mem).*")
    return {name: volatile.sub("", hosts.at(name, "sh", "-c", shown)) for name in hosts.names}


def test_study_runs_on_hosts_reachable_only_by_ssh(hosts: Hosts) -> None:
    for name, port in (("a", "eth1"), ("b", "eth2"), ("device", "eth1")):
        hosts.at(name, "ethtool", "-K", port, "tso", "off")
    hosts.at("a", "ip", "link", "set", "eth1", "mtu", "1600", "up")
    before = settings(hosts)
    done = hosts.sojourn("run", "bridge-latency", *SHORT, "--bed", str(hosts.bed()), "--out", "run")
    assert done.returncode in (0, 4), done.stderr
    run = hosts.folder / "run"
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert log[-1]["event"] == "finished"
    blocks = [entry for entry in log if entry["event"] == "block"]
    assert {entry["device"] for entry in blocks} == {"direct", "a/a", "bridge"}
    assert all(entry["lost"] == 0 for entry in blocks)
    assert {path.name for path in (run / "records").glob("*.arrow")} >= {"blocks-000.arrow", "probes-001.arrow"}
    assert json.loads((run / "analysis/verdict.json").read_text())["sentence"]
    assert (run / "report/index.html").is_file()
    bed = (run / "bed.json").read_text()
    assert json.loads(bed)["stable"]["machines"].keys() == {"a", "b", "device"}
    assert "a.lab" not in bed
    assert not [one for one in json.loads(bed)["stable"]["bed"]["missing"] if one.startswith("Path ")]
    assert settings(hosts) == before


def test_user_with_sudo_measures_a_device_between_hosts(tmp_path: Path) -> None:
    cables = [("a", "eth1", "b", "eth1"), ("a", "eth2", "b", "eth2")]
    paths = '[paths.direct]\na = "eth1"\nb = "eth1"\n[paths."dut:cord"]\na = "eth2"\nb = "eth2"\n'
    with Hosts(tmp_path / "lab", names=("a", "b"), cables=cables, user="lab") as hosts:
        hosts.allow_sudo()
        bed = str(hosts.bed(paths))
        done = hosts.sojourn("run", "bridge-latency", *SHORT, *ONE_BED, "--bed", bed, "--out", "run", "--no-report")
        assert done.returncode in (0, 4), done.stderr
        assert '"dut:cord"' in (hosts.folder / "run/plan.toml").read_text()
        await_nothing(hosts, 5)


OWN_PORT = 2222
OWN_FOLDER = "/home/lab"
OWN_KNOWN = "config_with_known_hosts_alone"
OWN_SSHD = (
    SSHD, "-f", "/dev/null", "-p", str(OWN_PORT), "-E", "/run/own.log", "-o", "UsePAM=no", "-o", "PidFile=none",
    "-o", "PasswordAuthentication=no", "-o", "AllowUsers=lab", "-o", "MaxStartups=100",
)  # fmt: skip


def test_keys_of_the_file_and_the_agent_reach_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration names user, port or key. A's key is in the file; B takes only one that the agent alone has."""
    with Hosts(tmp_path / "lab", user="lab") as hosts:
        hosts.allow_sudo()
        prints = {"user": fingerprint(hosts.folder / "user.pub")}
        with agent_with_a_key(hosts.folder) as (socket, public):
            prints["agent"] = fingerprint(public)
            for name in hosts.names:
                own = public if name == "b" else hosts.folder / "user.pub"
                hosts.at(name, "sh", "-c", 'echo "$0" >/home/lab/.ssh/authorized_keys', own.read_text(encoding="ascii"))
                hosts.at(name, *OWN_SSHD, "-h", f"/dev/shm/host_{name}")
            for name in ("a", "b"):
                hosts.at(name, "mount", "-n", "-t", "tmpfs", "-o", "ro", "own", "/var/tmp")
            monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
            bed = str(bed_by_keys(hosts, keep=True))
            done = hosts.sojourn("bed", "check", bed)
            assert done.returncode == 0, done.stdout + done.stderr
            kept = instruments_of(hosts)
            assert len(kept) == len(hosts.names), "the instrument stays"
            done = hosts.sojourn("run", "bridge-latency", *SHORT, *ONE_BED, "--bed", bed, "--out", "run", "--no-report")
            assert done.returncode in (0, 4), done.stderr
            assert (hosts.folder / "run/records/blocks-000.arrow").stat().st_size > 0, "fetched from /home/lab"
            assert instruments_of(hosts) == kept, "it is not copied again"
            done = hosts.sojourn("bed", "check", str(bed_by_keys(hosts, keep=False)))
            assert done.returncode == 0, done.stdout + done.stderr
        assert instruments_of(hosts) == {}
        await_nothing(hosts, 5)
        for name, key, came_from in (("a", "user", "10.99.1.1"), ("b", "agent", "10.99.2.1"), ("device", "user", "")):
            logins = re.findall(r"Accepted publickey for (\S+) from (\S+) port \d+ ssh2: ED25519 (\S+)",
                                hosts.at(name, "cat", "/run/own.log"))  # fmt: skip
            assert {(user, of) for user, _, of in logins} == {("lab", prints[key])}
            # The device's host is its own jump host.
            assert {address for _, address, _ in logins} == ({came_from} if came_from else {"10.99.3.1", "10.99.3.2"})
            assert hosts.at(name, "ls", OWN_FOLDER) == ""


@contextmanager
def agent_with_a_key(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The socket of an agent, and the public part of a key that is nowhere else."""
    socket, key = folder / "agent", folder / "held_by_the_agent"
    with Child(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as agent:
        try:
            end = time.monotonic() + 20
            while not socket.exists():
                assert agent.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
            subprocess.run(["ssh-add", "-q", str(key)], env={**os.environ, "SSH_AUTH_SOCK": str(socket)}, check=True)
            key.unlink()
            yield socket, key.with_suffix(".pub")
        finally:
            agent.terminate()


def fingerprint(public: Path) -> str:
    """The SHA-256 of a public key, as sshd logs it."""
    said = subprocess.run(["ssh-keygen", "-l", "-f", str(public)], capture_output=True, text=True, check=True).stdout
    return said.split()[1]


def bed_by_keys(hosts: Hosts, *, keep: bool) -> Path:
    """A file whose keys say how each host is reached; only the sshd's at another port have known host keys."""
    known, words = hosts.folder / "known_by_port", ""
    lines = (hosts.folder / "known_hosts").read_text(encoding="ascii").splitlines()
    known.write_text("".join(f"[{one.split()[0]}]:{OWN_PORT} {one.partition(' ')[2]}\n" for one in lines))
    (hosts.folder / OWN_KNOWN).write_text(f"UserKnownHostsFile {known}\n")
    of_one = {"a": 'key = "user"\n', "device": f'key = "user"\njump = "lab@10.99.3.2:{OWN_PORT}"\n'}
    for number, name in enumerate(hosts.names, start=1):
        words += f'[hosts.{name}]\naddress = "10.99.{number}.2"\nuser = "lab"\nport = {OWN_PORT}\n'
        words += f'config = "{OWN_KNOWN}"\nfolder = "{OWN_FOLDER}"\nkeep = {str(keep).lower()}\n'
        words += of_one.get(name, "")
    file = hosts.folder / "bed.toml"
    file.write_text(words + PATHS, encoding="utf-8")
    return file


def instruments_of(hosts: Hosts) -> dict[str, str]:
    """By host, where the instrument is, and its number as a file and SHA-256: another copy has another number."""
    script = (
        "cd /var/lib/sojourn 2>/dev/null && for one in */sojourn-instrument; do ls -i $one; sha256sum $one; done; true"
    )
    found = {name: hosts.at(name, "sh", "-c", script).strip() for name in hosts.names}
    return {name: one for name, one in found.items() if one}


def nobody(hosts: Hosts) -> None:
    hosts.config.write_text(hosts.config.read_text().replace("10.99.2.2", "10.99.2.77"))
    hosts.at("desk", "ip", "route", "add", "unreachable", "10.99.2.77")


def wrong_key(hosts: Hosts) -> None:
    (hosts.folder / "user").unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", hosts.folder / "user"], check=True)


def changed_host_key(hosts: Hosts) -> None:
    known = hosts.folder / "known_hosts"
    first, second, *rest = known.read_text().splitlines()
    lines = [first, f"{second.partition(' ')[0]} {first.partition(' ')[2]}", *rest]
    known.write_text("\n".join(lines) + "\n")


def unknown_host_key(hosts: Hosts) -> None:
    (hosts.folder / "known_hosts").write_text("")


def no_setpriv(hosts: Hosts) -> None:
    hosts.at("device", "mount", "-n", "--bind", "/dev/null", SETPRIV)


def an_address(hosts: Hosts) -> None:
    hosts.at("b", "ip", "address", "add", "192.0.2.7/24", "dev", "eth2")


def a_master(hosts: Hosts) -> None:
    hosts.at("device", "ip", "link", "add", "br9", "type", "bridge")
    hosts.at("device", "ip", "link", "set", "eth2", "master", "br9")


def says(hosts: Hosts, name: str, tool: str, script: str) -> None:
    """Have a tool of a host say something else; what it was is `/dev/shm/TOOL.own` there."""
    path = shutil.which(tool) or f"/usr/sbin/{tool}"
    new = f"/dev/shm/{tool}"
    put = f'cp {path} {new}.own && printf "%s" "$0" >{new} && chmod 755 {new} && mount -n --bind {new} {path}'
    hosts.at(name, "sh", "-c", put, f"#!/bin/sh\n{script}\n")


def an_old_kernel(hosts: Hosts) -> None:
    says(hosts, "b", "uname", '[ "$1" = -r ] && echo 5.10.0-30-amd64 || exec /dev/shm/uname.own "$@"')


def another_architecture(hosts: Hosts) -> None:
    says(hosts, "b", "uname", '[ "$1" = -m ] && echo riscv64 || exec /dev/shm/uname.own "$@"')


def in_the_file(before: str, after: str) -> Callable[[Hosts], None]:
    """Another word in the file that describes the bed."""

    def change(hosts: Hosts) -> None:
        file = hosts.folder / "bed.toml"
        file.write_text(file.read_text().replace(before, after))

    return change


@pytest.mark.parametrize(
    ("spoil", "status", "sentence"),
    [
        (nobody, 3, r"host B \(b.lab\): it cannot be reached: connect to host 10.99.2.77 port 22: No route to host"),
        (wrong_key, 3, r"host A \(a.lab\): it refuses the login \(root@10.99.1.2: Permission denied \(publickey"),
        (changed_host_key, 3, r"host B \(b.lab\): its host key is not the one in .*known_hosts:2: another host"),
        (unknown_host_key, 3, r"host A \(a.lab\): its host key is not known yet: connect once by hand and compare it"),
        (no_setpriv, 3, r"host device \(device.lab\) has no setpriv: apt-get install util-linux"),
        (an_old_kernel, 3, r"host B \(b.lab\) has Linux 5.10.0-30-amd64: it needs 5.15 or newer"),
        (another_architecture, 3, r"host B \(b.lab\) is riscv64, and the instrument here is built for \w+"),
        (an_address, 2, r"host B \(b.lab\) has the address 192.0.2.7/24 on eth2: remove it first"),
        (a_master, 2, r"host device \(device.lab\) has eth2 in br9: take it out first"),
        (in_the_file('a = "eth1"', 'a = "eth0"'), 2,
         r"host A \(a.lab\) is reached by SSH through eth0: a test port must be another interface"),
        (in_the_file('a = "eth1"', 'a = "eth9"'), 2, r"host A \(a.lab\) has no interface eth9; it has eth0, eth"),
        (in_the_file("[hosts.b]", 'swich = "eth1"\n[hosts.b]'), 2,
         r"bed.toml, line 4: unknown key hosts.a.swich: expected one of address, user, port"),
    ],
    ids=["nobody", "wrong key", "changed host key", "unknown host key", "no tool", "old kernel", "other architecture",
         "address", "bridge port", "management", "no port", "unknown key"],
)  # fmt: skip
def test_each_fault_has_its_sentence_and_status(
    spoil: Callable[[Hosts], None], status: int, sentence: str, spoilt: Hosts, tmp_path: Path
) -> None:
    bed = spoilt.bed()
    spoil(spoilt)
    out = str(tmp_path / "run")
    done = spoilt.sojourn("run", "bridge-latency", *SHORT, "--bed", str(bed), "--out", out, "--no-report")
    assert done.returncode == status, done.stderr
    assert re.search(sentence, done.stderr.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("where", ["option", "configuration"])
def test_a_jump_host_with_an_unknown_key_is_refused_as_any_other(where: str, tmp_path: Path) -> None:
    with Hosts(tmp_path / "lab", names=("a", "b"), cables=[("a", "eth1", "b", "eth1")]) as hosts:
        asked = ["bed", "new", "a.lab", "a.lab", "--config", str(hosts.config)]
        words, known = hosts.config.read_text(), hosts.folder / "known_hosts"
        words += (
            f"Host jump.lab\n    HostName 10.99.1.2\n    HostKeyAlias jump.lab\n    IdentityFile {hosts.folder}/user\n"
        )
        words += f"    UserKnownHostsFile {known}\n    User root\n"
        asked += ["--jump", "root@jump.lab:22"] if where == "option" else []
        words = (
            words.replace("Host a.lab\n", "Host a.lab\n    ProxyJump jump.lab\n") if where == "configuration" else words
        )
        hosts.config.write_text(words)
        done = hosts.sojourn(*asked)
        assert done.returncode == 3, done.stdout
        whose = r"its host key(, or that of root@jump\.lab:22,)? is not known yet: connect once by hand"
        assert re.search(whose, done.stderr), done.stderr
        known.write_text(known.read_text() + known.read_text().splitlines()[0].replace("10.99.1.2", "jump.lab") + "\n")
        done = hosts.sojourn(*asked)
        assert done.returncode == 0, done.stderr
        assert 'a = "eth1"' in done.stdout


def test_missing_rights_on_a_host_are_reported(tmp_path: Path) -> None:
    with Hosts(tmp_path / "lab", names=("a", "b"), cables=[("a", "eth1", "b", "eth1")], user="lab") as hosts:
        bed = str(hosts.bed('[paths.direct]\na = "eth1"\nb = "eth1"\n'))
        done = hosts.sojourn("run", "bridge-latency", *SHORT, "--bed", bed, "--out", "run", "--no-report")
        assert done.returncode == 3
        assert re.search(
            r"host A \(a.lab\): no rights of root \(sudo: a password is required\): sudo must", done.stderr
        )


def started(hosts: Hosts, out: str) -> subprocess.Popen[bytes]:
    """A run that is long enough to be disturbed."""
    argv = ["run", "bridge-latency", *SHORT, *ONE_BED, "--set", "pairs.rounds=40", "--no-report"]
    argv += ["--bed", str(hosts.bed()), "--out", out]
    process = subprocess.Popen(
        hosts.command(SOJOURN, *argv), cwd=hosts.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    log, end = hosts.folder / out / "log.jsonl", time.monotonic() + 60
    while not log.is_file() or log.read_text().count('"event": "block"') < 10:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < end
        time.sleep(0.1)
    return process


def test_hosts_clean_up_when_the_controller_is_killed_and_the_run_resumes(hosts: Hosts) -> None:
    process = started(hosts, "run")
    refused = hosts.sojourn("run", "bridge-latency", *SHORT, "--bed", str(hosts.bed()), "--out", "other")
    assert refused.returncode == 3
    assert re.search(r"host A \(a.lab\) is held by run \w+ of .*, process \d+: wait until it has ended", refused.stderr)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    await_nothing(hosts, LEASE_SECONDS)
    done = hosts.sojourn("run", "--resume", "run", "--no-history", "--no-report")
    assert done.returncode in (0, 4), done.stderr
    log = [json.loads(line) for line in (hosts.folder / "run/log.jsonl").read_text().splitlines()]
    assert log[-1]["event"] == "finished"


def test_resume_with_an_instrument_of_other_content_is_refused_and_measures_nothing(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(shutil.copy(instrument_for_hosts(), tmp_path / "sojourn-instrument"))
    monkeypatch.setenv("SOJOURN_INSTRUMENT", str(own))
    process = started(hosts, "run")
    process.kill()
    process.communicate()
    await_nothing(hosts, LEASE_SECONDS)
    run = hosts.folder / "run"
    had, log = recorded(run), (run / "log.jsonl").read_text()
    with own.open("ab") as program:
        program.write(b"\0")  # it works as before
    refused = hosts.sojourn("run", "--resume", "run", "--no-history", "--no-report")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.search(OTHER_INSTRUMENT, refused.stderr.splitlines()[-1]), refused.stderr
    assert recorded(run) == had
    added = (run / "log.jsonl").read_text().removeprefix(log)
    assert {json.loads(line)["event"] for line in added.splitlines()} <= {"started", "bed", "lost", "failed"}
    await_nothing(hosts, 5)


def recorded(run: Path) -> dict[Path, bytes]:
    """Every file of a run but its log."""
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "log.jsonl"}


OTHER_INSTRUMENT = (
    r"^sojourn: run was begun on another bed \(the instrument is not the one that it was\): "
    r"go on with it there, or begin a run anew$"
)


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.proof)])
def test_a_killed_check_of_a_bed_has_its_hosts_clean_up(kills: int, hosts: Hosts, proven: Callable[..., None]) -> None:
    before = settings(hosts)
    for _ in range(kills):
        argv = hosts.command(SOJOURN, "bed", "check", str(hosts.bed()))
        with Child(argv, cwd=hosts.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as check:
            end = time.monotonic() + 60
            while not hosts.left_behind():
                assert check.poll() is None, "it has taken no host"
                assert time.monotonic() < end
                time.sleep(0.05)
            time.sleep(random.uniform(0, 2))
            check.kill()
        await_nothing(hosts, LEASE_SECONDS)
        assert settings(hosts) == before
    proven("kills", "`sojourn bed check`", kills=kills)


def test_interface_being_claimed_when_the_controller_dies_is_restored(tmp_path: Path) -> None:
    with Hosts(tmp_path / "lab", names=("a", "b"), cables=[("a", "eth1", "b", "eth1")]) as hosts:
        slow = 'printf "#!/bin/sh\\nsleep 1\\n" >/tmp/ethtool && chmod 755 /tmp/ethtool'
        hosts.at("a", "sh", "-c", slow)
        inside = [
            "nsenter",
            f"--target={hosts.pid('a')}",
            "--net",
            "--mount",
            "--pid",
            "--",
            "env",
            "PATH=/tmp:/usr/bin:/bin",
        ]
        argv = [*inside, "sh", "-c", keeper.KEEPER, "sh", "1", "me", "/tmp/work", "/tmp/tools", "-", "-", "a"]
        with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeping:
            assert keeping.stdin is not None
            assert keeping.stdout is not None
            ready, number, namespace = keeping.stdout.readline().split()
            assert ready == "ready"
            line = f"{namespace} eth1 a1 02:00:00:00:00:07 1500 02:00:00:00:00:09 1500 down\n"
            argv = [*inside, "sh", "-c", keeper.TAKE, "sh", number, "/tmp/tools"]
            with Child(argv, stdin=subprocess.PIPE, text=True) as taking:
                assert taking.stdin is not None
                taking.stdin.write(line)
                taking.stdin.close()
                time.sleep(0.3)
                keeping.stdin.close()
            assert keeping.stdout.read() == "gone\n"
        assert hosts.left_behind() == {}
        again = subprocess.run(argv, input=line, text=True, check=False)
        assert again.returncode != 0
        assert hosts.left_behind() == {}


@pytest.mark.proof
def test_hosts_clean_up_by_themselves_when_their_network_is_gone(hosts: Hosts) -> None:
    process = started(hosts, "run")
    hosts.at("desk", "ip", "link", "set", "to-b", "down")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 3, said
    assert b"host B (b.lab): the SSH connection was lost" in said
    await_nothing(hosts, LEASE_SECONDS)


def test_terminated_keeper_restores_everything(hosts: Hosts) -> None:
    process = started(hosts, "run")
    hosts.at("b", "sh", "-c", "for taken in /run/sojourn/taken.*; do kill ${taken##*.}; done")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 3, said
    assert b"host B (b.lab) gave up waiting for this controller" in said
    await_nothing(hosts, LEASE_SECONDS)


def test_bed_new_drafts_a_file_from_the_hosts_and_the_bed_works(spoilt: Hosts) -> None:
    asked = ["a.lab", "b.lab", "--device", "device.lab", "--config", str(spoilt.config)]
    new = spoilt.sojourn("bed", "new", *asked)
    assert new.returncode == 0, new.stderr
    assert "eth0" not in new.stdout
    file = spoilt.folder / "new.toml"
    file.write_text(new.stdout)
    told = printed("bed-new", spoilt.sojourn("bed", "new", *asked, "--json").stdout)
    assert told["file"] == new.stdout
    assert {name: one["address"] for name, one in told["bed"]["hosts"].items()} == {
        "a": "a.lab", "b": "b.lab", "device": "device.lab"
    }  # fmt: skip
    spoilt.at("b", "ip", "link", "set", "eth2", "mtu", "2000")
    before = settings(spoilt)
    done = spoilt.sojourn("bed", "check", str(file), "--json")
    found = json.loads(done.stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert done.returncode == found["status"] == 0, found
    assert re.match(r"B answered 20 of 20 probes, least round-trip time \d+\.\d µs", checks["path bridge"]["found"])
    assert checks["host A: eth1 (direct)"]["found"].startswith("10000Mb/s, duplex full")
    assert checks["host device: port eth2"]["found"].endswith("MTU 1500, down")
    assert checks["host B: rights"]["found"] == "root"
    assert settings(spoilt) == before


def test_miswired_cable_is_detected(spoilt: Hosts) -> None:
    file = spoilt.bed()
    words = file.read_text().replace('left = "eth1"', 'left = "eth3"').replace('right = "eth2"', 'right = "eth1"')
    file.write_text(words.replace("eth3", "eth2"))
    done = spoilt.sojourn("bed", "check", str(file), "--json")
    path = next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "path bridge")
    exchanged = "what eth2 of host A sends comes in at eth1 of host device, not at eth2 of host device"
    assert (done.returncode, path["found"]) == (3, exchanged), "its rate and its taps have a direction"
    assert path["fix"] == "is each port of a and b cabled to the one in its place of left and right?"
    crossed = spoilt.bed().read_text().replace('b = "eth1"', 'b = "eth9"').replace('b = "eth2"', 'b = "eth1"')
    file.write_text(crossed.replace("eth9", "eth2"))
    done = spoilt.sojourn("bed", "check", str(file), "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, checks["path direct"]["found"]) == (3, "B does not answer A")
    assert checks["path direct"]["fix"].startswith("is eth1 of A cabled to eth2 of B, and does everything")
    there = "what eth1 of host B sends does not come in at eth2 of host device"
    assert checks["path bridge"]["found"] == there


def test_swapped_path_labels_are_detected(spoilt: Hosts) -> None:
    file = spoilt.bed()
    names = [(key, port, {"eth1": "eth2", "eth2": "eth1"}[port]) for key in ("a", "b") for port in ("eth1", "eth2")]
    words = file.read_text()
    for key, port, other in names:
        words = words.replace(f'\n{key} = "{port}"', f'\n{key} = "{other}?"')
    file.write_text(words.replace("?", ""))
    done = spoilt.sojourn("bed", "check", str(file), "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 3
    through = "passed eth1 of host device, eth2 of host device"
    assert checks["path direct"]["found"] == f"B answers, but the probes {through}"
    assert checks["path bridge"]["found"] == "what eth1 of host A sends does not come in at eth1 of host device"


def test_missing_parts_of_a_bed_are_reported_before_the_start(spoilt: Hosts) -> None:
    nobody(spoilt)
    an_address(spoilt)
    no_setpriv(spoilt)
    done = spoilt.sojourn("bed", "check", str(spoilt.bed()), "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 3
    assert "it cannot be reached" in checks["host B: SSH"]["found"]
    assert checks["host device: tools"]["fix"] == "apt-get install util-linux"
    assert checks["host A: SSH"]["status"] == "ok"
    assert "the bed" not in checks
    assert "This bed cannot be measured on yet: host B: SSH, host device: tools." in done.stdout


def test_a_host_of_another_architecture_gets_the_instrument_that_is_named_for_it(
    spoilt: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shown by what it cannot do: start on a host that only says that it is arm64."""
    bed = spoilt.bed()
    says(spoilt, "b", "uname", '[ "$1" = -m ] && echo aarch64 || exec /dev/shm/uname.own "$@"')
    argv = ["run", "bridge-latency", *SHORT, "--bed", str(bed), "--no-report", "--out"]
    monkeypatch.delenv("SOJOURN_INSTRUMENT_AARCH64", raising=False)
    monkeypatch.setattr(copies, "find_instrument", lambda: shutil.copy(find_instrument(), tmp_path / "own"))
    refused = spoilt.sojourn(*argv, str(tmp_path / "first"))
    assert refused.returncode == 3
    assert re.search(r"host B \(b.lab\) is aarch64, and .* is built for \w+: run `make arm64`", refused.stderr)
    program = instrument_for_hosts().read_bytes()
    named = tmp_path / "named"
    named.write_bytes(program[:18] + (183).to_bytes(2, "little") + program[20:])
    monkeypatch.setenv("SOJOURN_INSTRUMENT_AARCH64", str(named))
    done = spoilt.sojourn(*argv, str(tmp_path / "second"))
    assert done.returncode == 3, done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.search(r"host B \(b.lab\).*the instrument does not run there: run `make static`", last), done.stderr


def test_different_instrument_in_the_remote_folder_is_replaced(spoilt: Hosts) -> None:
    there = f"{tools_folder(instrument_for_hosts().read_bytes())}/sojourn-instrument"
    other = 'mkdir -p "${0%/*}" && printf "#!/bin/sh\\necho other >>/dev/shm/other\\n" >"$0" && chmod 755 "$0"'
    spoilt.at("a", "sh", "-c", other, there)
    done = spoilt.sojourn("bed", "check", str(spoilt.bed()), "--json")
    assert done.returncode == 0, done.stdout
    assert "ok" in {check["status"] for check in json.loads(done.stdout)["checks"] if check["name"] == "path bridge"}
    assert not spoilt.at("a", "sh", "-c", "cat /dev/shm/other 2>/dev/null; true")


def test_bed_check_refuses_the_interface_of_the_ssh_session(spoilt: Hosts) -> None:
    bed = spoilt.bed()
    in_the_file('a = "eth1"', 'a = "eth0"')(spoilt)
    done = spoilt.sojourn("bed", "check", str(bed), "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 3
    assert (
        checks["host A: port eth0"]["found"] == "is reached by SSH through eth0: a test port must be another interface"
    )


def test_clocks_an_hour_apart_and_slow_links_are_reported_as_limits(spoilt: Hosts) -> None:
    later = '[ "$1" = +%s%N ] && exec /dev/shm/date.own -d "+1 hour" "$1"; exec /dev/shm/date.own "$@"'
    says(spoilt, "a", "date", later)
    link = '/dev/shm/ethtool.own "$@" | sed "s/Speed: .*/Speed: 100Mb\\/s/; s/Duplex: .*/Duplex: Half/"'
    says(spoilt, "a", "ethtool", f'[ $# = 1 ] || exec /dev/shm/ethtool.own "$@"; {link}')
    done = spoilt.sojourn("bed", "check", str(spoilt.bed()), "--json")
    found = json.loads(done.stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert done.returncode == found["status"] == 0, found
    assert re.fullmatch(r"This bed can be measured on; \d+ of \d+ things are limited\.", found["sentence"])
    clock = checks["host A: clock"]
    assert re.match(r"(3599|3600)\.\d{3} s ahead of ours, with an error of at most \d", clock["found"])
    assert (clock["status"], clock["fix"]) == ("limited", "set it: chronyc makestep")
    port = checks["host A: eth1 (direct)"]
    assert port["found"].startswith("100Mb/s, duplex half")
    assert port["status"] == "limited"
    assert port["fix"].startswith("half duplex: negotiate at both ends")
    speeds = checks["speeds (direct)"]
    assert speeds["status"] == "limited"
    assert speeds["found"] == "eth1 of host A has 100 Mbit/s; the path's fastest port has 10000 Mbit/s"
    argv = ("run", "bridge-latency", *SHORT, *ONE_BED, "--bed", str(spoilt.bed()), "--out", "slow", "--no-report")
    done = spoilt.sojourn(*argv)
    assert done.returncode in (0, 4), done.stderr
    missing = json.loads((spoilt.folder / "slow/bed.json").read_text())["stable"]["bed"]["missing"]
    told = [one for one in missing if one.startswith("Path direct: ")]
    found = [re.findall(r"eth1 of host A has (100Mb/s, duplex half|100 Mbit/s)", one) for one in told]
    assert found == [["100Mb/s, duplex half"], ["100 Mbit/s"]]
    assert told[0] in " ".join((done.stdout + done.stderr).split())


@pytest.mark.proof
def test_ended_ssh_session_is_reported_and_its_host_cleans_up(hosts: Hosts) -> None:
    process = started(hosts, "run")
    sessions = hosts.at("a", "sh", "-c", "ps -eo pid,args | sed -n 's/^ *\\([0-9]*\\) sshd: root@notty.*/\\1/p'")
    hosts.at("a", "kill", "-KILL", *sessions.split())
    _, said = process.communicate(timeout=120)
    assert process.returncode == 3, said
    assert b"host A (a.lab)" in said
    await_nothing(hosts, LEASE_SECONDS)


TAPPED = [
    ("a", "eth1", "b", "eth1"),
    ("a", "eth2", "device", "eth1"),
    ("device", "eth2", "b", "eth2"),
    ("a", "eth3", "device", "eth3"),
    ("device", "eth4", "b", "eth3"),
]
WITH_WIRE = """
[paths.wire]
a = "eth3"
left = "eth3"
right = "eth4"
b = "eth3"
"""
STREAMS = ("bed.sessions=1", "trials.rounds=2", "trials.duration=40ms", "stream.interval=400us",
           "stream.payload_bytes=64", "trials.qualify=false")  # fmt: skip


def measured(hosts: Hosts, study: str, *sets: str, paths: str | None = None) -> Path:
    """The run folder of a short run of a study between hosts."""
    argv = ["run", study, "--quick", "--no-history", "--no-report", *idle_ends(), "--bed", str(hosts.bed(paths))]
    done = hosts.sojourn(*argv, "--out", "run", *(word for one in sets for word in ("--set", one)))
    assert done.returncode in (0, 4), done.stderr
    return hosts.folder / "run"


def figures(run: Path, quantity: str, statistic: str = "mean") -> list[dict[str, Any]]:
    """The rows of results of a quantity."""
    rows = json.loads((run / "analysis/results.json").read_text())
    return [row for row in rows if (row["quantity"], row["statistic"]) == (quantity, statistic)]


def clocks_of(run: Path) -> tuple[set[bool], float, float]:
    """Whether ends shared one clock; how far the offsets are from the truth, 0, and their maximum error, ns."""
    lines = read_table(run / "records", "clock_lines").frame
    assert lines.height
    return set(lines["shared"]), max(map(abs, lines["offset_ns"])), max(lines["bound_ns"])


@pytest.mark.parametrize("own_boots", [True, False], ids=["clocks of their own", "one clock"])
def test_taps_and_one_way_delays_are_measured_with_shared_and_separate_clocks(own_boots: bool, tmp_path: Path) -> None:
    with Hosts(tmp_path / "lab", cables=TAPPED, own_boots=own_boots) as hosts:
        run = measured(hosts, "bridge-modes", *STREAMS, paths=PATHS + WITH_WIRE)
        shared, off_ns, bound_ns = clocks_of(run)
        assert shared == {not own_boots}
        assert off_ns <= bound_ns < 1e6
        for row in (*figures(run, "delay_between_taps"), *figures(run, "delay_between_taps_over")):
            assert not row["clock_bound_ns"], "taps of one device have one clock"
            assert row["estimate"] < 1e6
        between = [*figures(run, "one_way_delay"), *figures(run, "subtraction_less_taps")]
        assert {row["device"] for row in between} == {"direct", "a/a", "wire", "bridge"}
        for row in between:
            assert (row["clock_bound_ns"] > 0) == own_boots, row
            assert row["clock_error95_ns"] <= row["clock_bound_ns"] < 4e6
            assert ("the receiver's by exchanges" in row["clock"]) == own_boots
        for row in figures(run, "one_way_delay"):
            assert -row["clock_bound_ns"] < row["estimate"] < 10e6
        await_nothing(hosts, 5)


def test_one_way_delays_between_clocks_that_differ(hosts: Hosts) -> None:
    run = measured(hosts, "one-way", "bed.sessions=1", "trials.rounds=2", "trials.duration=40ms",
                   "stream.interval=400us", "stream.payload_bytes=64", "stream.schedule=regular")  # fmt: skip
    shared, off_ns, bound_ns = clocks_of(run)
    assert shared == {False}
    assert off_ns <= bound_ns < 1e6
    delays = figures(run, "one_way_delay")
    assert {row["device"] for row in delays} == {"direct", "a/a", "bridge"}
    assert all(0 < row["clock_error95_ns"] <= row["clock_bound_ns"] < 4e6 for row in delays), delays
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    floors = [entry["floor_ns"] for entry in log if entry["event"] == "qualified"]
    assert floors
    assert set(floors) == {None}, "a delay between two unsynchronised clocks"


def test_study_of_anomalies_needs_only_the_clock_of_host_a(hosts: Hosts) -> None:
    run = measured(hosts, "anomalies", "pairs.probes_per_block=2000", "pairs.rounds=1", "probe.interval=500us")
    assert json.loads((run / "analysis/verdict.json").read_text())["sentence"]


def test_study_that_cannot_synchronise_host_clocks_is_refused_with_alternatives(hosts: Hosts) -> None:
    through = '[paths.direct]\na = "eth2"\nleft = "eth1"\nright = "eth2"\nb = "eth2"\n'
    argv = ["ping-wait", "--quick", "--no-history", "--set", "bed.links.direct.delay=1ms"]
    done = hosts.sojourn("run", *argv, "--bed", str(hosts.bed(through)), "--out", "run")
    assert done.returncode == 3, done.stderr
    assert re.search(
        r"ping-wait compares the hosts' clocks over the direct link, which has a rate or delay \(bed.links\): "
        r"measure it on one machine \(--bed netns\), or leave the direct link without",
        done.stderr,
    ), done.stderr


@pytest.mark.parametrize(
    ("host", "tool", "sentence"),
    [
        ("b", "tcpdump", r"host B \(b.lab\) has no tcpdump, which judges the senders: apt-get install tcpdump there"),
        ("a", "ping", r"host A \(a.lab\) has no ping, which is one of the senders: apt-get install iputils-ping there"),
    ],
)
def test_a_host_without_what_judges_senders_is_refused_in_a_sentence(
    spoilt: Hosts, host: str, tool: str, sentence: str
) -> None:
    spoilt.at(host, "mount", "-n", "--bind", "/dev/null", str(shutil.which(tool)))
    argv = ["ping-wait", "--quick", "--no-history", "--set", "bed.device_cpu=shared", "--bed", str(spoilt.bed())]
    done = spoilt.sojourn("run", *argv, "--out", f"without-{tool}")
    assert (done.returncode, bool(re.search(sentence, done.stderr))) == (3, True), done.stderr
    await_nothing(spoilt, 5)
