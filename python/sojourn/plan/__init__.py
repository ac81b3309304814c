"""A plan, parsed once from TOML into frozen types. The sections of a method are in its `ask` module.

Unknown keys, wrong units and impossible values are refused with the file, the line, the key and what was expected. Does
not run anything and knows no machine.
"""

from sojourn.plan.effective import effective_toml
from sojourn.plan.load import find_study, has_variant, load_plan, plan_from_text, studies
from sojourn.plan.types import A_A, DIRECT, Plan

__all__ = [
    "A_A",
    "DIRECT",
    "Plan",
    "effective_toml",
    "find_study",
    "has_variant",
    "load_plan",
    "plan_from_text",
    "studies",
]
