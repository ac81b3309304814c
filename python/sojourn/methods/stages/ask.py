"""Method "stages": what may be asked about the stages that a packet passes in a kernel."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(
    kinds=("one-way", "answers"),
    hypotheses=("stages-sum",),
    sessions=True,
    is_compared=True,
    joins_clocks=True,
    not_simulated="a simulated line has no stages of a kernel",
)
