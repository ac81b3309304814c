"""The instrument by the name `ethtool` beside the real one, on interfaces of the kernel: what our scripts read of both
is the same, and what either sets the other one reads.

Both are asked by the scripts and read by the parsers that a bed uses. No interface here has ring sizes that may be
changed: those of this machine's own NIC are read alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sojourn.bed import facts, keeper, negotiated
from sojourn.bed.setting_scripts import FUNCTIONS, HERE
from sojourn.binary import find_instrument
from sojourn.plan.settings import SETTINGS
from tests.children import Child

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = shutil.which("ethtool", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and their settings need root"),
    pytest.mark.skipif(REAL is None, reason="ethtool is not there: scripts/setup.sh test"),
]
LINKS = """
ip link add name v1 type veth peer name v2
ip link set dev v1 up && ip link set dev v2 up
ip tuntap add dev t1 mode tap
ip link add name i1 type ifb
ip link add name b1 type bridge
echo up
exec cat
"""
DEVICES = ("v1", "t1", "i1", "b1", "lo")


class Namespace(NamedTuple):
    """A network namespace with some interfaces, and a folder for each of the two programs."""

    pid: int
    folders: dict[str, Path]

    def says(self, whose: str, script: str, *argv: str, text: str = "") -> str:
        """What a script prints where `ethtool` is ours, or the real one."""
        where = ["nsenter", f"--target={self.pid}", "--net", "--"] if self.pid else []
        path = f"PATH={self.folders[whose]}:/usr/bin:/bin"
        command = [*where, "env", path, "sh", "-c", script, "sh", *argv]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout

    def sets(self, whose: str, *argv: str) -> subprocess.CompletedProcess[str]:
        """What becomes of a command."""
        command = ["nsenter", f"--target={self.pid}", "--net", "--", str(self.folders[whose] / "ethtool"), *argv]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    assert REAL is not None
    made = {}
    for whose, program in (("ours", find_instrument()), ("real", REAL)):
        made[whose] = tmp_path_factory.mktemp(whose)
        (made[whose] / "ethtool").symlink_to(program)
        for tool in ("ip", "nsenter"):
            (made[whose] / tool).symlink_to(shutil.which(tool, path="/usr/bin:/bin:/usr/sbin:/sbin") or tool)
    return made


@pytest.fixture
def space(folders: dict[str, Path]) -> Iterator[Namespace]:
    with Child(
        ["unshare", "--net", "sh", "-c", LINKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "up\n"
        yield Namespace(one.pid, folders)


OF_THE_MACHINE = ("governor", "idle_latency")
"""No interface's: another test may hold them meanwhile."""


def everything(space: Namespace, whose: str, devices: tuple[str, ...]) -> dict[str, Any]:
    """What a bed reads of interfaces, by the scripts that it asks with."""
    lines = "".join(f"{dev}\n" for dev in devices)
    script = re.sub(r"^PATH=.*$", "", negotiated._ASK, flags=re.MULTILINE)
    asked = re.split(r"^= (?!=)", space.says(whose, script, text=lines), flags=re.MULTILINE)[1:]
    speeds = [re.findall(r"^\s*((?:Speed|Duplex|EEE status): .*)$", words, re.MULTILINE) for words in asked]
    own = [name for name in SETTINGS if name not in OF_THE_MACHINE]
    values = f"""{FUNCTIONS}{HERE}
for dev; do for name in {" ".join(own)}; do echo "$dev $name $(value_of "$name" "$dev")"; done; done"""
    return {
        "facts": facts._drivers(space.says(whose, facts._ETHTOOL, text=lines)),
        "told": [negotiated.judge_port(words) for words in asked],
        "speeds": [[line for line in some if not line.startswith("EEE status: not")] for some in speeds],
        "settings": space.says(whose, values, *devices).splitlines(),
        "kept": {dev: kept_features(space, whose, dev) for dev in devices},
    }


def kept_features(space: Namespace, whose: str, dev: str) -> str:
    """What a keeper writes down of an interface's features, by its own line."""
    first = keeper.TAKE.index('ethtool -k "$old"')
    return space.says(whose, f"old={dev}; {keeper.TAKE[first : keeper.TAKE.index(' >', keeper.TAKE.index('/gso/p'))]}")


