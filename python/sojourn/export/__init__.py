"""Export of a log of TCP's state: SIFTR's text, CSV, Parquet, JSON lines, qlog, or comments in a capture.

Reads only the folder of a log, and writes one file. Judges nothing; `Told` lists what a format cannot express.
"""

from sojourn.export.convert import FORMATS, Request, convert
from sojourn.export.log import Chosen, TcpLog
from sojourn.export.output import Told

__all__ = ["FORMATS", "Chosen", "Request", "TcpLog", "Told", "convert"]
