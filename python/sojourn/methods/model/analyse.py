"""The queueing model: parameters measured at some loads predict the histograms of the loads held out.

A group is a device, an engine and a frame size. Its frames enter when their schedule intends (that, not the actual
departure: the sender's own queue is part of the system, as in the paper) and pass `statistics.queue`: a server with a
fixed and an exponential part of service, stalls, and beyond it a delay that no frame waits for. What is fitted:

- from the lowest load that was measured: the delays without waiting, and the stalls that its tail betrays,
- from every second Poisson load, the lowest first: the service; all other cells, the regular ones too, are held out.

Stalls are modelled only where that fits the training loads better than leaving the slow frames among the delays.
A plan may name its training cells (`[model] train = [cell, ...]`). Floods and ramps are neither trained on nor held
out: a flood has no intended time.

Each held-out trial is predicted from its schedule alone, and compared: Kolmogorov's distance (of all frames, lost ones
at infinity) and Wasserstein's first (ns, of those that arrived). Beside it stand the distance of two repetitions of
the measurement (every trial against every other: what no prediction can beat) and of the model without a queue (the
lowest load's delays, whatever the load). The unit is the trial, intervals are bootstrapped over trials; of a run of
several sessions, a jackknife over sessions.

Rows: model_service (mean), model_service_fixed, model_service_random, model_floor (min), model_delay_without_queue
(p50) [ns]; model_stalls (share of the time) [1], model_capacity [1/s]; model_service_intercept, model_service_slope
(fit over frame sizes);
model_distance_ks [1] and model_distance_w1 [ns] with statistics prediction, repetition, no-queue;
model_delay_predicted and model_delay_measured (p50, p90, p99) [ns] per cell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.factors import in_common
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.frames import cells_of_frames
from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A
from sojourn.analysis.samples import Columns, Sample, shared, with_cells
from sojourn.analysis.sessions import beds_counted, beds_in, by_session, middle
from sojourn.analysis.stream_samples import COMMON
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import micro, percent
from sojourn.statistics.distance import Distances, distances
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.line import fit as fit_line
from sojourn.statistics.queue import Passage, Server, fit, misfit, predict, split_stalls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from sojourn.analysis.factors import Factors
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study

SEED = 20_000
FIT_TRIALS = 3
"""Trials of each training cell that are fitted: more take time and change little."""

FIT_FRAMES = 6_000
"""Frames of each trial, from its begin: a growing queue must be followed from there."""

LOSSY = 1e-3
"""A trial with a larger loss ratio shows the queue's size, but little of the service: it is only fitted if all did."""

LOSSY_FRAMES = 1_000
"""Frames of such a trial: a finite queue is simulated frame by frame, which is slow."""

SESSION, ROUND = "session", "round"
"""Columns of each round that was fitted separately."""

LEAST_ROUNDS = 6
"""With at least this many rounds, each is fitted separately, so that parameters have intervals."""

BINS = 120
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

