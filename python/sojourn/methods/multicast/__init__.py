"""Frames and requests to a group: how far apart its members receive and respond, and what further members add."""
