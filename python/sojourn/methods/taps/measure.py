"""Method "taps": each trial is a stream, with a tap at both ports of its device."""

from sojourn.conduct.streams import streams

MEASURE = streams(taps=True)
