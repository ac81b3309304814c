"""Deviations of a run from the text of its RFC, by section: in its plan, and in its execution.

A deviation that no plan of a suite can avoid is listed for each run of it. What an RFC leaves open (the algorithm of
RFC 2544's search, shorter trials on the way) is no deviation, nor is more than it requires.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.analysis.rates import pace_of
from sojourn.analysis.run import DIRECT
from sojourn.analysis.suites.searches import burst_bounds, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from sojourn.analysis.run import Run
    from sojourn.analysis.suites.searches import Search, Terms

SIZES = (64, 128, 256, 512, 1024, 1280, 1518)
"""RFC 2544, 9.1; RFC 2889, 4."""

SIZES_8219 = (64, 128, 256, 512, 768, 1024, 1280, 1518, 1522, 2048, 4096, 8192, 9216)
"""RFC 8219, 5.1.1."""

FINAL_S, FINAL_2889_S = 60.0, 30.0
LATENCY_S, VARIATION_S = 120.0, 60.0
TIMES = 20
BURST_SEARCHES = 50
RESIDUAL_S, REST_S = 2.0, 5.0
BURST_S = 2.0
MOST_STEP = 0.1
NEAR_LIMIT = 0.95
"""A burst of this part of the limit counts as near it: RFC 9004 gives no number; searches end within 1 % or more."""

AS_FAST = 0.995
"""The tolerance of an offered rate (`searches.MISSED`)."""
OF_UDP = ("udp", "udp6")


@dataclass(frozen=True, slots=True)
class Deviation:
    """A deviation from a section of an RFC."""

    rfc: str
    section: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Made:
    """The properties of a run, planned and executed, that RFCs specify."""

    tests: tuple[str, ...]
    sizes: frozenset[int]
    engines: frozenset[str]
    has_line_rate: bool
    grace_s: float
    ends_early: bool
    """Whether the wait for late frames ended once each had arrived or was counted as dropped."""
    final_s: float
    verifies_loss: bool
    loss_step: float
    receivers: int
    cut_short: int
    """Searches that were cut short for lack of time."""
    shortest_s: dict[str, float]
    """The shortest trial that counts, by test."""
    trials: dict[str, int]
    """Trials that count at a size over a device, by test: the fewest."""
    searches: dict[str, int]
    """Searches at a size over a device, by test: the fewest."""
    unfilled: int
    """Back-to-back searches that ended at the limit of the burst, or near it."""
    unfillable: tuple[int, ...]
    """Sizes whose throughput equals the rate of the bursts, so that no buffer fills."""
    burst_limit_s: float
    """The longest burst that the plan allows."""
    longest_burst_s: float
    """The duration of the longest burst."""
    slowest_share: dict[str, float]
    """The least load that was sent, relative to the configured one, by test."""


def deviations(run: Run, rfc: str, terms: Terms, searches: list[Search]) -> list[Deviation]:
    """Return every deviation of the run from this RFC, in the order of sections."""
    made = made_of(run, terms, searches)
    found = [*ALWAYS[rfc], *(one for check in CHECKS[rfc] for one in check(made))]
    return sorted(found, key=lambda one: (one.rfc, [int(part) for part in one.section.split(".")]))


def made_of(run: Run, terms: Terms, searches: list[Search]) -> Made:
    """Return the properties of a run."""
    search, trials, bed = (run.plan.get(name, {}) for name in ("search", "trials", "bed"))
    made = [one for one in searches if one.used]
    asked = search.get("tests") or list(dict.fromkeys(one.test for one in searches))
    bursts_ = [one for one in made if one.test == "back-to-back"]
    pace = pace_of(run, DIRECT)
    return Made(
        tests=tuple(str(one) for one in asked),
        sizes=frozenset(one.frame_bytes for one in searches),
        engines=frozenset(one.engine for one in made),
        has_line_rate=pace.bps is not None or pace.pps is not None,
        grace_s=seconds_of(trials.get("grace", "0s")),
        ends_early=trials.get("grace_ends", "after") == "accounted",
        final_s=terms.final_s,
        verifies_loss=terms.verify_loss and any(one.algorithm == "binary" for one in made),
        loss_step=float(search.get("loss_step", MOST_STEP)),
        receivers=int(bed.get("far", 1)),
        cut_short=sum(any(one.get("cut_short") for one in each.results) for each in searches),
        shortest_s={one.test: min(step.duration_s for step in _all(made, one.test)) for one in made},
        trials={test: _fewest(made, test, lambda one: len(one.used)) for test in {one.test for one in made}},
        searches={test: _fewest(made, test, lambda _: 1) for test in {one.test for one in made}},
        unfilled=sum(is_at_limit(one) and not is_unfillable(one) for one in bursts_),
        unfillable=tuple(sorted({one.frame_bytes for one in bursts_ if is_unfillable(one)})),
        burst_limit_s=seconds_of(search.get("burst", f"{BURST_S}s")),
        longest_burst_s=max(
            (step.load / step.pace_pps for step in _all(made, "back-to-back") if step.pace_pps), default=0.0
        ),
        slowest_share={
            one.test: min(step.load / step.asked if step.asked else 1.0 for step in _all(made, one.test))
            for one in made
        },
    )


def is_at_limit(search: Search) -> bool:
    """Return whether the longest lossless burst is at or near the limit of the search."""
    lower, upper = burst_bounds(search)
    most = float(search.extra.get("longest_tried") or 0.0)
    return upper is None or (most > 0 and (lower or 0) >= NEAR_LIMIT * most)


def is_unfillable(search: Search) -> bool:
    """Return whether the throughput at this size is the rate of the bursts themselves."""
    served, pace = (float(search.extra.get(name) or 0.0) for name in ("throughput_pps", "burst_pps"))
    return pace > 0 and served >= AS_FAST * pace


def _all(searches: list[Search], test: str) -> list[Any]:
    return [step for one in searches if one.test == test for step in one.used]


def _fewest(searches: list[Search], test: str, number: Callable[[Search], int]) -> int:
    """Return the smallest sum at any size over any device."""
    found: Counter[tuple[str, int]] = Counter()
    for one in searches:
        if one.test == test:
            found[one.device, one.frame_bytes] += number(one)
    return min(found.values(), default=0)


def sizes(rfc: str, section: str, wanted: tuple[int, ...]) -> Callable[[Made], Iterator[Deviation]]:
    """Return a check for frame sizes that the RFC lists and the run left out."""

    def check(made: Made) -> Iterator[Deviation]:
        left_out = [size for size in wanted if size not in made.sizes]
        if left_out:
            yield Deviation(rfc, section, f"frames of {_listed(left_out)} bytes were not measured")

    return check


def left_out(rfc: str, of: dict[str, str]) -> Callable[[Made], Iterator[Deviation]]:
    """Return a check for tests of the suite that the plan left out, with their sections."""

    def check(made: Made) -> Iterator[Deviation]:
        for test, section in of.items():
            if test not in made.tests:
                yield Deviation(rfc, section, f"the test ({test.replace('-', ' ')}) was left out")

    return check


def streams(rfc: str, section: str, test: str, least_s: float) -> Callable[[Made], Iterator[Deviation]]:
    """Return a check for streams at the throughput that were too short, or too few."""

    def check(made: Made) -> Iterator[Deviation]:
        lasted, times = made.shortest_s.get(test), made.trials.get(test, 0)
        if lasted is not None and lasted < least_s:
            yield Deviation(rfc, section, f"streams lasted {lasted:g} s, not {least_s:g} s")
        if lasted is not None and times < TIMES:
            yield Deviation(rfc, section, f"the test was made {times} times at a size, not at least {TIMES} times")
        if (share := made.slowest_share.get(test, 1.0)) < AS_FAST:
            sentence = f"the slowest stream had {100 * share:.0f} % of the throughput: the tester sent no faster"
            yield Deviation(rfc, section, sentence)

    return check


def final_trials(
    rfc: str, section: str, least_s: float, tests: Collection[str]
) -> Callable[[Made], Iterator[Deviation]]:
    """Return a check for final trials that were too short."""

    def check(made: Made) -> Iterator[Deviation]:
        of_search = [made.final_s] if {"throughput", "broadcast-forwarding"} & made.shortest_s.keys() else []
        lasted = min(
            [*of_search, *(made.shortest_s[test] for test in tests if test in made.shortest_s)], default=least_s
        )
        if lasted < least_s:
            yield Deviation(rfc, section, f"final trials lasted {lasted:g} s, not {least_s:g} s")
        if made.cut_short:
            what = "search" if made.cut_short == 1 else "searches"
            sentence = f"time ended {made.cut_short} {what} before all trials of the final duration were made"
            yield Deviation(rfc, section, sentence)

    return check


def residual_frames(made: Made) -> Iterator[Deviation]:
    """Check the waiting times after a trial."""
    if made.grace_s < RESIDUAL_S or made.ends_early:
        waited = f"residual frames were waited for {waited_for(made)}, not {RESIDUAL_S:g} s (step d)"
        yield Deviation("RFC 2544", "23", waited)
    if made.grace_s < RESIDUAL_S + REST_S or made.ends_early:
        rested = 0.0 if made.ends_early else max(0.0, made.grace_s - RESIDUAL_S)
        yield Deviation("RFC 2544", "23", f"the device then had a pause of {rested:g} s, not {REST_S:g} s (step e)")


def waited_for(made: Made) -> str:
    """Return how long a trial waited for late frames."""
    until = " at most, and no longer once each had arrived or was counted as dropped" if made.ends_early else ""
    return f"{made.grace_s:g} s{until}"


def frame_format(made: Made) -> Iterator[Deviation]:
    """Check for test frames that are not UDP."""
    others = sorted(made.engines - set(OF_UDP))
    if others:
        yield Deviation("RFC 2544", "8", f"test frames were no UDP datagrams (engine {', '.join(others)})")


def maximum_rate(made: Made) -> Iterator[Deviation]:
    """Check the definition of 100 % load, where links have no rate."""
    if not made.has_line_rate:
        sentence = "the links have no rate: the highest load is the tester zero-loss rate, not that of the medium"
        yield Deviation("RFC 2544", "20", sentence)


def loss_verification(made: Made) -> Iterator[Deviation]:
    """Check for the verification of losses, which the RFC does not have."""
    if made.verifies_loss:
        sentence = "in binary searches a loss counted only if a second trial repeated it (ETSI GS NFV-TST 009, 12.3)"
        yield Deviation("RFC 2544", "26.1", sentence)


def loss_steps(made: Made) -> Iterator[Deviation]:
    """Check for steps of the offered load that are too coarse."""
    if "frame-loss" in made.tests and made.loss_step > MOST_STEP:
        step = (
            f"the offered load fell by {100 * made.loss_step:g} % of the highest, not by {100 * MOST_STEP:g} % at most"
        )
        yield Deviation("RFC 2544", "26.3", step)


def bursts(made: Made) -> Iterator[Deviation]:
    """Check the bursts against RFC 9004, which updates RFC 2544's section 26.4."""
    searches = made.searches.get("back-to-back")
    if searches is None:
        return
    if searches < BURST_SEARCHES:
        repeated = f"the test was made {searches} times at a size, not {BURST_SEARCHES} times"
        yield Deviation("RFC 2544", "26.4", repeated)
    if made.burst_limit_s < BURST_S:
        tried = f"bursts of up to {made.burst_limit_s:g} s were tried, not of {BURST_S:g} s"
        yield Deviation("RFC 2544", "26.4", tried)
    if made.unfillable:
        where = _listed(list(made.unfillable))
        sentence = (
            f"bursts were also sent at {where} bytes, where the throughput is the highest rate: none fills a buffer"
        )
        yield Deviation("RFC 9004", "6.1", sentence)
    least = max(RESIDUAL_S, made.longest_burst_s)
    if made.grace_s < least or made.ends_early:
        at_most = " at most" if made.ends_early else ""
        waited = f"after a burst the buffers had {made.grace_s:g} s{at_most} to empty, not {least:.3g} s"
        yield Deviation("RFC 9004", "6.2", waited)
    if not made.has_line_rate:
        sentence = "the links have no rate: bursts were sent at the tester's maximum, not with the least interframe gap"
        yield Deviation("RFC 9004", "6.2", sentence)
        sentence = "the rate of the bursts stands for the maximum theoretical frame rate in the buffer time"
        yield Deviation("RFC 9004", "6.4", sentence)
    if made.unfilled:
        sentence = f"in {made.unfilled} searches the longest burst lies at the limit or near it, which is to be raised"
        yield Deviation("RFC 9004", "6.2", sentence)
    yield Deviation(
        "RFC 9004", "6.2", "bursts were doubled up to the first loss before the search halved (TST 009 only halves)"
    )


