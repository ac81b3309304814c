"""The decision whether a load passes: what is the chance that it passes by luck, and what its trials cannot exclude.

A load passes when no more than `bad` of its n trials exceed a loss ratio. A frame is lost with one probability, frames
independently of each other; where loss comes in events, such as the stalls of a scheduler, the events are independent
and not the frames, and `passes_events` applies. Further, what a finite trial does to a rate, and how far the offered
load may lie from the nominal one. The module decides nothing about a search.
"""

from __future__ import annotations

import math

from scipy import special


def passes(loss_ratio: float, frames: int, trials: int, goal: float = 0.0, bad: int = 0) -> float:
    """The probability that a load whose true loss ratio is `loss_ratio` passes `trials` trials of `frames` frames each.

    A trial keeps the goal when it loses at most that share of its frames; at most `bad` trials may not. With a goal of
    0 and no bad trial this is (1 - loss_ratio)^(frames·trials). ValueError: a ratio outside [0, 1], no frame, no trial.
    """
    _check(loss_ratio, frames, trials)
    allowed = math.floor(goal * frames + 1e-9)
    keeps = 1.0 if loss_ratio == 0 else float(special.bdtr(allowed, frames, loss_ratio))
    return 1.0 if bad >= trials else float(special.bdtr(bad, trials, 1 - keeps))


def passes_events(events_per_second: float, seconds: float) -> float:
    """The probability that no event of loss falls within trials of so many seconds altogether: exp(-rate·time)."""
    if events_per_second < 0 or seconds < 0:
        raise ValueError("a rate of events and a time are not negative")
    return math.exp(-events_per_second * seconds)


def unseen_loss(frames: int, trials: int = 1, level: float = 0.95) -> float:
    """The largest loss ratio that trials without any loss do not exclude: it passes with probability 1 - `level`.

    1 - (1 - level)^(1/(frames·trials)); about 3/(frames·trials) at 95 % ("rule of three"). Frames are independent.
    """
    _check(0.0, frames, trials)
    return -math.expm1(math.log1p(-level) / (frames * trials))


def unseen_events(seconds: float, level: float = 0.95) -> float:
    """The largest rate of loss events [1/s] that seconds without loss do not exclude: -ln(1 - level)/seconds."""
    if seconds <= 0:
        raise ValueError("trials take some time")
    return -math.log1p(-level) / seconds


def finite_trial_excess(buffer_frames: float, seconds: float) -> float:
    """By how much a trial of so many seconds passes above the rate that is sustained for ever [frames/s].

    What is too much waits in the device's buffer: at a rate of C + B/T frames/s a buffer of B frames is full after the
    T seconds of the trial, and nothing is lost. So the zero-loss rate of short trials is too high by up to B/T.
    """
    if buffer_frames < 0 or seconds <= 0:
        raise ValueError("a buffer is not negative, and a trial takes some time")
    return buffer_frames / seconds


def offered_tolerance(nominal_pps: float, share: float) -> float:
    """The standard uncertainty of the offered rate [frames/s] of trials that are kept within ± `share` of it.

    The deviation is taken as rectangular: u = share·rate/√3 (GUM 4.3.7).
    """
    if nominal_pps < 0 or share < 0:
        raise ValueError("a rate and a tolerance are not negative")
    return nominal_pps * share / math.sqrt(3)


def _check(loss_ratio: float, frames: int, trials: int) -> None:
    if not 0 <= loss_ratio <= 1 or frames < 1 or trials < 1:
        raise ValueError("a loss ratio lies between 0 and 1; there are at least one frame and one trial")
