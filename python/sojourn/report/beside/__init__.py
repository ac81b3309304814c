"""Results of other tools beside those of a run: reads files of flent, irtt, sockperf and iperf3, and makes one table.

Their figures keep their names and are converted to our units. Nothing of ours is computed from them.
"""

from __future__ import annotations

from sojourn.report.beside.figure import Ours, ToolResult
from sojourn.report.beside.files import read_result
from sojourn.report.beside.table import beside_table

__all__ = ["Ours", "ToolResult", "beside_table", "read_result"]
