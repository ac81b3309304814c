"""Method "rfc8219": the searches and tests of RFC 8219, as every suite is analysed."""

from sojourn.analysis.rate_budget import search_budgets as budgets
from sojourn.analysis.suites import study

__all__ = ["budgets", "study"]
