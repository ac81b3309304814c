"""What other tools measured, set beside a run: files of flent, irtt, sockperf and iperf3 in, one table out.

Their figures stand under their own names and in our units. Nothing of ours is computed from them.
"""

from __future__ import annotations

from sojourn.report.beside.figure import ToolResult
from sojourn.report.beside.files import read_result
from sojourn.report.beside.table import beside_table

__all__ = ["ToolResult", "beside_table", "read_result"]
