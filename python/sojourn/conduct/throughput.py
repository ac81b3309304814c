"""The tester's limits on the direct link, and the throughput of paths, of which loads are shares.

The tester is qualified first: minimum delay, pacing error and zero-loss rate, for each engine and size. This detects
results near the tester's own limit. Judges no device.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from sojourn.conduct.asking import Engines
from sojourn.conduct.search import Unanswerable
from sojourn.errors import MachineError, RequestError
from sojourn.plan.sizes import stream_payload
from sojourn.plan.trial import Trial
from sojourn.plan.trials import Factors, qualify_trials, stream_cells
from sojourn.plan.types import DIRECT

if TYPE_CHECKING:
    from sojourn.conduct.tester import Outcome, Tester
    from sojourn.plan import Plan

FLOOD_NS = 200_000_000
REACH_NS = 50_000_000
"""The duration of a flood that only tests whether frames pass."""

FLOODS = 3
CLEAN_NS = 200_000_000
STEP = 0.93
"""The factor between successive rates, from the maximum rate down, until the tester loses nothing."""

LEAST_SHARE = 0.1
"""A tester that loses frames at this share of its maximum rate has no zero-loss rate."""

SENDERS = ("packet", "xdp")
RECEIVERS = ("live", "xdp", "packet")


@dataclass
class Limits:
    """Measured rates of a session, each measured once."""

    tester: Tester
    _paths: dict[tuple[str, int, str], float] = field(default_factory=dict)
    _clean: dict[tuple[str, int], float] = field(default_factory=dict)
    _whole: dict[tuple[str, int], float] = field(default_factory=dict)
    """The highest rate of any stream over the direct link without loss, floods included."""
    _flooded: dict[tuple[str, int], float] = field(default_factory=dict)
    """The highest rate of a flood on the direct link."""

    def note(self, outcome: Outcome) -> Outcome:
        """Record a stream of one sender over the direct link as a lower limit of the tester."""
        key = (outcome.trial.factors.engine, outcome.trial.factors.frame_bytes)
        if outcome.trial.path == DIRECT and outcome.trial.factors.senders == 1 and outcome.frames_sent:
            if outcome.lost == 0 and (not outcome.missed or outcome.short):
                self._whole[key] = max(outcome.sent_pps, self._whole.get(key, 0.0))
            if outcome.rate_pps is None:
                self._flooded[key] = max(outcome.sent_pps, self._flooded.get(key, 0.0))
        return outcome

    def is_beyond(self, rate_pps: float | None, frame_bytes: int, engine: str) -> bool:
        """Return whether a rate is above all rates that the tester has sent: a further attempt would not reach it."""
        return rate_pps is not None and rate_pps > self._flooded.get((engine, frame_bytes), float("inf"))

    def whole_pps(self, frame_bytes: int, engine: str) -> float | None:
        """Return the highest rate that was sent and received without loss on the direct link so far."""
        return self._whole.get((engine, frame_bytes))

    def path_pps(self, path: str, frame_bytes: int, engine: str = "auto") -> float:
        """Return the frames per second that a path carries when flooded: the median of a few short floods."""
        key = (path, frame_bytes, engine)
        if key not in self._paths:
            outcomes = [self.flood(path, frame_bytes, engine) for _ in range(FLOODS)]
            pps = statistics.median(one.carried_pps for one in outcomes)
            if pps == 0:
                raise MachineError(f"nothing comes through {path}: see `sojourn doctor`")
            self._paths[key] = pps
            blocks = [one.trial.block for one in outcomes]
            self.tester.session.log("path-throughput", device=path, frame_bytes=frame_bytes, pps=pps, blocks=blocks,
                                    send_engine=self.tester.engines.send if engine == "auto" else engine)  # fmt: skip
        return self._paths[key]

    def path_sent_pps(self, path: str, frame_bytes: int, engine: str = "auto") -> float:
        """Return the frames per second that the tester sends into a path without pacing: the rate of its bursts."""
        return statistics.median(self.flood(path, frame_bytes, engine).sent_pps for _ in range(FLOODS))

    def flood(self, path: str, frame_bytes: int, engine: str = "auto", duration_ns: int = FLOOD_NS) -> Outcome:
        """Run one short flood."""
        factors = plain(self.tester.session.plan, engine, frame_bytes, "flood")
        trial = self._qualifying(path, factors, duration_ns)
        return self.note(self.tester.once(self.tester.asked(trial, None)))

    def _qualifying(self, path: str, factors: Factors, duration_ns: int) -> Trial[Factors]:
        return Trial(self.tester.number(), path, 0, 0, 0, factors, 1, duration_ns=duration_ns, purpose="qualify",
                     own_link=True)  # fmt: skip

    def clean_pps(self, frame_bytes: int, engine: str = "auto") -> float:
        """Return the highest rate that the tester sends as requested and receives without loss on the direct link."""
        key = (engine, frame_bytes)
        if key not in self._clean:
            self._clean[key] = self._find_clean(frame_bytes, engine)
        return self._clean[key]

    def _find_clean(self, frame_bytes: int, engine: str) -> float:
        flood = self.path_pps(DIRECT, frame_bytes, engine)
        rate = flood
        while rate > max(flood * LEAST_SHARE, self.whole_pps(frame_bytes, engine) or 0.0):
            if self._is_clean(frame_bytes, engine, rate) or self._is_clean(frame_bytes, engine, rate):
                return rate
            rate *= STEP
        if whole := self.whole_pps(frame_bytes, engine):
            return whole
        raise Unanswerable(
            f"the tester loses frames of {frame_bytes} bytes even on the direct link at {rate:.0f} packets/s: "
            "let the machine come to rest, or take another engine"
        )

    def _is_clean(self, frame_bytes: int, engine: str, rate: float) -> bool:
        factors = replace(plain(self.tester.session.plan, engine, frame_bytes, "regular"), rate_pps=rate)
        trial = self._qualifying(DIRECT, factors, CLEAN_NS)
        outcome = self.note(self.tester.once(self.tester.asked(trial, rate)))
        return not outcome.missed and outcome.lost == 0


def plain(plan: Plan, engine: str, frame_bytes: int, schedule: str) -> Factors:
    """Return factors of one sender and one receiver, without a load."""
    tagged = plan.stream.vlan is not None
    return Factors(
        engine=engine,
        frame_bytes=frame_bytes,
        payload_bytes=stream_payload(engine, "frame_bytes", frame_bytes, tagged=tagged),
        schedule=schedule,
        rate_pps=None,
        interval_ns=None,
        rate_share=None,
        to="unicast",
        senders=1,
        receivers=0,
        load=0.0,
        load_via=None,
        kind="one-way",
    )


def choose_engines(tester: Tester) -> Engines:
    """Return the pair of engines with the highest rate on the direct link if the method needs it, or the plain one."""
    session = tester.session
    if session.site.simulated:
        return Engines("sim", "sim")
    if "auto" not in session.plan.stream.engine or not tester.floods:
        return Engines("packet", "packet")
    least = min(cell.frame_bytes for cell in stream_cells(session.plan))
    found: dict[Engines, float] = {}
    refused: dict[str, str] = {}
    for pair in candidates(session.plan):
        tester.engines = pair
        try:
            pps = Limits(tester).flood(DIRECT, least).received_pps
            if reaches_all(tester, pair, least):
                found[pair] = pps
        except (MachineError, RequestError) as error:
            refused[f"{pair.send} to {pair.receive}"] = str(error)
        if pair.send == "live" and pair in found:
            break  # no other engine is nearly as fast
    if not found:
        raise MachineError(f"no engine works here: {'; '.join(refused.values())}")
    best = max(found, key=lambda pair: found[pair])
    session.log("engine-chosen", send=best.send, receive=best.receive, refused=refused,
                received_pps={f"{pair.send} to {pair.receive}": pps for pair, pps in found.items()})  # fmt: skip
    return best


def candidates(plan: Plan) -> list[Engines]:
    """Return the pairs to try: the live engine only for untagged streams of one sender, regular or at maximum rate."""
    cells, others = stream_cells(plan), [Engines(send, receive) for receive, send in product(RECEIVERS, SENDERS)]
    plain_enough = plan.stream.vlan is None and plan.stream.pcp is None and all(
        cell.senders == 1 and cell.kind == "one-way" and cell.schedule in ("flood", "regular") for cell in cells
    )  # fmt: skip
    return [Engines("live", "live"), *others] if plain_enough else others


def reaches_all(tester: Tester, pair: Engines, frame_bytes: int) -> bool:
    """Return whether frames pass every path; the live engine needs ports that poll, so all paths are prepared alike."""
    if pair.send != "live":
        return True
    links = tester.session.site.bed.topology.links
    tester.engines = pair
    for link in links:
        tester.session.site.bed.prepare_live(link.path)
    dead = [link.path for link in links if not link.is_bypass
            and Limits(tester).flood(link.path, frame_bytes, duration_ns=REACH_NS).frames_received == 0]  # fmt: skip
    if dead:
        raise MachineError(f"no live frame comes through {', '.join(dead)}")
    return True


def qualify(limits: Limits) -> None:
    """Measure the tester on the direct link: minimum delay, pacing error, maximum and zero-loss rate."""
    tester = limits.tester
    outcomes: dict[tuple[str, int], list[Outcome]] = {}
    for trial in qualify_trials(tester.session.plan):
        numbered = replace(trial, block=tester.number()) if tester.session.part.number else trial
        outcome = limits.note(tester.once(tester.asked(numbered, trial.factors.rate_pps)))
        outcomes.setdefault((trial.factors.engine, trial.factors.frame_bytes), []).append(outcome)
    for (engine, frame_bytes), found in outcomes.items():
        tester.session.log("qualified", frame_bytes=frame_bytes, **clean(limits, frame_bytes, engine),
                           **qualities(found, one_clock=tester.session.site.bed.backend.one_clock),
                           **engines_of(tester, engine))  # fmt: skip


def clean(limits: Limits, frame_bytes: int, engine: str) -> dict[str, Any]:
    """Return the tester's zero-loss rate if the method needs high rates; or why there is none."""
    if not limits.tester.floods:
        return {"clean_pps": limits.whole_pps(frame_bytes, engine)}
    try:
        return {"clean_pps": limits.clean_pps(frame_bytes, engine)}
    except Unanswerable as why:
        return {"clean_pps": None, "sentence": str(why)}


