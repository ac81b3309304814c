"""Losses, configured against measured: how many, and in which pattern.

Checked twice: in the emulator's log, stage by stage, and from outside, by the sequence numbers of the frames that
arrived. Independent losses are checked with Clopper and Pearson's interval, the runs test, chi-square over the lengths
of gaps and bursts, and Ljung and Box's test of correlation. Losses of a chain are checked with an interval that allows
for the chain's memory, and with the lengths where the losses reveal its state, else with the correlation of neighbours.
Losses by count are checked exactly.

A test of randomness can fail a wrong emulator, but cannot prove a right one: without an alarm, losses are as configured
as far as this many losses show. With fewer than 200 losses the check is inconclusive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.checks import Asked
from sojourn.methods.emulator.analyse.delay import binomial_p
from sojourn.methods.emulator.analyse.pipe import HEADER_BYTES
from sojourn.statistics.chain import Chain, bernoulli
from sojourn.statistics.proportion import clopper_pearson, worth_pearson
from sojourn.statistics.randomness import Test, age_test, autocorrelation, ljung_box, runs_test, two_sided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sojourn.methods.emulator.analyse.seen import Seen
    from sojourn.statistics.interval import Interval

LEAST_LOSSES = 200
LAGS = 10
STAGES = ("before", "after")
PASSED = {"before": [], "after": ["before", "full", "managed", "profile", "rule", "memory"]}
"""The causes of loss before each stage."""


def asked(seen: Seen, _limits: dict[str, float]) -> list[Asked]:
    """All checks of one pipe's losses, duplicates, bit errors and reordering."""
    found = [one for stage in STAGES for one in _stage(seen, stage)]
    return [*found, *_outside(seen), *_copies(seen), *_bit_errors(seen), *_reordering(seen)]


def rows_of(seen: Seen, stage: str) -> list[NDArray[np.bool_]]:
    """For every trial and flow, in order: whether each packet that reached the stage was lost there."""
    came = seen.log.filter(~pl.col("cause").is_in(PASSED[stage]) & pl.col("copy_of").is_null())
    return [(one["cause"] == stage).to_numpy() for one in came.partition_by("block", "flow", maintain_order=True)]


def _stage(seen: Seen, stage: str) -> list[Asked]:
    if not seen.has_log:
        return []
    counted = seen.pipe.periodic(stage)
    rows = rows_of(seen, stage)
    if counted:
        return [_by_count(rows, *counted, stage)]
    chain = seen.pipe.chain(stage, seen.interval_ns)
    if chain is None:
        return [_none(rows, stage)] if not seen.pipe.losses(stage) else []
    return against(rows, chain, "log", f"loss {stage} the link" if _both(seen) else "loss")


def _both(seen: Seen) -> bool:
    return all(seen.pipe.losses(stage) for stage in STAGES)


def _none(rows: Sequence[NDArray[np.bool_]], stage: str) -> Asked:
    lost = int(sum(row.sum() for row in rows))
    what = "packets lost in a stage without a loss model"
    return Asked(f"no loss {stage} the link", "log", 0.0, "packets", what, exact=lost, n=sum(map(len, rows)))


