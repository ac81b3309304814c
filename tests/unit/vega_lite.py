"""Whether a specification is valid Vega-Lite, by the schema that Vega-Lite publishes.

Altair's own check tries every kind of chart and then makes objects of the specification: ten times the work.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import jsonschema

VALIDATOR = jsonschema.Draft7Validator(alt.load_schema())


def check(specification: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError where it is not valid; its data, which may be anything, are not looked at."""
    VALIDATOR.validate({**specification, "datasets": {}})
