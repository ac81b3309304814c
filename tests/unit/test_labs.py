"""The laboratory's words, and how its command line is divided; over real frames: tests/net/test_lab.py."""

from __future__ import annotations

import os
import shutil
import typing
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import BedSpec, Topology
from sojourn.binary import find_instrument
from sojourn.cli.emulate import verify
from sojourn.cli.lab import read
from sojourn.cli.lab_shells import banner, tmux_argv, usable_tmux
from sojourn.cli.lab_show import in_force, shown
from sojourn.errors import RequestError
from sojourn.instruments.emulator import explain
from sojourn.labs.emulation import Emulation
from sojourn.labs.end import End
from sojourn.labs.pipe import Pipe, words_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("pipe", "words"),
    [
        ({}, ""),
        ({"delay": "20ms", "loss": 0.07}, "delay 20ms loss 7%"),
        ({"loss": ["1%", "syn 1"], "loss_after": 0}, "loss 1% loss syn 1 loss-after 0%"),
        ({"half_life": "5ms", "jitter": "1ms", "ber": 1e-6}, "half-life 5ms jitter 1ms ber 1e-06"),
        ({"queue": 50, "overhead": 24, "reorder": "1% by 5ms"}, "queue 50 overhead 24 reorder 1% by 5ms"),
    ],
)
def test_keywords_become_configuration_strings(pipe: dict[str, object], words: str) -> None:
    assert words_of(pipe) == words
    if "half_life" not in pipe:
        explain(find_instrument(), [f"--forward=rate 1Mbit/s delay 1s {words}"])


def test_configuration_string_together_with_keywords_is_refused() -> None:
    with pytest.raises(RequestError, match=r"words and keywords \(loss\) at once"):
        Emulation(typing.cast("Any", None)).set("delay 20ms", loss=0.01)


def test_keyword_probability_above_one_is_refused() -> None:
    with pytest.raises(RequestError, match=r'loss = 5: expected a share from 0 to 1, or a percentage as text: "5%"'):
        words_of({"loss": 5})
    with pytest.raises(RequestError, match=r"dely: expected one of delay, .* \(did you mean delay\?\)"):
        words_of({"dely": "1ms"})


def test_the_keywords_are_the_options_of_a_pipe() -> None:
    """As `emulate verify` has them, which a test compares with the instrument's; and `mask`, which verify has not."""
    options = {name for name in typing.get_type_hints(verify) if name in typing.get_type_hints(Pipe)}
    assert set(Pipe.__annotations__) - options == {"mask"}
    for name in Pipe.__annotations__:
        with pytest.raises(RequestError, match=r"^(?!unexpected argument)"):
            explain(find_instrument(), [f"--{name.replace('_', '-')}=?"])


def test_arguments_after_the_double_dash_are_the_command() -> None:
    asked = read(["--delay", "1ms", "-C", "a.toml", "--peer=iperf3 -s", "--spin", "--", "sh", "-c", "a -- b", "--peer"])
    assert asked.command == ["sh", "-c", "a -- b", "--peer"]
    assert asked.pipe == ["--delay=1ms", "-Ca.toml"]
    assert read(["-Ca.toml", "--loss", "-1%"]).pipe == ["-Ca.toml", "--loss=-1%"]
    assert (asked.peer, asked.mtu, asked.own) == ("iperf3 -s", 1500, {"--peer": "iperf3 -s", "--spin": "yes"})


def test_lab_shows_what_it_builds_with_the_stages_of_each_pipe(tmp_path: Path) -> None:
    """As `lab --show` prints it; the interfaces are those of a bed."""
    instrument = find_instrument()
    both = explain(instrument, ["--loss=1%", "--rate=20Mbit/s", "--queue=100", "--delay=20ms"])
    assert in_force(both, 7) == "in each direction: loss 1% rate 20Mbit/s delay 20ms queue 100; seed 7"
    told = shown(both, mtu=1400, seed=7, command=["ping", "-c", "1", "a b"], peer=None)
    forward = told.partition("pipe forward (near to far)")[2].partition("pipe backward")[0]
    assert [line.split()[0] for line in forward.splitlines()[1:]] == ["impairments", "queue", "link", "delay"]
    assert "runs ping -c 1 'a b'" in told
    assert "MTU 1400" in told
    for port in ("a-emulate", "d-emulate-1l", "d-emulate-1r", "b-emulate"):
        assert port in told
    idle = explain(instrument, [])
    assert in_force(idle, 1) == "nothing happens to packets; seed 1"
    config = tmp_path / "paths.toml"
    config.write_text('[[pipe]]\nname = "slow"\ndelay = "7ms"\n[[rule]]\ndirection = "forward"\npipe = "slow"\n')
    of_file = explain(instrument, [f"--config={config}"])
    assert in_force(of_file, 1) == "slow: delay 7ms; seed 1"
    assert "  100 pipe slow: forward" in shown(of_file, mtu=1500, seed=1, command=[], peer=None)
    pipes = '[[pipe]]\nname = "forward"\ndelay = "7ms"\n[[pipe]]\nname = "backward"\n'
    config.write_text(f'{pipes}[[rule]]\nprotocol = "tcp"\npipe = "forward"\n[[rule]]\npipe = "backward"\n')
    of_names = explain(instrument, [f"--config={config}"])
    assert in_force(of_names, 1) == "forward: delay 7ms; backward: nothing happens to packets; seed 1"
    assert "near to far" not in shown(of_names, mtu=1500, seed=1, command=[], peer=None)


class Kept:
    """Of a backend, the way into a host."""

    def entrance(self, host: str) -> list[str]:
        return ["nsenter", f"--target={host}", "--net", "--"]


def test_under_sudo_shells_belong_to_the_calling_user_and_tmux_is_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """tmux would be root's, since it enters both ends: a root shell for whoever may run `lab` alone by sudo."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
    kept: Any = Kept()
    near = End("near", "a", "a0", "1.1", "1::1", "1.2", "1::2", kept)
    far = End("far", "b", "b0", "1.2", "1::2", "1.1", "1::1", kept)
    assert usable_tmux() == "/bin/tmux"
    assert "terminal: nsenter --target=b --net -- env SOJOURN_ADDRESS=1.2 " in banner(near, far)
    argv = tmux_argv(["/bin/tmux"], near, far)
    assert [one.split()[1] for one in argv if one.startswith("nsenter")] == ["--target=a", "--target=b", "--target=a"]
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    assert usable_tmux() is None
    told = banner(near, far)
    assert "terminal: sudo nsenter --target=b --net -- setpriv --reuid 65534 --regid 65534 --groups 65534 " in told
    assert "SOJOURN_PEER=1.1" in told


def test_bed_without_a_direct_link_has_only_the_device() -> None:
    topology = Topology.of_spec(BedSpec(devices=("emulate",), has_direct=False))
    assert list(topology.paths) == ["emulate"]
    assert topology.link("emulate").b_ip4 == "10.77.1.2"
