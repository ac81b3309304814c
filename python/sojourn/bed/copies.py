"""Which instrument a host of a bed gets: the one for its architecture, without shared libraries where there is one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from sojourn.bed import keeper
from sojourn.binary import OVERRIDE, find_instrument
from sojourn.errors import MachineError

MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""The machines of ELF, as `uname -m` calls them."""


def instrument_for_hosts(architecture: str | None = None) -> Path:
    """The instrument that is copied to hosts of an architecture; by default that of the instrument here.

    For the latter it is the one without shared libraries, where that was built since the other was. Where there is none
    for an architecture it is the one here, which does not fit. One for another architecture that is older than the one
    here is refused: it may be of older sources.
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
    """The environment variable that names the instrument for an architecture."""
    return f"{OVERRIDE}_{(architecture or '').upper()}"


def how_to_have(architecture: str, again: str = "") -> str:
    """What makes an instrument for another architecture be there."""
    name = f"name one built for {architecture}: {variable_for(architecture)}=FILE"
    make = " ".join(filter(None, ("run `make arm64`", again, "in the source tree here, or")))
    return f"{make} {name}" if architecture == "aarch64" else name


def is_for(program: bytes, architecture: str) -> bool:
    """Whether a program is for an architecture; a script is for every one."""
    return program.startswith(b"#!") or architecture_of(program) == architecture


def architecture_of(binary: bytes) -> str:
    """What a program is built for, as `uname -m` calls it."""
    if not binary.startswith(b"\x7fELF"):
        return "no machine: it is no ELF program"
    number = int.from_bytes(binary[18:20], "little")
    return MACHINES.get(number, f"machine {number} of ELF")


def tools_folder(*binaries: bytes) -> str:
    """Where the hosts of a bed have their instruments: a folder named by the content of all of them."""
    digests = sorted({hashlib.sha256(binary).hexdigest() for binary in binaries})
    name = digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return f"{keeper.INSTRUMENTS}/{name[:16]}"


def _header(program: Path) -> bytes:
    """As much of a program as says what it is for."""
    with program.open("rb") as file:
        return file.read(20)


def _is_older(one: Path, other: Path) -> bool:
    return one.stat().st_mtime < other.stat().st_mtime
