"""Which factors cause which part of the variance between beds."""