def engines_of(tester: Tester, engine: str) -> dict[str, str]:
    """Return the sending and receiving engines for this engine of the plan."""
    auto = tester.engines if engine == "auto" else Engines(engine, engine)
    return {"send_engine": auto.send, "receive_engine": auto.receive}


def qualities(found: list[Outcome], *, one_clock: bool) -> dict[str, Any]:
    """Return the tester's own figures; without a delay between clocks whose offset is not measured."""
    paced = [one for one in found if one.rate_pps is not None]
    floods = [one for one in found if one.rate_pps is None]
    least = min(paced, key=lambda one: one.rate_pps or 0.0, default=None) if one_clock else None
    delay = next((flow["delay_ns"] for flow in least.received if flow["port"] == 0), None) if least else None
    return {
        "floor_ns": {"min": delay["min"], "p50": delay["p50"]} if delay else None,
        "pacing": [pacing(one) for one in paced],
        "flood_pps": max((one.sent_pps for one in floods), default=None),
        "flood_received_pps": max((one.received_pps for one in floods), default=None),
    }


def pacing(outcome: Outcome) -> dict[str, Any]:
    """Return the pacing figures of one stream."""
    flow = outcome.sent[0]
    return {
        "rate_pps": outcome.rate_pps,
        "achieved_pps": flow["achieved_pps"],
        "within_1us": flow.get("within_1us"),
        "within_10us": flow.get("within_10us"),
        "p99_ns": (flow.get("pacing_error_ns") or {}).get("p99"),
    }
