"""Suite "rfc2889": the tests of RFC 2889, each after the tests that it depends on."""

from sojourn.plan.searches import suite

ASK = suite(
    ("address-capacity", "learning-rate", "broadcast-forwarding", "broadcast-latency", "forward-pressure"),
    bridges=True,
    not_simulated="a simulated line has no table of addresses",
)
