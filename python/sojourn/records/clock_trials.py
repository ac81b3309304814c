"""What a run's log and records call the streams that bring two hosts' clocks together between trials.

The conductor writes these words (conduct/clock_trials.py), the analysis reads them (analysis/host_clock.py).
"""

from __future__ import annotations

CLOCK_TRIAL = "clock-trial"
"""The event of each; a run whose hosts share one clock has none."""

PURPOSE = "clock"
"""Of their streams."""

CLOCK_BLOCKS = 3_000_000
"""Their blocks are numbered from here."""
