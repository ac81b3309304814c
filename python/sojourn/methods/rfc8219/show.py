"""The report of RFC 8219, as every suite is shown."""

from sojourn.report.suites import PARTS

__all__ = ["PARTS"]
