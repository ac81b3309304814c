"""One-way delay of streams, each frame with its intended and actual departure and its arrival."""
