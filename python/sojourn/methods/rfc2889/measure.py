"""Suite "rfc2889": each trial is a search, whose steps are trials too."""

from sojourn.conduct.searches import SEARCHES

MEASURE = SEARCHES
