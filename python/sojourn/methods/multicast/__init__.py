"""Requests to a group: how far apart its members receive and answer, and what other members add."""
