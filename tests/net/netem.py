"""A `tc` for kernels without netem: what is put in place is a real qdisc, pfifo, which it shows and takes as netem.

Where the kernel has netem nothing stands in for it. What netem does to packets is not tested by this; `make kernels`
does that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

STAND_IN = """#!/bin/sh
case " $* " in
*" netem "*)
    kept= number=
    for word; do
        shift
        case $word in
        netem) kept=yes; set -- "$@" pfifo ;;
        *) [ -n "$kept" ] || set -- "$@" "$word" ;;
        esac
    done
    exec {tc} "$@" limit 77
    ;;
*" show "*) {tc} "$@" | sed 's/"pfifo"/"netem"/; s/^qdisc pfifo /qdisc netem /' ;;
*) exec {tc} "$@" ;;
esac
"""


def with_netem(folder: Path) -> str:
    """The search path by which a `tc` is found that has netem; what stands in for it lies in the folder."""
    path = os.environ["PATH"]
    if has_netem():
        return path
    tc = shutil.which("tc")
    assert tc is not None, "needs tc (iproute2)"
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "tc").write_text(STAND_IN.format(tc=tc))
    (programs / "tc").chmod(0o755)
    return f"{programs}:{path}"


def with_slow_removal(path: str, folder: Path) -> str:
    """A search path by which a `tc` is found that takes a second to remove something, else as that of `path`."""
    tc = shutil.which("tc", path=path)
    assert tc is not None, "needs tc (iproute2)"
    programs = folder / "slow-programs"
    programs.mkdir()
    (programs / "tc").write_text(f'#!/bin/sh\ncase " $* " in *" del "*) sleep 1 ;; esac\nexec {tc} "$@"\n')
    (programs / "tc").chmod(0o755)
    return f"{programs}:{path}"


def has_netem() -> bool:
    """Whether this kernel has it, tried in a network namespace of its own."""
    script = "ip link set lo up && tc qdisc add dev lo root netem delay 1ms"
    return subprocess.run(["unshare", "--net", "sh", "-c", script], check=False, capture_output=True).returncode == 0
