"""Losses, configured against measured: how many, and in which pattern.

Checked twice: in the emulator's log, stage by stage, and from outside, by the sequence numbers of the frames that
arrived. Independent losses are checked with Clopper and Pearson's interval, the runs test, chi-square over the lengths
of gaps and bursts, and Ljung and Box's test of correlation. Losses of a chain are checked with an interval that allows
for the chain's memory, and with the lengths where the losses reveal its state, else with the correlation of neighbours.
Losses by count are checked exactly.

A share passes by an equivalence test: its whole 95 % interval lies within a tenth of the configured share (`ZONE`). A
share as configured passes with a probability of 90 % if there are as many packets as the check says it needs; with so
many, twice and half the loss fail. With fewer packets the check is inconclusive.

A test of randomness can fail a wrong emulator, but cannot prove a right one: without an alarm, losses are as random as
this many losses show. With fewer than 200 losses the test is inconclusive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.checks import Asked
from sojourn.methods.emulator.analyse.delay import binomial_p
from sojourn.methods.emulator.analyse.pipe import HEADER_BYTES
from sojourn.statistics.chain import Chain, bernoulli
from sojourn.statistics.proportion import trials_needed, worth_pearson
from sojourn.statistics.randomness import Test, age_test, autocorrelation, ljung_box, runs_test, two_sided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sojourn.methods.emulator.analyse.seen import Seen
    from sojourn.statistics.interval import Interval

ZONE = 0.1
"""The equivalence zone of a share, relative to the configured one: the precision for which `emulate verify --quick`
computes its packets. For a share above one half, relative to its complement."""

LEAST_LOSSES = 200
LAGS = 10
STAGES = ("before", "after")
PASSED = {"before": [], "after": ["before", "full", "managed", "profile", "rule", "memory"]}
"""The causes of loss before each stage."""


@dataclass(frozen=True)
class Share:
    """Lost packets, all packets, and the configured share; `worth` is the effective number of independent packets."""

    check: str
    of: str
    configured: float
    lost: int
    n: int
    worth: float

    @property
    def margin(self) -> float:
        """The largest allowed distance of the share from the configured one."""
        return ZONE * min(self.configured, 1 - self.configured)

    @property
    def zone(self) -> tuple[float, float]:
        """The range in which the whole interval must lie."""
        return self.configured - self.margin, self.configured + self.margin

    @property
    def needed(self) -> int:
        """Packets at which a share as configured passes nine times in ten."""
        return round(trials_needed(self.configured, self.margin) * self.n / self.worth)

    def reading(self, alpha: float) -> Interval:
        """Return the share with its interval, for a probability that the interval misses the true value."""
        return worth_pearson(self.lost, self.n, self.worth, 1 - alpha)

    def asked(self, what: str = "share of packets that were lost") -> Asked:
        """Return the check; a configured share of 0 or 1 needs no interval."""
        share, n = self.configured, self.n
        if share in (0.0, 1.0):
            wrong = self.lost if share == 0 else n - self.lost
            return Asked(self.check, self.of, 0.0, "packets", f"packets against: {what}", exact=wrong, n=n)
        p = binomial_p(self.lost, n, share) if self.worth >= n else _worth_p(self.lost / n, share, self.worth)
        return Asked(
            self.check, self.of, share, "ratio", what, self.reading, self.zone, self.margin, p, n=n, needed=self.needed
        )


@dataclass(frozen=True)
class Losses:
    """Which packets were lost, trial by trial, and the configured loss chain."""

    check: str
    of: str
    rows: Sequence[NDArray[np.bool_]]
    chain: Chain

    @property
    def share(self) -> Share:
        """The share of lost packets."""
        n, lost = sum(map(len, self.rows)), int(sum(row.sum() for row in self.rows))
        return Share(self.check, self.of, self.chain.loss, lost, n, min(float(n), n / self.chain.inflation))


def asked(seen: Seen, _limits: dict[str, float]) -> list[Asked]:
    """Return all checks of one pipe's losses, duplicates, bit errors and reordering."""
    found = [one for stage in STAGES for one in _stage(seen, stage)]
    found += [*_none_outside(seen), *(check for one in losses(seen) for check in against(one))]
    return [*found, *_copies(seen), *_bit_errors(seen), *_reordering(seen)]


def losses(seen: Seen) -> list[Losses]:
    """Return random losses that a chain describes: of each stage in the log, and of both from outside."""
    found = []
    for stage in STAGES if seen.has_log else ():
        chain = None if seen.pipe.periodic(stage) else seen.pipe.chain(stage, seen.interval_ns)
        if chain is not None:
            found.append(
                Losses(f"loss {stage} the link" if _both(seen) else "loss", "log", rows_of(seen, stage), chain)
            )
    outside = whole_chain(seen) if _is_countable(seen) else None
    if outside is not None:
        found.append(Losses("loss", "streams", seen.arrived, outside))
    return [one for one in found if any(map(len, one.rows))]


