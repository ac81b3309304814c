"""Method "fan-in": each trial is a stream, or several at once."""

from sojourn.conduct.streams import streams

MEASURE = streams(floods=True, times_regular=True)
