"""Boxes of the user's own, run: their environment, what passes them, what goes wrong, and that nothing is left."""

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
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sojourn
from sojourn.bed import BedSpec, BoxSpec, build_bed
from sojourn.errors import MachineError
from tests.net.busy_machine import retried, undisturbed
from tests.net.here import sojourn_here
from tests.net.test_bed_kill import namespaces

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = Path(sojourn.__file__).parent.parent
EXAMPLES = PACKAGE.parent / "docs/guide/examples"
BRIDGE = """
ip link add br0 type bridge forward_delay 0
for port in $SOJOURN_LEFT $SOJOURN_RIGHT; do ip link set $port master br0; done
ip link set br0 up
"""


@pytest.fixture
def run() -> str:
    """A run id that nobody else has."""
    return f"test-{uuid.uuid4().hex[:10]}"


def program(folder: Path, body: str, name: str = "box.sh") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\nset -eu\n{body}")
    path.chmod(0o755)
    return path


def spec_of(path: Path | str, **more: object) -> BedSpec:
    return BedSpec(devices=("box:x",), boxes={"box:x": BoxSpec(str(path), **more)})  # type: ignore[arg-type]


def measured(tmp_path: Path, *words: str) -> Path:
    """A short study over a box, by the command line, and its folder."""
    out = tmp_path / "run"
    short = ["--quick", "--no-history", "--set", "sessions=2", "--set", "rounds=6", "--set", "probe.icmp_bytes=64"]
    done = sojourn_here("run", "bridge-latency", *short, "--out", out, *words)
    assert done.returncode in (0, 4), done.stderr
    return out


def added_ns(out: Path, device: str) -> float:
    rows = json.loads((out / "analysis/results.json").read_text())
    return next(
        float(row["estimate"])
        for row in rows
        if (row["quantity"], row["statistic"]) == ("device_latency", "mean")
        and (row["device"], row["reference"]) == (device, "direct")
    )


def test_box_program_gets_its_ports_and_its_output_is_recorded(run: str, tmp_path: Path) -> None:
    path = program(
        tmp_path, f"{BRIDGE}\nenv | grep ^SOJOURN_ | sort\ntouch $SOJOURN_FOLDER/here; ls -d $SOJOURN_FOLDER/here\npwd"
    )
    with build_bed(spec_of(path, down="echo gone from $SOJOURN_LEFT"), run, tmp_path / "boxes") as bed:
        link = bed.topology.link("box:x")
        assert not link.is_routed
        assert "br0" in bed.objects()["box:x"]["shown"]["ip -d link show"]
        assert "box:x" in json.dumps(bed.facts()["stable"]["bed"]["spec"]["boxes"])
    said = (tmp_path / "boxes/x.log").read_text()
    told = ("LEFT=d-x-1l", "RIGHT=d-x-1r", "LEFT_IP4=10.77.2.254/24", "B_IP6=fd78:0:0:2::2", "MTU=1500")
    for line in (*told, "A_MAC=02:77:00:00:02:01"):
        assert f"SOJOURN_{line}\n" in said
    assert "/dev/shm/box/here" in said
    assert f"{tmp_path}\n" in said
    assert "gone from d-x-1l\n" in said
    assert not Path("/dev/shm/box").exists()


WITHIN_NS = 4_000_000_000
"""A busy machine needs more than a second to start a shell in namespaces of its own."""


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("echo first; echo it is broken >&2; exit 7", r"failed with status 7; it said: first / it is broken"),
        ("exit 3", r"failed with status 3; it printed nothing"),
        ("nosuchprogram", r"failed with status 127; it said: .*nosuchprogram.*not found"),
        ("echo waiting; sleep 100", r"did not come up within 4 s: it still runs; it said: waiting"),
        ("true", r"lets nothing pass within 4 s: host B does not answer host A, as over a bridge or as over a router"),
        (f"{BRIDGE}\nip link set br0 down\necho sorry", r"lets nothing pass within 4 s.*it said: sorry"),
        ("kill -KILL $PPID 2>/dev/null; sleep 9", r"cannot be run here|did not come up|failed"),
    ],
)
def test_failing_box_is_reported_in_one_sentence(run: str, tmp_path: Path, body: str, sentence: str) -> None:
    path = program(tmp_path, body)
    with pytest.raises(MachineError, match=sentence), build_bed(spec_of(path, within_ns=WITHIN_NS), run):
        pass
    assert of_run(run) == []


def test_failing_box_on_the_command_line_gives_sentence_and_exit_status(tmp_path: Path) -> None:
    path = program(tmp_path, "echo cannot; exit 1")
    asked = ("run", "bridge-latency", "--quick", "--device", path, "--out", tmp_path / "run")
    done = sojourn_here(*asked)
    assert done.returncode == 3
    assert done.stderr.startswith(f"sojourn: box {path} failed with status 1; it said: cannot")
    path.chmod(0o644)
    done = sojourn_here(*asked)
    assert done.returncode == 2
    assert "expected a program that may be run: chmod +x" in done.stderr


