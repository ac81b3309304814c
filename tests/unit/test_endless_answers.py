"""Programs and hosts that stand still, or answer without end, hang no conductor and take none of its memory."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import bounded, cores
from sojourn.errors import MachineError
from sojourn.instruments import capture, conversation, emulator, respond
from sojourn.instruments.conversation import Conversation, NoAnswerError, no_tick
from sojourn.instruments.emulator import EmulatorInstrument
from sojourn.instruments.respond import Responder
from tests.children import Child

if TYPE_CHECKING:
    from collections.abc import Iterator

ARGV = ["sojourn-instrument", "capture", "serve"]
READY = """echo '{"event": "ready"}'"""
DRIPPING = "while printf x; do sleep 0.01; done"


class Doubles:
    """Starts a script in the place of each instrument, and has them end with the test."""

    def __init__(self, script: str) -> None:
        self._script = script
        self.started: list[Child[Any]] = []

    def __call__(self, argv: list[str], **popen: Any) -> subprocess.Popen[Any]:
        del argv
        self.started.append(Child(["sh", "-c", self._script], **popen))
        return self.started[-1]

    def have_ended(self) -> bool:
        """Whether each has ended, and was waited for."""
        return all(one.returncode is not None for one in self.started)

    def end(self) -> None:
        """Kill those that are left by a test that fails."""
        for one in self.started:
            with one:
                one.kill()


@pytest.fixture
def double(request: pytest.FixtureRequest) -> Iterator[Doubles]:
    """Doubles with the test's script."""
    doubles = Doubles(request.param)
    try:
        yield doubles
    finally:
        doubles.end()


