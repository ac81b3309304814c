"""What a machine or a program of ours says in another form is refused in one sentence; a missing fact is null."""

from __future__ import annotations

import io
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from sojourn.bed import doctor, held, host_bridge, host_commands, machine, port_uses
from sojourn.cli import tcplog_top
from sojourn.conduct import until
from sojourn.devices import bridge_netfilter
from sojourn.errors import MachineError, RequestError
from sojourn.instruments import emulator, matching
from sojourn.labs import end
from sojourn.report.clocks import Clocks
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("said", ["no JSON", "[" * 100_000, "7", "[7]", '[{"ifindex": 1}]', '{"a": 1}'])
def test_what_ip_says_in_another_form_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_commands, "run", lambda *_: said)
    with pytest.raises(MachineError, match="does not answer as iproute2 does"):
        port_uses.links_here()


def test_an_interface_without_counters_of_its_own_is_refused() -> None:
    with pytest.raises(MachineError, match="does not answer as iproute2 does"):
        host_bridge._port_now("hub", "n1", {"n1": {"master": "hub", "stats64": "none"}}, {})


def test_a_command_that_prints_no_utf_8_is_read() -> None:
    assert host_commands.run(["printf", r"\377"]) == "\ufffd"


@pytest.mark.parametrize(
    "said", ["Error: not supported", "[]", "{}", '{"nftables": [7]}', '{"nftables": [{"table": 1}]}']
)
def test_what_nft_says_in_another_form_is_refused(said: str) -> None:
    with pytest.raises(MachineError, match="does not answer as nftables does"):
        bridge_netfilter.notes(lambda _: said, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("table", ["head\n a b", "head\n 0: 0100007F:-1 0:0 0A", "head\n 0: zz 0:0 0A"])
def test_sockets_in_another_form_are_refused(table: str) -> None:
    with pytest.raises(MachineError, match="does not answer as Linux does"):
        list(end._ports_in(table, "0A"))


@pytest.mark.parametrize(
    "text", ["", "odd", "cpu x y", "a:b kB", "a: 99999999999999999999999 kB", "-0", "\u00b2", "zz"]
)
def test_facts_of_an_odd_machine_are_missing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read", lambda _: text)
    assert (machine.online(), machine.cpu_ticks(), machine._memory(), machine._uptime_s()) == ([0], {}, {}, None)
    assert (machine.softnet_dropped(), machine._sums(""), machine._number(machine.DMA_LATENCY)) == (0, {}, None)


def test_files_of_the_kernel_that_are_no_utf_8_are_read(tmp_path: Path) -> None:
    (tmp_path / "cmdline").write_bytes(b"isolcpus=1 name=\xff\n")
    assert machine._words(str(tmp_path / "cmdline"))[0] == "isolcpus=1"


@pytest.mark.parametrize("checks", [7, "a", [7], [{"fix": 7}], {"a": 1}])
def test_an_examination_in_another_form_is_shown(checks: Any) -> None:
    made = list(doctor._instrument({"checks": checks}))
    assert all(one.fix is None or isinstance(one.fix, str) for one in made)


@pytest.mark.parametrize("found", [{"/a\0b": "1"}, {"/dev/null": "\u20ac"}])
def test_a_journal_with_a_path_or_a_value_that_no_file_takes_is_kept(found: dict[str, str]) -> None:
    assert len(held._give_back(found)) == 1


@pytest.mark.parametrize("said", ["", "[]", "no JSON", "[" * 100_000])
def test_what_our_instrument_says_in_another_form_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 0, said, "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    monkeypatch.setattr(matching, "_run", lambda *_: done)
    reads: tuple[Callable[[], object], ...] = (
        lambda: emulator.explain("instrument", []),
        lambda: matching.terms([], {}, []),
    )
    for read in reads:
        if said == "[]":
            assert read() == {}
        else:
            with pytest.raises(MachineError, match="does not answer as an instrument of this version does"):
                read()


@pytest.mark.parametrize("line", ['{"flows": 7}', '{"flows": "a"}', '{"flows": [{"snd_cwnd": "a"}]}', "[" * 100_000])
def test_flows_in_another_form_are_refused(line: str) -> None:
    class Watch:
        stdout = io.StringIO(line + "\n")

    console = Console(file=io.StringIO())
    for told in tcplog_top.lines_of(Watch()):  # type: ignore[arg-type]
        with pytest.raises(MachineError, match="does not answer as an instrument of this version does"):
            tcplog_top.View().draw(told, console)


def test_the_answer_of_an_emulator_in_another_form_is_refused() -> None:
    [place] = [nth for nth, one in enumerate(TARGETS["own-files"].seeds()) if b'"stopped"' in one]
    seed = TARGETS["own-files"].seeds()[place]
    with pytest.raises(MachineError, match="does not answer as an instrument of this version does"):
        TARGETS["own-files"].read(seed[:1] + b'{"report": "a"}')


def test_segments_of_clocks_that_are_damaged_are_refused(tmp_path: Path) -> None:
    (tmp_path / "clock_lines-a-000.arrow").write_bytes(b"no stream at all")
    assert Clocks.read(tmp_path).lines.is_empty()
    (tmp_path / "clock_lines-a-000.arrow").write_bytes(
        next(one[1:] for one in TARGETS["tables"].seeds() if b"sojourn.probes" in one)
    )
    with pytest.raises(RequestError, match="give it its own name back"):
        Clocks.read(tmp_path)


@pytest.mark.parametrize("told", [b'{"needed": "a"}', b'{"needed": -1.5}', b"[]", b"{"])
def test_a_look_in_another_form_is_a_problem(told: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 0, told, b"")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)

    class Run:
        path = machine.DMA_LATENCY

    assert "problem" in until.look(Run())  # type: ignore[arg-type]


def test_a_process_whose_name_is_no_utf_8_hides_no_ssh_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port was taken for a free one below a shell of such a name."""
    for pid, parent in ((7, 5), (5, 1)):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/stat").write_bytes(b"%d (\xff) S %d 7 7" % (pid, parent))
        (tmp_path / f"proc/{pid}/environ").write_bytes(b"SSH_CONNECTION=fe80::1%eth1 5 fe80::2 22" if pid == 5 else b"")
    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr(port_uses, "Path", lambda path: tmp_path / path[1:])
    assert port_uses._session_port() == "eth1"
