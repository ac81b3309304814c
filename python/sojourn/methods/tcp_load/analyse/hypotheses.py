"""What is known of TCP, each a hypothesis tested with the flows of a run: supported, rejected, or inconclusive.

- full-at-one-product: with a queue of one bandwidth-delay product, one flow of Reno or CUBIC uses 95 % of the rate.
- mathis: under random loss p, Reno's goodput is MSS / RTT · √(3/2) / √p, within a factor (Mathis, Semke, Mahdavi and
  Ott, 1997; the kernel counts acknowledged segments, so that delayed acknowledgements do not slow it).
- cubic-region: under random loss p, CUBIC's goodput is MSS / RTT times the larger of two average windows, within a
  factor: 1.054 · (RTT / p)^(3/4), CUBIC's own, and Reno's √(3/2) / √p, which CUBIC keeps to where it is the larger one
  (its Reno-friendly region; RFC 9438, sections 4.3, 5.1 and 5.2).
- bbr-share-falls: the share that a flow of BBR gets beside one of CUBIC is smaller with the largest queue than with the
  smallest.
- reno-share-by-rtt: flows of Reno with different round trips R behind one drop-tail queue get goodputs that go as R^-k
  with k from 1 (each packet is lost with the same probability) to 2 (all flows lose at the same moments), R being the
  round trip under load (Lakshman and Madhow, 1997).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.hypotheses import Outcome, inconclusive
from sojourn.analysis.rows import LoadSetting
from sojourn.analysis.sessions import figure_of
from sojourn.analysis.wording import counted, fixed, percent
from sojourn.methods.tcp_load.analyse.trials import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.tcp_load.analyse.trials import Done
    from sojourn.statistics.interval import Interval

FULL_FRAME_BYTES = 1514
LEAST_USE = 0.95
"""Of the rate."""

ONE_PRODUCT = (0.8, 1.25)
"""Queues that count as one bandwidth-delay product: whole packets never make it exactly."""

MATHIS_FACTOR = 1.5
MATHIS_CONSTANT = math.sqrt(1.5)
CUBIC_FACTOR = 1.5
CUBIC_CONSTANT = (0.4 * (3 + 0.7) / (4 * (1 - 0.7))) ** 0.25
"""With C of 0.4 and a decrease to 0.7, as RFC 9438 and the kernel have them: 1.054 (segments, s)."""

LIMITED_BY_RATE = 0.8
"""Where the formula exceeds this part of the link's rate, the link decides, and the formula is not tested."""

RTT_POWERS = (1.0, 2.0)
"""From and to which power of the round trip the goodput of Reno falls with it."""

LEAST_TURNS = 40
"""So many of the longest round trips the working conditions must last, for windows to go up and down several times."""

ALONE = ("reno", "cubic")
RENO, CUBIC, BBR = "reno", "cubic", "bbr"
TAIL = "tail"
"""Where a queue drops by default."""


@dataclass(frozen=True, slots=True)
class Pipe:
    """What an emulator was set to in one direction."""

    rate_bps: float
    round_trip_s: float
    """Of both directions' delays."""
    queue_bytes: float
    loss: float
    """The probability of a loss at random; 0 where there is none."""

    @property
    def products(self) -> float:
        """The queue in bandwidth-delay products."""
        return self.queue_bytes / (self.rate_bps / 8 * self.round_trip_s)


def pipes_set(run: Run) -> dict[str, Pipe]:
    """By a cell's pipe, what its words came to; of pipes whose rate, delay and queue are known."""
    words = {int(entry["block"]): str(entry["factors"].get("pipe") or "") for entry in run.log
             if entry.get("event") == "load-trial"}  # fmt: skip
    several: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in run.log:
        if event.get("event") == "emulator-set" and event.get("block") in words:
            several[int(event["block"])][str(event.get("pipe"))] = event["to"]
    found: dict[str, Pipe] = {}
    for block, ways in several.items():
        if (pipe := pipe_of(list(ways.values()))) is not None:
            found.setdefault(words[block], pipe)
    return found


