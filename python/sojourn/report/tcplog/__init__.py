"""Figures of a log of tcplog: windows, round trips, rates and losses of chosen flows over one time axis.

Input is a log's folder, or the run folder of a study with such records; output is one HTML page, SVG or PNG.
"""

from __future__ import annotations

from sojourn.report.tcplog.draw import FORMS, draw

__all__ = ["FORMS", "draw"]
