"""A stranger attacks the probes of a study of pairs: its figure stays as it is, nothing is believed.

The attacker is on both hosts of each bed, on every path, and knows addresses and the responder's port; it sends again
the requests and replies that it recorded of earlier blocks over the same path. Studies with and without it are measured
one after the other, and the difference of their figures is held to both intervals. As fast as the attacker can, it
takes the processors that are measured: then what is counted is judged.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sojourn.analysis import analyse
from sojourn.bed.clean import marked_processes
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan
from sojourn.records import RunFolder, read_table
from sojourn.records.log import read_log
from tests.net.attacked import Figure, Told, attacker, is_ours
from tests.net.busy_machine import thrice, undisturbed
from tests.net.test_attack import recorded_at

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name"),
]

EARLY_SECONDS = 1.0
"""By when both attackers of a bed have begun."""

PAUSE_SECONDS = 0.1
"""Between some 900 frames of each path and direction: losses and times are judged."""
SETS = (
    'probe.probe=["udp/ping-pong"]', "probe.payload_bytes=[64]", 'probe.interval=["250us"]',
    "pairs.rounds=240", "bed.sessions=6",
)  # fmt: skip
SHORTER = (
    "pairs.rounds=8", "bed.sessions=1", "pairs.probes_per_block=500", 'probe.timeout="20ms"', 'bed.devices=["bridge"]',
    "bed.twins=false", "pairs.a_a=false",
)  # fmt: skip
"""Where no figure is judged: few blocks, for who conducts has little of the processors, and each of an eighth of a
second.
"""


class Ends(NamedTuple):
    """The processes of a bed that ask and answer, and the port at which it is answered."""

    asks: str
    answers: str
    port: int


class Measured(NamedTuple):
    """What a study came to: the headline, and the counts of its probes."""

    figure: Figure
    sent: int
    lost: int
    duplicated: int
    unexpected: int


COUNTS = ("sent", "lost", "duplicated", "unexpected")


@thrice
def test_attack_does_not_change_a_study_of_pairs(tmp_path: Path) -> None:
    attacked: list[Told] = []
    quiet = measured(tmp_path / "quiet")
    with attacks(attacked):
        under = measured(tmp_path / "attacked")
    again = measured(tmp_path / "again")
    print(f"quiet {quiet}, {again}; attacked {under}: {attacked}")
    assert quiet.unexpected == again.unexpected == 0
    assert sum(sum(one.values()) for one in attacked) > 10_000, attacked
    assert under.unexpected > 0, "what reached who asks was counted apart"
    assert under.duplicated == 0, "no forged reply was believed: it would have come beside the true one"
    assert replayed_in(attacked) > 1000, "requests and replies of earlier blocks were sent again"
    with undisturbed():
        assert len(attacked) >= 2 * 6, "each bed was attacked at both ends"
        assert under.lost <= 0.01 * under.sent, under
        assert under.figure.agrees(quiet.figure, again.figure), (quiet, again, under)


@pytest.mark.alone
def test_an_attack_at_the_highest_rate_changes_no_count_of_a_study_of_pairs(tmp_path: Path) -> None:
    attacked: list[Told] = []
    with attacks(attacked, 0):
        run = run_of(tmp_path / "attacked", *SHORTER)
    counts, blocks, probes = (
        counts_of(run),
        read_table(run.records, "blocks").frame,
        read_table(run.records, "probes").frame,
    )
    print(f"{counts}; attacked {attacked}")
    assert sum(sum(one.values()) for one in attacked) > 100_000, attacked
    assert replayed_in(attacked) > 0, "requests and replies of earlier blocks were sent again"
    assert counts["unexpected"] > 100, "what reached who asks was counted apart"
    assert counts["duplicated"] == 0, "no forged reply was believed: it would have come beside the true one"
    assert ((blocks["sent"] == blocks["count"]) | (blocks["local_drops"] > 0)).all(), blocks
    assert len(probes) == counts["sent"], "each probe is a row"
    assert (probes["replies"] > 0).sum() == blocks["received"].sum() == counts["sent"] - counts["lost"], counts
    assert counts["lost"] < counts["sent"], "answers came in spite of it"


def replayed_in(attacked: list[Told]) -> int:
    """How many frames of earlier blocks were sent again."""
    return sum(one.get("replayed", 0) for one in attacked)


def run_of(folder: Path, *sets: str) -> RunFolder:
    """The study, measured to its end."""
    plan = load_plan("bridge-latency", quick=True, sets=(*SETS, *sets))
    run = create_folder(plan, folder)
    conduct(plan, run, Screen(io.StringIO()))
    assert read_log(run.log)[-1]["event"] == "finished", "nothing ended"
    return run


def counts_of(run: RunFolder) -> dict[str, int]:
    """The counts of all blocks together."""
    blocks = read_table(run.records, "blocks").frame
    return {name: int(blocks[name].sum()) for name in COUNTS}


def measured(folder: Path) -> Measured:
    """The study, from its plan to its figure."""
    run = run_of(folder)
    found = analyse(run.path).tidy()["pairs"]
    return Measured(Figure(found["estimate"], found["ci_low"], found["ci_high"]), **counts_of(run))


@contextmanager
def attacks(sent: list[Told], pause_seconds: float = PAUSE_SECONDS) -> Iterator[None]:
    """Attacks each bed of a study from within both hosts, for as long as it stands."""
    over = threading.Event()

    def run_attacks() -> None:
        while not over.is_set():
            beds = asking()
            with suppress(AssertionError, OSError, ValueError), ExitStack() as attackers:
                for one in beds:
                    for near, far, port in (
                        (one.asks, one.answers, one.port),
                        (one.answers, one.asks, port_of(one.asks)),
                    ):
                        asked = requests(near, far, port, one.port, pause_seconds)
                        enter = ["nsenter", "-t", near, "-n"]
                        if asked:
                            sent.append(attackers.enter_context(attacker(enter, asked)))
                while not over.is_set() and beds == asking():
                    time.sleep(0.05)
            time.sleep(0.02)

    thread = threading.Thread(target=run_attacks)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def asking() -> list[Ends]:
    """The processes of each bed of a study that ask and answer, where both are there."""
    found: dict[str, dict[str, tuple[str, list[str]]]] = {}
    for process, mark in marked_processes():
        with suppress(OSError):
            words = Path("/proc", str(process.pid), "cmdline").read_text(encoding="ascii").split("\0")
            if words[1:2] == ["probe"] and is_ours(mark.controller.pid):
                found.setdefault(str(mark), {})[words[2]] = (str(process.pid), words)
    ends = []
    for one in found.values():
        if {"blocks", "respond"} <= one.keys():
            answers, words = one["respond"]
            ends.append(Ends(one["blocks"][0], answers, int(words[words.index("--udp") + 1])))
    return sorted(ends)


def requests(near: str, far: str, port: int, from_port: int, pause_seconds: float) -> list[Told]:
    """What an attacker at the host of a process is asked for: each path to the host of another one."""
    common = {"kind": "probe", "carrier": "udp", "port": port, "from_port": from_port, "recorded": None}
    paths = zip(links(near), links(far), strict=False)
    return [
        {
            **common, "pause_seconds": pause_seconds, "dev": own["ifname"], "mac": other["address"],
            "to": address(other), "from": address(own),
            "record": recorded_at(far, other, own) | {"early_seconds": EARLY_SECONDS},
        }
        for own, other in paths
    ]  # fmt: skip


def links(process: str) -> list[Told]:
    """The links of a process's host that carry frames and have an address."""
    words = ["nsenter", "-t", process, "-n", "ip", "-j", "address", "show", "up"]
    shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=False).stdout or "[]")
    return [link for link in shown if link.get("ifname", "lo") != "lo"]


def address(link: Told) -> str:
    return next(str(one["local"]) for one in link["addr_info"] if one["family"] == "inet")


def port_of(process: str) -> int:
    """The UDP port that a process talks from now; it may have another one for its next block."""
    words = ["nsenter", "-t", process, "-n", "ss", "-Hunap"]
    shown = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    ports = [int(line.split()[3].rsplit(":", 1)[1]) for line in shown.splitlines() if f"pid={process}," in line]
    return ports[0] if ports else 40_000
