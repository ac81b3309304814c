"""What trials without loss at a load cannot exclude, and further uncertainties of its rate.

Frames are lost independently with one probability; where loss comes in events, such as stalls of a scheduler, the
events are independent, not the frames. Further: the bias of finite trials, and the tolerance of the offered load. The
module decides nothing about a search.
"""

from __future__ import annotations

import math


def unseen_loss(frames: int, trials: int = 1, level: float = 0.95) -> float:
    """Return the largest loss ratio that trials without loss do not exclude: it passes with probability 1 - `level`.

    1 - (1 - level)^(1/(frames·trials)); about 3/(frames·trials) at 95 % ("rule of three"). Frames are independent.
    """
    if frames < 1 or trials < 1:
        raise ValueError("there are at least one frame and one trial")
    return -math.expm1(math.log1p(-level) / (frames * trials))


def unseen_events(seconds: float, level: float = 0.95) -> float:
    """Return the largest rate of loss events [1/s] that seconds without loss do not exclude: -ln(1 - level)/seconds."""
    if seconds <= 0:
        raise ValueError("trials take some time")
    return -math.log1p(-level) / seconds


def finite_trial_excess(buffer_frames: float, seconds: float) -> float:
    """Return by how much a lossless trial's rate may exceed the sustainable rate [frames/s].

    The excess waits in the device's buffer: at a rate of C + B/T frames/s a buffer of B frames is full after the T
    seconds of the trial, and nothing is lost. So the zero-loss rate of short trials is too high by up to B/T.
    """
    if buffer_frames < 0 or seconds <= 0:
        raise ValueError("a buffer is not negative, and a trial takes some time")
    return buffer_frames / seconds


def offered_tolerance(nominal_pps: float, share: float) -> float:
    """Return the standard uncertainty of the offered rate [frames/s] of trials kept within ± `share` of it.

    The deviation is taken as rectangular: u = share·rate/√3 (GUM 4.3.7).
    """
    if nominal_pps < 0 or share < 0:
        raise ValueError("a rate and a tolerance are not negative")
    return nominal_pps * share / math.sqrt(3)
