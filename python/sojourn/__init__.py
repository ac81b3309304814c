"""Sojourn: what a box in the path does to packets, and how sure that figure is."""
