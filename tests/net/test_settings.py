"""Settings of ports and hosts: set, written down, read back, and restored after an end, a kill and a lost controller.

The ports are taps of the kernel, which have coalescing by frames (`ethtool -C DEV rx-frames`) and no other. What no
interface here has (rings, adaptive coalescing) and no kernel of a virtual machine (a governor) is a stand-in: an
`ethtool` that keeps what it is told, whose driver rounds, and files in place of the kernel's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import BedSpec, build_bed, setting_scripts
from sojourn.records.log import read_log
from tests.children import Child
from tests.net import cord
from tests.net.busy_machine import idle_ends
from tests.net.real_hosts import SOJOURN, SSHD, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="taps need /dev/net/tun"),
]
DIRECT = '[paths.direct]\na = "eth1"\nb = "eth1"\n'
FOUND = {"a": ("3", "0", "0"), "b": ("5", "0", "0")}
"""What the ports have before: rx-frames, napi_defer_hard_irqs, gro_flush_timeout."""
LEASE_SECONDS = 60.0
SETS = ("settings.rx_frames=16", "settings.napi_defer_hard_irqs=2", "settings.gro_flush_timeout=20us")
STUDY = ("run", "bridge-latency", "--quick", "--no-history", "--no-report", "--set", "probe.icmp_bytes=64",
         "--set", "bed.sessions=1", *idle_ends())  # fmt: skip
ETHTOOL = shutil.which("ethtool") or "/usr/sbin/ethtool"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts and one cable of taps between them."""
    with Hosts(tmp_path_factory.mktemp("lab"), names=("a", "b"), cables=()) as hosts:
        ends = [word for name in ("a", "b") for word in (str(hosts.pid(name)), "eth1")]
        argv = hosts.command(sys.executable, cord.__file__, *ends)
        with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cable:
            assert cable.stdout is not None
            assert cable.stdout.readline() == "up\n"
            for name, (frames, _, _) in FOUND.items():
                hosts.at(name, "ethtool", "-C", "eth1", "rx-frames", frames)
            hosts.bed(DIRECT)
            yield hosts
            assert now(hosts) == FOUND
            assert hosts.left_behind() == {}


def now(hosts: Hosts) -> dict[str, tuple[str, ...]]:
    """What the ports have, where they are on their hosts."""
    script = """ethtool -c eth1 | sed -n 's/^rx-frames:[[:space:]]*//p'
        cat /sys/class/net/eth1/napi_defer_hard_irqs /sys/class/net/eth1/gro_flush_timeout"""
    return {name: tuple(hosts.at(name, "sh", "-c", f"{script} 2>/dev/null; true").split()) for name in hosts.names}


def await_found(hosts: Hosts, seconds: float) -> None:
    """Wait until all is as it was found, and nothing of a bed is left."""
    end = time.monotonic() + seconds
    while now(hosts) != FOUND or hosts.left_behind():
        assert time.monotonic() < end, (now(hosts), hosts.left_behind())
        time.sleep(0.3)


def sets(*several: str) -> list[str]:
    return [word for one in several for word in ("--set", one)]


def rows_of(folder: Path, event: str) -> list[dict[str, Any]]:
    return next(entry["rows"] for entry in read_log(folder / "log.jsonl") if entry["event"] == event)


def test_settings_are_read_back_reported_and_restored(hosts: Hosts) -> None:
    bed = str(hosts.folder / "bed.toml")
    done = hosts.sojourn(*STUDY, *sets("pairs.rounds=4", *SETS), "--bed", bed, "--out", "set")
    assert done.returncode in (0, 4), done.stderr
    rows = rows_of(hosts.folder / "set", "settings-restored")
    asked = {"rx_frames": "16", "napi_defer_hard_irqs": "2", "gro_flush_timeout": "20000"}
    assert len(rows) == 2 * len(asked)
    for row in rows:
        before = FOUND[row["host"]][list(asked).index(row["setting"])]
        assert row["port"] == "eth1"
        assert row["asked"] == row["in_force"] == row["ended"] == asked[row["setting"]]
        assert row["before"] == row["restored"] == before
    found = json.loads((hosts.folder / "set/bed.json").read_text())["stable"]["hosts"]["a"]["links"]["a-direct"]
    assert found["coalescing"]["rx-frames"] == "16"
    findings = json.loads((hosts.folder / "set/analysis/verdict.json").read_text())["findings"]
    assert not [one["name"] for one in findings if one["name"].startswith("setting")]
    report = hosts.sojourn("report", "set")
    assert report.returncode in (0, 4), report.stderr
    table = (hosts.folder / "set/report/tables/settings.csv").read_text()
    assert "eth1 of host A,rx_frames,3,16,16,16,3,1" in table.replace('"', "")
    await_found(hosts, 5)