PARAMETERS = Sample(
    "A parameter of the model of a device at a size.",
    {
        **shared("device engine frame_bytes"),
        "parameter": (pl.String, "The parameter, as a quantity of the results."),
        **shared("unit estimate ci_low ci_high"),
    },
)
_OF_LOAD: Columns = {**shared("device cell"), "training": (pl.Boolean, "Whether the cell was used for the fit.")}
HISTOGRAMS = Sample(
    "A bin of the delays at a load: equal ones from the least to beyond the 99.5 % quantile; lost frames are in none.",
    {
        **_OF_LOAD,
        "what": (pl.String, "measured, predicted, or no-queue (the delays of the lowest load)."),
        **shared("low_ns high_ns"),
        "share": (pl.Float64, "The share of the frames sent."),
    },
    with_factors=True,
)
DISTANCES = Sample(
    "How far two distributions of delays at a load are apart.",
    {
        **_OF_LOAD,
        "distance": (pl.String, "Kolmogorov's (ks, a share), or Wasserstein's first (w1, ns)."),
        "what": (pl.String, "What is compared with the measurement: prediction, repetition, or no-queue."),
        **shared("estimate ci_low ci_high trials"),
    },
    with_factors=True,
)
SAMPLES = COMMON | {"model_parameters": PARAMETERS, "model_histograms": HISTOGRAMS, "model_distances": DISTANCES}


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a cell: its round, its frames and, in a run of several, its session."""

    round: int
    passage: Passage
    session: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """All trials of one cell, and the prediction for each."""

    cell: int
    factors: Factors
    trials: list[Trial]
    training: bool
    predicted: list[NDArray[np.float64]]
    distances: Distances | None


@dataclass(frozen=True, slots=True)
class Model:
    """The fit of one device at one size, and its results at every load."""

    device: str
    factors: Factors
    server: Server
    base: NDArray[np.float64]
    per_round: dict[str, NDArray[np.float64]]
    loads: list[Load]

    @property
    def held_out(self) -> list[Load]:
        """The loads that were not used for the fit."""
        return [one for one in self.loads if not one.training]


def study(run: Run) -> Study:
    """Return a model of every device at every size, and how well it predicts held-out loads."""
    of = Gathered(run)
    of.begin()
    of.add_instances(run.cells)
    train = [int(one) for one in run.plan.get("model", {}).get("train", [])]
    trials: dict[tuple[str, int], list[Trial]] = {}
    for frames in cells_of_frames(run):
        trials |= trials_of(frames)
    found = models(trials, run.cells, train)
    of.samples["model_parameters"] = parameter_sample(found)
    of.samples["model_histograms"] = with_cells(run, histogram_sample(found))
    of.samples["model_distances"] = with_cells(run, distance_sample(found))
    of.rows.extend(_with_clocks(model_rows(found), of))
    of.findings.extend(model_findings(found))
    return of.conclude(_sentence(run, found))


def trials_of(frames: pl.DataFrame) -> dict[tuple[str, int], list[Trial]]:
    """Return the frames of each trial in the order of intended departures; a/a is not modelled as a device.

    Trials whose clocks were not compared are left out: they have no delays.
    """
    found: dict[tuple[str, int], list[Trial]] = {}
    groups = frames.filter(pl.col("device") != A_A).partition_by("block", as_dict=True, maintain_order=True)
    for rows in groups.values():
        ordered = rows.sort("intended_ns")
        if ordered["arrival_on_sender_ns"].null_count() == ordered.height:
            continue
        intended = ordered["intended_ns"].to_numpy().astype(np.int64)
        taken = (ordered["arrival_on_sender_ns"] - ordered["intended_ns"]).cast(pl.Float64).fill_null(np.inf)
        passage = Passage((intended - intended[0]).astype(np.float64), taken.to_numpy())
        key = (str(ordered["device"][0]), int(ordered["cell"][0]))
        found.setdefault(key, []).append(Trial(int(ordered["round"][0]), passage, int(ordered["session"][0])))
    return found


def _with_clocks(rows: list[Row], of: Gathered) -> list[Row]:
    """Set the largest clock error on the rows: a model is no more accurate than the delays that it was fitted to."""
    bounds = [(row.clock_bound_ns, row.clock_error95_ns) for row in of.rows if row.quantity == "one_way_delay"]
    for row in rows:
        row.clock_bound_ns = max((bound for bound, _ in bounds if bound is not None), default=None)
        row.clock_error95_ns = max((error for _, error in bounds if error is not None), default=None)
    return rows


def _sentence(run: Run, found: list[Model]) -> str:
    """Return the distance of the predictions at the main device's held-out loads, and that of two repetitions."""
    device = main_device(run.devices)
    mine = [one for one in found if one.device == device] or found
    pairs = [
        (
            load.distances.prediction[0].estimate,
            load.distances.repetition[0].estimate,
            load.distances.each()["no-queue"][0].estimate,
        )
        for one in mine
        for load in one.held_out
        if load.distances is not None and load.distances.repetition is not None
    ]
    if not pairs:
        return "No load was held out, so the queueing model could not be compared with a measurement"
    off, apart, idle = (float(np.median(column)) for column in zip(*pairs, strict=True))
    service = f"{micro(mine[0].server.mean_ns)} for a frame of {mine[0].factors.frame_bytes} B"
    return (
        f"The queueing model, fitted at other loads (service time {service}), predicts the delays over "
        f"{amid(mine[0].device)} at {len(pairs)} held-out loads: the median Kolmogorov distance from the measurement "
        f"is {off:.2f}; two repetitions of the measurement are {apart:.2f} apart, and delays without any queue are "
        f"{idle:.2f} from the measurement"
    )


