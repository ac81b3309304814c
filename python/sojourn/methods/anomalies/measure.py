"""Method "anomalies": each trial is a series, a block of probes."""

from sojourn.conduct.blocks import PROBES

MEASURE = PROBES