def scripts(*several: str) -> pytest.MarkDecorator:
    """A test with each of these in the place of the instrument."""
    return pytest.mark.parametrize("double", several, indirect=True, ids=map(str, range(len(several))))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for as long as for a real program."""
    monkeypatch.setattr(respond, "END_SECONDS", 0.1)
    monkeypatch.setattr(conversation, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(emulator, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(capture, "READY_SECONDS", 0.2)
    monkeypatch.setattr(cores, "_ANSWER_SECONDS", 0.2)


@scripts("kill -STOP $$", "printf '{'; exec sleep 60", DRIPPING)
def test_responder_that_is_stopped_before_it_listens_is_one_sentence(
    double: Doubles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(respond, "READY_SECONDS", 0.3)
    with pytest.raises(MachineError, match=r"^the responder does not start: it does not answer for 0 s: is the mach"):
        Responder(double, ARGV)
    assert double.have_ended()


@scripts("exec cat /dev/zero")
def test_first_line_of_a_responder_has_a_limit(double: Doubles) -> None:
    with pytest.raises(MachineError, match="the responder does not start: its first line has no end"):
        Responder(double, ARGV)
    assert double.have_ended()


@scripts("echo 'sojourn-instrument: port 862 is taken' >&2; exit 3")
def test_responder_that_ends_is_quoted(double: Doubles) -> None:
    with pytest.raises(MachineError, match=r"^the responder does not start: port 862 is taken$"):
        Responder(double, ARGV)


@scripts(f"trap '' TERM; {READY}; exec sleep 60", f"{READY}; kill -STOP $$", f"trap '' TERM; {READY}; exec yes")
def test_responder_that_does_not_end_is_killed(double: Doubles) -> None:
    Responder(double, ARGV).stop()
    assert double.have_ended()


@scripts("kill -STOP $$", "printf '{'; exec sleep 60", DRIPPING)
def test_instrument_that_is_never_ready_is_one_sentence(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "READY_SECONDS", 0.3)
    with pytest.raises(NoAnswerError, match=r"^`sojourn-instrument capture serve` does not answer for 0 s: is"):
        Conversation(double, ARGV)
    assert double.have_ended()


@scripts("exec cat /dev/zero")
def test_answer_of_an_instrument_has_a_limit(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MOST_BYTES", 1 << 20)
    with pytest.raises(NoAnswerError, match=r"^`sojourn-instrument capture serve` gave an answer of more than 1 MiB"):
        Conversation(double, ARGV)
    assert double.have_ended()


@scripts(f"{READY}; {DRIPPING}")
def test_tick_is_called_while_bytes_come(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "TICK_SECONDS", 0.05)
    ticks: list[int] = []
    instrument = Conversation(double, ARGV)
    with pytest.raises(NoAnswerError):
        instrument.answer(0.3, lambda: ticks.append(1))
    assert ticks
    instrument.kill()


@scripts(f"""{READY}; while echo '{{"event": "more"}}'; do :; done""")
def test_instrument_that_answers_without_end_is_ended(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MOST_REST", 50)
    assert Conversation(double, ARGV).finish() == [{"event": "more"}] * 50
    assert double.have_ended()


@scripts(f"""{READY}; while echo '{{"event": "more"}}'; do :; done""")
def test_unread_answers_have_a_limit_together(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    instrument = Conversation(double, ARGV)
    monkeypatch.setattr(conversation, "MOST_BYTES", 1000)
    assert len(instrument.finish()) == 1000 // len('{"event": "more"}')


@scripts(f"""{READY}; while echo '{{"event": "more"}}'; do sleep 0.05; done""")
def test_unread_answers_have_a_time_together(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "REST_SECONDS", 0.3)
    assert len(Conversation(double, ARGV).finish()) <= 10
    assert double.have_ended()


@scripts(f"""{READY}; read -r word; seq 100000 >&2; echo '{{"event": "done"}}'; read -r word; echo hot >&2; exit 3""")
def test_end_of_the_error_output_of_an_instrument_is_kept(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST_SAID", 1000)
    instrument = Conversation(double, ARGV)
    instrument.ask({})
    assert instrument.answer(60, no_tick) == {"event": "done"}
    instrument._said.cut()
    instrument.ask({})
    with pytest.raises(MachineError, match=r"^hot$"):
        instrument.answer(60, no_tick)
    assert os.fstat(instrument._said.fileno()).st_size < 1100
    instrument.kill()


@contextmanager
def controlled(double: Doubles, said: bytes) -> Iterator[EmulatorInstrument]:
    """An emulator whose control socket answers this, whatever it is asked."""
    ours, theirs = socket.socketpair()

    def connect(seconds: float) -> socket.socket:
        ours.settimeout(seconds)
        return ours

    with ours, theirs:
        theirs.sendall(said)
        yield EmulatorInstrument(double, ["sojourn-instrument", "emulate", "run"], connect)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [(b'{"ok"', "^the emulator does not answer for "), (b"x" * 5000, "^the emulator gave an invalid answer: ")],
    ids=["half", "long"],
)
@scripts(f"{READY}; exec sleep 60")
def test_control_socket_of_an_emulator_has_limits(
    double: Doubles, said: bytes, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "MOST_BYTES", 1000)
    with controlled(double, said) as instrument:
        with pytest.raises(MachineError, match=sentence):
            instrument.show()
        instrument.kill()


@scripts(f"""{READY}; while echo '{{"event": "ended"}}'; do :; done""")
def test_emulator_that_answers_without_end_is_ended(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MOST_REST", 50)
    with controlled(double, b'{"ok": true}\n') as instrument:
        assert instrument.stop() == {"event": "ended"}
    assert double.have_ended()


@scripts("printf '{'; exec sleep 60", "exec cat /dev/zero")
def test_load_of_a_core_that_answers_no_whole_line_is_none(double: Doubles) -> None:
    one: Any = cores.DeviceCores.__new__(cores.DeviceCores)
    one._load = double([], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert one.load() is None


@scripts("printf 'tcpdump: listen' >&2; exec sleep 60", "while printf x >&2; do sleep 0.01; done")
def test_capture_that_prints_no_whole_line_is_one_sentence(double: Doubles) -> None:
    process = double([], stderr=subprocess.PIPE)
    with pytest.raises(MachineError, match="tcpdump does not start: it says nothing"):
        capture.await_listening(process)
