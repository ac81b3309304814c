"""Method "fan-in": the plan of several senders that share one port."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(
    overload=True,
    restless=True,
    sessions=True,
    joins_clocks=True,
    hypotheses=("fan-in-total", "phase-saw-tooth"),
)
