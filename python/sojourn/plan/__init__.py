"""What is asked: a plan, parsed once from TOML into frozen types, and expanded into blocks in their order.

Unknown keys, wrong units and impossible values are refused with the file, the line, the key and what was expected.
Does not run anything and knows no machine.
"""

from sojourn.plan.effective import effective_toml
from sojourn.plan.estimate import Estimate, estimate
from sojourn.plan.load import find_study, load_plan, studies
from sojourn.plan.schedule import Block, Cell, arms, cells, expand
from sojourn.plan.types import A_A, DIRECT, BedPlan, DeparturesPlan, HostPlan, PairsPlan, Plan, ProbePlan, Study

__all__ = [
    "A_A",
    "DIRECT",
    "BedPlan",
    "Block",
    "Cell",
    "DeparturesPlan",
    "Estimate",
    "HostPlan",
    "PairsPlan",
    "Plan",
    "ProbePlan",
    "Study",
    "arms",
    "cells",
    "effective_toml",
    "estimate",
    "expand",
    "find_study",
    "load_plan",
    "studies",
]
