"""Clocks of streams over real frames, where the truth is known: both ends read one clock and do not know it.

The receiver sees another kernel's mark (a file is mounted over its boot identifier), so exchanges estimate the offset
of its clock, and the truth is 0. A path of veths is judged as it is, through a bridge, and through the tests' relay,
which holds the frames of exchanges in one direction only: no exchange can see that, so the maximum error must hold it.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.instruments import find_instrument
from tests.children import Child
from tests.net.busy_machine import thrice, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
RELAY = ROOT / "target/debug/sojourn-test-relay"
NAME = f"sojourn-clocks-{os.getpid()}"
PATIENCE_SECONDS = 60
MAC_A, MAC_B = "02:77:00:00:07:01", "02:77:00:00:07:02"
OTHER_BOOT = "deadbeef-0000-4000-8000-000000000001\n"
HELD_NS = 40_000
FEW = 3

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

Told = dict[str, Any]


def inside(host: str, *argv: str) -> list[str]:
    """A command as it runs on one of the hosts."""
    return ["ip", "netns", "exec", f"{NAME}-{host}", *argv]


def run(*argv: str) -> None:
    """A command that must not fail."""
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    """Hosts `a` and `b`, and `d` between them: `a0` and `b0` end in `d`, `a1` and `b1` are one pair."""
    for host in "abd":
        run("ip", "netns", "add", f"{NAME}-{host}")
    try:
        for host, mac in (("a", MAC_A), ("b", MAC_B)):
            run("ip", "link", "add", f"d{host}", "netns", f"{NAME}-d", "type", "veth", "peer", "name", f"{host}0",
                "netns", f"{NAME}-{host}")  # fmt: skip
            run(*inside("d", "ip", "link", "set", f"d{host}", "up"))
            run(*inside(host, "ip", "link", "set", f"{host}0", "address", mac, "up"))
        run("ip", "link", "add", "a1", "netns", f"{NAME}-a", "type", "veth", "peer", "name", "b1", "netns", f"{NAME}-b")
        for number, (host, mac) in enumerate((("a", MAC_A), ("b", MAC_B)), start=1):
            run(*inside(host, "ip", "link", "set", "lo", "up"))
            run(*inside(host, "ip", "link", "set", f"{host}1", "address", mac, "up"))
            run(*inside(host, "ip", "address", "add", f"10.79.7.{number}/24", "dev", f"{host}1"))
        yield
    finally:
        for host in "abd":
            run("ip", "netns", "del", f"{NAME}-{host}")


@contextmanager
def bridge() -> Iterator[None]:
    """A bridge that joins `a0` and `b0`."""
    run(*inside("d", "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"))
    try:
        for dev in ("da", "db"):
            run(*inside("d", "ip", "link", "set", dev, "master", "br0"))
        run(*inside("d", "ip", "link", "set", "br0", "up"))
        yield
    finally:
        run(*inside("d", "ip", "link", "del", "br0"))


@contextmanager
def relay(log: Path, forward_ns: int, backward_ns: int) -> Iterator[None]:
    """The relay between `a0` and `b0`; it holds frames of exchanges to `b` and to `a` for so long."""
    argv = inside("d", str(RELAY), "--log", str(log), "--exchanges-only", f"--path=da,db,{forward_ns},{backward_ns}")
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"
        try:
            yield
        finally:
            process.stdin.close()
            process.wait(10)


def exchanged(there: tuple[str, ...], here: tuple[str, ...], folder: Path) -> tuple[Told, pl.DataFrame]:
    """What a sender learns of the receiver's clock during a stream, and its exchanges."""
    folder.mkdir(parents=True)
    boot = folder / "boot_id"
    boot.write_text(OTHER_BOOT)
    mount = f'mount --bind {boot} /proc/sys/kernel/random/boot_id; exec "$@"'
    listen = inside("b", "sh", "-ec", mount, "sh", find_instrument(), "stream", "recv", *here, "--json")
    with Child(listen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as receiver:
        assert receiver.stderr is not None
        said = receiver.stderr.readline()
        assert said.startswith("receiving"), said
        words = ["--rate", "2kpps", "--count", "3000", "--json", "--record", str(folder)]
        argv = inside("a", find_instrument(), "stream", "send", *there, *words)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        receiver.communicate(timeout=PATIENCE_SECONDS)
    assert done.returncode in {0, 4}, done.stderr
    (clock,) = json.loads(done.stdout)["clock"]
    assert not clock["shared"]
    return clock, pl.read_ipc_stream(folder / "exchanges-a-000.arrow")


def found(clock: Told) -> set[str]:
    return {finding["finding"] for finding in clock["findings"]}


def bias_ns(exchanges: pl.DataFrame) -> float:
    """By how much the shortest ways there and back make the receiver's clock seem ahead."""
    there, back = exchanges["t2_ns"] - exchanges["t1_ns"], exchanges["t4_ns"] - exchanges["t3_ns"]
    return (int(there.min()) - int(back.min())) / 2  # type: ignore[arg-type]


def assert_holds_the_truth(clock: Told) -> None:
    """The maximum error always holds offset 0."""
    for line in clock["lines"]:
        assert abs(line["offset_ns"]) <= line["bound_ns"], line


WAYS = {
    "veth": (("--dev", "a1", "--to", MAC_B), ("--dev", "b1")),
    "veth, UDP": (("--udp", "10.79.7.2"), ("--udp",)),
    "bridge": (("--dev", "a0", "--to", MAC_B), ("--dev", "b0")),
}


@pytest.mark.parametrize(
    ("way", "runs"),
    [("veth, UDP", FEW), ("bridge", FEW), *(pytest.param(way, 12, marks=pytest.mark.proof) for way in WAYS)],
)
@thrice
def test_error_of_95_percent_holds_on_real_frames(way: str, runs: int, tmp_path: Path) -> None:
    there, here = WAYS[way]
    told = []
    for number in range(runs):
        with bridge():
            clock, exchanges = exchanged(there, here, tmp_path / str(number))
        assert_holds_the_truth(clock)
        stamps = exchanges.select("local_source", "remote_source").cast(pl.String)
        stamped = (stamps["local_source"] == "kernel") & (stamps["remote_source"] == "kernel")
        assert stamped.mean() > 0.5, "most exchanges have stamps by the drivers at both ends"  # type: ignore[operator]
        told.append((clock, exchanges))
    with undisturbed():
        # What is found doubtful, since a direction is loaded, claims nothing.
        sound = [(clock, exchanges) for clock, exchanges in told if not found(clock)]
        held = [abs(line["offset_ns"]) <= line["error95_ns"] for clock, _ in sound for line in clock["lines"]]
        lines = [(round(line["offset_ns"]), round(line["error95_ns"])) for clock, _ in sound for line in clock["lines"]]
        print(way, lines)
        # Of 9 independent lines at 95 % fewer than 7 are held once in 120 times, of 36 fewer than 30 once in 500.
        assert sum(held) >= (0.83 if runs > FEW else 0.75) * len(held), lines
        # With the replier's call in place of its driver's stamp this was -450 to -650 ns, over UDP -1200 to -1500.
        assert max(abs(bias_ns(exchanges)) for _, exchanges in told) < 250
        assert len(sound) >= (runs - runs // 6 if runs > FEW else 1), [clock["findings"] for clock, _ in told]


@pytest.mark.usefixtures("relay_binary")
@pytest.mark.parametrize("holds", [(HELD_NS, 0), (0, HELD_NS)], ids=["there", "back"])
def test_undetectable_path_asymmetry_is_within_the_maximum_error(holds: tuple[int, int], tmp_path: Path) -> None:
    there, here = WAYS["bridge"]
    with relay(tmp_path / "relay.csv", *holds):
        clock, exchanges = exchanged(there, here, tmp_path / "records")
    assert abs(bias_ns(exchanges)) >= HELD_NS / 4, "the relay held one direction"
    assert_holds_the_truth(clock)
