"""Method "pairs": each trial is a block of probes."""

from sojourn.conduct.blocks import PROBES

MEASURE = PROBES
