"""Start programs that cannot outlive this process, and run commands whose failure becomes a sentence.

Knows no hosts or namespaces. The parent-death signal follows the *thread* that started a program: such a thread must
live as long as the program.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sojourn.binary import search_path
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sojourn.bed.state import Mark

MARK_VARIABLE = "SOJOURN_BED"
"""The environment variable that marks the processes of a bed; its value is a `Mark`."""

# If the parent died before the signal was set, then `$PPID` is not the process that started us.
_GUARD = '[ "$PPID" = "$0" ] && exec "$@"'
_JOIN = f'echo $$ > "$1/cgroup.procs" && shift && {_GUARD}'

_COMMAND_SECONDS = 30.0
_PATIENCE_SECONDS = 1.0


def guarded(argv: Sequence[str], cgroup: Path | None = None) -> list[str]:
    """Return the command that becomes `argv`, in a cgroup if one is named, and is killed when this process ends."""
    script, where = (_GUARD, []) if cgroup is None else (_JOIN, [str(cgroup)])
    return ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", script, str(os.getpid()), *where, *argv]


def environment(mark: Mark, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a bed's program: `env` or ours, with a full search path and the bed's mark.

    Folders of a PATH in `env` are first; ours follow, because the programs that enter the namespace need them.
    """
    asked = None if env is None else env.get("PATH")
    path = search_path() if not asked else f"{asked}{os.pathsep}{search_path()}"
    return {**(os.environ if env is None else env), "PATH": path, MARK_VARIABLE: str(mark)}


def find_tool(tool: str) -> str | None:
    """Return the path of a tool, or None."""
    return shutil.which(tool, path=search_path())


def require_tools(packages: Mapping[str, str]) -> None:
    """Raise MachineError if one of these tools is missing, naming the packages that have them."""
    missing = [tool for tool in packages if find_tool(tool) is None]
    if missing:
        names = " ".join(sorted({packages[tool] for tool in missing}))
        raise MachineError(f"{', '.join(missing)} not found: apt-get install {names}")


def launch(command: Sequence[str], program: str, mark: Mark, popen: dict[str, Any]) -> subprocess.Popen[Any]:
    """Start a program in a session of its own: Ctrl-C reaches it only through this process."""
    if find_tool(program) is None:
        raise MachineError(f"{program} not found on this machine: install it, or name it with its folder")
    popen.setdefault("stdin", subprocess.DEVNULL)
    popen.setdefault("start_new_session", True)
    popen["env"] = environment(mark, popen.get("env"))
    process: subprocess.Popen[Any] = subprocess.Popen(command, **popen)
    return process


def finish(command: Sequence[str], text: str | None, env: Mapping[str, str], shown: str) -> str:
    """Run a command to its end and return its output; raises MachineError with its error output if it fails."""
    try:
        done = subprocess.run(
            command, input=text or "", capture_output=True, text=True, errors="replace", timeout=_COMMAND_SECONDS,
            check=False, env=env,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise MachineError(f"'{shown}' did not end within {_COMMAND_SECONDS:.0f} s") from None
    if done.returncode != 0:
        said = " / ".join((done.stderr or done.stdout).strip().splitlines()[:2]) or f"status {done.returncode}"
        raise MachineError(f"'{shown}' failed in the bed: {said}{_culprit(done.stderr, text)}")
    return done.stdout


def end(process: subprocess.Popen[Any]) -> None:
    """Wait for a process that was asked to end; kill it if it does not; close its pipes."""
    try:
        process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def end_all(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """Terminate all of them, then wait for each."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        end(process)


def _culprit(said: str, text: str | None) -> str:
    """Return the line at which a batch stopped: `Command failed -:3` names its number."""
    number = said.rpartition("-:")[2].strip()
    lines = (text or "").splitlines()
    return f" (line: {lines[int(number) - 1]})" if number.isdigit() and 0 < int(number) <= len(lines) else ""
