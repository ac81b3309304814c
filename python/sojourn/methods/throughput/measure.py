"""Method "throughput": each trial is a stream, or several at once."""

from sojourn.conduct.streams import streams

MEASURE = streams(floods=True)
