"""The instrument for a host of a bed: the one for its architecture, linked statically if there is such a build."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from sojourn.bed import keeper
from sojourn.binary import OVERRIDE, find_instrument
from sojourn.errors import MachineError

MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""The machine numbers of ELF, each with its name in `uname -m`."""


def instrument_for_hosts(architecture: str | None = None) -> Path:
    """Return the instrument to copy to hosts of an architecture; by default that of the instrument here.

    For the latter this is the statically linked build, unless it is older. Where there is none for an architecture, it
    is the one here, which does not fit. A build for another architecture that is older than the one here is refused: it
    may be of older sources.
    """
    own = Path(find_instrument())
    if named := os.environ.get(variable_for(architecture)) if architecture else None:
        if not Path(named).is_file():
            raise MachineError(f"{variable_for(architecture)}={named} is no file: unset it, or name an instrument")
        return Path(named)
    if architecture is None or is_for(_header(own), architecture):
        alone = own.with_name(f"{own.name}-static")
        return alone if alone.is_file() and not _is_older(alone, own) else own
    other = own.with_name(f"{own.name}-{architecture}")
    if not other.is_file():
        return own
    if _is_older(other, own):
        raise MachineError(f"{other} is older than {own}: {how_to_have(architecture, 'again')}")
    return other


def variable_for(architecture: str | None) -> str:
    """Return the environment variable that names the instrument for an architecture."""
    return f"{OVERRIDE}_{(architecture or '').upper()}"


def how_to_have(architecture: str, again: str = "") -> str:
    """Return how to get an instrument for another architecture."""
    name = f"name one built for {architecture}: {variable_for(architecture)}=FILE"
    make = " ".join(filter(None, ("run `make arm64`", again, "in the source tree here, or")))
    return f"{make} {name}" if architecture == "aarch64" else name


def is_for(program: bytes, architecture: str) -> bool:
    """Return whether a program is for an architecture; a script is for every one."""
    return program.startswith(b"#!") or architecture_of(program) == architecture


def architecture_of(binary: bytes) -> str:
    """Return the architecture of a program, as in `uname -m`."""
    if not binary.startswith(b"\x7fELF"):
        return "no machine: it is no ELF program"
    number = int.from_bytes(binary[18:20], "little")
    return MACHINES.get(number, f"machine {number} of ELF")


def tools_folder(*binaries: bytes) -> str:
    """Return the hosts' folder for the instruments of a bed, named by the content of all of them."""
    digests = sorted({hashlib.sha256(binary).hexdigest() for binary in binaries})
    name = digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return f"{keeper.INSTRUMENTS}/{name[:16]}"


def _header(program: Path) -> bytes:
    """Return the start of a program, which has its architecture."""
    with program.open("rb") as file:
        return file.read(20)


def _is_older(one: Path, other: Path) -> bool:
    return one.stat().st_mtime < other.stat().st_mtime
