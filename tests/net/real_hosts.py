"""Real hosts for tests: sshd's of OpenSSH in network namespaces, which share no file with the controller.

Each host has mounts, processes, cgroups, a `/run`, `/tmp`, `/var`, `/home` and `/root` of its own, and, as machines
have, a boot identifier, by which it is known for a machine whose clock is another; their clock is one, so that the
truth is an offset of 0. Without `own_boots` they have this machine's, as network namespaces do. Keys are made for the
test. The controller is run in one more network namespace, the *desk*, from which the hosts are reached. The test ports
are veths: `cables` says which of two hosts each joins. Everything ends with the processes.

Where they are `patched`, a cable has two ends at the desk, and what comes in at one leaves at the other: so one host
can be booted again and the other's port is still there, a cable can be pulled, and a host's `/var/tmp` and `/var/lib`
outlive its boots, as on a disk.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.bed import cgroups
from sojourn.errors import MachineError
from tests.net.here import sojourn_here

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

SSHD = "/usr/sbin/sshd"
SOJOURN = str(Path(sys.executable).with_name("sojourn"))


LEFT = """
ls -d /run/sojourn/taken.* /run/sojourn/features.* /run/sojourn/settings.* 2>/dev/null
ls -d /run/sojourn/cgroup.* /sys/fs/cgroup/sojourn-* 2>/dev/null
ls -d /run/sojourn/holder /run/sojourn/unused /var/tmp/sojourn-* /var/lib/sojourn 2>/dev/null
true
"""
PATHS = """
[paths.direct]
a = "eth1"
b = "eth1"
[paths.bridge]
a = "eth2"
left = "eth1"
right = "eth2"
b = "eth2"
"""


@dataclass
class Hosts:
    """Some hosts, the desk, and the cables between the hosts' test ports."""

    folder: Path
    names: Sequence[str] = ("a", "b", "device")
    cables: Sequence[tuple[str, str, str, str]] = (
        ("a", "eth1", "b", "eth1"),
        ("a", "eth2", "device", "eth1"),
        ("device", "eth2", "b", "eth2"),
    )
    """Host and port, host and port."""
    user: str = "root"
    own_boots: bool = True
    """Whether each has a boot identifier of its own."""
    patched: bool = False
    """Whether cables go through the desk, and disks outlive boots."""
    boots: int = 0
    """How many hosts were booted again."""
    _processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    _cgroups: list[Path] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._make_keys()
            self._start("desk", ["sh", "-c", "ip link set lo up; echo up; exec cat"], [])
            for number, name in enumerate(self.names, start=1):
                self._start_host(name, number)
            for number, (a, a_port, b, b_port) in enumerate(self.cables):
                if self.patched:
                    bridge = f"patch{number} type bridge stp_state 0 mcast_snooping 0 ageing_time 0"
                    self.at("desk", "ip", "link", "add", "name", *bridge.split())
                    self._up(f"patch{number}")
                    self._plug(number, 0)
                    self._plug(number, 1)
                    continue
                ends = f"{a_port} netns {self.pid(a)} type veth peer name {b_port} netns {self.pid(b)}"
                self.at("desk", "ip", "link", "add", "name", *ends.split())
            for number, name in enumerate(self.names, start=1):
                self._await_sshd(name, number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every host, and with it what it had."""
        for process in self._processes.values():
            process.kill()
            process.communicate()
        self._processes.clear()
        end = time.monotonic() + 20  # what is killed takes its time to go on a busy machine
        for own in self._cgroups:
            (own / "cgroup.kill").write_text("1")
            while not all(map(cgroups.remove, [*own.glob("sojourn-*"), own])):  # with those of a bed that failed
                assert time.monotonic() < end, f"{own} is still in use"
        self._cgroups.clear()

    def reboot(self, name: str) -> None:
        """Boot a host again: its programs are dead, its `/run`, `/tmp`, ports and boot identifier are new."""
        assert self.patched, "the far end of a cable would be removed with the host"
        process = self._processes.pop(name)
        process.kill()
        process.communicate()
        self.boots += 1
        number = self.names.index(name) + 1
        mine = [
            (cable, end)
            for cable, (a, _, b, _) in enumerate(self.cables)
            for end, host in enumerate((a, b))
            if host == name
        ]
        gone = [f"to-{name[:8]}", *(f"c{cable}-{end}" for cable, end in mine)]
        while any(f" {one}@" in self.at("desk", "ip", "-o", "link") for one in gone):
            time.sleep(0.05)
        self._start_host(name, number)
        for cable, end in mine:
            self._plug(cable, end)
        self._await_sshd(name, number)

    def pull(self, cable: int, seconds: float) -> None:
        """Pull the first end of a cable out for a while: the host's port there has no carrier meanwhile."""
        self.at("desk", "ip", "link", "set", "dev", f"c{cable}-0", "down")
        time.sleep(seconds)
        self.at("desk", "ip", "link", "set", "dev", f"c{cable}-0", "up")

    def pid(self, name: str) -> int:
        """The first process of a host, as this machine numbers it."""
        process = self._processes[name]
        if name == "desk":
            return process.pid
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        return int(children[0])

    def at(self, name: str, *argv: str) -> str:
        """Run a command on a host, outside SSH."""
        pid = self.pid(name)
        where = ["--net"] if name == "desk" else ["--net", "--mount", "--pid"]
        command = ["nsenter", f"--target={pid}", *where, "--", *argv]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{name}: {shlex.join(argv)}: {done.stdout}{done.stderr}"
        return done.stdout

    def command(self, *argv: str) -> list[str]:
        """A command at the desk."""
        return ["nsenter", f"--target={self.pid('desk')}", "--net", "--", *argv]

    def allow_sudo(self) -> None:
        """Let who logs in have the rights of root without a password."""
        for name in self.names:
            script = 'echo "$0 ALL=(root) NOPASSWD: ALL" >/dev/shm/sudoers && chmod 440 /dev/shm/sudoers'
            self.at(name, "sh", "-c", f"{script} && mount -n --bind /dev/shm/sudoers /etc/sudoers", self.user)

    def sojourn(self, *argv: str, seconds: float = 600) -> subprocess.CompletedProcess[str]:
        """Run `sojourn` at the desk."""
        net = Path(f"/proc/{self.pid('desk')}/ns/net")
        return sojourn_here(*argv, cwd=self.folder, net=net, seconds=seconds)

    @property
    def config(self) -> Path:
        """The desk's configuration of OpenSSH: names, key and known hosts."""
        return self.folder / "ssh_config"

    def bed(self, paths: str | None = None, more: str = "", names: Sequence[str] | None = None) -> Path:
        """A file that describes the bed; `paths` in place of a direct one and a bridge, `names` of all hosts."""
        hosts = "".join(
            f'[hosts.{name}]\naddress = "{name}.lab"\nconfig = "{self.config}"\n{more}'
            for name in (self.names if names is None else names)
        )
        file = self.folder / "bed.toml"
        file.write_text(hosts + (PATHS if paths is None else paths), encoding="utf-8")
        return file

    def left_behind(self) -> dict[str, str]:
        """What a bed has left on any host: files, processes, ports that are not where they were."""
        found = {}
        for name in self.names:
            files = self.at(name, "sh", "-c", LEFT)
            running = self.at(name, "sh", "-c", "ps -eo args | grep -E 'sojourn|sleep 2147483647' | grep -v grep; true")
            ports = {
                port
                for a, a_port, b, b_port in self.cables
                for host, port in ((a, a_port), (b, b_port))
                if host == name
            }
            there = self.at(name, "ip", "-o", "link")
            gone = " ".join(port for port in ports if f" {port}@" not in there)
            if files.strip() or running.strip() or gone:
                found[name] = f"{files}{running}{gone}"
        return found

    def _plug(self, cable: int, end: int) -> None:
        """One end of a cable: a port of a host, and its other side at the desk."""
        host, port = self.cables[cable][2 * end : 2 * end + 2]
        here = f"c{cable}-{end}"
        self.at(
            "desk", "ip", "link", "add", "name", here, *f"type veth peer name {port} netns {self.pid(host)}".split()
        )
        self.at("desk", "ip", "link", "set", "dev", here, "master", f"patch{cable}")
        self._up(here)

    def _up(self, dev: str) -> None:
        """A device of the desk that says nothing by itself."""
        self.at("desk", "ip", "link", "set", "dev", dev, "addrgenmode", "none", "up")

    def _make_keys(self) -> None:
        for name in ("user", *(f"host_{one}" for one in self.names)):
            file = self.folder / name
            if not file.exists():
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
        known, config = [], ["StrictHostKeyChecking no"]  # Sojourn is stricter than the configuration
        for number, name in enumerate(self.names, start=1):
            public = " ".join((self.folder / f"host_{name}.pub").read_text(encoding="ascii").split()[:2])
            known.append(f"10.99.{number}.2 {public}")
            config += [f"Host {name}.lab", f"    HostName 10.99.{number}.2", f"    User {self.user}"]
            config += [f"    IdentityFile {self.folder}/user", "    IdentitiesOnly yes"]
            config += [f"    UserKnownHostsFile {self.folder}/known_hosts"]
        (self.folder / "known_hosts").write_text("\n".join(known) + "\n", encoding="ascii")
        self.config.write_text("\n".join(config) + "\n", encoding="utf-8")

    def _make_cgroup(self, name: str) -> list[str]:
        """A cgroup that is the root of all for a host; without a unified hierarchy to write to here it has none."""
        try:
            own = cgroups.unified_root() / f"test-{os.getpid()}-{id(self)}-{name}-{self.boots}"
            own.mkdir()
        except (MachineError, OSError):
            return []
        self._cgroups.append(own)
        return ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec unshare --cgroup "$@"', str(own)]

    def _start(self, name: str, argv: Sequence[str], own: Sequence[str], within: Sequence[str] = ()) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", "--", *within, "unshare", "--net", *own, *argv]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._processes[name] = process
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "up", f"host {name} does not start"

    def _start_host(self, name: str, number: int) -> None:
        own = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        boot = f"{number:08x}-{self.boots:04x}-4000-8000-{os.getpid():012x}" if self.own_boots else ""
        disk = self.folder / f"disk-{name}" if self.patched else ""
        script = ["sh", "-ec", SCRIPT, "sh", str(self.folder), name, self.user, boot, str(disk)]
        self._start(name, script, own, self._make_cgroup(name))
        self.at(
            "desk",
            "ip",
            "link",
            "add",
            "name",
            *f"to-{name[:8]} type veth peer name eth0 netns {self.pid(name)}".split(),
        )
        self.at("desk", "ip", "address", "add", f"10.99.{number}.1/24", "dev", f"to-{name[:8]}")
        self.at("desk", "ip", "link", "set", "dev", f"to-{name[:8]}", "up")
        self.at(name, "ip", "address", "add", f"10.99.{number}.2/24", "dev", "eth0")
        self.at(name, "ip", "link", "set", "dev", "eth0", "up")

    def _await_sshd(self, name: str, number: int) -> None:
        deadline = time.monotonic() + 20
        argv = ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=2", f"{name}.lab", "true"]
        del number
        while True:
            done = subprocess.run(self.command(*argv), capture_output=True, text=True, timeout=30, check=False)
            if done.returncode == 0:
                return
            assert time.monotonic() < deadline, f"{name}: {done.stderr}"
            time.sleep(0.1)


# $1 the folder of keys, $2 the host's name, $3 who may log in, $4 its boot identifier where it has one, $5 its disk
# where it has one. What is needed of the folder is copied first.
SCRIPT = """
mkdir -p /dev/shm && mount -n -t tmpfs own /dev/shm
cp "$1/host_$2" "$1/user.pub" /dev/shm/
if [ "$3" != root ]; then
    cp /etc/passwd /etc/shadow /etc/group /dev/shm/
    echo "$3:x:4242:4242::/home/$3:/bin/sh" >>/dev/shm/passwd
    echo "$3:*:19000::::::" >>/dev/shm/shadow
    echo "$3:x:4242:" >>/dev/shm/group
    for file in passwd shadow group; do mount -n --bind /dev/shm/$file /etc/$file; done
fi
if [ -n "$4" ]; then
    echo "$4" >/dev/shm/boot_id && mount -n --bind /dev/shm/boot_id /proc/sys/kernel/random/boot_id
fi
mkdir -p /dev/shm/disk
if [ -n "$5" ]; then mkdir -p "$5/tmp" "$5/lib"; mount -n --bind "$5" /dev/shm/disk; fi
if [ -e /etc/machine-id ]; then
    echo "$2" | sha256sum | cut -c1-32 >/dev/shm/machine-id && mount -n --bind /dev/shm/machine-id /etc/machine-id
fi
for folder in /run /tmp /var/tmp /var/lib /home /root; do mount -n -t tmpfs own $folder; done
if [ -n "$5" ]; then for folder in tmp lib; do mount -n --bind /dev/shm/disk/$folder /var/$folder; done; fi
chmod 1777 /tmp /var/tmp; chmod 755 /run /var/lib /home; chmod 700 /root
mkdir -p /run/sshd /home/"$3"/.ssh /root/.ssh
cp /dev/shm/user.pub /root/.ssh/authorized_keys
cp /dev/shm/user.pub /home/"$3"/.ssh/authorized_keys
[ "$3" = root ] || chown -R 4242:4242 /home/"$3"
chmod 700 /root/.ssh /home/"$3"/.ssh; chmod 600 /dev/shm/host_"$2"
mount -n -t sysfs sysfs /sys
[ ! -e /sys/fs/cgroup ] || mount -n -t cgroup2 none /sys/fs/cgroup || true
ip link set lo up
echo up
exec {sshd} -D -e -f /dev/null -h /dev/shm/host_"$2" -o UsePAM=no -o PidFile=none \\
    -o PermitRootLogin=prohibit-password -o PasswordAuthentication=no -o MaxStartups=100 2>/run/sshd.log
""".replace("{sshd}", SSHD)