@pytest.mark.parametrize(
    "setting",
    [
        "rx_usecs=8",
        "governor=performance",
        *(pytest.param(one, marks=pytest.mark.proof) for one in ("adaptive_rx=false", "rx_ring=512", "irq_cpus=0")),
    ],
)
def test_unsupported_settings_are_refused_before_anything_is_set(hosts: Hosts, setting: str) -> None:
    name = setting.partition("=")[0]
    bed = str(hosts.folder / "bed.toml")
    done = hosts.sojourn(*STUDY, *sets(f"settings.{setting}", *SETS), "--bed", bed, "--out", f"no-{name}")
    assert done.returncode == 2, done.stderr
    where = "" if name == "governor" else "eth1 of "
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith(f"sojourn: settings.{name}: {where}host A (a.lab) has no "), said
    assert ": leave it out, or " in said
    assert now(hosts) == FOUND
    assert not any(entry["event"] == "settings-set" for entry in read_log(hosts.folder / f"no-{name}/log.jsonl"))


def in_the_middle(hosts: Hosts, out: str) -> Child[bytes]:
    """A run whose bed stands with its settings."""
    argv = hosts.command(SOJOURN, *STUDY, *sets("pairs.rounds=400", *SETS), "--bed", "bed.toml", "--out", out)
    with (hosts.folder / f"{out}.said").open("wb") as said:
        return Child(argv, cwd=hosts.folder, stdout=said, stderr=said, start_new_session=True)


def await_set(hosts: Hosts, run: Child[bytes], out: str) -> None:
    log = hosts.folder / out / "log.jsonl"
    end = time.monotonic() + 240
    while not (log.is_file() and any(entry["event"] == "block" for entry in read_log(log))):
        assert run.poll() is None, (hosts.folder / f"{out}.said").read_text()
        assert time.monotonic() < end
        time.sleep(0.1)
    assert {row["in_force"] for row in rows_of(hosts.folder / out, "settings-set")} == {"16", "2", "20000"}
    assert all(values == () for values in now(hosts).values()), "the ports are in their namespaces"


def test_hosts_restore_the_settings_of_a_killed_run(hosts: Hosts) -> None:
    with in_the_middle(hosts, "killed") as run:
        await_set(hosts, run, "killed")
        os.killpg(run.pid, signal.SIGKILL)
    await_found(hosts, LEASE_SECONDS)


@pytest.mark.proof
def test_silent_controller_keeps_its_settings_until_its_lease_expires(hosts: Hosts) -> None:
    """Its SSH sessions stand, and no beat comes: only the keeper's own clock can end it."""
    with in_the_middle(hosts, "silent") as run:
        await_set(hosts, run, "silent")
        os.kill(run.pid, signal.SIGSTOP)
        try:
            time.sleep(5)
            assert all(values == () for values in now(hosts).values()), "the lease has not expired"
            await_found(hosts, LEASE_SECONDS)
        finally:
            os.killpg(run.pid, signal.SIGKILL)