def pipe_of(ways: Sequence[dict[str, Any]]) -> Pipe | None:
    """The pipe of these directions, which the built-in plan sets alike; None where something is not known."""
    link, delay, queue, before = ((ways[0].get(name) or {}) for name in ("link", "delay", "queue", "before"))
    limit, rate, losses = queue.get("limit") or {}, link.get("rate_bps"), before.get("loss") or []
    sizes = [limit["bytes"]] if limit.get("bytes") else []  # each limit that is given holds
    sizes += [FULL_FRAME_BYTES * limit["slots"]] if limit.get("slots") else []
    size = min(sizes, default=0)
    there = sum((one.get("delay") or {}).get("constant") or 0 for one in ways) * (2 / len(ways))
    if not rate or not size or not there or delay.get("jitter") or queue.get("aqm") or link.get("cell"):
        return None
    if delay.get("of_ports"):
        return None
    if (queue.get("scheduler") or "fifo") != "fifo":
        return None
    if len(losses) > 1 or any("independent" not in one for one in losses):
        return None
    loss = float(losses[0]["independent"]["probability"]) if losses else 0.0
    return Pipe(float(rate), there / 1e9, float(size), loss)


def mss_of(run: Run) -> float:
    """Bytes of user data in a full segment, as the senders' TCP has it."""
    sent = run.table("tcp_readings").frame.filter(pl.col("role") == "send")["mss_bytes"].drop_nulls()
    return float(sent.to_numpy().max(initial=0))


def reno_window(loss: float) -> float:
    """Reno's average window under this probability of loss, by Mathis' formula: segments."""
    return MATHIS_CONSTANT / math.sqrt(loss)


def cubic_window(loss: float, rtt_s: float) -> float:
    """CUBIC's average window outside of its Reno-friendly region, by RFC 9438, section 5.1: segments."""
    return CUBIC_CONSTANT * math.pow(rtt_s / loss, 0.75)


def formula_ratio(one: Done, pipes: dict[str, Pipe], mss_bytes: float) -> dict[tuple[str, str], float]:
    """Goodput over what its algorithm's formula gives, of a trial of one flow of Reno or CUBIC under random loss."""
    pipe, way = pipes.get(str(one.factors["pipe"])), one.direction
    rtt, goodput = one.values.get(("rtt_working", "mean")), one.values.get(("goodput", way))
    if (
        one.factors.get("background")
        or one.factors.get("round_trips")
        or pipe is None
        or not pipe.loss
        or one.factors["congestion"] not in ALONE
        or one.factors["flows"] != 1
    ):
        return {}
    if not rtt or goodput is None:
        return {}
    is_reno = one.factors["congestion"] == RENO
    window = reno_window(pipe.loss)
    if not is_reno:
        window = max(window, cubic_window(pipe.loss, rtt / 1e9))
    expected = 8 * mss_bytes / (rtt / 1e9) * window
    quantity = "mathis_ratio" if is_reno else "cubic_ratio"
    return {} if expected > LIMITED_BY_RATE * pipe.rate_bps else {(quantity, way): goodput / expected}


def tested(run: Run, several: Sequence[Done], rows: Sequence[Row]) -> list[Outcome]:
    """The outcomes of the plan's hypotheses."""
    pipes = pipes_set(run)
    several = [one for one in several if not one.factors.get("background") and not one.factors.get("round_trips")]
    alone = [row for row in rows if not (isinstance(row.setting, LoadSetting) and row.setting.background)]
    apart = [row for row in alone if isinstance(row.setting, LoadSetting) and row.setting.round_trips]
    rows = [row for row in alone if not (isinstance(row.setting, LoadSetting) and row.setting.round_trips)]
    known: dict[str, Callable[[str], Outcome]] = {
        "full-at-one-product": lambda name: full_at_one_product(name, rows, pipes),
        "mathis": lambda name: mathis(name, rows),
        "cubic-region": lambda name: cubic_region(name, rows, pipes),
        "bbr-share-falls": lambda name: bbr_share_falls(name, run, several, pipes),
        "reno-share-by-rtt": lambda name: reno_share_by_rtt(name, long_enough(run, apart), tail_drop(run)),
    }
    return [known.get(name, unknown)(name) for name in run.hypotheses]


def unknown(name: str) -> Outcome:
    """The outcome of a hypothesis of another version."""
    return inconclusive(name, "not tested: no such hypothesis is known")


def full_at_one_product(name: str, rows: Sequence[Row], pipes: dict[str, Pipe]) -> Outcome:
    """Whether each flow of Reno or CUBIC alone uses the link, in every cell with such a queue."""
    own = [row for row in rows if row.quantity == "utilisation" and is_of(row, ALONE)
           and (pipe := pipes.get(str(row.factors.pipe))) and not pipe.loss
           and ONE_PRODUCT[0] <= pipe.products <= ONE_PRODUCT[1]]  # fmt: skip
    if not own:
        return inconclusive(name, "not tested: no single flow of reno or cubic had a queue of one product")
    worst = min(own, key=lambda row: row.value.estimate)
    said = (
        f"with a queue of one bandwidth-delay product, one flow of {of_row(worst)} uses "
        f"{percent(worst.value.estimate)} of the rate, the least of {counted(len(own), 'cell')}"
    )
    outcomes = {within(row.value, LEAST_USE, math.inf) for row in own}
    return Outcome(name, joined(outcomes), said, worst.device, shown=worst.value, unit="1", expected=LEAST_USE)


