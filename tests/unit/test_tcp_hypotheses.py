"""The known results on TCP that a run tests: made-up trials in which each holds, in which not, and that cannot say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sojourn.analysis.factors import Factors
from sojourn.methods.tcp_load.analyse import figure
from sojourn.methods.tcp_load.analyse.hypotheses import formula_ratio, pipe_of, pipes_set
from sojourn.methods.tcp_load.analyse.hypotheses import tested as outcomes_of
from sojourn.methods.tcp_load.analyse.trials import Done

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.hypotheses import Outcome

MSS, RATE_BPS, RTT_S = 1448, 20e6, 0.022
ROUNDS, BEDS = 12, 6
PRODUCT = 33
"""Full packets in 20 Mbit/s over 20 ms."""


def words(slots: int = 200, loss: float = 0.0) -> str:
    return f"rate 20Mbit/s delay 10ms queue {slots}" + (f" loss {loss}" if loss else "")


def told(slots: int = 200, loss: float = 0.0, **more: Any) -> dict[str, Any]:
    """What the log says that an emulator was set to."""
    losses = [{"independent": {"probability": loss}}] if loss else []
    return {
        "link": {"rate_bps": RATE_BPS}, "delay": {"constant": 10_000_000, "jitter": None},
        "queue": {"limit": {"bytes": None, "slots": slots}, "aqm": None}, "before": {"loss": losses},
    } | more  # fmt: skip


STATISTICS = {"share": "up second", "rtt_exponent": "up working"}


class Made:
    """A run of some cells, each with a figure that scatters over rounds and beds."""

    def __init__(self, *hypotheses: str) -> None:
        self.trials: list[Done] = []
        self.log: list[dict[str, Any]] = []
        self.hypotheses = list(hypotheses)
        self.rng = np.random.default_rng(7)
        self.cells: dict[int, Any] = {}

    def cell(
        self,
        congestion: str,
        slots: int,
        loss: float,
        pipe: dict[str, Any] | None = None,
        mix: str = "",
        rtt_s: float = RTT_S,
        **values: float,
    ) -> None:
        """Add a cell: `values` are means of its figures up, by quantity (share: of who joins).

        `pipe` is what else the emulator was set to, `mix` the round trips of the flows, `rtt_s` that of the probes.
        """
        number, name = len(self.cells), words(slots, loss)
        self.cells[number] = Factors("icmp")
        for turn in range(ROUNDS):
            block = number * ROUNDS + turn
            scale = 1 + 0.01 * self.rng.standard_normal()
            own = {(key, STATISTICS.get(key, "up")): value * scale for key, value in values.items()}
            own["rtt_working", "mean"] = rtt_s * 1e9
            factors = {"flows": 1, "direction": "up", "congestion": congestion, "pipe": name, "round_trips": mix}
            self.trials.append(Done(block, "emulate", number, turn, factors, own, 100, 0.0, 0.0))
            self.log.append({"event": "load-trial", "block": block, "device": "emulate", "cell": number,
                             "factors": factors})  # fmt: skip
            self.log += [{"event": "emulator-set", "block": block, "pipe": way, "to": told(slots, loss) | (pipe or {})}
                         for way in ("forward", "backward")]  # fmt: skip

    def sessions_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Two rounds a bed."""
        return np.asarray((blocks % ROUNDS) // (ROUNDS // BEDS))

    def outcome(self) -> Outcome:
        """What the analysis makes of it."""
        run: Any = self
        pipes = pipes_set(run)
        for trial in self.trials:
            trial.values.update(formula_ratio(trial, pipes, MSS))
        cells = [[one for one in self.trials if one.cell == cell] for cell in self.cells]
        rows = [figure(run, own, quantity, STATISTICS.get(quantity, "up")) for own in cells
                for quantity in ("utilisation", "mathis_ratio", "cubic_ratio", "rtt_exponent")
                if (quantity, STATISTICS.get(quantity, "up")) in own[0].values]  # fmt: skip
        [found] = outcomes_of(run, self.trials, rows)
        return found


def formula_bps(loss: float) -> float:
    """Mathis' formula, written out."""
    return MSS * 8 / RTT_S * math.sqrt(3 / 2) / math.sqrt(loss)


def use(reno: float, cubic: float, slots: int = PRODUCT) -> Made:
    made = Made("full-at-one-product")
    made.cell("reno", slots, 0, utilisation=reno)
    made.cell("cubic", slots, 0, utilisation=cubic)
    made.cell("cubic", 8, 0, utilisation=0.6)  # a short queue is not what it is about
    made.cell("cubic", PRODUCT, 0.01, utilisation=0.4)
    return made


def under_loss(first: float, second: float) -> Made:
    """Flows of Reno under 1 % and 2 %, which get so many times what the formula gives."""
    made = Made("mathis")
    made.cell("reno", 200, 0.01, goodput=first * formula_bps(0.01))
    made.cell("reno", 200, 0.02, goodput=second * formula_bps(0.02))
    made.cell("reno", 200, 0.0001, goodput=1e6)  # the formula exceeds the link
    made.cell("cubic", 200, 0.01, goodput=1e6)
    return made


FRIENDLY, OWN = (0.02, 0.01), (0.4, 0.001)
"""Round trip (s) and loss of pipes in the Reno-friendly region and outside of it."""


def cubic(*cells: tuple[tuple[float, float], float]) -> Made:
    """Flows of CUBIC over such pipes, which get so many times what RFC 9438 gives: by its numbers, written out."""
    made = Made("cubic-region")
    for slots, ((rtt_s, loss), times) in enumerate(cells, start=2000):
        window = max(1.2247 / loss**0.5, 1.054 * (rtt_s / loss) ** 0.75)
        pipe = {"delay": {"constant": rtt_s / 2 * 1e9, "jitter": None}}
        made.cell("cubic", slots, loss, pipe, rtt_s=rtt_s, goodput=times * window * MSS * 8 / rtt_s)
    made.cell("reno", 200, 0.01, goodput=1e6)
    made.cell("cubic", 200, 0.0001, goodput=1e6)  # the formula exceeds the link
    return made


def beside(*shares: float) -> Made:
    """BBR beside CUBIC with queues of a half, one, four bandwidth-delay products."""
    made = Made("bbr-share-falls")
    for slots, share in zip((17, 33, 132), shares, strict=False):
        made.cell("cubic+bbr", slots, 0, share=share)
    return made


def by_rtt(*powers: float, congestion: str = "reno", mix: str = "20ms+100ms", loss: float = 0.0, **pipe: Any) -> Made:
    """Flows whose goodput falls with the round trip under load by these powers, each in a cell of its own."""
    made = Made("reno-share-by-rtt")
    for power in powers:
        made.cell(congestion, PRODUCT, loss, pipe, mix, rtt_exponent=power)
    made.cell("cubic", PRODUCT, 0, mix=mix, rtt_exponent=0.1)
    return made


@pytest.mark.parametrize(
    ("made", "expected", "said"),
    [
        (use(0.99, 0.98), "supported", "flow of cubic uses"),
        (use(0.99, 0.85), "rejected", "flow of cubic uses"),
        (use(0.99, 0.951), "inconclusive", "flow of cubic uses"),
        (use(0.99, 0.99, slots=100), "inconclusive", "not tested"),
        (under_loss(1.1, 0.8), "supported", "the farthest from 1 of 2 cells"),
        (under_loss(1.0, 0.5), "rejected", "gets 0.50 times"),
        (under_loss(1.7, 1.0), "rejected", "gets 1.7"),
        (under_loss(1.5, 1.0), "inconclusive", "gets 1.5"),
        (
            cubic((FRIENDLY, 1.1), (OWN, 0.8)),
            "supported",
            "of 2 cells, 1 well in the Reno-friendly region and 1 well outside",
        ),
        (cubic((FRIENDLY, 1.0), (OWN, 1.7)), "rejected", "gets 1.6"),
        (cubic((FRIENDLY, 0.5), (OWN, 1.0)), "rejected", "gets 0.50 times what RFC 9438 gives"),
        (cubic((FRIENDLY, 1.0), (OWN, 1.5)), "inconclusive", "gets 1.4"),
        (cubic((FRIENDLY, 1.0), (OWN, 38.7 / 94.2)), "rejected", "gets 0.41"),  # Reno's window where CUBIC has its own
        (cubic((FRIENDLY, 1.0)), "inconclusive", "no single flow of cubic well outside the Reno-friendly"),
        (cubic((OWN, 1.0)), "inconclusive", "no single flow of cubic well in the Reno-friendly region"),
        (cubic((FRIENDLY, 1.0), ((0.4, 0.01), 1.0)), "inconclusive", "no single flow of cubic well outside the Reno"),
        (cubic(), "inconclusive", "not tested: no single flow of cubic had random loss"),
        (beside(0.8, 0.6, 0.3), "supported", "with 0.5"),
        (beside(0.3, 0.4, 0.6), "rejected", "with 4.0"),
        (beside(0.5, 0.4, 0.5), "inconclusive", "with 4.0"),
        (beside(0.5), "inconclusive", "not tested"),
        (by_rtt(1.5), "supported", "goes as R^\u22121.50 with the round trip"),
        (by_rtt(1.1, 1.9), "supported", "of 2 cells; the bounds are R^\u22121 and R^\u22122"),
        (by_rtt(1.5, 0.5), "rejected", "goes as R^\u22120.50"),
        (by_rtt(2.4), "rejected", "goes as R^\u22122.4"),
        (by_rtt(1.0), "inconclusive", "goes as R^\u22121.0"),
        (by_rtt(1.5, congestion="cubic"), "inconclusive", "not tested"),
        (by_rtt(1.5, queue={"aqm": {"codel": {}}}), "inconclusive", "not tested"),
        (by_rtt(1.5, queue={"scheduler": {"fq-codel": {}}}), "inconclusive", "not tested"),
        (by_rtt(1.5, queue={"drop": "head"}), "inconclusive", "not tested"),
        (by_rtt(1.5, loss=0.01), "inconclusive", "not tested"),
        (by_rtt(1.5, link={"rate_bps": None}), "inconclusive", "not tested"),
    ],
)
def test_true_hypotheses_about_tcp_are_supported_and_false_ones_rejected(made: Made, expected: str, said: str) -> None:
    found = made.outcome()
    assert (found.outcome, said in found.sentence) == (expected, True), found


@pytest.mark.parametrize("order", [1, -1])
def test_bbrs_shares_of_two_devices_are_not_mixed(order: int) -> None:
    """One device has what is expected, the other its opposite: rejected, whichever was measured last."""
    made, other = beside(0.8, 0.6, 0.3), beside(0.3, 0.6, 0.8)
    more = [replace(one, block=one.block + len(made.trials), device="bridge") for one in other.trials]
    for entry in other.log:
        entry["block"] += len(made.trials)
    made.trials = [*made.trials, *more][::order]
    made.log += other.log
    assert made.outcome().outcome == "rejected"


def test_hypotheses_for_one_rtt_exclude_flows_of_other_rtts() -> None:
    """A cell in which a flow uses half of the rate, or BBR gains, rejects nothing where round trips differ."""
    made = Made("full-at-one-product")
    made.cell("reno", PRODUCT, 0, mix="20ms+100ms", utilisation=0.5)
    assert "not tested" in made.outcome().sentence
    made = Made("bbr-share-falls")
    for slots, share in ((17, 0.3), (132, 0.8)):
        made.cell("cubic+bbr", slots, 0, mix="20ms+100ms", share=share)
    assert "not tested" in made.outcome().sentence
    assert pipe_of([told(PRODUCT) | {"delay": {"constant": 1, "of_ports": [{"first": 1}]}}]) is None


def test_unknown_hypothesis_is_not_tested() -> None:
    assert Made("vegas-region").outcome().sentence == "not tested: no such hypothesis is known"


def test_a_pipe_is_known_by_its_rate_delay_queue_and_random_loss_alone() -> None:
    pipe = pipe_of([told(PRODUCT, 0.01), told(PRODUCT, 0.01)])
    assert pipe is not None
    assert (pipe.rate_bps, pipe.round_trip_s, pipe.loss) == (20e6, 0.02, 0.01)
    assert pipe.products == pytest.approx(33 * 1514 / 50_000)
    by_bytes = pipe_of([told() | {"queue": {"limit": {"bytes": 100_000, "slots": None}}}])
    assert by_bytes is not None
    assert by_bytes.products == 2
    both = pipe_of([told() | {"queue": {"limit": {"bytes": 100_000, "slots": 33}}}])
    assert both is not None
    assert both.products == pytest.approx(33 * 1514 / 50_000), "each limit holds"
    others: tuple[dict[str, Any], ...] = (
        {"link": {"rate_bps": None}},
        {"delay": {"constant": 10_000_000, "jitter": {"normal": {}}}},
        {"queue": {"limit": {"slots": 33}, "aqm": {"codel": {}}}},
        {"before": {"loss": [{"gilbert": {}}]}},
        {"queue": {"limit": {"slots": 33}, "scheduler": {"drr": {}}}},
        {"link": {"rate_bps": 20_000_000, "cell": {"bytes": 48, "overhead_bytes": 5}}},
    )
    for other in others:
        assert pipe_of([told() | other]) is None, other
