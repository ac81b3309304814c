"""Real beds, in namespaces of our own: they carry, they are silent, they are as asked, and they go without a trace."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

import sojourn
from sojourn.bed import Bed, BedSpec, build_bed, machine
from sojourn.bed.backends.netns import NetnsBackend
from sojourn.bed.clean import clean, marked_processes
from sojourn.bed.cores import cpu_mask
from sojourn.bed.facts import compare
from sojourn.bed.state import Mark, Process, state_folder, states
from sojourn.errors import MachineError, RequestError
from tests.children import Child
from tests.net.busy_machine import await_standstill, await_that, slowdown, thrice, undisturbed

ALL = ("wire", "bridge", "bridge*2", "bridge*3", "bridge*4")
PACKAGE = Path(sojourn.__file__).parent.parent


@pytest.fixture
def run() -> str:
    """A run id that nobody else has."""
    return f"test-{uuid.uuid4().hex[:10]}"


@pytest.fixture(autouse=True)
def _no_trace(run: str) -> object:
    """Whatever a test did, its run left nothing, once the kernel has ended what was killed."""
    yield
    with suppress(AssertionError):
        await_that(lambda: not traces(run), "the run left nothing", seconds=2)
    assert traces(run) == []


def traces(run: str) -> list[str]:
    """What is there of a run, wherever it could be."""
    found = [f"process {process.pid}" for process, mark in marked_processes() if mark.run == run]
    found += [f"state {path}" for path, state in states() if run in path.name or (state and state.mark.run == run)]
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            found += [f"mount in {mounts.parent.name}"] if f"sj-{run}".encode() in mounts.read_bytes() else []
        except OSError:
            continue
    names = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True).stdout
    found += [f"link {link['ifname']}" for link in json.loads(names) if link["ifname"][:2] in ("a-", "b-", "d-")]
    return found


def ping(bed: Bed, address: str, *options: str) -> bool:
    """Whether the first ten echo requests were all answered; while a busy machine delays an answer, more are sent."""
    said = bed.backend.run("a", ["ping", "-n", "-c", "10", "-i", "0.002", "-w", "30", *options, address])
    return {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl=", said)} == set(range(1, 11))


def packets(bed: Bed) -> dict[str, int]:
    """Every frame that any port has seen since it was made."""
    counters = bed.moment()["link_counters"]
    return {
        dev: count["rx_packets"] + count["tx_packets"] for links in counters.values() for dev, count in links.items()
    }


@thrice
def test_every_path_carries_ipv4_and_ipv6_within_a_second(run: str) -> None:
    longest_s = slowdown()
    began = time.monotonic()
    with build_bed(BedSpec(devices=ALL), run) as bed:
        built_s = time.monotonic() - began
        before = packets(bed)
        for link in bed.topology.links:
            assert ping(bed, link.b_ip4)
            assert ping(bed, link.b_ip6)
        after = packets(bed)
    with undisturbed():
        assert built_s < longest_s
    for link in bed.topology.links:
        inside = [port.dev for cable in link.cables for port in (cable.left, cable.right)]
        assert all(after[dev] - before[dev] >= 40 for dev in inside), "packets pass all hops of a path"


def test_idle_bed_sends_no_packets(run: str) -> None:
    with build_bed(BedSpec(devices=("wire", "bridge")), run) as bed:
        await_silence(bed)
        before = packets(bed)
        time.sleep(2)
        assert packets(bed) == before


def await_silence(bed: Bed) -> None:
    """Until the multicast reports of the addresses' own making are over: within some milliseconds, as a bed asks."""
    await_standstill(lambda: packets(bed), still_seconds=0.3)


def test_full_frames_of_a_large_mtu_pass(run: str) -> None:
    with build_bed(BedSpec(devices=("wire", "bridge*2"), mtu=9000), run) as bed:
        for link in bed.topology.links:
            assert ping(bed, link.b_ip4, "-M", "do", "-s", str(9000 - 28))
            with pytest.raises(MachineError):
                bed.backend.run("a", ["ping", "-c", "1", "-W", "1", "-M", "do", "-s", str(9000 - 27), link.b_ip4])


