"""Method "throughput": each trial is a stream, or several simultaneous streams."""

from sojourn.conduct.streams import streams

MEASURE = streams(floods=True)
