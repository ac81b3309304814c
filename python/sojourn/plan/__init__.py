"""What is asked: a plan, parsed once from TOML into frozen types, and expanded into blocks in their order.

Unknown keys, wrong units and impossible values are refused with the file, the line, the key and what was expected.
Does not run anything and knows no machine.
"""

from sojourn.plan.effective import effective_toml
from sojourn.plan.estimate import Estimate, estimate, estimate_searches, estimate_trials
from sojourn.plan.load import find_study, load_plan, studies
from sojourn.plan.rates import Rate
from sojourn.plan.schedule import Block, Cell, arms, cells, expand
from sojourn.plan.trials import (
    Factors,
    Search,
    Trial,
    arms_of,
    expand_searches,
    expand_trials,
    qualify_trials,
    stream_cells,
)
from sojourn.plan.types import (
    A_A,
    DIRECT,
    PAIR_METHODS,
    SEARCH_METHODS,
    STREAM_METHODS,
    BedPlan,
    DeparturesPlan,
    HostPlan,
    PairsPlan,
    Plan,
    ProbePlan,
    SearchPlan,
    StreamPlan,
    Study,
    TrialsPlan,
)

__all__ = [
    "A_A",
    "DIRECT",
    "PAIR_METHODS",
    "SEARCH_METHODS",
    "STREAM_METHODS",
    "BedPlan",
    "Block",
    "Cell",
    "DeparturesPlan",
    "Estimate",
    "Factors",
    "HostPlan",
    "PairsPlan",
    "Plan",
    "ProbePlan",
    "Rate",
    "Search",
    "SearchPlan",
    "StreamPlan",
    "Study",
    "Trial",
    "TrialsPlan",
    "arms",
    "arms_of",
    "cells",
    "effective_toml",
    "estimate",
    "estimate_searches",
    "estimate_trials",
    "expand",
    "expand_searches",
    "expand_trials",
    "find_study",
    "load_plan",
    "qualify_trials",
    "stream_cells",
    "studies",
]
