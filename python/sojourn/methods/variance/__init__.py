"""Which part of the variance between beds is carried by what."""
