"""Reports without their figures as SVG and PDF, which take half of a report's time and which few tests look at.

Every method's figures are drawn as files by one test each: those of tests/unit/test_report_streams.py and of the
methods that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def undrawn() -> AbstractContextManager[object]:
    """Within, a report has the page and the tables alone."""
    return mock.patch("sojourn.report.write._write_figures")