def models(
    trials: Mapping[tuple[str, int], list[Trial]], cells: Mapping[int, Factors], train: list[int] | None = None
) -> list[Model]:
    """Return a model for every device and size; `trials` are those of each (device, cell)."""
    groups: dict[tuple[Any, ...], dict[int, list[Trial]]] = {}
    for (device, cell), several in trials.items():
        factors = cells[cell]
        if factors.interval_ns and several and _is_paced(factors):
            key = (device, factors.engine, factors.kind, factors.frame_bytes)
            groups.setdefault(key, {})[cell] = several
    found = [_model(str(key[0]), group, cells, train) for key, group in groups.items()]
    return [one for one in found if one is not None]


def _is_paced(factors: Factors) -> bool:
    return not str(factors.schedule).startswith(("flood", "ramp", "closed-loop"))


def training_cells(cells: Mapping[int, Factors], named: list[int] | None = None) -> list[int]:
    """Return the lowest load, then every second Poisson one; or the cells that the plan names."""
    if named:
        return [cell for cell in _by_load(cells) if cell in named]
    lowest = _by_load(cells)[:1]
    poisson = [cell for cell in _by_load(cells) if cells[cell].schedule == "poisson"]
    return lowest + [cell for cell in poisson[::2] if cell not in lowest]


def _by_load(cells: Mapping[int, Factors]) -> list[int]:
    """Return the cells by falling interval; at equal intervals the regular one first, where nothing waits."""
    return sorted(cells, key=lambda cell: (-(cells[cell].interval_ns or 0), cells[cell].schedule != "regular"))


def _model(
    device: str, group: dict[int, list[Trial]], cells: Mapping[int, Factors], named: list[int] | None
) -> Model | None:
    known = {cell: cells[cell] for cell in group}
    train = training_cells(known, named)
    if not train or len(known) < 2:
        return None
    server, base = fit_group([[one.passage for one in _by_turns(group[cell])] for cell in train])
    per_round = _fit_rounds(group, train, server, base)
    loads = [_load(cell, known[cell], group[cell], cell in train, server, base) for cell in _by_load(known)]
    return Model(device, in_common(known.values()), server, base, per_round, loads)


def _by_turns(trials: list[Trial]) -> list[Trial]:
    """Return the trials in an order in which the first few are of different sessions; unchanged for one session."""
    turn: dict[int, int] = {}
    order = []
    for one in trials:
        turn[one.session] = turn.get(one.session, -1) + 1
        order.append(turn[one.session])
    return [trials[i] for i in sorted(range(len(trials)), key=lambda i: order[i])] if len(turn) > 1 else trials


def fit_group(training: list[list[Passage]]) -> tuple[Server, NDArray[np.float64]]:
    """Return the server, and the delays without waiting; the first training cell is the lowest load."""
    lowest = np.concatenate([one.delay_ns for one in training[0]])
    everything = lowest[np.isfinite(lowest)]
    kept, stalls = split_stalls(lowest)
    short, room = _for_fitting(training)
    candidates = [(fit(short, Server(0.0, 0.0, room=room), everything, SEED), everything)]
    if stalls is not None:
        candidates.append((fit(short, Server(0.0, 0.0, 0.0, stalls, room), kept, SEED), kept))
    server, base = min(candidates, key=lambda one: misfit(short, one[0], one[1], SEED + 1))
    return replace(server, room=_room(training)), base