@pytest.mark.parametrize(("asked", "state"), [(False, "off"), (True, "on")])
def test_offloads_are_set_as_requested(run: str, asked: bool, state: str) -> None:
    with build_bed(BedSpec(devices=("bridge",), offloads=asked), run) as bed:
        hosts = bed.facts()["stable"]["hosts"]
    ports = [link for host in hosts.values() for link in host["links"].values() if link["kind"] == "veth"]
    assert len(ports) == 6
    for port in ports:
        assert port["driver"] == "veth"
        assert port["offloads"]["tx-checksumming"] == state
        assert port["offloads"]["tcp-segmentation-offload"].startswith(state)


def test_only_offloads_listed_in_the_guide_stay_on(run: str) -> None:
    with build_bed(BedSpec(devices=("bridge",)), run) as bed:
        said = {
            port.dev: bed.backend.run(port.host, ["ethtool", "-k", port.dev])
            for link in bed.topology.links
            for port in link.ports
        }
    assert len(said) == 6
    for dev, words in said.items():
        on = set(re.findall(r"^([\w-]+): on\b", words, re.MULTILINE))
        assert {"rx-checksumming", "scatter-gather", "rx-vlan-offload", "tx-vlan-offload"} <= on, (dev, on)
        segmenting = {name for name in on if "segmentation" in name or "gro" in name or "gso" in name}
        of_tunnels = {name for name in segmenting if re.search("-(gre|ipxip|udp_tnl|sctp)", name)}
        assert segmenting - of_tunnels <= {"tx-gso-list", "tx-gso-partial"}, (dev, segmenting)
        assert not on & {"tx-checksumming", "tx-udp-segmentation", "tcp-segmentation-offload"}, (dev, on)


def test_bed_hash_depends_on_the_spec_only(run: str) -> None:
    facts = []
    for mtu in (1500, 1500, 1400):
        with build_bed(BedSpec(devices=("wire", "bridge"), mtu=mtu), run) as bed:
            facts.append(bed.facts())
    assert facts[0]["hash"] == facts[1]["hash"]
    assert facts[0]["hash"] != facts[2]["hash"]
    changed = {change.fact: (change.before, change.after) for change in compare(facts[0], facts[2])}
    assert changed.pop("bed.spec.mtu") == (1500, 1400)
    assert set(changed.values()) == {(1500, 1400)}
    assert all(fact.endswith(".mtu") for fact in changed)
    json.dumps(facts[0])


def test_two_runs_can_use_beds_at_once(run: str) -> None:
    other = f"{run}-other"
    with build_bed(BedSpec(devices=("bridge",)), run) as one, build_bed(BedSpec(devices=("bridge",)), other) as two:
        assert ping(one, "10.77.2.2")
        assert ping(two, "10.77.2.2")
        await_silence(two)
        before = packets(two)
        assert ping(one, "10.77.2.2")
        assert packets(two) == before
    assert traces(other) == []


def test_active_run_id_is_refused(run: str) -> None:
    with build_bed(BedSpec(), run) as bed:
        with pytest.raises(RequestError, match="is going on already"), build_bed(BedSpec(), run):
            pass
        assert ping(bed, "10.77.1.2")


def test_failed_command_is_named(run: str) -> None:
    with build_bed(BedSpec(), run) as bed, pytest.raises(MachineError, match=r"\(line: link set dev nope up\)"):
        bed.backend.run("a", ["ip", "-batch", "-"], "link set dev lo up\nlink set dev nope up\n")


def test_missing_program_is_named(run: str) -> None:
    with build_bed(BedSpec(), run) as bed, pytest.raises(MachineError, match="no-such-program not found"):
        bed.backend.start("a", ["no-such-program"])


def test_started_processes_end_with_the_block_even_if_they_ignore_signals(run: str) -> None:
    with build_bed(BedSpec(), run) as bed:
        stubborn = bed.backend.start(
            "a", ["sh", "-c", "trap '' TERM; echo up; sleep 60"], stdout=subprocess.PIPE, text=True
        )
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == "up\n"
    assert stubborn.returncode == -signal.SIGKILL


MANY = BedSpec(devices=("wire", "bridge", "bridge*2"), near=8, far=6, bypass=True)


def test_further_ports_carry_traffic_and_are_silent_when_idle(run: str) -> None:
    with build_bed(MANY, run) as bed:
        for path in ("bridge", "bridge*2"):
            link = bed.topology.link(path)
            for end in link.near:
                assert ping(bed, link.far[0].ip4, "-I", end.dev)
            for end in link.far:
                assert ping(bed, end.ip6, "-I", link.near[1].dev)
        assert all(ping(bed, link.b_ip4) for link in bed.topology.links if link.is_bypass)
        await_silence(bed)
        before = packets(bed)
        time.sleep(1)
        assert packets(bed) == before