def mathis(name: str, rows: Sequence[Row]) -> Outcome:
    """Whether goodput is the formula's within the factor, under every loss."""
    own = [row for row in rows if row.quantity == "mathis_ratio"]
    if not own:
        return inconclusive(name, "not tested: no single flow of reno had random loss that limits it")
    return by_formula(name, own, "Mathis' formula", MATHIS_FACTOR, counted(len(own), "cell"))


def cubic_region(name: str, rows: Sequence[Row], pipes: dict[str, Pipe]) -> Outcome:
    """Whether goodput is that of the region which the pipe's round trip and loss give, in both regions.

    A pipe distinguishes the regions only if their windows differ by more than the factor.
    """
    own = [(row, pipe) for row in rows
           if row.quantity == "cubic_ratio" and (pipe := pipes.get(str(row.factors.pipe))) is not None]  # fmt: skip
    larger = [cubic_window(pipe.loss, pipe.round_trip_s) / reno_window(pipe.loss) for _, pipe in own]
    inside = sum(ratio < 1 / CUBIC_FACTOR for ratio in larger)
    outside = sum(ratio > CUBIC_FACTOR for ratio in larger)
    if not inside or not outside:
        where = "outside" if inside else "in"
        lacking = f" well {where} the Reno-friendly region" if own else ""
        return inconclusive(name, f"not tested: no single flow of cubic{lacking} had random loss that limits it")
    cells = f"{counted(len(own), 'cell')}, {inside} well in the Reno-friendly region and {outside} well outside"
    return by_formula(name, [row for row, _ in own], "RFC 9438", CUBIC_FACTOR, cells)


def by_formula(name: str, own: Sequence[Row], formula: str, factor: float, cells: str) -> Outcome:
    """Whether what was measured over what a formula gives lies within a factor, in each of these cells."""
    worst = max(own, key=lambda row: abs(math.log(max(row.value.estimate, 1e-9))))
    said = (
        f"one flow of {of_row(worst)} over {worst.factors.pipe} gets {fixed(worst.value.estimate, 2)} times what "
        f"{formula} gives, the farthest from 1 of {cells}; the bounds are {fixed(1 / factor, 2)} and {fixed(factor, 2)}"
    )
    outcomes = {within(row.value, 1 / factor, factor) for row in own}
    return Outcome(name, joined(outcomes), said, worst.device, shown=worst.value, unit="1", expected=1.0)


def bbr_share_falls(name: str, run: Run, several: Sequence[Done], pipes: dict[str, Pipe]) -> Outcome:
    """Whether BBR's share is smaller with the largest queue than with the smallest, round by round."""
    groups: dict[tuple[Any, ...], dict[int, dict[float, tuple[int, float]]]] = defaultdict(lambda: defaultdict(dict))
    for one in several:
        names = str(one.factors["congestion"]).split("+")
        pipe = pipes.get(str(one.factors["pipe"]))
        share = one.values.get(("share", f"{one.direction} second"))
        if pipe and not pipe.loss and share is not None and names[1:] == [BBR] and names[0] != BBR:
            alike = (one.device, one.direction, names[0], pipe.rate_bps, pipe.round_trip_s)
            groups[alike][one.round][pipe.products] = (one.block, share)
    found = [_falls(name, run, by_round) for by_round in groups.values()]
    tested = [one for one in found if one is not None]
    if not tested:
        return inconclusive(name, "not tested: BBR did not join another algorithm with two sizes of queue in a round")
    outcome = joined(one.outcome for one in tested)
    return next(one for one in tested if one.outcome == outcome)


def _falls(name: str, run: Run, by_round: dict[int, dict[float, tuple[int, float]]]) -> Outcome | None:
    """Of trials that differ in the queue alone; None where no round has two sizes."""
    sizes = sorted({size for each in by_round.values() for size in each})
    pairs = [(each[sizes[0]], each[sizes[-1]]) for each in by_round.values() if {sizes[0], sizes[-1]} <= each.keys()]
    if len(sizes) < 2 or not pairs:
        return None
    blocks = np.array([small[0] for small, _ in pairs], dtype=np.int64)
    falls = figure_of(np.array([small[1] - large[1] for small, large in pairs]), run.sessions_of(blocks)).mean
    means = {size: float(np.mean([each[size][1] for each in by_round.values() if size in each])) for size in sizes}
    shares = ", ".join(f"{percent(share)} with {fixed(size, 1)}" for size, share in means.items())
    said = f"BBR's share of the goodput is {shares} bandwidth-delay products of queue"
    return Outcome(name, within(falls, 0.0, math.inf), said, shown=falls, unit="1", expected=0.0)


