"""Round trips over a device and over the direct link, in pairs of blocks next to each other in time."""
