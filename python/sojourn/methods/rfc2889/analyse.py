"""Method "rfc2889": the searches and tests of RFC 2889, as every suite is analysed."""

from sojourn.analysis.suites import study

__all__ = ["study"]
