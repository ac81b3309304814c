"""The report of RFC 8219, with the common parts of suites; it has a test of IPDV, which a plan may leave out."""

from sojourn.report.suites import parts_of_suite

PARTS = parts_of_suite("RFC 8219", has_ipdv=True)
