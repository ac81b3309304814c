"""Latency of a stream beside background load, through the device or past it."""
