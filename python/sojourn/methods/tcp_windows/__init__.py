"""Throughput of TCP with windows below, at and above a path's bandwidth-delay product, and the metrics of RFC 6349."""