# Taps have no rings and no adaptive coalescing: this driver has, keeps what it is told in /dev/shm of the host, rounds
# rx-usecs down to even numbers, and refuses rx-usecs while it chooses by itself.
DRIVER = """#!/bin/sh
v=/dev/shm/driver
[ -d $v ] || { mkdir $v; echo on >$v/adaptive-rx; echo 4 >$v/rx-usecs; echo 256 >$v/rx; }
case $1 in
-c) printf 'Adaptive RX: %s  TX: n/a\\nrx-usecs:\\t%s\\nrx-frames:\\tn/a\\n' $(cat $v/adaptive-rx $v/rx-usecs) ;;
-g) printf 'Pre-set maximums:\\nRX:\\t\\t4096\\nCurrent hardware settings:\\n'
    printf 'RX:\\t\\t%s\\nTX:\\t\\tn/a\\n' $(cat $v/rx) ;;
-C) case $3:$(cat $v/adaptive-rx) in
    rx-usecs:on) echo 'netlink error: adaptive is on' >&2; exit 1 ;;
    rx-usecs:off) echo $(($4 / 2 * 2)) >$v/rx-usecs ;;
    *) echo $4 >$v/$3 ;;
    esac ;;
-G) [ $4 -le 4096 ] || { echo 'netlink error: ring too large' >&2; exit 1; }; echo $4 >$v/$3 ;;
*) exec /dev/shm/ethtool.own "$@" ;;
esac
"""
KEPT = "cat /dev/shm/driver/adaptive-rx /dev/shm/driver/rx-usecs /dev/shm/driver/rx"
CPUFREQ = """
cpu=/sys/devices/system/cpu
mount -n -t tmpfs own $cpu
for number in 0 1; do
    mkdir -p $cpu/cpu$number/cpufreq && echo powersave >$cpu/cpu$number/cpufreq/scaling_governor
done
"""


@pytest.fixture
def stand_ins(hosts: Hosts) -> Iterator[Hosts]:
    """The hosts with such a driver, and processors that have governors."""
    for name in hosts.names:
        put = f'cp {ETHTOOL} /dev/shm/ethtool.own; printf "%s" "$0" >/dev/shm/ethtool && chmod 755 /dev/shm/ethtool'
        hosts.at(name, "sh", "-c", f"{put} && mount -n --bind /dev/shm/ethtool {ETHTOOL}", DRIVER)
        hosts.at(name, "sh", "-c", CPUFREQ)
    yield hosts
    for name in hosts.names:
        undo = f"umount {ETHTOOL}; umount /sys/devices/system/cpu; rm -rf /dev/shm/driver"
        hosts.at(name, "sh", "-c", undo)


def kept(hosts: Hosts, name: str) -> list[str]:
    """What the stand-ins hold."""
    cpus = "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    return hosts.at(name, "sh", "-c", f"{KEPT}; {cpus}").split()


def test_rounded_settings_are_a_finding_and_set_and_restored_in_order(stand_ins: Hosts) -> None:
    hosts, bed = stand_ins, str(stand_ins.folder / "bed.toml")
    own = ("settings.adaptive_rx=false", "settings.rx_usecs=9", "settings.rx_ring=512", "settings.governor=performance")
    done = hosts.sojourn(*STUDY, *sets("pairs.rounds=4", *own), "--bed", bed, "--out", "rounded")
    assert done.returncode in (0, 4), done.stderr
    rows = {row["value"]: row for row in rows_of(hosts.folder / "rounded", "settings-restored") if row["host"] == "a"}
    assert rows.keys() == {"adaptive_rx", "rx_usecs", "rx_ring", "governor-0", "governor-1"}
    assert [rows["rx_usecs"][key] for key in ("asked", "before", "in_force", "restored")] == ["9", "4", "8", "4"]
    assert [rows["adaptive_rx"][key] for key in ("before", "in_force", "restored")] == ["on", "off", "on"]
    assert [rows["governor-1"][key] for key in ("before", "in_force", "restored")] == [
        "powersave", "performance", "powersave",
    ]  # fmt: skip
    for name in hosts.names:
        assert kept(hosts, name) == ["on", "4", "256", "powersave", "powersave"]
    findings = {
        one["name"]: one for one in json.loads((hosts.folder / "rounded/analysis/verdict.json").read_text())["findings"]
    }
    assert findings["setting_not_taken"]["sentence"].startswith("rx_usecs of eth1 of host A is 8, and 9 was asked")
    assert "coalescing 8 us" in findings["delaying_settings"]["sentence"]
    assert "setting_not_restored" not in findings


