"""Trials that are searches: throughput and tests at that rate (RFC 2544, 9004, RFC 8219), tests of switches (RFC 2889).

Each search is one question for one path and frame size; its answer, or why there is none, is logged. `search` decides
which load is tried next. Does not run a single trial itself (tester does).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sojourn.conduct import addresses
from sojourn.conduct.asking import MOST_KEPT, link_number
from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.search import TIME_WAS_UP, LoadMissed, Terms, Unanswerable, find, longest
from sojourn.conduct.streams import recorded_streams, testing
from sojourn.conduct.tester import PLAIN
from sojourn.conduct.throughput import plain
from sojourn.plan.trial import Trial
from sojourn.records.log import read_log
from sojourn.records.lost import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.conduct.search import Bounds
    from sojourn.conduct.tester import Outcome
    from sojourn.conduct.throughput import Limits
    from sojourn.plan import Plan
    from sojourn.plan.searches import Sought
    from sojourn.plan.trials import Factors
    from sojourn.records import RunFolder

TESTER_LIMITED = 0.9
"""A result above this share of the tester's zero-loss rate may be the tester's, and is marked as such."""

ALIVE_PPS = 500.0
ALIVE_FRAMES = 100
LONGEST_SECONDS = 14_400.0
BURST_WIDTH = 0.01
LEAST_BURST = 64
"""No buffer here is smaller: the live engine sends frames in such batches."""

WEIGHTS = {"throughput": 10.0, "broadcast-forwarding": 10.0}
LOSSLESS_STEPS = 2
"""RFC 2544, 26.3: the load is lowered until this many loads in a row had no loss."""


class Searches(Bench):
    """Searches one after another, each within its share of the remaining time."""

    def __init__(self, limits: Limits, owed: Sequence[Trial[Sought]], clock: Clock) -> None:
        self._limits = limits
        self._left = list(owed)
        self._clock = clock
        self._found = Found()

    def measure(self, trial: Trial[Sought]) -> None:
        """Run one search."""
        left = self._clock.left_seconds
        seconds = LONGEST_SECONDS if left is None else max(0.0, share(self._left) * left)
        self._left.remove(trial)
        Searcher(self._limits, trial, self._found, seconds).run()


@contextmanager
def open_searches(session: Session, clock: Clock) -> Iterator[Bench]:
    """Start and qualify the tester."""
    with testing(session, floods=True, all_stamps=False) as limits:
        yield Searches(limits, session.part.owed, clock)


def whole_searches(folder: RunFolder, plan: Plan) -> set[int]:
    """Return the searches of complete repetitions, each with a result or a reason for none, and with its records.

    An interrupted repetition is measured again: its tests use the throughput found on the same bed.
    """
    recorded = recorded_streams(folder)
    told = {
        entry["search"]
        for part, entry in in_parts(read_log(folder.log, {"started", "search-result"}), "search-result")
        if all((part, block) in recorded for block in entry.get("trials") or ())
    }
    every = plan.expand()
    cut = {trial.round for trial in every if trial.block not in told}
    return {trial.block for trial in every if trial.round not in cut}


SEARCHES = Measure(open_searches, whole_searches)
"""The measurement of suites."""


def share(left: Sequence[Trial[Sought]]) -> float:
    """Return the share of the remaining time for the next search: throughput needs far more trials than others."""
    return WEIGHTS.get(left[0].factors.test, 1.0) / sum(WEIGHTS.get(one.factors.test, 1.0) for one in left)


@dataclass
class Found:
    """Results that later tests of the same path and size need."""

    pps: dict[tuple[str, str, int, int], float] = field(default_factory=dict)
    """Throughput at the strictest goal, by test, device, frame size and repetition."""
    burst_pps: dict[tuple[str, int], float] = field(default_factory=dict)
    """The rate at which the tester sends bursts into a path, by device and frame size."""
    ceiling: dict[tuple[str, int], float] = field(default_factory=dict)
    """The highest load that the tester sends on a path, by device and frame size.

    Where sender and device share a core, this is less than on the direct link.
    """
    alive: set[tuple[str, int]] = field(default_factory=set)
    reached: dict[tuple[str, int], float] = field(default_factory=dict)
    """The highest rate that the tester reached where it could not send the load, by device and frame size."""


@dataclass
class Searcher:
    """One search: its trials so far, and the methods for each test."""

    limits: Limits
    trial: Trial[Sought]
    found: Found
    seconds: float
    """Its share of the time, in seconds."""
    blocks: list[int] = field(default_factory=list)
    _tester_pps: float = 0.0

    @property
    def search(self) -> Sought:
        """The factors of the search."""
        return self.trial.factors

    def run(self) -> None:
        """Find the result and log it; a dead path is reported, not searched."""
        test = self.search.test
        try:
            self.require_alive()
            self._tester_pps = self.limits.clean_pps(self.search.frame_bytes, self.search.engine)
            TESTS[test](self)
        except (Unanswerable, LoadMissed) as error:
            self.conclude(sentence=str(error))

    def conclude(self, bounds: Bounds | None = None, sentence: str | None = None, **extra: Any) -> None:
        """Log the result for one goal, or for a test without goals."""
        search = self.search
        lower = bounds.lower_pps if bounds else extra.get("lower_pps")
        ceiling = self.highest_pps()
        self.limits.tester.session.log(
            "search-result",
            search=self.trial.block,
            test=search.test,
            algorithm=search.algorithm,
            device=self.trial.device,
            link=link_number(self.trial),
            frame_bytes=search.frame_bytes,
            repetition=self.trial.round,
            goal=bounds.goal if bounds else None,
            lower_pps=lower,
            upper_pps=bounds.upper_pps if bounds else extra.get("upper_pps"),
            conditional_pps=bounds.conditional_pps if bounds else None,
            trials=self.blocks,
            tester_pps=self._tester_pps or None,
            ceiling_pps=ceiling or None,
            tester_limited=lower is not None and lower > TESTER_LIMITED * ceiling,
            sentence=bounds.sentence if bounds else sentence,
            cut_short=bounds is not None and bounds.sentence == TIME_WAS_UP,
            extra={name: value for name, value in extra.items() if name not in ("lower_pps", "upper_pps")},
        )

    def require_alive(self) -> None:
        """Send a few frames at a rate that any path carries: a search on a dead path would converge to nonsense."""
        key = (self.trial.path, self.search.frame_bytes)
        if key in self.found.alive:
            return
        outcome = self.stream(ALIVE_PPS, ALIVE_FRAMES / ALIVE_PPS, judged=False)
        if outcome.frames_received * 2 < outcome.frames_sent:
            raise Unanswerable(
                f"{self.trial.device} is dead: of {outcome.frames_sent} frames at {ALIVE_PPS:.0f} packets/s, "
                f"{outcome.frames_received} arrived"
            )
        self.found.alive.add(key)

    def throughput(self, to: str = "unicast") -> None:
        """Search for the highest load that meets each goal."""
        plan = self.limits.tester.session.plan.search
        terms = Terms(
            goals=self.search.goals,
            width=plan.width,
            initial_seconds=plan.initial_duration_ns / 1e9,
            final_seconds=plan.duration_ns / 1e9,
            sum_seconds=plan.duration_sum_ns / 1e9,
            exceed_ratio=plan.exceed_ratio,
            verify_loss=plan.verify_loss,
            at_most_seconds=self.seconds,
        )

        def measure(rate_pps: float, seconds: float, *, verifies: bool = False) -> Outcome:
            return self.stream(rate_pps, seconds, to=to, verifies=verifies)

        for bounds in find(self.search.algorithm, measure, self.highest_pps(), terms):
            if bounds.ceiling_pps is not None:
                self.found.ceiling[self.trial.device, self.search.frame_bytes] = bounds.ceiling_pps
            if bounds.lower_pps is not None and bounds.goal == min(terms.goals):
                key = (self.search.test, self.trial.device, self.search.frame_bytes, self.trial.round)
                self.found.pps[key] = bounds.lower_pps
            self.conclude(bounds)

    def highest_pps(self) -> float:
        """Return the first load of a search: the plan's limit, but at most what the tester can send here."""
        search, asked = self.search, self.limits.tester.session.plan.search.max_rate
        most = asked.pps(search.frame_bytes) if asked is not None else None
        key = (self.trial.device, search.frame_bytes)
        own = min(found.get(key, self._tester_pps) for found in (self.found.ceiling, self.found.reached))
        own = min(self._tester_pps, own)
        return own if most is None else min(most, own)

    def throughput_pps(self, test: str = "throughput") -> float:
        """Return the result of an earlier search for this path and size, at its strictest goal."""
        pps = self.found.pps.get((test, self.trial.device, self.search.frame_bytes, self.trial.round))
        if pps is None:
            raise Unanswerable(
                f"there is no {test} at {self.search.frame_bytes} bytes to measure {self.search.test} at"
            )
        return pps

    def at_throughput(self, to: str = "unicast", of: str = "throughput") -> None:
        """Measure streams at the throughput found before: their delays and delay variation are recorded."""
        plan = self.limits.tester.session.plan.search
        rate = self.throughput_pps(of)
        seconds = min(plan.latency_duration_ns / 1e9, max(0.1, self.seconds / plan.latency_repetitions))
        one_clock = self.limits.tester.session.site.bed.backend.one_clock
        if not one_clock and rate:
            seconds = min(seconds, MOST_KEPT / rate)
        outcomes = [
            self.stream(rate, seconds, to=to, judged=False, is_timed=not one_clock)
            for _ in range(plan.latency_repetitions)
        ]
        delays = [flow["delay_ns"] for one in outcomes for flow in one.received if flow["port"] == 0 and one_clock]
        lost = sum(one.lost for one in outcomes)
        self.conclude(lower_pps=rate, repetitions=len(outcomes), duration_s=seconds, delays_ns=delays, lost=lost,
                      missed=sum(one.missed for one in outcomes))  # fmt: skip

    def frame_loss(self) -> None:
        """Measure the loss at the full load, and at lower loads until two in a row have no loss."""
        plan = self.limits.tester.session.plan.search
        highest, steps, clean = self.highest_pps(), [], 0
        seconds = self.shortened(plan.loss_step)
        share = 1.0
        while share > plan.loss_step / 2 and clean < LOSSLESS_STEPS:
            outcome = self.stream(share * highest, seconds, judged=False)
            offered = outcome.sent_pps if outcome.short else share * highest
            step = {"share": round(share, 6), "offered_pps": offered, "loss_ratio": outcome.loss_ratio}
            steps.append(step | {"missed": outcome.missed and not outcome.short})
            clean = clean + 1 if outcome.lost == 0 else 0
            share -= plan.loss_step
        self.conclude(highest_pps=highest, steps=steps, duration_s=seconds)

    def shortened(self, share: float) -> float:
        """Return the duration of a trial that may take this share of the search's time; at least the plan's minimum."""
        plan = self.limits.tester.session.plan.search
        least, most = float(plan.initial_duration_ns), float(plan.duration_ns)
        return min(most / 1e9, max(least / 1e9, self.seconds * share))

    def back_to_back(self) -> None:
        """Search for the longest burst without loss, and correct it for the frames forwarded meanwhile (RFC 9004)."""
        plan = self.limits.tester.session.plan.search
        burst_pps = self.burst_pps()
        most = max(2, round(burst_pps * plan.burst_ns / 1e9))
        width = max(BURST_WIDTH, plan.width)
        frames, upper = longest(self.burst_holds, most, width, least=min(LEAST_BURST, most))
        served = self.found.pps.get(("throughput", self.trial.device, self.search.frame_bytes, self.trial.round), 0.0)
        implied_s = frames / burst_pps
        unfilled = "" if upper else f"a burst of {frames} frames, the longest tried, does not fill the buffer"
        self.conclude(
            sentence=unfilled or None,
            frames=frames,
            lost_at=upper,
            longest_tried=most,
            width=width,
            burst_pps=burst_pps,
            throughput_pps=served or None,
            implied_buffer_s=implied_s,
            corrected_buffer_s=max(0.0, implied_s * (1 - served / burst_pps)) if served else None,
            corrected_frames=max(0.0, frames * (1 - served / burst_pps)) if served else None,
        )

    def burst_pps(self) -> float:
        """Return the rate of bursts into this path at this size, measured once on a bed."""
        key = (self.trial.device, self.search.frame_bytes)
        if key not in self.found.burst_pps:
            self.found.burst_pps[key] = self.limits.path_sent_pps(*key, self.search.engine)
        return self.found.burst_pps[key]

    def burst_holds(self, frames: int) -> bool:
        """Return whether a burst has no loss; with loss verification, a lossy one is tried once more."""
        verify = self.limits.tester.session.plan.search.verify_loss
        return any(
            self.burst(frames, verifies=verifies).lost == 0 for verifies in ((False, True) if verify else (False,))
        )

    def burst(self, frames: int, *, verifies: bool = False) -> Outcome:
        """Send frames back to back."""
        factors = plain(self.limits.tester.session.plan, self.search.engine, self.search.frame_bytes, "flood")
        longest_ns = 10 * self.limits.tester.session.plan.search.burst_ns
        trial = self._step(factors, frames, longest_ns)
        outcome = self.limits.tester.once(self.limits.tester.asked(trial, None), search=self.trial.block)
        self._log_step(outcome, frames=frames, verifies=verifies)
        return outcome

    def forward_pressure(self) -> None:
        """Test whether an overloaded device sends faster than its link allows."""
        bed, search = self.limits.tester.session.plan.bed, self.search
        if bed.rate_bps is None:
            self.conclude(sentence="does not apply: these links have no rate that could be exceeded (bed.rate)")
            return
        allowed = bed.rate_bps / (8 * search.frame_bytes)
        seconds = self.shortened(1.0)
        outcome = self.stream(min(self.highest_pps(), 2 * allowed), seconds, judged=False)
        self.conclude(allowed_pps=allowed, offered_pps=outcome.sent_pps, received_pps=outcome.received_pps,
                      exceeds=outcome.received_pps > 1.01 * allowed)  # fmt: skip

    def address_capacity(self) -> None:
        """Search for the number of addresses that the device can learn and keep."""
        most = self.limits.tester.session.plan.search.most_addresses
        lesson = self._lesson()
        known, unknown = longest(lambda count: lesson.learn(count, None).learned >= count, most, BURST_WIDTH)
        sentence = None if unknown else f"all of {known} addresses, the most that were tried, are known"
        self.conclude(sentence=sentence, addresses=known, forgotten_at=unknown, lessons=lesson.log)

    def learning_rate(self) -> None:
        """Search for the highest rate of frames with new addresses at which all of them are learned."""
        plan = self.limits.tester.session.plan.search
        lesson = self._lesson()
        count = min(plan.most_addresses, addresses.LESSON)
        flood = lesson.learn(count, None)
        rate, upper = flood.sent_pps, None
        if flood.learned < count:
            step = 1000
            lower, above = longest(lambda k: lesson.learn(count, step * k).learned >= count,
                                   max(1, int(rate // step)), plan.width)  # fmt: skip
            rate, upper = float(step * lower), None if above is None else float(step * above)
        sentence = None if upper else f"all of {count} addresses are learned at {rate:.0f}/s, the tester's fastest"
        self.conclude(sentence=sentence, lower_pps=rate, upper_pps=upper, addresses=count, lessons=lesson.log)

    def _lesson(self) -> addresses.Lesson:
        return addresses.Lesson(self.limits.tester, self.limits.tester.link(self.trial.path))

    def stream(
        self, rate_pps: float, seconds: float, *, to: str = "unicast", verifies: bool = False, judged: bool = True,
        is_timed: bool = False,
    ) -> Outcome:  # fmt: skip
        """Measure one trial; raises LoadMissed for a load that the tester still misses after its repetitions.

        `is_timed`: between two clocks, with every frame recorded and exchanges, by engines that do both.
        """
        tester, search = self.limits.tester, self.search
        steady = plain(tester.session.plan, search.engine, search.frame_bytes, "regular")
        factors = replace(steady, rate_pps=rate_pps, to=to)
        trial = self._step(factors, max(2, round(rate_pps * seconds)), round(seconds * 1e9))
        key = (self.trial.device, search.frame_bytes)
        reached = self.found.reached.get(key, 0.0)
        asked = tester.asked(trial, rate_pps)
        if is_timed:
            asked = replace(asked, is_timed=True, engines=PLAIN if "live" in asked.engines else asked.engines)
        outcome = tester.measure(asked, reached_pps=reached, search=self.trial.block)
        if outcome.short and not is_timed:  # a valid trial of the rate that was sent
            self.found.reached[key] = max(outcome.sent_pps, reached)
        made = outcome.sent_pps if outcome.short else rate_pps
        self._log_step(outcome, rate_pps=made, asked_pps=rate_pps, duration_s=seconds, verifies=verifies)
        if judged and outcome.missed and not outcome.short:
            raise LoadMissed(rate_pps, outcome.sent_pps)
        return outcome

    def _step(self, factors: Factors, count: int, duration_ns: int) -> Trial[Factors]:
        of, number = self.trial, self.limits.tester.number()
        return Trial(number, of.device, of.round, 0, 0, factors, of.seed, count, duration_ns=duration_ns,
                     purpose="search", second=of.second)  # fmt: skip

    def _log_step(self, outcome: Outcome, *, verifies: bool, **load: Any) -> None:
        before = self.blocks[-1] if verifies and self.blocks else None
        self.blocks.append(outcome.trial.block)
        self.limits.tester.session.log(
            "search-step",
            search=self.trial.block,
            test=self.search.test,
            algorithm=self.search.algorithm,
            device=self.trial.device,
            link=link_number(self.trial),
            frame_bytes=self.search.frame_bytes,
            repetition=self.trial.round,
            block=outcome.trial.block,
            **load,
            sent=outcome.frames_sent,
            received=outcome.frames_received,
            loss_ratio=outcome.loss_ratio,
            missed=outcome.missed and not outcome.short,
            short=outcome.short,
            verifies=before,
        )


TESTS: dict[str, Callable[[Searcher], None]] = {
    "throughput": Searcher.throughput,
    "latency": Searcher.at_throughput,
    "pdv": Searcher.at_throughput,
    "ipdv": Searcher.at_throughput,
    "frame-loss": Searcher.frame_loss,
    "back-to-back": Searcher.back_to_back,
    "broadcast-forwarding": lambda searcher: searcher.throughput("broadcast"),
    "broadcast-latency": lambda searcher: searcher.at_throughput("broadcast", "broadcast-forwarding"),
    "forward-pressure": Searcher.forward_pressure,
    "address-capacity": Searcher.address_capacity,
    "learning-rate": Searcher.learning_rate,
}
