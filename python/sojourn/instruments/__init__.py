"""One thin file per instrument: what is asked goes in, arguments go out, and a record or its path comes back.

`sojourn probe` and its like import this on their way to the instrument: nothing here loads NumPy, Polars or PyArrow.
Does not know in what order anything is measured (conduct does) nor what the records mean.
"""

from sojourn.bed.machine import find_instrument
from sojourn.instruments.blocks import BlocksInstrument
from sojourn.instruments.conversation import Start
from sojourn.instruments.ping import ping_argv
from sojourn.instruments.respond import Responder, respond_argv
from sojourn.instruments.stream import StreamInstrument

__all__ = [
    "BlocksInstrument",
    "Responder",
    "Start",
    "StreamInstrument",
    "find_instrument",
    "ping_argv",
    "respond_argv",
]
