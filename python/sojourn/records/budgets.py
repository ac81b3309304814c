"""The members of analysis/budgets.json: a list of budgets, each with its list of components.

The analysis writes it, the report reads it, and docs/reference/results.md is generated from here.
"""

from __future__ import annotations

from typing import Final

BUDGETS: Final[dict[str, str]] = {
    "name": "The figure in words.",
    "device": "As in results.json; with the next five it picks the figure's row.",
    "reference": "As in results.json.",
    "quantity": "As in results.json.",
    "statistic": "As in results.json.",
    "cell": "As in results.json.",
    "port": "As in results.json.",
    "factors": "The figure's factors, those alone that it has.",
    "estimate": "The figure, in `unit`.",
    "unit": "Of the figure, and of all uncertainties of it.",
    "components": "See below.",
    "combined": "The combined standard uncertainty u_c of the counted components; null where the scatter is not known.",
    "effective_degrees": "Of freedom, by Welch and Satterthwaite; null beside a `combined`: infinite.",
    "coverage_factor": "k, Student's quantile for them at `level`.",
    "expanded": "U = k·u_c: the figure ± U holds the true value with probability `level`.",
    "level": "0.95.",
    "interval_half_width": "Of the figure's interval in results.json, without what an error of clocks adds to that; of "
    "one that is not symmetric, the longer side.",
    "interval_of": "What that interval is of, in words.",
    "not_covered": "What U does not hold, in words.",
}

COMPONENTS: Final[dict[str, str]] = {
    "name": "The source of uncertainty.",
    "state": "counted: in `combined`; contained: in another component; cancels: zero in the difference of two paths; "
    "outside: not of this measurand; unknown: not known from this run.",
    "evaluation": "A: from the scatter of what was measured; B: from anything else (GUM 2.3.2, 2.3.3).",
    "standard_uncertainty": "u, in the component's `unit`; null where there is no value.",
    "unit": "Of the component.",
    "distribution": "normal, student-t, rectangular.",
    "sensitivity": "c, the change of the figure for a change of the component by one `unit`.",
    "degrees_of_freedom": "Of the standard uncertainty; null beside a value: infinite.",
    "contribution": "|c|·u, in the figure's unit.",
    "share": "Of the combined variance, from 0 to 1; null of those that are not counted.",
    "source": "Where the value comes from, or why there is none.",
}
