"""Method "background": the plan of streams and round trips under a background load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.plan.matrix import ask_streams
from sojourn.plan.source import refuse

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import Plan


def check(plan: Plan, given: Lookup) -> None:
    """Refuse a plan without a load."""
    if not any(plan.stream.load):
        where = given("stream.load", list(plan.stream.load))
        raise refuse(where, "stream.load", "a share above 0 for study.method = background")


ASK = ask_streams(
    kinds=("one-way", "ping-pong", "request-response"),
    sessions=True,
    joins_clocks=True,
    is_compared=True,
    not_simulated="a simulated line has no load beside the stream",
    check=check,
)