def rows_of(seen: Seen, stage: str) -> list[NDArray[np.bool_]]:
    """Return for every trial and flow, in order, whether each packet that reached the stage was lost there."""
    came = seen.log.filter(~pl.col("cause").is_in(PASSED[stage]) & pl.col("copy_of").is_null())
    return [(one["cause"] == stage).to_numpy() for one in came.partition_by("block", "flow", maintain_order=True)]


def _stage(seen: Seen, stage: str) -> list[Asked]:
    """Check losses of a stage that are not random: by count, or none at all."""
    if not seen.has_log:
        return []
    if counted := seen.pipe.periodic(stage):
        return [_by_count(rows_of(seen, stage), *counted, stage)]
    return [] if seen.pipe.losses(stage) else [_none(rows_of(seen, stage), stage)]


def _both(seen: Seen) -> bool:
    return all(seen.pipe.losses(stage) for stage in STAGES)


def _none(rows: Sequence[NDArray[np.bool_]], stage: str) -> Asked:
    lost = int(sum(row.sum() for row in rows))
    what = "packets lost in a stage without a loss model"
    return Asked(f"no loss {stage} the link", "log", 0.0, "packets", what, exact=lost, n=sum(map(len, rows)))


def _by_count(rows: Sequence[NDArray[np.bool_]], name: str, told: Any, stage: str) -> Asked:
    """Check losses by count (every n-th, or a pattern): how many packets deviate. The count may continue between
    trials.

    A trial shorter than the pattern does not count as compared packets: it may lack every loss.
    """
    if name == "every":
        longest = max(map(len, rows), default=0)
        # Of a longer period, too, a trial has one loss or none.
        pattern = np.arange(min(int(told["every"]), longest + 1)) == 0
    else:
        pattern = np.array(told["lost"], dtype=np.bool_)
    wrong = sum(deviating(row, pattern) for row in rows)
    whole = [row for row in rows if len(row) >= len(pattern)]
    what = f"packets that were lost or kept against the {name} model"
    return Asked(f"loss {stage} the link", "log", 0.0, "packets", what, exact=wrong, n=sum(map(len, whole)))


def deviating(row: NDArray[np.bool_], pattern: NDArray[np.bool_]) -> int:
    """Return how many packets of a trial were lost against a repeated pattern, or kept, wherever it began best."""
    period = len(pattern)
    places = np.arange(len(row)) % period
    # A packet that is lost in the pattern counts if it was kept, and no longer counts if it was lost.
    more = np.bincount(places, minlength=period) - 2 * np.bincount(places[row], minlength=period)
    by_start = np.fft.irfft(np.conj(np.fft.rfft(more)) * np.fft.rfft(pattern), period)
    return int(row.sum()) + int(np.rint(by_start.min()))


def _is_countable(seen: Seen) -> bool:
    """Return whether missing frames are the configured losses only."""
    return bool(
        seen.sends.height and not seen.pipe.loss_varies and not any(seen.pipe.corruption(stage) for stage in STAGES)
    )


def _none_outside(seen: Seen) -> list[Asked]:
    """Check for missing frames where no loss is configured."""
    if not _is_countable(seen) or any(seen.pipe.losses(stage) for stage in STAGES):
        return []
    lost, n = int(sum(row.sum() for row in seen.arrived)), sum(map(len, seen.arrived))
    beyond = max(0, lost - int(seen.trials["local_drops"].sum()))
    what = "frames that did not arrive (without the receiver's local drops)"
    return [Asked("no loss", "streams", 0.0, "packets", what, exact=beyond, n=n)]


def whole_chain(seen: Seen) -> Chain | None:
    """Return both stages as one chain, if at most one of them has memory."""
    chains = [one for stage in STAGES if (one := seen.pipe.chain(stage, seen.interval_ns)) is not None]
    if not chains or sum(bool(seen.pipe.losses(stage)) for stage in STAGES) != len(chains):
        return None
    if len(chains) == 1:
        return chains[0]
    plain = [one for one in chains if len(one.loses) == 1]
    if not plain:
        return None
    other = next((one for one in chains if one is not plain[0]), plain[0])
    kept = 1 - float(plain[0].loses[0])
    return (
        bernoulli(1 - kept * (1 - other.loss)) if len(plain) == 2 else Chain(other.moves, 1 - kept * (1 - other.loses))
    )


def against(losses: Losses) -> list[Asked]:
    """Check losses against a chain: their share, and their pattern."""
    rows, chain, of, name = losses.rows, losses.chain, losses.of, losses.check
    share = losses.share
    enough = min(share.lost, share.n - share.lost) >= LEAST_LOSSES
    found = [share.asked()]
    if not 0 < chain.loss < 1:
        return found
    if len(chain.loses) == 1:
        found += [_test(f"{name}, runs", of, runs_test(rows), "number of runs", enough)]
        numbers = [row.astype(np.float64) for row in rows]
        correlated = ljung_box(numbers, LAGS)
        found += [_test(f"{name}, correlation", of, correlated, f"Ljung and Box's Q of {LAGS} lags", enough)]
    else:
        found += [_neighbours(rows, chain, of, name, enough=enough)]
    if chain.is_renewal:
        found += [_ages(rows, chain, of, name, burst=burst, enough=enough) for burst in (False, True)]
    return found