def test_further_pairs_of_ports_use_only_their_own_ports_of_the_bridge(run: str) -> None:
    with build_bed(MANY, run) as bed:
        link = bed.topology.link("bridge")
        assert ping(bed, link.far[2].ip4)  # the bridge has learnt both by now
        await_silence(bed)
        before = bed.counters()
        assert ping(bed, link.far[2].ip4)
        grown = {dev for dev, counted in bed.counters().items() if counted["rx_packets"] > before[dev]["rx_packets"]}
    assert grown == {"a-bridge-3", "b-bridge-3", "d-bridge-1l3", "d-bridge-1r3"}


def test_counters_conserve_the_frames_of_a_path(run: str) -> None:
    with build_bed(MANY, run) as bed:
        await_silence(bed)
        before = bed.counters("bridge", "bridge/bypass")
        assert {dev for dev in before if dev.startswith("d-")} >= {"d-bridge-1", "d-bridge-y-1l", "d-bridge-1r6"}
        assert not {dev for dev in before if "bridgex2" in dev or "wire" in dev}
        assert ping(bed, "10.77.3.2")
        after = bed.counters("bridge")
        assert bed.backend.softnet_dropped() >= 0
    sent = after["a-bridge"]["tx_packets"] - before["a-bridge"]["tx_packets"]
    assert sent >= 10
    assert after["b-bridge"]["rx_packets"] - before["b-bridge"]["rx_packets"] == sent
    beside = {name: after["a-bridge-2"][name] - before["a-bridge-2"][name] for name in ("rx_packets", "tx_packets")}
    # What hosts say of their groups when they have just come up (MLD) may still reach it; the path's own frames do not.
    assert max(beside.values()) < sent, beside


def test_frames_to_forgotten_or_unknown_addresses_are_flooded(run: str) -> None:
    with build_bed(MANY, run) as bed:
        link = bed.topology.link("bridge")
        assert ping(bed, link.b_ip4)
        assert flooded(bed, link.b_mac) == 0
        assert flooded(bed, link.nobody_mac) == 10
        bed.flush_fdb("bridge")
        assert flooded(bed, link.b_mac) == 10, "until it sends something"
        assert ping(bed, link.b_ip4)
        assert flooded(bed, link.b_mac) == 0
        bed.flush_fdb("direct")  # which has no FDB


