"""Lines, outputs and error outputs of programs that stand still, or never end, are read within their limits."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from sojourn.bed import bounded
from sojourn.bed.bounded import ErrorOutput, SilentError, TooLongError, first_line, line_of, outputs_of, rest_of
from tests.children import Child
from tests.net.busy_machine import await_that

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = 30.0
DRIPPING = "while printf x; do sleep 0.01; done"


@contextmanager
def pipe_with(said: bytes, *, ended: bool = False) -> Iterator[int]:
    """A pipe in which this waits to be read; its end too, if it has ended."""
    reader, writer = os.pipe()
    os.write(writer, said)
    if ended:
        os.close(writer)
    try:
        yield reader
    finally:
        os.close(reader)
        if not ended:
            os.close(writer)


@contextmanager
def printing(script: str) -> Iterator[int]:
    """The standard output of a script that does not end by itself."""
    with Child(["sh", "-c", script], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        try:
            yield program.stdout.fileno()
        finally:
            program.kill()


def test_lines_are_read_one_by_one_and_the_rest_is_kept() -> None:
    unread = bytearray()
    with pipe_with(b"one\n\ntwo\nthr") as reader:
        assert [line_of(reader, LONG, 100, unread) for _ in range(3)] == [b"one", b"", b"two"]
        assert unread == b"thr"
        with pytest.raises(SilentError):
            line_of(reader, 0.01, 100, unread)
        assert unread == b"thr", "what came of a line is kept for the next call"


def test_nothing_is_read_beyond_a_line_whose_rest_is_not_kept() -> None:
    with pipe_with(b"ready\nmore\n") as reader:
        assert line_of(reader, LONG) == b"ready"
        assert os.read(reader, 100) == b"more\n"


def test_half_a_line_is_none() -> None:
    with pipe_with(b"ready") as reader, pytest.raises(SilentError):
        line_of(reader, 0.01)
    with pipe_with(b"ready", ended=True) as reader, pytest.raises(EOFError):
        line_of(reader, LONG)


def test_line_that_waits_to_be_read_is_read_after_its_time() -> None:
    with pipe_with(b"ready\n") as reader:
        assert line_of(reader, 0.0, 100, bytearray()) == b"ready"


@pytest.mark.parametrize("unread", [None, bytearray()])
def test_line_without_end_is_read_up_to_the_limit(unread: bytearray | None) -> None:
    with printing("exec cat /dev/zero") as reader, pytest.raises(TooLongError):
        line_of(reader, LONG, 1000, unread)


def test_deadline_and_tick_hold_while_bytes_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "TICK_SECONDS", 0.05)
    ticks: list[float] = []
    with printing(DRIPPING) as reader, pytest.raises(SilentError):
        line_of(reader, 0.3, 1 << 20, bytearray(), lambda: ticks.append(time.monotonic()))
    assert 1 <= len(ticks) <= 6


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("echo ready 7; exec sleep 60", "ready 7"),
        (r"printf '\377\n'; exec sleep 60", "\ufffd"),
        ("exit 1", ""),
        ("printf ready", ""),
        ("printf ready; exec sleep 60", ""),
        ("exec cat /dev/zero", ""),
    ],
)
def test_first_line_of_a_program_is_empty_unless_it_is_whole(script: str, line: str) -> None:
    with Child(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert first_line(program, LONG if line else 0.5) == line
        finally:
            program.kill()


def test_end_of_a_stream_is_kept() -> None:
    with pipe_with(b"a long story: the fan fell off", ended=True) as reader:
        assert rest_of(reader, LONG, 16) == b"the fan fell off"
    with printing("exec cat /dev/zero") as reader:
        assert os.read(reader, 1) == b"\0", "it has begun"
        assert rest_of(reader, 0.05, 1000) == bytes(1000)


def test_command_is_run_with_input_and_outputs_of_any_length() -> None:
    given = bytes(range(256)) * 4096
    done = bounded.run(["sh", "-c", "cat; echo why >&2; exit 7"], given, LONG, len(given))
    assert (done.returncode, done.stdout == given, done.stderr) == (7, True, b"why\n")
    done = bounded.run(["sh", "-c", "exec <&-; echo said"], given, LONG, 5)
    assert (done.returncode, done.stdout) == (0, b"said\n"), "it need not read its input"
    assert bounded.run(["cat"], b"", LONG, 0).stdout == b""


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("exec cat /dev/zero", TooLongError),
        ("exec sleep 60", subprocess.TimeoutExpired),
        ("exec >&- 2>&-; exec sleep 60", subprocess.TimeoutExpired),
        (DRIPPING.replace("x;", "x >&2;"), subprocess.TimeoutExpired),
    ],
)
def test_command_that_prints_too_much_or_does_not_end_is_killed(
    script: str, error: type[Exception], tmp_path: Path
) -> None:
    argv = ["sh", "-c", f'echo $$ >"$0"; {script}', str(tmp_path / "pid")]
    with pytest.raises(error):
        bounded.run(argv, b"", LONG if error is TooLongError else 1.0, 1000)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_end_of_a_long_error_output_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST_SAID", 1000)
    said = ErrorOutput()
    script = "seq 100000 >&2; read -r word; echo the fan fell off >&2"
    with Child(["sh", "-c", script], stdin=subprocess.PIPE, stderr=said.fileno(), text=True) as child:
        await_that(lambda: os.fstat(said.fileno()).st_size == 588_895, "it has printed as many lines")
        said.cut()
        assert os.fstat(said.fileno()).st_size == 1000
        assert said.lines()[-1] == "100000"
        child.communicate("go on\n", timeout=LONG)
    assert said.lines()[-2:] == ["100000", "the fan fell off"]
    assert os.fstat(said.fileno()).st_size < 1100, "it goes on at the end that the file has by then"
    said.close()


def test_program_writes_a_long_error_output_that_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST_SAID", 7)
    said = ErrorOutput()
    with Child(["sh", "-c", "echo 12345; echo; echo 678"], stdout=said.fileno()) as child:
        child.wait(LONG)
    assert said.lines() == ["5", "678"]
    said.close()


def started(script: str) -> Child[str]:
    """A script whose outputs are text in pipes, as programs of a bed are started."""
    return Child(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_outputs_of_a_started_program_are_both_read_to_its_end() -> None:
    with started(r"head -c 3000000 /dev/zero >&2; printf 'u\n\377'; head -c 2000000 /dev/zero; exit 3") as program:
        out, said = outputs_of(program, LONG)
    assert (out[:3], len(out), set(out[3:])) == ("u\n\ufffd", 2_000_003, {"\0"})
    assert (len(said), set(said), program.returncode) == (bounded.MOST_SAID, {"\0"}, 3)


def test_only_the_error_output_is_read_of_a_program_whose_output_is_elsewhere() -> None:
    with Child(["sh", "-c", "echo one; echo two >&2"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as program:
        assert outputs_of(program, LONG) == ("", "two\n")


@pytest.mark.parametrize(
    ("script", "refusal"), [("exec cat /dev/zero", TooLongError), ("exec sleep 60", SilentError)], ids=["long", "late"]
)
def test_started_program_without_an_end_is_killed(script: str, refusal: type[Exception]) -> None:
    with started(script) as program:
        with pytest.raises(refusal):
            outputs_of(program, LONG if refusal is TooLongError else 0.1, 100_000)
        assert program.returncode == -9


def test_program_that_has_closed_its_outputs_and_goes_on_is_killed() -> None:
    with started("exec sleep 60 >&- 2>&-") as program:
        with pytest.raises(SilentError):
            outputs_of(program, 0.1)
        assert program.returncode == -9