DAEMONS = f"""
{BRIDGE}
setsid sh -c 'exec sleep 1000' &
ip netns add inner
ip netns exec inner setsid env -i sleep 1000 &
unshare --net --mount env -i sleep 1000 &
mount -t tmpfs mine /mnt
"""


@pytest.mark.proof
@retried
def test_box_gets_a_bufferbloat_grade_from_one_command(tmp_path: Path) -> None:
    """`sojourn run bufferbloat --device ./box.sh --quick`, of a box that shapes to 20 Mbit/s with a queue of 150 kB."""
    rate = "for port in $SOJOURN_LEFT $SOJOURN_RIGHT; do\n"
    rate += "tc qdisc replace dev $port root tbf rate 20mbit burst 5kb limit 150000\ndone\n"
    box, out = program(tmp_path, BRIDGE + rate), tmp_path / "run"
    done = sojourn_here("run", "bufferbloat", "--device", box, "--quick", "--no-history", "--out", out)
    assert done.returncode in (0, 4), done.stderr
    rows = json.loads((out / "analysis/results.json").read_text())
    found = {(row["quantity"], row["statistic"], row["direction"]): row["estimate"] for row in rows}
    findings = {one["name"] for one in json.loads((out / "analysis/verdict.json").read_text())["findings"]}
    assert not findings & {"incomplete", "impossible", "not_conserved"}
    assert "grade" in done.stdout
    assert (out / "report/index.html").stat().st_size > 100_000
    with undisturbed():
        for way in ("down", "up"):
            # A full queue takes 60 ms to drain. But packets in the box still count as the sender's (TCP small queues
            # reach through network namespaces), so that it holds back instead of filling that queue.
            assert 1e6 <= found["rtt_increase", "p50", way] <= 66e6
            assert 15e6 <= found["goodput", way, way] <= 20e6
            held_back = (found["limited", f"{way} {name}", way] for name in ("congestion window", "pacing or path"))
            assert sum(held_back) > 0.9


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_box_whatever_ends_the_program(run: str, tmp_path: Path, how: signal.Signals) -> None:
    """Daemons in sessions, network and mount namespaces of their own, without our mark in their environment."""
    path = program(tmp_path, DAEMONS)
    script = textwrap.dedent(f"""
        import time
        from sojourn.bed import BedSpec, BoxSpec, build_bed
        spec = BedSpec(devices=("box:x",), boxes={{"box:x": BoxSpec({str(path)!r})}})
        with build_bed(spec, {run!r}):
            print("built", flush=True)
            time.sleep(60)
    """)
    before, sleepers_before = namespaces(), sleepers()
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    controller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env)
    assert controller.stdout is not None
    assert controller.stdout.readline() == "built\n"
    assert await_sleepers(lambda: len(sleepers() - sleepers_before) == 3)
    controller.send_signal(how)
    controller.wait()
    controller.stdout.close()
    await_sleepers(lambda: not (sleepers() - sleepers_before or of_run(run)))
    assert sleepers() - sleepers_before == set()
    assert of_run(run) == []
    assert not any("inner" in one for one in namespaces() - before)
    assert not Path("/run/netns/inner").exists()
    assert "mine /mnt" not in Path("/proc/self/mounts").read_text()


def await_sleepers(there: Callable[[], bool]) -> bool:
    """Whether it holds within 20 s."""
    deadline = time.monotonic() + 20
    while not there() and time.monotonic() < deadline:
        time.sleep(0.02)
    return there()


