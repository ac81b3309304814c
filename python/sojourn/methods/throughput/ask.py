"""Method "throughput": the plan of streams up to and above a device's maximum rate."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(overload=True, restless=True, sessions=True, hypotheses=("minimum-frame-time",), one_clock=False)
