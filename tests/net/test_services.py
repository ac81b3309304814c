"""The units of systemd where systemd runs: started, used, killed, used again and stopped, in guests of QEMU.

Debian's own systemd and kernel; the instrument and the units are installed as SECURITY.md says. What can be judged of a
unit that is not started is in tests/unit/test_units.py.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scripts.debian import PRERM
from sojourn.bed.copies import instrument_for_hosts
from tests.net.busy_machine import await_that
from tests.net.guests import BOOT_SECONDS, RELEASES, Guests, image_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNITS = Path(__file__).resolve().parents[2] / "packaging/systemd"
RESPONDER, EMULATOR, LOG = SERVICES = ("sojourn-responder", "sojourn-emulator@lab", "sojourn-tcplog")
INSTRUMENT = "/usr/local/bin/sojourn-instrument"
PROBES = f"{INSTRUMENT} probe udp 127.0.0.1 --count 20 --json"
PINGS = f"ip netns exec a {INSTRUMENT} probe icmp 10.9.0.2 --count 20 --json"
DELAY_NS = 20_000_000
CONFIGURATION = f"""
mkdir -p /etc/sojourn
echo 'OPTIONS=--allow 127.0.0.0/8' >/etc/sojourn/responder.conf
printf 'LEFT=left\\nRIGHT=right\\nOPTIONS=--delay {DELAY_NS}ns --memory 64MiB\\n' >/etc/sojourn/emulator-lab.conf
echo 'OPTIONS=--port 22 --ring 16MiB' >/etc/sojourn/tcplog.conf
for host in a b; do ip netns add $host; done
ip link add left type veth peer name eth0 netns a
ip link add right type veth peer name eth0 netns b
for port in left right; do
    {INSTRUMENT} ethtool -K $port rxvlan off # else the emulator takes AF_PACKET, which asks for less
    ip link set $port up
