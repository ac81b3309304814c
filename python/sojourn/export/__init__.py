"""What others read: a log of TCP's state as SIFTR's text, CSV, Parquet, JSON lines, qlog, or comments in a capture.

It reads a log's folder and nothing else, and writes one file. It judges nothing that it reads, and keeps no number to
itself: what a format cannot say is listed in `Told`.
"""

from sojourn.export.convert import FORMATS, Request, convert
from sojourn.export.log import Chosen, TcpLog
from sojourn.export.output import Told

__all__ = ["FORMATS", "Chosen", "Request", "TcpLog", "Told", "convert"]
