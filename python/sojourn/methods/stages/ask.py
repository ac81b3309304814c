"""Method "stages": the plan of streams whose packets are timed at each stage in the kernel."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(
    kinds=("one-way", "answers"),
    hypotheses=("stages-sum",),
    sessions=True,
    is_compared=True,
    joins_clocks=True,
    not_simulated="a simulated line has no stages of a kernel",
)