def test_built_in_ethtool_reads_the_same_as_the_real_one_in_a_bed(space: Namespace) -> None:
    ours, real = (everything(space, whose, DEVICES) for whose in ("ours", "real"))
    assert ours == real
    veth = ours["facts"]["v1"]
    assert veth["driver"] == "veth"
    assert veth["offloads"]["generic-segmentation-offload"] == "on"
    assert ours["speeds"][0] == ["Speed: 10000Mb/s", "Duplex: Full"]
    assert any(line.startswith("t1 rx_frames ") and line.split()[2:] for line in ours["settings"]), ours["settings"]
    assert "tx-checksum-ip-generic: on\n" in ours["kept"]["v1"]
    assert "gro: " in ours["kept"]["v1"]


def test_built_in_ethtool_reads_the_same_at_ports_of_this_machine(folders: dict[str, Path]) -> None:
    here = Namespace(0, folders)
    devices = tuple(sorted(path.name for path in Path("/sys/class/net").iterdir() if path.is_symlink()))
    assert everything(here, "ours", devices) == everything(here, "real", devices)


OFF = ("tx", "off", "gro", "off", "gso", "off", "tso", "off")


@pytest.mark.parametrize(("sets", "reads"), [("ours", "real"), ("real", "ours")])
def test_built_in_and_real_ethtool_read_and_restore_each_others_settings(
    sets: str, reads: str, space: Namespace
) -> None:
    space.sets("real", "-K", "v1", "gro", "on")
    space.sets("real", "-K", "v1", "tx-tcp6-segmentation", "off")
    before, kept = everything(space, reads, ("v1",)), kept_features(space, sets, "v1")
    assert "\ttx-tcp6-segmentation: off\n" in space.says(reads, 'ethtool -k "$@"', "v1")
    assert space.sets(sets, "-K", "v1", *OFF).returncode == 0
    offloads = everything(space, reads, ("v1",))["facts"]["v1"]["offloads"]
    for name in ("generic-receive-offload", "generic-segmentation-offload", "tcp-segmentation-offload"):
        assert offloads[name] == "off"
    assert offloads["tx-checksumming"] == offloads["tx-checksum-ip-generic"] == "off"
    give_back = keeper.KEEPER[keeper.KEEPER.index("        set --\n") : keeper.KEEPER.index('        [ "$up" != up ]')]
    file = space.folders[sets] / "features.v1"
    file.write_text(kept)
    space.says(sets, f"state=${{1%/*}} old=v1\n{give_back}", str(file))
    assert everything(space, reads, ("v1",)) == before


@pytest.mark.parametrize(("sets", "reads"), [("ours", "real"), ("real", "ours")])
def test_built_in_ethtool_sets_coalescing(sets: str, reads: str, space: Namespace) -> None:
    assert space.sets(sets, "-C", "t1", "rx-frames", "17").returncode == 0
    assert "t1 rx_frames 17" in everything(space, reads, ("t1",))["settings"]


def refused_by_both(space: Namespace, *argv: str) -> str:
    real, ours = space.sets("real", *argv), space.sets("ours", *argv)
    assert real.returncode != 0
    assert ours.returncode != 0
    return f"{ours.returncode} {ours.stderr.strip()}"


def test_missing_interfaces_and_invalid_values_are_refused_in_one_sentence(space: Namespace) -> None:
    program = "sojourn-instrument"
    assert refused_by_both(space, "-k", "nothing").startswith(f"3 {program}: no device matches name")
    assert refused_by_both(space, "-c", "b1").startswith(f"3 {program}: Operation not supported")
    assert refused_by_both(space, "-C", "t1", "rx-frames", "many") == (
        f"2 {program}: rx-frames is a number below 2^32, and not many"
    )
    assert refused_by_both(space, "-K", "v1", "warp", "on") == f"2 {program}: this kernel has no feature warp"
    assert refused_by_both(space, "-G", "v1", "rx", "8").startswith(f"3 {program}: Operation not supported")
    nobody = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", "--"]
    command = ["nsenter", f"--target={space.pid}", "--net", "--", *nobody]
    asked = [find_instrument(), "ethtool", "-K", "v1", "gro", "on"]
    done = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "not permitted" in done.stderr) == (3, True), done.stderr
