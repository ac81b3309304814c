"""Which part of a latency is the sender, the queue, the wire and the receiver."""
