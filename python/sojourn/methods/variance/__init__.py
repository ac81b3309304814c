"""Method "variance": which part of the variance between beds is carried by what."""
