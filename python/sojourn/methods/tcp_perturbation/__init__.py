"""Whether the log of TCP's state changes what TCP does: window, round-trip time, throughput."""