def _for_fitting(training: list[list[Passage]]) -> tuple[list[list[Passage]], int | None]:
    """Return the begins of a few trials of each cell; trials with loss only if every busy trial has some."""
    whole = [[one for one in cell if not _is_lossy(one)] for cell in training]
    if any(whole[1:]) or not any(training[1:]):
        return [[_beginning(one, FIT_FRAMES) for one in cell[:FIT_TRIALS]] for cell in whole if cell], None
    return [[_beginning(one, LOSSY_FRAMES) for one in cell[:FIT_TRIALS]] for cell in training], _room(training)


def _is_lossy(passage: Passage) -> bool:
    return float(np.mean(~np.isfinite(passage.delay_ns))) > LOSSY


def _room(training: list[list[Passage]]) -> int | None:
    """Return the queue's size in frames, if training loads lost some: the most frames in flight."""
    lossy = [one for cell in training for one in cell if _is_lossy(one)]
    return max((_most_under_way(one) for one in lossy), default=None)


def _most_under_way(passage: Passage) -> int:
    here = np.isfinite(passage.delay_ns)
    entered = passage.entered_ns[here]
    left = np.sort(entered + passage.delay_ns[here])
    return int((np.arange(1, len(entered) + 1) - np.searchsorted(left, entered, side="right")).max(initial=1))


def _beginning(passage: Passage, frames: int) -> Passage:
    return Passage(passage.entered_ns[:frames], passage.delay_ns[:frames])


