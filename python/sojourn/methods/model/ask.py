"""Method "model": the plan of streams that a model of a path is fitted to."""

from __future__ import annotations

from sojourn.plan.matrix import ask_streams
from sojourn.plan.section import key, section
from sojourn.plan.values import list_of, whole


@section
class ModelPlan:
    """The cells that are fitted; the others are held out."""

    train: tuple[int, ...] = key(
        list_of(whole(0, 100_000), may_be_empty=True),
        (),
        ("cells that a model is fitted to; empty: the method chooses them"),
    )


ASK = ask_streams(restless=True, sessions=True, more={"model": ModelPlan}, joins_clocks=True)