def _by_count(rows: Sequence[NDArray[np.bool_]], name: str, told: Any, stage: str) -> Asked:
    """Every n-th, or a pattern: how many packets deviate from it. The count may continue from trial to trial."""
    if name == "every":
        period, start = int(told["every"]), int(told["first"]) - 1
        pattern = np.arange(period) == start % period
    else:
        pattern, start = np.array(told["lost"], dtype=np.bool_), 0
    wrong = 0
    for row in rows:
        tiled = np.tile(pattern, len(row) // len(pattern) + 2)
        wrong += min(int((tiled[at : at + len(row)] != row).sum()) for at in range(len(pattern)))
    what = f"packets that were lost or kept against the {name} model"
    return Asked(f"loss {stage} the link", "log", 0.0, "packets", what, exact=wrong, n=sum(map(len, rows)))


def _outside(seen: Seen) -> list[Asked]:
    """The stream's losses, where all of them are configured."""
    pipe = seen.pipe
    if pipe.loss_varies or any(pipe.corruption(stage) for stage in STAGES) or not seen.sends.height:
        return []
    models = [model for stage in STAGES for model in pipe.losses(stage)]
    if not models:
        lost, n = int(sum(row.sum() for row in seen.arrived)), sum(map(len, seen.arrived))
        beyond = max(0, lost - int(seen.trials["local_drops"].sum()))
        what = "frames that did not arrive (without the receiver's local drops)"
        return [Asked("no loss", "streams", 0.0, "packets", what, exact=beyond, n=n)]
    chain = whole_chain(seen)
    return [] if chain is None else against(seen.arrived, chain, "streams", "loss")


def whole_chain(seen: Seen) -> Chain | None:
    """Both stages as one chain, where at most one of them has memory."""
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


def against(rows: Sequence[NDArray[np.bool_]], chain: Chain, of: str, name: str) -> list[Asked]:
    """Losses against a chain: their share, and their pattern."""
    n, lost = sum(map(len, rows)), int(sum(row.sum() for row in rows))
    if not n:
        return []
    enough = min(lost, n - lost) >= LEAST_LOSSES
    found = [_share(n, lost, chain, of, name)]
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


def _share(n: int, lost: int, chain: Chain, of: str, name: str) -> Asked:
    worth = min(float(n), n / chain.inflation)

    def reading(alpha: float) -> Interval:
        return worth_pearson(lost, n, worth, 1 - alpha)

    # A test whether the configured share lies in the interval; its p is the binomial's of as many as they are worth.
    share = chain.loss
    p = binomial_p(lost, n, share) if worth >= n else _worth_p(lost / n, share, worth)
    enough = n * share >= 10 or share in (0.0, 1.0)
    return Asked(name, of, share, "ratio", "share of packets that were lost", reading, p=p, enough=enough, n=n)


def _worth_p(found: float, share: float, worth: float) -> float:
    return two_sided((found - share) / (share * (1 - share) / worth) ** 0.5) if 0 < share < 1 else float(found == share)


def _test(name: str, of: str, found: Test, what: str, enough: bool) -> Asked:
    return Asked(name, of, found.expected, "1", what, p=found.p, enough=enough, measured=found.statistic, n=found.n)


def _ages(rows: Sequence[NDArray[np.bool_]], chain: Chain, of: str, name: str, *, burst: bool, enough: bool) -> Asked:
    """Chi-square over the ages at which bursts (or gaps) end."""
    ends = chain.ends(burst)
    found = age_test(rows, burst, lambda ages: np.full(len(ages), ends))
    what = f"chi-square of the lengths of {'bursts' if burst else 'gaps'}"
    return _test(f"{name}, {'bursts' if burst else 'gaps'}", of, found, what, enough and found.expected > 0)


def _neighbours(rows: Sequence[NDArray[np.bool_]], chain: Chain, of: str, name: str, *, enough: bool) -> Asked:
    """The correlation of neighbouring packets, of a chain whose state the losses do not reveal."""
    numbers = [row.astype(np.float64) for row in rows]
    wanted = chain.correlation(1)
    found = autocorrelation(numbers, 1, chain.loss, 0.95)
    half = found.half_width
    p = two_sided((found.estimate - wanted) / (half / 1.96)) if half else float("nan")
    what = "correlation of the losses of neighbouring packets"
    return Asked(f"{name}, neighbours", of, wanted, "1", what, p=p, enough=enough, measured=found.estimate, n=found.n)


def _copies(seen: Seen) -> list[Asked]:
    """Duplicates, in the log."""
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
    return Asked(name, "log", share, "ratio", what, lambda alpha: clopper_pearson(found, n, 1 - alpha),
                 p=binomial_p(found, n, share), enough=n * share >= 10, n=n)  # fmt: skip


def _bit_errors(seen: Seen) -> list[Asked]:
    """Bit errors: the share of flipped bits, or of packets with one."""
    told = [one for stage in STAGES if (one := seen.pipe.corruption(stage))]
    if len(told) != 1 or not seen.has_log:
        return []
    (name, share), rows = told[0], seen.log.filter((pl.col("disposition") == "sent") & pl.col("copy_of").is_null())
    if not rows.height:
        return []
    if name == "one-bit":
        damaged = int((rows["flipped"] > 0).sum())
        return [_proportion("bit errors", "share of packets with a flipped bit", damaged, rows.height, share)]
    bits = int(((rows["frame_bytes"] - 4 - HEADER_BYTES) * 8).sum())
    return [_proportion("bit errors", "share of bits that were flipped", int(rows["flipped"].sum()), bits, share)]


def _reordering(seen: Seen) -> list[Asked]:
    """Packets chosen to overtake, of those that reached the delay line."""
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
    """After a chosen packet the next gap - 1 cannot be chosen; then each is, with the probability, until one is."""
    return 1 / (max(gap, 1) - 1 + 1 / probability) if probability > 0 else 0.0
