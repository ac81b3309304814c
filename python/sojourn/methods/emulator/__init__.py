"""An emulated path compared with its configuration: delays, losses, rates, random sources."""
