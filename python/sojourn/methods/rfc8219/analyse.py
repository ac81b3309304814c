"""Method "rfc8219": the searches and tests of RFC 8219, as every suite is analysed."""

from functools import partial

from sojourn.analysis.rate_budget import search_budgets as budgets
from sojourn.analysis.suites import study_of
from sojourn.analysis.suites.samples import SUITE as SAMPLES

__all__ = ["SAMPLES", "budgets", "study"]

study = partial(study_of, rfc="RFC 8219")
