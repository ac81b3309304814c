"""The keyword arguments of an emulated path: the words of `sojourn emulate`, with "_" for "-".

Only formats them; the instrument parses them and refuses errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from sojourn.errors import RequestError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

Share = str | float
"""A share of packets: "1%", or 0.01."""

SHARES = frozenset({"loss", "loss_after", "corrupt", "duplicate", "reorder"})


class Pipe(TypedDict, total=False):
    """What happens to packets in each direction."""

    delay: str
    jitter: str
    distribution: str
    half_life: str
    order: str
    reorder: Share
    loss: Share | Sequence[Share]
    loss_after: Share | Sequence[Share]
    corrupt: Share
    ber: float | str
    duplicate: Share
    rate: str
    overhead: int
    burst: str
    queue: int | str
    aqm: str
    trace: str
    outage: str
    mask: str


def words_of(pipe: Mapping[str, object]) -> str:
    """Return the configuration string of one pipe: "delay 20ms loss 1%"."""
    known = Pipe.__annotations__
    for name in pipe:
        if name not in known:
            raise RequestError(f"{name}: expected one of {', '.join(known)}{did_you_mean(name, known)}")
    return " ".join(
        f"{name.replace('_', '-')} {_spelled(name, one)}"
        for name, value in pipe.items()
        for one in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value])
    )


def _spelled(name: str, value: object) -> str:
    """Return a value as text; for the instrument, a number as a share of packets is a percentage."""
    if name in SHARES and isinstance(value, float | int):
        if not 0 <= value <= 1:
            raise RequestError(f'{name} = {value}: expected a share from 0 to 1, or a percentage as text: "{value}%"')
        return f"{value * 100:.12g}%"
    return f"{value}"