def _fit_rounds(
    group: dict[int, list[Trial]], train: list[int], server: Server, base: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Return the service fitted to each round separately, for the intervals of the parameters."""
    rounds = sorted(set.intersection(*({(one.session, one.round) for one in group[cell]} for cell in train)))
    if len(rounds) < LEAST_ROUNDS:
        return {}
    found = []
    for round_ in rounds:
        own = [[one.passage for one in group[cell] if (one.session, one.round) == round_] for cell in train]
        short, room = _for_fitting(own)
        found.append(fit(short, replace(server, room=room), base, SEED, server))
    lowest = group[train[0]]
    floors = [
        float(np.median(np.concatenate([one.passage.delay_ns for one in lowest if (one.session, one.round) == round_])))
        for round_ in rounds
    ]
    return {
        "service": np.array([one.mean_ns for one in found]),
        "fixed": np.array([one.fixed_ns for one in found]),
        "random": np.array([one.random_ns for one in found]),
        "floor": np.array(floors),
        SESSION: np.array([session for session, _ in rounds], dtype=np.float64),
        ROUND: np.array([at for _, at in rounds], dtype=np.float64),
    }


def _load(
    cell: int, factors: Factors, trials: list[Trial], training: bool, server: Server, base: NDArray[np.float64]
) -> Load:  # fmt: skip
    predicted = [
        predict(one.passage.entered_ns, server, base, np.random.default_rng([SEED, cell, i]))
        for i, one in enumerate(trials)
    ]
    measured = [one.passage.delay_ns for one in trials]
    rng = np.random.default_rng([SEED, cell])
    without = [rng.choice(base, size=len(one)) for one in measured]
    session = np.array([one.session for one in trials], dtype=np.int64)
    apart = distances(measured, predicted, without, SEED + cell, session if beds_in(session) else None)
    return Load(cell, factors, trials, training, predicted, apart)


def model_rows(found: list[Model]) -> list[Row]:
    """Return rows of parameters, distances and quantiles."""
    rows = [row for one in found for row in (*_parameter_rows(one), *_load_rows(one))]
    return [*rows, *_size_rows(found)]


def parameters(model: Model) -> Iterator[tuple[str, str, Interval, str]]:
    """Return quantity, statistic, value and unit of every fitted parameter."""
    server = model.server
    known = {"service": server.mean_ns, "fixed": server.fixed_ns, "random": server.random_ns}
    names = {"service": "model_service", "fixed": "model_service_fixed", "random": "model_service_random"}
    for name, estimate in known.items():
        yield names[name], "mean", _about(estimate, model.per_round, name), "ns"
    yield "model_capacity", "mean", _inverse(_about(server.mean_ns, model.per_round, "service")), "1/s"
    yield "model_floor", "min", _alone(float(model.base.min())), "ns"
    yield "model_delay_without_queue", "p50", _about(float(np.median(model.base)), model.per_round, "floor"), "ns"
    stalls = server.stalls
    yield "model_stalls", "share", _alone(0.0 if stalls is None else stalls.rate_hz * stalls.mean_ns / 1e9), "1"
    if stalls is not None:
        yield "model_stall", "mean", _alone(stalls.mean_ns), "ns"
        yield "model_stall_rate", "mean", _alone(stalls.rate_hz), "1/s"


def _parameter_rows(model: Model) -> Iterator[Row]:
    frames = sum(len(one.passage.entered_ns) for load in model.loads if load.training for one in load.trials)
    for quantity, statistic, value, unit in parameters(model):
        known = bool(model.per_round) and value.low is not None
        beds = beds_counted(model.per_round[SESSION].astype(np.int64)) if known else None
        yield Row(model.device, quantity, statistic, value, unit, None, model.factors, None, frames, source="model",
                  sessions=beds)  # fmt: skip


def _about(estimate: float, per_round: dict[str, NDArray[np.float64]], name: str) -> Interval:
    """Return a time fitted to all rounds, with the interval over rounds fitted separately, or over sessions."""
    if not per_round:
        return _alone(estimate)
    over = middle(per_round[name], per_round[SESSION].astype(np.int64))
    if over.low is None or over.high is None:
        return _alone(estimate)
    return Interval(estimate, max(0.0, min(over.low, estimate)), max(over.high, estimate), over.level, over.n)


def _inverse(value: Interval) -> Interval:
    """Return a rate from a time per frame; without an interval where the time's reaches 0, as the rate's is
    unbounded."""
    low, high = (1e9 / value.high, 1e9 / value.low) if value.low and value.high else (None, None)
    return Interval(1e9 / value.estimate if value.estimate else float("inf"), low, high, value.level, value.n)


def _alone(estimate: float) -> Interval:
    return Interval(estimate, None, None, 0.95, 1)


def _load_rows(model: Model) -> Iterator[Row]:
    for load in model.loads:
        frames = sum(len(one.passage.entered_ns) for one in load.trials)
        like = Row(model.device, "", "", _alone(0.0), "", None, load.factors, load.cell, frames)
        like.sessions = beds_in(np.array([one.session for one in load.trials], dtype=np.int64))
        for quantity, statistic, value, unit in _load_figures(load):
            source = "model, training load" if load.training else "model, held-out load"
            yield replace(like, quantity=quantity, statistic=statistic, value=value, unit=unit, source=source)


def _load_figures(load: Load) -> Iterator[tuple[str, str, Interval, str]]:
    if load.distances is not None:
        for what, (ks, w1) in load.distances.each().items():
            yield "model_distance_ks", what, ks, "1"
            yield "model_distance_w1", what, w1, "ns"
    measured = np.concatenate([one.passage.delay_ns for one in load.trials])
    for name, q in QUANTILES.items():
        for quantity, values in (("measured", measured), ("predicted", np.concatenate(load.predicted))):
            estimate = float(np.quantile(values, q, method="inverted_cdf"))
            yield f"model_delay_{quantity}", name, Interval(estimate, None, None, 0.95, len(load.trials)), "ns"


def _size_rows(found: list[Model]) -> Iterator[Row]:
    """Return service as a + b x frame size, for a device with at least two sizes: a line per round."""
    groups: dict[tuple[str, Any, Any], list[Model]] = {}
    for one in found:
        groups.setdefault((one.device, one.factors.engine, one.factors.kind), []).append(one)
    for (device, _, _), several in groups.items():
        ordered = sorted(several, key=lambda one: one.factors.frame_bytes or 0)
        sizes = np.array([one.factors.frame_bytes or 0 for one in ordered], dtype=np.float64)
        if len(set(sizes)) < 2:
            continue
        rows, beds = _service_by_size(ordered)
        line = fit_line(sizes, rows) if beds is None else fit_line(sizes, rows, over=student_t)
        common = in_common(one.factors for one in ordered)
        for quantity, value, unit in (("intercept", line.intercept, "ns"), ("slope", line.slope, "ns/byte")):
            yield Row(device, f"model_service_{quantity}", "fit", value, unit, None, common, None, 0, source="model",
                      sessions=beds)  # fmt: skip


def _service_by_size(ordered: list[Model]) -> tuple[NDArray[np.float64], int | None]:
    """Return mean service per round (rows) and size (columns), or per session; one row if rounds have no
    separate fit."""
    each = [_services(one) for one in ordered]
    shared = sorted(set.intersection(*(set(one) for one in each)))
    if not shared:
        return np.array([[one.server.mean_ns for one in ordered]]), None
    session = np.array([session for session, _ in shared], dtype=np.int64)
    rows = np.array([[one[at] for one in each] for at in shared], dtype=np.float64)
    beds = beds_in(session)
    return (rows, None) if beds is None else (by_session(rows, session), beds)


def _services(model: Model) -> dict[tuple[int, int], float]:
    """Return the mean service of each separately fitted round, by session and round."""
    if not model.per_round:
        return {}
    columns = (model.per_round[name].tolist() for name in (SESSION, ROUND, "service"))
    return {(int(session), int(at)): mean for session, at, mean in zip(*columns, strict=True)}


def model_findings(found: list[Model]) -> list[Finding]:
    """Return held-out loads whose prediction is significantly more than twice as far off as repetitions are apart."""
    off: dict[Place, float] = {}
    for model in found:
        for load in model.held_out:
            if load.distances is None or load.distances.repetition is None:
                continue
            low = load.distances.prediction[0].low
            apart = load.distances.repetition[0].estimate
            if low is not None and low > 2 * apart:
                off[Place(model.device, load.cell)] = load.distances.prediction[0].estimate
    if not off:
        return []
    places, worst = worst_first(off)
    sentence = (
        f"the queueing model does not predict the measured delays at {len(off)} of "
        f"{sum(len(one.held_out) for one in found)} held-out loads, at worst by {percent(worst)} of the frames"
    )
    return [Finding("model_misfit", sentence, worst, places)]


def parameter_sample(found: list[Model]) -> pl.DataFrame:
    """Return the sample `model_parameters`."""
    rows = [
        (one.device, one.factors.engine, one.factors.frame_bytes, quantity, unit, value.estimate, value.low, value.high)
        for one in found
        for quantity, _, value, unit in parameters(one)
    ]
    return pl.DataFrame(rows, schema=PARAMETERS.own, orient="row")


def histogram_sample(found: list[Model]) -> pl.DataFrame:
    """Return the sample `model_histograms`: equal bins from the least delay to beyond the 99.5th percentile of both."""
    rows = []
    for model in found:
        for load in model.loads:
            measured = np.concatenate([one.passage.delay_ns for one in load.trials])
            kinds = {"measured": measured, "predicted": np.concatenate(load.predicted), "no-queue": model.base}
            for what, low, high, share in _histograms(kinds):
                rows.append((model.device, load.cell, load.training, what, low, high, share))
    return pl.DataFrame(rows, schema=HISTOGRAMS.own, orient="row")


def _histograms(kinds: dict[str, NDArray[np.float64]]) -> Iterator[tuple[str, float, float, float]]:
    both = np.concatenate([kinds["measured"], kinds["predicted"]])
    both = both[np.isfinite(both)]
    if not len(both):
        return
    edges = np.linspace(float(both.min()), float(np.quantile(both, 0.995)) + 1.0, BINS + 1)
    for what, values in kinds.items():
        counts, _ = np.histogram(values[np.isfinite(values)], edges)
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
            if count:
                yield what, float(low), float(high), float(count) / len(values)


def distance_sample(found: list[Model]) -> pl.DataFrame:
    """Return the sample `model_distances`."""
    rows = []
    for model in found:
        for load in model.loads:
            for what, pair in {}.items() if load.distances is None else load.distances.each().items():
                for name, value in zip(("ks", "w1"), pair, strict=True):
                    head = (model.device, load.cell, load.training, name, what)
                    rows.append((*head, value.estimate, value.low, value.high, value.n))
    return pl.DataFrame(rows, schema=DISTANCES.own, orient="row")
