"""Method "throughput": what may be asked of streams up to, and beyond, what a device carries."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(overload=True, restless=True, sessions=True, hypotheses=("minimum-frame-time",), one_clock=False)
