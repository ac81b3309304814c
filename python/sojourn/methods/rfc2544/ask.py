"""Suite "rfc2544": the tests of RFC 2544 (RFC 9004 for back-to-back), each after the tests that it depends on."""

from sojourn.plan.searches import suite

ASK = suite(("throughput", "latency", "frame-loss", "back-to-back"))
