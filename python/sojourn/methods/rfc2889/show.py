"""The report of RFC 2889, as every suite is shown."""

from sojourn.report.suites import parts_of_suite

PARTS = parts_of_suite("RFC 2889")
