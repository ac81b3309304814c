"""Suite "rfc8219": the tests of RFC 8219, each after the tests that it depends on."""

from sojourn.plan.searches import suite

ASK = suite(("throughput", "latency", "pdv", "ipdv"))
