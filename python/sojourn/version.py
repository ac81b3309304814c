"""The version of Sojourn. A leaf: code that needs the version imports this, and not the package with all its names."""

__version__ = "0.3.0"
