"""Method "one-way": the plan of streams in one direction, at any load."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(overload=True, restless=True, sessions=True, is_compared=True, hypotheses=("md1",), joins_clocks=True)
