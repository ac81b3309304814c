"""An emulated path held against its configuration: delays, losses, rates, random sources."""
