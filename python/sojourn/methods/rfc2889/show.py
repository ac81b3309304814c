"""The report of RFC 2889, as every suite is shown."""

from sojourn.report.suites import PARTS

__all__ = ["PARTS"]
