"""What a method asks: its sections, its checks, its trials, and what it needs of a bed. One value in each `ask` module.

Everything that a plan, the bed and the conductor must know of a method stands here, so that none of them has to know
its name. Knows no method.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sojourn.plan.source import Given
    from sojourn.plan.trial import Trial
    from sojourn.plan.types import Plan

    Lookup = Callable[[str, object], Given]
    """The value of a key with its place in the plan; the second argument where nobody gave it."""


class Limit(NamedTuple):
    """Where a plan limits the time of measuring: `at_most` of a section, which has the number of rounds too."""

    section: str
    rounds: str | None
    """The key that is set to the rounds that there was time for; None: what was not measured stays owed."""
    least: int
    """Rounds that are measured however little time there is: fewer say nothing."""


class Ends(NamedTuple):
    """The ports that a bed's bridges need towards A and B, and whether each path needs a second link for load."""

    near: int = 1
    far: int = 1
    bypass: bool = False


class Estimate(NamedTuple):
    """Expected time of a run, in its parts."""

    blocks: int
    probes: int
    measuring_ns: int
    total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a method asks."""

    sections: Mapping[str, type]
    """The types of its sections, beside those that every plan has."""
    expand: Callable[[Plan], Sequence[Trial[Any]]]
    """Every trial of a plan in the order in which they are measured; the same plan gives the same trials."""
    estimate: Callable[[Plan, Sequence[Trial[Any]]], Estimate]
    check: Callable[[Plan, Lookup], None]
    """Raises the first refusal of a plan whose values are well-formed each by itself."""
    describe: Callable[[Plan], dict[str, Any]]
    """The cells and counts that `--dry-run` shows."""
    resolve: Callable[[Plan], Plan] = lambda plan: plan
    """Fills in defaults that depend on other values."""
    limit: Limit | None = None
    hypotheses: tuple[str, ...] = ()
    """The published hypotheses that it can test."""
    unread: frozenset[str] = frozenset()
    """Keys of its sections, dotted, that have no effect; they are refused."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Short names for `--set`, where the key's own name would mean another key."""
    emulates: bool = True
    """Whether emulators can be among the devices."""
    logs_emulators: bool = False
    """Whether every packet through an emulator is recorded unless the plan says otherwise."""
    pipes: Callable[[Plan], tuple[str, ...]] = lambda _: ()
    """The words that emulators are set to before trials."""
    pipe_key: str = "stream.pipe"
    """Where a plan has them."""
    ends: Callable[[Mapping[str, Any]], Ends] = lambda _: Ends()
    """What the bed must have, from the method's sections."""
    cgroups: bool = False
    """Whether each host has a cgroup of its own."""
    logs_some: Callable[[Plan], bool] = lambda _: False
    """Whether some trials have the log of TCP's state and the emulators' packets, beside those that figures are of."""
    sessions: bool = False
    """Whether it judges by beds made anew."""
    headline: bool = False
    """Whether its verdict has one headline figure whose interval is over sessions, so that a run can end by it."""
    one_bed: str = "judges one bed"
    """Why it has one bed alone, where it has."""
    twins: Literal["", "spread", "all"] = ""
    """How it measures over second links (`bed.twins`): not at all; trials are spread over both links of a kind, so that
    they take no longer; or each second link is measured as its fellow is, and the reference has one too."""
    probes: bool = False
    """Whether a simulated line is asked for probes, there and back, and not for streams."""
    one_clock: bool = True
    """Whether it takes times of one host from times of another."""
    joins_clocks: bool = False
    """Whether its streams tell how the clocks of both ends differ, by exchanges, where they do."""
    clock_trials: bool = False
    """Whether streams between its trials tell that in their place, whatever its plan (`plan/clock_trials.py`)."""
    clock_trials_apart_s: float | None = None
    """How long ago the last of these may be when a trial begins; None: as there. Where figures are of the rate of the
    clocks over a trial, it is little, so that each trial is between two of its own."""
    not_simulated: str | None = None
    """What a simulated line has not, so that the method cannot be asked of it."""
    restful: Callable[[Plan], bool] = lambda _: True
    """Whether senders have time to sleep between frames; without it, real-time priority makes departures late."""
    hold: Callable[[Plan, Trial[Any]], tuple[str, ...]] = lambda plan, _: plan.bed.hold
    """What the bed on which this trial is the first has in common with others."""
    switch: Callable[[Plan, Trial[Any]], dict[str, bool]] = lambda _, __: {}
    """What is on or off on the bed on which this trial is the first, of what other methods leave (`SWITCHED`)."""
    starts: Callable[[Plan], int] = lambda _: 1
    """How often the programs of both ends are started on each bed; what each start measures is a part."""
    session_batches: int = 2
    """Batches that one of several sessions measures at least: a single one does not tell the scatter within it."""
