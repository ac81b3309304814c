"""What is asked: a plan, parsed once from TOML into frozen types, and expanded into blocks in their order.

Unknown keys, wrong units and impossible values are refused with the file, the line, the key and what was expected.
Does not run anything and knows no machine.
"""

from sojourn.plan.costs import Pair, Setting, expand_costs, settings
from sojourn.plan.effective import effective_toml
from sojourn.plan.estimate import Estimate, estimate, estimate_costs, estimate_searches, estimate_tcp, estimate_trials
from sojourn.plan.load import find_study, load_plan, plan_from_text, studies
from sojourn.plan.rates import Rate
from sojourn.plan.schedule import Block, Cell, arms, cells, expand
from sojourn.plan.tcp import Connections, expand_tcp, tcp_cells
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
    TCP_METHODS,
    BedPlan,
    CostsPlan,
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
    "TCP_METHODS",
    "BedPlan",
    "Block",
    "Cell",
    "Connections",
    "CostsPlan",
    "DeparturesPlan",
    "Estimate",
    "Factors",
    "HostPlan",
    "Pair",
    "PairsPlan",
    "Plan",
    "ProbePlan",
    "Rate",
    "Search",
    "SearchPlan",
    "Setting",
    "StreamPlan",
    "Study",
    "Trial",
    "TrialsPlan",
    "arms",
    "arms_of",
    "cells",
    "effective_toml",
    "estimate",
    "estimate_costs",
    "estimate_searches",
    "estimate_tcp",
    "estimate_trials",
    "expand",
    "expand_costs",
    "expand_searches",
    "expand_tcp",
    "expand_trials",
    "find_study",
    "load_plan",
    "plan_from_text",
    "qualify_trials",
    "settings",
    "stream_cells",
    "studies",
    "tcp_cells",
]
