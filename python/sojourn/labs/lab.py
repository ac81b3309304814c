"""A laboratory, from its first namespace to its removal: a bed of one link, with the emulator as its only device.

However it ends, SIGKILL included, the bed removes everything.
"""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from sojourn.bed.backends.netns import NetnsBackend
from sojourn.bed.build import build_bed
from sojourn.bed.hosts import DEVICES, END_HOSTS
from sojourn.bed.model import BedSpec
from sojourn.binary import find_instrument
from sojourn.errors import MachineError, RequestError, did_you_mean
from sojourn.instruments.emulator import EmulatorInstrument, Settings, emulate_argv
from sojourn.labs.emulation import NAME, Emulation, require_understood, settings_of, until_the_end
from sojourn.labs.end import End

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.bed.build import Bed
    from sojourn.bed.hosts import HostName
    from sojourn.labs.pipe import Pipe

DEVICE = "emulate"

# Everybody may ping, the default of systemd; in a user namespace without such group ids, the bed's setting stays.
ANYBODY_PINGS = 'echo "0 2147483647" >/proc/sys/net/ipv4/ping_group_range'


@dataclass(frozen=True)
class Lab(Emulation):
    """Two ends and the path between them."""

    near: End
    far: End
    backend: NetnsBackend


@contextmanager
def lab(  # noqa: PLR0913 - all that an emulator can be configured with
    *,
    forward: str | None = None,
    backward: str | None = None,
    config: Path | str | None = None,
    seed: int = 1,
    mtu: int = 1500,
    congestion: str | None = None,
    log: Path | None = None,
    spin: bool = False,
    **pipe: Unpack[Pipe],
) -> Iterator[Lab]:
    """Two network namespaces joined by an emulated path: `with sojourn.lab(delay="20ms", loss=0.01) as lab: …`.

    The keywords are the words of `sojourn emulate` and hold in each direction; `forward` (near to far) and `backward`
    take words for one ("delay 5ms loss 1%"), `config` a file of pipes and rules. `congestion` is the congestion control
    of TCP at both ends, `log` a folder for a record of each packet, `spin` the most exact timing, which takes a
    processor. Raises RequestError where the words are wrong, and
    MachineError where this machine cannot have namespaces.
    """
    with laid(settings_of(pipe, forward, backward, config, seed, log, spin=spin), mtu, congestion) as found:
        yield found


@contextmanager
def laid(settings: Settings, mtu: int, congestion: str | None = None) -> Iterator[Lab]:
    """Build the laboratory from the emulator's configuration."""
    if congestion is not None and not re.fullmatch(r"[\w-]{1,15}", congestion):
        raise RequestError(f"congestion {congestion!r}: expected a name such as cubic or bbr")
    instrument = find_instrument()
    require_understood(instrument, settings)
    with build_bed(spec_of(mtu), f"lab-{secrets.token_hex(4)}") as bed:
        backend = bed.backend
        assert isinstance(backend, NetnsBackend)
        for host in END_HOSTS:
            with suppress(MachineError):
                backend.run(host, ["sh", "-c", ANYBODY_PINGS])
            if congestion is not None:
                _send_by(backend, host, congestion)
        near, far = _ends(bed, backend)
        emulator = _emulator(bed, backend, instrument, settings)
        with until_the_end(emulator):
            yield Lab(emulator, near, far, backend)


def _send_by(backend: NetnsBackend, host: HostName, congestion: str) -> None:
    """Set the congestion control of this end's connections.

    A namespace other than the first one accepts only those in `net.ipv4.tcp_allowed_congestion_control`.
    """
    folder = "/proc/sys/net/ipv4"
    try:
        backend.put(host, f"{folder}/tcp_congestion_control", congestion)
    except (MachineError, OSError):
        known = backend.get(host, f"{folder}/tcp_available_congestion_control").split()
        allowed = Path(f"{folder}/tcp_allowed_congestion_control").read_text(encoding="ascii").split()
        if congestion in known:
            told = " ".join([*allowed, congestion])
            raise MachineError(
                f"congestion {congestion}: this kernel allows {' and '.join(allowed)} in a network namespace: "
                f'sysctl -w net.ipv4.tcp_allowed_congestion_control="{told}"'
            ) from None
        raise RequestError(
            f"congestion {congestion}: this kernel has {', '.join(known)}{did_you_mean(congestion, known)}; a module "
            f"that is not loaded: modprobe tcp_{congestion}"
        ) from None


def spec_of(mtu: int) -> BedSpec:
    """Return the bed of a laboratory."""
    return BedSpec(devices=(DEVICE,), has_direct=False, mtu=mtu)


def _ends(bed: Bed, backend: NetnsBackend) -> tuple[End, End]:
    a, b = bed.topology.link(DEVICE).a_port, bed.topology.link(DEVICE).b_port
    return (
        End("near", a.host, a.dev, a.ip4, a.ip6, b.ip4, b.ip6, backend),
        End("far", b.host, b.dev, b.ip4, b.ip6, a.ip4, a.ip6, backend),
    )


def _emulator(bed: Bed, backend: NetnsBackend, instrument: str, settings: Settings) -> EmulatorInstrument:
    at, control = bed.topology.emulated[0], backend.socket(NAME)
    argv = emulate_argv(instrument, [at.left.dev, at.right.dev], control, settings)
    return EmulatorInstrument(partial(backend.start, DEVICES), argv, partial(backend.connect, control))