def broadcast_ports(made: Made) -> Iterator[Deviation]:
    """Check for receiving ports that were not counted."""
    if made.receivers > 1 and made.shortest_s.keys() & {"broadcast-forwarding", "broadcast-latency"}:
        yield Deviation("RFC 2889", "5.10", f"broadcast frames were judged at one of {made.receivers} receiving ports")


def _listed(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


CHECKS: dict[str, tuple[Callable[[Made], Iterator[Deviation]], ...]] = {
    "RFC 2544": (
        sizes("RFC 2544", "9.1", SIZES),
        left_out("RFC 2544", {"throughput": "26.1", "latency": "26.2", "frame-loss": "26.3", "back-to-back": "26.4"}),
        frame_format,
        maximum_rate,
        residual_frames,
        final_trials("RFC 2544", "24", FINAL_S, ("frame-loss",)),
        loss_verification,
        streams("RFC 2544", "26.2", "latency", LATENCY_S),
        loss_steps,
        bursts,
    ),
    "RFC 8219": (
        sizes("RFC 8219", "5.1.1", SIZES_8219),
        left_out("RFC 8219", {"throughput": "7.1", "latency": "7.2", "pdv": "7.3.1", "ipdv": "7.3.2"}),
        frame_format,
        maximum_rate,
        residual_frames,
        final_trials("RFC 2544", "24", FINAL_S, ()),
        loss_verification,
        streams("RFC 8219", "7.2", "latency", LATENCY_S),
        streams("RFC 8219", "7.3.1", "pdv", VARIATION_S),
        streams("RFC 8219", "7.3.2", "ipdv", VARIATION_S),
    ),
    "RFC 2889": (
        sizes("RFC 2889", "4", SIZES),
        left_out(
            "RFC 2889",
            {
                "forward-pressure": "5.6",
                "address-capacity": "5.7",
                "learning-rate": "5.8",
                "broadcast-forwarding": "5.10",
                "broadcast-latency": "5.10",
            },
        ),
        final_trials("RFC 2889", "5.1.2", FINAL_2889_S, ("broadcast-latency",)),
        broadcast_ports,
    ),
}
"""Deviations that depend on a plan or on the course of a run; by the RFC that a suite follows."""

ONE_WAY = "frames went one way, not both at once"
ALWAYS: dict[str, tuple[Deviation, ...]] = {
    "RFC 2544": (
        Deviation("RFC 2544", "11", "no modifiers: no broadcast, management or routing frames, and no filters"),
        Deviation("RFC 2544", "12", "one pair of addresses, not also addresses of 256 networks"),
        Deviation("RFC 2544", "14", ONE_WAY),
        Deviation(
            "RFC 2544",
            "23",
            "the device learned the receivers' addresses once on a bed, not before each trial (step b)",
        ),
        Deviation("RFC 2544", "26.2", "all frames of a stream were timed, not one tagged frame after 60 s"),
        Deviation("RFC 2544", "26.2", "not also with test frames to a new destination network"),
        Deviation("RFC 2544", "26.5", "system recovery was not measured"),
        Deviation("RFC 2544", "26.6", "reset was not measured"),
    ),
    "RFC 8219": (
        Deviation(
            "RFC 8219", "1", "the device is no IPv6 transition technology: nothing is translated or encapsulated"
        ),
        Deviation("RFC 8219", "5.3", ONE_WAY),
        Deviation("RFC 8219", "7.2", "all frames of a stream were timed, not some after 60 s"),
        Deviation("RFC 8219", "7.4", "frame loss was not measured (study rfc2544)"),
        Deviation("RFC 8219", "7.5", "back-to-back frames were not measured (study rfc2544)"),
        Deviation("RFC 8219", "7.6", "system recovery was not measured"),
        Deviation("RFC 8219", "7.7", "reset was not measured"),
    ),
    "RFC 2889": (
        *(
            Deviation("RFC 2889", section, f"{what} was not measured")
            for section, what in (
                ("5.1", "fully meshed traffic"),
                ("5.2", "partially meshed traffic from one to many and many to one"),
                ("5.3", "partially meshed traffic of several devices"),
                ("5.4", "partially meshed unidirectional traffic"),
                ("5.5", "congestion control"),
                ("5.9", "filtering of errored frames"),
            )
        ),
        Deviation("RFC 2889", "5.7", "learned addresses were read from the bridge's table, not inferred from floods"),
        Deviation("RFC 2889", "5.8", "learned addresses were read from the bridge's table, not inferred from floods"),
    ),
}
"""Deviations that no plan of a method avoids."""