def sleepers() -> set[int]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == b"sleep\x001000\x00":
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def of_run(run: str) -> list[str]:
    """Processes that carry the run's mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if run.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


@retried
def test_bridge_with_rules_is_measured_like_any_bridge(tmp_path: Path) -> None:
    out = measured(tmp_path, "--device", "bridge", "--device", f"{EXAMPLES / 'rules.sh'} 300")
    with undisturbed():
        assert added_ns(out, "box:rules") > added_ns(out, "bridge") > 0
    assert "300 rules" in (out / "boxes/rules.log").read_text()
    assert (out / "boxes/rules.log").stat().st_mode & 0o077 == 0
    page = (out / "report/index.html").read_text()
    assert "ip saddr 192.0.2.1 drop" in page


@retried
def test_delay_added_by_five_hundred_nft_rules_is_measured(tmp_path: Path) -> None:
    """As the guide has it: a file for nft, the script that loads it, a label, and the plain bridge to compare with."""
    asked = ["--device", "bridge", "--device", f"mine={EXAMPLES / 'filter.sh'} rules-500.nft"]
    out = measured(tmp_path, "--no-report", *asked, "--set", "pairs.reference=bridge")
    rows = json.loads((out / "analysis/results.json").read_text())
    found = next(
        row for row in rows if (row["device"], row["reference"], row["statistic"]) == ("box:mine", "bridge", "mean")
    )
    with undisturbed():
        assert found["quantity"] == "device_latency"
        assert found["estimate"] > 0
    verdict = json.loads((out / "analysis/verdict.json").read_text())
    assert "rules_unseen" not in {one["name"] for one in verdict["findings"]}
    shown = json.loads((out / "bed.json").read_text())["objects"]["box:mine"]["shown"]
    assert sum(text.count(" drop") for command, text in shown.items() if "nft list" in command) == 500


@retried
def test_a_router_with_rules_is_measured_too(tmp_path: Path) -> None:
    out = measured(tmp_path, "--no-report", "--device", "router", "--device", f"{EXAMPLES / 'router.sh'} 200")
    with undisturbed():
        assert added_ns(out, "box:router2") > added_ns(out, "router") > 0
    assert re.search(r"^routed = true$", (out / "plan.toml").read_text(), re.MULTILINE)


def test_streams_pass_a_routers_box_as_udp(tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = ["--quick", "--no-history", "--no-report", "--set", "sessions=1", "--set", "rounds=2"]
    short += ["--set", "payload_bytes=46", "--set", "interval=50us", "--set", "qualify=false"]
    rules, drops = tmp_path / "rules.nft", "".join(f"ip saddr 198.18.0.{n} drop\n" for n in range(10))
    rules.write_text(f"table inet filter {{\nchain forward {{\ntype filter hook forward priority 0\n{drops}}}\n}}\n")
    done = sojourn_here("run", "one-way", *short, "--device", f"{EXAMPLES / 'router.sh'} {rules}", "--out", out)
    assert done.returncode in (0, 4), done.stderr
    shown = json.loads((out / "bed.json").read_text())["objects"]["box:router"]["shown"]
    assert sum(text.count(" drop") for command, text in shown.items() if "nft list" in command) == 10
    rows = json.loads((out / "analysis/results.json").read_text())
    received = [row for row in rows if row["device"] == "box:router" and row["quantity"] == "one_way_delay"]
    assert received


@pytest.mark.may_skip
def test_open_vswitch_is_a_mode_and_an_example(run: str, tmp_path: Path) -> None:
    if shutil.which("ovs-vswitchd") is None:
        pytest.skip("Open vSwitch is not installed: apt-get install openvswitch-switch")
    spec = BedSpec(devices=("ovs", "box:ovs2"), boxes={"box:ovs2": BoxSpec(str(EXAMPLES / "ovs.sh"))})
    with build_bed(spec, run, tmp_path) as bed:
        assert not bed.topology.link("box:ovs2").is_routed
        assert "br0" in bed.objects()["ovs"]["shown"]["ip -d link show"]
    for log in ("ovs.log", "ovs2.log"):
        assert re.search(r"^the datapath is (system|netdev)", (tmp_path / log).read_text(), re.MULTILINE)
    assert of_run(run) == []


def guest_kernel() -> tuple[Path, Path] | None:
    """A kernel and its modules: this machine's, those of `make kernels`, or below the folder SOJOURN_GUEST."""
    for root in (Path(os.environ.get("SOJOURN_GUEST", "/")), PACKAGE.parent / "build/kernels/6.1/files"):
        for kernel in sorted(root.glob("boot/vmlinuz-*")):
            modules = root / "lib/modules" / kernel.name.removeprefix("vmlinuz-")
            if modules.is_dir() and os.access(kernel, os.R_OK):
                return kernel, modules
    return None


@pytest.mark.may_skip
def test_a_guest_that_bridges_is_a_box(run: str, tmp_path: Path) -> None:
    found = guest_kernel()
    if found is None or shutil.which("qemu-system-x86_64") is None or shutil.which("busybox") is None:
        pytest.skip("no QEMU, busybox or kernel here: make kernels, or name a folder with boot and lib: SOJOURN_GUEST")
    up = " ".join(map(str, (EXAMPLES / "guest.sh", *found)))
    with build_bed(spec_of(up, within_ns=120_000_000_000), run, tmp_path) as bed:
        link = bed.topology.link("box:x")
        assert not link.is_routed
        said = bed.backend.run("a", ["ping", "-c", "10", "-i", "0.1", "-W", "5", link.b_ip4])
    assert len(re.findall(r"icmp_seq=\d+ ttl=", said)) == 10
    assert "bridging" in (tmp_path / "x.log").read_text()
    assert of_run(run) == []


def test_mode_open_vswitch_names_the_missing_package(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = shutil.which
    monkeypatch.setattr(shutil, "which", lambda tool, path=None: None if "ovs" in tool else find(tool, path=path))
    with (
        pytest.raises(MachineError, match="apt-get install openvswitch-switch"),
        build_bed(BedSpec(devices=("ovs",)), run),
    ):
        pass


def test_a_tunnel_between_two_network_namespaces_is_measured(tmp_path: Path) -> None:
    """WireGuard where there is one, else VXLAN: the example says which."""
    out = measured(tmp_path, "--no-report", "--device", str(EXAMPLES / "wireguard.sh"))
    assert added_ns(out, "box:wireguard") > 0
    assert re.search(r"tunnel is (WireGuard|VXLAN)", (out / "boxes/wireguar.log").read_text())
