"""Method "rfc8219": the searches and tests of RFC 8219, as every suite is analysed."""

from sojourn.analysis.suites import study

__all__ = ["study"]
