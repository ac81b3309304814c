"""Clocks over real frames: an injected offset and skew are recovered within the stated error, a shared clock is known.

The responder is in a network namespace of the tests' own, at the far end of a veth pair. It stamps with a clock that it
pretends; what it pretends is the truth.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.instruments import find_instrument
from tests.children import Child
from tests.net.busy_machine import thrice, undisturbed
from tests.unit.printed_json import printed, printed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEAR, FAR = (f"sojourn-clk-{side}-{os.getpid()}" for side in "ab")
PEER = "10.98.1.2"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

SET_UP = f"""
ip netns add {NEAR} && ip netns add {FAR}
ip link add near0 netns {NEAR} type veth peer name far0 netns {FAR}
ip -n {NEAR} addr add 10.98.1.1/24 dev near0 && ip -n {FAR} addr add {PEER}/24 dev far0
for of in "{NEAR} near0" "{FAR} far0"; do set -- $of; ip -n $1 link set lo up; ip -n $1 link set $2 up; done
"""


@pytest.fixture(scope="module")
def link() -> Iterator[None]:
    try:
        subprocess.run(["sh", "-e", "-c", SET_UP], check=True)
        yield
    finally:
        for netns in (NEAR, FAR):
            subprocess.run(["ip", "netns", "del", netns], check=False)


def inside(netns: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", netns, find_instrument(), *words]


@contextmanager
def responder(*words: str) -> Iterator[Any]:
    """A responder at the far end, and what it said when it was ready."""
    argv = inside(FAR, "probe", "respond", "--json", "--until-eof", *words)
    with Child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield printed("probe-respond", process.stdout.readline())
        assert printed_lines("probe-respond", process.communicate()[0]), "counts at the end of its input"


def watch(*words: str) -> list[Any]:
    done = subprocess.run(inside(NEAR, "clock", PEER, "--json", *words), capture_output=True, text=True, check=True)
    return printed_lines("clock", done.stdout)


def pretended_offset(pretended: dict[str, Any], ours_ns: int) -> float:
    return float(pretended["offset_ns"] + (ours_ns - pretended["since_ns"]) * pretended["skew_ppm"] * 1e-6)


@pytest.mark.usefixtures("link")
@pytest.mark.parametrize(
    ("offset_ns", "skew_ppm"),
    [pytest.param(0, 0.0, marks=pytest.mark.proof), (1_500_000_000, 50.0), (-3_000_000_000, -50.0)],
)
@thrice
def test_injected_clock_offset_and_skew_are_recovered(offset_ns: int, skew_ppm: float) -> None:
    with responder(f"--pretend-clock={offset_ns},{skew_ppm}") as ready:
        assert ready["findings"][0]["finding"] == "pretended_clock"
        (peer,) = watch("--for", "3s", "--interval", "1ms")[-1]["peers"]
    assert not peer["shared"]
    assert peer["exchanges"] + peer["lost"] == 3000
    now = peer["now"]
    wrong_by = abs(now["offset_ns"] - pretended_offset(ready["pretended_clock"], now["at_ns"]))
    assert wrong_by <= now["bound_ns"]
    line = peer["lines"][0]
    assert abs(line["skew_ppb"] - skew_ppm * 1e3) <= line["skew_bound_ppb"]
    with undisturbed():
        # Both ends stamp alike, but their programs' ways from stamp to wire differ: by 0.7 to 1 us, to one side.
        assert wrong_by <= now["error95_ns"] + 2_000, now
        assert abs(now["skew_ppm"] - skew_ppm) < 5, now


@pytest.mark.usefixtures("link")
def test_two_ends_on_one_kernel_share_one_clock() -> None:
    with responder() as ready:
        events = watch("--count", "50", "--interval", "5ms")
    (peer,) = events[-1]["peers"]
    assert ready["clock"] == events[0]["local"]["clock"] != 0
    assert peer["shared"]
    assert peer["now"]["offset_ns"] == peer["now"]["bound_ns"] == 0


@pytest.mark.usefixtures("link")
def test_records_hold_the_exchanges_and_the_lines(tmp_path: Path) -> None:
    import polars as pl

    with responder("--pretend-clock=700000,10"):
        (peer,) = watch("--count", "300", "--interval", "2ms", "--record", str(tmp_path))[-1]["peers"]
    exchanges = pl.read_ipc_stream(tmp_path / "exchanges-clock-000.arrow")
    numbers = exchanges["number"].to_list()
    assert len(numbers) == peer["exchanges"] == 300 - peer["lost"]
    assert numbers == sorted(set(numbers) & set(range(300)))
    assert (exchanges["t2_ns"] - exchanges["t1_ns"]).min() >= 700_000  # type: ignore[operator]
    lines = pl.read_ipc_stream(tmp_path / "clock_lines-clock-000.arrow")
    assert lines["offset_ns"].to_list() == [line["offset_ns"] for line in peer["lines"]]


@pytest.mark.usefixtures("link")
def test_exchanges_are_authenticated_by_a_shared_key(tmp_path: Path) -> None:
    for name in ("ours", "other"):
        (tmp_path / name).write_text(name * 8)
        (tmp_path / name).chmod(0o600)
    ours = f"--key={tmp_path / 'ours'}"
    with responder(ours, "--pretend-clock=700000,10") as ready:
        assert ready["authenticated"]
        (peer,) = watch("--count", "100", "--interval", "2ms", ours)[-1]["peers"]
        refused = [
            subprocess.run(inside(NEAR, "clock", PEER, *words), capture_output=True, text=True, check=False)
            for words in ([], [f"--key={tmp_path / 'other'}"])
        ]
    assert peer["exchanges"] + peer["lost"] == 100
    assert peer["exchanges"] > 50
    assert abs(peer["now"]["offset_ns"] - 700_000) <= peer["now"]["bound_ns"] + 10_000
    assert [done.returncode for done in refused] == [4, 4]
    assert all("the same key or none" in done.stderr for done in refused)
    with responder():
        done = subprocess.run(inside(NEAR, "clock", PEER, ours), capture_output=True, text=True, check=False)
    assert done.returncode == 4


@pytest.mark.usefixtures("link")
def test_silent_peer_is_reported_in_one_sentence() -> None:
    for peer, status in ((PEER, 4), ("192.0.2.1", 3)):
        done = subprocess.run(inside(NEAR, "clock", peer), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr


@pytest.mark.usefixtures("link")
def test_interrupt_ends_the_clock_measurement_with_a_summary() -> None:
    with responder():
        argv = inside(NEAR, "clock", PEER, "--until-interrupted", "--json")
        with Child(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            while (line := process.stdout.readline()) and printed("clock", line)["event"] != "update":
                pass
            process.terminate()
            told, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert printed_lines("clock", told)[-1]["event"] == "summary"
