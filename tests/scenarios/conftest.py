"""What programs answer in a test is held against their published schemas."""

from __future__ import annotations

from tests.net.asked_programs import answers_as_published, kept_lines

__all__ = ["answers_as_published", "kept_lines"]
