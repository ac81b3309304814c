"""Method "loss": the plan of loss over load, and to unknown addresses."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(overload=True, restless=True, sessions=True, one_clock=False)
