"""Guests of QEMU as hosts of a bed, beside those of `real_hosts`: Debian's own kernel, systemd, sshd and iproute2.

The root file system is made once by mmdebstrap, from the archives that it knows, and kept below `build/guests`; a guest
writes to a copy that ends with it. Every instruction is computed (TCG): no KVM is asked for. A guest is reached through
QEMU's own network, whose forwarded port listens on the desk's loopback alone; its test ports are taps at the desk,
where a cable's other end is. So a guest that is killed is a host that vanishes: nothing of it cleans up.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.net.real_hosts import LEFT, PATHS, Hosts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUILD = Path(__file__).resolve().parents[2] / "build/guests"
PACKAGES = "openssh-server,iproute2,systemd-sysv,udev,linux-image-amd64"
RELEASES = {"6.1": "bookworm", "6.12": "trixie"}
"""Kernels, and the release of Debian that each is the kernel of."""

UNREACHABLE = re.compile(
    r"Failed to fetch|Could not (?:resolve|connect)|Temporary failure resolving|Connection (?:failed|timed out)"
    r"|does not have a Release file"
)
"""What apt says, below mmdebstrap, of an archive that cannot be had."""

BOOT_SECONDS = 400.0
"""Alone, a guest answers after some 60 s; beside other work on two processors it may take several times as long."""

MANAGEMENT = """
[Match]
MACAddress=52:54:00:00:00:01
[Network]
Address=10.0.2.15/24
LinkLocalAddressing=no
"""
RUNNING = """
for one in /proc/[0-9]*; do tr '\\0\\n' '  ' <"$one/cmdline"; echo; done 2>/dev/null |
    grep -E 'sojourn|sleep 2147483647' | grep -v 'grep -E'
true
"""


@dataclass(frozen=True)
class Image:
    """A root file system with its kernel."""

    folder: Path

    @classmethod
    def of(cls, release: str) -> Image:
        """The image of a release of Debian, made where it is not there or was made otherwise."""
        recipe = hashlib.sha256(f"{PACKAGES}{MANAGEMENT}{_unpacked.__doc__}".encode()).hexdigest()[:12]
        image = cls(BUILD / f"{release}-{recipe}")
        if not image.folder.is_dir():
            half = BUILD / f"{release}.half"
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir(parents=True)
            _make(release, half)
            half.rename(image.folder)
        return image


TOOLS = {"qemu-system-x86_64": "kernels", "mmdebstrap": "proof", "mke2fs": "proof", "sshd": "test"}


def image_of(kernel: str) -> Image:
    """The image with a kernel, for a test; where Debian's archive cannot be had, the test is skipped."""
    if os.geteuid() != 0:
        (pytest.fail if "CI" in os.environ else pytest.skip)("hosts of their own need root")
    for tool, purpose in TOOLS.items():
        there = shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert there, f"no {tool}: scripts/setup.sh {purpose}"
    try:
        return Image.of(RELEASES[kernel])
    except subprocess.CalledProcessError as error:
        said = str(error.stderr or "")
        if not UNREACHABLE.search(said):
            raise
        pytest.skip(f"the archive of {RELEASES[kernel]} cannot be had: {said.strip().splitlines()[-1:]}")