def tail_drop(run: Run) -> set[tuple[str, int | None]]:
    """The devices and cells whose emulators had one drop-tail queue with a rate each way, and lost nothing else."""
    trials = {int(entry["block"]): (str(entry["device"]), int(entry["cell"])) for entry in run.log
              if entry.get("event") == "load-trial"}  # fmt: skip
    ways: dict[tuple[str, int | None], bool] = {}
    for event in run.log:
        if event.get("event") == "emulator-set" and (trial := trials.get(event["block"])):
            ways[trial] = ways.get(trial, True) and is_tail_drop(event["to"])
    return {trial for trial, is_plain in ways.items() if is_plain}


def is_tail_drop(way: dict[str, Any]) -> bool:
    """Whether a pipe is one queue that drops what arrives when it is full, and a link with a rate."""
    link, queue, before, after = (way.get(name) or {} for name in ("link", "queue", "before", "after"))
    is_plain = not queue.get("aqm") and (queue.get("scheduler") or "fifo") == "fifo" and queue.get("drop", TAIL) == TAIL
    is_one = not any((link.get("trace"), link.get("cell"), way.get("mask"), (way.get("delay") or {}).get("jitter")))
    lossless = not before.get("loss") and not after.get("loss")
    return is_plain and is_one and lossless and bool(link.get("rate_bps"))


def long_enough(run: Run, rows: Sequence[Row]) -> list[Row]:
    """The rows of cells whose working conditions last so many of the longest round trips under load."""
    longest: dict[tuple[str, int | None], float] = defaultdict(float)
    for row in rows:
        if row.quantity == "tcp_rtt" and row.statistic.endswith(" working"):
            longest[row.device, row.cell] = max(longest[row.device, row.cell], row.value.estimate)
    lasts = parts_of(run)[1] if longest else 0.0
    return [row for row in rows if longest[row.device, row.cell] * LEAST_TURNS <= lasts]


def reno_share_by_rtt(name: str, rows: Sequence[Row], plain: set[tuple[str, int | None]]) -> Outcome:
    """Whether the goodput of Reno falls with the round trip under load by a power within the bounds, in every cell."""
    own = [row for row in rows if row.quantity == "rtt_exponent" and row.statistic.endswith(" working")
           and of_row(row) == RENO and (row.device, row.cell) in plain]  # fmt: skip
    if not own:
        said = f"not tested: no flows of reno shared a drop-tail queue for {LEAST_TURNS} of their longest round trips"
        return inconclusive(name, said)
    worst = max(own, key=lambda row: abs(row.value.estimate - sum(RTT_POWERS) / 2))
    said = (
        f"the goodput of reno behind a drop-tail queue goes as R^{fixed(-worst.value.estimate, 2)} with the round trip "
        f"R under load, the farthest from R^{fixed(-sum(RTT_POWERS) / 2, 1)} of {counted(len(own), 'cell')}; the "
        f"bounds are R^{fixed(-RTT_POWERS[0], 0)} and R^{fixed(-RTT_POWERS[1], 0)}"
    )
    outcomes = {within(row.value, *RTT_POWERS) for row in own}
    return Outcome(name, joined(outcomes), said, worst.device, shown=worst.value, unit="1")


def within(value: Interval, low: float, high: float) -> str:
    """Whether the whole interval lies between these, or outside of them, or neither."""
    if value.low is None or value.high is None:
        return "inconclusive"
    if low <= value.low and value.high <= high:
        return "supported"
    return "rejected" if value.high < low or value.low > high else "inconclusive"


def joined(outcomes: Iterable[str]) -> str:
    """Of several cells: one that rejects it is enough, and each must support it."""
    found = set(outcomes)
    return next((said for said in ("rejected", "inconclusive") if said in found), "supported")


def is_of(row: Row, algorithms: Sequence[str]) -> bool:
    """Whether a row is of one flow of one of these."""
    own = row.setting
    return isinstance(own, LoadSetting) and own.flows == 1 and own.congestion in algorithms


def of_row(row: Row) -> str:
    """The algorithm of a row."""
    return row.setting.congestion if isinstance(row.setting, LoadSetting) else ""