def test_existing_settings_that_delay_frames_are_a_finding(stand_ins: Hosts) -> None:
    hosts, bed = stand_ins, str(stand_ins.folder / "bed.toml")
    hosts.at("b", "sh", "-c", f"{ETHTOOL} -c eth1 >/dev/null; echo 512 >/dev/shm/driver/rx")
    done = hosts.sojourn(*STUDY, *sets("pairs.rounds=4"), "--bed", bed, "--out", "as-found")
    assert done.returncode in (0, 4), done.stderr
    findings = {
        one["name"]: one
        for one in json.loads((hosts.folder / "as-found/analysis/verdict.json").read_text())["findings"]
    }
    log = read_log(hosts.folder / "as-found/log.jsonl")
    said = next(entry["delaying"] for entry in log if entry["event"] == "bed")
    assert any("coalescing adaptive" in one for one in said)
    assert any("governor powersave" in one for one in said)
    assert findings["delaying_settings"]["value"] == len(said)
    assert "RX is 256 at A and 512 at B" in findings["settings_differ"]["sentence"]


def test_setting_refused_by_the_driver_is_reported_and_the_others_restored(stand_ins: Hosts) -> None:
    hosts, bed = stand_ins, str(stand_ins.folder / "bed.toml")
    own = ("settings.adaptive_rx=false", "settings.rx_ring=9000")
    done = hosts.sojourn(*STUDY, *sets(*own), "--bed", bed, "--out", "too-large")
    assert done.returncode == 2, done.stderr
    said = "eth1 of host A (a.lab) does not take rx_ring = 9000 (it has 256): netlink error: ring too large"
    assert said in done.stderr
    for name in hosts.names:
        assert kept(hosts, name)[:3] == ["on", "4", "256"]


# Interrupts as stand-ins, in a mount namespace of their own: one is the port's, one was and is it no more.
INTERRUPTS = """
mount -n -t tmpfs own /sys/class/net && mount -n -t tmpfs own /proc/irq || exit 1
set -- $(sed -n 's/^ *\\([0-9][0-9]*\\):.*/\\1/p' /proc/interrupts | head -n 2)
mkdir -p /sys/class/net/lo/device/msi_irqs "/proc/irq/$1" "/proc/irq/$2"
ln -s /sys/bus/pci /sys/class/net/lo/device/subsystem
: >"/sys/class/net/lo/device/msi_irqs/$1"; : >/sys/class/net/lo/device/msi_irqs/9999
echo 0-1 >"/proc/irq/$1/smp_affinity_list"; echo 1 >"/proc/irq/$2/smp_affinity_list"
for name in $(values_of irq_cpus lo); do
    had=$(value_of "$name" lo)
    echo "set lo $name $had"
    echo "lo lo $name $had" >>"$journal"
    set_value "$name" lo 1
done
echo "lo lo irq-$2 0" >>"$journal"
cat "/proc/irq/$1/smp_affinity_list"
restore
cat "/proc/irq/$1/smp_affinity_list" "/proc/irq/$2/smp_affinity_list"
[ ! -e "$journal" ] && echo none
"""


def test_only_interrupts_still_of_the_port_are_set_and_restored(tmp_path: Path) -> None:
    script = f"journal={tmp_path}/settings.1\n{setting_scripts.RESTORE}{INTERRUPTS}"
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    first, in_force, back, *after = done.stdout.split("\n")
    assert done.stderr == ""
    assert first.startswith("set lo irq-")
    assert first.endswith(" 0-1")
    assert in_force == "1"
    assert back == f"back {first.removeprefix('set ')}"
    assert after == ["0-1", "1", "none", ""]


IDLE = "/dev/cpu_dma_latency"


def test_ports_in_namespaces_are_set_and_the_machine_is_unchanged() -> None:
    before = Path(IDLE).stat()
    asked = {"napi_defer_hard_irqs": "2", "gro_flush_timeout": "20000", "idle_latency": "3"}
    with build_bed(BedSpec(devices=("bridge",), settings=asked), "settings") as bed:
        bed.backend.look_at_settings()
        tuned = bed.backend.tuned
        ports = [one for one in tuned if one.port]
        assert {one.setting for one in ports} == {"napi_defer_hard_irqs", "gro_flush_timeout"}
        assert {port.dev for host in bed.topology.hosts for port in bed.topology.ports(host.name)} == {
            one.port for one in ports
        }
        assert all(one.asked == one.in_force == one.ended != one.before for one in ports)
        (idle,) = [one for one in tuned if not one.port]
        assert 0 <= int(idle.in_force) <= 3
    assert all(one.restored == "gone" for one in ports)
    assert Path(IDLE).stat().st_rdev == before.st_rdev
