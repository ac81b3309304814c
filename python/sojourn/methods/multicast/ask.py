"""Method "multicast": the plan of streams to several receivers."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(
    kinds=("one-way", "ping-pong", "request-response", "answers"),
    sessions=True,
    joins_clocks=True,
    is_compared=True,
    not_simulated="a simulated line has only one receiver",
)