def pooled(several: Sequence[Seen]) -> dict[str, list[Share]]:
    """Return for every pipe the shares of random losses, over all cells with this pipe."""
    found: dict[str, list[Share]] = {}
    for words in dict.fromkeys(one.words for one in several):
        shares = [one.share for seen in several if seen.words == words for one in losses(seen)]
        shares = [one for one in shares if 0 < one.configured < 1]
        for check, of in dict.fromkeys((one.check, one.of) for one in shares):
            own = [one for one in shares if (one.check, one.of) == (check, of)]
            lost, n, worth = (sum(getattr(one, name) for one in own) for name in ("lost", "n", "worth"))
            found.setdefault(words, []).append(Share(check, of, own[0].configured, lost, n, worth))
    return found


def _worth_p(found: float, share: float, worth: float) -> float:
    return two_sided((found - share) / (share * (1 - share) / worth) ** 0.5) if 0 < share < 1 else float(found == share)


def _test(name: str, of: str, found: Test, what: str, enough: bool) -> Asked:
    return Asked(name, of, found.expected, "1", what, p=found.p, enough=enough, measured=found.statistic, n=found.n)


def _ages(rows: Sequence[NDArray[np.bool_]], chain: Chain, of: str, name: str, *, burst: bool, enough: bool) -> Asked:
    """Return chi-square over the ages at which bursts (or gaps) end."""
    ends = chain.ends(burst)
    found = age_test(rows, burst, lambda ages: np.full(len(ages), ends))
    what = f"chi-square of the lengths of {'bursts' if burst else 'gaps'}"
    return _test(f"{name}, {'bursts' if burst else 'gaps'}", of, found, what, enough and found.expected > 0)


def _neighbours(rows: Sequence[NDArray[np.bool_]], chain: Chain, of: str, name: str, *, enough: bool) -> Asked:
    """Check the correlation of neighbouring packets, for a chain whose state the losses do not reveal."""
    numbers = [row.astype(np.float64) for row in rows]
    wanted = chain.correlation(1)
    found = autocorrelation(numbers, 1, chain.loss, 0.95)
    half = found.half_width
    p = two_sided((found.estimate - wanted) / (half / 1.96)) if half else float("nan")
    what = "correlation of the losses of neighbouring packets"
    return Asked(f"{name}, neighbours", of, wanted, "1", what, p=p, enough=enough, measured=found.estimate, n=found.n)


def _copies(seen: Seen) -> list[Asked]:
    """Check duplicates, in the log."""
    found = []
    for stage in STAGES:
        share = seen.pipe.duplication(stage)
        if share and seen.has_log:
            models = [model for one in STAGES for model in seen.pipe.losses(one)]
            first = seen.log.filter(pl.col("copy_of").is_null() & (pl.col("disposition") == "sent"))
            several = seen.log.filter(pl.col("copy_of").is_not_null())
            n, copies = first.height, several.height
            if n and not models:
                found.append(
                    _proportion(
                        f"duplicates {stage} the link", "share of packets that were duplicated", copies, n, share
                    )
                )
    return found


def _proportion(name: str, what: str, found: int, n: int, share: float) -> Asked:
    return Share(name, "log", share, found, n, float(n)).asked(what)


def _bit_errors(seen: Seen) -> list[Asked]:
    """Check bit errors: the share of flipped bits, or of packets with one."""
    told = [one for stage in STAGES if (one := seen.pipe.corruption(stage))]
    if len(told) != 1 or not seen.has_log:
        return []
    (name, share), rows = told[0], seen.log.filter((pl.col("disposition") == "sent") & pl.col("copy_of").is_null())
    if not rows.height:
        return []
    if name == "one-bit":
        damaged = int((rows["flipped"] > 0).sum())
        return [_proportion("bit errors", "share of packets with a flipped bit", damaged, rows.height, share)]
    bits = int(((rows["frame_bytes"].cast(pl.Int64) - 4 - HEADER_BYTES) * 8).sum())
    return [_proportion("bit errors", "share of bits that were flipped", int(rows["flipped"].sum()), bits, share)]


def _reordering(seen: Seen) -> list[Asked]:
    """Check the packets chosen to overtake, of those that reached the delay line."""
    told = seen.pipe.reorder
    if not told or not seen.has_log:
        return []
    rows = seen.log.filter(pl.col("drawn_ns").is_not_null() | pl.col("reordered"))
    share = reordered_share(float(told["probability"]), int(told.get("gap") or 1))
    if not rows.height:
        return []
    what = "share of packets that were sent ahead of their order"
    return [_proportion("reordering", what, int(rows["reordered"].sum()), rows.height, share)]


def reordered_share(probability: float, gap: int) -> float:
    """Return the share of reordered packets: after a chosen one the next gap - 1 are not eligible, then each by
    chance."""
    return 1 / (max(gap, 1) - 1 + 1 / probability) if probability > 0 else 0.0
