"""The tests of RFC 2544: throughput, latency, frame loss, back-to-back frames."""