done
ip -n a address add 10.9.0.1/24 dev eth0
ip -n b address add 10.9.0.2/24 dev eth0
for host in a b; do ip -n $host link set eth0 up; done
systemctl daemon-reload
"""
OF_UNITS = 1 << 12 | 1 << 23 | 1 << 38 | 1 << 39
PRIVILEGES = {
    RESPONDER: {"CapPrm": 0, "CapEff": 0, "CapBnd": 0},
    EMULATOR: {"CapPrm": 1 << 13 | 1 << 23, "CapEff": 1 << 13 | 1 << 23, "CapBnd": OF_UNITS | 1 << 13},
    LOG: {"CapPrm": 1 << 12 | 1 << 38 | 1 << 39, "CapEff": 1 << 12 | 1 << 38 | 1 << 39, "CapBnd": OF_UNITS},
}
"""The most that each may hold once it is set up: docs/reference/rights.md without CAP_IPC_LOCK, which no unit gives."""

pytestmark = [
    pytest.mark.proof,
    pytest.mark.alone,  # an emulated machine keeps both processors busy
    pytest.mark.may_skip,  # where Debian's archive cannot be had, and for that alone
    pytest.mark.timeout(1800),
]


class Services(Guests):
    """A guest in which the services are installed."""

    def run(self, script: str) -> str:
        """What a script prints in the guest; it must end well."""
        return self.at("device", "sh", "-euc", script)

    def holds(self, script: str) -> bool:
        """Whether a script ends well in the guest."""
        command = self.command("ssh", "-F", str(self.config), "-o", "BatchMode=yes", "device.lab", script)
        return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0

    def put(self, path: str, content: bytes, mode: str) -> None:
        """Write a file in the guest."""
        script = f"cat >{shlex.quote(path)} && chmod {mode} {shlex.quote(path)}"
        command = self.command("ssh", "-F", str(self.config), "-o", "BatchMode=yes", "device.lab", script)
        subprocess.run(command, input=content, check=True, timeout=300)

    def properties(self, unit: str) -> dict[str, str]:
        """What systemd says of a unit."""
        return dict(line.partition("=")[::2] for line in self.run(f"systemctl show {unit}").splitlines())

    def is_restarted(self, unit: str) -> bool:
        """Whether systemd has started a unit again, and it runs."""
        told = self.properties(unit)
        return told["SubState"] == "running" and int(told["NRestarts"]) > 0

    def counts(self, script: str) -> dict[str, Any]:
        """The summary that a command of ours prints as JSON."""
        found: dict[str, Any] = json.loads(self.run(script))
        return found


@pytest.fixture(params=RELEASES)
def guest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Services]:
    """A guest with this kernel, and the systemd of its release."""
    image = image_of(request.param)
    with Services(tmp_path / "lab", names=("device",), images={"device": image}, cables=()) as guest:
        guest.put(INSTRUMENT, instrument_for_hosts().read_bytes(), "755")
        for unit in UNITS.glob("*.service"):
            guest.put(f"/etc/systemd/system/{unit.name}", unit.read_bytes(), "644")
        guest.run(CONFIGURATION)
        yield guest


def test_services_work_again_after_a_kill_and_leave_nothing_when_the_package_is_removed(
    guest: Services, proven: Callable[..., None]
) -> None:
    guest.run(f"systemctl start {' '.join(SERVICES)}")
    await_that(lambda: guest.holds(f"{PROBES} && {PINGS}"), "responder and emulator answer", BOOT_SECONDS)
    expect_used(guest)
    for unit in SERVICES:
        expect_confined(guest, unit)
    killed = {unit: guest.properties(unit) for unit in SERVICES}
    for unit in SERVICES:
        guest.run(f"systemctl kill --signal=KILL {unit}")

    await_that(lambda: all(map(guest.is_restarted, (RESPONDER, EMULATOR))), "systemd starts them again", BOOT_SECONDS)
    await_that(lambda: guest.holds(f"{PROBES} && {PINGS}"), "both answer again", BOOT_SECONDS)
    expect_used(guest)
    assert guest.properties(LOG)["Result"] == "signal", "who kills a log looks at it before the next"
    expect_log(guest, killed[LOG]["InvocationID"], recovered=True)

    guest.run(f"systemctl start {LOG} && systemctl enable {' '.join(SERVICES)}")
    invocation = guest.properties(LOG)["InvocationID"]
    await_that(lambda: guest.holds(f"test -e /var/log/sojourn/{invocation}/header.json"), "it logs again")
    guest.put("/root/prerm", PRERM.encode(), "755")
    guest.run("/root/prerm remove")
    for unit in SERVICES:
        told = guest.properties(unit)
        assert (told["ActiveState"], told["Result"]) == ("inactive", "success"), guest.run(f"journalctl -u {unit}")
    expect_log(guest, invocation, recovered=False)
    left = guest.run(
        "ip -o link show left; ip -o link show right; ls -d /run/sojourn* /etc/systemd/system/*.wants/sojourn* || true;"
        "for one in /proc/[0-9]*; do cat $one/comm || true; done"
    )
    assert not re.search(r"xdp|sojourn", left), left
    systemd = guest.run("systemctl --version").split()[1]
    proven("kills", f"services, started again by systemd {systemd}", kills=len(SERVICES))


def expect_used(guest: Services) -> None:
    """The responder answers each probe, and the emulator delays what passes it, in both directions."""
    assert '"engine":["AF_XDP' in guest.run(f"journalctl --no-pager --output cat --unit {EMULATOR}")
    answered = guest.counts(PROBES)
    assert (answered["sent"], answered["received"]) == (20, 20), answered
    delayed = guest.counts(PINGS)
    assert (delayed["sent"], delayed["received"]) == (20, 20), delayed
    assert delayed["rtt"]["min_ns"] >= 2 * DELAY_NS, delayed


def expect_confined(guest: Services, unit: str) -> None:
    """It runs as a user of its own, without rights that it does not need, within its bound of memory."""
    told = guest.properties(unit)
    assert (told["ActiveState"], told["SubState"], told["NRestarts"]) == ("active", "running", "0"), told
    status = dict(re.findall(r"^(\w+):[ \t]+(.*)$", guest.run(f"cat /proc/{told['MainPID']}/status"), re.MULTILINE))
    users = {int(user) for user in status["Uid"].split()}
    assert len(users) == 1
    assert users.pop() >= 61184, "one of systemd's dynamic users"
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), status
    for name, most in PRIVILEGES[unit].items():
        assert int(status[name], 16) & ~most == 0, (unit, name, status[name])
    group = f"/sys/fs/cgroup{told['ControlGroup']}"
    peak = int(guest.run(f"cat {shlex.quote(group)}/memory.peak"))
    print(
        f"{unit}: {peak / 1e6:.0f} MB of {int(told['MemoryMax']) / 1e6:.0f} MB; {status['CapPrm']} {status['CapBnd']}"
    )
    assert 0 < peak < int(told["MemoryMax"])


def expect_log(guest: Services, invocation: str, *, recovered: bool) -> None:
    """The log of a start counts each packet of this test's own SSH connections once."""
    folder = f"/var/log/sojourn/{invocation}"
    if recovered:
        assert guest.counts(f"{INSTRUMENT} tcplog recover {folder} --json"), folder
    footer = json.loads(guest.run(f"cat {folder}/footer.json"))
    assert footer["conserved"] is (not recovered), footer
    seen = [footer["totals"][way]["seen"] for way in ("in", "out")]
    assert all(count > 0 for count in seen), footer
    assert guest.run(f"stat -c %a {folder} /var/log/private").split() == ["700", "700"]