def _make(release: str, folder: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "user")], check=True)
    root = folder / "root"
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", release, str(folder / "root.tar")]
    subprocess.run(argv, check=True, timeout=1800, stderr=subprocess.PIPE, text=True)
    _unpacked(folder, root)
    shutil.copy(root / "etc/ssh/ssh_host_ed25519_key.pub", folder / "host.pub")
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next((root / "boot").glob(f"{name}-*")), folder / name)
    size = ["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(folder / "disk"), "2G"]
    subprocess.run(size, check=True, timeout=600)
    shutil.rmtree(root)
    (folder / "root.tar").unlink()


def _unpacked(folder: Path, root: Path) -> None:
    """Recipe 1: unpacked, with a key and an address, and without timers that wake up meanwhile."""
    root.mkdir()
    subprocess.run(["tar", "-C", str(root), "-xf", str(folder / "root.tar")], check=True)
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(folder / "user.pub", root / "root/.ssh/authorized_keys")
    (root / "etc/systemd/network/10-management.network").write_text(MANAGEMENT, encoding="ascii")
    (root / "etc/hostname").write_text("guest\n", encoding="ascii")
    enabled = root / "etc/systemd/system/multi-user.target.wants"
    enabled.mkdir(parents=True, exist_ok=True)
    (enabled / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")
    for timer in ("apt-daily", "apt-daily-upgrade", "dpkg-db-backup", "e2scrub_all", "fstrim"):
        (root / f"etc/systemd/system/{timer}.timer").symlink_to("/dev/null")


@dataclass
class Guests(Hosts):
    """Hosts of which some are guests."""

    images: Mapping[str, Image] = field(default_factory=dict)
    """Of each host that is a guest."""
    nic: str = "virtio-net-pci"
    """What its test ports are."""
    patched: bool = True

    def vanish(self, name: str) -> None:
        """Kill a guest: its host is gone, and with it all that it had."""
        process = self._processes.pop(name)
        process.kill()
        process.communicate()

    def at(self, name: str, *argv: str) -> str:
        """Run a command on a host; on a guest by SSH, for there is no other way."""
        if name not in self.images:
            return super().at(name, *argv)
        command = self.command("ssh", "-F", str(self.config), "-o", "BatchMode=yes", f"{name}.lab", shlex.join(argv))
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{name}: {shlex.join(argv)}: {done.stdout}{done.stderr}"
        return done.stdout

    def bed(self, paths: str | None = None, more: str = "", names: Sequence[str] | None = None) -> Path:
        """As of other hosts; a device that is a guest has its own names of ports."""
        if paths is None and "device" in self.images:
            left, right = self.ports("device")
            paths = PATHS.replace('left = "eth1"', f'left = "{left}"').replace('right = "eth2"', f'right = "{right}"')
        return super().bed(paths, more, names)

    def ports(self, name: str) -> list[str]:
        """The test ports of a guest, as it calls them, in the order of the cables."""
        number = self.names.index(name) + 1
        links = self.at(name, "ip", "-o", "link")
        return re.findall(rf"^\d+: (\w+): .* 52:54:00:00:{number:02x}:", links, re.MULTILINE)

    def left_behind(self) -> dict[str, str]:
        """What a bed has left on any host that is still there."""
        names, self.names = self.names, [name for name in self.names if name not in self.images]
        try:
            found = super().left_behind()
        finally:
            self.names = names
        for name in self.images:
            if name in self._processes:
                said = self.at(name, "sh", "-c", f"{LEFT}{RUNNING}")
                ports = self.at(name, "ip", "-o", "link").splitlines()
                if said.strip() or len(ports) != 2 + len(self._ends(name)) or "02:77:" in "".join(ports):
                    found[name] = said + "\n".join(ports)
        return found

    def _ends(self, name: str) -> list[tuple[int, int]]:
        return [
            (cable, end)
            for cable, (a, _, b, _) in enumerate(self.cables)
            for end, host in enumerate((a, b))
            if host == name
        ]

    def _make_keys(self) -> None:
        for name in ("user", "user.pub"):
            if self.images and not (self.folder / name).exists():
                shutil.copy(next(iter(self.images.values())).folder / name, self.folder / name)
        super()._make_keys()
        config, known = self.config.read_text(encoding="utf-8"), self.folder / "known_hosts"
        for name, image in self.images.items():
            number = self.names.index(name) + 1
            key = " ".join((image.folder / "host.pub").read_text(encoding="ascii").split()[:2])
            with known.open("a", encoding="ascii") as file:
                file.write(f"[127.0.0.1]:{2200 + number} {key}\n")
            there = f"HostName 127.0.0.1\n    Port {2200 + number}\n    IdentityFile {image.folder}/user\n"
            config = config.replace(f"HostName 10.99.{number}.2\n", there)
        self.config.write_text(config, encoding="utf-8")

    def _start_host(self, name: str, number: int) -> None:
        if name not in self.images:
            super()._start_host(name, number)
            return
        image = self.images[name].folder
        argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,-cx16,-la57", "-smp", "2", "-m", "768"]
        argv += ["-nodefaults", "-display", "none", "-no-reboot", "-snapshot", "-kernel", str(image / "vmlinuz")]
        argv += [
            "-initrd",
            str(image / "initrd.img"),
            "-append",
            "root=/dev/vda rw console=ttyS0 quiet mitigations=off",
        ]
        argv += [
            "-drive",
            f"file={image / 'disk'},format=raw,if=virtio",
            "-serial",
            f"file:{self.folder}/{name}.console",
        ]
        argv += ["-netdev", f"user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:{2200 + number}-:22"]
        argv += ["-device", "virtio-net-pci,netdev=net0,mac=52:54:00:00:00:01"]
        for place, (cable, end) in enumerate(self._ends(name), start=2):
            tap = f"c{cable}-{end}"
            self.at("desk", "ip", "tuntap", "add", "dev", tap, "mode", "tap")
            argv += ["-netdev", f"tap,id=net{place},ifname={tap},script=no,downscript=no"]
            argv += ["-device", f"{self.nic},netdev=net{place},mac=52:54:00:00:{number:02x}:{place:02x}"]
        command = self.command("setpriv", "--pdeathsig", "KILL", "--", *argv)
        self._processes[name] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def _plug(self, cable: int, end: int) -> None:
        """The tap is there before the guest runs."""
        if self.cables[cable][2 * end] not in self.images:
            super()._plug(cable, end)
            return
        self.at("desk", "ip", "link", "set", "dev", f"c{cable}-{end}", "master", f"patch{cable}")
        self._up(f"c{cable}-{end}")

    def _await_sshd(self, name: str, number: int) -> None:
        if name not in self.images:
            super()._await_sshd(name, number)
            return
        options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]
        argv = self.command("ssh", "-F", str(self.config), *options, f"{name}.lab")
        deadline = time.monotonic() + BOOT_SECONDS
        while subprocess.run([*argv, "true"], capture_output=True, timeout=90, check=False).returncode != 0:
            console = self.folder / f"{name}.console"
            told = console.read_text(errors="replace")[-2000:] if console.exists() else ""
            assert self._processes[name].poll() is None, f"the guest has ended: {told}"
            assert time.monotonic() < deadline, f"the guest does not answer: {told}"
            time.sleep(1)
