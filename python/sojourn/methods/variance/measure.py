"""Method "variance": each trial is a block of probes, and both ends are started several times on each bed."""

from sojourn.conduct.blocks import PROBES

MEASURE = PROBES
