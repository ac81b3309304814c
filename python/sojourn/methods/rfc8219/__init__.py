"""The tests of RFC 8219: throughput, latency, packet delay variation."""
