"""The report of RFC 2889, with the common parts of suites."""

from sojourn.report.suites import parts_of_suite

PARTS = parts_of_suite("RFC 2889")