def flooded(bed: Bed, mac: str) -> int:
    """How many of ten frames to this address come out at a far end that they are not for."""
    argv = [sys.executable, "-I", "-c", COUNT_FRAMES, "b-bridge", "b-bridge-2"]
    counter = bed.backend.start("b", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert counter.stdout is not None
    assert counter.stdout.readline() == "ready\n"
    send_frames(bed, mac, 10, 64)
    told, _ = counter.communicate("count\n", timeout=60)
    arrived, beside = map(int, told.split())
    assert arrived == 10
    return beside


COUNT_FRAMES = """
import socket, sys, time
ports = []
for dev in sys.argv[1:]:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b6))
    port.bind((dev, 0x88b6))
    port.setblocking(False)
    ports.append(port)
print("ready", flush=True)
sys.stdin.readline()
counts, deadline = [0] * len(ports), time.monotonic() + 30
while counts[0] < 10 and time.monotonic() < deadline:
    time.sleep(0.1)
    for number, port in enumerate(ports):
        try:
            while port.recv(2048):
                counts[number] += 1
        except BlockingIOError:
            pass
print(*counts, flush=True)
"""


SEND = """
import socket, sys
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
port.bind(("a-bridge", 0))
frame = bytes.fromhex(sys.argv[1] + "027700000301" + "88b6").ljust(int(sys.argv[3]) - 4, b"x")
for _ in range(int(sys.argv[2])):
    port.send(frame)
"""


def send_frames(bed: Bed, mac: str, count: int, frame_bytes: int) -> None:
    """Frames of a size (with FCS) to an address, one after the other as fast as it goes."""
    bed.backend.run("a", [sys.executable, "-I", "-c", SEND, mac.replace(":", ""), str(count), str(frame_bytes)])


@pytest.mark.parametrize("shaper", ["tbf", "htb"])
def test_shaped_device_passes_its_rate_bucket_and_queue(run: str, shaper: str) -> None:
    """A burst of frames meets the known answer: bucket and queue pass, and what leaves meanwhile at the rate."""
    spec = BedSpec(devices=("bridge",), shaper=shaper, rate_bps=10_000_000, burst_bytes=15_180, queue_bytes=75_900)
    with build_bed(spec, run) as bed:
        link = bed.topology.link("bridge")
        bed.backend.run("a", ["ping", "-q", "-c", "1", link.b_ip4])
        await_silence(bed)
        before, began = bed.counters("bridge"), time.monotonic()
        send_frames(bed, link.b_mac, 500, 1518)
        elapsed = time.monotonic() - began
        after = await_standstill(lambda: bed.counters("bridge"))
    passed = after["b-bridge"]["rx_packets"] - before["b-bridge"]["rx_packets"]
    lost = after["d-bridge-1r"]["qdisc_dropped"] - before["d-bridge-1r"]["qdisc_dropped"]
    assert 500 <= passed + lost <= 500 + 5  # and a few that the hosts send by themselves (MLD)
    assert 10 + 50 - 2 <= passed <= 10 + 50 + 2 + 5 + elapsed * 10e6 / (8 * 1518)


@thrice
def test_rate_of_a_shaper_counts_whole_frames(run: str) -> None:
    """Eight hundred frames of 1518 bytes with their FCS take 97 ms at 100 Mbit/s, once the bucket is empty."""
    spec = BedSpec(devices=("bridge",), rate_bps=100_000_000, burst_bytes=100_000, queue_bytes=2_000_000)
    with build_bed(spec, run) as bed:
        receiver = bed.backend.start(
            "b", [sys.executable, "-I", "-c", TIME_FRAMES, "1000"], stdout=subprocess.PIPE, text=True
        )
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        send_frames(bed, bed.topology.link("bridge").b_mac, 1000, 1518)
        taken_s = float(receiver.stdout.readline())
    with undisturbed():
        assert taken_s == pytest.approx(800 * 1518 * 8 / 100e6, rel=0.01)


TIME_FRAMES = """
import socket, struct, sys
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b6))
port.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)  # SO_RCVBUFFORCE
port.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS: when the kernel had it, not when we came to read it
port.bind(("b-bridge", 0x88b6))
port.settimeout(30)
print("ready", flush=True)
times = []
for _ in range(int(sys.argv[1])):
    _, ancillary, _, _ = port.recvmsg(2048, 64)
    seconds, nanoseconds = struct.unpack("ll", ancillary[0][2][:16])
    times.append(seconds + nanoseconds / 1e9)
print(times[-1] - times[-801], flush=True)
"""


def test_prepared_bed_enables_gro_on_ports_of_the_bridge(run: str) -> None:
    with build_bed(BedSpec(devices=("bridge",), near=2), run) as bed:
        bed.prepare_live("bridge")
        hosts = bed.facts()["stable"]["hosts"]
        assert ping(bed, "10.77.2.2")
    ports = {dev: link for host in hosts.values() for dev, link in host["links"].items() if link["kind"] == "veth"}
    polling = {dev for dev, link in ports.items() if link["offloads"]["generic-receive-offload"] == "on"}
    assert polling == {dev for dev in ports if "bridge" in dev}


def test_bed_facts_state_pause_frame_support(run: str) -> None:
    with build_bed(BedSpec(devices=("bridge",)), run) as bed:
        hosts = bed.facts()["stable"]["hosts"]
    assert {link["pause"] for host in hosts.values() for link in host["links"].values()} == {
        "not offered by the driver"
    }
    assert hosts["d"]["links"]["d-bridge-1"]["bridge"]["mcast_snooping"] == 0


def test_namespace_of_a_dead_keeper_process_is_not_confused_with_another(run: str) -> None:
    with build_bed(BedSpec(devices=("wire",)), run) as bed:
        backend = bed.backend
        assert isinstance(backend, NetnsBackend)
        (holder,) = backend._holders
        held = Path(f"/proc/{holder.pid}/fd")
        keepers = {host: one.keeper for host, one in backend._hosts.items()}
        kept = {host: Path(f"/proc/{keeper}/ns/net").stat().st_ino for host, keeper in keepers.items()}
        assert len({*kept.values(), Path("/proc/self/ns/net").stat().st_ino}) == 4
        for keeper in keepers.values():
            assert int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1]) == holder.pid
            os.kill(keeper, signal.SIGKILL)
        assert [(held / str(fd)).stat().st_ino for fd in (4, 5, 6)] == list(kept.values())
        assert ping(bed, bed.topology.link("wire").b_ip4)


