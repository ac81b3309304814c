"""Method "loss": what may be asked about where frames are lost, and how many."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(overload=True, restless=True, sessions=True, one_clock=False)
