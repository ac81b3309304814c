"""A laboratory, from the first namespace to the last: a bed of one link, and the emulator that is its only device.

However it ends, SIGKILL included, nothing stays: that is the bed's doing.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from sojourn.bed.backends.netns import NetnsBackend
from sojourn.bed.build import build_bed
from sojourn.bed.hosts import DEVICES, END_HOSTS
from sojourn.bed.model import BedSpec
from sojourn.binary import find_instrument
from sojourn.errors import DoubtfulError, MachineError, RequestError, SojournError
from sojourn.instruments.emulator import EmulatorInstrument, Settings, emulate_argv, explain
from sojourn.labs.end import End
from sojourn.labs.pipe import Pipe, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sojourn.bed.build import Bed

EMULATOR = "emulate"
"""The device, its path, and the name of the emulator's log."""

# Anybody may ping, as systemd has it; where groups have no such numbers (a user namespace), it stays as the bed has it.
ANYBODY_PINGS = 'echo "0 2147483647" >/proc/sys/net/ipv4/ping_group_range'


@dataclass(frozen=True)
class Lab:
    """Two ends and the path between them."""

    near: End
    far: End
    emulator: EmulatorInstrument
    backend: NetnsBackend

    def set(self, words: str | None = None, **pipe: Unpack[Pipe]) -> None:
        """Make the path another, both directions, between two packets and without losing one."""
        self.emulator.set(words_of(pipe) if words is None else words)

    def show(self) -> dict[str, Any]:
        """What `sojourn emulate show` tells, as the emulator says it: configuration, counters, accuracy."""
        return self.emulator.show()

    def require_path(self) -> None:
        """Raises DoubtfulError where the emulator has ended: what ran since then had no path."""
        try:
            self.emulator.show()
        except SojournError as error:
            raise DoubtfulError(f"the emulated path ended meanwhile: {error}") from error


@contextmanager
def lab(  # noqa: PLR0913 - all that an emulator may be told
    *,
    forward: str | None = None,
    backward: str | None = None,
    config: Path | str | None = None,
    seed: int = 1,
    mtu: int = 1500,
    log: Path | None = None,
    spin: bool = False,
    **pipe: Unpack[Pipe],
) -> Iterator[Lab]:
    """Two network namespaces joined by an emulated path: `with sojourn.lab(delay="20ms", loss=0.01) as lab: …`.

    The keywords are the words of `sojourn emulate` and hold in each direction; `forward` (near to far) and `backward`
    take words for one ("delay 5ms loss 1%"), `config` a file of pipes and rules. `log` is a folder for a record of each
    packet, `spin` the most exact timing, which takes a processor. Raises RequestError where the words are wrong, and
    MachineError where this machine cannot have namespaces.
    """
    own = words_of(pipe)
    if config is not None and (own or forward or backward):
        raise RequestError(f"{config} says what the pipes are: leave the other words away")
    settings = Settings(
        EMULATOR,
        None if config else own if forward is None else forward,
        None if config else own if backward is None else backward,
        config=None if config is None else str(config),
        seed=seed,
        log=log,
        spin=spin,
    )
    with laid(settings, mtu) as found:
        yield found


@contextmanager
def laid(settings: Settings, mtu: int) -> Iterator[Lab]:
    """The same, by what the emulator is told."""
    instrument = find_instrument()
    explain(instrument, _options(settings))  # refused before anything is built
    spec = BedSpec(devices=(EMULATOR,), has_direct=False, mtu=mtu)
    with build_bed(spec, f"lab-{secrets.token_hex(4)}") as bed:
        backend = bed.backend
        assert isinstance(backend, NetnsBackend)
        for host in END_HOSTS:
            with suppress(MachineError):
                backend.run(host, ["sh", "-c", ANYBODY_PINGS])
        near, far = _ends(bed, backend)
        emulator = _emulator(bed, backend, instrument, settings)
        try:
            yield Lab(near, far, emulator, backend)
        except BaseException:
            emulator.kill()
            raise
        emulator.stop()


def _options(settings: Settings) -> list[str]:
    """What of the settings is to be understood: the pipes."""
    given = {"--forward": settings.forward, "--backward": settings.backward, "--config": settings.config}
    return [f"{option}={value}" for option, value in given.items() if value is not None]


def _ends(bed: Bed, backend: NetnsBackend) -> tuple[End, End]:
    a, b = bed.topology.link(EMULATOR).a_port, bed.topology.link(EMULATOR).b_port
    return (
        End("near", a.host, a.dev, a.ip4, a.ip6, b.ip4, b.ip6, backend),
        End("far", b.host, b.dev, b.ip4, b.ip6, a.ip4, a.ip6, backend),
    )


def _emulator(bed: Bed, backend: NetnsBackend, instrument: str, settings: Settings) -> EmulatorInstrument:
    at, control = bed.topology.emulated[0], backend.socket(EMULATOR)
    argv = emulate_argv(instrument, [at.left.dev, at.right.dev], control, settings)
    return EmulatorInstrument(partial(backend.start, DEVICES), argv, partial(backend.connect, control))
