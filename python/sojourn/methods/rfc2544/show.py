"""The report of RFC 2544, as every suite is shown."""

from sojourn.report.suites import PARTS

__all__ = ["PARTS"]
