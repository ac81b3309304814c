"""The report of RFC 2544, as every suite is shown."""

from sojourn.report.suites import parts_of_suite

PARTS = parts_of_suite("RFC 2544")
