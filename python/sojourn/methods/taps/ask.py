"""Method "taps": what may be asked of streams whose packets are seen as they enter a device and as they leave it."""

from sojourn.plan.matrix import ask_streams

ASK = ask_streams(sessions=True, not_simulated="taps see real frames: leave out --bed sim")
