"""One thin file per instrument: what is asked goes in, arguments go out, and a record or its path comes back.

Does not know in what order anything is measured (conduct does) nor what the records mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.lazy import names_of

if TYPE_CHECKING:
    from sojourn.binary import find_instrument
    from sojourn.instruments.blocks import BlocksInstrument
    from sojourn.instruments.conversation import Start
    from sojourn.instruments.ping import ping_argv
    from sojourn.instruments.respond import Responder, respond_argv
    from sojourn.instruments.stream import StreamInstrument
else:
    __getattr__ = names_of(
        __name__,
        {
            "sojourn.binary": ("find_instrument",),
            ".blocks": ("BlocksInstrument",),
            ".conversation": ("Start",),
            ".ping": ("ping_argv",),
            ".respond": ("Responder", "respond_argv"),
            ".stream": ("StreamInstrument",),
        },
    )

__all__ = [
    "BlocksInstrument",
    "Responder",
    "Start",
    "StreamInstrument",
    "find_instrument",
    "ping_argv",
    "respond_argv",
]
