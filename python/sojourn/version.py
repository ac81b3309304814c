"""Which Sojourn this is. A leaf: what states the version imports this, and not the package with all of its names."""

__version__ = "0.3.0"