def test_an_error_in_the_block_leaves_nothing(run: str) -> None:
    def fail() -> None:
        with build_bed(BedSpec(devices=("bridge",)), run) as bed:
            bed.backend.start("b", ["sh", "-c", "sleep 60; true"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -2)])
def test_a_signal_ends_the_block_in_order(run: str, number: signal.Signals, status: int) -> None:
    controller = start_controller(run)
    controller.send_signal(number)
    _, said = controller.communicate(timeout=60)
    assert controller.returncode == status, said


def test_core_of_the_device_runs_nothing_else(run: str) -> None:
    require(os.geteuid() == 0, "packet steering needs root")
    require(len(os.sched_getaffinity(0)) > 1, "a core of its own needs a second core")
    prober, *_, device = sorted(os.sched_getaffinity(0))
    with build_bed(BedSpec(devices=("bridge",), device_cpu="own", prober_cpu=prober, responder_cpu=prober), run) as bed:
        assert bed.device_core == device
        assert ping(bed, "10.77.2.2")
        steered = bed.facts()["stable"]["bed"]["device_cpu"]["steered"]
    assert steered["d-bridge-1l"] == device
    assert steered["a-direct"] == prober


@pytest.mark.alone  # the machine has one limit of its wake-up latency, which other runs set too
@pytest.mark.parametrize("on", [True, False])
def test_switched_settings_hold_while_the_bed_exists(run: str, on: bool) -> None:
    require(os.geteuid() == 0, "packet steering needs root")
    spec = BedSpec(devices=("bridge",), switches={"idle": on, "rps": on})
    before = wake_up_latency()
    with build_bed(spec, run) as bed:
        mask = cpu_mask(*bed.backend.cores()) if on else cpu_mask()
        for host, dev in (("a", "a-direct"), ("d", "d-bridge-1l"), ("b", "b-bridge")):
            told = bed.backend.get(host, f"/sys/class/net/{dev}/queues/rx-0/rps_cpus").strip()
            assert int(told.replace(",", ""), 16) == int(mask.replace(",", ""), 16)
        assert set(bed.left_out) <= {"idle"}
        if not bed.left_out:
            assert wake_up_latency() == (0 if on else before)
        assert ping(bed, "10.77.2.2")
    assert wake_up_latency() == before


def wake_up_latency() -> int | None:
    """The longest that is allowed on this machine, in µs; None where the kernel keeps none."""
    try:
        return int.from_bytes(machine.DMA_LATENCY.read_bytes()[:4], sys.byteorder)
    except OSError:
        return None


@thrice
def test_cpu_load_on_the_core_of_the_device_is_as_requested(run: str) -> None:
    with build_bed(BedSpec(devices=("bridge",), device_cpu="loaded:30%"), run) as bed:
        time.sleep(1)
        load = bed.moment()["device_load"]
    with undisturbed():
        assert load["achieved_share"] == pytest.approx(0.3, abs=0.05)


@pytest.mark.alone  # it ends what other tests have left behind on purpose
def test_clean_ends_only_processes_of_dead_runs(run: str) -> None:
    dead = subprocess.Popen(["sleep", "60"])
    mark = Mark(run, Process.of(dead.pid))
    dead.kill()
    dead.wait()
    orphan = subprocess.Popen(["sleep", "60"], env={**os.environ, "SOJOURN_BED": str(mark)})
    bystander = subprocess.Popen(["sleep", "60"])
    with build_bed(BedSpec(), f"{run}-live") as bed:
        stale = leave_a_state_file(mark)
        cleaning = clean()
        assert ping(bed, "10.77.1.2")
    assert orphan.wait(30) == -signal.SIGTERM
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert not stale.exists()
    assert f"Ended process {orphan.pid} of the dead run {run}." in cleaning.removed
    assert f"Removed the state file of the dead run {run}." in cleaning.removed
    assert any(f"Run {run}-live is going on" in sentence for sentence in cleaning.live)


