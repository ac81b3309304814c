"""Sojourn measures what a box in the path does to packets: how long they stay in it, and how sure that figure is."""

from __future__ import annotations

__version__ = "0.1.0"
