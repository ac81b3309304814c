"""Suite "rfc8219": the tests of RFC 8219, in the order in which one needs the other."""

from sojourn.plan.searches import suite

ASK = suite(("throughput", "latency", "pdv", "ipdv"))