@pytest.mark.alone
@pytest.mark.parametrize("mark", ["", f"x@{'9' * 300}-1", f"x@1-{'9' * 5000}"], ids=["none", "long", "longer"])
def test_a_process_of_another_user_with_any_name_and_mark_does_not_stop_clean(mark: str, run: str) -> None:
    with Child(["sleep", "60"]) as dead:
        of_dead = Mark(run, Process.of(dead.pid))
        dead.kill()
    nobody = 65534 if os.geteuid() == 0 else os.geteuid()
    named = ["sh", "-c", r"printf '\377evil' >/proc/$$/comm; echo named; read -r _"]
    environment = {**os.environ, "SOJOURN_BED": mark}
    with (
        Child(named, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=nobody, env=environment) as evil,
        Child(["sleep", "60"], env={**os.environ, "SOJOURN_BED": str(of_dead)}) as orphan,
    ):
        assert evil.stdout is not None
        assert evil.stdout.readline() == "named\n"
        assert Path(f"/proc/{evil.pid}/comm").read_bytes() == b"\xffevil\n"
        cleaning = clean()
        assert orphan.wait(30) == -signal.SIGTERM
        assert evil.poll() is None
    assert f"Ended process {orphan.pid} of the dead run {run}." in cleaning.removed


@pytest.mark.alone
def test_clean_keeps_foreign_files(run: str) -> None:
    with build_bed(BedSpec(), run):
        strange = state_folder() / f"sojourn-bed-strange-{uuid.uuid4().hex}.json"
        strange.write_text("{}")
        cleaning = clean()
        assert strange.exists()
        strange.unlink()
    assert any(str(strange) in sentence for sentence in cleaning.left)


def test_bed_works_without_root_in_a_user_namespace(run: str) -> None:
    script = textwrap.dedent(f"""
        import json
        from sojourn.bed import BedSpec, build_bed
        with build_bed(BedSpec(devices=("wire", "bridge*2"), device_cpu="own"), {run!r}) as bed:
            for link in bed.topology.links:
                bed.backend.run("a", ["ping", "-q", "-c", "3", "-i", "0.01", "-w", "30", link.b_ip4])
                bed.backend.run("a", ["ping", "-q", "-c", "3", "-i", "0.01", "-w", "30", link.b_ip6])
            ports = bed.facts()["stable"]["hosts"]["a"]["links"]
            backend = bed.backend
            print(json.dumps({{"unprivileged": backend.unprivileged, "missing": backend.missing, "ports": len(ports)}}))
    """)
    command = [*as_plain_user(), "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=plain_environment(), check=False)
    require("no network namespace here" not in done.stderr, f"the kernel refuses user namespaces: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["unprivileged"] is True
    assert said["ports"] == 3
    assert any("core of its own" in sentence for sentence in said["missing"])


def as_plain_user() -> list[str]:
    """A Python that runs without root: this one, or as nobody one that nobody can reach."""
    if os.geteuid() != 0:
        return [sys.executable]
    drop = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--"]
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3", shutil.which("python3.11") or "python3.11"):
        if subprocess.run([*drop, python, "-c", check], capture_output=True, check=False).returncode == 0:
            return [*drop, python]
    return pytest.skip("no Python >= 3.11 here that the user nobody can run")


def plain_environment() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(PACKAGE),
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def start_controller(run: str) -> subprocess.Popen[str]:
    """A process of its own that has built a bed, with a program in it, and waits."""
    script = textwrap.dedent(f"""
        import signal, time
        from sojourn.bed import BedSpec, build_bed
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that nohup started have inherited that it is ignored
        with build_bed(BedSpec(devices=("bridge",)), {run!r}) as bed:
            bed.backend.start("a", ["ping", "-q", "10.77.2.2"])
            print("built", flush=True)
            time.sleep(60)
    """)
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    controller = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    assert controller.stdout is not None
    # The program that was started in it may say something first: it has the same output.
    assert any(line == "built\n" for line in controller.stdout)
    return controller


def leave_a_state_file(mark: Mark) -> Path:
    """As a controller and a holder leave it that were killed together."""
    path = next(path for path, _ in states())
    text = json.loads(path.read_text())
    stale = path.with_name(f"sojourn-bed-{mark}.json")
    stale.write_text(
        json.dumps({**text, "mark": str(mark), "holder": {"pid": mark.controller.pid, "started_ticks": 1}})
    )
    return stale


def require(there: bool, why: str) -> None:
    """Skip the test where a feature is missing."""
    if not there:
        pytest.skip(why)
